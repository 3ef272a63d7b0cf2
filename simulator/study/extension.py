"""The part of a plugin in a study: a block of the study's file."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from simulator.config import RunConfig
from simulator.settings import Settings
from simulator.study.planned import PlannedSweep


class StudyBlock(Settings):
    """A block of a study's file that a plugin adds by the entry point `study.NAME` of
    `simulator.settings`. A study whose file lacks the block has one with its defaults."""

    attributes: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Attributes of `Sweep` by name: functions of the sweep."""

    def configured(self, config: RunConfig) -> RunConfig:
        """The configuration of a run of a study whose file has the block."""
        return config

    def parts(self, study: PlannedSweep) -> Mapping[str, Sequence[int]]:
        """The numbers of the runs of each part of the study, by the part's name."""
        return {}

    def shown(self, study: PlannedSweep) -> Mapping[str, Any]:
        """Further rows of the screen that shows the study."""
        return {}

    def following(self, study: PlannedSweep) -> Sequence[str]:
        """The commands to propose when all runs of a study whose file has the block are done."""
        return ()
