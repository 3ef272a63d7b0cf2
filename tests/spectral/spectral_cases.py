"""The combinations that the transforms are tested over, and compiled functions that the tests
share."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

import jax
import numpy as np

from simulator.spectral import Grid, Layout, Modes, Transform, native
from simulator.spectral.backends import BACKENDS, build, candidates

SHAPES = {
    "even": (8, 24, 24),
    "odd": (9, 15, 21),
    "unequal": (16, 8, 12),
    "prime": (7, 11, 13),
    "flat": (1, 20, 27),
}
PLANS = (
    ("custom_partitioning", "z_xy"),
    ("custom_partitioning", "zx_y"),
    ("custom_partitioning", "z_y_x"),
    ("jaxdecomp", "slab"),
    ("jaxdecomp", "pencil"),
)
DEVICES = (1, 2, 3, 4, 8)
FIELDS = ("real", "real, every mode", "complex, every mode", "complex")
PRECISIONS = ("double", "single")
BLOCKS = (None, 2)
KERNELS = ("native", "native in threads", "xla", "gpu", "gpu in blocks")
"""The last two: what a GPU runs, whole fields or blocks, on processors."""
THREADS = 3
BOX = (2 * np.pi, 3.0, 1.5)


@dataclass(frozen=True)
class Case:
    plan: tuple[str, str] = PLANS[0]
    devices: int = 2
    shape: str = "even"
    fields: str = "real"
    precision: str = "double"
    block: int | None = None
    kernels: str = "auto"

    def __str__(self) -> str:
        block = f"-blocks of {self.block}" if self.block else ""
        kernels = "" if self.kernels == "auto" else f"-{self.kernels}"
        name = f"{'-'.join(self.plan)}-{self.devices}-{self.shape}-{self.fields}-{self.precision}{block}{kernels}"
        return name.replace(", ", " ")

    @property
    def modes(self) -> Modes:
        return Modes(Grid(SHAPES[self.shape], BOX), "real" in self.fields, "every" in self.fields)

    @property
    def works(self) -> bool:
        if (self.is_native and native.missing()) or BACKENDS[self.plan[0]].missing():
            return False
        return bool(candidates(self.modes, self.devices, *self.plan)) and not (
            (self.block or self.kernels not in ("auto", "xla")) and self.plan[0] == "jaxdecomp"
        )

    @property
    def is_native(self) -> bool:
        return self.kernels.startswith("native")

    @property
    def on_gpu(self) -> bool:
        return self.kernels.startswith("gpu")

    @property
    def dtype(self) -> Any:
        return np.dtype(np.float64 if self.precision == "double" else np.float32)

    @property
    def tolerance(self) -> float:
        """Round-off of a transform, relative to the largest value: eps log2(points) at most, with a
        margin."""
        return 1e-13 if self.precision == "double" else 4e-6


EVERY = [
    case
    for values in itertools.product(PLANS, DEVICES, SHAPES, FIELDS, PRECISIONS, BLOCKS, KERNELS)
    if (case := Case(*values)).works
]


def pairwise(cases: list[Case]) -> list[Case]:
    """The fewest cases, greedily, in which every pair of two parameters' values appears that
    appears at all."""

    def pairs(case: Case) -> set:
        return set(itertools.combinations(enumerate(astuple(case)), 2))

    missing = set().union(*map(pairs, cases))
    chosen = []
    while missing:
        best = max(cases, key=lambda case: len(pairs(case) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


@cache
def transform(case: Case, exchange: str = "full") -> Transform:
    choice = candidates(case.modes, case.devices, *case.plan)[0]
    options = {"kernels": case.kernels, "block": case.block, "exchange": exchange}
    if case.on_gpu:
        options |= {"platform": "gpu", "kernels": "xla", "sequential": "blocks" in case.kernels}
    if case.is_native:
        options |= {"kernels": "native", "threads": THREADS if "threads" in case.kernels else 1}
    return build(case.modes, choice, jax.devices()[: case.devices], case.dtype, **options)


@cache
def compiled(case: Case, method: str):
    return jax.jit(getattr(transform(case), method))


def put(case: Case, values: np.ndarray) -> jax.Array:
    """Values (..., x, y, z) at grid points, padded and shared out over the devices."""
    t = transform(case)
    lead = [(0, 0)] * (values.ndim - 3)
    ends = [(0, m - n) for n, m in zip(values.shape[-3:], t.physical.shape, strict=True)]
    dtype = case.dtype if "real" in case.fields else np.result_type(case.dtype, np.complex64)
    return jax.device_put(
        np.pad(values, lead + ends).astype(dtype), t.physical.sharding(values.ndim)
    )


def points(case: Case, values: jax.Array) -> np.ndarray:
    """Values at grid points, without padding."""
    nx, ny, nz = case.modes.grid.shape
    return np.asarray(values)[..., :nx, :ny, :nz]


def coordinates(case: Case) -> tuple[np.ndarray, ...]:
    """x, y and z of the grid points, (x, y, z) each."""
    grid = case.modes.grid
    axes = (np.arange(n) * h for n, h in zip(grid.shape, grid.spacing, strict=True))
    return np.meshgrid(*axes, indexing="ij")


def coefficients(case: Case, values: np.ndarray) -> np.ndarray:
    """What `forward` should give for values (..., x, y, z)."""
    return modes_of(transform(case).layout, values)


def modes_of(layout: Layout, values: np.ndarray) -> np.ndarray:
    """The coefficients of values (..., x, y, z) in a layout, by numpy.fft; zeros in padding."""
    full = np.fft.fftn(values.astype(complex), axes=(-3, -2, -1), norm="forward")
    order = ["xyz".index(a) for a in layout.order]
    full = full.transpose(*range(full.ndim - 3), *(full.ndim - 3 + i for i in order))
    picked = full[(..., *np.ix_(*(layout.mode_numbers[a] for a in layout.order)))]
    pad = [(0, m - n) for n, m in zip(layout.valid, layout.shape, strict=True)]
    picked = np.pad(picked, [(0, 0)] * (full.ndim - 3) + pad)
    return np.where(np.asarray(layout.mask), picked, 0)


def sample(case: Case, components: int = 2, seed: int = 0) -> np.ndarray:
    """Random values (component, x, y, z), real or complex as the case asks."""
    rng = np.random.default_rng(seed)
    shape = (components, *case.modes.grid.shape)
    values = rng.standard_normal(shape)
    return values if case.modes.real else values + 1j * rng.standard_normal(shape)


def error(found, expected) -> float:
    """Largest difference, relative to the largest expected value."""
    found = np.asarray(found)
    expected = np.asarray(expected)
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-300))


def slabs(
    shape: tuple[int, ...],
    plan: str,
    devices: int,
    precision: type = np.float64,
    *,
    real: bool = True,
    **options: Any,
) -> Transform:
    """A native transform by this plan, with all devices along one axis of the mesh."""
    modes = Modes(Grid(shape, BOX), real)
    choices = candidates(modes, devices)
    (choice,) = (c for c in choices if c.plan == plan and c.mesh[-1] == devices)
    return build(modes, choice, jax.devices()[:devices], precision, kernels="native", **options)


@contextmanager
def variants() -> Iterator[Callable[[str], bool]]:
    """Selects variants of the native kernels, and the first one again at the end."""
    library = native.load()
    before = library.variant
    try:
        yield library.choose
    finally:
        library.choose(before)
