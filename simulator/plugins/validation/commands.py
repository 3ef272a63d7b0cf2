"""The commands `validate` and `artifact`."""

import argparse
from pathlib import Path

from simulator.cli.parser import PROCESSES, arg, command
from simulator.errors import UserError, did_you_mean


@command(
    "compare this installation with exact solutions and published numbers",
    arg("cases CASE", "names of cases (default: those that take about a minute in all)", nargs="*"),
    arg(
        "--full", "run every case, including those that need a GPU or a night", action="store_true"
    ),
    arg("--list", "list the cases and run none", action="store_true"),
    arg(
        "--output DIR",
        "folder for validation.md, validation.json and plots (default: outputs/validation)",
        type=Path,
        default=Path("outputs/validation"),
    ),
    PROCESSES[0],
    group="cluster",
)
def validate_command(args: argparse.Namespace) -> int:
    """Run small simulations on the devices of this machine and compare their results with exact solutions and with
    published numbers. No sources, no network and no privileges are needed. Print expected and measured values, their
    errors and sources. The exit code is 1 if a value is outside its tolerance.

    example: simulator validate
      simulator validate taylor_green_64 alfven_wave --processes 2"""
    from simulator.plugins.validation.cases import CASES
    from simulator.run.command import allocated, launched

    if unknown := [name for name in args.cases if name not in CASES]:
        meant = did_you_mean(unknown[0], CASES)
        raise UserError(f"simulator validate: unknown case {unknown[0]!r}{meant} --list lists them")
    if args.list:
        for case in CASES.values():
            print(f"{case.name:24}{case.what}{' (--full)' if case.full else ''}")
        return 0
    chosen = args.cases or [c.name for c in CASES.values() if args.full or not c.full]
    with allocated(args) as allocation:
        if allocation is None:
            return launched(args.arguments, args.processes)
        from simulator.plugins.validation.validation import validate

        return validate(chosen, allocation, args.output, args.arguments)


@command(
    "describe the artifact of a run or a study for a reviewer",
    arg("path RUN|STUDY", "a run's folder, or a study's file or folder", type=Path),
    arg("--output FILE", "write the page to FILE (default: print it)", type=Path),
    group="look",
)
def artifact_command(args: argparse.Namespace) -> int:
    """Print the artifact description that SC and IPDPS ask for, as a page of Markdown: hardware, software with
    versions, data, commands, expected time and tolerance, and how to check the result. All of it is what the runs
    recorded; what they did not record is named. Of several starts it is that of the last.

    example: simulator artifact outputs/taylor_green --output artifact.md"""
    from simulator.files import replace_file
    from simulator.plugins.validation.artifact import description

    text = description(args.path)
    if args.output is None:
        print(text, end="")
    else:
        replace_file(args.output, text)
    return 0
