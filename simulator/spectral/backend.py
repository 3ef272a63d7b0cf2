"""The contract of a backend of the distributed transforms."""

from abc import ABC, abstractmethod
from typing import ClassVar

from jax.typing import DTypeLike

from simulator.spectral.candidates import Candidate, Devices, Modes, TransformOptions
from simulator.spectral.transform import Transform


class Backend(ABC):
    """A way to distribute and transform fields, a value of `fft.backend`. A line in
    `backends.BACKENDS` registers it."""

    name: ClassVar[str]

    @abstractmethod
    def candidates(self, modes: Modes, count: int) -> list[Candidate]:
        """The ways to distribute the grid over `count` devices, best first."""

    @abstractmethod
    def most(self, modes: Modes) -> int:
        """The largest number of devices over which the grid can be distributed."""

    def missing(self) -> str:
        """Why no transform can be built here, and the cure; empty if one can."""
        return ""

    @abstractmethod
    def needs(self, modes: Modes) -> str:
        """The conditions on a device count, in words."""

    @abstractmethod
    def build(
        self,
        modes: Modes,
        candidate: Candidate,
        devices: Devices,
        dtype: DTypeLike,
        options: TransformOptions,
    ) -> Transform:
        """The transform that `candidate` describes. Raises UserError for options that the backend
        does not have."""
