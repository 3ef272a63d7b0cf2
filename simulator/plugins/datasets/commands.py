"""`simulator dataset` and `simulator baseline`."""

import argparse

from simulator.cli.parser import arg, command
from simulator.words import counted

_JOBS = arg(
    "--jobs",
    type=int,
    metavar="N",
    help="number of processes at a time; by default one for each core",
)


@command(
    "run a study and write its runs as a data set for learning",
    arg("file FILE", "the sweep's YAML file"),
    _JOBS,
    group="study",
)
def dataset_command(args: argparse.Namespace) -> int:
    """Run the missing runs of a sweep, together if they differ only in numbers, and write the snapshots of all runs
    into the sweep's folder dataset/, in the HDF5 format of The Well. After Ctrl-C or a crash the same command
    continues both.

    example: simulator dataset configs/sweep_dataset_2d.yaml"""
    from simulator.plugins.datasets.certificate import THRESHOLDS, least_resolved
    from simulator.plugins.datasets.dataset import DatasetWriter, check_dataset, usual_jobs
    from simulator.study.execution import run_sweep
    from simulator.study.study_status import MemberState, statuses_of
    from simulator.study.sweep import open_sweep
    from simulator.words import short

    sweep = open_sweep(args.file)
    check_dataset(sweep)
    folders = [run.folder for run in sweep.runs]
    elsewhere = [
        s for s in statuses_of(folders) if s.stage in (MemberState.QUEUED, MemberState.RUNNING)
    ]
    if elsewhere:
        print(
            f"{counted(len(elsewhere), 'run')} queued or running elsewhere; repeat the command when they have ended"
        )
        return 3
    jobs = usual_jobs(sweep.runs) if args.jobs is None else args.jobs
    with DatasetWriter(sweep) as writer:
        with writer.beside():
            code = run_sweep(sweep, jobs=jobs, batch=True, same_groups=True)
        unfinished = [s for s in statuses_of(folders) if s.stage is not MemberState.DONE]
        if unfinished:
            print(f"the data set is complete when all runs are done; {len(unfinished)} are not")
            return code or 3
        folder = short(writer.finish(print))
    if worst := least_resolved(sweep):
        numbers = ", ".join(f"{name} {number:.3g}" for name, number in worst.items())
        print(f"worst of all runs: {numbers}\nresolved: {THRESHOLDS}")
    print(
        f'data set: {folder}\nthe_well.data.WellDataset(path="{folder}", well_split_name="train") reads it'
    )
    return 0


@command(
    "compare a learned solver with this one: error against cost on coarser grids",
    arg("file DATASET", "the file of a study that has been run, as for dataset"),
    arg(
        "--runs N", "number of runs of the test split that are computed again", type=int, default=2
    ),
    arg(
        "--point NAME=ERROR,SECONDS",
        "a learned solver: its error (VRMSE) and the seconds of a trajectory; may be repeated",
        action="append",
    ),
    group="study",
)
def baseline_command(args: argparse.Namespace) -> int:
    """Compute runs of the test split again on their own grid, with half the points along each axis, a quarter, ...
    with every integrator and several CFL numbers, and show error against time, the baseline that a learned solver
    has to beat. Writes baseline.csv and baseline.png into the sweep's folder baseline/. After Ctrl-C the same
    command continues; a finished one only adds points.

    example: simulator baseline configs/sweep_dataset_2d.yaml --point unet=0.05,0.02"""
    from dataclasses import asdict
    from importlib.util import find_spec

    from simulator.errors import UserError
    from simulator.plugins.datasets.baseline import (
        comparison,
        floor_of,
        measure,
        parse_point,
        write_table,
    )
    from simulator.study.sweep import open_sweep
    from simulator.study.table import as_text
    from simulator.words import short

    points = [parse_point(text) for text in args.point]
    if args.runs < 1:
        raise UserError(f"--runs: must be at least 1, not {args.runs}")
    sweep = open_sweep(args.file)
    trials = measure(sweep, args.runs)
    folder = write_table(sweep, trials, points)
    best = [asdict(trial) for trial in trials if trial.best]
    if best:
        print("\n".join(["best of each grid:", *as_text(best, leave_out=["best"])]))
    print("\n".join(comparison(point, trials) for point in points), end="\n" if points else "")
    print(short(folder / "baseline.csv"))
    if find_spec("simulator.plugins.pictures") is None:
        print("no picture: it needs the plugin pictures")
        return 0
    from simulator.plugins.datasets.baseline_picture import draw_baseline

    print(short(draw_baseline(folder, trials, points, floor_of(sweep))))
    return 0
