"""The input of a save: an array, its named axes, and their extents without padding.

A field on the devices is an array of shape (components..., n0, n1, ...) whose trailing axes are named.
Sharded axes may be padded at their end; only the first `Axis.size` entries are stored. Axes of physical
space carry a spacing, axes of spectral space the signed integer wavenumber of every entry, so that a
reader matches modes by wavenumber, not by position.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")


class Axis(BaseModel):
    """One named axis of a stored array, without padding.

    `size`: number of entries. Spectral axes: `labels`, the signed wavenumber of each entry, and `points`,
    the number of grid points (it tells that +points/2 and -points/2 are the same mode). Physical axes:
    entry i lies at `origin + i * spacing`, both in the run's unit of length.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    size: int
    labels: tuple[int, ...] | None = None
    points: int | None = None
    spacing: float | None = None
    origin: float = 0.0

    @model_validator(mode="after")
    def _check(self) -> "Axis":
        if self.size < 0 or not _NAME.fullmatch(self.name):
            raise ValueError(f"axis {self.name!r} of size {self.size}")
        if self.labels is not None and (len(self.labels) != self.size or len(set(self.labels)) != self.size):
            raise ValueError(f"axis {self.name}: {self.size} different labels are needed")
        return self

    @classmethod
    def modes(
        cls, name: str, labels: Sequence[int] | np.ndarray, size: int | None = None, points: int | None = None
    ) -> "Axis":
        """A spectral axis. `labels` may continue into the padding; the first `size` of them count."""
        size = len(labels) if size is None else size
        return cls(name=name, size=size, labels=tuple(int(k) for k in labels[:size]), points=points)

    @classmethod
    def uniform(cls, name: str, size: int, spacing: float, origin: float = 0.0) -> "Axis":
        """An axis of physical space."""
        return cls(name=name, size=size, spacing=spacing, origin=origin)

    @property
    def coordinates(self) -> np.ndarray:
        """Wavenumber labels, positions, or plain indices, shape (size,)."""
        if self.labels is not None:
            return np.array(self.labels, dtype=np.int64)
        if self.spacing is not None:
            return self.origin + self.spacing * np.arange(self.size)
        return np.arange(self.size)


@dataclass(frozen=True)
class Dataset:
    """An array to be stored under `name`.

    `array`: jax.Array (sharded in any way over its trailing axes, replicated, or both), or any array-like
    that has the same value on every process.
    `axes`: descriptions of the trailing axes; an array without them (a counter, a time) is small and stored
    exactly as it is.
    `components`: names along each leading axis, e.g. `(("x", "y", "z"),)`.
    `hermitian`: whether these are modes of a real field, with mode -k the conjugate of mode k.
    `species`: name of the particles that this is a record of; None for fields.
    `shares`: for particles, whose entries lie along the last axis in equal parts: the number of entries of each part
    that are stored, counted from its first. In the file the parts follow each other, and the axis counts their sum.
    `attributes`: further JSON values for readers.
    """

    name: str
    array: Any
    axes: tuple[Axis, ...] = ()
    components: tuple[tuple[str, ...], ...] = ()
    hermitian: bool = False
    species: str | None = None
    shares: tuple[int, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [self.name, *(a.name for a in self.axes)]
        if not all(_NAME.fullmatch(n) for n in names):
            raise ValueError(f"data set {self.name!r}: names start with a letter and contain no slash")
        shape = self.shape
        if not self.axes:
            object.__setattr__(
                self, "axes", tuple(Axis(name=f"dim_{i}", size=n) for i, n in enumerate(shape))
            )
        leading = tuple(len(c) for c in self.components)
        if len(shape) != len(leading) + len(self.axes) or shape[: len(leading)] != leading:
            raise ValueError(
                f"data set {self.name}: shape {shape} for components {leading} and "
                f"axes {[a.name for a in self.axes]}"
            )
        for axis, n in zip(self.axes, shape[len(leading) :], strict=True):
            if axis.size > n:
                raise ValueError(f"data set {self.name}: axis {axis.name} has {n} entries, not {axis.size}")
        if self.shares and (sum(self.shares) != self.axes[-1].size or shape[-1] % len(self.shares)):
            raise ValueError(f"data set {self.name}: {len(self.shares)} shares of {sum(self.shares)} entries")
        if self.dtype.kind not in "biufc" or self.dtype.name == "float16":
            raise ValueError(f"data set {self.name}: cannot store {self.dtype}")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(np.shape(self.array))

    @property
    def is_whole(self) -> bool:
        """Whether this process can address the whole array."""
        return not isinstance(self.array, jax.Array) or self.array.is_fully_addressable

    @property
    def dtype(self) -> np.dtype:
        return (
            np.dtype(self.array.dtype) if isinstance(self.array, jax.Array) else np.asarray(self.array).dtype
        )


def component_names(components: Sequence[Sequence[str]]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Index and name of every component: `(0,), "x"`; of a tensor `(0, 1), "xy"`; of a scalar `(), ""`."""
    separator = "" if all(len(n) == 1 for names in components for n in names) else "_"
    for index in itertools.product(*(range(len(names)) for names in components)):
        yield index, separator.join(names[i] for names, i in zip(components, index, strict=True))
