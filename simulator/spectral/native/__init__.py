"""Stages of distributed transforms in native code, for processors."""

from typing import Literal

from simulator.errors import UserError
from simulator.spectral.candidates import Kernels
from simulator.spectral.native.build import Unavailable
from simulator.spectral.native.library import load, missing

__all__ = ["Unavailable", "chosen", "described", "load", "missing"]


def chosen(kernels: Kernels, platform: str) -> Literal["native", "xla"]:
    """The kernels that `kernels` selects on a platform (cpu, gpu). Raises UserError if `native` is not available."""
    if kernels == "native":
        if platform != "cpu":
            raise UserError(f"fft.kernels: native is for processors, not for {platform}; auto or xla works")
        if (reason := missing()) is not None:
            raise UserError(f"fft.kernels: native: {reason}; fft.kernels: auto or xla needs none")
        return "native"
    return "native" if kernels == "auto" and platform == "cpu" and missing() is None else "xla"


def described(kernels: str, platform: str) -> str:
    """The kernels in use, in words: `native (avx512)`, or `xla`, with the reason if native ones are missing."""
    if kernels == "native":
        return f"native ({load().variant})"
    reason = missing() if platform == "cpu" else None
    return "xla" if reason is None else f"xla ({reason})"
