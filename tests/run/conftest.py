"""The eight virtual devices start before a simulation asks for fewer."""

import jax
import pytest


@pytest.fixture(scope="session", autouse=True)
def started() -> None:
    jax.devices()
