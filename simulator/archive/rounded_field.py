"""Rounds fields in shells of wavenumbers on the devices; `simulator.archive.rounding` says how."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator.archive.manifest import UNSIGNED, Axis, Rounding
from simulator.archive.shard import Block, Dataset, own_blocks
from simulator.archive.stored_state import spectral_axes
from simulator.simulation.placement import Placement
from simulator.spectral import Transform

_PASSES = 6
"""Passes that adjust the steps. The first half of them also raises steps: a shell may have fewer
modes than places, or its energy in a few of them."""
_ADJUSTED = 0.9, 2.0
"""The least and the largest factor of a pass: the error of a few modes may change far by chance."""
_AIM = 0.98
_ROUND_OFF = 4.0
"""Round-off of the values at the points, relative to their root mean square and the precision."""
_SURE = 0.95
"""Steps of this times error |u| / sqrt(n), where n numbers make up a shell, are small enough for
any digits: |du| <= step sqrt(n) / 2, and |dE| / E <= 2 |du| / |u| + (|du| / |u|)^2."""


@dataclass(frozen=True, kw_only=True)
class RoundedDataset(Dataset):
    """A field with its integers on the devices. Only the entries `places` along each axis, those
    of the record's axes, are stored."""

    integers: Dataset
    places: tuple[np.ndarray, ...]

    def blocks(self, process_id: int, dtype: np.dtype) -> list[Block]:
        blocks = []
        for block in own_blocks(self.integers, process_id, dtype):
            data = block.data
            start = []
            for i, (places, first) in enumerate(zip(self.places, block.start, strict=True)):
                axis = data.ndim - len(self.places) + i
                begin, end = np.searchsorted(places, [first, first + data.shape[axis]])
                start.append(int(begin))
                data = np.take(data, places[begin:end] - first, axis)
            if data.size:
                blocks.append(Block(tuple(start), np.ascontiguousarray(data)))
        return blocks


class Rounder:
    """Rounds fields of a run, each to the relative error `asked` in every shell."""

    def __init__(self, placement: Placement, asked: float) -> None:
        self._asked = asked
        transform = partial(placement.transform, exchange="full", every=True)
        self._transform = lru_cache(lambda real: transform(real=real))
        self.program = lru_cache(lambda real: _program(self._transform(real), asked))

    def rounded(self, dataset: Dataset) -> Dataset:
        """The rounded field; the field itself if it is not finite everywhere. Collective."""
        real = dataset.dtype.kind == "f"
        integers, found = self.program(real)(dataset.array)
        found = jax.device_get(found)
        if not np.isfinite(found.rms):
            return dataset
        layout = self._transform(real).layout
        axes = spectral_axes(layout)
        halved = dataset.axes[-1].name if real else ""
        places = tuple(
            _places(axis, used, axis.name == halved)
            for axis, used in zip(axes, found.used, strict=True)
        )
        record = Rounding(
            asked=self._asked,
            measured=float(found.measured),
            rms=float(found.rms),
            maximum=float(found.maximum),
            dtype=next(t for t in UNSIGNED if found.largest <= np.iinfo(t).max),
            axes=tuple(
                Axis.modes(axis.name, axis.coordinates[there], axis.points)
                for axis, there in zip(axes, places, strict=True)
            ),
            shell_width=layout.shell_width,
            steps=found.steps.tolist(),
            energies=found.energies.tolist(),
            mean=found.mean.ravel().tolist(),
        )
        parts = (*dataset.components, ("re", "im"))
        whole = Dataset(dataset.name, integers, axes, parts)
        said = {"error_asked": record.asked, "error_measured": record.measured}
        described = {**vars(dataset), "attributes": {**dataset.attributes, **said}}
        described["rounding"] = record
        return RoundedDataset(**described, integers=whole, places=places)


def _places(axis: Axis, used: np.ndarray, is_half: bool) -> np.ndarray:
    """The entries up to the largest wavenumber that has a number other than zero; of an axis of
    which half is stored, one for each wavenumber and its opposite."""
    labels = axis.coordinates
    largest = max(abs(labels[used[: axis.size]]), default=0)
    there = abs(labels) <= largest
    if is_half:
        there &= (labels >= 0) | (2 * abs(labels) == axis.points)
    return np.flatnonzero(there)


class _Found(NamedTuple):
    """The numbers of a record, on every device. `largest`: the largest integer. `used`: for each
    axis, the entries with an integer other than zero."""

    measured: jax.Array
    rms: jax.Array
    maximum: jax.Array
    steps: jax.Array
    energies: jax.Array
    mean: jax.Array
    largest: jax.Array
    used: tuple[jax.Array, ...]


class _Shells:
    """Sums over shells of numbers (component, part, modes); shell 0 is the box mean."""

    def __init__(self, transform: Transform, components: int) -> None:
        layout = self.layout = transform.layout
        self.transform = transform
        self.components = components
        self.weight = layout.weight(jnp.float64)
        self.count = layout.shells + 1
        self.numbers = jnp.where(layout.zero, 0, layout.shell_numbers() + 1)
        modes = jnp.broadcast_to(self.weight, layout.shape)
        self.modes = layout.binned(self.numbers, modes[None], self.count)[0]

    def total(self, parts: jax.Array) -> jax.Array:
        summed = self.weight * parts.sum((0, 1))
        return self.layout.binned(self.numbers, summed[None], self.count)[0]

    def integers(self, parts: jax.Array, steps: jax.Array) -> jax.Array:
        step = steps[self.numbers]
        return jnp.where(step > 0, jnp.rint(parts / jnp.where(step > 0, step, 1)), 0)

    def errors(self, parts: jax.Array, energies: jax.Array, steps: jax.Array) -> jax.Array:
        """The error of each shell: of its coefficients or of its energy, whichever is larger."""
        rounded = self.integers(parts, steps) * steps[self.numbers]
        change = rounded - parts
        whole = jnp.where(steps > 0, energies, 1)
        of_field = jnp.sqrt(self.total(change**2) / whole)
        of_energy = abs(self.total(change * (rounded + parts))) / whole
        return jnp.where(steps > 0, jnp.maximum(of_field, of_energy), 0)

    def steps(self, parts: jax.Array, energies: jax.Array, asked: float) -> jax.Array:
        """Steps with which no error exceeds `asked`; 0 for the box mean and for shells below the
        round-off of values at the points."""
        eps = _ROUND_OFF * float(jnp.finfo(self.transform.dtype).eps)
        round_off = eps**2 / self.transform.grid.points * energies.sum()
        above = (energies > self.modes * round_off) & (jnp.arange(self.count) > 0)
        numbers = 2 * self.components * jnp.maximum(self.modes, 1)
        amplitudes = jnp.where(above, jnp.sqrt(energies / numbers), 0)

        def adjusted(number: jax.Array, steps: jax.Array) -> jax.Array:
            errors = self.errors(parts, energies, steps)
            factors = jnp.clip(_AIM * asked / errors, *_ADJUSTED)
            low = (errors < _ADJUSTED[0] * asked) & (number < _PASSES // 2)
            return jnp.where((errors > asked) | low, steps * factors, steps)

        steps = lax.fori_loop(0, _PASSES, adjusted, 12**0.5 * asked * amplitudes)
        too_large = self.errors(parts, energies, steps) > asked
        return jnp.where(too_large, _SURE * asked * amplitudes, steps)


def _program(transform: Transform, asked: float) -> Callable[[jax.Array], tuple[jax.Array, _Found]]:
    """The compiled function from values (..., x, y, z) to integers (..., part, modes) and their
    record."""
    layout, physical = transform.layout, transform.physical

    def rounded(given: jax.Array) -> tuple[jax.Array, _Found]:
        values = physical.whole(given, "rounding")
        lead = values.shape[:-3]
        values = values.reshape(-1, *values.shape[-3:])
        modes = transform.forward(values)
        parts = jnp.stack([modes.real, modes.imag], axis=1).astype(jnp.float64)
        shells = _Shells(transform, len(values))
        energies = shells.total(parts**2)
        steps = shells.steps(parts, energies, asked)
        integers = shells.integers(parts, steps)

        def added(
            squares: jax.Array, component: tuple[jax.Array, jax.Array]
        ) -> tuple[jax.Array, None]:
            part, value = component
            kept = jnp.where(
                shells.numbers == 0, part, shells.integers(part, steps) * steps[shells.numbers]
            )
            back = transform.inverse((kept[0] + 1j * kept[1]).astype(transform.complex_dtype))
            return squares + (abs(back - value) ** 2).astype(jnp.float64), None

        # One component after the other takes less memory.
        nothing = jnp.zeros(physical.shape)
        squares, _ = lax.scan(added, nothing, (parts, values))
        scale = jnp.where(energies.sum() > 0, energies.sum(), 1)
        axes = [layout.order.index(axis) + 2 for axis in layout.seen_order]
        kind = _unsigned(asked, transform, len(values))
        found = _Found(
            measured=shells.errors(parts, energies, steps).max(),
            rms=jnp.sqrt(physical.mean(squares) / scale),
            maximum=jnp.sqrt(physical.max(squares) / scale),
            steps=steps,
            energies=energies,
            mean=jnp.where(shells.numbers == 0, parts, 0).sum((2, 3, 4)),
            largest=jnp.where(integers < 0, -2 * integers - 1, 2 * integers).max(),
            used=tuple(jnp.any(integers != 0, [i for i in range(5) if i != a]) for a in axes),
        )
        stored = jnp.where(integers < 0, -2 * integers - 1, 2 * integers).astype(kind)
        return layout.as_seen(stored.reshape(*lead, *stored.shape[1:])), found

    def program(values: jax.Array) -> tuple[jax.Array, _Found]:
        rank = values.ndim + 1
        out = layout.seen_sharding(rank), layout.everywhere
        return jax.jit(rounded, out_shardings=out)(values)

    return program


def _unsigned(asked: float, transform: Transform, components: int) -> np.dtype:
    """The type of the integers on the devices: the largest is that of a shell with all of its
    energy in one mode, whose step is not reduced."""
    numbers = 2 * components * transform.grid.points
    return np.dtype(np.uint32 if 2 * (numbers / 12) ** 0.5 / asked < 2**31 else np.uint64)
