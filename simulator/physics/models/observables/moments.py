"""The mean and variance of every field, and quantities that an equation itself states."""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

import jax.numpy as jnp

from simulator.physics.models.fields import DerivedField, Fields, FieldSpec
from simulator.physics.models.observables.observable import Columns, Observable, Row
from simulator.spectral import Transform
from simulator.spectral.arrays import Number, OfModes, PhysicalScalar
from simulator.spectral.operators import squared


class Stated(Protocol):
    """An equation that states quantities of its own."""

    transform: Transform
    transforms: Mapping[str, Transform]
    fields: Mapping[str, FieldSpec]

    def quantities(self, fields: Fields) -> dict[str, Number]: ...
    def spectral_energies(self, fields: Fields) -> dict[str, OfModes]: ...


class FieldMoments(Observable[Stated]):
    """The `quantities` of the equation, the mean and variance of every field, the
    `spectral_energies` of the equation, the modulus of each complex field and the magnitude of each
    vector."""

    def columns(self, model: Stated, fields: Fields, row: Row) -> Columns:
        columns = dict(model.quantities(fields))
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

    def energies(self, model: Stated, fields: Fields) -> dict[str, OfModes]:
        return model.spectral_energies(fields)

    def derived(self, model: Stated) -> Mapping[str, DerivedField]:
        def size(spec: FieldSpec, fields: Fields) -> PhysicalScalar:
            values = model.transform.inverse(fields[spec.name])
            return jnp.sqrt(squared(values if spec.components else values[None]))

        derived = {}
        for name, spec in model.fields.items():
            if spec.complex or spec.components:
                kind = "magnitude" if spec.components else "modulus"
                size_spec = FieldSpec(f"{name}_{kind}", units=spec.units)
                derived[size_spec.name] = DerivedField(size_spec, partial(size, spec))
        return derived
