"""The wave equation: exact solutions, conservation, time reversal, layouts, measured columns;
vortex lines through the faces of the grid, and exp(-i x) by
polynomials."""

import math

import gravity_cases as cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow, measured
from gravity_cases import WAVE, stepped
from tiers import slow

from simulator.physics.stepping import INTEGRATORS
from simulator.plugins.gravity.wave_functions import phase_factor, pierced_faces

LUMPS = '{"psi": (1 + 0.4 * jnp.cos(x) * jnp.sin(y + z) + 0.3j * jnp.sin(2 * y)) * jnp.exp(0.2j * jnp.cos(z))}'


def lumps(*overrides: str, devices: int = 1, python: str = LUMPS):
    return cases.simulation(
        WAVE, "model.self_interaction=0.3", *overrides, devices=devices, python=python
    )


@pytest.mark.smoke
def test_a_plane_wave_only_turns():
    """psi = A exp(i k . x): density and potential are flat, each part of the step is exact."""
    run = cases.simulation(
        WAVE,
        "model.hbar_over_m=0.7",
        "model.self_interaction=2",
        python='{"psi": 1.5 * jnp.exp(1j * (2 * x - y + z))}',
    )
    end = stepped(run, run.state, 3.0, 7)
    turned = 0.7 / 2 * 6 * 3.0 + 2 * 1.5**2 / 0.7 * 3.0
    found = cases.coefficient(run, end.fields["psi"], (2, -1, 1))
    assert abs(found - 1.5 * np.exp(-1j * turned)) < 1e-13


@pytest.mark.parametrize(
    "name, coarse",
    [("kick_drift_kick", 20), slow("composition6", 6)],
)
def test_mass_energy_and_time_reversal(name: str, coarse: int):
    """Both parts are unitary: mass to round-off, 1e-15 a step and kick at most. The potential is
    the gradient of the grid's own energy, so that energy is lost by the step alone: 2^order times
    less for half dt. Steps back undo steps."""
    kind = INTEGRATORS[name]
    lost = []
    run = lumps("model.gravitational_constant=0.1", f"time.integrator={name}")
    before = measured(run)
    for n in (coarse, 2 * coarse):
        after = measured(run, stepped(run, run.state, 0.5, n))
        assert abs(after["mass"] / before["mass"] - 1) < n * len(kind.kicks) * 1e-15
        lost.append(abs(after["energy"] - before["energy"]))
    assert (
        lost[1] > 1e-13 and abs(math.log2(lost[0] / lost[1]) - kind.order) < 0.04
    )  # measured: 0.012 at most
    back = stepped(run, stepped(run, run.state, 0.5, 5), -0.5, 5)
    assert np.abs(np.asarray(back.fields["psi"] - run.state.fields["psi"])).max() < 2e-14


def test_a_harmonic_oscillator_ground_state_rests():
    """exp(-w r^2 / 2 hbar) in a trap, box of 14 oscillator lengths: the density changes by the
    splitting error only, which falls as dt^2, and the phase turns at 3 w / 2 per time."""
    trap = "(x - L / 2)**2 + (y - L / 2)**2 + (z - L / 2)**2".replace("L", "14.0")
    changes = []
    run = cases.simulation(
        WAVE,
        "model.gravitational_constant=0",
        "model.external_potential={kind: harmonic, frequency: [1, 1, 1]}",
        *("grid.shape=24,24,24", "grid.box=14,14,14"),
        python=f'{{"psi": jnp.exp(-({trap}) / 2) + 0j}}',
    )
    for n in (40, 80):
        end = stepped(run, run.state, 2.0, n)
        before, after = (
            np.asarray(run.transform.inverse(s.fields["psi"])) for s in (run.state, end)
        )
        changes.append(np.abs(abs(after) ** 2 - abs(before) ** 2).max())
        middle = after[12, 12, 12] / before[12, 12, 12]
        assert abs(np.angle(middle * np.exp(1j * 3 / 2 * 2.0))) < 2 * changes[-1]
    assert changes[0] < 1e-3 and 3.9 < changes[0] / changes[1] < 4.1
    energies = measured(run)
    # <T> = <V_ext> = 3/4 w hbar rho: the virial theorem of a trap.
    assert abs(energies["quantum_energy"] / energies["external_energy"] - 1) < 1e-9
    assert abs(energies["virial_ratio"] - 1) < 1e-9
    assert abs(energies["kinetic_energy"]) < 1e-10 * energies["energy"]


def test_a_users_potential_and_an_absorbing_edge():
    """The trap as the user's function gives the same step; the absorber takes mass out, at most
    exp(-2 rate dt)."""
    square = "(x - 3) ** 2 + (y - 3) ** 2 + (z - 3) ** 2"
    path = cases.source(f"def trap(x, y, z, w):\n    return 0.5 * w**2 * ({square})\n")
    grid = "grid.box=6,6,6"
    users = f"{{kind: python, path: {path}, function: trap, parameters: {{w: 2.0}}}}"
    own = lumps(grid, f"model.external_potential={users}")
    shipped = lumps(grid, "model.external_potential={kind: harmonic, frequency: [2, 2, 2]}")
    ends = [np.asarray(stepped(run, run.state, 0.2, 4).fields["psi"]) for run in (own, shipped)]
    assert np.abs(ends[0] - ends[1]).max() < 1e-14
    assert measured(own)["virial_ratio"] == pytest.approx(
        measured(shipped)["virial_ratio"], rel=1e-12
    )
    sponge = lumps(grid, "model.absorber={width: 1, rate: 5}")
    before = measured(sponge)["mass"]
    after = measured(sponge, stepped(sponge, sponge.state, 0.1, 4))["mass"]
    assert math.exp(-2 * 5 * 0.1 * 3) * before < after < 0.9 * before


def test_columns():
    """Against numpy on the values: energies, momentum, centre of mass, extremes."""
    run = lumps("model.hbar_over_m=0.5", "grid.shape=16,16,16")
    found = measured(run)
    psi = np.asarray(run.fields["psi"])
    k = np.fft.fftfreq(16, 1 / 16)
    hat = np.fft.fftn(psi) / psi.size
    kx, ky, kz = np.meshgrid(k, k, k, indexing="ij")
    rho = abs(psi) ** 2
    slopes = np.stack([np.fft.ifftn(1j * q * hat * psi.size) for q in (kx, ky, kz)])
    motion = 0.125 * (abs(slopes) ** 2).sum(0).mean()
    flow = 0.125 * ((psi.conj() * slopes).imag ** 2).sum(0) / rho
    assert np.isclose(found["kinetic_energy"], flow.mean(), rtol=1e-12)
    assert np.isclose(found["kinetic_energy"] + found["quantum_energy"], motion, rtol=1e-12)
    rho_hat = np.fft.fftn(rho) / rho.size
    k2 = np.where(kx**2 + ky**2 + kz**2 == 0, np.inf, kx**2 + ky**2 + kz**2)
    assert np.isclose(
        found["potential_energy"], -2 * np.pi * (abs(rho_hat) ** 2 / k2).sum(), rtol=1e-12
    )
    assert np.isclose(found["interaction_energy"], 0.15 * (rho**2).mean(), rtol=1e-12)
    parts = (
        "kinetic_energy",
        "quantum_energy",
        "potential_energy",
        "interaction_energy",
        "external_energy",
    )
    assert np.isclose(found["energy"], sum(found[p] for p in parts), rtol=1e-12)
    assert np.isclose(found["max_density"], rho.max(), rtol=1e-13)
    assert np.isclose(found["mass"], rho.mean() * (2 * np.pi) ** 3, rtol=1e-13)
    current = 0.5 * (psi.conj() * slopes).imag.mean((1, 2, 3))
    assert np.allclose([found[f"mean_momentum_{a}"] for a in "xyz"], current, atol=1e-14)


def test_dt_resolves_the_fastest_phase():
    """cfl 1: the corner's kinetic phase, or the spread of the potential's, is pi; unbound, no
    virial ratio."""
    free = cases.simulation(WAVE, "model.gravitational_constant=0")
    assert np.isclose(float(free.state.memory.rate), 0.5 * 3 * 4**2 / math.pi)
    assert "virial_ratio" not in measured(free)
    deep = lumps("model.self_interaction=100", "model.gravitational_constant=0")
    rho = np.asarray(deep.fields["density"])
    assert np.isclose(float(deep.state.memory.rate), 100 * np.ptp(rho) / math.pi)


def test_single_precision_follows_double():
    runs = [lumps(f"precision={p}") for p in ("double", "single")]
    ends = [stepped(run, run.state, 0.5, 20) for run in runs]
    a, b = (np.asarray(e.fields["psi"]) for e in ends)
    assert b.dtype == np.complex64 and np.abs(a - b).max() < 5e-6


def test_units():
    """m = 1e-22 eV: the de Broglie wavelength at 10 km/s, over 2 pi, is 1.92 kpc (Hui et al.
    2017)."""
    run = cases.simulation(WAVE, "model.units=kpc_km_s_msun", "model.boson_mass=1")
    assert abs(run.model.hbar / 10 - 1.92) < 0.005
    assert np.isclose(run.model.gravity, 4.30092e-6, rtol=1e-5)
    per_h = cases.simulation(
        WAVE, "model.units=mpc_h_km_s_msun_h", "model.boson_mass=1", "model.h=0.68"
    )
    assert np.isclose(per_h.model.hbar, run.model.hbar * 1e-3 * 0.68, rtol=1e-12)


# Waves of six directions: vortex lines that wind through the whole box.
TANGLE = " + ".join(
    f"jnp.exp(1j * ({a} * x + {b} * y + {c} * z + {phase}))"
    for a, b, c, phase in (
        (1, 0, 0, 0),
        (0, 1, 1, 2),
        (1, 1, 0, 1),
        (-1, 2, 1, 4),
        (2, -1, 0, 3),
        (0, 1, -2, 5),
    )
)


def test_lines_that_cross_the_borders_of_shards_count_once():
    """14 planes on 4 devices, pencils and jaxDecomp: every face is seen by one device, none
    twice."""
    faces = []
    for devices, fft in (
        (1, {}),
        (4, {}),
        (4, {"decomposition": "pencil"}),
        (2, {"backend": "jaxdecomp"}),
    ):
        given = (
            "grid.shape=16,14,10",
            "grid.box=2*pi,2*pi,2*pi",
            *(f"fft.{k}={v}" for k, v in fft.items()),
        )
        run = cases.simulation(WAVE, *given, devices=devices, python=f'{{"psi": {TANGLE}}}')
        faces.append(
            int(jax.jit(lambda f, r=run: pierced_faces(r.transform, f["psi"]))(run.state.fields))
        )
    assert set(faces) == {_faces(run.fields["psi"])} and faces[0] > 0


def _faces(psi) -> int:
    """The same count from whole arrays."""
    angle = np.angle(np.asarray(psi))
    total = 0
    for a, b in ((0, 1), (1, 2), (2, 0)):
        corners = [
            angle,
            np.roll(angle, -1, a),
            np.roll(angle, (-1, -1), (a, b)),
            np.roll(angle, -1, b),
        ]
        turns = [
            (q - p + np.pi) % (2 * np.pi) - np.pi
            for p, q in zip(corners, [*corners[1:], angle], strict=True)
        ]
        total += int(abs(np.rint(sum(turns) / (2 * np.pi))).sum())
    return total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e-30, 0.5, 10.0, 1e4])
def test_the_phase_factor_is_the_exponential(dtype, size):
    """The reduction errs by eps times the part of pi/2 that is not exact, for each turn: below eps
    here."""
    angles = (size * np.linspace(-1, 1, 20001)).astype(dtype)
    wide = angles.astype(np.longdouble)
    found = np.asarray(phase_factor(jnp.asarray(angles)))
    assert found.dtype == np.result_type(dtype, np.complex64)
    eps = np.finfo(dtype).eps * max(1, size / 1e3)
    assert abs(found.real - np.cos(wide)).max() < 2 * eps
    assert abs(found.imag + np.sin(wide)).max() < 2 * eps


def test_the_modulus_of_a_phase_factor_is_one_and_its_derivative_exact():
    """Else a kick would not conserve mass: the error is of round-off, and of either sign."""
    modulus = abs(np.asarray(phase_factor(jnp.linspace(-4, 4, 100001, dtype=jnp.float64)))) - 1
    assert abs(modulus).max() < 4e-16 and abs(modulus.mean()) < 2e-17
    x = jnp.float64(2.3)
    value, slope = jax.jvp(phase_factor, (x,), (jnp.float64(1.0),))
    np.testing.assert_allclose(slope, -1j * value, rtol=1e-15)


def test_vortices_of_waves_are_points_of_the_plane(tmp_path):
    """Two, and two of the other sign."""
    code = """
import jax.numpy as jnp

def start(x, y):
    return {"psi": jnp.sin(x) + 1j * jnp.sin(y) + 0.2 * jnp.exp(2j * x - 3j * y)}
"""
    (tmp_path / "psi.py").write_text(code)
    start = {"kind": "python", "path": str(tmp_path / "psi.py"), "function": "start"}
    model = {"kind": "schrodinger_poisson", "gravitational_constant": 0}
    made = flow(12, 10, initial=start, model=model, grid={"dealias": "none"}, count=2)
    row = measured(made)
    assert row["vortex_faces"] == 4
    assert {"center_x", "center_y"} <= row.keys() and not {"center_z", "virial_ratio"} & row.keys()
