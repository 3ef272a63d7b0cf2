"""The kinetic energy that modes of a gas gain adds up to the change of the spectrum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flow_support import flow
from measuring import row

WAVES = """
import jax.numpy as jnp


def build(x, y, z):
    return {
        "density": 1 + 0.05 * jnp.cos(x + 0.2) * jnp.sin(2 * y) + 0.04 * jnp.sin(x - z),
        "velocity": (
            jnp.sin(y + 0.3) + 0.2 * jnp.cos(x - z + 0.1),
            jnp.sin(z + x) + 0.6 * jnp.cos(x - 0.9) + 0 * y,
            0.5 * jnp.cos(y - x + 0.7) + 0.4 * jnp.sin(y) + 0 * z,
        ),
    }
"""


def simulated(tmp_path, n, count=1, **model):
    path = tmp_path / "waves.py"
    path.write_text(WAVES)
    model = {"kind": "self_gravitating_gas", "sound_speed": 1.2, "gravitational_constant": 0.5, **model}
    initial = {"kind": "python", "path": str(path), "function": "build"}
    time, output = {"stop": 1.0, "max_dt": 0.1}, {"transfer": {"every": 1}}
    return flow(n, n, n, initial=initial, model=model, time=time, count=count, output=output)


@pytest.mark.parametrize(("gamma", "count"), [(1, 1), (1.5, 3)])
def test_transfers_are_the_change_of_the_spectrum(tmp_path, gamma, count):
    """Without viscosity, shell by shell; on this grid truncation takes less than round-off adds."""
    simulation = simulated(tmp_path, 18, count, polytropic_exponent=gamma)
    model, layout, fields = simulation.model, simulation.transform.layout, simulation.state.fields
    found = {name: v * layout.shell_width for name, v in row(simulation, "transfer").items()}

    @jax.jit
    def change(fields):
        rates, _ = model.tendency(fields, jnp.float64(0))
        return jax.jvp(lambda f: model.spectra(f)["kinetic_energy"], (fields,), (rates,))[1]

    expected = np.asarray(change(fields)) * layout.shell_width
    total = sum(found[f"transfer/{name}"] for name in ("kinetic_energy", "pressure", "gravity"))
    size = abs(found["transfer/kinetic_energy"]).max()
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-12 * size)
    assert abs(found["transfer/kinetic_energy"].sum()) < 1e-13 * size
    assert min(abs(found[f"transfer/{n}"]).max() for n in ("pressure", "gravity")) > 1e-3 * size
