"""The outputs of an equation, gathered from what it has."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from simulator.physics.models.equation import Equation
from simulator.physics.models.fields import DerivedField, Fields, FieldSpec, MatterFields
from simulator.physics.models.observables.budget import Balance, BudgetRow
from simulator.physics.models.observables.observable import Columns, Row
from simulator.physics.models.split_equation import SplitEquation, populations_of
from simulator.physics.models.state import State
from simulator.physics.models.tendency import fastest, linear_rates, linearized, tendency
from simulator.spectral import Evaluated, Local, Points
from simulator.spectral.arrays import Number, OfModes, PhysicalField, PointValues, Spectrum
from simulator.spectral.bins import shell_spectra
from simulator.spectral.transform import Tree

_Value = TypeVar("_Value")


def contents(model: Equation, state: State) -> dict[str, Any]:
    """The evolved fields, the particles of a composite and the memory of a model by name: the
    argument `fields` of the methods of equations and observables."""
    matter = {name: state.particles[name] for name in populations_of(model)}
    return {**state.fields, **matter, **state.memory.model}


def derived_fields(model: Equation) -> dict[str, DerivedField]:
    """Fields besides the evolved ones that output may request, by name."""
    return merged(part.derived(model) for part in model.has)


def field_specs(model: Equation) -> dict[str, FieldSpec]:
    """All fields that output may request, evolved and derived."""
    derived = {name: field.spec for name, field in derived_fields(model).items()}
    return {**model.fields, **derived}


def field_spec(model: Equation, name: str) -> FieldSpec:
    """The specification of a field, evolved or derived. Raises KeyError, which lists them, for
    others."""
    specs = field_specs(model)
    if name not in specs:
        raise KeyError(f"{name!r} is not a field of this model; its fields are {', '.join(specs)}")
    return specs[name]


def components_of(model: Equation, name: str) -> dict[str, int]:
    """The components of a real vector by name: `vorticity_z` is number 2; empty for other fields."""
    spec = field_specs(model)[name]
    parts = () if spec.complex else spec.components
    return {f"{name}_{part}": number for number, part in enumerate(parts)}


def scalar_fields(model: Equation) -> dict[str, tuple[str, int | None]]:
    """Everything with one real value at each point: fields, evolved and derived, components of
    vectors, by name, with the field and the number of the component."""
    specs = field_specs(model)
    parts = {part: (name, n) for name in specs for part, n in components_of(model, name).items()}
    fields = {n: (n, None) for n, spec in specs.items() if not (spec.components or spec.complex)}
    return {**fields, **{part: at for part, at in parts.items() if part not in specs}}


def pictured_fields(model: Equation) -> tuple[str, ...]:
    """The scalars whose mid-planes are stored by default, and vectors' only components."""
    specs = field_specs(model)
    places = scalar_fields(model).items()
    scalars = [n for n, (of, part) in places if part is None or len(specs[of].components) == 1]
    named = [name for part in model.has for name in part.pictured]
    return tuple(n for n in named if n in scalars) if named else tuple(scalars)


def stored_fields(model: Equation) -> tuple[str, ...]:
    """The fields that snapshots hold unless a run names others."""
    return (*model.fields, *(f"{name}_density" for name in populations_of(model)))


def units_of(model: Equation, spec: FieldSpec) -> str:
    """The units of a field in words: by default their dimension in the run's own units."""
    return model.in_units(spec.units) if isinstance(model, SplitEquation) else spec.units


def field_values(model: Equation, name: str, fields: MatterFields) -> jax.Array:
    """The values of one field, evolved or derived, (component, x, y, z) or, in two dimensions,
    (component, x, y), zero in padding. Raises KeyError, which lists the fields, for another
    name."""
    field_spec(model, name)
    return model.transform.physical.as_seen(grid_values(model, name, fields))


def grid_values(model: Equation, name: str, fields: MatterFields) -> PhysicalField:
    """The values of one field, evolved or derived, or of a component of a vector, with three axes
    in two dimensions, too; zero in padding."""
    if name in model.fields:
        return model.transforms[name].inverse(fields[name])
    derived = derived_fields(model)
    if name in derived:
        return derived[name].values(fields)
    whole, number = scalar_fields(model)[name]
    return grid_values(model, whole, fields)[number]


def point_moments(model: Equation, fields: Fields) -> Evaluated:
    """The maxima and means that what is measured of an equation needs, from one evaluation at the
    points."""
    wanted = [part.moments(model, fields) for part in model.has]
    inputs = {name: field for part in wanted for name, field in part.inputs.items()}
    if not inputs:
        return Evaluated({}, {}, {})
    functions = [part.at_point for part in wanted]

    def local(values: PointValues, points: Points, parameters: Tree) -> Local:
        gathered = Local({})
        for function, numbers in zip(functions, parameters, strict=True):
            if function is not None:
                part = function(values, points, numbers)
                gathered = Local(*(a | b for a, b in zip(gathered, part, strict=True)))
        return gathered

    return model.transform.evaluate(inputs, local, tuple(part.parameters for part in wanted))


def columns(model: Equation, fields: MatterFields, time: Number) -> tuple[Columns, Evaluated]:
    """Scalars of `diagnostics.csv` by column, without those of forces and terms, which are not
    evaluated; and the maxima and means behind them."""
    model = model.at(time)
    evaluated = point_moments(model, fields)
    row: Columns = {}
    for part in model.has:
        row |= part.columns(model, fields, Row(time, evaluated, row))
    return row, evaluated


def diagnostics(model: Equation, fields: MatterFields, time: Number) -> Columns:
    """The `columns`, and `rate`, the largest rate (1/time) that a step has to resolve. Terms need
    the arrays of the state: `tendency.with_arrays`."""
    model = model.at(time)
    row, evaluated = columns(model, fields, time)
    if "rate" in row and not model.terms:
        return row
    # The mean field about which exact waves run does not limit dt.
    whole = model.closure is None and not model.terms and linearized(model, fields) is model
    if "rate" in evaluated.maxima and whole:
        return {**row, "rate": model.step_limit.rate(model, evaluated.maxima, fields)}
    return {**row, "rate": fastest(model, fields, time)}


def solids(model: Equation) -> dict[str, Callable[[State], jax.Array]]:
    """The parts of points that terms fill, by name, see `Term.solids`."""
    kinds = dict.fromkeys(type(term) for term in model.terms)
    return merged(kind.solids(model) for kind in kinds)


def in_every_step(model: Equation) -> bool:
    """Whether the energy budget is evaluated in every step."""
    budget = model.budget
    return budget is not None and not model.terms and not budget.momentary(model)


def budget_row(
    model: Equation, fields: MatterFields, time: Number, accelerations: Fields | None
) -> BudgetRow:
    """The row of a momentary budget that defines none itself: d energy / dt is the slope of the
    energy by the fields times their rates."""
    model = model.at(time)
    budget = model.budget
    assert budget is not None

    def energy(evolved: Fields) -> tuple[Number, Balance]:
        balance = budget.balance(model, {**fields, **evolved})
        return balance.energy, balance

    evolved = {name: fields[name] for name in model.fields}
    value, slopes_of, balance = jax.vjp(energy, evolved, has_aux=True)
    (slopes,) = slopes_of(jnp.ones_like(value))
    explicit, _ = tendency(linearized(model, fields), fields, time, accelerations, limited=False)
    linear = linear_rates(model, fields)
    change = jnp.float64(0)
    for name in evolved:
        rate = explicit[name] + linear[name]
        change += (slopes[name] * rate).real.astype(jnp.float64).sum()
    return BudgetRow(diagnostics(model, fields, time), change, balance)


def conserved(model: Equation) -> list[str]:
    """The columns that keep their value at the start to round-off."""
    return [name for part in model.has for name in part.conserved(model)]


def warnings(model: Equation, row: Mapping[str, float]) -> dict[str, str]:
    """Lines about a run that does not match its model, by their subject, from a row of
    diagnostics."""
    return merged(part.warnings(model, row) for part in model.has)


def step_trouble(model: Equation, fields: MatterFields) -> tuple[str, str] | None:
    """The reason why no step can be taken from finite fields, and a remedy; None if a step can be
    taken."""
    reasons = (part.trouble(model, fields) for part in model.has)
    return next((reason for reason in reasons if reason is not None), None)


def spectral_energies(model: Equation, fields: Fields) -> dict[str, OfModes]:
    """The energy of each mode, by name."""
    return merged(part.energies(model, fields) for part in model.has)


def spectra(model: Equation, fields: MatterFields) -> dict[str, Spectrum]:
    """Shell spectra by name."""
    energies = shell_spectra(model.transform.layout, spectral_energies(model, fields))
    return {**energies, **merged(part.spectra(model, fields) for part in model.has)}


def spectra_attributes(model: Equation) -> dict[str, str]:
    """Remarks on the spectra, by name: attributes of their file."""
    return merged(part.spectra_attributes(model) for part in model.has)


def cospectra(model: Equation, fields: Fields) -> dict[str, OfModes]:
    """Other quadratic quantities of each mode, by name: fluxes, helicities, parts of the energy."""
    return merged(part.cospectra(model, fields) for part in model.has)


def transfers(model: Equation, fields: Fields) -> dict[str, OfModes]:
    """The rate at which nonlinear terms add energy to each mode, by name; empty if the equation
    states none."""
    return merged(part.transfers(model, fields) for part in model.has)


def merged(parts: Iterable[Mapping[str, _Value]]) -> dict[str, _Value]:
    """The entries of all parts in one dictionary."""
    return {name: value for part in parts for name, value in part.items()}
