"""Transfer of kinetic energy from band to band of wavenumbers: shell_to_shell.h5."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from simulator.measure.cadence import SeriesCadence
from simulator.measure.helicity import check_flow
from simulator.measure.kind import Kind, Subject
from simulator.settings import Integer

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class ShellToShellSettings(SeriesCadence):
    bands_per_octave: Annotated[Integer, Field(ge=1, le=16)] = 2
    """Number of wavenumber bands per octave; each costs a nonlinear term, and is at least one shell wide."""


class ShellToShell(Kind):
    name = "shell_to_shell"
    description = "Kinetic energy that bands of wavenumbers receive from one another in shell_to_shell.h5."
    Settings = ShellToShellSettings

    def measured(self, subject: Subject, settings: ShellToShellSettings) -> "Measured":
        from simulator.diagnostics.interactions import shell_to_shell

        check_flow(subject)
        return shell_to_shell(subject.transform, settings.bands_per_octave)
