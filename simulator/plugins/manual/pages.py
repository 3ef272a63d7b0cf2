"""Finds, generates and shows the pages of the documentation."""

import argparse
import inspect
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module

import yaml
from rich.console import Console
from rich.markdown import Markdown

from simulator.cli import build_parser
from simulator.cli.columns import FOLDER
from simulator.config.reference import Key, reference_keys
from simulator.errors import UserError, did_you_mean
from simulator.plugins.manual.notebook import has_python, notebook

# Pages that `keys_page` and `commands_page` generate.
GENERATED = ("reference/keys", "reference/commands")


@cache
def sections() -> dict[str, list[str]]:
    """Names of pages by section, in the order of the navigation. A name is the path of the page without `.md`."""
    return yaml.safe_load((FOLDER / "pages.yaml").read_text())


def page_names() -> list[str]:
    return [name for section in sections().values() for name in section]


def page_text(name: str, parser: argparse.ArgumentParser) -> str:
    """A page as Markdown. `parser` is the parser of all commands."""
    if name in GENERATED:
        return keys_page() if name == "reference/keys" else commands_page(parser)
    return (FOLDER / f"{name}.md").read_text()


def page_title(text: str) -> str:
    """The first heading of a page."""
    return next(iter(re.findall(r"^# (.+)$", text, re.MULTILINE)), "")


def keys_page() -> str:
    """The page with type, default and meaning of every key of a run's file, in a table for each block and kind."""
    # The components of a composite have the keys of their own models.
    listed = [k for k in reference_keys() if not re.search(r"\.components\.(N|NAME)\.", k.path)]
    groups: dict[tuple[str, str], list[Key]] = {}
    for key in listed:  # the common keys of a block come before those of its kinds
        groups.setdefault((key.path.partition(".")[0] if "." in key.path else "", ""), [])
    owner = ""
    for key in listed:
        block = key.path.partition(".")[0] if "." in key.path else ""
        depth = key.path.count(".")
        selects = depth == 1 and key.path.endswith(".kind")
        owner = key.kind if depth == 1 and not selects else owner
        groups.setdefault((block, "" if selects or not depth else owner), []).append(key)
    lines = [
        "# Keys of a run's file",
        "",
        "Generated from the settings classes. `N` stands for a position in a list, `NAME` for a name of your choice.",
        "Numbers may be written as `2*pi` or `1/1600`; durations as seconds, `10min` or `2h`. Units are those of the",
        "run: length, time and mass are yours to choose. The components of a `composite` take the keys of their own",
        "models, except those of gravity. `simulator explain KEY` prints the same text for one key.",
        "",
    ]
    blocks = list(dict.fromkeys(block for block, _ in groups))
    for (block, kind), members in sorted(groups.items(), key=lambda item: blocks.index(item[0][0])):
        heading = f"`{block}`" if block else "Top level"
        lines += [f"## {heading}{f', kind `{kind}`' if kind else ''}", ""]
        lines += ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        for k in dict.fromkeys(members):
            inner = f" (kind `{k.kind}`)" if k.kind not in ("", kind) else ""
            kinds = "block" if k.type.startswith("block") else _cell(k.type)
            lines.append(
                f"| `{k.path}`{inner} | {kinds} | {_default(k.path, k.default)} | {_cell(k.meaning)} |"
            )
        lines.append("")
    return "\n".join(lines)


def _default(path: str, default: str) -> str:
    if default.startswith("{") or path == "output":
        return "see its keys"
    if path == "output.directory":
        return "`outputs/NAME`"
    return f"`{default}`" if default else "required"


def _cell(text: str) -> str:
    """`text` escaped for a cell of a Markdown table, so that formulas such as |k| and <u^2> are shown unchanged."""
    pieces = text.replace("|", "\\|").split("`")
    pieces[::2] = [re.sub(r"([*_])", r"\\\1", piece.replace("<", "&lt;")) for piece in pieces[::2]]
    return "`".join(pieces)


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return {name: inner for action in actions for name, inner in action.choices.items()}


def commands_page(parser: argparse.ArgumentParser) -> str:
    lines = [
        "# Commands",
        "",
        "Generated from the commands' own help. `python -m simulator` is the same as `simulator`.",
        "[Exit codes](exit-codes.md) have their own page.",
        "",
    ]
    for inner in _commands(parser):
        lines += [f"## {inner.prog}", "", "```text", inner.format_help().rstrip(), "```", ""]
    return "\n".join(lines)


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for inner in subcommands(parser).values():
        yield inner
        yield from _commands(inner)


def show(page: str | None, *, as_notebook: bool = False) -> None:
    """Prints a page, by default the first: formatted in a terminal, in a pipe as Markdown, or as a Jupyter notebook.
    Raises UserError for an unknown page."""
    name = page_named(page) if page else "index"
    text = page_text(name, build_parser())
    if as_notebook:
        if not has_python(text):
            raise UserError(
                f"simulator docs: {name} has no Python to execute; leave --notebook out"
            )
        print(json.dumps(notebook(text), indent=1))
        return
    text = re.sub(r"^::: (\S+)((?:\n    .*)*)$", _described, text, flags=re.M)
    if not sys.stdout.isatty():
        print(text)
        return
    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text, hyperlinks=False))


def page_list() -> None:
    """Prints the names and titles of all pages."""
    parser = build_parser()
    for section, members in sections().items():
        print(section)
        for name in members:
            print(f"  {name:26}{page_title(page_text(name, parser))}")


def _described(named: re.Match[str]) -> str:
    """Signature and first paragraph of an object of the package and of the members that a page shows."""
    module, _, name = named[1].rpartition(".")
    described = getattr(import_module(module), name)
    parts = [(name, described)]
    for member in re.findall(r"\w+", named[2].partition("members:")[2]):
        parts.append((f"{name}.{member}", getattr(described, member, None)))
    lines = [f"### {named[1]}", ""]
    for title, part in parts:
        signature = str(inspect.signature(part)) if callable(part) else ""
        signature = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", signature)  # the modules of types
        summary = (inspect.getdoc(part) or "" if part is not None else "").partition("\n\n")[0]
        lines += [f"`{title}{signature}`", "", summary, ""]
    return "\n".join(lines)


def page_named(wanted: str) -> str:
    """The name of the page that `wanted` names, whole or by its last part. Raises UserError with a similar name."""
    known = page_names()
    name = wanted.removesuffix(".md").strip("/")
    matches = [n for n in known if n == name] or [n for n in known if n.endswith(f"/{name}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UserError(f"simulator docs: {wanted} matches several pages: {', '.join(matches)}")
    ends = [n.rpartition("/")[2] for n in known]
    meant = did_you_mean(name, [*known, *ends], "; simulator docs --list lists the pages")
    raise UserError(f"simulator docs: unknown page {wanted}{meant}")
