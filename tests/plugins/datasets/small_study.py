"""A small study: random flows in a plane, whose seeds and viscosities differ."""

FLOW = "{kind: navier_stokes, viscosity: 0.02}"


def base_of(
    shape: tuple[int, int] = (8, 8),
    model: str = FLOW,
    *,
    stop: float = 0.2,
    pace: str = "dt: 0.02",
    devices: int = 1,
) -> str:
    """The configuration of the runs, with three snapshots each."""
    return f"""\
model: {model}
grid: {{shape: {list(shape)}}}
initial: {{kind: random, peak: 2}}
time: {{stop: {stop}, {pace}}}
devices: {{platform: cpu, count: {devices}}}
output: {{directory: out, snapshots: {{every: {stop / 2}}}}}
"""


def study_of(runs: int = 4, dataset: str = "split: [0.5, 0.25, 0.25]") -> str:
    """A sweep over `runs` runs, and the block of its data set."""
    return f"""\
base: base.yaml
sweep:
  sample:
    n: {runs}
    parameters: {{initial.seed: {{seeds: [1, 99]}}, model.viscosity: {{uniform: [0.01, 0.02]}}}}
dataset: {{{dataset}}}
"""
