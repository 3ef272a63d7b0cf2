"""`simulator completion`: shell completion of commands and options."""

import argparse
from typing import Any

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


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "completion",
        help="print a script that completes commands and options in a shell",
        description="Print a script for bash or zsh that completes commands, options and file names.",
        epilog='example: simulator completion bash\nin ~/.bashrc: eval "$(simulator completion bash)"',
    )
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell")
    parser.set_defaults(func=execute)


def execute(args: argparse.Namespace) -> int:
    """Print the script."""
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
        for name, command in commands.items():
            steps.append(f'      "{at} {name}") command="{at} {name}" ;;')
            add(f"{at} {name}", command)

    add("", parser)
    return _BASH.format(steps="\n".join(steps), words="\n".join(words))
