"""Energy transfer and flux between scales: transfer.h5."""

from typing import TYPE_CHECKING

from simulator.measure.cadence import SeriesCadence
from simulator.measure.kind import Kind, Subject, Unsupported

if TYPE_CHECKING:
    from simulator.diagnostics.measured import Measured


class Transfer(Kind):
    name = "transfer"
    description = "Energy transfer and flux between scales in transfer.h5."

    def measured(self, subject: Subject, settings: SeriesCadence) -> "Measured":
        from simulator.diagnostics.measured import transfer

        if not (transfers := subject.names(subject.model.transfers)):
            raise Unsupported("needs energy transfers between modes")
        return transfer(subject.transform.layout, subject.model, transfers)
