"""Schedules: the order in which a device transforms, sends and visits blocks, by what computes."""

from typing import Literal

from simulator.spectral.schedules.gpus import GPUs
from simulator.spectral.schedules.native import Native
from simulator.spectral.schedules.processors import Processors
from simulator.spectral.schedules.xla import XlaSchedule

SCHEDULES: dict[tuple[Literal["cpu", "gpu"], Literal["native", "xla"]], type[XlaSchedule]] = {
    ("cpu", "native"): Native,
    ("cpu", "xla"): Processors,
    ("gpu", "xla"): GPUs,
}
"""The schedule of a platform and the kernels of its local stages."""
