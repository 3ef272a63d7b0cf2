"""What compiled programs communicate, exactly; their texts, by which the compile cache goes: what the body of a
custom partitioning closes over has to be in them; and narrow exchanges: what they send, and how far off they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from peers.published_transform import published_transform
from spectral_cases import PLANS, SHAPES, Case, compiled, error, put, sample, transform

from simulator.cluster.mesh import make_mesh
from simulator.spectral import Grid, Local, Modes, make_transform, native
from simulator.spectral.backends import build, candidates
from simulator.spectral.collectives import KINDS, NONE, Collective, collectives
from simulator.spectral.program import Program, fingerprint

EACH = [(PLANS[0], 4), (PLANS[1], 2), (PLANS[1], 8), (PLANS[2], 8), (PLANS[3], 2), (PLANS[4], 4)]


def counts(found) -> dict[str, int]:
    return {kind: c.count for kind, c in found.items() if c.count}


@pytest.mark.smoke
@pytest.mark.spmd
@pytest.mark.parametrize(("plan", "devices"), EACH, ids=lambda v: v if isinstance(v, int) else "-".join(v))
def test_one_exchange_per_stage_and_nothing_else(plan, devices):
    """One all-to-all per exchange for all components together; jaxDecomp cannot batch and sends each alone."""
    modes = Modes(Grid(SHAPES["even"]))
    candidate = candidates(modes, devices, *plan)[0]
    t = build(modes, candidate, jax.devices()[:devices])
    exchanges = sum(n > 1 for n in candidate.mesh)
    each = 3 if plan[0] == "jaxdecomp" else 1
    values = jax.ShapeDtypeStruct((3, *t.physical.shape), float, sharding=t.physical.sharding(4))

    def there_and_back(values):
        return t.inverse(2 * t.forward(values))

    found = collectives(jax.jit(there_and_back).lower(values).compile())
    assert counts(found) == {"all-to-all": 2 * exchanges * each}

    def square(values, points, parameters):
        return Local({"s": values["a"] ** 2}, {"largest": values["a"][0]}, {"mean": values["a"][0]})

    def term(values):
        result = t.evaluate({"a": t.forward(values)}, square)
        return result.products["s"], result.maxima, result.means

    found = collectives(jax.jit(term).lower(values).compile())
    assert counts(found).keys() == {"all-to-all", "all-reduce"}
    assert found["all-to-all"].count == 3 * exchanges * each
    assert found["all-reduce"].bytes <= 2 * exchanges * 2 * 8  # two numbers


@pytest.mark.spmd
@pytest.mark.parametrize(("devices", "decomposition", "most"), [(2, "z_xy", 0.17), (8, "zx_y", 0.115)])
def test_bytes_against_the_published_transform(devices, decomposition, most):
    """At 96^3 (32 planes of kz, no padding) truncation before the exchange, real data and no way back leave
    1/2 x 1/2 x 2/3 of the bytes in z_xy, and 65/96 of that (65 modes in x) more in zx_y."""
    t = make_transform(Grid((96, 96, 96)), jax.devices()[:devices], decomposition=decomposition)
    real = jax.ShapeDtypeStruct((96, 96, 96), float, sharding=t.physical.sharding())
    ours = collectives(jax.jit(t.forward).lower(real).compile())
    forward, _, sharding = published_transform(make_mesh(jax.devices()[:devices], (devices,), ("slab",)))
    whole = jax.ShapeDtypeStruct((1, 96, 96, 96), complex, sharding=sharding)
    theirs = collectives(jax.jit(forward).lower(whole).compile())
    assert counts(theirs) == {"all-to-all": 2}
    assert ours["all-to-all"].bytes <= most * theirs["all-to-all"].bytes
    share = 96**3 // devices * 16 * (devices - 1) // devices
    assert theirs["all-to-all"].bytes == 2 * share
    expected = 96 * 96 * 32 if decomposition == "z_xy" else 96 * 63 * 32
    assert ours["all-to-all"].bytes == expected // devices * 16 * (devices - 1) // devices


@pytest.mark.spmd
def test_the_published_transform_is_a_transform():
    """The yardstick computes numpy's transform and its inverse."""
    forward, inverse, sharding = published_transform(make_mesh(jax.devices()[:2], (2,), ("slab",)))
    values = np.random.default_rng(0).standard_normal((2, 6, 4, 8)) + 0j
    modes = jax.jit(forward)(jax.device_put(values, sharding))
    np.testing.assert_allclose(modes, np.fft.fftn(values, axes=(1, 2, 3)), atol=1e-12)
    np.testing.assert_allclose(jax.jit(inverse)(modes), values, atol=1e-13)


HLO = """
HloModule jit_f, entry_computation_layout={()->f64[]}, num_partitions=8
  %a = (c128[3,2,8,4]{3,2,1,0}, c128[3,2,8,4]{3,2,1,0}) all-to-all(%x, %y), replica_groups={{0,2},{1,3}}
  %b = f64[4]{0} all-reduce(%x), replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}, to_apply=%sum
  %c = f32[8,4]{1,0} all-gather(%x), replica_groups=[2,4]<=[8], dimensions={0}
  %d = (bf16[10]{0}, bf16[80]{0}) all-gather-start(%x), replica_groups={}, dimensions={0}
  %e = bf16[80]{0} all-gather-done(%d)
  %f = pred[3]{0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}
  %g = s32[2]{0} reduce-scatter(%x), replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}
  %h = f64[] all-reduce(%x), replica_groups={{0},{1}}, to_apply=%sum
  %i = f32[4] get-tuple-element(%all-to-all.3), index=0
"""


def test_every_form_of_a_collective_is_read():
    """Tuples, the three ways of writing replica groups, asynchronous pairs; groups of one send nothing."""
    found = collectives(HLO)
    assert set(found) == set(KINDS)
    assert found["all-to-all"] == Collective(1, 2 * 3 * 2 * 8 * 4 * 16 // 2)
    assert found["all-reduce"] == Collective(1, 2 * 32 * 3 // 4)
    assert found["all-gather"] == Collective(2, 128 * 3 // 4 + 160 * 7 // 8)
    assert found["collective-permute"] == Collective(1, 3)
    assert found["reduce-scatter"] == Collective(1, 8 * 3)
    assert found["collective-broadcast"] == NONE


def test_a_gather_is_seen():
    """A program that does gather is reported: the counts above would fail."""
    mesh = make_mesh(jax.devices()[:4], (4,), ("slab",))
    sharding, whole = (NamedSharding(mesh, PartitionSpec(*over)) for over in (["slab"], []))
    gather = jax.jit(lambda x: x + 1, out_shardings=whole)
    found = collectives(gather.lower(jax.ShapeDtypeStruct((64,), float, sharding=sharding)).compile())
    assert counts(found) == {"all-gather": 1} and found["all-gather"].bytes == 64 * 8 * 3 // 4


def program(value) -> Program:
    mesh = jax.make_mesh((2,), ("slab",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])

    def local(x):
        def body(carry, row):
            return carry + value * row, None

        return (jax.lax.scan(body, jnp.zeros(x.shape[1:]), x)[0][None],)

    return Program(local, mesh, [PartitionSpec("slab")], [PartitionSpec("slab")], name="scaled")


def text(value) -> str:
    x = jax.ShapeDtypeStruct((4, 3), jnp.float64)
    lowered = jax.jit(lambda x: program(value)(x)[0]).lower(x).as_text()
    # The one thing that JAX takes out of the key is the address of the callback.
    return "\n".join(line.split("backend_config")[0] for line in lowered.splitlines())


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("a", "b"),
    [(2.0, 2.0 + 2**-51), (np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0 + 2**-51]))],
    ids=["scalar", "array"],
)
def test_bodies_that_differ_in_what_they_close_over_have_other_texts(a, b) -> None:
    assert text(a) == text(a)
    assert text(a) != text(b)


def test_a_fingerprint_is_the_same_in_every_trace() -> None:
    def traced(factor):
        return jax.make_jaxpr(lambda x: jax.nn.relu(x) * factor)(jnp.ones(3))

    assert fingerprint(traced(2.0)) == fingerprint(traced(2.0))
    assert fingerprint(traced(2.0)) != fingerprint(traced(3.0))


EXACT = {"full": 1e-13, "single": 1e-6, "half_scaled": 1e-2}
"""Relative errors of products: 2^-24 and 2^-11 in each of two exchanges, and in the two factors of a product."""
CASES = [
    Case(("custom_partitioning", plan), 4, "even", kernels=kernels)
    for plan, kernels in (("zx_y", "native"), ("z_xy", "xla"), ("zx_y", "gpu"), ("z_y_x", "gpu in blocks"))
    if kernels != "native" or not native.missing()
]


def products(t, u):
    def pointwise(values, points, parameters):
        return Local({"p": jnp.stack([values["u"][0] * values["u"][1], values["u"][2]])})

    return t.evaluate({"u": u}, pointwise).products["p"]


@pytest.mark.spmd
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bytes_and_errors(case):
    """Half and a quarter of the bytes, and a two-byte exponent for each plane; errors of the numbers sent."""
    values = put(case, sample(case, 3))
    u = compiled(case, "forward")(values)
    programs = {k: jax.jit(lambda a, k=k: products(transform(case, k), a)).lower(u).compile() for k in EXACT}
    sent = {k: collectives(c)["all-to-all"].bytes for k, c in programs.items()}
    exact = programs["full"](u)
    assert sent["single"] == 0.5 * sent["full"]
    assert 0.25 < sent["half_scaled"] / sent["full"] < 0.27
    for kind, program in programs.items():
        assert error(program(u), exact) < EXACT[kind]
    assert error(programs["single"](u), exact) > 1e-10  # what was sent was narrow
    # Whole transforms, which make what is stored and drawn, send full numbers.
    whole = [compiled(case, "forward").lower(values), jax.jit(transform(case, "single").forward).lower(values)]
    assert len({collectives(p.compile())["all-to-all"].bytes for p in whole}) == 1


@pytest.mark.spmd
@pytest.mark.parametrize(
    ("case", "kind"),
    [(CASES[-3], "single"), (CASES[-3], "half_scaled"), pytest.param(CASES[-2], "single", marks=pytest.mark.slow)],
    ids=str,
)
def test_derivatives(case, kind):
    """The tangent is that of the exchange, with the rounded factors; vjp is its transpose; vmap stacks."""
    u = compiled(case, "forward")(put(case, sample(case, 3)))
    t, full = transform(case, kind), transform(case)
    other = u[::-1]
    tolerance = EXACT[kind]

    @jax.jit
    def check(u, other):
        f = lambda a: products(t, a)  # noqa: E731
        made, tangent = jax.jvp(f, (u,), (other,))
        expected = jax.jvp(lambda a: products(full, a), (u,), (other,))[1]
        (back,) = jax.vjp(f, u)[1](made)
        mapped = jax.vmap(f)(jnp.stack([u, other]))
        return tangent, expected, made, back, mapped, jnp.stack([made, f(other)])

    tangent, expected, made, back, mapped, stacked = check(u, other)
    assert error(tangent, expected) < tolerance

    def dot(a, b):  # JAX's pairing of cotangents is bilinear
        return np.asarray(jnp.sum(a * b)).real

    assert dot(made, tangent) == pytest.approx(dot(back, other), rel=tolerance)
    assert error(mapped, stacked) < tolerance
