"""The command `halos`."""

import argparse

from simulator.cli.parser import arg, command, overrides, runs_and_overrides
from simulator.errors import UserError
from simulator.words import aligned_lines


@command(
    "find the halos of particles and the cores of waves in a run",
    arg("runs RUN", "run folders", nargs="+"),
    overrides("values that replace the run's keys of devices"),
    arg(
        "--linking B",
        "friends-of-friends linking length in mean spacings (default 0.2)",
        type=float,
        default=0.2,
    ),
    arg(
        "--members N",
        "smallest number of particles in a halo (default 20)",
        type=int,
        default=20,
    ),
    group="look",
)
def halos_command(args: argparse.Namespace) -> int:
    """Find the halos of particles (friends-of-friends) and the cores of wave dark matter in every snapshot of a
    run, and write a catalogue of each into RUN/halos. `simulator plot RUN --what halos` draws their mass functions.
    Python files that the configuration names are executed, with your permissions.

    example: simulator halos outputs/cold_dark_matter --members 32"""
    from simulator.plugins.cosmology.find_halos import find_halos

    runs, changes = runs_and_overrides(args)
    if not 0 < args.linking <= 1:
        raise UserError(
            f"--linking: {args.linking:g} has to be above 0 and at most 1; 0.2 is usual"
        )
    if args.members < 2:
        raise UserError(f"--members: {args.members} has to be 2 or more; 20 is usual")
    for run in runs:
        last = {}
        for path, catalogue in find_halos(run, args.linking, args.members, changes):
            last[catalogue.name] = path, catalogue
            print(f"{path}  {catalogue.summary()}", flush=True)
        for path, catalogue in last.values():
            kind = "densest cores" if catalogue.of_waves else "heaviest halos"
            expands = catalogue.attributes["cosmological_simulation"]
            title = f"{kind} of {path.name}{' (lengths are comoving)' if expands else ''}:"
            print("\n".join(["", title, *aligned_lines(catalogue.rows(), range(20))]))
    return 0
