"""The contract of what is measured of an equation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from simulator.physics.models.fields import DerivedField, Fields
from simulator.spectral import Evaluated, Local, Points
from simulator.spectral.arrays import Number, OfModes, PointValues, Spectrum
from simulator.spectral.transform import Tree

Model = TypeVar("Model")
Columns = dict[str, Number]


class PointMoments(NamedTuple):
    """Maxima and means over the box of functions of values at points."""

    inputs: Fields = {}  # noqa: RUF012
    """Spectral fields by name; those of the same name in several observables are the same."""
    at_point: Callable[[PointValues, Points, Tree], Local] | None = None
    """(values of the inputs of all observables, points, parameters) to products, maxima and
    means."""
    parameters: Tree = ()


class Row(NamedTuple):
    """The part of a row of diagnostics that is known before the columns of an observable."""

    time: Number
    moments: Evaluated
    """The products, maxima and means that the observables asked for in `moments`."""
    before: Mapping[str, Number] = {}
    """The columns of the observables before this one."""


class Observable(Generic[Model]):
    """Something that is measured of an equation: functions of the equation and its fields, one for
    each kind of output. A subclass defines those that it has."""

    pictured: Sequence[str] = ()
    """The scalars whose mid-planes are stored by default; all, if no observable names any."""

    def moments(self, model: Model, fields: Fields) -> PointMoments:
        """Maxima and means that `columns` needs. All observables of an equation share one
        evaluation at the points."""
        return PointMoments()

    def columns(self, model: Model, fields: Fields, row: Row) -> Columns:
        """Scalars of `diagnostics.csv` by column; `row` is the part of the row that is known."""
        return {}

    def conserved(self, model: Model) -> Sequence[str]:
        """The columns that keep their value at the start to round-off; reports judge them."""
        return ()

    def energies(self, model: Model, fields: Fields) -> dict[str, OfModes]:
        """The energy of each mode, by name, from which shell spectra are made."""
        return {}

    def spectra(self, model: Model, fields: Fields) -> dict[str, Spectrum]:
        """Shell spectra, by name, of quantities that are not energies of modes."""
        return {}

    def spectra_attributes(self, model: Model) -> Mapping[str, str]:
        """Remarks on the spectra, by name: attributes of their file."""
        return {}

    def cospectra(self, model: Model, fields: Fields) -> dict[str, OfModes]:
        """Other quadratic quantities of each mode, by name: fluxes, helicities, parts of the
        energy."""
        return {}

    def transfers(self, model: Model, fields: Fields) -> dict[str, OfModes]:
        """The rate at which nonlinear terms add energy to each mode, by name."""
        return {}

    def derived(self, model: Model) -> Mapping[str, DerivedField]:
        """Fields besides the evolved ones that output may request."""
        return {}

    def warnings(self, model: Model, row: Mapping[str, float]) -> Mapping[str, str]:
        """Lines about a run that does not match its model, by their subject, from a row of
        diagnostics."""
        return {}

    def trouble(self, model: Model, fields: Fields) -> tuple[str, str] | None:
        """The reason why no step can be taken from finite fields, and a remedy; None if a step can
        be taken."""
        return None
