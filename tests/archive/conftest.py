"""Eight virtual CPU devices for the layouts, where nothing has started JAX before."""

import contextlib

import jax
import pytest

jax.config.update("jax_enable_x64", True)
with contextlib.suppress(RuntimeError):
    jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(scope="session")
def devices() -> list:
    found = jax.devices()
    if len(found) < 8:
        pytest.skip(f"{len(found)} devices, the layouts need 8")
    return found[:8]
