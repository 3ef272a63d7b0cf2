"""The mean and variance of every field, and quantities that an equation itself states."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING

import jax.numpy as jnp

from simulator.physics.models.fields import DerivedField, Fields, FieldSpec
from simulator.physics.models.observables.observable import Columns, Observable, Row
from simulator.spectral.arrays import Number, OfModes, PhysicalScalar
from simulator.spectral.operators import squared

if TYPE_CHECKING:
    from simulator.physics.models.equation import Equation


def quantities_of(model: Equation, fields: Fields, time: Number) -> dict[str, Number]:
    """The quantities of an equation, with the time if it asks for it."""
    asked = {"time": time} if "time" in signature(model.quantities).parameters else {}
    return dict(model.quantities(fields, **asked))


def moments_of(model: Equation, fields: Fields) -> Columns:
    """The mean and the variance of every field."""
    columns: Columns = {}
    for name, spec in model.fields.items():
        layout = model.transforms[name].layout
        mean = layout.at_zero(fields[name])
        square = layout.inner(fields[name], fields[name])
        if not spec.components:
            columns[f"{name}_mean"] = mean.real
            columns[f"{name}_variance"] = square - abs(mean) ** 2
        for i, component in enumerate(spec.components):
            columns[f"{name}_{component}_mean"] = mean[i].real
            columns[f"{name}_{component}_variance"] = square[i] - abs(mean[i]) ** 2
    return columns


class FieldMoments(Observable["Equation"]):
    """The `quantities` of the equation, the mean and variance of every field, the
    `spectral_energies` of the equation, the modulus of each complex field and the magnitude of each
    vector of several components."""

    def columns(self, model: Equation, fields: Fields, row: Row) -> Columns:
        return {**quantities_of(model, fields, row.time), **moments_of(model, fields)}

    def energies(self, model: Equation, fields: Fields) -> dict[str, OfModes]:
        return model.spectral_energies(fields)

    def derived(self, model: Equation) -> Mapping[str, DerivedField]:
        def size(spec: FieldSpec, fields: Fields) -> PhysicalScalar:
            values = model.transform.inverse(fields[spec.name])
            return jnp.sqrt(squared(values if spec.components else values[None]))

        derived = {}
        for name, spec in model.fields.items():
            if spec.complex or len(spec.components) > 1:
                kind = "magnitude" if spec.components else "modulus"
                size_spec = FieldSpec(f"{name}_{kind}", units=spec.units)
                derived[size_spec.name] = DerivedField(size_spec, partial(size, spec))
        return derived
