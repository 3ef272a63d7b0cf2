"""The eight virtual devices start before a simulation asks for fewer."""

import sys
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "validation"))  # flow_support


@pytest.fixture(scope="session", autouse=True)
def started() -> None:
    jax.devices()
