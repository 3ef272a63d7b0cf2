"""Single Fourier modes: given as initial conditions, and followed in time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simulator import Simulation
from simulator.physics.models import State

MODES = """
phase = sum(n * 2 * jnp.pi * c / length for n, c, length in zip(integers, (x, y, z), box))
def wave(re, im):
    return re * jnp.cos(phase) - im * jnp.sin(phase)
fields = {}
for name, (re, im, mean) in amplitudes.items():
    if isinstance(re, (list, tuple)):
        fields[name] = tuple(wave(r, i) + m for r, i, m in zip(re, im, mean))
    else:
        fields[name] = wave(re, im) + mean
return fields
"""


def single_wave(
    folder: Path,
    box: Sequence[float],
    integers: Sequence[int],
    amplitudes: Mapping[str, Any],
    mean: Mapping[str, Any],
) -> dict[str, Any]:
    """An initial condition Re(a exp(i k . x)) + mean for every field; k = 2 pi integers / box."""
    body = "".join(f"    {line}\n" for line in MODES.strip().splitlines())
    path = folder / "wave.py"
    path.write_text(f"import jax.numpy as jnp\n\n\ndef build(x, y, z, integers, box, amplitudes):\n{body}")
    given = {}
    for name, a in amplitudes.items():
        a = np.asarray(a, complex)
        zero = np.zeros(a.shape)
        given[name] = (a.real.tolist(), a.imag.tolist(), np.asarray(mean.get(name, zero), float).tolist())
    parameters = {"integers": list(integers), "box": list(box), "amplitudes": given}
    return {"kind": "python", "path": str(path), "function": "build", "parameters": parameters}


def coefficient(simulation: Simulation, state: State, name: str, integers: Sequence[int]) -> np.ndarray:
    """The coefficient(s) at one mode, with kz > 0."""
    layout = simulation.transform.layout
    at = tuple(
        int(np.flatnonzero(layout.mode_numbers[a] == integers["xyz".index(a)])[0]) for a in layout.order
    )
    return np.asarray(state.fields[name][(..., *at)])


def wavenumber(box: Sequence[float], integers: Sequence[int]) -> np.ndarray:
    return 2 * np.pi * np.asarray(integers) / np.asarray(box)
