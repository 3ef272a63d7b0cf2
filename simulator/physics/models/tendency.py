"""The right-hand side of an equation, as integrators and the loop over steps use it:
du/dt = L u + N(u, t), with N = combine(products(inputs(u)))."""

from collections.abc import Collection, Mapping
from copy import copy
from functools import partial, reduce
from operator import or_
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from simulator.physics.models.advection import divergence_of_stress
from simulator.physics.models.equation import Equation, parameters, products_at, with_parameters
from simulator.physics.models.fields import Fields
from simulator.physics.models.linear_waves import MatrixWaves
from simulator.physics.models.split_equation import SplitEquation
from simulator.physics.stepping.coupled import Coupling
from simulator.physics.terms.term import Added, Term
from simulator.spectral import Evaluated, Local, Points, seen_points
from simulator.spectral.arrays import Number, OverModes, PointValues, Truth
from simulator.spectral.transform import NOTHING_STORED, Shift, Tree


def linear_terms(model: Equation) -> dict[str, OverModes]:
    """L of every evolved field (1/time): that of the equation and of its further damping; zero for
    fields without any."""
    zero = jnp.zeros((1, 1, 1), model.transform.dtype)
    terms: dict[str, OverModes] = dict.fromkeys(model.fields, zero)
    for name, term in model.linear().items():
        terms[name] = term if hasattr(term, "dtype") else term + zero
    for damping in model.damps:
        terms[damping.field] = terms[damping.field] - damping.rate(model.transform)
    return terms


def coupling(model: Equation) -> Coupling | None:
    """The linear terms that couple fields; None if there are none."""
    terms = model.waves()
    if isinstance(terms, Mapping):
        return MatrixWaves(terms) if terms else None
    return terms


def coupled_fields(model: Equation) -> tuple[str, ...]:
    """The fields that waves couple. They are traced only, so that no device starts."""
    names: list[str] = []

    def trace() -> None:
        if (waves := coupling(model)) is not None:
            names.extend(waves.names)

    jax.eval_shape(trace)
    return tuple(names)


def linearized(model: Equation, fields: Fields) -> Equation:
    """The equation whose exact waves run about the mean state of `fields`."""
    if not model.integrated or model.numerics.waves_about is None:
        return model
    mean = model.transform.layout.at_zero(fields[model.numerics.waves_about]).real
    return with_parameters(model, {"mean_field": mean})


def exact_waves(model: Equation, fields: Fields) -> Coupling | None:
    """The waves about the mean state of `fields` that the integrator solves."""
    return coupling(linearized(model, fields)) if model.integrated else None


def linear_rates(model: Equation, fields: Fields) -> Fields:
    """L u."""
    rates = {name: rate * fields[name] for name, rate in linear_terms(model).items()}
    waves = exact_waves(model, fields)
    return rates if waves is None else added(rates, waves.rates(fields))


def tendency(
    model: Equation,
    fields: Fields,
    time: Number,
    accelerations: Fields | None = None,
    keep: Collection[str] = (),
    limited: bool = True,
    shift: Shift | None = None,
) -> tuple[Fields, Evaluated]:
    """N plus the accelerations of a forcing; and the result of `Transform.evaluate` on the grid with
    this `shift`, with the values of the inputs in `keep` and, if dt is `limited` by these fields,
    with the `rate` (1/time) that limits it as the maximum."""
    model = model.at(time)
    evaluated = _evaluated(model, fields, time, accelerations or {}, keep, limited, shift)
    products = evaluated.products
    parts: list[Fields] = []
    if model.terms:
        parts += [
            solenoidal_rates(model, products.sources),
            rates_of_fluxes(model, products.fluxes),
        ]
        products = products.equation
    if explicit := explicit_coupling(model):
        parts.append(explicit.rates(fields))
    if model.extension.pushed is None and accelerations is not None:
        parts.append(accelerations)
    if model.closure is not None:
        parts.append(model.closure.modal_rates(model, fields))
    if model.terms:
        modal = [term.modal_rates(fields, time) for term in model.terms]
        parts += [solenoidal_rates(model, rates) for rates in modal]
    rates = _complete(model, reduce(added, parts, model.combine(products, fields)))
    maxima = {"rate": _limit(model, fields, evaluated.maxima)} if limited else {}
    return rates, evaluated._replace(maxima=maxima)


def explicit_coupling(model: Equation) -> MatrixWaves | None:
    """The linear terms that couple fields, if they are a matrix that no integrator solves; flows of
    this package have them in `combine`."""
    if model.integrated:
        return None
    terms = model.waves()
    return MatrixWaves(terms) if terms and isinstance(terms, Mapping) else None


def _limit(model: Equation, fields: Fields, at_points: Mapping[str, Number]) -> Number:
    """The rate (1/time) that limits dt, from the maxima over the points."""
    maxima = dict(at_points)
    if model.closure is not None and model.closure.modal:
        maxima["rate"] += model.closure.fastest_damping(model, fields)
    for term in model.terms:
        maxima[model.step_limit.local] += term.modal_limit
    return model.step_limit.rate(model, maxima, fields)


def fastest(model: Equation, fields: Fields, time: Number) -> Number:
    """The largest rate (1/time) that a step from these fields has to resolve: dt = cfl / rate."""
    if isinstance(model, SplitEquation):
        return model.kick(fields, time, jnp.zeros((), jnp.float64))[1]
    return tendency(linearized(model, fields), fields, time)[1].maxima["rate"]


def _evaluated(
    model: Equation,
    fields: Fields,
    time: Number,
    accelerations: Fields,
    keep: Collection[str],
    limited: bool,
    shift: Shift | None,
) -> Evaluated:
    """The products of the equation, its closure and its terms; with terms as `TermProducts`."""
    kind = type(model)
    unstated = kind.products is Equation.products and kind.advection is Equation.advection
    if unstated and not model.terms:
        return Evaluated({}, {}, {})
    inputs = {} if unstated else model.inputs(fields)
    numbers: dict[str, Any] = {"equation": parameters(model, fields), "closure": {}, "time": time}
    stored = NOTHING_STORED
    if model.terms:
        inputs = with_term_inputs(model, inputs, fields, time)
        numbers |= term_numbers(model, time)
        stored = stored_values(model)
    if model.closure is not None:
        inputs = {**inputs, **model.closure.inputs(model, fields)}
        numbers["closure"] = model.closure.numbers()
    if model.extension.pushed is not None and accelerations:
        (acceleration,) = accelerations.values()
        inputs = added(inputs, {model.extension.pushed: acceleration})
    values = [name for name in keep if name in inputs] if keep else []
    at = partial(pointwise, model, limited)
    return model.transform.evaluate(inputs, at, numbers, tuple(values), stored, shift)


def pointwise(
    model: Equation, limited: bool, values: PointValues, points: Points, numbers: Tree
) -> Local:
    """The products of the equation, of its closure and of its terms at a point and, if dt is
    `limited`, the maxima that limit it. Without terms in blocks of points that these do not
    reach."""
    if not model.terms:
        return _bare(model, limited, values, points, numbers)

    def with_terms() -> Local:
        local = _bare(model, limited, values, points, numbers)
        local = _with_terms(model, local, values, points, numbers)
        return local if limited else local._replace(maxima={})

    near = reached(model, points, numbers)
    if near is None:
        return with_terms()
    extents = next(iter(values.values())).shape[-3:]
    shapes = jax.eval_shape(lambda: with_terms().everywhere(extents))

    def without() -> Local:
        local = _bare(model, limited, values, points, numbers).everywhere(extents)
        products = TermProducts(
            *map(_filled, TermProducts(local.products, {}, {}), shapes.products)
        )
        return Local(products, _filled(local.maxima, shapes.maxima))

    return lax.cond(near, lambda: with_terms().everywhere(extents), without)


def _filled(
    arrays: Mapping[str, jax.Array], shapes: Mapping[str, jax.ShapeDtypeStruct]
) -> dict[str, jax.Array]:
    """The arrays of these names and types, and zeros where there are none."""
    zeros = {name: jnp.zeros(like.shape, like.dtype) for name, like in shapes.items()}
    return zeros | {n: arrays[n].astype(like.dtype) for n, like in shapes.items() if n in arrays}


def _bare(
    model: Equation, limited: bool, values: PointValues, points: Points, numbers: Tree
) -> Local:
    """The products of the equation and of its closure at a point."""
    if numbers["equation"]:
        model = with_parameters(model, numbers["equation"])
    products = dict(products_at(model, values, points, numbers["time"]))
    # An evaluation computes something: maxima, if there are no products.
    limited = limited or not products
    maxima = model.step_limit.maxima(model, values) if limited else {}
    if model.closure is not None and not model.closure.modal:
        closure = model.closure.with_numbers(numbers["closure"])
        # Added to the product of the equation, if there is one, so that one transform serves both.
        products = added(products, closure.products(model, values))
        if limited:
            maxima = added(maxima, {"rate": closure.rate(model, values)})
    return Local(products, maxima)


# ---- terms


class TermProducts(NamedTuple):
    """The products of an equation with terms."""

    equation: Tree
    """The products of the equation, to which terms have added what it `receives` or
    `transports`."""
    sources: dict[str, jax.Array]
    """Other rates of fields by terms."""
    fluxes: dict[str, jax.Array]
    """Other fluxes of fields by terms."""


EVOLVED = "evolved/"
"""The beginning of the names of inputs that are evolved fields, where an equation has an input of
another meaning, or none, of the field's name."""


def with_arrays(model: Equation, arrays: Mapping[str, jax.Array]) -> Equation:
    """The equation whose terms know the arrays that a state carries for them."""
    if not arrays:
        return model
    other = copy(model)
    other.terms = [term.with_arrays(arrays) for term in model.terms]
    return other


def stored_values(model: Equation) -> dict[str, jax.Array]:
    """Values on the grid that terms have read from files."""
    return {name: array for term in model.terms for name, array in term.stored().items()}


def with_term_inputs(model: Equation, inputs: Tree, fields: Fields, time: Number) -> Tree:
    """The inputs of an equation, the evolved fields that are not among them, and those of terms."""
    others = {name: f for name, f in fields.items() if inputs.get(name) is not f}
    every = {**inputs, **{EVOLVED + name: field for name, field in others.items()}}
    for term in model.terms:
        every |= term.inputs(fields, time)
    return every


def term_numbers(model: Equation, time: Number) -> dict[str, Any]:
    """The numbers on which terms depend at a point."""
    return {"time": jnp.asarray(time, jnp.float64), "terms": [t.numbers() for t in model.terms]}


def terms_at(model: Equation, numbers: Tree) -> list[Term]:
    """The terms with these values of traced settings."""
    stated = zip(model.terms, numbers["terms"], strict=True) if model.terms else ()
    return [term.with_numbers(own) for term, own in stated]


def reached(model: Equation, points: Points, numbers: Tree) -> Truth | None:
    """Whether one of the terms may add anything at one of the points; None if that is not known, or
    without terms."""
    if not model.terms:
        return None
    at = (seen_points(model.transform.grid, points), numbers["time"])
    near = [term.near(*at) for term in terms_at(model, numbers)]
    known = [part for part in near if part is not None]
    return reduce(or_, known) if len(known) == len(near) else None


def parts_of_terms(
    model: Equation, values: PointValues, points: Points, numbers: Tree
) -> list[Added]:
    """The contribution of each term at a point to the rates of the evolved fields."""
    if not model.terms:
        return []
    names = {n: EVOLVED + n if EVOLVED + n in values else n for n in model.fields}
    evolved = {n: values[name] for n, name in names.items()}
    known = model.variables.primitives(evolved)
    at = (seen_points(model.transform.grid, points), numbers["time"])
    parts = [term.at_point(known, values, *at) for term in terms_at(model, numbers)]
    rates = model.variables.evolved_rates
    return [part._replace(sources=rates(part.sources, evolved)) for part in parts]


def rates_of_fluxes(model: Equation, fluxes: Fields) -> Fields:
    """Minus the divergence of fluxes, by field."""
    layout = model.transform.layout
    vectors = {n: f for n, f in fluxes.items() if model.shapes[n]}
    rates = {n: -model.divergence(f) for n, f in fluxes.items() if n not in vectors}
    return {**rates, **{n: -divergence_of_stress(layout, f) for n, f in vectors.items()}}


def solenoidal_rates(model: Equation, rates: Fields) -> Fields:
    """The rates, without the divergence of those of solenoidal fields."""
    return {n: model.project(f) if n in model.solenoidal else f for n, f in rates.items()}


def _with_terms(
    model: Equation, local: Local, values: PointValues, points: Points, numbers: Tree
) -> Local:
    """`TermProducts` at a point, from the products of the equation, and the maxima with the rates
    of the terms."""
    extension = model.extension
    products, maxima = local.products, dict(local.maxima)
    sources: dict[str, jax.Array] = {}
    fluxes: dict[str, jax.Array] = {}
    for part in parts_of_terms(model, values, points, numbers):
        products = added(products, _renamed(part.sources, extension.receives))
        products = added(products, _renamed(part.fluxes, extension.transports))
        sources = added(sources, _others(part.sources, extension.receives))
        fluxes = added(fluxes, _others(part.fluxes, extension.transports))
        maxima = added(maxima, {model.step_limit.local: part.rate})
    return Local(TermProducts(products, sources, fluxes), maxima)


def _renamed(parts: PointValues, names: Mapping[str, str]) -> PointValues:
    return {names[n]: part for n, part in parts.items() if n in names}


def _others(parts: PointValues, names: Mapping[str, str]) -> PointValues:
    return {n: part for n, part in parts.items() if n not in names}


def added(
    terms: Mapping[str, jax.Array], further: Mapping[str, jax.Array | float]
) -> dict[str, Any]:
    """The sums of terms by name; a term in one of both is taken as it is."""
    sums = {n: terms[n] + term if n in terms else term for n, term in further.items()}
    return {**terms, **sums}


def _complete(model: Equation, rates: Fields) -> Fields:
    """The rates of all fields in the fields' type; made Hermitian if modes of real fields may
    grow."""
    transform = model.transform
    grows = not model.numerics.decays and model.linear_growth.visible_only
    complete = {}
    for name, lead in model.shapes.items():
        rate = jnp.asarray(rates.get(name, 0), transform.complex_dtype)
        rate = jnp.broadcast_to(rate, (*lead, *transform.layout.shape))
        complete[name] = model.linear_growth.hermitian(rate) if grows else rate
    return complete
