"""`DistributedFFT` against numpy: on 1, 2 and 4 devices and two processes, any extents, both
precisions, meshes with Auto and Explicit axes; its derivatives, its batches, and what it refuses."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from run_support import free_port, fresh

from simulator.errors import UserError
from simulator.plugins.fft.distributed_fft import DistributedFFT

P = PartitionSpec
SHAPES = {"even": (8, 12, 16), "odd": (9, 7, 11)}
EPSILON = {np.float64: 1e-13, np.float32: 2e-6}
"""Round-off of a transform relative to the largest value: eps log2(points), with a margin."""


def error(found: Any, expected: Any) -> float:
    """Largest difference, relative to the largest expected value."""
    expected = np.asarray(expected)
    return float(np.abs(np.asarray(found) - expected).max() / np.abs(expected).max())


def mesh_of(extents: tuple[int, ...], kind: AxisType = AxisType.Auto) -> Mesh:
    devices = np.asarray(jax.devices()[: np.prod(extents)]).reshape(extents)
    return Mesh(devices, ("a", "b")[: len(extents)], axis_types=(kind,) * len(extents))


def sample(shape: tuple[int, ...], *, real: bool = True, dtype: type = np.float64) -> np.ndarray:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(shape).astype(dtype)
    return values if real else values + 1j * rng.standard_normal(shape).astype(dtype)


def as_numpy(fft: DistributedFFT, modes: jax.Array) -> np.ndarray:
    """Modes of all wavenumbers in numpy's order."""
    nx, ny, nz = fft.shape
    places = [fft.order.index(axis) - 3 for axis in "xyz"]
    lead = range(modes.ndim - 3)
    natural = np.asarray(modes).transpose(*lead, *(modes.ndim + place for place in places))
    return natural[..., :nx, :ny, : nz // 2 + 1 if fft.real else nz]


@pytest.mark.spmd
@pytest.mark.parametrize(
    "shape, extents, real, dtype",
    [
        *itertools.product(SHAPES, [(1,), (2,), (2, 2)], [True, False], [np.float64]),
        *itertools.product(["odd"], [(4,), (1, 2), (2, 1)], [True], [np.float64, np.float32]),
    ],
)
def test_agrees_with_numpy(shape, extents, real, dtype):
    """In its own order, and in numpy's; with each norm in turn."""
    shape = SHAPES[shape]
    norm = ("backward", "ortho", "forward")[(sum(extents) + real) % 3]
    fft = DistributedFFT(shape, mesh_of(extents), real=real, dtype=dtype, norm=norm)
    values = sample((2, *shape), real=real, dtype=dtype)
    transform = np.fft.rfftn if real else np.fft.fftn
    expected = transform(values, axes=(1, 2, 3), norm=norm)
    tolerance = EPSILON[dtype]

    modes = fft.forward(values)
    assert (
        modes.shape == (2, *fft.modes_shape) and modes.dtype == expected.astype(modes.dtype).dtype
    )
    assert error(as_numpy(fft, modes), expected) < tolerance
    assert modes[0].sharding.is_equivalent_to(fft.modes_sharding, 3)
    back = fft.inverse(modes)
    assert back.shape == (2, *fft.values_shape)
    assert error(fft.gather(back), values) < tolerance
    assert np.count_nonzero(back) == np.count_nonzero(fft.gather(back))  # zero at the end of axes

    forward_n, inverse_n = (fft.rfftn, fft.irfftn) if real else (fft.fftn, fft.ifftn)
    natural = forward_n(values)
    assert natural.shape == expected.shape
    assert error(natural, expected) < tolerance
    assert error(inverse_n(natural), values) < tolerance
    assert error(fft.inverse(fft.forward(fft.scatter(values))), back) < tolerance


@pytest.mark.spmd
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("extents", [(1,), (4,), (2, 2)])
def test_derivatives_and_batches(extents, kind):
    """d/dx of a wave; Parseval's sum and its gradient, 2 u / N; all of them in a batch."""
    fft = DistributedFFT((8, 12, 16), mesh_of(extents, kind), norm="forward")
    x, y, z = fft.coordinates()
    waves = jnp.stack([jnp.sin(2 * x + 3 * y) * jnp.cos(n * z) for n in (1, 5)])
    values = jax.device_put(waves, NamedSharding(fft.mesh, P(None, *fft.sharding.spec)))
    kx, _, _ = fft.wavenumbers()

    @jax.jit
    def energy(u):
        modes = fft.forward(u)
        return (fft.weight() * (modes.real**2 + modes.imag**2)).sum()

    @jax.jit
    @jax.vmap
    def slope(u):
        return fft.inverse(1j * kx * fft.forward(u))

    expected = jnp.stack([2 * jnp.cos(2 * x + 3 * y) * jnp.cos(n * z) for n in (1, 5)])
    assert error(slope(values), expected) < 1e-13
    assert jax.typeof(slope(values)).sharding == jax.typeof(values).sharding
    squares = np.asarray(values) ** 2
    assert error(jax.vmap(energy)(values), squares.mean((1, 2, 3))) < 1e-13
    gradient = jax.jit(jax.vmap(jax.grad(energy)))(values)
    assert error(gradient, 2 * np.asarray(values) / np.prod(fft.shape)) < 1e-13
    tangent = jax.jvp(slope, (values,), (expected,))[1]
    assert error(tangent, -4 * np.asarray(values)) < 1e-13


@pytest.mark.spmd
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_numpys_order_on_explicit_meshes_too(kind):
    """With extents that do not divide, whose results have no common partition."""
    fft = DistributedFFT((9, 7, 5), mesh_of((2, 2), kind))
    values = sample((9, 7, 5))
    natural = jax.jit(fft.rfftn)(fft.scatter(values))
    assert error(natural, np.fft.rfftn(values)) < 1e-13
    assert error(jax.jit(fft.irfftn)(natural), values) < 1e-13


@pytest.mark.spmd
@pytest.mark.parametrize("keep", ["two_thirds", "spherical"])
def test_a_truncated_transform_drops_the_modes_beyond(keep):
    """`inverse` is the projection on the modes that are kept; their number is that of the grid's
    rule."""
    fft = DistributedFFT((8, 12, 9), mesh_of((2,)), keep=keep)
    values = sample((8, 12, 9))
    full = np.fft.fftn(values)
    k = [np.fft.fftfreq(n, 1 / n) for n in fft.shape]
    if keep == "two_thirds":
        inside = np.ix_(*(abs(k) <= (n - 1) // 3 for k, n in zip(k, fft.shape, strict=True)))
        kept = np.zeros_like(full)
        kept[inside] = full[inside]
    else:
        squares = (2 * np.asarray(m) / n for m, n in zip(np.ix_(*k), fft.shape, strict=True))
        kept = np.where(sum(s**2 for s in squares) < 8 / 9 - 1e-9, full, 0)
    back = fft.inverse(fft.forward(values))
    assert error(fft.gather(back), np.fft.ifftn(kept).real) < 1e-13
    with pytest.raises(ValueError, match=r'^rfftn needs DistributedFFT\(\.\.\., keep="all"\)$'):
        fft.rfftn(values)


@pytest.mark.spmd
def test_nyquist_planes_have_wavenumbers_like_fftfreqs():
    """Without `nyquist` the slope of a real field has none of them."""
    fft = DistributedFFT((8, 6, 4), mesh_of((2,)), box=(8, 6, 4))
    for k, n in zip(fft.wavenumbers(nyquist=True)[:2], fft.shape, strict=False):
        assert error(np.ravel(k), 2 * np.pi * np.fft.fftfreq(n)) < 1e-15
    values = np.cos(np.pi * np.arange(8))[:, None, None] * np.cos(np.pi * np.arange(4) / 2)
    kx, _, _ = fft.wavenumbers()
    assert not np.any(fft.inverse(1j * kx * fft.forward(np.broadcast_to(values, fft.shape))))
    kx, ky, kz = fft.wavenumbers(nyquist=True)
    assert error(fft.k_squared(), kx**2 + ky**2 + kz**2) < 1e-15


@pytest.mark.spmd
@pytest.mark.parametrize("extents", [(2, 2), (1, 4), (4, 1)])
def test_takes_the_place_of_jaxdecomp(extents):
    """The modes of `pfft3d` after one transposition on each device, distributed in the same way,
    and its wavenumbers."""
    jaxdecomp = pytest.importorskip("jaxdecomp")
    fft = DistributedFFT((8, 12, 16), mesh_of(extents), real=False, box=(8, 12, 16))
    values = fft.scatter(sample((8, 12, 16), real=False))
    found = fft.forward(values)
    expected = jaxdecomp.pfft3d(values)
    places = [fft.order.index(axis) for axis in "yzx"]
    assert error(found.transpose(places), expected) < 1e-13
    if extents[1] > 1:  # else jaxDecomp divides z, and this transform y
        assert found.transpose(places).sharding.is_equivalent_to(expected.sharding, 3)
    assert error(fft.inverse(found), jaxdecomp.pifft3d(expected)) < 1e-13
    theirs = jaxdecomp.fftfreq3d(expected)
    for k, other in zip(fft.wavenumbers(nyquist=True), theirs, strict=True):
        assert error(np.ravel(k), np.ravel(other)) < 1e-15


@pytest.mark.spmd
def test_single_precision_needs_no_double_precision_in_jax(recwarn):
    """As in programs that do not set `jax_enable_x64`."""
    values = sample((9, 8, 6), dtype=np.float32)
    with jax.enable_x64(False):
        fft = DistributedFFT(values.shape, mesh_of((2,)), keep="spherical")
        kx, _, _ = fft.wavenumbers()
        found = fft.inverse(
            -1j * kx * fft.forward(values) * (fft.weight() > 0) / (1 + fft.k_squared())
        )
        assert found.dtype == np.float32 and fft.coordinates()[0].dtype == np.float32
    double = DistributedFFT(values.shape, mesh_of((2,)), keep="spherical", dtype=np.float64)
    kx, _, _ = double.wavenumbers()
    expected = double.inverse(-1j * kx * double.forward(values) / (1 + double.k_squared()))
    assert error(found, expected) < 2e-6
    assert not [str(w.message) for w in recwarn if "float64" in str(w.message)]


def test_what_cannot_be_transformed_is_refused():
    fft = DistributedFFT((8, 12, 16), mesh_of((2,)))
    with pytest.raises(
        ValueError, match=r"^forward takes arrays of shape \(\.\.\., 8, 12, 16\), not "
    ):
        fft.forward(np.zeros((8, 12, 15)))
    with pytest.raises(ValueError, match=r"^forward takes float64, not complex128; see the arg"):
        fft.forward(np.zeros((8, 12, 16), complex))
    with pytest.raises(
        ValueError, match=r"^inverse takes arrays of shape \(\.\.\., 10, 12, 8\), not "
    ):
        fft.inverse(np.zeros((8, 12, 9)))
    with pytest.raises(ValueError, match=r"^fftn needs DistributedFFT\(\.\.\., real=False\); this"):
        fft.fftn(np.zeros((8, 12, 16)))
    single = DistributedFFT((8, 12, 16), mesh_of((2,)), dtype=np.float32)
    with pytest.raises(ValueError, match=r"^forward takes float32, not float64; see the arg"):
        single.forward(np.zeros((8, 12, 16)))
    with pytest.raises(
        UserError, match=r"^DistributedFFT: 8 devices cannot share 4 x 4 x 4 points; "
    ):
        DistributedFFT((4, 4, 4), mesh_of((8,)))
    with pytest.raises(
        UserError, match=r"^DistributedFFT: 4 devices cannot share 8 x 1 x 8 points; "
    ):
        DistributedFFT((8, 1, 8), mesh_of((2, 2)))
    with pytest.raises(
        UserError, match=r"^DistributedFFT: shape and box have three entries; \(1, nx"
    ):
        DistributedFFT((8, 8))
    wrong: dict[str, Any] = {"norm": "forwrd", "keep": "half"}
    for name, word in wrong.items():
        with pytest.raises(UserError, match=f"^DistributedFFT: {name}: '{word}' is none of [a-z]+"):
            DistributedFFT((8, 8, 8), **{name: word})


PROGRAM = """
import sys
import jax
import numpy as np
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{sys.argv[1]}", 2, int(sys.argv[2]))
from simulator.spectral import DistributedFFT
fft = DistributedFFT((9, 7, 5))
values = np.random.default_rng(0).standard_normal((2, 9, 7, 5))
found = fft.gather(fft.inverse(2 * fft.forward(fft.scatter(values))))
assert abs(found - 2 * values).max() < 1e-12
natural = jax.experimental.multihost_utils.process_allgather(
    jax.jit(fft.rfftn)(fft.scatter(values)), tiled=True
)
assert abs(natural - np.fft.rfftn(values, axes=(1, 2, 3))).max() < 1e-11
print("agrees on", len(jax.devices()), "devices")
"""


@pytest.mark.spmd
def test_two_processes():
    """Of two devices each, with extents that do not divide."""
    port = str(free_port())
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda i: fresh(PROGRAM, port, i, JAX_PLATFORMS="cpu"), "01"))
    for run in runs:
        assert run.stdout.endswith("agrees on 4 devices\n"), run.stderr
