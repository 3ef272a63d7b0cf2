"""The README and the pages are held against the program: links, commands, configurations and
code."""

import ast
import re
import shlex
import subprocess
import sys
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest

from simulator.cli import build_parser, main
from simulator.cli.columns import FOLDER
from simulator.config.load import load_config
from simulator.config.reference import reference_keys
from simulator.config.yaml12 import dump_yaml, parse_yaml
from simulator.errors import UserError
from simulator.plugins.manual.pages import GENERATED, page_named, page_names, page_text, page_title

from .blocks import PAGES, ROOT, Block, blocks, commands, shown

pytestmark = pytest.mark.smoke


parser = cache(build_parser)


@cache
def known_keys() -> set[str]:
    return {key.path for key in reference_keys()}


def test_every_page_is_in_the_navigation_with_a_title():
    files = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.md")}
    assert files | set(GENERATED) == set(page_names())
    assert not files & set(GENERATED)
    assert [name for name in page_names() if not page_title(page_text(name, parser()))] == []


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as sites of pages make them."""
    name = page.relative_to(FOLDER).with_suffix("").as_posix() if page != ROOT / "README.md" else ""
    text = page_text(name, parser()) if name in GENERATED else page.read_text()
    headings = re.findall(r"^#+ (.*)$", without_blocks(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path):
    for target, anchor in re.findall(
        r"\]\(([^)#\s]*)(?:#([^)\s]*))?", without_blocks(path.read_text())
    ):
        file = (path.parent / target).resolve() if target else path
        assert not anchor or anchor in anchors(file), f"{path.name}: {target}#{anchor}"
        made = [(FOLDER / f"{name}.md").resolve() for name in GENERATED]
        pictures = (FOLDER / "gallery").resolve()
        if file.parent == pictures:  # on the site they lie beside the pages
            file = ROOT / "outputs" / "gallery" / file.name
        assert file.exists() or file in made, f"{path.name}: {target}"


LINES = [(block, command) for block in blocks("console") for command, _ in commands(block)]
CALLS = [
    (b, c)
    for b, c in LINES
    if re.match(r"(\S*/)?simulator |\./scripts/run |srun .*bin/simulator ", c)
]


@pytest.mark.parametrize(
    "block, command", CALLS, ids=lambda x: str(x) if isinstance(x, Block) else ""
)
def test_commands_are_understood(block: Block, command: str):
    """Every command has only options that exist, and names only files that do."""
    words = shlex.split(command.replace("$i", "0"), comments=True)
    words = list(takewhile(lambda word: word not in ("|", ">"), words))
    starts = [
        i
        for i, word in enumerate(words)
        if Path(word).name == "simulator" or word == "./scripts/run"
    ]
    if words[starts[0]] == "./scripts/run" and "--setup" in words:
        return
    arguments = words[starts[0] + 1 :]
    if words[starts[0]] == "./scripts/run":
        arguments = ["run", *arguments]
    try:
        parsed = parser().parse_args(arguments)
    except UserError as error:
        pytest.fail(f"{block}: {command}: {error}")
    for word in arguments:
        if word.startswith("configs/"):
            assert (ROOT / word).exists(), f"{block}: {word}"
    for override in getattr(parsed, "overrides", None) or ():
        name = override.partition("=")[0]
        assert name in known_keys() or name == "key", f"{block}: {override}"


QUICK = (
    "init forced",
    "check forced",
    "explain",
    "docs --list",
    "check configs/taylor_green.yaml time.cfl=3",
)


def test_the_quick_commands_print_what_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    pages = [ROOT / "README.md", FOLDER / "guide" / "configuration.md"]
    tried = set()
    for block in blocks("console", pages):
        for command, expected in commands(block):
            words = shlex.split(command, comments=True)
            quick = [q for q in QUICK if command.startswith(f"simulator {q}")]
            if not quick or not expected:
                continue
            code = main(words[1:])
            out = capsys.readouterr()
            printed = out.out if code == 0 else out.err
            assert shown(expected).fullmatch(printed), f"{block}: {command}\n{printed[:2000]}"
            assert code == (2 if "time.cfl=3" in command else 0)
            tried.update(quick)
    assert tried == set(QUICK)


@pytest.mark.slow
def test_the_first_run_prints_what_is_shown(tmp_path):
    """`./scripts/run configs/taylor_green.yaml` without the set-up; device counts are this
    machine's."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    command = [sys.executable, "-m", "simulator", "run", "configs/taylor_green.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    def alike(text: str) -> str:
        """Without this machine's cores, kernels and place of the environment, and without the sizes
        of files."""
        text = re.sub(r"\d+ cpu devices?( of \d+ threads)?, .*", "N cpu devices", text)
        text = re.sub(r"\S*/simulator (?=plot|report|verify)", "simulator ", text)
        return re.sub(r"(?m)^(  \S+(\.\w+|/) ) .*$", r"\1", text)

    printed = alike(done.stdout)
    for path in (ROOT / "README.md", FOLDER / "tutorials" / "first-run.md"):
        _, expected = commands(blocks("console", [path])[0])[0]
        expected = expected.partition("(the first time takes minutes)\n")[2]
        assert shown(alike(expected)).fullmatch(printed), f"{alike(expected)}\n{printed}"


BASE = {
    "model": {"kind": "navier_stokes", "viscosity": 0.1},
    "initial": {"kind": "abc"},
    "time": {"stop": 1},
}


def whole_runs(block: Block) -> list[dict]:
    """The configurations that a YAML block shows; what it leaves out is taken from BASE."""
    lines = block.text.splitlines(keepends=True)
    starts = [line.partition(":")[0] for line in lines if re.match(r"\w+:", line)]
    texts = [block.text] if len(set(starts)) == len(starts) else lines
    found = []
    for text in texts:
        file = Path(block.page.name)
        value = parse_yaml(text, str(file)).value
        if isinstance(value, dict) and value.keys() <= {
            key for key in known_keys() if "." not in key
        }:
            found.append({**BASE, **value})
    return found


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_configurations_are_valid(block: Block, tmp_path):
    for number, document in enumerate(whole_runs(block)):
        file = tmp_path / f"run{number}.yaml"
        file.write_text(dump_yaml(document))
        load_config(file, check_files=False)


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_code_is_python(block: Block):
    ast.parse(block.text)


def test_pages_are_found_by_their_last_part_and_read_me_is_short():
    assert page_named("restart") == "guide/restart"
    assert page_named("guide/restart.md") == "guide/restart"
    with pytest.raises(UserError, match="did you mean restart"):
        page_named("restat")
    with pytest.raises(UserError, match="several pages: guide/planning, internals/planning"):
        page_named("planning")
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_docs_print_pages_that_are_written_from_the_code(capsys):
    assert main(["docs", "keys"]) == 0
    assert "`time.cfl`" in capsys.readouterr().out
    assert main(["docs", "commands"]) == 0
    assert "## simulator sweep run" in capsys.readouterr().out
    main(["docs", "reference/python"])
    assert (
        "`Simulation.state_from(self, values: Mapping[str, Any]) -> State`"
        in capsys.readouterr().out
    )
