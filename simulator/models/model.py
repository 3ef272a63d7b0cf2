"""What an equation has to say, and the state that it evolves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax

from simulator.settings import Settings
from simulator.spectral import Local, Points, Transform
from simulator.spectral.operators import translate
from simulator.spectral.transform import Tree

Fields = dict[str, jax.Array]
"""Spectral arrays by name: vectors (3, *layout.order), scalars (*layout.order)."""


class Model(Protocol):
    """An equation du/dt = -decay u + combine(pointwise(inputs(u))), for fields u in spectral space.

    The three parts are pure functions. The transform runs them: it brings the inputs to physical space, block by
    block, applies `pointwise`, and brings the products back.
    """

    Settings: ClassVar[type[Settings]]
    transform: Transform
    components: Mapping[str, tuple[int, ...]]
    """Evolved fields and their leading shape: (3,) for a vector, () for a scalar."""
    solenoidal: tuple[str, ...]
    """Fields that are kept free of divergence."""

    def inputs(self, fields: Fields) -> Tree:
        """Spectral fields whose values `pointwise` needs."""
        ...

    def pointwise(self, values: Tree, points: Points, parameters: Tree) -> Local:
        """Products of values at a point, and in `maxima["rate"]` the advective rate sum_i |v_i| / dx_i (1/time)
        that limits dt."""
        ...

    def parameters(self, time: jax.Array) -> Tree:
        """Scalars handed to `pointwise`."""
        ...

    def combine(self, products: Tree, fields: Fields) -> Fields:
        """Tendencies of all fields from the coefficients of the products."""
        ...

    def decay(self) -> Fields:
        """Rates >= 0 (1/time) at which the linear terms damp each mode; integrated exactly. They broadcast."""
        ...

    def rate(self, maxima: Mapping[str, jax.Array]) -> jax.Array:
        """The largest rate (1/time) that an explicit step has to resolve: dt = cfl / rate."""
        ...

    def diagnostics(self, fields: Fields, time: jax.Array) -> dict[str, jax.Array]:
        """Scalars of `diagnostics.csv`, by column."""
        ...

    def spectra(self, fields: Fields) -> dict[str, jax.Array]:
        """Shell spectra by name, (shells,) each."""
        ...

    def derived(self) -> Mapping[str, Callable[[Fields], jax.Array]]:
        """Fields beyond the evolved ones that output may ask for: spectral fields to values (..., x, y, z)."""
        ...


def own_transforms(model: Any) -> Mapping[str, Transform]:
    """The transforms of fields that have one of their own; all others have `model.transform`, and all share its
    arrangement of points."""
    return getattr(model, "transforms", {})


class SplitModel(Protocol):
    """An equation du/dt = T u + V(u) u whose two parts are solved exactly one after the other.

    What `Model` says of settings, transform, components and measured quantities holds here too. A model class that
    needs something else than a transform of real fields has `create(settings, make, files)`, where `make(**options)`
    is `make_transform` on the run's grid and devices.
    """

    Settings: ClassVar[type[Settings]]
    split: ClassVar[bool]
    transform: Transform
    """Of the evolved fields."""
    components: Mapping[str, tuple[int, ...]]
    solenoidal: tuple[str, ...]

    def drift(self, fields: Fields, duration: jax.Array) -> Fields:
        """exp(duration T): diagonal in spectral space."""
        ...

    def kick(self, fields: Fields, time: jax.Array, duration: jax.Array) -> tuple[Fields, jax.Array]:
        """exp(duration V) at `time`, and the rate (1/time, double) that limits dt: dt = cfl / rate."""
        ...

    def memory(self, fields: Fields, time: jax.Array) -> dict[str, Any]:
        """What the first step finds in the state's memory: its `rate`."""
        ...

    def diagnostics(self, fields: Fields, time: jax.Array) -> dict[str, jax.Array]: ...

    def spectra(self, fields: Fields) -> dict[str, jax.Array]: ...

    def derived(self) -> Mapping[str, Callable[[Fields], jax.Array]]: ...


@runtime_checkable
class WithTendency(Protocol):
    """A model whose three parts depend on more than the fields at a point, or which a force acts on otherwise than by
    adding to its tendencies."""

    def tendency(
        self, fields: Fields, time: jax.Array, push: Fields | None = None
    ) -> tuple[Fields, dict[str, jax.Array]]:
        """What the function `tendency` gives, under the accelerations `push`."""
        ...


class Balance(NamedTuple):
    """An energy and what changes it, forcing apart: d energy / dt = production - dissipation."""

    energy: jax.Array
    production: jax.Array | float
    dissipation: jax.Array


@runtime_checkable
class Budgeted(Protocol):
    """A model that knows its energy budget."""

    closes: bool
    """The budget follows from the spectral fields alone, so that it costs next to nothing in every step. One that
    costs more has `momentary`: it is told of moments, for rows of output."""

    def balance(self, fields: Fields) -> Balance: ...

    def work(self, fields: Fields, forces: Fields) -> jax.Array:
        """What a force's accelerations add to the energy per time."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A model whose steps hand something on."""

    def memory(self, fields: Fields, time: jax.Array) -> dict[str, Any]: ...


@runtime_checkable
class Troubled(Protocol):
    """A model that can tell why no step can be taken from fields that are finite."""

    def trouble(self, fields: Fields) -> tuple[str, str] | None:
        """What is wrong with them, and what may help; None: nothing."""
        ...


@runtime_checkable
class Spectral(Protocol):
    """A model that can tell where in spectral space its energies lie and go."""

    def spectral_energies(self, fields: Fields) -> Fields:
        """The energy of each mode (*order), by name."""
        ...

    def transfers(self, fields: Fields) -> Fields:
        """The energy that each mode gains per time from the nonlinear terms (*order), by name."""
        ...


Force = Callable[[Fields, jax.Array], Fields]
"""(fields, time) to accelerations, by name of the field that is accelerated."""


Shift = tuple[jax.Array, jax.Array, jax.Array]
"""How far the grid's points are moved, as lengths along x, y, z."""


def tendency(
    model: Model, fields: Fields, time: jax.Array, force: Force | None = None, shift: Shift | None = None
) -> tuple[Fields, dict[str, jax.Array]]:
    """The explicit part of the right-hand side and the maxima found on the way. A model whose three parts depend on
    more than the fields at a point has a `tendency` of its own.

    With `shift` the products are taken at points of a moved grid, which turns the phase of their aliasing errors.
    """
    push = {} if force is None else force(fields, time)
    if isinstance(model, WithTendency):
        return model.tendency(fields, time, push)
    inputs, layout = model.inputs(fields), model.transform.layout
    if shift is not None:
        inputs = jax.tree.map(lambda f: layout.hold(translate(layout, f, shift)), inputs)
    found = model.transform.evaluate(inputs, model.pointwise, model.parameters(time))
    products, maxima = found.products, found.maxima
    if shift is not None:
        back = (-shift[0], -shift[1], -shift[2])
        products = jax.tree.map(lambda f: layout.hold(translate(layout, f, back)), products)
    rates = model.combine(products, fields)
    return rates | {name: rates[name] + added for name, added in push.items()}, maxima


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """All that influences the next step; so it is also what a checkpoint holds.

    With a fixed dt the time is origin + since * dt: it is not accumulated.
    """

    fields: Fields
    time: jax.Array
    step: jax.Array
    dt: jax.Array
    """Of the last step; 0 before the first."""
    origin: jax.Array
    since: jax.Array
    memory: dict[str, Any]
    """What forcing and integrator carry from step to step."""
