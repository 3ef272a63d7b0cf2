"""The program as a library: the simulation, its state and fields, the pure step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_support import CASE, contents, simulation, table, write_case

from simulator import open_run
from simulator.archive.manifest import committed


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    return write_case(folder, CASE.replace("cfl: 0.3", "dt: 0.05"))


@pytest.fixture(scope="module")
def small(config):
    return simulation(config)


@pytest.mark.smoke
def test_state_and_fields_are_jax_arrays(small):
    velocity = small.fields["velocity"]
    assert isinstance(velocity, jax.Array) and velocity.shape == (3, 16, 12, 10)
    assert small.state.fields["velocity"].dtype == jnp.complex128
    assert len(small.state.fields["velocity"].sharding.device_set) == 2
    assert set(small.fields) == {
        "velocity", "vorticity", "vorticity_magnitude", "speed", "pressure", "dissipation_rate",
        "q_criterion", "lambda_2",
    }  # fmt: skip
    np.testing.assert_allclose(small.fields["speed"], jnp.linalg.norm(velocity, axis=0), rtol=1e-14, atol=0)
    with pytest.raises(KeyError):
        small.fields["temperature"]


def test_derived_fields_are_what_their_names_say(small):
    """Against derivatives of the whole field by numpy."""
    u = np.asarray(small.fields["velocity"])
    k = np.meshgrid(
        *(2 * np.pi * np.fft.fftfreq(n, length / n) for n, length in zip(u.shape[1:], small.grid.box, strict=True)),
        indexing="ij",
    )

    def derivative(f, i):
        return np.fft.ifftn(1j * k[i] * np.fft.fftn(f)).real

    curl = [derivative(u[(i + 2) % 3], (i + 1) % 3) - derivative(u[(i + 1) % 3], (i + 2) % 3) for i in range(3)]
    scale = abs(np.array(curl)).max()
    np.testing.assert_allclose(small.fields["vorticity"], curl, rtol=0, atol=1e-13 * scale)
    # lap p = -d_i u_j d_j u_i; quadratic terms are exact on this grid for the modes that are kept.
    source = -sum(derivative(u[j], i) * derivative(u[i], j) for i in range(3) for j in range(3))
    np.testing.assert_allclose(small.fields["q_criterion"], source / 2, rtol=0, atol=1e-12 * scale**2)
    a = np.array([[derivative(u[i], j) for i in range(3)] for j in range(3)]).T
    middle = np.linalg.eigvalsh((a @ a + (a @ a).swapaxes(-1, -2)) / 2)[..., 1].T
    np.testing.assert_allclose(small.fields["lambda_2"], middle, rtol=0, atol=1e-12 * scale**2)
    k2 = sum(q * q for q in k)
    integers = np.meshgrid(*(np.fft.fftfreq(n, 1 / n) for n in u.shape[1:]), indexing="ij")
    kept = np.all([abs(q) <= (n - 1) // 3 for q, n in zip(integers, u.shape[1:], strict=True)], axis=0)
    modes = np.where(kept & (k2 > 0), np.fft.fftn(source) / np.where(k2 > 0, -k2, 1), 0)
    pressure = np.fft.ifftn(modes).real
    np.testing.assert_allclose(small.fields["pressure"], pressure, rtol=0, atol=1e-13 * abs(pressure).max() * 10)


def test_a_users_own_loop_equals_the_run(config, tmp_path):
    """jit(step) in a Python loop, against `run` with the same dt and no aligned event."""
    ran = simulation(config, f"output.directory={tmp_path / 'run'}", "output.snapshots=null", "time.stop=0.5")
    assert ran.run() == 0
    own = simulation(config)
    step, state = jax.jit(own.step), own.state
    for _ in range(10):
        state = step(state, 0.05)
    assert int(state.step) == 10 and float(state.time) == pytest.approx(0.5)
    stored = contents(committed(tmp_path / "run" / "checkpoints")[-1])["velocity"]
    here = np.asarray(state.fields["velocity"])[:, : stored.shape[1]]
    np.testing.assert_allclose(here, stored, rtol=0, atol=1e-13)
    # After a run, the state is its last one, and a second run finds it finished.
    assert float(ran.state.time) == 0.5 and float(ran.state.dt) == 0.05
    assert ran.run() == 0
    assert len(table(tmp_path / "run")["step"]) == 11
    assert open_run(tmp_path / "run").snapshots[-1]["velocity"][0, 1, 2, 3] == pytest.approx(
        float(ran.fields["velocity"][0, 1, 2, 3]), rel=1e-13
    )
