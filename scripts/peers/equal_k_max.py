"""Schemes that keep modes up to the same wavenumber k_max, each on its own grid and with its own
largest dt: what they cost, and how far their flows are from that of a finer grid."""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from peers import perturbed_vortex
from peers.environments import Peer, as_long

from simulator.spectral.grid import Dealias, Grid

SHIFTED = ("RK4_phaseshift_random", "RK2_phaseshift_random")
"""fluidsim's schemes on shifted grids."""
CHOICES: tuple[Dealias, ...] = ("two_thirds", "spherical", "phase_shift", "none")
"""The choices of `grid.dealias`."""
FINER = 1.5
"""k_max of the reference."""
SPHERE = 1.1
"""A sphere of this many k_max resolves about what the cube of two thirds does with its corners."""
SHELLS = 0.9
"""Spectra are compared up to this many k_max."""

Problem = dict[str, Any]


def points(dealias: Dealias, k_max: float) -> int:
    """The smallest even number of points along an axis that keeps modes up to k_max and is a
    product of 2, 3 and 5."""
    n = 2
    while min(Grid((n, n, n), dealias=dealias).kept) < k_max or 30**n % n:
        n += 2
    return n


def problem(k_max: int, stop: float, n: int, **scheme: str) -> Problem:
    return {
        "what": "navier_stokes",
        "viscosity": perturbed_vortex.viscosity(k_max),
        "dt": 1e-3,  # fluidsim's, until its condition chooses another
        "stop": stop,
        "shape": [n] * 3,
        "steps": as_long(2 * 128**3, n**3),
        "precision": "double",
        "transform": "fftwmpi3d",
        **scheme,
    }


def reference(k_max: int, stop: float) -> Problem:
    return problem(k_max, stop, points("two_thirds", FINER * k_max), dealias="two_thirds")


def contenders(k_max: int, stop: float) -> list[tuple[str, Problem]]:
    """Programs in `peers/` with their problems."""
    cube = points("two_thirds", k_max)
    sphere = points("spherical", k_max)
    others = [("RK4", cube), *((scheme, sphere) for scheme in SHIFTED)]
    ours = [(dealias, points(dealias, k_max)) for dealias in CHOICES]
    ours += [(dealias, points(dealias, SPHERE * k_max)) for dealias in ("spherical", "phase_shift")]
    return [
        *(("fluidsim_step.py", problem(k_max, stop, n, scheme=scheme)) for scheme, n in others),
        *(("simulator_step.py", problem(k_max, stop, n, dealias=name)) for name, n in ours),
    ]


def errors(peer: Peer, finer: Peer, exact: Peer | None, k_max: int) -> dict[str, float | None]:
    """Relative errors: of the dissipation and, the largest, of the energy in a shell against the
    `finer` grid's, and of the dissipation against the `exact` truncation to the same modes."""
    shells = slice(1, math.floor(SHELLS * k_max) + 1)
    spectrum = np.array(peer.about["spectrum"][shells]) / finer.about["spectrum"][shells]

    def dissipation(other: Peer) -> float:
        return abs(peer.about["dissipation"] / other.about["dissipation"] - 1)

    return {
        "dissipation": dissipation(finer),
        "spectrum": float(abs(spectrum - 1).max()),
        "aliasing": None if exact in (None, peer) else dissipation(exact),
    }


def rows(k_max: int, started: Sequence[Peer], finer: Peer) -> list[dict[str, Any]]:
    """A row per contender. `ratios`: the times of this program's phase_shift over its time, for a
    step, and `ratios_per_time` for a unit of the flow's time."""
    stop = finer.problem["stop"]
    eta = (finer.problem["viscosity"] ** 3 / finer.about["dissipation"]) ** (1 / 4)
    exact = {p.problem["shape"][0]: p for p in started if p.problem.get("dealias") == "spherical"}
    seconds = [median(peer.times) for peer in started]
    per_time = [s * p.about["steps"] / stop for s, p in zip(seconds, started, strict=True)]
    shifted = [i for i, p in enumerate(started) if p.problem.get("dealias") == "phase_shift"]
    found = []
    for i, peer in enumerate(started):
        n = peer.problem["shape"][0]
        same_modes = n in exact and peer.problem.get("dealias") != "none"
        found.append(
            {
                "step": f"k_max {k_max}, k_max eta {k_max * eta:.2f}, to t = {stop:g}",
                "program": peer.name,
                "seconds": seconds[i],
                "ratios": [seconds[j] / seconds[i] for j in shifted],
                "steps_per_time": peer.about["steps"] / stop,
                "seconds_per_time": per_time[i],
                "ratios_per_time": [per_time[j] / per_time[i] for j in shifted],
                "errors": errors(peer, finer, exact[n] if same_modes else None, k_max),
            }
        )
    return found


def line(row: Mapping[str, Any]) -> str:
    first, second = (
        " / ".join(f"{ratio:.2f}" for ratio in row[name]) for name in ("ratios", "ratios_per_time")
    )
    e = row["errors"]
    aliasing = "" if e["aliasing"] is None else f"{e['aliasing']:.1e}"
    return (
        f"{row['program']:42} {row['seconds'] * 1e3:6.0f} ms  {first:12} "
        f"{row['steps_per_time']:6.1f} {row['seconds_per_time']:7.2f} s  {second:12} "
        f"{e['dissipation']:.1e} {e['spectrum']:.1e} {aliasing}"
    )


HEAD = (
    f"{'program':42} {'a step':>9}  {'here / it':12} {'steps':>6} {'a time':>9}  {'here / it':12} "
    f"errors: dissipation, E(k), aliasing"
)
