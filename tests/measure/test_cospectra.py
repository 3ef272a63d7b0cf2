"""Spectra of fluxes, helicities and parts, and maps of wavenumbers add up."""

from functools import cache

import numpy as np
import pytest
from flow_support import flow, python_flow
from flow_support import measured as columns_of
from measuring import MODELS, STARTS, on_grid, row
from numpy.testing import assert_allclose
from tiers import slow

from simulator.archive.series_recorder import measured_series

SHAPE = (10, 9, 12)
BOX = (2 * np.pi, 5.0, 4.0)
KINDS = {"spectra": {"axis": "y"}, "spectral_maps": {"axis": "y"}, "cospectra": {}}


def measured(kind, model, initial, count=1, kinds=KINDS):
    """Every series of a start, by kind: rows as arrays, and the simulation."""
    blocks = {"grid": {"box": BOX}, "time": {"stop": 1.0, "max_dt": 0.1}, "initial": initial}
    output = {name: {"every": 1, **kinds[name]} for name in kinds}
    simulation = flow(*SHAPE, model={"kind": kind, **model}, count=count, output=output, **blocks)
    return simulation, measured_series(simulation), {name: row(simulation, name) for name in kinds}


@cache
def started(kind):
    initial = {"kind": "random", "peak": 2, **STARTS[kind]}
    if kind == "mhd":
        initial["magnetic"] = {**initial["magnetic"], "mean_field": [0.3, 0, 0.2]}
    return measured(kind, MODELS[kind], initial, count=3 if kind == "mhd" else 1)


@pytest.mark.spmd
@pytest.mark.parametrize(
    "kind",
    [slow(k) if k == "navier_stokes" else k for k in MODELS],
)
def test_maps_add_up_to_the_spectra_of_both_directions(kind):
    _, found, rows = started(kind)
    widths = {d: found["spectra"].coordinates[f"k_{d}"][1] for d in ("perpendicular", "parallel")}
    assert rows["spectral_maps"].keys() == {
        n.partition("/")[2] for n in rows["spectra"] if "/" in n
    }
    for name, plane in rows["spectral_maps"].items():
        for axis, direction, other in (
            (1, "perpendicular", "parallel"),
            (0, "parallel", "perpendicular"),
        ):
            spectrum = rows["spectra"][f"{direction}/{name}"]
            assert_allclose(plane.sum(axis) * widths[other], spectrum, rtol=1e-12, atol=1e-15)


def test_magnetic_spectra_and_scalar_fluxes_add_up():
    """To the columns; the Elsasser energies to the energy, shell by shell, and they differ by the
    cross-helicity."""
    simulation, found, rows = started("mhd")
    columns = columns_of(simulation)
    width = found["cospectra"].attributes["shell_width"]
    spectra = rows["spectra"]
    others = rows["cospectra"]
    for name in ("cross_helicity", "magnetic_helicity"):
        assert others[name].sum() * width == pytest.approx(columns[name], rel=1e-12)
        assert abs(columns[name]) > 1e-3
    plus = others["elsasser_plus"]
    minus = others["elsasser_minus"]
    total = spectra["kinetic_energy"] + spectra["magnetic_energy"]
    assert_allclose(plus + minus, total, rtol=1e-12)
    assert_allclose(plus - minus, others["cross_helicity"], rtol=1e-12, atol=1e-14)
    # To means over the grid, and that of buoyancy along e to the column.
    for kind, name in (("navier_stokes", "dye"), ("boussinesq", "buoyancy")):
        simulation, found, rows = started(kind)
        u, theta = on_grid(simulation, "velocity", name)
        width = found["cospectra"].attributes["shell_width"]
        for i, axis in enumerate("xyz"):
            total = rows["cospectra"][f"{name}_flux_{axis}"].sum() * width
            assert total == pytest.approx((u[i] * (theta - theta.mean())).mean(), abs=1e-14)
    assert total == pytest.approx(columns_of(simulation)["buoyancy_flux"], rel=1e-12)


def test_solenoidal_and_compressive_parts_of_a_gas_add_up(tmp_path):
    """To the square of the velocity; a solenoidal flow of constant density has one part, a sound
    wave the other."""
    body = """
k = 2 * jnp.pi / 5.0
one = jnp.ones(jnp.broadcast_shapes(x.shape, y.shape, z.shape))
velocity = (shear * jnp.sin(k * y) * one, sound * jnp.sin(k * y) * one, 0 * one)
return {'density': one * (1 + varied * jnp.cos(k * y + x)), 'velocity': velocity}"""

    def parts(**parameters):
        initial = python_flow(tmp_path, body, **parameters)
        model = {"sound_speed": 1, "viscosity": 0.1}
        simulation, found, rows = measured(
            "self_gravitating_gas", model, initial, kinds={"cospectra": {}}
        )
        width = found["cospectra"].attributes["shell_width"]
        energies = {n: e.sum() * width for n, e in rows["cospectra"].items()}
        layout = simulation.transform.layout
        state = simulation.state
        v = simulation.model.variables.velocity(simulation.model, state.fields)
        assert sum(energies.values()) == pytest.approx(
            0.5 * float(layout.inner(v, v).sum()), rel=1e-12
        )
        return energies["solenoidal_energy"], energies["compressive_energy"]

    assert parts(shear=0.2, sound=0, varied=0) == pytest.approx((0.01, 0), rel=1e-12, abs=1e-30)
    assert parts(shear=0, sound=0.2, varied=0) == pytest.approx((0, 0.01), rel=1e-12, abs=1e-30)
    assert min(parts(shear=0.2, sound=0.2, varied=0.3)) > 0.005


@pytest.mark.parametrize("kind, count", [("plane", 1), ("sound", 1), ("vortices", 3)])
def test_parts_of_the_energy_of_waves_add_up(kind, count, tmp_path):
    """To the columns. A plane wave of constant density flows with v = hbar k / m in its mean; a
    varying phase makes a gradient, without vortices; and vortex lines make a solenoidal flow."""
    body = """
one = jnp.ones(jnp.broadcast_shapes(x.shape, y.shape, z.shape))
if kind == 'plane':
    return {'psi': one * jnp.exp(2j * x)}
if kind == 'sound':
    return {'psi': one * jnp.exp(0.3j * jnp.cos(x))}
return {'psi': one * (jnp.sin(x) + 1j * jnp.sin(2 * jnp.pi * y / 5 + 0.4) + 0.1 * jnp.cos(x + 0.2))}"""
    model = {"hbar_over_m": 0.5, "gravitational_constant": 0}
    initial = python_flow(tmp_path, body, kind=kind)
    simulation, found, rows = measured(
        "schrodinger_poisson", model, initial, count, {"cospectra": {}}
    )
    width = found["cospectra"].attributes["shell_width"]
    names = ("solenoidal", "compressive", "quantum")
    vortical, compressive, quantum = (
        rows["cospectra"][f"{name}_energy"].sum() * width for name in names
    )
    columns = columns_of(simulation)
    total = vortical + compressive + quantum
    assert vortical + compressive == pytest.approx(columns["kinetic_energy"], abs=1e-12 * total)
    assert quantum == pytest.approx(columns["quantum_energy"], abs=1e-12 * total)
    if kind == "plane":
        assert vortical == pytest.approx(0.5, rel=1e-12) and compressive + quantum < 1e-28
    elif kind == "sound":
        # The modes +-5 are one on 10 points: its share of the energy is 2 (2 J_5(0.3) 5 / 0.3)^2 =
        # 9e-10.
        assert compressive == pytest.approx(0.15**2 / 4, rel=1e-9)
        assert vortical < 1e-9 * compressive and quantum < 1e-9 * compressive
    else:
        assert vortical > 0.01
