"""Small simulations that the tests of gravity and of particles share, without files of a run."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import jax
import numpy as np
from plugin_parts import need_plugins_of
from storage_support import save

from simulator import Simulation, load_config
from simulator.archive.shard import Dataset
from simulator.archive.stored_state import component_labels, datasets, physical_axes
from simulator.cluster import discover
from simulator.cluster.start import Cluster
from simulator.physics.models import State
from simulator.simulation.advance import Until

WAVE = """\
model: {kind: schrodinger_poisson}
grid: {shape: [8, 8, 8]}
initial: {kind: uniform}
time: {stop: 1.0, dt: 0.01}
"""
CLUMPS = (
    '{"density": 1 + 0.3 * jnp.cos(x) * jnp.sin(y + z), '
    '"velocity": [0.3 * jnp.sin(y) + 0 * z + 0 * x, 0.2 * jnp.cos(x + z) + 0 * y, 0.1 * jnp.sin(x) + 0 * y + 0 * z]}'
)
"""The start of a gas, as the expression of `fields`."""
GAS = """\
model: {kind: self_gravitating_gas, sound_speed: 1.0}
grid: {shape: [16, 16, 16]}
initial: {kind: uniform}
time: {stop: 1.0, dt: 0.01}
"""
MATTER = """\
model: {kind: composite, components: [{kind: particles, name: dark, count: 512}]}
grid: {shape: [8, 8, 8]}
initial: {kind: composite, components: {dark: {kind: jeans_wave, amplitude: 0.2, mode: [1, 1, 0]}}}
time: {stop: 1.0, dt: 0.05}
"""


@cache
def folder() -> Path:
    return Path(mkdtemp(prefix="gravity"))


def source(code: str) -> Path:
    """A Python file with `code`."""
    path = folder() / f"source_{abs(hash(code))}.py"
    path.write_text("import jax.numpy as jnp\n\n" + code)
    return path


def fields(expression: str) -> Path:
    """A Python file with a function `build(x, y, z)` that gives the initial fields."""
    return source(f"def build(x, y, z):\n    return {expression}\n")


def simulation(
    text: str, *overrides: str, devices: int = 1, python: str | None = None
) -> Simulation:
    """A configuration's simulation on so many devices; `python` is the expression of `fields` for
    the start. Skips the rest of a test where a plugin is absent."""
    need_plugins_of(text, overrides)
    path = folder() / "run.yaml"
    path.write_text(text)
    if python is not None:
        overrides = (
            *overrides,
            f"initial={{kind: python, path: {fields(python)}, function: build}}",
        )
    return Simulation(load_config(path, overrides), cluster=on_devices(devices))


def on_devices(count: int) -> Cluster:
    return Cluster(discover({}), "cpu", tuple(jax.devices()[:count]))


def stepped(run: Simulation, state: State, duration: float, steps: int) -> State:
    """The state after equal steps, in one loop that is compiled once for each simulation."""
    if not hasattr(run, "march"):

        @jax.jit
        def march(state: State, dt, steps) -> State:
            return jax.lax.fori_loop(0, steps, lambda i, s: run.step(s, dt), state)

        run.march = march
    return run.march(state, duration / steps, steps)


def advanced(run: Simulation, state: State, stop: float, steps: int = 10**6) -> State:
    return run.advance(state, Until(stop, np.inf, steps))


def native_and_xla(case, devices, steps, *overrides):
    """For each kind of particles those at the start and after steps by native kernels, and both
    by XLA."""
    found = []
    for kernels in ("native", "xla"):
        run = simulation(case, f"fft.kernels={kernels}", *overrides, devices=devices)
        found.append([by_id(particles) for particles in run.state.particles.values()])
        state = advanced(run, run.state, 9.0, steps)
        found.append([by_id(particles) for particles in state.particles.values()])
    return zip(*found, strict=True)


def stored(run: Simulation, place: Path, kind: str, *names: str) -> str:
    """A snapshot (of these fields, by default those of the state) or checkpoint of the run's start,
    as `initial`."""
    if kind == "checkpoint":
        found = datasets(run.state, run.model)
    else:
        axes = physical_axes(run.transform)
        values = {n: run.field_program(n)(run.state) for n in names or run.model.fields}
        found = [Dataset(n, v, axes, component_labels(v.shape[:-3])) for n, v in values.items()]
    save(place, 0, found, {"time": 0.0, "box": list(run.grid.box)})
    return f"initial={{kind: snapshot, path: {place / '00000000'}}}"


def coefficient(run: Simulation, field: jax.Array, mode: Sequence[int]) -> complex:
    """One coefficient of a spectral field of a simulation."""
    layout = run.transform.layout
    here: Any = True
    for axis, number in zip("xyz", mode, strict=True):
        here = here & (np.asarray(layout.integers(axis)) == number)
    return complex(np.asarray(field)[np.broadcast_to(here, field.shape)].item())


def modes(run: Simulation, name: str) -> dict[tuple[int, int, int], np.ndarray]:
    """The coefficients of a field by signed integers (kx, ky, kz)."""
    layout = run.model.transforms[name].layout
    field = np.asarray(run.state.fields[name])
    found = {}
    for place in np.ndindex(*layout.valid):
        k = {a: int(layout.mode_numbers[a][i]) for a, i in zip(layout.order, place, strict=True)}
        found[k["x"], k["y"], k["z"]] = field[(..., *place)]
    return found


def by_id(particles: Any) -> dict[str, np.ndarray]:
    """All records in the order of the ids, which have to be 0, 1, 2, ..."""
    ids = np.asarray(particles.id)
    order = np.argsort(ids[ids >= 0])
    assert (ids[ids >= 0][order] == np.arange(len(order))).all()
    return {name: np.asarray(a)[..., ids >= 0][..., order] for name, a in particles.records.items()}
