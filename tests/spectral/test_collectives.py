"""What compiled programs communicate, exactly, and in which order; their texts, by which the
compile cache goes; and narrow exchanges: what they send, and how far off they are."""

import os
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from collective_order import Compiled
from cover import write
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from numpy.testing import assert_allclose
from peers.collectives import KINDS, NONE, Collective, collectives
from peers.published_transform import published_transform
from plugin_parts import need_plugins_of
from run_support import ROOT, command
from spectral_cases import PLANS, SHAPES, Case, compiled, error, put, sample, transform
from table import FACTORS
from tiers import slow, slow_but

from simulator.cluster.mesh import make_mesh
from simulator.spectral import Grid, Local, Modes, make_transform, native
from simulator.spectral.backends import build, candidates
from simulator.spectral.collectives import Kind
from simulator.spectral.program import Program, fingerprint

EACH = [(PLANS[0], 4), (PLANS[1], 2), (PLANS[1], 8), (PLANS[2], 8), (PLANS[3], 2), (PLANS[4], 4)]


def counts(found) -> dict[str, int]:
    return {kind: c.count for kind, c in found.items() if c.count}


@pytest.mark.smoke
@pytest.mark.spmd
@pytest.mark.parametrize(
    "plan, devices", EACH, ids=lambda v: v if isinstance(v, int) else "-".join(v)
)
def test_one_exchange_per_stage_and_nothing_else(plan, devices):
    """One all-to-all per exchange for all components together; jaxDecomp cannot batch and sends
    each alone."""
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
@pytest.mark.parametrize("devices, decomposition, most", [(2, "z_xy", 0.17), (8, "zx_y", 0.115)])
def test_bytes_against_the_published_transform(devices, decomposition, most):
    """At 96^3 (32 planes of kz, no padding) truncation before the exchange, real data and no way
    back leave 1/2 x 1/2 x 2/3 of the bytes in z_xy, and 65/96 of that (65 modes in x) more in
    zx_y."""
    t = make_transform(Grid((96, 96, 96)), jax.devices()[:devices], decomposition=decomposition)
    real = jax.ShapeDtypeStruct((96, 96, 96), float, sharding=t.physical.sharding())
    ours = collectives(jax.jit(t.forward).lower(real).compile())
    forward, _, sharding = published_transform(
        make_mesh(jax.devices()[:devices], (devices,), ("slab",))
    )
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
    assert_allclose(modes, np.fft.fftn(values, axes=(1, 2, 3)), atol=1e-12)
    assert_allclose(jax.jit(inverse)(modes), values, atol=1e-13)


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


def test_every_form_of_a_collective_is_read_and_a_gather_is_seen():
    """Tuples, the three ways of writing replica groups, asynchronous pairs; groups of one send
    nothing."""
    found = collectives(HLO)
    assert set(found) == set(KINDS)
    assert found["all-to-all"] == Collective(1, 2 * 3 * 2 * 8 * 4 * 16 // 2)
    assert found["all-reduce"] == Collective(1, 2 * 32 * 3 // 4)
    assert found["all-gather"] == Collective(2, 128 * 3 // 4 + 160 * 7 // 8)
    assert found["collective-permute"] == Collective(1, 3)
    assert found["reduce-scatter"] == Collective(1, 8 * 3)
    assert found["collective-broadcast"] == NONE
    # A program that does gather is reported: the counts above would fail.
    mesh = make_mesh(jax.devices()[:4], (4,), ("slab",))
    sharding, whole = (NamedSharding(mesh, PartitionSpec(*over)) for over in (["slab"], []))
    gather = jax.jit(lambda x: x + 1, out_shardings=whole)
    found = collectives(
        gather.lower(jax.ShapeDtypeStruct((64,), float, sharding=sharding)).compile()
    )
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
    "a, b",
    [(2.0, 2.0 + 2**-51), (np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0 + 2**-51]))],
    ids=["scalar", "array"],
)
def test_bodies_that_differ_in_what_they_close_over_have_other_texts(a, b):
    assert text(a) == text(a)
    assert text(a) != text(b)


def test_a_fingerprint_is_the_same_in_every_trace():
    def traced(factor):
        return jax.make_jaxpr(lambda x: jax.nn.relu(x) * factor)(jnp.ones(3))

    assert fingerprint(traced(2.0)) == fingerprint(traced(2.0))
    assert fingerprint(traced(2.0)) != fingerprint(traced(3.0))


def test_a_fingerprint_tells_the_attributes_of_native_calls_apart():
    """Also where printed arrays agree: in the eleventh digit, and in the middle of a long array."""

    def called(numbers):
        call = jax.ffi.ffi_call("any", jax.ShapeDtypeStruct((), np.float64))
        return fingerprint(jax.make_jaxpr(lambda x: call(x, numbers=numbers))(0.0))

    long = np.arange(2000)
    attributes = [np.array([0.1]), np.array([0.1 + 1e-11]), long, np.where(long == 1000, 0, long)]
    assert len({called(numbers) for numbers in attributes}) == 4


EXACT = {"full": 1e-13, "single": 1e-6, "half_scaled": 1e-2}
"""Relative errors of products: 2^-24 and 2^-11 in each of two exchanges, and in the two factors of
a product."""
CASES = [
    Case(("custom_partitioning", plan), 4, "even", kernels=kernels)
    for plan, kernels in (
        ("zx_y", "native"),
        ("z_xy", "xla"),
        ("zx_y", "gpu"),
        ("z_y_x", "gpu in blocks"),
    )
    if kernels != "native" or not native.missing()
]


def products(t, u):
    def pointwise(values, points, parameters):
        return Local({"p": jnp.stack([values["u"][0] * values["u"][1], values["u"][2]])})

    return t.evaluate({"u": u}, pointwise).products["p"]


@pytest.mark.spmd
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bytes_and_errors(case: Case):
    """Half and a quarter of the bytes, and a two-byte exponent for each plane; errors of the
    numbers sent."""
    values = put(case, sample(case, 3))
    u = compiled(case, "forward")(values)
    programs = {
        k: jax.jit(lambda a, k=k: products(transform(case, k), a)).lower(u).compile() for k in EXACT
    }
    sent = {k: collectives(c)["all-to-all"].bytes for k, c in programs.items()}
    exact = programs["full"](u)
    assert sent["single"] == 0.5 * sent["full"]
    assert 0.25 < sent["half_scaled"] / sent["full"] < 0.27
    for kind, program in programs.items():
        assert error(program(u), exact) < EXACT[kind]
    assert error(programs["single"](u), exact) > 1e-10  # what was sent was narrow
    # Whole transforms, which make what is stored and drawn, send full numbers.
    whole = [
        compiled(case, "forward").lower(values),
        jax.jit(transform(case, "single").forward).lower(values),
    ]
    assert len({collectives(p.compile())["all-to-all"].bytes for p in whole}) == 1


@pytest.mark.spmd
@pytest.mark.parametrize(
    "case, kind",
    [
        (CASES[-3], "single"),
        (CASES[-3], "half_scaled"),
        slow(CASES[-2], "single"),
    ],
    ids=str,
)
def test_derivatives(case: Case, kind: Kind):
    """The tangent is that of the exchange, with the rounded factors; vjp is its transpose; vmap
    stacks."""
    u = compiled(case, "forward")(put(case, sample(case, 3)))
    t = transform(case, kind)
    full = transform(case)
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


def outputs(*kinds: str) -> dict[str, str]:
    """Without those of absent plugins."""
    return {key: "on" for kind in kinds if (key := f"output.{kind}") in FACTORS}


MEASURED = outputs(
    *("transfer", "structure_functions", "histograms", "strain", "render", "statistics")
)
RUNS: dict[str, dict[str, str]] = {
    "tracers": {"model": "navier_stokes", "species": "tracer", **outputs("pair_correlation")},
    "matter": {
        "model": "particles",
        "initial": "zeldovich_wave",
        **outputs("projections", "pair_correlation"),
    },
    "species": {
        "model": "navier_stokes",
        "species": "both",
        **outputs("particle_statistics", "trajectories"),
    },
    "outputs": {"model": "navier_stokes", "integrator": "rk3", "step": "chosen", **MEASURED},
    "low memory": {"model": "navier_stokes", "memory": "low", "species": "tracer"},
    "mhd": {"model": "mhd", "integrator": "etdrk4", "forcing": "ornstein_uhlenbeck"},
    "boussinesq": {"model": "boussinesq", "forcing": "constant_power", "step": "chosen"},
    "gas": {
        "model": "self_gravitating_gas",
        "step": "chosen",
        **outputs("histograms", "projections", "profiles"),
    },
    "waves": {
        "model": "schrodinger_poisson",
        "initial": "jeans_wave",
        "integrator": "composition4",
    },
}
"""Cases in the words of tests/pairs."""
LAYOUTS = {
    "slabs": ("grid.shape=16,16,16", "devices.count=2"),
    "uneven slabs": ("grid.shape=16,18,16", "devices.count=4"),
    "pencils": ("grid.shape=16,16,16", "devices.count=4", "fft.mesh=2,2"),
    "xla": ("grid.shape=16,16,16", "devices.count=2", "fft.kernels=xla"),
}
DEFAULT = ("low memory", "slabs")
ORDERED = [
    *(("tracers", layout) for layout in LAYOUTS),
    ("matter", "slabs"),
    *zip(
        list(RUNS)[2:], ("pencils", "xla", *2 * ("slabs", "uneven slabs"), "pencils"), strict=True
    ),
]


def programs(run: str, layout: str, folder: Path) -> dict[str, str]:
    """The text of every program that a run compiles, by name."""
    case = write(folder, RUNS[run])
    dump = "--xla_dump_hlo_as_text --xla_dump_hlo_pass_re=NONE --xla_dump_to="
    flags = {
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": f"{dump}{folder / 'programs'}",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
    }
    given = command("run", case, "--output", "run", *LAYOUTS[layout])
    ended = subprocess.run(
        given, cwd=folder, env=os.environ | flags, capture_output=True, text=True, timeout=500
    )
    assert ended.returncode in (0, 3), ended.stderr + ended.stdout
    found = (folder / "programs").glob("*after_optimizations.txt")
    return {path.name: path.read_text() for path in found}


@pytest.mark.long
@pytest.mark.spmd
@pytest.mark.parametrize(
    "run, layout",
    slow_but(ORDERED, [DEFAULT]),
)
def test_all_processes_issue_the_same_collectives(run, layout, tmp_path: Path):
    need_plugins_of(RUNS[run])
    found = {name: Compiled(text) for name, text in programs(run, layout, tmp_path).items()}
    assert any("advance" in name and program.communicating for name, program in found.items())
    wrong = {name: lines for name, program in found.items() if (lines := program.violations())}
    assert not wrong, "\n".join(
        f"{name}:\n  " + "\n  ".join(lines[:5]) for name, lines in wrong.items()
    )


WRITTEN = """\
HloModule written, num_partitions=2

add (a: f64[], b: f64[]) -> f64[] {
  %a = f64[] parameter(0)
  %b = f64[] parameter(1)
  ROOT %c = f64[] add(%a, %b)
}

body (q: (f64[], f64[])) -> (f64[], f64[]) {
  %q = (f64[], f64[]) parameter(0)
  %mine = f64[] get-tuple-element(%q), index=0
  %sum = f64[] get-tuple-element(%q), index=1
  %more = f64[] all-reduce(%sum), replica_groups={{0,1}}, to_apply=%add
  ROOT %next = (f64[], f64[]) tuple(%mine, %more)
}

condition (q: (f64[], f64[])) -> pred[] {
  %q = (f64[], f64[]) parameter(0)
  %mine = f64[] get-tuple-element(%q), index=WHOSE
  ROOT %going = pred[] compare(%mine, %mine), direction=LT
}

branch (z: f64[]) -> f64[] {
  %z = f64[] parameter(0)
  ROOT %y = f64[] BRANCH(%z), replica_groups={{0,1}}, to_apply=%add
}

ENTRY main (p: f64[]) -> f64[] {
  %p = f64[] parameter(0), sharding={devices=[2]<=[2]}
  %s = f64[] all-reduce(%p), replica_groups={{0,1}}, to_apply=%add
  %start = (f64[], f64[]) tuple(%p, %s)
  %loop = (f64[], f64[]) while(%start), condition=%condition, body=%body
  %t = f64[] get-tuple-element(%loop), index=1
  %u = f64[] all-reduce(%t), replica_groups={{0,1}}, to_apply=%add
  %v = f64[] conditional(%u, %u, %u), branch_computations={%branch, %branch}
  ROOT %w = f64[] add(%v, %t)
}
"""


@pytest.mark.parametrize(
    "whose, branch, expected",
    [
        ("1", "negate", []),
        ("0", "negate", ["a loop with collectives goes on by one device's data"]),
        ("1", "all-reduce", ["a collective inside the conditional v "]),
    ],
)
def test_the_reader_finds_each_violation(whose, branch, expected):
    text = WRITTEN.replace("WHOSE", whose).replace("BRANCH", branch)
    found = Compiled(text).violations()
    assert len(found) == len(expected), found
    assert all(part in line for part, line in zip(expected, found, strict=True)), found
