"""The right-hand side of an equation, as integrators and the loop over steps use it:
du/dt = L u + N(u, t), with N = combine(products(inputs(u)))."""

from collections.abc import Collection, Mapping
from copy import copy
from functools import partial, reduce
from operator import or_
from typing import Any

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
from simulator.spectral import Evaluated, Local, Points
from simulator.spectral.arrays import Number, OverModes, PointValues, Truth
from simulator.spectral.transform import Tree


def linear_terms(model: Equation) -> dict[str, OverModes]:
    """L of every evolved field (1/time): that of the equation and of its further damping; zero for
    fields without any."""
    zero = jnp.zeros((1, 1, 1), model.transform.dtype)
    stated = {n: t if hasattr(t, "dtype") else t + zero for n, t in model.linear().items()}
    terms = {name: zero for name in model.fields} | stated
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
    if not model.integrated or model.waves_about is None:
        return model
    mean = model.transform.layout.at_zero(fields[model.waves_about]).real
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
) -> tuple[Fields, Evaluated]:
    """N plus the accelerations of a forcing; and the result of `Transform.evaluate`, with the
    values of the inputs in `keep` and, if dt is `limited` by these fields, with the `rate` (1/time)
    that limits it as the maximum."""
    model = model.at(time)
    evaluated = _evaluated(model, fields, time, accelerations or {}, keep, limited)
    products, sources = apart(evaluated.products, SOURCE)
    products, fluxes = apart(products, FLUX)
    parts = [model.combine(products, fields)]
    parts += [solenoidal_rates(model, sources), rates_of_fluxes(model, fluxes)]
    if not model.integrated and isinstance(model.waves(), Mapping) and (waves := coupling(model)):
        parts.append(waves.rates(fields))
    if model.pushed is None and accelerations is not None:
        parts.append(accelerations)
    if model.closure is not None:
        parts.append(model.closure.modal_rates(model, fields))
    parts += [solenoidal_rates(model, term.modal_rates(fields, time)) for term in model.terms]
    maxima = {"rate": _limit(model, fields, evaluated.maxima)} if limited else {}
    return _complete(model, reduce(added, parts)), evaluated._replace(maxima=maxima)


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
) -> Evaluated:
    kind = type(model)
    unstated = kind.products is Equation.products and kind.advection is Equation.advection
    if unstated and not model.terms:
        return Evaluated({}, {}, {})
    inputs = {} if unstated else model.inputs(fields)
    numbers: dict[str, Any] = {"equation": parameters(model, fields), "closure": {}, "time": time}
    if model.terms:
        inputs = with_term_inputs(model, inputs, fields, time)
        numbers |= term_numbers(model, time)
    if model.closure is not None:
        inputs = {**inputs, **model.closure.inputs(model, fields)}
        numbers["closure"] = model.closure.numbers()
    if model.pushed is not None and accelerations:
        (acceleration,) = accelerations.values()
        inputs = added(inputs, {model.pushed: acceleration})
    values = tuple(name for name in keep if name in inputs)
    at = partial(pointwise if limited else unlimited, model)
    return model.transform.evaluate(inputs, at, numbers, values, stored_values(model))


def pointwise(model: Equation, values: PointValues, points: Points, numbers: Tree) -> Local:
    """The products of the equation, of its closure and of its terms at a point, and the maxima that
    limit dt; without terms in blocks of points that these do not reach."""
    near = reached(model, points, numbers)
    if near is None:
        return _at_point(model, values, points, numbers)
    extents = next(iter(values.values())).shape[-3:]

    def with_terms() -> Local:
        return _at_point(model, values, points, numbers).everywhere(extents)

    shapes = jax.eval_shape(with_terms)

    def without() -> Local:
        bare = _at_point(model, values, points, numbers, without_terms=True).everywhere(extents)
        zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
        typed = (
            {n: part[n].astype(like.dtype) for n, like in of.items() if n in part}
            for part, of in zip(bare, shapes, strict=True)
        )
        pairs = zip(zeros, typed, strict=True)
        return Local(*({**zero, **part} for zero, part in pairs))

    return lax.cond(near, with_terms, without)


def unlimited(model: Equation, values: PointValues, points: Points, numbers: Tree) -> Local:
    """`pointwise` in a stage of a step whose dt is known: native kernels would compute maxima that
    nothing reads."""
    local = pointwise(model, values, points, numbers)
    return local._replace(maxima={}) if local.products else local


def _at_point(
    model: Equation, values: PointValues, points: Points, numbers: Tree, without_terms: bool = False
) -> Local:
    model = with_parameters(model, numbers["equation"])
    products = dict(products_at(model, values, points, numbers["time"]))
    maxima = model.step_limit.maxima(model, values)
    if model.closure is not None and not model.closure.modal:
        closure = model.closure.with_numbers(numbers["closure"])
        # Added to the product of the equation, if there is one, so that one transform serves both.
        products = added(products, closure.products(model, values))
        maxima = added(maxima, {"rate": closure.rate(model, values)})
    for part in () if without_terms else parts_of_terms(model, values, points, numbers):
        sources = {model.receives.get(n, SOURCE + n): s for n, s in part.sources.items()}
        fluxes = {model.transports.get(n, FLUX + n): f for n, f in part.fluxes.items()}
        products = added(added(products, sources), fluxes)
        maxima = added(maxima, {model.step_limit.local: part.rate})
    return Local(products, maxima)


# ---- terms


SOURCE = "source/"
"""The beginning of the names of products that are rates of fields by terms."""
FLUX = "flux/"
"""The beginning of the names of products that are fluxes of scalars by terms."""
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
    at = (model.transform.grid.seen(points), numbers["time"])
    near = [term.near(*at) for term in terms_at(model, numbers)]
    known = [part for part in near if part is not None]
    return reduce(or_, known) if len(known) == len(near) else None


def parts_of_terms(
    model: Equation, values: PointValues, points: Points, numbers: Tree
) -> list[Added]:
    """What each term adds at a point to the rates of the evolved fields."""
    if not model.terms:
        return []
    names = {n: EVOLVED + n if EVOLVED + n in values else n for n in model.fields}
    evolved = {n: values[name] for n, name in names.items()}
    known = model.variables.primitives(evolved)
    at = (model.transform.grid.seen(points), numbers["time"])
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


def apart(products: Tree, start: str) -> tuple[Tree, Fields]:
    """The products whose names do not begin with `start`, and those whose names do, by what
    follows."""
    if not any(name.startswith(start) for name in products):
        return products, {}
    named = {n[len(start) :]: p for n, p in products.items() if n.startswith(start)}
    return {n: p for n, p in products.items() if not n.startswith(start)}, named


def added(
    terms: Mapping[str, jax.Array], further: Mapping[str, jax.Array | float]
) -> dict[str, Any]:
    """The sums of terms by name; a term in one of both is taken as it is."""
    sums = {n: terms[n] + term if n in terms else term for n, term in further.items()}
    return {**terms, **sums}


def _complete(model: Equation, rates: Fields) -> Fields:
    """The rates of all fields in the fields' type; made Hermitian if modes of real fields may
    grow."""
    layout = model.transform.layout
    complete = {}
    for name, lead in model.shapes.items():
        rate = jnp.asarray(rates.get(name, 0), model.transform.complex_dtype)
        rate = jnp.broadcast_to(rate, (*lead, *layout.shape))
        complete[name] = model.linear_growth.hermitian(rate)
    return complete
