"""A command, a Python name and a block of settings of a package that is installed beside the
program."""

from simulator.cli.parser import arg, command
from simulator.settings import Positive, Settings


class ReviewSettings(Settings):
    """The expectations of a run that `simulator review` compares with its series."""

    largest_moment: Positive = 1.0


@command(
    "say whether the moments of a run are as small as expected",
    arg("run RUN", "the run's folder"),
    group="look",
)
def review_command(args):
    """Compare the series `cubes` with the run's block `review`.

    example: simulator review outputs/run"""
    from simulator import open_run

    largest = largest_moment(args.run)
    expected = open_run(args.run).config["review"]["largest_moment"]
    print(f"largest moment {largest:.3g}, expected at most {expected:g}")
    return 0 if largest <= expected else 1


def largest_moment(run):
    """The largest moment of the series `cubes` of a run."""
    from simulator import open_run

    return open_run(run).series("cubes")["moment"].max()
