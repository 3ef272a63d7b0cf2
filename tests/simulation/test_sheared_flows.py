"""A flow in a background shear: the exchange of frames, its layouts, its energy, what is seen of it, its
gradient, and what is refused."""

import re
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import compiled_step, flow
from hlo_program import parsed
from pydantic import ValidationError

from simulator import Simulation
from simulator.archive.series_recorder import subject_of
from simulator.errors import UserError
from simulator.measure import KINDS
from simulator.measure.kind import Unsupported
from simulator.measure.rows import measurement
from simulator.physics.models import State
from simulator.simulation.steps import in_next_frame
from simulator.spectral import Grid, make_transform
from simulator.spectral.sheared import LARGEST_TILT, ShearedLayout

MODEL = {
    "kind": "mhd",
    "viscosity": 0.002,
    "resistivity": 0.003,
    "shear": -1.5,
    "rotation": [0, 0, 1],
}
START = {"kind": "random", "energy": 1.0, "peak": 12, "seed": 3}
START |= {"magnetic": {"energy": 0.5, "peak": 12, "seed": 4, "mean_field": [0, 0, 0.2]}}
BOX = [1.0, 2.0, 1.5]
LAST = 2 / 3
"""The time at which the tilt first reaches 1/2."""


def box(count: int = 1, **blocks: Any) -> Simulation:
    blocks = {"model": MODEL, "grid": {"box": BOX}, "initial": START} | blocks
    return flow(10, 12, 8, count=count, **blocks)


def moved(made: Simulation, dt: float = 0.02, steps: int = 5):
    """The states of some steps from just before the first exchange of frames."""
    step = compiled_step(made)
    time = LAST - 2.5 * dt
    fields = {n: made.model.at(time).project(f) for n, f in made.state.fields.items()}
    states = [replace(made.state, fields=fields, time=jnp.float64(time))]
    for _ in range(steps):
        states.append(step(states[-1], dt))
    return states


def test_no_wavenumber_is_beyond_the_reach_of_its_axis():
    """At the largest tilt the reach is that of a mode."""
    rest = make_transform(Grid((10, 12, 8), (3.0, 2.0, 1.5)), jax.devices()[:1]).layout
    layout = ShearedLayout.of(rest, LARGEST_TILT)
    mask = np.broadcast_to(np.asarray(layout.mask), layout.shape)
    for axis, k in zip("xyz", layout.wavenumbers(), strict=True):
        largest = np.abs(np.broadcast_to(np.asarray(k), layout.shape)[mask]).max()
        assert layout.reach(axis) == pytest.approx(largest, rel=1e-14)


LAYOUTS = {
    "slabs": (2, {"fft": {"decomposition": "z_xy"}}),
    "pencils": (6, {"fft": {"decomposition": "pencil"}}),
}


@pytest.fixture(scope="module")
def made():
    return box()


@pytest.fixture(scope="module")
def states(made):
    return moved(made)


@pytest.mark.long
@pytest.mark.parametrize("layout", [pytest.param("slabs", marks=pytest.mark.slow), "pencils"])
def test_all_layouts_agree(layout, made, states):
    """To some 20 roundings of a value in each of 5 steps."""
    count, blocks = LAYOUTS[layout]
    other = box(count, **blocks)
    end = moved(other)[-1]
    for name in ("velocity", "magnetic"):
        a, b = (np.asarray(m.field_program(name)(s)) for m, s in ((other, end), (made, states[-1])))
        assert abs(a - b).max() < 1e-12 * abs(b).max()
    assert float(end.memory.lost) == pytest.approx(float(states[-1].memory.lost), rel=1e-12)


def test_members_of_an_ensemble_exchange_frames_at_their_own_times(made, states):
    """The member of the S of the run alone exchanges in its third step, the other one in none."""

    def moved(shear: jax.Array, state: State) -> State:
        step = made.varied({"model.shear": shear}).step
        return jax.lax.fori_loop(0, 5, lambda _, s: step(s, 0.02), state)

    members = jax.jit(jax.vmap(moved, in_axes=(0, None)))(jnp.array([-1.5, -1.0]), states[0])
    for name, field in states[-1].fields.items():
        assert abs(members.fields[name][0] - field).max() < 1e-13 * abs(field).max()
    assert float(members.memory.lost[0]) == pytest.approx(float(states[-1].memory.lost), rel=1e-13)
    assert members.memory.lost[1] == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_exchange_of_frames_sends_nothing(layout):
    count, blocks = LAYOUTS[layout]
    made = box(count, **blocks)
    sheared = made.system.sheared
    assert sheared is not None
    exchange = jax.jit(sheared.exchanged, out_shardings=made.shardings(made.state).fields)
    text = exchange.lower(made.state.fields, jnp.float64(1)).compile().as_text()
    opcodes = {i.opcode for c in parsed(text).computations.values() for i in c.values()}
    assert "conditional" in opcodes
    sent = {o for o in opcodes if re.match(r"all-|collective|reduce-scatter|send|recv", o)}
    assert not sent


def test_the_energy_that_leaves_with_a_frame_is_accounted_for(made, states):
    """To round-off in an exchange; and the budget of the step that ends with it closes as that of
    the others, although it takes more than a hundredth of the energy."""
    sheared = made.system.sheared
    assert sheared is not None
    before = states[0]
    after = replace(before, fields=sheared.exchanged(before.fields, jnp.float64(-1)))
    energy = [made.diagnostics(s)["energy"] for s in (before, after)]
    step = replace(before, time=jnp.float64(0.0))
    counted = in_next_frame(made.system, step, replace(step, time=jnp.float64(LAST + 0.01)))
    lost = counted.memory.lost
    assert lost > 0.01 * energy[0]
    assert energy[0] - energy[1] == pytest.approx(float(lost), abs=1e-13)
    assert [float(s.memory.lost) > 0 for s in states] == [False] * 3 + [True] * 3
    # The trapezoidal rule of the residual is right to (rate dt)^2 / 12 of the dissipation.
    residuals = [abs(float(s.memory.residual)) for s in states[1:]]
    assert max(residuals) < 0.002
    assert residuals[2] < 2 * max(residuals[1], residuals[3])


def test_fields_are_seen_in_the_box_at_rest(made, states):
    """Values, and a derived field, against the sum of the waves at some points."""
    state = states[4]
    model = made.model.at(state.time)
    layout = model.transform.layout
    u = np.asarray(state.fields["velocity"])
    k = [np.asarray(q) for q in layout.wavenumbers()]
    weight = np.asarray(layout.weight())
    values, vorticity = (
        np.asarray(made.field_program(n)(state)) for n in ("velocity", "vorticity")
    )
    for place in ((0, 0, 0), (5, 3, 2), (9, 11, 7), (7, 0, 7)):
        x = [i * h for i, h in zip(place, made.grid.spacing, strict=True)]
        wave = weight * np.exp(1j * sum(q * r for q, r in zip(k, x, strict=True)))
        curl = np.stack([1j * (k[i - 2] * u[i - 1] - k[i - 1] * u[i - 2]) for i in range(3)])
        for found, modes in ((values, u), (vorticity, curl)):
            wanted = (wave * modes).real.sum((-3, -2, -1))
            assert abs(found[:, *place] - wanted).max() < 1e-12 * abs(found).max()
    again = model.transform.forward(values)
    assert abs(again - state.fields["velocity"]).max() < 1e-14


def test_spectra_hold_all_energy_at_every_tilt(made, states):
    """Also the waves in the corners that a tilt moves outwards."""
    for state in states[:2]:
        spectra = made.spectra(state)
        total = sum(float(e.sum()) for n, e in spectra.items() if n.endswith("energy"))
        row = made.diagnostics(state)
        assert total * made.transform.layout.shell_width == pytest.approx(float(row["energy"]))
        layout = made.model.at(state.time).transform.layout
        largest = float(jnp.where(layout.mask, layout.k_squared(), 0).max()) ** 0.5
        assert largest < (layout.shells - 0.5) * layout.shell_width


def test_series_follow_the_frame_or_are_refused(made):
    subject = subject_of(made)
    refused = set()
    for name, kind in KINDS.items():
        try:
            settings = kind.Settings.model_validate({"every_steps": 1})
            row = measurement(kind, subject, settings).compute
        except Unsupported as error:
            refused.add(name)
            assert "background shear" in str(error) or "particles" in str(error)
        except ValueError:  # a key is required
            continue
        else:
            if name in ("spectra", "transfer", "strain"):
                assert all(np.isfinite(v).all() for v in jax.jit(row)(made.state).values())
    still = {"profiles", "structure_functions", "projections", "field_statistics"}
    assert still & {*KINDS} <= refused
    assert not {"spectra", "slices", "transfer", "histograms", "strain", "statistics"} & refused


@pytest.mark.plugins
@pytest.mark.slow
def test_the_gradient_through_an_exchange(differentiate):
    """By the fields and by S, against differences, which are right to the square of their step and to
    its round-off."""
    model = {"kind": "navier_stokes", "viscosity": 0.01, "shear": -1.5}
    initial = {"kind": "random", "energy": 1.0, "peak": 6}
    made = flow(8, 8, 6, initial=initial, grid={"box": BOX}, model=model)
    made.state = replace(made.state, time=jnp.float64(LAST - 0.03))
    u = made.state.fields["velocity"]
    direction = made.model.at(made.state.time).project(jnp.roll(u, 1, axis=0))

    def loss(state):
        return sum((abs(f[0] + f[1]) ** 2).sum() for f in state.fields.values())

    gradient = differentiate(made, loss, steps=3, dt=0.02)

    def variables(along_fields=0.0, along_shear=0.0):
        return {
            "fields": {"velocity": u + along_fields * direction},
            "model.shear": -1.5 + along_shear,
        }

    def difference(h=1e-5, **along):
        up, down = ({name: s * h for name in along} for s in (1, -1))
        return float(gradient.value(variables(**up)) - gradient.value(variables(**down))) / (2 * h)

    _, slopes = gradient(variables())
    by_fields = float((slopes["fields"]["velocity"].conj() * direction).real.sum())
    assert by_fields == pytest.approx(difference(along_fields=1), rel=1e-6)
    assert float(slopes["model.shear"]) == pytest.approx(difference(along_shear=1), rel=1e-6)


REFUSED = {
    "rotation": ({"rotation": [1, 0, 0]}, {}, "rotate about z or y"),
    "gradient": (
        {"scalars": [{"name": "dye", "diffusivity": 1, "mean_gradient": [0, 1, 0]}]},
        {},
        "along y changes with time",
    ),
    "drag": ({"drag": {"coefficient": 1, "below": 2}}, {}, "leave it or shear out"),
    "kinematic": ({"kinematic": True, "rotation": [0, 0, 0]}, {}, "kinematic"),
    "gravity": (
        {
            "kind": "boussinesq",
            "resistivity": None,
            "diffusivity": 1,
            "stratification": 1,
            "gravity": [0, 1, 0],
        },
        {},
        r"gravity: .*\[-1, 0, 0\]",
    ),
    "forcing": ({}, {"forcing": {"kind": "linear", "coefficient": 0.1}}, "forcing"),
    "particles": ({}, {"particles": [{"name": "dust", "kind": "tracer", "count": 8}]}, "particles"),
    "box": ({}, {"shape": (1, 8, 8)}, "varies along x"),
    "backend": ({}, {"fft": {"backend": "jaxdecomp"}}, "take fft.backend: custom_partitioning"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    model, blocks, message = REFUSED[case]
    model = {key: value for key, value in (MODEL | model).items() if value is not None}
    shape = blocks.pop("shape", (8, 8, 8)) if "shape" in blocks else (8, 8, 8)
    with pytest.raises((UserError, ValidationError), match=message):
        flow(*shape, initial={"kind": "random", "energy": 1.0}, model=model, **blocks)
