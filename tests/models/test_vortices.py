"""Vortex lines through the faces of the grid."""

from pathlib import Path

import gravity_cases as cases
from gravity_cases import WAVE, measured

CONFIGS = Path(__file__).parents[2] / "configs"


def test_straight_lines_pierce_every_plane_once() -> None:
    """The four lines of the shipped configuration: one face each in each of the 4 planes, on 1 and 2 devices; a wave
    without zeros has none."""
    path = CONFIGS / "vortices.py"
    shipped = f"initial={{kind: python, path: {path}, function: build, parameters: {{healing: 0.3}}}}"
    for devices in (1, 2):
        run = cases.simulation(WAVE, "grid.shape=24,20,4", "grid.box=2*pi,2*pi,1", shipped, devices=devices)
        assert measured(run)["vortex_faces"] == 16
    flat = cases.simulation(WAVE, python='{"psi": jnp.exp(1j * (x + 2 * y)) * (2 + jnp.sin(z))}')
    assert measured(flat)["vortex_faces"] == 0
