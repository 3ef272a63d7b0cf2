"""Gradients through whole runs: against finite differences, in bounded memory, sharded."""

import os
import subprocess
import sys

import gravity_cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradient_checks import off, waves_of
from numpy.testing import assert_allclose
from peers.collectives import collectives
from run_support import CASE, ROOT, free_port, simulation, write_case
from tiers import slow
from trained_closure import KEY, closed

from simulator import Simulation, differentiate
from simulator.errors import UserError
from simulator.physics.models import outputs

DT = 0.01


@pytest.fixture(scope="module")
def flow(tmp_path_factory) -> Simulation:
    config = write_case(tmp_path_factory.mktemp("gradient"), CASE)
    # Optimised as in a run: without, XLA's buffers tell nothing about memory.
    # With two stages half as much is compiled as with rk4.
    return simulation(config, "devices.count=2", "time.integrator=rk2")


def energies(simulation: Simulation):
    """A loss that weighs every mode differently."""
    layout = simulation.transform.layout

    def loss(state) -> jax.Array:
        u = state.fields["velocity"]
        return layout.sum((u.real**2 + u.imag**2) * jnp.cos(layout.k_squared())).sum()

    return loss


@pytest.mark.long
def test_against_finite_differences(flow):
    """Of states after 3^2 and 7^2 further steps on 2 devices: by the viscosity, and along a
    direction."""
    weighed = energies(flow)
    fields = flow.state.fields
    gradient = differentiate(flow, lambda *states: sum(map(weighed, states)), steps=(9, 58), dt=DT)

    def along(u):
        return jnp.where(
            flow.transform.layout.mask, jax.random.normal(jax.random.key(1), u.shape) * u, 0
        )

    direction = {n: jax.jit(along)(u) for n, u in fields.items()}
    still = {n: 0 * u for n, u in fields.items()}
    variables = {"fields": fields, "model.viscosity": 0.02}
    assert off(gradient, variables, {"fields": direction, "model.viscosity": 0.0}) < 1e-6
    assert off(gradient, variables, {"fields": still, "model.viscosity": 1.0}) < 1e-6
    _, slopes = gradient(variables)
    by_value = jax.grad(lambda v: gradient.value({**variables, "model.viscosity": v}))(0.02)
    assert_allclose(by_value, slopes["model.viscosity"], rtol=1e-12)
    for name, slope in slopes["fields"].items():
        assert slope.sharding.is_equivalent_to(fields[name].sharding, slope.ndim)
    program = gradient.lower(variables).compile()
    kinds = {k for k, c in collectives(program).items() if c.count}
    assert "all-gather" not in kinds and "all-to-all" in kinds
    # The nonlinear terms of two stages, in two loops, call two kernels each for the outer axis and
    # one for the products. The reverse calls a stage for each of the two transforms to points
    # again, for the values, and the transposes of all four. All states and rates are kept: nothing
    # else is computed again.
    text = str(program.as_text())
    native = flow.transform.kernels == "native"
    stages, evaluations = (text.count(f'simulator_{kind}"') for kind in ("stage", "evaluate"))
    assert (stages, evaluations) == ((2 * 2 * (2 + 2 + 4), 2 * 2) if native else (0, 0))
    gradient = differentiate(flow, energies(flow), steps=2, dt=DT)
    assert off(gradient, {"initial.energy": 0.5}, {"initial.energy": 1.0}) < 1e-6


def test_particles_are_refused(tmp_path):
    species = "particles: [{name: tracers, kind: tracer, count: 8}]\n"
    own = simulation(write_case(tmp_path, CASE + species), "devices.count=1")
    with pytest.raises(
        UserError, match=r"particles: gradients do not go through particles of a flow \(tracers\)"
    ):
        differentiate(own, energies(own), steps=1, dt=DT)


@pytest.mark.long
@pytest.mark.spmd
@pytest.mark.parametrize(
    "integrator, devices", [("bullfrog", 1), ("fastpm", 2), ("kick_drift_kick", 4)]
)
def test_particles(integrator: str, devices: int):
    """By records and by numbers, along one direction: extrapolated central differences, as above.
    On 4 devices some particles begin on one device and end on another. Steps take numbers only: no
    array grows with them."""
    own = gravity_cases.simulation(
        gravity_cases.MATTER,
        *(
            "model.cosmology.start=0.05",
            "time={stop: {scale_factor: 1}, steps: 6}",
            f"time.integrator={integrator}",
        ),
        # Particles of a glass lie on no face of a cell, where slopes jump.
        "model.components.0.arrangement=glass",
        "initial.components.dark={kind: zeldovich_wave, axis: y, amplitude: 0.04, density: 0.0358}",
        devices=devices,
    )
    begin = own.state.particles["dark"]

    def loss(state) -> jax.Array:
        p = state.particles["dark"]
        waves = jnp.cos(p.records["position"] + p.id) + jnp.sin(p.records["velocity"])
        density = outputs.field_values(
            own.model, "dark_density", outputs.contents(own.model, state)
        )
        return jnp.where(p.valid, waves.sum(0), 0).sum() + (density**2).sum()

    records = {r: begin.records[r] for r in ("position", "velocity", "mass")}
    at = {
        "particles": {"dark": records},
        "model.cosmology.matter": 0.3,
        "model.gravitational_constant": 1.0,
    }
    way = {r: jnp.where(begin.valid, jnp.cos((3 + i) * begin.id), 0) for i, r in enumerate(records)}
    way = {"particles": {"dark": {**way, "mass": 0.1 * way["mass"]}}, "model.cosmology.matter": 0.3}
    way["model.gravitational_constant"] = 0.2
    gradient = differentiate(own, loss, steps=6)
    assert off(gradient, at, way, 1e-4) < 1e-6
    if devices == 4:
        end = jax.jit(lambda v, s: gradient.states(v, s)[-1].particles["dark"])(at, own.state)
        assert (np.asarray(end.id) != np.asarray(begin.id)).any()
    if devices == 1:
        few, many = (
            differentiate(own, loss, steps=n, dt=0.1).lower(at).compile().memory_analysis()
            for n in (2, 50)
        )
        assert many.temp_size_in_bytes - few.temp_size_in_bytes < 0.02 * few.temp_size_in_bytes


@pytest.mark.long
@pytest.mark.spmd
def test_particles_that_crowd_on_a_device():
    """All particles meet in a plane of one of 2 devices, whose buffers grow as in a run: as on one
    device."""
    found = []
    lines = []
    for devices in (1, 2):
        own = gravity_cases.simulation(
            gravity_cases.MATTER, "time.integrator=drift_kick_drift", devices=devices
        )
        own.report = lines.append
        begin = own.state.particles["dark"]
        velocity = begin.records["velocity"].at[1].set((1.0 - begin.records["position"][1]) / 0.02)
        gradient = differentiate(own, lambda s: waves_of(s.particles["dark"]), steps=2, dt=0.01)
        _, slopes = gradient({"particles": {"dark": {"velocity": velocity}}})
        by_id = gravity_cases.by_id(
            begin.with_records({"slopes": slopes["particles"]["dark"]["velocity"]})
        )
        found.append(by_id["slopes"])
    assert lines == ["dark crowd on a device; buffers grow to 512 particles each"]
    assert_allclose(found[1], found[0], rtol=0, atol=1e-12)


SLOPES = """
import sys
import jax, jax.numpy as jnp
from simulator import Simulation, differentiate, load_config
own = Simulation(load_config(sys.argv[1], ["devices.count=2"]), report=lambda line: None)
def loss(state):
    total = sum(jnp.sin(p.records["position"] + p.id).sum(where=p.valid) for p in state.particles.values())
    return total + sum(own.transform.layout.sum(abs(u) ** 2).sum() for u in state.fields.values())
at = {name: own.model.varied_arrays.get(name, 0.3) for name in sys.argv[2:]}
value, slopes = differentiate(own, loss, steps=3, **({} if own.config.time.steps else {"dt": 0.01}))(at)
print([float(a.sum()) for a in (value, *jax.tree.leaves(slopes))])
"""


GROWING = """\
model:
  kind: composite
  cosmology: {start: 0.05, matter: 0.3}
  components: [{kind: particles, name: dark, count: 512}]
grid: {shape: [8, 8, 8]}
initial: {kind: composite, components: {dark: {kind: zeldovich_wave, axis: y, amplitude: 0.04, density: 0.0358}}}
time: {stop: {scale_factor: 1}, steps: 3, integrator: bullfrog}
devices: {platform: cpu}
"""


@pytest.mark.slow
@pytest.mark.parametrize("of", ["closure", "particles"])
def test_two_processes(of: str, tmp_path):
    """The slopes of one process with as many devices, bit for bit: by arrays of a closure, by the
    start of matter."""
    names = [KEY]
    if of == "closure":
        closed(tmp_path, "[12, 12, 12]", 2)
    else:
        (tmp_path / "run.yaml").write_text(GROWING)
        names = ["initial.components.dark.amplitude", "model.cosmology.matter"]
    command = [sys.executable, "-c", SLOPES, str(tmp_path / "run.yaml"), *names]
    said = []
    for count in (1, 2):
        own = {
            "SIMULATOR_COORDINATOR": f"127.0.0.1:{free_port()}",
            "SIMULATOR_NUM_PROCESSES": str(count),
        }
        all_of = [
            {**own, "SIMULATOR_SECRET": "a" * 16, "SIMULATOR_PROCESS_ID": str(i)}
            for i in range(count)
        ]
        each = [
            subprocess.Popen(command, env={**os.environ, **e}, stdout=subprocess.PIPE, text=True)
            for e in (all_of if count > 1 else [{}])
        ]
        said += [process.communicate(timeout=300)[0].splitlines()[-1] for process in each]
    assert said[0].startswith("[") and said == said[:1] * 3


@pytest.mark.long
@pytest.mark.parametrize("shape", ["[16, 16]", slow("[12, 12, 12]")])
def test_by_the_arrays_of_a_closure(shape, tmp_path):
    """The same slopes on 1 and 4 devices, to round-off; central differences, extrapolated once,
    as above. The state is first wanted within jit."""
    slopes = []
    for count in (1, 4):
        own = closed(tmp_path, shape, count)
        energy = jax.jit(lambda a, own=own: a * own.state.fields["velocity"][0, 1, 1, 1].real)(1.0)
        assert energy == own.state.fields["velocity"][0, 1, 1, 1].real
        gradient = differentiate(own, energies(own), steps=3, dt=DT)
        arrays = own.model.varied_arrays[KEY]
        slopes.append(jax.device_get(gradient({KEY: arrays})[1][KEY]["layers"]))
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-10, atol=1e-14), *slopes)
    first, last = arrays["layers"]
    way = {KEY: {"layers": [{"w": 0 * first["w"]}, {"w": 1 + 0 * last["w"]}]}}
    assert off(gradient, {KEY: arrays}, way) < 1e-6


def test_split_steps():
    """A user's equation in split steps, by its parameter: central differences as above."""
    file = ROOT / "configs" / "equations" / "nonlinear_schrodinger.yaml"
    small = ("grid.shape=16,16", "grid.box=10,10", "devices.platform=cpu", "devices.count=2")
    own = simulation(file, *small, "initial.fields.psi.peak=1")
    layout = own.transform.layout

    def loss(state) -> jax.Array:
        psi = state.fields["psi"]
        return layout.sum((psi.real**2 + psi.imag**2) * jnp.cos(layout.k_squared()))

    gradient = differentiate(own, loss, steps=4, dt=0.05)
    lowered = gradient.lower({"model.parameters.interaction": 1.0})
    for program in (own.compiled_loop(), lowered.compile()):
        assert not collectives(program)["all-gather"].count
    assert (
        off(gradient, {"model.parameters.interaction": 1.0}, {"model.parameters.interaction": 1.0})
        < 1e-6
    )


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_memory_grows_as_the_root_of_the_steps(tmp_path):
    """What the compiler says of the programs, optimised as in a run, if sqrt(steps) states are
    kept: beside the reverse of one step, 2 sqrt(steps) states and the one between two parts."""
    own = simulation(write_case(tmp_path, CASE), "grid.shape=48,48,48")
    layout = own.transform.layout
    fields = own.state.fields

    def loss(state) -> jax.Array:
        return layout.inner(state.fields["velocity"], state.fields["velocity"]).sum()

    def held(steps: int) -> int:
        lowered = differentiate(own, loss, steps=steps, dt=0.01, kept=7).lower({"fields": fields})
        return lowered.compile().memory_analysis().temp_size_in_bytes

    state = sum(u.size * u.dtype.itemsize for u in fields.values()) / 2
    assert (held(49) - held(1)) / state <= 2 * 7 + 1.1


@pytest.mark.slow
def test_what_is_kept_changes_nothing(flow):
    """However few states are kept, and a loss of several states, give the gradient of the plain
    loop to round-off."""
    loss = energies(flow)

    def both(first, last):
        return loss(first) + 2 * loss(last)

    fields = flow.state.fields
    other, gradient = differentiate(flow, both, steps=(2, 5), dt=DT, kept=2)({"fields": fields})

    def plain(fields):
        first = jax.lax.fori_loop(0, 2, lambda _, s: flow.step(s, DT), flow.begin(fields))
        return both(first, jax.lax.fori_loop(0, 3, lambda _, s: flow.step(s, DT), first))

    value, slopes = jax.jit(jax.value_and_grad(plain))(fields)
    assert abs(float(other / value) - 1) < 1e-13
    for name, slope in slopes.items():
        assert_allclose(
            gradient["fields"][name], slope.conj(), rtol=0, atol=1e-12 * abs(slope).max()
        )


@pytest.mark.parametrize(
    "variables, message",
    [
        ({"time.dt": 1.0}, "fields, and numbers of model, forcing and initial, can vary"),
        ({"fields": {"b": 0}}, "fields: unknown 'b'; known: velocity"),
        ({"fields": {"velocity": np.zeros(3)}}, r"fields: velocity: .* not \(3,\)"),
        ({"model.viscosity": -1.0}, "variables: model.viscosity: must be at least 0, not -1.0"),
        ({"fields": {}, "initial.energy": 1.0}, "exclude each other"),
        (
            {"model.viscocity": 1.0},
            "model.viscocity: is not a number .*, did you mean model.viscosity?",
        ),
        ({"initial.viscosity": 1.0}, "did you mean model.viscosity?"),
        ({"model.kind": 1.0}, "model.kind: is not a number of this configuration"),
        ({"model.hyperviscosity.order": 1.0}, "model.hyperviscosity.order: is not a number"),
        ({"model.scalars.0.diffusivity": 1.0}, "model.scalars.0.diffusivity: is not a number"),
        ({"forcing.amplitude": 1.0}, "forcing.amplitude: is not a number"),
    ],
)
def test_what_cannot_vary(flow, variables, message: str):
    with pytest.raises(UserError, match=message):
        differentiate(flow, energies(flow), steps=2, dt=DT).value(variables)
