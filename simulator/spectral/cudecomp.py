"""The backend `cudecomp`: jaxDecomp's transforms with NVIDIA's cuDecomp, for GPUs.

cuDecomp measures transposes over NCCL and NVSHMEM and takes the fastest. jaxDecomp from the package index is built
without it: it has to be compiled with CUDA, and then registers cuDecomp's functions. Layouts, modes and restrictions
are those of `jaxdecomp`. https://github.com/NVIDIA/cuDecomp
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simulator.errors import UserError
from simulator.spectral import jaxdecomp
from simulator.spectral.candidates import Candidate, Devices, Kernels, Modes
from simulator.spectral.exchange import Kind
from simulator.spectral.jaxdecomp import JaxdecompTransform, most, needs

__all__ = ["NAME", "build", "candidates", "missing", "most", "needs"]

NAME = "cudecomp"


def _functions() -> Mapping[str, Any]:
    """The functions for GPUs that jaxDecomp has registered; none in a build without CUDA."""
    from jaxdecomplib import _jaxdecomp

    return _jaxdecomp.registrations()


def missing() -> str | None:
    """What this machine lacks for the backend."""
    if _functions():
        return None
    return (
        "cudecomp needs jaxDecomp compiled with CUDA; this one is not: jaxdecomp or custom_partitioning works"
    )


def candidates(modes: Modes, count: int) -> list[Candidate]:
    """The ways to distribute the grid over `count` devices, best first."""
    return [replace(candidate, backend=NAME) for candidate in jaxdecomp.candidates(modes, count)]


def build(
    modes: Modes,
    candidate: Candidate,
    devices: Devices,
    dtype: Any,
    block: int | None,
    sequential: bool = False,
    platform: str | None = None,
    kernels: Kernels = "auto",
    exchange: Kind = "full",
    members: int = 1,
) -> JaxdecompTransform:
    if (platform or devices[0].platform) == "cpu":
        raise UserError(f"fft.backend: {NAME} needs GPUs; jaxdecomp or custom_partitioning works")
    return jaxdecomp.build(
        modes, candidate, devices, dtype, block, sequential, platform, kernels, exchange, members
    )
