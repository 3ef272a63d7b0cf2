"""`simulator init`: a commented configuration to start from."""

import argparse
import sys
import textwrap
from pathlib import Path
from typing import Any

from simulator.errors import UserError, did_you_mean

_WIDTH = 112


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "init",
        help="write a commented configuration to start from",
        description="Write a shipped case as CASE.yaml into the current folder, with all other possible keys as "
        "comments. Without CASE, list the cases.",
        epilog="example: simulator init forced_turbulence",
    )
    parser.add_argument("case", metavar="CASE", nargs="?", help="the name of a shipped case")
    parser.add_argument("--output", metavar="FILE", type=Path, help="another name for the file")
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Write the file, or list the cases."""
    cases = {path.stem: path for path in sorted(cases_folder().glob("*.yaml"))}
    if args.case is None:
        for name, path in cases.items():
            print(f"{name:28}{_about(path)}")
        return 0
    if args.case not in cases:
        meant = did_you_mean(args.case, cases)
        raise UserError(f"simulator init: unknown case {args.case!r}{meant} known: {', '.join(cases)}")
    source = cases[args.case]
    target = args.output or Path(source.name)
    # Files that the case needs are written beside it.
    files = [source.with_name(name) for name in _files(source)]
    for path in (target, *(target.with_name(file.name) for file in files)):
        if path.exists():
            raise UserError(f"{path}: exists; give another name with --output, or move it away")
    sweep = "base" in _document(source)
    text = source.read_text().rstrip() + "\n" + ("" if sweep else _further_keys(source))
    try:
        target.write_text(text.replace("# yaml-language-server: $schema=schema.json\n", ""))
        for file in files:
            target.with_name(file.name).write_bytes(file.read_bytes())
    except OSError as error:
        raise UserError(f"{target}: {error.strerror}") from None
    print(target)
    check, run = ("sweep plan", "sweep run") if sweep else ("check", "run")
    print(f"next: simulator {check} {target}, then simulator {run} {target}", file=sys.stderr)
    return 0


def cases_folder() -> Path:
    """The folder of the shipped configurations: beside the package, or where a wheel installs them."""
    import simulator

    beside = Path(simulator.__file__).resolve().parents[1] / "configs"
    return beside if beside.is_dir() else Path(sys.prefix) / "share" / "simulator" / "configs"


def _about(path: Path) -> str:
    """The first comment of a case."""
    lines = (line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("# "))
    return next((line for line in lines if not line.startswith("yaml-language-server")), "")


def _document(source: Path) -> dict[str, Any]:
    from simulator.config import read_yaml

    return read_yaml(source).value


def _files(source: Path) -> list[str]:
    """The files that a case needs: Python functions, and the base of a sweep."""
    document = _document(source)
    paths = [block.get("path") for block in document.values() if isinstance(block, dict)]
    return [str(p) for p in [*paths, document.get("base")] if p and source.with_name(str(p)).is_file()]


def _further_keys(source: Path) -> str:
    """The keys that the case may have but does not give, as comments."""
    from simulator.config.reference import keys

    document = _document(source)
    chosen = {name: block.get("kind", "") for name, block in document.items() if isinstance(block, dict)}
    lines = [
        "",
        "# Further keys with their defaults; here, or on the command line as key.path=value. More with",
        "# `simulator explain KEY`.",
    ]
    for key in keys():
        block, _, name = key.path.partition(".")
        inner = name.count(".") > 1 or "NAME" in key.path or ".N" in key.path
        other = key.kind not in ("", chosen.get(block, ""))
        if not name or inner or other or key.path.endswith(".kind") or block == "slurm":
            continue
        if _given(document, key.path) or (block == "forcing" and "forcing" not in document):
            continue
        start = f"#   {key.path}: {key.default or '(required)'}"
        text = f"{start:44}  {key.meaning}".rstrip()
        lines.append(textwrap.fill(text, _WIDTH, subsequent_indent="#" + " " * 45))
    return "\n".join(lines) + "\n"


def _given(document: Any, path: str) -> bool:
    for name in path.split("."):
        if not isinstance(document, dict) or name not in document:
            return False
        document = document[name]
    return True
