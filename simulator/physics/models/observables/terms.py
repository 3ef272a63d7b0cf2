"""Columns of terms: their power, and the force on bodies."""

import jax
import jax.numpy as jnp

from simulator.physics.models.equation import Equation
from simulator.physics.models.fields import Fields
from simulator.physics.models.observables.observable import Columns
from simulator.physics.models.tendency import (
    added,
    parts_of_terms,
    rates_of_fluxes,
    solenoidal_rates,
    stored_values,
    term_numbers,
    terms_at,
    with_term_inputs,
)
from simulator.spectral import Local, Points, seen_points
from simulator.spectral.arrays import Number, PointValues
from simulator.spectral.transform import Tree


def term_columns(
    model: Equation, fields: Fields, time: Number
) -> tuple[Columns, dict[str, Fields]]:
    """`power_NAME`, the energy per time that each term adds, with the columns of its own; and the
    rates (field/time) of each term, by its name and by field."""
    transform = model.transform
    evolved = {name: fields[name] for name in model.fields}

    def local(values: PointValues, points: Points, numbers: Tree) -> Local:
        parts = parts_of_terms(model, values, points, numbers)
        seen = seen_points(transform.grid, points)
        means: PointValues = {}
        for term, part in zip(terms_at(model, numbers), parts, strict=True):
            momentum = part.sources.get("momentum", part.sources.get("velocity"))
            integrands = term.integrands(momentum, seen, numbers["time"])
            means |= {f"{term.settings.name}/{n}": value for n, value in integrands.items()}
        return Local([(part.sources, part.fluxes) for part in parts], {}, means)

    inputs = with_term_inputs(model, {}, evolved, time)
    numbers = term_numbers(model, time)
    evaluated = transform.evaluate(inputs, local, numbers, (), stored_values(model))
    value, slopes_of = jax.vjp(lambda f: energy(model, {**fields, **f}), evolved)
    (slopes,) = slopes_of(jnp.ones_like(value))
    columns: Columns = {}
    by_term: dict[str, Fields] = {}
    for term, (sources, fluxes) in zip(model.terms, evaluated.products, strict=True):
        power = jnp.float64(0)
        rates = added(sources, rates_of_fluxes(model, fluxes))
        rates = added(rates, term.modal_rates(evolved, time))
        by_term[term.settings.name] = solenoidal_rates(model, rates)
        for name, rate in by_term[term.settings.name].items():
            power += (slopes[name] * rate).real.astype(jnp.float64).sum()
        columns[f"power_{term.settings.name}"] = power
        start = f"{term.settings.name}/"
        own = {n: mean for n, mean in evaluated.means.items() if n.startswith(start)}
        volume = transform.grid.volume
        columns |= term.columns({n[len(start) :]: mean * volume for n, mean in own.items()})
    return columns, by_term


def energy(model: Equation, fields: Fields) -> Number:
    """The energy of the budget; of an equation without one half the mean square of all fields."""
    if model.budget is not None:
        return model.budget.balance(model, fields).energy
    inner = model.transform.layout.inner
    return sum((0.5 * inner(f, f).sum() for f in fields.values()), jnp.zeros(()))
