"""Stages of distributed transforms in native code, for processors."""

import ctypes
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal

import jax
import numpy as np

from simulator.errors import UserError
from simulator.spectral.candidates import Kernels
from simulator.spectral.native.build import Unavailable, library, sources_hash

__all__ = ["Unavailable", "chosen", "described", "load", "missing"]


def chosen(kernels: Kernels, platform: str) -> Literal["native", "xla"]:
    """The kernels that `kernels` selects on a platform (cpu, gpu). Raises UserError if `native` is
    not available."""
    if kernels == "native":
        if platform != "cpu":
            raise UserError(
                f"fft.kernels: native is for processors, not for {platform}; auto or xla works"
            )
        if (reason := missing()) is not None:
            raise UserError(f"fft.kernels: native: {reason}; fft.kernels: auto or xla works")
        return "native"
    return "native" if kernels == "auto" and platform == "cpu" and missing() is None else "xla"


def described(kernels: str, platform: str) -> str:
    """The kernels in use, in words: `native (avx512)`, or `xla`, with the reason if native ones are
    missing."""
    if kernels == "native":
        return f"native ({load().variant})"
    reason = missing() if platform == "cpu" else None
    return "xla" if reason is None else f"xla ({reason})"


STAGE = "simulator_stage"
EVALUATE = "simulator_evaluate"
BLANK = "simulator_blank"
WEAVE = "simulator_weave"
GATHER = "simulator_gather"
DEPOSIT = "simulator_deposit"
SORT = "simulator_sort"
KICK = "simulator_kick"
DRIFT = "simulator_drift"
ADVANCE = "simulator_advance"
LEAVE = "simulator_leave"
RESTORE = "simulator_restore"
PARTICLES = (WEAVE, GATHER, DEPOSIT, SORT, KICK, DRIFT, ADVANCE, LEAVE, RESTORE)
TARGETS = (STAGE, EVALUATE, BLANK, *PARTICLES)
"""Targets of `jax.ffi.ffi_call`."""


class Library:
    """The functions of the kernels' library. Raises Unavailable if the library cannot be built or
    loaded."""

    def __init__(self, environ: Mapping[str, str]):
        try:
            self._functions = self._loaded(str(library(environ)))
        except OSError:  # built for another system, or truncated
            try:
                self._functions = self._loaded(str(library(environ, anew=True)))
            except OSError as error:
                raise Unavailable(f"the compiled library does not load: {error}") from None
        for name in TARGETS:
            target = jax.ffi.pycapsule(getattr(self._functions, name))
            jax.ffi.register_ffi_target(name, target, platform="cpu")

    @staticmethod
    def _loaded(path: str) -> ctypes.CDLL:
        functions = ctypes.CDLL(path)
        functions.simulator_key.restype = ctypes.c_char_p
        if functions.simulator_key().decode() != sources_hash():
            raise OSError("built from other sources")
        functions.simulator_variant.restype = ctypes.c_char_p
        functions.simulator_scratch.restype = ctypes.c_int64
        functions.simulator_scratch.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
        functions.simulator_evaluation.restype = None
        functions.simulator_evaluation.argtypes = [
            *[ctypes.c_void_p] * 3,
            ctypes.c_int,
            ctypes.c_void_p,
        ]
        return functions

    @property
    def variant(self) -> str:
        """The instructions in use: avx512, avx2 or baseline."""
        return self._functions.simulator_variant().decode()

    def choose(self, variant: str) -> bool:
        """Selects another variant; False if this processor lacks it. For tests."""
        return bool(self._functions.simulator_choose(variant.encode()))

    def scratch_bytes(self, geometry: Sequence[int], double: bool) -> int:
        """Scratch memory of a stage in bytes."""
        numbers = np.asarray(geometry, np.int64)
        size = self._functions.simulator_scratch(numbers.ctypes.data, len(numbers), double)
        if size < 0:
            raise ValueError(f"{len(numbers)} numbers do not describe a stage")
        return size

    def evaluation(
        self,
        to_points: Sequence[int],
        to_modes: Sequence[int],
        sizes: Sequence[int],
        double: bool,
    ) -> tuple[int, int]:
        """Scratch memory in bytes that a thread needs for an evaluation, and its units."""
        arrays = [np.asarray(numbers, np.int64) for numbers in (to_points, to_modes, sizes)]
        found = np.zeros(2, np.int64)
        addresses = [array.ctypes.data for array in arrays]
        self._functions.simulator_evaluation(*addresses, double, found.ctypes.data)
        return int(found[0]), int(found[1])


@cache
def _outcome() -> Library | Unavailable:
    try:
        return Library(os.environ)
    except Unavailable as reason:
        return reason


def load() -> Library:
    """The library of this process, built and loaded by the first call. Raises Unavailable."""
    outcome = _outcome()
    if isinstance(outcome, Unavailable):
        raise outcome
    return outcome


def missing() -> str | None:
    """The reason why native kernels are unavailable; None if they are available."""
    outcome = _outcome()
    return str(outcome) if isinstance(outcome, Unavailable) else None
