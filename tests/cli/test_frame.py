"""The frame around every command: exit codes, one-line errors, overrides among options, a quick
--help."""

import argparse
import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import simulator.cli as cli
from simulator.cli.parser import Command, CommandParser, arg, config_arguments
from simulator.config import load_config
from simulator.errors import RunFailure, UserError

CONFIG = str(Path(__file__).parents[2] / "configs" / "taylor_green.yaml")


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[argparse.Namespace], int]], None]:
    """Makes `simulator trial CONFIG [key=value ...] [--output DIR] [--fast]` run the given
    function."""

    def register(execute: Callable[[argparse.Namespace], int]) -> None:
        def build(commands=()) -> CommandParser:
            parser = CommandParser(prog="simulator")
            options = (arg("--output"), arg("--fast", action="store_true"))
            trial = Command("a trial", execute, (*config_arguments(), *options))
            trial.add_to(parser.add_subparsers(dest="command", required=True), "trial")
            return parser

        monkeypatch.setattr(cli, "COMMANDS", ("trial",))
        monkeypatch.setattr(cli, "build_parser", build)

    return register


def raising(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def execute(args: argparse.Namespace) -> int:
        raise error

    return execute


@pytest.mark.parametrize(
    "error, code, message",
    [
        (UserError("x.yaml:1: a: wrong, right"), 2, "x.yaml:1: a: wrong, right\n"),
        (RunFailure("velocity is not finite"), 1, "velocity is not finite\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "runs"),
            2,
            "runs: File name too long\n",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", "runs"),
            1,
            "runs: No space left on device\n",
        ),
        (
            OSError(None, "cannot be read: cut short", "a.h5"),
            1,
            "a.h5: cannot be read: cut short\n",
        ),
    ],
)
def test_known_endings_are_one_line(command, capsys, error: BaseException, code: int, message: str):
    command(raising(error))
    assert cli.main(["trial", "x"]) == code and capsys.readouterr() == ("", message)


@pytest.mark.parametrize("place", ["in the file", "in the function"])
def test_sys_exit_in_a_users_file_is_a_mistake_and_no_success(place: str, tmp_path: Path, capsys):
    """Otherwise a run that has done nothing would end with code 0."""
    inside = "    " if place == "in the function" else ""
    (tmp_path / "mine.py").write_text(
        f"import sys\ndef start(x, y, z):\n    pass\n{inside}sys.exit(0)\n"
    )
    initial = f"initial={{kind: python, function: start, path: {tmp_path / 'mine.py'}}}"
    assert cli.main(["check", CONFIG, initial]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1
    assert f"{tmp_path / 'mine.py'}:4: " in shown.err and "SystemExit: 0" in shown.err


def test_sys_exit_elsewhere_names_the_line(command, capsys):
    command(raising(SystemExit(0)))
    assert cli.main(["trial", "x"]) == 2
    assert re.fullmatch(
        r"\S+test_frame.py:\d+: execute: called sys.exit\(0\); .*\n", capsys.readouterr().err
    )


BREAK = "a\nb"


@pytest.mark.parametrize(
    "arguments",
    [
        [BREAK],
        ["check", BREAK],
        ["check", CONFIG, BREAK],
        ["check", CONFIG, f"{BREAK}=1"],
        ["check", CONFIG, f"time.stop={BREAK}"],
        ["check", CONFIG, f"model.kind={BREAK}"],
        ["check", CONFIG, 'initial={kind: python, function: f, path: "a\\nb"}'],
        ["resume", BREAK],
        ["explain", BREAK],
        ["status", BREAK],
        ["plot", BREAK],
        ["plot", "x", "--time", BREAK],
        ["report", BREAK],
        ["sweep", BREAK],
        ["docs", BREAK],
    ],
    ids=lambda arguments: " ".join(arguments).replace(CONFIG, "CONFIG"),
)
def test_a_line_break_in_an_argument_makes_no_second_line(arguments: list[str], capsys):
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_full_disk_behind_stdout_is_one_line():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "simulator", "init"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "standard output: No space left on device\n")


def test_a_bug_keeps_its_traceback(command, capsys):
    command(raising(ZeroDivisionError("ours")))
    assert cli.main(["trial", "x"]) == 1 and "Traceback" in (shown := capsys.readouterr().err)
    assert "ZeroDivisionError: ours" in shown


LINES = """x.yaml a=1 b=2 --output d --fast
--output d --fast x.yaml a=1 b=2
x.yaml --output d a=1 --fast b=2
--fast x.yaml a=1 --output=d b=2"""


@pytest.mark.parametrize("line", LINES.splitlines())
def test_overrides_stand_anywhere_among_the_options(command, line: str):
    seen: list[argparse.Namespace] = []
    command(lambda args: seen.append(args) or 0)
    assert cli.main(["trial", *line.split()]) == 0
    assert (seen[0].config, seen[0].overrides) == ("x.yaml", ["a=1", "b=2"])
    assert (seen[0].output, seen[0].fast) == ("d", True)


HELP = "see simulator trial --help"
REQUIRED = "the following arguments are required: "


@pytest.mark.parametrize(
    "line, message",
    [
        ("", f"simulator: {REQUIRED}command; see simulator --help"),
        ("--fast", f"simulator: {REQUIRED}command; see simulator --help"),
        ("trail", "simulator: unknown command 'trail', did you mean trial? known: trial"),
        ("zzz", "simulator: unknown command 'zzz'; known: trial"),
        ("trial", f"simulator trial: {REQUIRED}CONFIG; {HELP}"),
        (
            "trial x --fats",
            f"simulator trial: unknown argument --fats, did you mean --fast? {HELP}",
        ),
        ("trial x --output", f"simulator trial: argument --output: expected one argument; {HELP}"),
    ],
)
def test_a_wrong_command_line_is_one_line(command, capsys, line: str, message: str):
    command(lambda args: 0)
    assert cli.main(line.split()) == 2 and capsys.readouterr() == ("", message + "\n")


@pytest.mark.smoke
@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_shows_a_working_example(name: str, capsys, monkeypatch: pytest.MonkeyPatch):
    assert cli.main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    example = next(line for line in shown.splitlines() if line.startswith("example: simulator "))
    arguments = example.removeprefix("example: simulator ").split()
    assert arguments[0] == name
    runs_python = "Python files that the configuration names are executed" in shown
    assert runs_python == (name in ("check", "plan", "submit", "analyze", "halos"))
    args = cli.build_parser((name,)).parse_args(arguments)
    if config := getattr(args, "config", None):
        monkeypatch.chdir(Path(__file__).parents[2])
        load_config(config, getattr(args, "overrides", ()))


@pytest.mark.smoke
def test_the_version_is_the_packages(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"simulator {version('simulator')}\n"


@pytest.mark.parametrize(
    "line, instead",
    [
        ("merge outputs/run out.h5", "to_netcdf('out.nc')"),
        ("devices case.yaml", "simulator doctor [CONFIG]"),
    ],
)
def test_a_command_that_is_gone_says_what_to_type_instead(capsys, line: str, instead: str):
    assert cli.main(line.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1
    assert (
        shown.err.startswith(f"simulator {line.split()[0]}: this command is gone; ")
        and instead in shown.err
    )


def test_help_lists_every_command_once_in_its_group(capsys):
    assert cli.main(["--help"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:3].strip()]
    at = {group: listed.index(f"{group}:") for group in cli.GROUPS}
    for group, names in cli.GROUPS.items():
        assert listed[at[group] + 1 : at[group] + 1 + len(names)] == list(names)


def test_help_imports_nothing_heavy():
    """`simulator --help` is quick because of this, which a loaded machine cannot blur."""
    command = [sys.executable, "-X", "importtime", "-m", "simulator", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert all(name in done.stdout for name in cli.COMMANDS)
    imported = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert not imported & {
        "jax",
        "jaxlib",
        "numpy",
        "scipy",
        "h5py",
        "pydantic",
        "matplotlib",
        "rich",
        "yaml",
    }


def test_a_closed_pipe_or_no_stdout_at_all_is_no_traceback():
    """`simulator init | head -0`: the reader has left before anything was written."""
    read, write = os.pipe()
    os.close(read)
    options: Any = {"stderr": subprocess.PIPE, "text": True, "timeout": 60, "check": False}
    command = [sys.executable, "-m", "simulator", "init"]
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(command, stdout=closed, **options)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], **options)
    assert (done.returncode, done.stderr) == (0, "")


def test_check_prints_the_resolved_yaml_and_nothing_else(tmp_path: Path, monkeypatch, capsys):
    """From another folder, what it prints is a file that gives the same run again."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check", CONFIG, "time.stop=2", "grid.shape=8,8,8"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    (tmp_path / "again.yaml").write_text(shown.out)
    again = load_config(tmp_path / "again.yaml")
    assert (again.time.stop, again.grid.shape) == (2.0, (8, 8, 8))
    assert again.output.directory == tmp_path / "outputs/taylor_green"


def test_check_refuses_with_code_2(capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("model: {kind: navier_stokes, viscosity: -1}\ngird: {}\n")
    assert cli.main(["check", "bad.yaml", "time.stop=1", "initial.kind=taylor_gren"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    places = ("bad.yaml:1: model.viscosity: ", "bad.yaml:2: gird: ", "command line: initial.kind: ")
    assert all(map(str.startswith, shown.err.splitlines(), places))
    assert list(tmp_path.iterdir()) == [tmp_path / "bad.yaml"]


@pytest.mark.parametrize(
    "line, message",
    [
        ("check", "simulator check: name a file, e.g. simulator check configs/taylor_green.yaml"),
        (
            "check x.yaml --schema",
            "simulator check: --schema describes every file; leave CONFIG out",
        ),
        ("check nowhere.yaml", "nowhere.yaml: no such file"),
    ],
)
def test_check_says_what_it_needs(capsys, line: str, message: str):
    assert cli.main(line.split()) == 2 and capsys.readouterr() == ("", message + "\n")


def test_errors_reach_the_terminal_without_control_characters(capsys, tmp_path):
    assert cli.main(["check", str(tmp_path / "\x1b[2J\nb.yaml")]) == 2
    assert capsys.readouterr().err == f"{tmp_path}/\\x1b[2J\\nb.yaml: no such file\n"
