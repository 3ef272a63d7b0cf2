"""Vortex lines through the faces of the grid."""

from pathlib import Path

import gravity_cases as cases
import jax
import numpy as np
from gravity_cases import WAVE, measured

from simulator.physics.models.wave_functions import pierced_faces

CONFIGS = Path(__file__).parents[2] / "configs"


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


def test_lines_that_cross_the_borders_of_shards_count_once() -> None:
    """A tangle on 1 and on 4 devices, 14 planes on 4, pencils and jaxDecomp: every face is seen by one device, none
    twice."""
    faces = []
    for devices, fft in ((1, {}), (4, {}), (4, {"decomposition": "pencil"}), (2, {"backend": "jaxdecomp"})):
        given = ("grid.shape=16,14,10", "grid.box=2*pi,2*pi,2*pi", *(f"fft.{k}={v}" for k, v in fft.items()))
        run = cases.simulation(WAVE, *given, devices=devices, python=f'{{"psi": {TANGLE}}}')
        faces.append(int(jax.jit(lambda f, r=run: pierced_faces(r.transform, f["psi"]))(run.state.fields)))
    assert set(faces) == {_faces(run.fields["psi"])} and faces[0] > 0


def _faces(psi) -> int:
    """The same count from whole arrays."""
    angle, total = np.angle(np.asarray(psi)), 0
    for a, b in ((0, 1), (1, 2), (2, 0)):
        corners = [angle, np.roll(angle, -1, a), np.roll(angle, (-1, -1), (a, b)), np.roll(angle, -1, b)]
        turns = [(q - p + np.pi) % (2 * np.pi) - np.pi for p, q in zip(corners, [*corners[1:], angle], strict=True)]
        total += int(abs(np.rint(sum(turns) / (2 * np.pi))).sum())
    return total


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
