"""The program as a library: simulation, state, fields and the pure step; runs described and
measured in Python."""

import base64
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from run_support import CASE, ROOT, call, contents, install, simulation, table, write_case

from simulator import Simulation, load_config, open_run
from simulator.archive.manifest import committed
from simulator.config.blocks import GridSettings
from simulator.equations import Equation, Positive
from simulator.errors import UserError


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
        "velocity",
        "vorticity",
        "vorticity_magnitude",
        "speed",
        "pressure",
        "dissipation_rate",
        "q_criterion",
        "lambda_2",
    }
    assert_allclose(small.fields["speed"], jnp.linalg.norm(velocity, axis=0), rtol=1e-14, atol=0)
    with pytest.raises(KeyError, match="its fields are velocity"):
        small.fields["temperature"]


def test_derived_fields_are_what_their_names_say(small):
    """Against derivatives of the whole field by numpy."""
    u = np.asarray(small.fields["velocity"])
    sides = zip(u.shape[1:], small.grid.box, strict=True)
    k = np.meshgrid(*(2 * np.pi * np.fft.fftfreq(n, side / n) for n, side in sides), indexing="ij")

    def derivative(f, i):
        return np.fft.ifftn(1j * k[i] * np.fft.fftn(f)).real

    g = np.array([[derivative(u[j], i) for j in range(3)] for i in range(3)])
    curl = [g[1, 2] - g[2, 1], g[2, 0] - g[0, 2], g[0, 1] - g[1, 0]]
    scale = abs(np.array(curl)).max()
    assert_allclose(small.fields["vorticity"], curl, rtol=0, atol=1e-13 * scale)
    # lap p = -d_i u_j d_j u_i; quadratic terms are exact on this grid for the modes that are kept.
    source = -np.einsum("ij...,ji...", g, g)
    assert_allclose(small.fields["q_criterion"], source / 2, rtol=0, atol=1e-12 * scale**2)
    square = np.einsum("ij...,jk...->...ik", g, g)
    middle = np.linalg.eigvalsh((square + square.swapaxes(-1, -2)) / 2)[..., 1]
    assert_allclose(small.fields["lambda_2"], middle, rtol=0, atol=1e-12 * scale**2)
    k2 = sum(q * q for q in k)
    integers = np.meshgrid(*(np.fft.fftfreq(n, 1 / n) for n in u.shape[1:]), indexing="ij")
    kept = np.all(
        [abs(q) <= (n - 1) // 3 for q, n in zip(integers, u.shape[1:], strict=True)], axis=0
    )
    modes = np.where(kept & (k2 > 0), np.fft.fftn(source) / np.where(k2 > 0, -k2, 1), 0)
    pressure = np.fft.ifftn(modes).real
    assert_allclose(
        small.fields["pressure"], pressure, rtol=0, atol=1e-13 * abs(pressure).max() * 10
    )


def test_a_users_own_loop_equals_the_run(config, tmp_path):
    """jit(step) in a Python loop, against `run` with the same dt and no aligned event."""
    ran = simulation(
        config, f"output.directory={tmp_path / 'run'}", "output.snapshots=null", "time.stop=0.5"
    )
    assert ran.run() == 0
    own = simulation(config)
    step = jax.jit(own.step)
    state = own.state
    for _ in range(10):
        state = step(state, 0.05)
    assert int(state.step) == 10 and float(state.time) == pytest.approx(0.5)
    stored = contents(committed(tmp_path / "run" / "checkpoints")[-1])["velocity"]
    here = np.asarray(state.fields["velocity"])[:, : stored.shape[1]]
    assert_allclose(here, stored, rtol=0, atol=1e-13)
    # After a run, the state is its last one, and a second run finds it finished.
    assert float(ran.state.time) == 0.5 and float(ran.state.dt) == 0.05
    assert ran.run() == 0
    assert len(table(tmp_path / "run")["step"]) == 11
    assert open_run(tmp_path / "run").snapshots[-1]["velocity"][0, 1, 2, 3] == pytest.approx(
        float(ran.fields["velocity"][0, 1, 2, 3]), rel=1e-13
    )


class Decay(Equation):
    """u_t = -rate u - u^2: a mean of u0 decays as rate / ((1 + rate / u0) exp(rate t) - 1)."""

    evolved = ("u",)
    decay: Positive = 1.0

    def linear(self):
        return {"u": -self.decay + 0 * self.k_squared}

    def products(self, values):
        return {"u": -(values["u"] ** 2)}


BLOCKS = {
    "grid": GridSettings(shape=(12, 8), box=(1.0, 1.0)),
    "time": {"stop": 0.5, "dt": 0.01, "integrator": "etdrk4"},
    "devices": {"count": 2, "platform": "cpu"},
    "initial": {"kind": "random", "fields": {"u": {"variance": 1e-20, "mean": 2, "peak": 10}}},
}


def moments(fields, time):
    return {"mean": fields["u"].mean(), "time_seen": time, "profile": fields["u"].mean(1)}


def described(folder: Path, **blocks) -> Simulation:
    given = {
        "model": Decay,
        "output": {"directory": folder, "slices": {"every": 0.1}},
        **BLOCKS,
        **blocks,
    }
    return Simulation(**given, report=lambda line: None)


def test_a_run_without_a_file(tmp_path):
    """An equation of this module, settings as mappings and objects, and a series by `every`; its
    mean is exact. A notebook shows a table of parameters, the state, and a picture that is a
    PNG."""
    own = described(tmp_path / "run", model={"equation": Decay, "parameters": {"decay": 2.0}})
    own.every(0.1, moments)
    before = own._repr_html_()
    assert "Decay" in before and "step 0, t = 0" in before and "grid.shape" in before
    assert own.run() == 0
    for text in (own._repr_html_(), open_run(tmp_path / "run")._repr_html_()):
        (image,) = re.findall(r"data:image/png;base64,([^']+)'", text)
        assert "step 50, t = 0.5" in text and base64.b64decode(image).startswith(b"\x89PNG")
    series = open_run(tmp_path / "run").series("moments")
    # Rows are taken after the first step at or beyond their time: every tenth of dt = 0.01.
    assert_allclose(series.time, np.arange(6) / 10, rtol=0, atol=1e-12)
    assert_allclose(series["time_seen"][:], series.time, rtol=0, atol=0)
    assert series["profile"].shape == (6, 12)
    exact = 2 / ((1 + 2 / 2.0) * np.exp(2 * series.time) - 1)
    # ETDRK4 with dt = 0.01: (rate dt)^4 = 2.6e-6 of a term of order dt / 100.
    assert_allclose(series["mean"][:], exact, rtol=1e-8)
    assert (tmp_path / "run" / "inputs" / Path(__file__).name).read_bytes() == Path(
        __file__
    ).read_bytes()
    assert own.run() == 0  # says that it is finished


def test_mistakes_name_the_key():
    with pytest.raises(UserError, match=r"^Simulation: grid.shape.1: must be at least 1, not 0$"):
        Simulation(**{**BLOCKS, "model": Decay, "grid": {"shape": [8, 0]}})
    with pytest.raises(
        UserError, match=r"^Simulation: model.parameters.decay: must be greater than 0, not -1"
    ):
        Simulation(**{**BLOCKS, "model": {"equation": Decay, "parameters": {"decay": -1}}})
    with pytest.raises(TypeError, match="not both"):
        Simulation(load_config, **BLOCKS)
    for arguments in (("case.yaml", ["time.stop=1"]), ("case.yaml",), (Path("case.yaml"),)):
        with pytest.raises(
            UserError, match=r"Simulation: takes a configuration, not .*load_config"
        ):
            Simulation(*arguments)
    with pytest.raises(TypeError, match="is not an equation"):
        Simulation(**{**BLOCKS, "model": dict})


def test_a_package_declares_an_equation(tmp_path):
    """An entry point of `simulator.models` is a kind like the others; its parameters are keys of
    the block."""
    (tmp_path / "decays.py").write_text(
        "from simulator.equations import Equation, Positive\n\n\nclass Decay(Equation):\n"
        '    evolved = ("u",)\n    rate_of_decay: Positive\n\n'
        '    def products(self, values):\n        return {"u": -self.rate_of_decay * values["u"]}\n'
    )
    install(tmp_path, "decays", "[simulator.models]\ndecay = decays:Decay\n")
    (tmp_path / "case.yaml").write_text(
        "model: {kind: decay, rate_of_decay: 0.5}\ngrid: {shape: [8, 8]}\n"
        "initial: {kind: random, fields: {u: {mean: 1, peak: 2}}}\ntime: {stop: 1, dt: 0.1}\n"
        "devices: {platform: cpu, count: 1}\n"
    )
    ran = call(
        "run", tmp_path / "case.yaml", "--output", tmp_path / "run", PYTHONPATH=f"{tmp_path}:{ROOT}"
    )
    assert ran.returncode == 0, ran.stderr
    # RK4 with dt = 0.1: (0.5 dt)^5 / 120 a step.
    assert table(tmp_path / "run")["u_mean"][-1] == pytest.approx(np.exp(-0.5), rel=1e-7)
