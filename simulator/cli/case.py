"""The commands about a run's file: `check`, `explain`, `init`."""

import argparse
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from simulator.cli.parser import arg, command, config_arguments
from simulator.errors import UserError, did_you_mean
from simulator.files import replace_file
from simulator.words import flat


@command(
    "validate a configuration and print it, resolved",
    *config_arguments(required=False),
    arg("--schema", "print the JSON schema of the file, for editors", action="store_true"),
)
def check_command(args: argparse.Namespace) -> int:
    """Validate a configuration and write it, complete with all defaults, as YAML to stdout.
    Python files that the configuration names are executed, with your permissions.

    example: simulator check configs/taylor_green.yaml time.stop=2 grid.shape=32,32,32"""
    import json

    from simulator.config import dump_config, json_schema, load_config

    if args.schema:
        if args.config is not None:
            raise UserError("simulator check: --schema describes every file; leave CONFIG out")
        print(json.dumps(json_schema(), indent=1))
    elif args.config is None:
        raise UserError(
            "simulator check: name a file, e.g. simulator check configs/taylor_green.yaml"
        )
    else:
        from simulator.run.refusals import check_configuration, check_linear_growth, outlook_of

        config = load_config(args.config, args.overrides)
        check_configuration(config)
        check_linear_growth(config)
        for line in outlook_of(config):
            print(line, file=sys.stderr)
        print(dump_config(config), end="")
    return 0


@command(
    "print the meaning of a key of a run's file, or of a column",
    arg(
        "key KEY",
        "a key such as time.cfl, or a column such as k_max_eta; by default all blocks",
        nargs="?",
        default="",
    ),
)
def explain_command(args: argparse.Namespace) -> int:
    """Print type, default and meaning of a key, or of all keys of a block; or formula and meaning of a column of
    diagnostics.csv or of a variable of a series.

    example: simulator explain model.hyperviscosity
      simulator explain k_max_eta"""
    from simulator.cli.columns import described_columns
    from simulator.config.reference import reference_keys, renamed, without_positions

    # Positions in lists may be left out, also because some lists of blocks may be one block.
    wanted = renamed(without_positions(args.key.strip(".")))
    known = [(without_positions(key.path), key) for key in reference_keys()]
    if not wanted:
        shown = [key for path, key in known if "." not in path]
    else:
        shown = [key for path, key in known if path == wanted]
        shown += [key for path, key in known if path.rpartition(".")[0] == wanted]
    columns = described_columns()
    ends = (name for name in columns if name.startswith("NAME_") and args.key.endswith(name[4:]))
    column = args.key if args.key in columns else next(ends, "")
    for place, formula, meaning in columns.get(column, ()):
        print(f"{column}  [{place}]\n    {formula}")
        print(textwrap.fill(meaning, 96, initial_indent="    ", subsequent_indent="    "))
    if not shown and not column:
        names = {*columns, *(path for path, _ in known)}
        meant = did_you_mean(wanted, names, "; simulator explain lists the blocks")
        raise UserError(f"simulator explain: unknown key {args.key}{meant}")
    # A key that is the same in several kinds of block is listed once.
    merged: dict[tuple[str, ...], list[str]] = {}
    for key in shown:
        merged.setdefault((key.path, key.type, key.default, key.meaning), []).append(key.kind)
    for (path, kind, default, meaning), kinds in merged.items():
        print(path + (f"  [{', '.join(dict.fromkeys(kinds))}]" if any(kinds) else ""))
        print(f"    {kind}; {f'default {default}' if default else 'required'}")
        if meaning:
            print(textwrap.fill(meaning, 96, initial_indent="    ", subsequent_indent="    "))
    return 0


_WIDTH = 112


@command(
    "write a commented configuration to start from",
    arg("case CASE", "the name of a shipped case", nargs="?"),
    arg("--output FILE", "another name for the file", type=Path),
)
def init_command(args: argparse.Namespace) -> int:
    """Write a shipped case as CASE.yaml into the current folder, with all other possible keys as comments. Without
    CASE, list the cases.

    example: simulator init forced_turbulence"""
    cases = {path.stem: path for path in sorted(cases_folder().glob("*.yaml"))}
    if args.case is None:
        for name, path in cases.items():
            print(f"{name:28}{_about(path)}")
        return 0
    if args.case not in cases:
        meant = did_you_mean(args.case, cases)
        raise UserError(
            f"simulator init: unknown case {args.case!r}{meant} known: {', '.join(cases)}"
        )
    source = cases[args.case]
    target = args.output or Path(source.name)
    # The files that the case needs are written beside it.
    files = [source.with_name(name) for name in _files(source)]
    for path in (target, *(target.with_name(file.name) for file in files)):
        if path.exists():
            raise UserError(f"{path}: exists; give another name with --output, or move it away")
    sweep = "base" in _document(source)
    text = source.read_text().rstrip() + "\n" + ("" if sweep else _further_keys(source))
    replace_file(target, text.replace("# yaml-language-server: $schema=schema.json\n", ""))
    for file in files:
        replace_file(target.with_name(file.name), file.read_bytes())
    print(target)
    check, run = ("sweep plan", "sweep run") if sweep else ("check", "run")
    print(f"next: simulator {check} {target}, then simulator {run} {target}", file=sys.stderr)
    return 0


def cases_folder() -> Path:
    """The folder of the shipped configurations: beside the package, or where a wheel has installed them."""
    import simulator

    beside = Path(simulator.__file__).resolve().parents[1] / "configs"
    return beside if beside.is_dir() else Path(sys.prefix) / "share" / "simulator" / "configs"


def _about(path: Path) -> str:
    lines = (line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("# "))
    return next((line for line in lines if not line.startswith("yaml-language-server")), "")


def _document(source: Path) -> dict[str, Any]:
    from simulator.config import read_yaml

    return read_yaml(source, of=None).value


def _files(source: Path) -> list[str]:
    document = _document(source)
    paths = [block.get("path") for block in document.values() if isinstance(block, dict)]
    return [
        str(p) for p in [*paths, document.get("base")] if p and source.with_name(str(p)).is_file()
    ]


def _absent(source: Path) -> re.Pattern[str]:
    """Matches the keys that have no meaning for the model of a case, and schedules of output, which are all alike."""
    from pydantic import ValidationError

    from simulator.archive.series_recorder import subject_of
    from simulator.archive.stored_state import RunInputs
    from simulator.config import load_config
    from simulator.measure import KINDS
    from simulator.measure.kind import Unsupported
    from simulator.measure.rows import measurement
    from simulator.physics.models.split_equation import background_of
    from simulator.simulation.abstract_run import paper_simulation

    subject = subject_of(paper_simulation(load_config(source), RunInputs()))
    model = subject.model
    absent = [] if background_of(model) else ["time.steps", "time.spacing"]
    absent += [] if "magnetic" in model.fields else ["initial.magnetic"]
    absent += (
        []
        if subject.carried
        else ["output.gadget", "output.snapshots.sample", "output.slices.particles"]
    )
    for name, kind in KINDS.items():
        try:
            measurement(kind, subject, kind.Settings.model_validate({"every_steps": 1}))
        except Unsupported:
            absent.append(f"output.{name}")
        except ValidationError:  # a key is required
            continue
    names = "|".join(map(re.escape, absent))
    return re.compile(rf"(?:{names})(?:\.|$)|output\.(?!diagnostics)\w+\.(?:every\w*|align)$")


def _further_keys(source: Path) -> str:
    """Comments with the keys that the case may set but does not set."""
    from simulator.config.reference import reference_keys

    document = _document(source)
    absent = _absent(source)
    paths = [f"{path}." for path in flat(document)]
    chosen = {
        name: block.get("kind", "") for name, block in document.items() if isinstance(block, dict)
    }
    lines = [
        "",
        "# Further keys with their defaults; here, or on the command line as key.path=value. More with",
        "# `simulator explain KEY`.",
    ]
    for key in reference_keys():
        block, _, name = key.path.partition(".")
        inner = name.count(".") > 1 or "NAME" in key.path or ".N" in key.path
        other = key.kind not in ("", chosen.get(block, ""))
        if (
            not name
            or inner
            or other
            or key.path.endswith(".kind")
            or block == "slurm"
            or absent.match(key.path)
        ):
            continue
        is_set = any(path.startswith(f"{key.path}.") for path in paths)
        if is_set or (block == "forcing" and "forcing" not in document):
            continue
        start = f"#   {key.path}: {key.default or '(required)'}"
        text = f"{start:44}  {key.meaning}".rstrip()
        lines.append(textwrap.fill(text, _WIDTH, subsequent_indent="#" + " " * 45))
    return "\n".join(lines) + "\n"
