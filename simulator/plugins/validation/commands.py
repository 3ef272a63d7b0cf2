"""The commands `validate`, `doctor`, `bench` and `artifact`."""

import argparse
from contextlib import suppress
from pathlib import Path

from simulator.cli.parser import BY_HAND, PROCESSES, Command, arg, command, config_arguments
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
    "check processes, cores and GPUs, and show how a field is divided among them",
    *config_arguments(required=False),
    arg(
        "--platform",
        "kind of devices without CONFIG (default: auto, GPUs where there are any)",
        choices=("auto", "cpu", "gpu"),
        default="auto",
    ),
    arg(
        "--folder DIR",
        "a shared folder in which the processes find one another, as in a run folder",
        type=Path,
    ),
    arg(
        "--measure",
        "also measure the bandwidth of memory and network, and print a block of devices.yaml for `plan`",
        action="store_true",
    ),
    *BY_HAND,
    group="cluster",
)
def doctor_command(args: argparse.Namespace) -> int:
    """Every process prints its host, rank and hardware; then all processes do a distributed transform. Problems are
    printed with their cures, and the exit code is then 1. A table shows which part of a field each device holds,
    in a run of CONFIG or, by default, on a 64^3 grid. For several processes on CPUs, the transport between them is
    printed with its latency and bandwidth.

    In a Slurm job, start it by srun with the flags of the run:
      srun --nodes=2 --ntasks-per-node=2 simulator doctor

    example: simulator doctor configs/taylor_green.yaml devices.count=4"""
    from simulator.config import load_config
    from simulator.plugins.validation.doctor import examine
    from simulator.run.command import allocated
    from simulator.simulation.placement import check_devices

    config = load_config(args.config, args.overrides) if args.config else None
    if config is not None:
        check_devices(config, config.devices.count)
    with allocated(args) as allocation:
        assert allocation is not None  # this command has no --processes
        return examine(allocation, args, config)


def _shape(text: str) -> tuple[int, ...]:
    extents = ()
    with suppress(ValueError):
        extents = tuple(int(n) for n in text.split(","))
    if len(extents) not in (1, 2, 3):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a shape; write e.g. 256,256,256 or 1024,1024"
        )
    if min(extents) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: every extent must be at least 1")
    return extents


@command(
    "measure time and memory of a step",
    *config_arguments(required=False),
    arg("--shape NX[,NY[,NZ]]", "the same as grid.shape=NX[,NY[,NZ]]", type=_shape),
    arg("--devices N", "the same as devices.count=N", type=int),
    arg("--precision", "the same as precision=...", choices=("single", "double")),
    arg("--seconds", "duration of the timing of steps (default: 10)", type=float, default=10.0),
    arg("--json FILE", "also write all results to FILE", type=Path),
    *PROCESSES,
)
def bench_step_command(args: argparse.Namespace) -> int:
    """Time steps of CONFIG (by default a Taylor-Green vortex at 128^3); read memory from the compiled program and
    exchanges from the trace of the step. A step that does not fit in memory is refused before it starts, with a shape
    that fits.

    example: simulator bench step configs/taylor_green.yaml --shape 128,128,128 --precision single"""
    from simulator.plugins.validation.bench_step import time_and_report

    return time_and_report(args)


bench_command = Command(
    "measure a step on this machine",
    None,
    commands={"step": bench_step_command},
    group="cluster",
    about="Measure on this machine.\n\n"
    "example: simulator bench step configs/taylor_green.yaml --shape 128,128,128 --precision single",
)


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
