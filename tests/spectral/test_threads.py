"""The threads of a device: the same bits on any number of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spectral_cases import BOX, SHAPES, slabs

from simulator.spectral import native
from simulator.spectral.arrays import Combination
from simulator.spectral.native import particles as kernels
from simulator.spectral.schedules.native import NativeStages
from simulator.spectral.transform import Local, Transform

pytestmark = pytest.mark.skipif(
    native.missing() is not None, reason="there are no native kernels here"
)


def results(transform: Transform, values: np.ndarray) -> list[np.ndarray]:
    """All that a transform computes of values (component, x, y, z): modes, values, products, a
    maximum and a sum over the points, and derivatives."""

    def at_points(values, points, parameters) -> Local:
        product = values["u"] * values["u"][::-1]
        size = jnp.real(product * jnp.conj(product)).sum(0)
        return Local({"u": product}, {"largest": size}, {"mean": jnp.sqrt(1 + size)})

    def evaluated(modes):
        result = transform.evaluate({"u": modes}, at_points)
        return result.products["u"], result.maxima["largest"], result.means["mean"]

    def total(modes):
        product, _, mean = evaluated(modes)
        return mean + jnp.sum(jnp.real(product * jnp.conj(product)))

    ends = [(0, m - n) for n, m in zip(values.shape[1:], transform.physical.shape, strict=True)]
    modes = jax.jit(transform.forward)(np.pad(values, [(0, 0), *ends]))
    back = jax.jit(transform.inverse)(modes)
    derivatives = jax.jit(jax.grad(total))(modes)
    return list(map(np.asarray, (modes, back, *jax.jit(evaluated)(modes), derivatives)))


@pytest.mark.smoke
@pytest.mark.parametrize(
    "shape, plan, devices, real",
    [
        ((24, 24, 24), "zx_y", 1, True),
        (SHAPES["prime"], "z_xy", 1, True),
        (SHAPES["odd"], "zx_y", 2, False),
        (SHAPES["even"], "z_y_x", 2, True),
        (SHAPES["flat"], "zx_y", 1, True),
        ((1, 96, 200), "zx_y", 1, True),
        ((32, 12, 10), "zx_y", 1, True),
    ],
    ids=str,
)
def test_the_number_of_threads_changes_no_bit(
    shape, plan, devices: int, real: bool, monkeypatch
) -> None:
    monkeypatch.setattr(
        NativeStages, "cache", 1
    )  # Blocks of few planes, and of more for more threads.
    monkeypatch.setattr(NativeStages, "shared", 20_000)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((2, *shape))
    values = values if real else values + 1j * rng.standard_normal(values.shape)
    found = {
        threads: results(slabs(shape, plan, devices, real=real, threads=threads), values)
        for threads in (1, 2, 5, 16)
    }
    for threads, arrays in found.items():
        for array, expected in zip(arrays, found[1], strict=True):
            assert array.tobytes() == expected.tobytes(), threads


def test_threads_share_a_stage() -> None:
    """Each part of a stage goes to one thread: the arrays that a stage fills are complete, however
    often it is repeated, and although eight devices use the pool at once."""
    transform = slabs((16, 48, 40), "zx_y", 8, threads=4)
    modes = np.random.default_rng(1).standard_normal((3, 16, 48, 40))
    forward = jax.jit(transform.forward)
    first = np.asarray(forward(modes))
    for _ in range(50):
        assert np.asarray(forward(modes)).tobytes() == first.tobytes()


def test_scratch_memory_grows_with_the_threads() -> None:
    """Every thread works in memory of its own, and needs no more than a plane."""
    shape = (64, 64, 64)

    def temporary(threads: int) -> int:
        transform = slabs(shape, "zx_y", 1, threads=threads)
        modes = jax.ShapeDtypeStruct((1, *transform.layout.shape), complex)
        compiled = jax.jit(transform.inverse).lower(modes).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    one, two, nine = map(temporary, (1, 2, 9))
    assert nine - one == 8 * (two - one) > 0
    plane = 16 * shape[0] * shape[1]
    assert two - one < 3 * plane


CELLS = (16, 20, 18)  # Lines longer than a vector.
PARTICLES = 9_000  # More than the entries of three parts of the work.


def kernels_of_particles(threads: int) -> list[jax.Array]:
    """The results of the kernels for all particles, of which one is lost and some have moved since
    they were sorted."""
    spacing = tuple(length / n for length, n in zip(BOX, CELLS, strict=True))
    rng = np.random.default_rng(2)
    entries = PARTICLES + 500
    count = jnp.array([PARTICLES], jnp.int32)
    places = jnp.asarray(rng.random((3, entries)) * np.array(BOX)[:, None])
    velocity = jnp.asarray(rng.standard_normal((3, entries)))
    pull = velocity.astype(jnp.float32)[::-1]
    one, tenth = jnp.array(1.0), jnp.array(0.1)
    ids = jnp.arange(entries)
    position, ids = kernels.sorted_by_cell(
        threads, "xyz", CELLS, spacing, jnp.array(1), count, places, ids
    )
    results = [position, ids]
    results += kernels.leaving(
        threads, position, count, jnp.array([1], jnp.int32), (0, 16, 4), spacing[0], PARTICLES
    )
    results += kernels.restore(threads, jnp.array(False), velocity, ids, position, ids + 1)
    terms = Combination((one, tenth), (position, pull))
    results += kernels.advanced(threads, BOX, count, velocity, position, terms)
    position = position.at[0, 7].set(np.nan)
    fields = jnp.asarray(rng.random((1, *CELLS)), jnp.float32)
    for points in (2, 3, 4):
        held = kernels.Held(points, "xyz", (0, 0, 0), CELLS, spacing, -1, threads)
        woven = kernels.woven(fields, (0, 0, 0), (0, 0, points - 1), around=True, threads=threads)
        results.append(kernels.gather(woven, position, count, held))
    return results


def test_the_number_of_threads_changes_no_bit_of_particles() -> None:
    expected = jax.jit(kernels_of_particles, static_argnums=0)(1)
    for threads in (2, 5, 16):
        found = jax.jit(kernels_of_particles, static_argnums=0)(threads)
        for number, (array, first) in enumerate(zip(found, expected, strict=True)):
            assert np.asarray(array).tobytes() == np.asarray(first).tobytes(), (threads, number)
