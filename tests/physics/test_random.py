"""Random initial conditions, Orszag-Tang, and snapshots at another resolution."""

from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow, measured
from gravity_cases import simulation
from numpy.testing import assert_allclose

from simulator.physics.initial.random import RandomSettings, SpectrumSettings, shape_of
from simulator.simulation.inputs import Inputs
from simulator.spectral import Grid, make_transform
from simulator.spectral.random import gaussian

MHD = {"kind": "mhd", "viscosity": 0.02, "resistivity": 0.02}


@pytest.mark.parametrize("devices", [1, 2])
def test_a_cutout_of_a_database(tmp_path, devices: int):
    """A shear flow is cut off where its ends do not meet. In the middle the start is the flow, less
    its mean and the smooth gradient that the projection takes; at the faces it jumps by no more
    than between points elsewhere."""
    n = 32
    z, y, x, _ = np.meshgrid(*(2 * np.pi / n * np.arange(n),) * 3, [0], indexing="ij")
    whole = np.concatenate([np.sin(1.5 * y), np.cos(1.5 * z), np.sin(1.5 * x)], -1)
    with h5py.File(tmp_path / "cutout.h5", "w") as file:
        file["Velocity_0001"] = whole.astype("f4")
    path = Path(__file__).parents[2] / "configs" / "cutout.py"
    parameters = f"{{file: {tmp_path}/cutout.h5, dataset: Velocity_0001}}"
    run = simulation(
        f"""\
model: {{kind: navier_stokes, viscosity: 0.1}}
grid: {{shape: [{n}, {n}, {n}], dealias: none}}
initial: {{kind: python, path: {path}, function: start, parameters: {parameters}}}
time: {{stop: 1, dt: 0.1}}
""",
        devices=devices,
    )
    made = np.asarray(run.field_program("velocity")(run.state))
    given = np.moveaxis(whole, (3, 2, 1, 0), (0, 1, 2, 3))
    middle = (slice(None), *(slice(12, 20),) * 3)
    error = made[middle] - (given - given.mean((1, 2, 3), keepdims=True))[middle]
    assert np.sqrt((error**2).mean() / (given[middle] ** 2).mean()) < 0.1
    for axis in (1, 2, 3):
        jumps = np.abs(made - np.roll(made, 1, axis)).max(tuple(i for i in range(4) if i != axis))
        assert jumps[0] <= jumps[1:].max()
    assert float(run.diagnostics(run.state)["max_divergence"]) < 1e-12


def test_named_spectra_have_their_slopes(tmp_path):
    k = np.logspace(-2, 2, 9)

    def slopes(**keys):
        e = np.asarray(shape_of(SpectrumSettings(**keys), Inputs())(k))
        return np.diff(np.log(e)) / np.diff(np.log(k))

    law = slopes(spectrum="power_law", peak=1.0, slope=-2)
    assert_allclose(law, [4] * 4 + [-2] * 4, rtol=1e-12)
    pao = slopes(spectrum="pao", peak=1.0)
    # The turn at the peak is still felt: the mean of (17/3) / (1 + k^2) over ln k from 10^1.5 to
    # 100 is 2.2e-3.
    assert pao[0] == pytest.approx(4 - 2.2e-3, abs=1e-4)
    assert pao[-1] == pytest.approx(-5 / 3 + 2.2e-3, abs=1e-4)
    cut = np.asarray(
        shape_of(SpectrumSettings(spectrum="pao", peak=1.0, kolmogorov_scale=0.1), Inputs())(k)
    )
    full = np.asarray(shape_of(SpectrumSettings(spectrum="pao", peak=1.0), Inputs())(k))
    assert_allclose(cut / full, np.exp(-2.25 * (0.1 * k) ** (4 / 3)), rtol=1e-12)
    table = tmp_path / "spectrum.txt"
    table.write_text("# k E\n0.1 1e-3\n1 1\n\n10 1e-2\n")
    from_file = shape_of(SpectrumSettings(spectrum="table", table=table), Inputs())
    at = np.array([0.05, 0.1, 10**-0.5, 1, 10**0.5, 20])
    assert_allclose(from_file(at), [0, 1e-3, 10**-1.5, 1, 0.1, 0])


@pytest.fixture(scope="module")
def random():
    magnetic = {"spectrum": "power_law", "energy": 0.2, "helicity": -1.0, "mean_field": [0, 0, 2.0]}
    return flow(
        *(12, 12, 16),
        initial={"kind": "random", "peak": 2, "energy": 0.7, "helicity": 1.0, "magnetic": magnetic},
        model=MHD,
        count=2,
    )


def test_energies_and_helicities_are_those_asked_for(random):
    """With helicity 1 every mode has curl u = |k| u: the helicity is the sum of 2 k E; -1 is the
    mirror image."""
    row = measured(random)
    layout = random.transform.layout
    assert row["kinetic_energy"] == pytest.approx(0.7, rel=1e-13)
    assert row["magnetic_energy"] == pytest.approx(0.2 + 2.0, rel=1e-13)
    k = np.sqrt(np.asarray(layout.k_squared()))
    weight = np.asarray(layout.weight())
    fields = random.state.fields
    twice = {n: weight * (abs(np.asarray(f)) ** 2).sum(0) for n, f in fields.items()}
    assert row["helicity"] == pytest.approx((k * twice["velocity"]).sum(), rel=1e-12)
    inverse = np.where(k > 0, 1 / np.where(k > 0, k, 1), 0)
    assert row["magnetic_helicity"] == pytest.approx(
        -(inverse * twice["magnetic"]).sum(), rel=1e-12
    )
    assert row["max_divergence"] < 1e-13 and row["max_magnetic_divergence"] < 1e-13
    # Their correlation is that of random numbers, about 1 / sqrt(modes).
    assert abs(row["cross_helicity"]) / (2 * np.sqrt(0.7 * 0.2)) < 0.3


def requested(simulation, settings, total):
    """E(k) of each shell: the shape at its wavenumber, with `total` as its sum times dk; shell 0 is
    empty."""
    k = simulation.transform.layout.shell_wavenumbers()
    e = np.asarray(shape_of(SpectrumSettings(**settings), Inputs())(np.where(k > 0, k, 1))) * (
        k > 0
    )
    return e * total / (e.sum() * simulation.transform.layout.shell_width)


def test_every_shell_holds_what_is_requested_of_flows_and_of_scalars(random):
    """To round-off: sums over at most 500 modes, 1e-14 each; also in the corners that truncation
    cuts."""
    spectra = random.spectra(random.state)
    magnetic = {"spectrum": "power_law"}
    for name, settings, total in (
        ("kinetic_energy", {"peak": 2}, 0.7),
        ("magnetic_energy", magnetic, 0.2),
    ):
        expected = requested(random, settings, total)
        if name == "magnetic_energy":
            expected[0] = 2.0  # the mean field's, in the shell about k = 0
        assert_allclose(np.asarray(spectra[name]), expected, rtol=1e-12, atol=0)
    model = {
        "kind": "navier_stokes",
        "viscosity": 0.02,
        "scalars": [{"name": "dye", "diffusivity": 0.02}],
    }
    scalars = {"dye": {"spectrum": "pao", "peak": 1.5, "variance": 3.0}}
    sim = flow(8, 9, 10, initial={"kind": "random", "scalars": scalars}, model=model)
    dye = sim.state.fields["dye"]
    layout = sim.transform.layout
    found = np.asarray(layout.shell_sum(abs(dye) ** 2)) / layout.shell_width
    expected = requested(sim, {"spectrum": "pao", "peak": 1.5}, 3.0)
    assert_allclose(found, expected, rtol=1e-12, atol=0)


def test_every_mode_has_its_own_numbers():
    layout = make_transform(Grid((24, 16, 20)), jax.devices()[:1], np.float64).layout
    field = np.asarray(gaussian(layout, 5))[0]
    numbers = field[np.broadcast_to(layout.mask & (layout.integers("z") > 0), field.shape)]
    assert len(np.unique(numbers.real)) == len(np.unique(numbers.imag)) == len(numbers) > 500
    # A seed gives the same field in every version: the key of a mode is made of its three signed
    # wavenumbers.
    offset = 1 << 20
    x, y, z = offset - 3, offset + 2, offset + 5
    counter = np.array([(x << 11) + (z >> 10), (y << 11) + (z & 1023)], np.uint32)
    key = jax.random.fold_in(jax.random.wrap_key_data(counter), np.uint32(5))
    here = (layout.integers("x") == -3) & (layout.integers("y") == 2) & (layout.integers("z") == 5)
    expected = jax.random.normal(key, (2,), np.float64) / np.sqrt(2)
    found = field[np.broadcast_to(here, field.shape)].item()
    assert_allclose([found.real, found.imag], expected, rtol=1e-14)


def test_the_mean_has_the_variance_of_every_mode():
    """1, although it is real: over 2000 seeds to 5 of the standard deviations sqrt(2 / 2000)."""
    layout = make_transform(Grid((2, 2, 2)), jax.devices()[:1], np.float64).layout
    means = jax.jit(jax.vmap(lambda seed: layout.at_zero(gaussian(layout, seed)[0])))(
        jnp.arange(2000)
    )
    assert not means.imag.any()
    assert abs((means.real**2).mean() - 1) < 5 * (2 / 2000) ** 0.5


def test_with_total_modes_are_gaussian_with_the_variance_of_an_isotropic_field():
    """|u(k)|^2 k^2 / E(k) has the same mean in every shell, within 5 standard deviations: a mode
    has four independent normal numbers (two polarizations), half of the modes are independent, so
    its relative error is sqrt(2 / (2 modes))."""
    sim = flow(24, 24, 24, initial={"kind": "random", "peak": 3, "normalise": "total", "seed": 2})
    layout = sim.transform.layout
    k = np.sqrt(np.asarray(layout.k_squared()))
    waves = np.where(k > 0, k, 1)
    density = np.asarray(shape_of(SpectrumSettings(peak=3), Inputs())(waves)) / waves**2
    ratio = (abs(np.asarray(sim.state.fields["velocity"])) ** 2).sum(0) / density
    modes = np.asarray(layout.shell_modes()[0])[1:]
    mean = np.asarray(layout.shell_sum(np.where(k > 0, ratio, 0)))[1:] / modes
    common = (mean * modes).sum() / modes.sum()
    assert (abs(mean / common - 1) < 5 / np.sqrt(modes)).all()
    assert measured(sim)["kinetic_energy"] == pytest.approx(0.5, rel=1e-13)


def test_a_long_box_has_the_spectrum_in_the_shells_that_are_asked_for():
    """kx = 0.1 to 0.4 lie in the shell about k = 0, which holds E at 0.25, their mean; narrow
    shells hold one."""
    box = [20 * np.pi, 2 * np.pi, 2 * np.pi]
    initial = {"kind": "random", "peak": 0.5}
    wide = flow(40, 4, 4, initial=initial, grid={"box": box})
    narrow = flow(40, 4, 4, initial=initial, grid={"box": box, "shell_width": 0.1})
    shape = shape_of(SpectrumSettings(peak=0.5), Inputs())
    found = np.asarray(wide.spectra(wide.state)["kinetic_energy"])
    assert found[0] / found[1] == pytest.approx(float(shape(0.25) / shape(1.0)), rel=1e-12)
    layout = narrow.transform.layout
    found = np.asarray(narrow.spectra(narrow.state)["kinetic_energy"])
    modes = np.asarray(layout.shell_modes()[0])
    expected = requested(narrow, {"peak": 0.5}, 1.0) * (modes > 0)
    assert_allclose(found / found.sum(), expected / expected.sum(), rtol=1e-12, atol=0)
    assert found.sum() * 0.1 == pytest.approx(0.5, rel=1e-13)


def test_orszag_tang_energies():
    """2-D: <u^2>/2 = <b^2>/2 = 2, cross helicity <u . b> = 2. 3-D with 0.8 (Mininni et al. 2006):
    both 2 and 1.92."""
    two = {"kind": "orszag_tang", "dimensions": 2, "magnetic_amplitude": 1.0}
    flat = flow(8, 8, 1, initial=two, model=MHD)
    row = measured(flat)
    assert row["kinetic_energy"] == pytest.approx(2) and row["magnetic_energy"] == pytest.approx(2)
    assert row["cross_helicity"] == pytest.approx(2)
    cube = flow(8, 8, 8, initial={"kind": "orszag_tang"}, model=MHD)
    row = measured(cube)
    assert row["kinetic_energy"] == pytest.approx(2)
    assert row["magnetic_energy"] == pytest.approx(0.5 * 0.64 * (2 + 0.5 + 2 + 0.5 + 1))


MEASURED = np.array([[1.5, 2e-4], [2.5, 5e-4], [4.0, 3e-4], [6.0, 1e-4], [20.0, 0.0]])


@pytest.mark.parametrize("normalise", ["per_shell", "total"])
def test_without_an_energy_a_table_has_its_own(tmp_path, normalise: str):
    """Each shell then holds the table's E(k), and `total` their sum; that of a scalar is its
    variance."""
    path = tmp_path / "measured.txt"
    np.savetxt(path, MEASURED)
    shape = {"spectrum": "table", "table": str(path), "normalise": normalise}
    run = flow(
        *(12, 12, 12),
        initial={"kind": "random", **shape, "scalars": {"dye": shape}},
        model={
            "kind": "navier_stokes",
            "viscosity": 0.1,
            "scalars": [{"name": "dye", "diffusivity": 0.1}],
        },
    )
    k = np.arange(2, 6)  # 3 sqrt(3) = 5.2 is the largest
    wanted = np.exp(np.interp(np.log(k), *np.log(MEASURED[:-1]).T))
    spectra = run.spectra(run.state)
    for name in ("kinetic_energy", "dye_variance"):
        found = np.asarray(spectra[name])
        assert found.sum() == pytest.approx(wanted.sum(), rel=1e-12)
        if normalise == "per_shell":
            assert_allclose(found[2:6], wanted, rtol=1e-12)
    given = {"kind": "random", **shape, "energy": 0.5}
    assert measured(flow(12, 12, 12, initial=given))["energy"] == pytest.approx(0.5, rel=1e-12)
    assert RandomSettings().energy == 0.5
