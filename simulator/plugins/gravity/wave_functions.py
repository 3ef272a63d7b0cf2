"""Tools of matter waves: phase factors of whole fields, quantum vortices, traps and absorbing
layers."""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Complex, Float
from pydantic import Field

from simulator.physics.models.fields import along_axes
from simulator.physics.user_function import UserFiles, UserFunction, coordinates
from simulator.settings import NonNegative, Positive, PythonFile, Settings
from simulator.spectral import Grid, Local, Points, Transform
from simulator.spectral.arrays import Number, PointValues, SpectralScalar
from simulator.spectral.operators import translate

# Moshier, Cephes, sin.c and sinf.c: pi/2 in three parts, sine and cosine on [-pi/4, pi/4].
_QUARTER = {
    np.dtype(np.float32): (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8),
    np.dtype(np.float64): (
        1.57079625129699707031,
        7.54978941586159635335e-8,
        5.39030285815811905290e-15,
    ),
}
_SINE = {
    np.dtype(np.float32): (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    np.dtype(np.float64): (
        1.58962301576546568060e-10,
        -2.50507477628578072866e-8,
        2.75573136213857245213e-6,
        -1.98412698295895385996e-4,
        8.33333333332211858878e-3,
        -1.66666666666666307295e-1,
    ),
}
_COSINE = {
    np.dtype(np.float32): (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
    np.dtype(np.float64): (
        -1.13585365213876817300e-11,
        2.08757008419747316778e-9,
        -2.75573141792967388112e-7,
        2.48015872888517045348e-5,
        -1.38888888888730564116e-3,
        4.16666666666665929218e-2,
    ),
}


@jax.custom_jvp
def phase_factor(angle: Float[Array, "*shape"]) -> Complex[Array, "*shape"]:
    """exp(-i angle), to a few units in the last place of 1 for |angle| up to about 10^4 turns.

    XLA's cosine and sine on the CPU call the C library for each number: 15 ns per point in single
    precision, 23 in double. The polynomials of Cephes after a reduction to an eighth of a turn are
    vectorized: 0.6 ns in single precision."""
    dtype = np.dtype(angle.dtype)

    def polynomial(coefficients: Sequence[float], x: jax.Array):
        value = jnp.full_like(x, coefficients[0])
        for c in coefficients[1:]:
            value = value * x + dtype.type(c)
        return value

    quarters = jnp.round(angle * dtype.type(2 / np.pi))
    rest = angle
    for part in _QUARTER[dtype]:
        rest = rest - quarters * dtype.type(part)
    square = rest * rest
    sine = rest + rest * square * polynomial(_SINE[dtype], square)
    cosine = 1 - square / 2 + square * square * polynomial(_COSINE[dtype], square)
    number = quarters.astype(jnp.int32) & 3
    odd = (number & 1) == 1
    real = jnp.where(odd, sine, cosine)
    imag = jnp.where(odd, cosine, sine)
    real = jnp.where((number == 1) | (number == 2), -real, real)
    return lax.complex(real, jnp.where(number >= 2, imag, -imag))


@phase_factor.defjvp
def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]):
    value = phase_factor(*primals)
    return value, -1j * tangents[0] * value


EMPTY = 1e-8  # Density, relative to the mean, below which the phase is dominated by round-off.


def pierced_faces(transform: Transform, psi: SpectralScalar) -> Number:
    """The number of faces of grid cells that vortex lines pierce, each counted with its winding
    number.

    The winding around a face is the sum of the phase differences along its four edges, each taken
    between -pi and pi: the number of times that the four straight lines from value to value
    encircle 0. A straight vortex line along an axis pierces one face for each grid plane that it
    crosses; a line of arbitrary direction pierces about 3/2 of its length over the spacing, on
    average."""
    layout = transform.layout
    dx, dy, _ = transform.grid.spacing
    # Neighbours in x and y come from translated fields; neighbours in z are in the same block,
    # which holds lines of z.
    columns = ((0, 0), (1, 0), (0, 1), (1, 1))
    shifted = [translate(layout, psi, (x * dx, y * dy, 0.0)) for x, y in columns]
    mean = layout.inner(psi, psi)

    def local(values: PointValues, points: Points, parameters: Number) -> Local:
        waves = dict(zip(columns, values["psi"], strict=True))

        def at(x: int, y: int, z: int) -> jax.Array:
            line = points.z.size
            if z == 0 or line == 1:
                return waves[x, y]
            return jnp.roll(waves[x, y], -1, points.z.shape.index(line))

        total = jnp.zeros(values["psi"].shape[1:], mean.dtype)
        for around in (
            (at(0, 0, 0), at(1, 0, 0), at(1, 1, 0), at(0, 1, 0)),
            (at(0, 0, 0), at(0, 1, 0), at(0, 1, 1), at(0, 0, 1)),
            (at(0, 0, 0), at(0, 0, 1), at(1, 0, 1), at(1, 0, 0)),
        ):
            windings = sum(
                _crossing(p, q) for p, q in zip(around, [*around[1:], around[0]], strict=True)
            )
            filled = (
                reduce(jnp.minimum, [p.real**2 + p.imag**2 for p in around]) > EMPTY * parameters
            )
            total = total + jnp.where(filled, abs(windings), 0)
        return Local({}, {}, {"faces": total})

    evaluated = transform.evaluate({"psi": jnp.stack(shifted)}, local, mean)
    return evaluated.means["faces"] * transform.grid.points


def _crossing(p: jax.Array, q: jax.Array) -> jax.Array:
    """1 if the line from p to q crosses the positive real axis upwards, -1 if downwards, else 0."""
    left = p.real * q.imag - p.imag * q.real > 0  # 0 lies to the left of the line
    up = (p.imag <= 0) & (q.imag > 0)
    down = (q.imag <= 0) & (p.imag > 0)
    return (up & left).astype(p.real.dtype) - (down & ~left).astype(p.real.dtype)


PointFunction = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""The coordinates of arrays (three that broadcast) to a potential (length^2 / time^2) or a rate (1
/ time)."""


class HarmonicSettings(Settings):
    kind: Literal["harmonic"]
    frequency: Annotated[tuple[NonNegative, ...], Field(min_length=2, max_length=3)]
    """Angular frequencies of a trap about the box's centre, one for each axis of the grid."""


class PythonPotentialSettings(Settings):
    kind: Literal["python"]
    path: PythonFile
    """Python file with the function."""
    function: str
    """`function(x, y, z, **parameters)`, or in two dimensions (x, y, ...), gives the potential,
    length^2 / time^2."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the function."""


class AbsorberSettings(Settings):
    """Removes mass near the faces of the box: d psi / dt = - rate w psi, w = (1 - distance /
    width)^2."""

    width: Positive
    """Distance from the faces of the box over which the absorber rises (length)."""
    rate: Positive
    """Damping rate of the wave function at a face (1/time)."""


ExternalSettings = Annotated[
    HarmonicSettings | PythonPotentialSettings, Field(discriminator="kind")
]


def external_potential(
    settings: "ExternalSettings", grid: Grid, files: UserFiles | None
) -> PointFunction:
    """The function that the settings describe. `files` opens the user's Python file."""
    if isinstance(settings, HarmonicSettings):
        middle = [length / 2 for length in grid.seen(grid.box)]
        frequency = along_axes(grid, "external_potential.frequency", settings.frequency)

        def harmonic(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
            points = zip(grid.seen((x, y, z)), middle, frequency, strict=True)
            return reduce(add, (0.5 * w**2 * (q - m) ** 2 for q, m, w in points))

        return harmonic
    assert files is not None
    function = UserFunction.of(files, settings, coordinates(grid), "external_potential: ")

    def potential(x: jax.Array, y: jax.Array, z: jax.Array):
        values = jnp.asarray(function(*grid.seen((x, y, z))))
        shape = jnp.broadcast_shapes(x.shape, y.shape, z.shape)
        extents = zip(values.shape[::-1], shape[::-1], strict=False)
        if values.ndim > 3 or any(n not in (1, m) for n, m in extents):
            seen = grid.seen(values.shape)
            raise function.refused(f"has shape {seen}; {grid.seen(shape)} is needed")
        return values

    return potential


def absorption(settings: AbsorberSettings, grid: Grid) -> PointFunction:
    """The rate (1/time) at which the wave function is damped."""

    def damping(x: jax.Array, y: jax.Array, z: jax.Array):
        total = jnp.zeros((1, 1, 1), x.dtype)
        for q, length in zip(grid.seen((x, y, z)), grid.seen(grid.box), strict=True):
            distance = jnp.minimum(q, length - q)
            total = total + jnp.maximum(0, 1 - distance / settings.width) ** 2
        return settings.rate * total

    return damping


def from_center(grid: Grid, points: Sequence[jax.Array], place: Sequence[Any]) -> list[jax.Array]:
    """x - c along each axis, to the nearest periodic image: coordinates in the box centred on c."""
    sides = zip(points, place, grid.box, strict=True)
    return [jnp.mod(x - jnp.asarray(c, x.dtype) + h / 2, h) - h / 2 for x, c, h in sides]
