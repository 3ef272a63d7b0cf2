"""The commands about the program: `docs`, `cite`, `completion`."""

import argparse
import re
import sys
from pathlib import Path

from simulator.cli.parser import arg, command, program_version
from simulator.errors import UserError, did_you_mean


@command(
    "show the documentation, also without a network",
    arg("page", metavar="PAGE", nargs="?", help="a page's name, or the last part of it"),
    arg("--list", action="store_true", help="list the pages"),
)
def docs(args: argparse.Namespace) -> int:
    """Show a page of the documentation. In a terminal it is formatted, in a pipe it is Markdown. Without PAGE, show
    the first page.

    example: simulator docs guide/restart
    """
    from simulator.cli import build_parser
    from simulator.cli.pages import SECTIONS, page, title

    parser = build_parser()
    if args.list:
        if args.page is not None:
            raise UserError("simulator docs: --list lists all pages; leave PAGE out")
        for section, members in SECTIONS.items():
            print(section)
            for name in members:
                print(f"  {name:26}{title(page(name, parser))}")
        return 0
    text = page(find(args.page), parser) if args.page else page("index", parser)
    text = re.sub(
        r"^::: (\S+)(\n    .*)*$", r"`help(\1)` in Python prints its documentation.", text, flags=re.M
    )
    if not sys.stdout.isatty():
        print(text)
        return 0
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text, hyperlinks=False))
    return 0


def find(wanted: str) -> str:
    """The page named `wanted`, or whose last part is. Raises UserError with a similar name."""
    from simulator.cli.pages import names

    known = names()
    name = wanted.removesuffix(".md").strip("/")
    matches = [n for n in known if n == name] or [n for n in known if n.endswith(f"/{name}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UserError(f"simulator docs: {wanted} is the end of several names: {', '.join(matches)}")
    ends = [n.rpartition("/")[2] for n in known]
    meant = did_you_mean(name, [*known, *ends], "; simulator docs --list lists the pages")
    raise UserError(f"simulator docs: unknown page {wanted}{meant}")


@command(
    "print BibTeX entries for the program and the methods of a run",
    arg("config", metavar="CONFIG", nargs="?", help="a run's YAML file, or a run's folder"),
)
def cite(args: argparse.Namespace) -> int:
    """Print BibTeX entries: of the program, and with CONFIG or RUN of the methods that it uses.

    example: simulator cite configs/taylor_green.yaml
    """
    entries = [_program()]
    if args.config is not None:
        from simulator.config import load_config

        path = Path(args.config)
        config = load_config(path / "config.yaml" if path.is_dir() else path, check_files=False)
        used = [config.model.kind, config.time.integrator, config.initial.kind]
        used += [config.forcing.kind] if config.forcing is not None else []
        used += [config.grid.dealias]
        methods = _methods()
        entries += dict.fromkeys(methods[name] for name in used if name in methods)
    print("\n\n".join(entries))
    return 0


def _methods() -> dict[str, str]:
    """BibTeX entries by the name of a model, integrator, start, forcing or rule of dealiasing."""
    from simulator.cli.pages import FOLDER

    text = (FOLDER / "methods.bib").read_text()
    entries = re.findall(r"^% (.+)\n(@[\s\S]+?\n})$", text, re.MULTILINE)
    return {name: entry for names, entry in entries for name in names.split(", ")}


def _program() -> str:
    return (
        "@software{simulator,\n"
        "  title = {simulator: distributed pseudo-spectral simulations of fluids and self-gravitating matter},\n"
        f"  version = {{{program_version()}}}\n"
        "}"
    )


_BASH = """\
# Completion of simulator for bash; in zsh after: autoload -U +X bashcompinit && bashcompinit
_simulator() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words="" command="" part
  for part in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    [[ $part == -* ]] && continue
    case "$command $part" in
{steps}
    esac
  done
  case "$command" in
{words}
  esac
  if [[ $word == -* || -z $command || $command == " sweep" || $command == " bench" ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  fi
  [[ ${{#COMPREPLY[@]}} -gt 0 ]] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _simulator simulator"""


@command(
    "print a script that completes commands and options in a shell",
    arg("shell", choices=("bash", "zsh"), help="the shell"),
)
def completion(args: argparse.Namespace) -> int:
    """Print a script for bash or zsh that completes commands, options and file names.

    example: simulator completion bash
    in ~/.bashrc: eval "$(simulator completion bash)"
    """
    from simulator.cli import build_parser

    if args.shell == "zsh":
        print("autoload -U +X compinit && compinit; autoload -U +X bashcompinit && bashcompinit")
    print(script(build_parser()))
    return 0


def script(parser: argparse.ArgumentParser) -> str:
    """The completion function for bash, generated from the program's parser."""
    steps: list[str] = []
    words: list[str] = []

    def add(at: str, inner: argparse.ArgumentParser) -> None:
        from simulator.cli.pages import subcommands

        commands = subcommands(inner)
        options = [option for action in inner._actions for option in action.option_strings]
        words.append(f'    "{at}") words="{" ".join([*commands, *options])}" ;;')
        for name, each in commands.items():
            steps.append(f'      "{at} {name}") command="{at} {name}" ;;')
            add(f"{at} {name}", each)

    add("", parser)
    return _BASH.format(steps="\n".join(steps), words="\n".join(words))
