"""Flow past a cylinder and a sphere of volume penalisation."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from simulator import Simulation
from simulator.physics.models import State
from simulator.plugins.validation.case import Case, Check, Result, simulation
from simulator.simulation.advance import TimeStep, Until, advance_of

WILLIAMSON = "Williamson, Annu. Rev. Fluid Mech. 28, 477 (1996); Park et al., KSME 12, 1200 (1998)"
DENNIS = "Dennis & Chang, J. Fluid Mech. 42, 471 (1970); Coutanceau & Bouard, 79, 231 (1977)"
RATIO = 14.0
"""The smoothing of a mask, two grid spacings, over sqrt(nu tau)."""
RELAXATION = 0.2
SPONGE = 1.5
"""Relaxation time and width of the layer at the end of the box."""


def displacement(ratio: float, steps: int = 4000) -> float:
    """How far the wall that a flow along a surface sees lies outside of the surface, in units of the
    mask's smoothing; `ratio` is the smoothing over sqrt(nu tau).

    With u'' = ratio^2 chi(d) u for |d| < 1/2, decaying into the body, r = u / u' grows from 1 /
    ratio by r' = 1 - ratio^2 chi r^2, and the flow beyond vanishes at d = 1/2 - r."""
    s = np.linspace(1, 0, 2 * steps + 1)
    chi = ratio**2 * s**3 * (10 - 15 * s + 6 * s**2)
    r = 1 / ratio
    for a, b, c in zip(chi[:-2:2], chi[1::2], chi[2::2], strict=True):
        first = 1 - a * r**2
        second = 1 - b * (r + first / (2 * steps)) ** 2
        third = 1 - b * (r + second / (2 * steps)) ** 2
        fourth = 1 - c * (r + third / steps) ** 2
        r += (first + 2 * second + 2 * third + fourth) / (6 * steps)
    return float(0.5 - r)


def stream(reynolds: float, points: int, height: int, gust: float) -> Simulation:
    """A uniform stream past a cylinder of the diameter 1 in the middle of a box of the length 2
    `height`, with `points` grid points in the diameter. A layer at the end of the box brings the
    wake back to the inflow; the gust, across the stream, makes it oscillate."""
    width = 2 / points
    mask = {
        "kind": "cylinder",
        "center": [height, height / 2],
        "radius": 0.5 - displacement(RATIO) * width,
        "smoothing": width,
    }
    cylinder = {"name": "cylinder", "kind": "relax", "target": {"velocity": "body"}}
    cylinder |= {"relaxation_time": (width / RATIO) ** 2 * reynolds, "mask": mask, "forces": True}
    # The cylinder takes momentum out of the stream, a drag of about 1.4 / 2; the layer brings it back.
    speed = 1 + 0.7 * RELAXATION / (height * SPONGE)
    inflow = {"velocity": [speed, f"{gust}*exp(-(t - 4)**2)"]}
    layer = {"kind": "box", "center": [0, height / 2], "size": [SPONGE, None], "smoothing": 1}
    sponge = {"name": "sponge", "kind": "relax", "target": inflow, "mask": layer}
    return simulation(
        {"kind": "navier_stokes", "viscosity": 1 / reynolds},
        {"kind": "uniform", "velocity": [1, 0]},
        (2 * height * points, height * points),
        grid={"box": [2 * height, height]},
        terms=[cylinder, sponge | {"relaxation_time": RELAXATION}],
        devices={"platform": "cpu", "count": 1},
    )


class Forces(NamedTuple):
    """Force on the cylinder and mean velocity, every 0.1."""

    time: np.ndarray
    along: np.ndarray
    across: np.ndarray
    speed: np.ndarray


def followed(sim: Simulation, stop: float) -> tuple[State, Forces]:
    """The last state, and the forces until then."""
    names = ("force_cylinder_x", "force_cylinder_y", "mean_velocity_x")
    measure = jax.jit(lambda state: [sim.diagnostics(state)[name] for name in names])
    advance = advance_of(sim.system, sim.integrator, TimeStep(None, 0.8, None))
    state = sim.state
    rows = []
    for time in np.arange(1, 10 * stop + 1) / 10:
        state = advance(state, Until(float(time), np.inf, np.int64(10**6)))
        rows.append([time, *map(float, measure(state))])
    return state, Forces(*np.array(rows).T)


def shedding(points: int, height: int, stop: float = 120.0) -> np.ndarray:
    """Mean drag and Strouhal number at Re = 100, over whole periods of the second half."""
    _, forces = followed(stream(100, points, height, 0.3), stop)
    late = forces.time >= stop / 2
    t, along, across, speed = (series[late] for series in forces)
    up = np.flatnonzero((across[:-1] < 0) & (across[1:] >= 0))
    rise = across[up + 1] - across[up]
    zeros = t[up] - across[up] * (t[up + 1] - t[up]) / rise
    whole = (t >= zeros[0]) & (t < zeros[-1])
    drag = (along[whole] / (0.5 * speed[whole] ** 2)).mean()
    frequency = (len(zeros) - 1) / (zeros[-1] - zeros[0])
    return np.array([drag, frequency / speed[whole].mean()])


def steady(points: int, height: int, stop: float = 50.0) -> np.ndarray:
    """Drag and length of the recirculation behind the cylinder at Re = 40."""
    sim = stream(40, points, height, 0.0)
    state, forces = followed(sim, stop)
    u = np.asarray(sim.field_program("velocity")(state))[0][:, height * points // 2]
    behind = np.arange(len(u)) / points - height - 0.5
    # Within the mask the velocity may have either sign.
    end = np.flatnonzero((behind > 0.2) & (u > 0))[0]
    length = np.interp(0, u[end - 1 : end + 1], behind[end - 1 : end + 1])
    return np.array([forces.along[-1] / (0.5 * forces.speed[-1] ** 2), length])


def unbounded(measure: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """The values of `measure(points, height)` on an infinite grid in an infinite box.

    The limit of parabolas in the grid spacing, with which tau falls as its square, in the smallest
    box, times the ratio of the limit in 1 / height, at 12 points, to the value in that box."""
    grids = (12, 16, 24)
    heights = (8, 16, 32)
    fine = np.array([measure(points, heights[0]) for points in grids])
    tall = np.array([fine[0], *(measure(grids[0], height) for height in heights[1:])])
    in_grid = np.polyfit(1 / np.array(grids), fine, 2)[-1]
    in_height = np.polyfit(1 / np.array(heights), tall, 2)[-1]
    return in_grid * in_height / tall[0]


def street() -> Result:
    drag, strouhal = unbounded(shedding)
    return Result(
        [
            Check("drag", 1.36, drag, 0.04, WILLIAMSON, absolute=True),
            Check("Strouhal number", 0.167, strouhal, 0.003, WILLIAMSON, absolute=True),
        ]
    )


def bubble() -> Result:
    drag, length = unbounded(steady)
    return Result(
        [
            Check("drag", 1.5, drag, 0.05, DENNIS),
            Check("length of the recirculation", 2.24, length, 0.11, DENNIS, absolute=True),
        ]
    )


CASES = tuple(
    Case(f"cylinder_{reynolds}", f"{what}, extrapolated", run, full=True, part="relax", alone=True)
    for reynolds, what, run in (
        (100, "vortex street at Re = 100", street),
        (40, "steady wake of a cylinder at Re = 40", bubble),
    )
)
