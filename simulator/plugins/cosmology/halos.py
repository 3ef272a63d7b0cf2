"""Halos of particles by friends of friends, cores of wave dark matter, and mass functions, on the
host."""

import math
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.ndimage import map_coordinates, maximum_filter, spline_filter
from scipy.optimize import minimize
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

Columns = dict[str, np.ndarray]
SLAB = 1 << 17  # Particles that a thread searches together; their list of pairs takes about 0.3 GB.
OVERDENSITY = 200.0
"""Mean density within a halo's radius over that of the box; of waves in an expanding box
`virial_overdensity`."""
SHELLS = np.geomspace(0.1, 2, 13)  # Edges of the shells of profiles, in units of a halo's radius.
SPHERE = 4 / 3 * math.pi
CELLS = 2  # A sphere in a density on a grid is resolved from this radius on, in cells.


def friends(
    position: np.ndarray, mass: np.ndarray, box: np.ndarray, reach: float, slab: int = SLAB
) -> tuple[np.ndarray, np.ndarray]:
    """The group (n,) of each particle, numbered from 0, and its crowding (n,): the mass within
    `reach` of it, weighted by 1 - (d / reach)^2. `position` (n, 3) lies inside of the periodic box.

    Particles closer than `reach` are friends; a group is closed under friendship (Davis et al.,
    Astrophys. J. 292, 371 (1985)). Threads search slabs of at most `slab` particles, each together
    with the particles up to `reach` above it; groups of several slabs with a common particle are
    one, so the result does not depend on the slabs."""
    n = len(position)
    length = box[0]
    order = np.argsort(position[:, 0], kind="stable")
    x = position[order, 0]
    ends = np.linspace(0, n, -(-n // slab) + 1).astype(int)

    def search(first: int, last: int) -> tuple[np.ndarray, ...]:
        inside = last - first
        top = x[last - 1] + reach
        beyond = min(first, np.searchsorted(x, top - length, side="right"))
        near = order[np.r_[first : max(last, np.searchsorted(x, top, side="right")), 0:beyond]]
        pairs = KDTree(position[near], boxsize=box).query_pairs(reach, output_type="ndarray")
        # i < j; pairs of two particles above belong to another slab.
        i, j = pairs[pairs[:, 0] < inside].T
        ahead = np.mod(position[near[j], 0] - position[near[i], 0], length)
        i, j = (k[(j < inside) | (ahead <= reach)] for k in (i, j))
        weight = 1 - (distances(position[near[i]], position[near[j]], box) / reach) ** 2
        crowd = np.bincount(i, weight * mass[near[j]], len(near)) + np.bincount(
            j, weight * mass[near[i]], len(near)
        )
        group = _groups(len(near), i, j)
        return near, near[np.unique(group, return_index=True)[1][group]], crowd

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        slabs = zip(*threads.map(search, ends[:-1], ends[1:]), strict=True)
        searched, representative, crowd = map(np.concatenate, slabs)
    return _groups(n, searched, representative), np.bincount(searched, crowd, n)


def _groups(n: int, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    return connected_components(coo_matrix((np.ones(len(i), bool), (i, j)), (n, n)), False)[1]


def distances(one: np.ndarray, other: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Periodic distances (n,) of positions (n, 3)."""
    return np.sqrt((_nearest(one - other, box) ** 2).sum(-1))


def _nearest(away: np.ndarray, box: np.ndarray) -> np.ndarray:
    return away - box * np.rint(away / box)


def halos(
    particles: Mapping[str, np.ndarray], box: np.ndarray, linking: float = 0.2, members: int = 20
) -> tuple[Columns, np.ndarray]:
    """The halos, from the heaviest on, and the ids of their members, one halo after the other. The
    distance of friends is `linking` in units of the mean distance (V/N)^(1/3) of particles,
    `members` the least number in a halo.

    `particles`: `id`, `mass` (n,), `position` and `velocity` (3, n) in any order. `id` of a halo is
    the smallest of its members' and `mass` their mass, `position` that of its densest particle,
    `center_of_mass` and `velocity` means, `spread` the velocity dispersion along one axis. `radius`
    is that of the sphere about `position` whose mean density is `OVERDENSITY` times that of the
    box, `sphere_mass` the mass in it, and `profile` (halo, shell) the density of all particles in
    `SHELLS`; they are nan where the density is nowhere so high."""
    order = np.argsort(particles["id"])
    ids, mass = (np.asarray(particles[name])[order] for name in ("id", "mass"))
    position, velocity = (
        np.asarray(particles[name], float)[:, order].T for name in ("position", "velocity")
    )
    position = np.mod(position, box)
    position[position >= box] = 0  # the remainder of a tiny negative number is the box
    volume = float(np.prod(box))
    groups, crowding = friends(position, mass, box, linking * (volume / len(ids)) ** (1 / 3))
    inside = np.flatnonzero(np.bincount(groups)[groups] >= members)
    # The densest member of each group is the last.
    inside = inside[np.lexsort((crowding[inside], groups[inside]))]
    number = np.unique(groups[inside], return_counts=True)[1]
    ends = np.cumsum(number)
    ids_of = [np.sort(ids[inside[a:b]]) for a, b in zip(ends - number, ends, strict=True)]
    columns: Columns = {
        "id": np.array([halo[0] for halo in ids_of], np.int64),
        "number": number,
        **_sums(number, mass[inside], position[inside], velocity[inside], box),
    }
    rank = np.lexsort((columns["id"], -columns["mass"]))
    columns = {name: values[rank] for name, values in columns.items()}
    columns |= _spheres(position, mass, box, columns, OVERDENSITY * float(mass.sum()) / volume)
    return columns, np.concatenate([ids[:0], *(ids_of[i] for i in rank)])


def _sums(
    number: np.ndarray,
    mass: np.ndarray,
    position: np.ndarray,
    velocity: np.ndarray,
    box: np.ndarray,
) -> Columns:
    """Masses, places and velocities of halos with these numbers of members, which follow one
    another, the densest last."""
    of = np.repeat(np.arange(len(number)), number)
    peak = position[np.cumsum(number) - 1]

    def mean(values: np.ndarray) -> np.ndarray:
        sums = [np.bincount(of, mass * v, len(number)) for v in values.T]
        return np.stack(sums, -1) / np.bincount(of, mass, len(number))[:, None]

    drift = mean(velocity)
    return {
        # of no halos it would be whole numbers
        "mass": np.bincount(of, mass, len(number)).astype(float),
        "position": peak,
        "center_of_mass": np.mod(peak + mean(_nearest(position - peak[of], box)), box),
        "velocity": drift,
        "spread": np.sqrt(mean((velocity - drift[of]) ** 2).mean(-1)),
    }


def _spheres(
    position: np.ndarray, mass: np.ndarray, box: np.ndarray, columns: Columns, density: float
) -> Columns:
    """`radius`, `sphere_mass` and `profile` of halos, in spheres of the mean `density` about their
    positions."""
    tree = KDTree(position, boxsize=box)
    radius, inside = np.full((2, len(columns["mass"])), np.nan)
    profile = np.full((len(radius), len(SHELLS) - 1), np.nan)
    for i, (centre, heavy) in enumerate(zip(columns["position"], columns["mass"], strict=True)):
        # The spheres of few halos hold more than twice the mass of the halo.
        near = np.array(
            tree.query_ball_point(centre, SHELLS[-1] * (2 * heavy / (SPHERE * density)) ** (1 / 3))
        )
        away = distances(position[near], centre, box)
        order = np.argsort(away, kind="stable")
        enclosed = np.cumsum(mass[near[order]])
        dense = np.flatnonzero(enclosed[1:] >= density * SPHERE * away[order[1:]] ** 3)
        if len(dense):
            inside[i] = enclosed[dense[-1] + 1]
            radius[i] = (inside[i] / (SPHERE * density)) ** (1 / 3)
            in_shells = np.histogram(away / radius[i], SHELLS, weights=mass[near])[0]
            profile[i] = in_shells / (SPHERE * radius[i] ** 3 * np.diff(SHELLS**3))
    return {"radius": radius, "sphere_mass": inside, "profile": profile}


def cores(
    density: np.ndarray, box: np.ndarray, overdensity: float = OVERDENSITY, most: int = 1000
) -> Columns:
    """The cores of wave dark matter of a density (x, y, z), from the densest on, one in each halo,
    at most `most`.

    `position`, `peak_density`; `core_radius`, at which the mean over directions is half of it;
    `core_mass` within this radius; `radius` and `mass` of the sphere whose mean density is
    `overdensity` times that of the box. A core radius or radius below `CELLS` is unresolved: nan,
    like the mass within it. A core is a maximum above this density that lies in no halo, and not
    within three core radii, of a denser one. Values between grid points are those of cubic
    splines."""
    mean = float(density.mean())
    spacing = box / np.array(density.shape)
    peaks = np.argwhere(
        (density == maximum_filter(density, 3, mode="wrap")) & (density > overdensity * mean)
    )
    peaks = peaks[np.argsort(-density[tuple(peaks.T)], kind="stable")] * spacing
    spline = spline_filter(density, 3, mode="grid-wrap")
    directions = _fibonacci_lattice(192)
    r = np.concatenate([[0], np.geomspace(min(spacing) / 8, min(box) / 2, 160)])

    def at(places: np.ndarray) -> np.ndarray:
        return map_coordinates(
            spline, np.moveaxis(places / spacing, -1, 0), mode="grid-wrap", prefilter=False
        )

    accurate = {"xatol": 1e-4 * min(spacing), "fatol": 1e-9 * float(density.max())}
    rows = list[tuple[float, ...]]()
    taken = np.empty((0, 4))
    for peak in peaks:
        if len(rows) == most or (distances(taken[:, :3], peak, box) < taken[:, 3]).any():
            continue
        centre = minimize(
            lambda x: -float(at(x[None])[0]), peak, method="Nelder-Mead", options=accurate
        ).x
        shells = at(centre + r[:, None, None] * directions).mean(1)
        core, core_mass, radius, mass = _spheres_of_core(r, shells, overdensity * mean)
        rows.append((*np.mod(centre, box), shells[0], core, core_mass, radius, mass))
        taken = np.vstack([taken, [*centre, np.nanmax([3 * core, radius, 0])]])
    names = [f"position_{a}" for a in "xyz"]
    names += ["peak_density", "core_radius", "core_mass", "radius", "mass"]
    columns: Columns = dict(zip(names, np.reshape(rows, (-1, len(names))).T, strict=True))
    for radius, mass in (("core_radius", "core_mass"), ("radius", "mass")):
        resolved = columns[radius] >= CELLS * max(spacing)
        for name in (radius, mass):
            columns[name] = np.where(resolved, columns[name], np.nan)
    return {"id": np.arange(len(rows)), **columns}


def _spheres_of_core(
    r: np.ndarray, shells: np.ndarray, density: float
) -> tuple[float, float, float, float]:
    """The radius at which the densities `shells` at the radii `r` have fallen to half and the mass
    within it, and the radius and mass of the sphere with this mean density; nan if there is no such
    radius."""
    enclosed = np.concatenate(
        [[0], np.cumsum(SPHERE * (shells[1:] + shells[:-1]) / 2 * np.diff(r**3))]
    )
    half = int(np.argmax(shells < shells[0] / 2))
    core = math.nan
    if half:
        core = float(np.interp(-shells[0] / 2, -shells[: half + 1], r[: half + 1]))
    last = int(np.argmin(enclosed[1:] >= density * SPHERE * r[1:] ** 3))
    radius, mass = (r[last], enclosed[last]) if last else (math.nan, math.nan)
    return core, float(np.interp(core, r, enclosed)), radius, mass


def _fibonacci_lattice(count: int) -> np.ndarray:
    """Unit vectors (count, 3), evenly over the sphere."""
    z = np.linspace(-1, 1, count + 1)[:-1] + 1 / count
    turn = np.arange(count) * math.pi * (3 - math.sqrt(5))
    radius = np.sqrt(1 - z**2)
    return np.stack([radius * np.cos(turn), radius * np.sin(turn), z], -1)


def virial_overdensity(matter: float) -> float:
    """Mean density of a virialised halo over that of matter in a flat universe with Omega_m(z) =
    `matter`: Bryan & Norman, Astrophys. J. 495, 80 (1998), equation 6."""
    return (18 * math.pi**2 + 82 * (matter - 1) - 39 * (matter - 1) ** 2) / matter


def expected_core_mass(
    halo: np.ndarray, a: float, matter: tuple[float, float], density: float, unit: float
) -> np.ndarray:
    """Mass within the core radius in halos of these masses at the scale factor a: Schive et al.,
    Phys. Rev. Lett. 113, 261302 (2014), equation 6. `matter`: Omega_m at a and today, `density`:
    the comoving mean, `unit`: the area hbar / (m H0). They give the least mass of a halo, which is
    4.4e7 (m c^2 / 1e-22 eV)^(-3/2) solar masses there."""
    now, today = map(virial_overdensity, matter)
    least = (today / 375) ** 0.25 * 32 * math.pi * density * unit**1.5 * matter[1] ** -0.75
    return 0.25 * a**-0.5 * (now / today) ** (1 / 6) * (halo / least) ** (1 / 3) * least


def fitted_mass_functions(
    density: float, deviation: Callable[[float], float], mass: np.ndarray
) -> Columns:
    """dn/dlnM = f(sigma) density / M |dln sigma / dln M| at rising masses (n,), for Press &
    Schechter (1974), Sheth & Tormen (1999) and Watson et al. (2013). `deviation(R)` is the standard
    deviation sigma of the linear contrast in spheres of radius R, `density` the mean.

    The last is a fit to halos of friends of friends with the linking length 0.2, Mon. Not. R.
    Astron. Soc. 433, 1230, and nan outside of its range -0.55 < ln(1/sigma) < 1.31."""
    s = np.array([deviation(float(r)) for r in np.cbrt(mass / (SPHERE * density))])
    nu = 1.686 / s
    sheth = (
        0.3222
        * nu
        * math.sqrt(1.414 / math.pi)
        * (1 + (0.707 * nu**2) ** -0.3)
        * np.exp(-0.3535 * nu**2)
    )
    watson = np.where(
        abs(np.log(s) + 0.38) < 0.93,
        0.282 * ((1.406 / s) ** 2.163 + 1) * np.exp(-1.21 / s**2),
        np.nan,
    )
    press = math.sqrt(2 / math.pi) * nu * np.exp(-(nu**2) / 2)
    fits = {"press_schechter": press, "sheth_tormen": sheth, "watson": watson}
    slope = abs(np.gradient(np.log(s), np.log(mass)))
    return {
        "mass": mass,
        "sigma": s,
        **{name: f * density / mass * slope for name, f in fits.items()},
    }
