"""The caller's side of storage: the other processes, and the options of a save."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from simulator.archive.shard import load_filters
from simulator.errors import UserError

Hook = Callable[[str], None]
STAGES = (
    "copied",  # host copies taken, nothing on disk
    "folder made",  # the temporary folder exists
    "shard written",  # this process's shard is synced and has its name
    "gathered",  # the records of all processes are known
    "manifest written",  # synced, in the temporary folder
    "before rename",  # all names synced, nothing committed
    "moved aside",  # an older folder of the same step, if any, has been renamed
    "renamed",  # committed
    "committed",  # and durable
    "index written",
    "done",  # every process knows
)
"""The stages of a save in order; the hook is called with each name when the stage is reached."""


def no_hook(stage: str) -> None:
    """The default hook does nothing."""


class Processes(Protocol):
    """The part of `processes.start.Cluster` that storage uses. All methods are collective."""

    @property
    def process_id(self) -> int: ...
    @property
    def num_processes(self) -> int: ...
    def any(self, flags: np.ndarray) -> np.ndarray: ...
    def gather(self, value: Any, /) -> list[Any]: ...
    def broadcast(self, value: Any, /) -> Any: ...


@dataclass(frozen=True)
class Alone:
    """A single process: every collective is trivial."""

    process_id: int = 0
    num_processes: int = 1

    def any(self, flags: np.ndarray) -> np.ndarray:
        return np.asarray(flags)

    def gather(self, value: Any, /) -> list[Any]:
        return [value]

    def broadcast(self, value: Any, /) -> Any:
        return value


ALONE = Alone()


@dataclass(frozen=True)
class Options:
    """How a snapshot or checkpoint is written.

    `compression`: none, gzip or blosc2 (all lossless; blosc2 needs the package hdf5plugin).
    `precision`: `single` rounds fields over space or wavenumbers to 32 bits; small arrays stay exact.
    `index`: also write the index of virtual data sets and the VTKHDF sidecar.
    `require_finite`: refuse to commit NaNs and infinities.
    """

    compression: str = "none"
    precision: Literal["keep", "single"] = "keep"
    index: bool = True
    require_finite: bool = True

    def __post_init__(self) -> None:
        load_filters(self.compression)
        if self.precision not in ("keep", "single"):
            raise UserError(f"precision {self.precision!r}: keep or single")

    def dtype(self, dtype: np.dtype, is_mesh: bool) -> np.dtype:
        """The type in which an array of `dtype` is stored."""
        if self.precision == "single" and is_mesh and dtype.kind in "fc":
            return np.dtype(np.float32 if dtype.kind == "f" else np.complex64)
        return dtype
