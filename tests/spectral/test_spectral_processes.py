"""Two real processes, joined by jax.distributed on loopback, compute what one computes."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from simulator.spectral import Grid, make_transform
from simulator.spectral.random import gaussian

SCRIPT = Path(__file__).with_name("two_processes.py")


def two_processes() -> list[dict]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    root = str(SCRIPT.parents[2])
    env = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    children = [
        subprocess.Popen([sys.executable, str(SCRIPT), str(i), str(port)], stdout=subprocess.PIPE, text=True, env=env)
        for i in range(2)
    ]
    try:
        outputs = [child.communicate(timeout=150)[0] for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0, 0]
    # Gloo tells on stdout whom it connects.
    return [json.loads(next(line for line in out.splitlines() if line.startswith("{"))) for out in outputs]


@pytest.mark.spmd
def test_two_processes_of_two_devices():
    first, second = two_processes()
    assert first == second
    t = make_transform(Grid((8, 12, 16)), jax.devices()[:1])
    u = gaussian(t.layout, 1, 3)
    largest = float(t.inverse(u)[0].max())
    energy = float(t.layout.inner(u, u).sum())
    # Inverse, forward, and both ways of the term; jaxDecomp sends every component by itself.
    exchanges = {"custom_partitioning_z_y_x": 4 * 2, "jaxdecomp_slab": 3 + 3 + 6 + 3}
    assert first.keys() == exchanges.keys()
    for name, found in first.items():
        triple, maximum, mean, difference = found["values"]
        assert abs(triple) < 1e-12  # u x u = 0
        assert abs(maximum - largest) < 1e-13 * largest
        assert abs(mean - energy) < 1e-13 * energy
        assert difference < 1e-13
        assert found["collectives"] == {"all-to-all": exchanges[name]}
