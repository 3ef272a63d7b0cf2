"""The growth of modes by the linear term of an equation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import jax
import jax.numpy as jnp

from simulator.physics.models.fields import Fields
from simulator.physics.models.linear_waves import MatrixWaves
from simulator.physics.stepping.coupled import SmallMatrix, fastest_growth
from simulator.spectral.arrays import Number, OverModes, SpectralField
from simulator.spectral.operators import hermitian

if TYPE_CHECKING:
    from simulator.physics.models.equation import Equation

Largest = float | Literal["traced", "paper"]
"""The largest rate (1/time) of a mode; "traced" if a parameter is traced, "paper" if there are no
devices to compute on."""


class Growth:
    """The growth of the modes of an equation by its linear term, and the turn of their phases."""

    def __init__(self, model: Equation, limits: bool = True):
        """`limits`: whether growth limits dt, as it does unless split steps solve the linear term
        alone."""
        self._model = model
        self._limits = limits

    @cached_property
    def largest(self) -> Largest:
        """The largest Re L (1/time), and at least 0."""
        return 0.0 if self._model.numerics.decays else number_of(self._model, largest_growth)

    @cached_property
    def _largest_turn(self) -> Largest:
        return number_of(self._model, largest_turn)

    @property
    def turning(self) -> Number | float:
        """The largest |Im L| (1/time) over the modes of the state, the rate at which phases turn;
        0 if there are no devices to compute on."""
        if self._largest_turn == "traced":
            return largest_turn(self._model)
        return 0.0 if isinstance(self._largest_turn, str) else self._largest_turn

    def settle(self) -> None:
        """Computes on the devices what depends only on settings; called once on every process, at
        the start."""
        _ = self.largest
        if not self._limits and not self._model.numerics.decays:
            _ = self._largest_turn

    @property
    def unknown(self) -> bool:
        """Whether the growth of modes is unknown, on devices that exist only by name."""
        return self.largest == "paper"

    @property
    def visible_only(self) -> bool:
        """Whether modes of real fields may grow; their coefficients are then kept exactly
        Hermitian."""
        return self._model.transform.layout.real and self.largest != 0

    @property
    def longest_step(self) -> float | None:
        """The largest dt that resolves the growth; None if no mode grows, or if growth is exact."""
        if not self._limits or isinstance(self.largest, str) or self.largest == 0:
            return None
        return 1 / self.largest

    def rate(self, advective: Number) -> Number:
        """The larger of the rate (1/time) of advection and of the growth."""
        if self.largest == "traced":
            return jnp.maximum(advective, largest_growth(self._model))
        return advective if self.largest in ("paper", 0.0) else jnp.maximum(advective, self.largest)

    def hermitian(self, field: SpectralField) -> SpectralField:
        """The field; if modes grow, without the anti-Hermitian part, which is invisible on the
        grid."""
        return hermitian(self._model.transform.layout, field) if self.visible_only else field

    def visible(self, fields: Fields) -> Fields:
        """`hermitian` of fields that are not traced."""
        if not self.visible_only:
            return fields
        layout = self._model.transform.layout
        return jax.jit(lambda f: {n: layout.constrain(hermitian(layout, a)) for n, a in f.items()})(
            fields
        )


def largest_turn(model: Equation) -> Number:
    """The largest |Im L| (1/time) over the modes of the state."""
    return largest_of(model, lambda rate: abs(rate.imag))


def largest_growth(model: Equation) -> Number:
    """The largest growth rate (1/time) by the linear terms, and at least 0; NaN if some are not
    finite."""
    rate = largest_of(model, jnp.real)
    terms = model.waves()
    if not (isinstance(terms, Mapping) and terms):
        return rate
    layout = model.transform.layout
    waves = MatrixWaves(terms)
    diagonal = dict.fromkeys(waves.names, jnp.zeros((1, 1, 1))) | model.linear()
    entries = (jnp.where(layout.mask, entry, 0) for entry in waves.matrix(diagonal).entries)
    return jnp.maximum(rate, fastest_growth(SmallMatrix(tuple(entries))))


def number_of(model: Equation, largest: Callable[[Equation], Number]) -> Largest:
    """A largest rate as a number."""
    if not isinstance(model.transform.layout.mesh.devices.flat[0], jax.Device):
        return "paper"
    try:
        with jax.ensure_compile_time_eval():
            return float(jax.jit(lambda: largest(model))())
    except jax.errors.ConcretizationTypeError:
        return "traced"


def largest_of(model: Equation, size: Callable[[OverModes], jax.Array]) -> Number:
    """The maximum over the modes of the state of `size(L)` (1/time), and at least 0; NaN if L is not
    finite, such as -inf, which would remove a mode."""
    layout = model.transform.layout
    dtype = model.transform.dtype
    rates = [jnp.zeros((1, 1, 1), dtype), *model.linear().values()]
    finite = (jnp.where(jnp.isfinite(rate), size(jnp.asarray(rate)), jnp.nan) for rate in rates)
    sizes = (jnp.where(layout.mask, rate, 0) for rate in finite)
    full = (layout.constrain(jnp.broadcast_to(r, (*r.shape[:-3], *layout.shape))) for r in sizes)
    return jnp.stack([rates.max() for rates in full]).max()
