"""Incompressible Navier-Stokes equations in three or two dimensions, with rotation and passive
scalars."""

from collections.abc import Callable, Mapping, Sequence
from math import hypot
from typing import Any, Literal

import jax
import jax.numpy as jnp

from simulator.physics.models import fluid
from simulator.physics.models.advection import (
    Momentum,
    Rotational,
    advection_of,
    divergence_of_stress,
)
from simulator.physics.models.closures import CLOSURES, Closure
from simulator.physics.models.fields import (
    PRESSURE,
    VELOCITY,
    DerivedField,
    Fields,
    FieldSpec,
    by_name,
)
from simulator.physics.models.flow import (
    Cascade,
    energy_parts,
    flow_scalars,
    moments,
    ratio,
    unresolved,
)
from simulator.physics.models.fluid import FlowSettings
from simulator.physics.models.model import Balance, Model
from simulator.spectral import Evaluated, Local, Points, Transform
from simulator.spectral.arrays import (
    Number,
    OfModes,
    OverModes,
    PhysicalScalar,
    PointValues,
    SpectralScalar,
    SpectralVector,
)
from simulator.spectral.operators import curl, divergence, gradient, project, squared


class NavierStokesSettings(FlowSettings):
    kind: Literal["navier_stokes"] = "navier_stokes"


SUBGRID_STRESS = "subgrid/stress"


class NavierStokes(Model):
    """du/dt = -P[(u . grad) u + 2 Omega x u] - nu k^2 u - nu_n k^(2 n) u - drag, div u = 0, with P
    the solenoidal projection; passive scalars dtheta/dt = -div(u theta) - u . G + D lap theta.

    P removes the pressure gradient and every other gradient, so the advection term may take any
    form that differs from (u . grad) u by a gradient: the stress form of Basdevant if products are
    free of aliasing errors, else the rotational form (see `models.advection`). Canuto et al.,
    Spectral Methods: Evolution to Complex Geometries (2007), section 3.3.

    In two dimensions the velocity has two components and the vorticity one, along the normal.
    Rotation has no effect there, because its force is a gradient, and the only closures are those
    of users."""

    Settings = NavierStokesSettings
    planar = True
    budget = "step"
    exact_force: Momentum = (
        Rotational()
    )  # The force with all gradients but that of u^2 / 2, for the pressure.

    def __init__(
        self,
        settings: NavierStokesSettings,
        transform: Transform,
        further: Sequence[FieldSpec] = (),
    ):
        """`further`: fields that a subclass evolves besides velocity and scalars."""
        grid = transform.grid
        if grid.planar:
            fluid.check_plane(settings)
        scalars = [FieldSpec(s.name) for s in settings.scalars]
        super().__init__(
            settings, transform, [spec.on(grid) for spec in (VELOCITY, *further, *scalars)]
        )
        self.scalars = fluid.scalars_on(grid, settings.scalars)
        self.momentum: Momentum = advection_of(grid)
        self.closure: Closure | None = None

    @classmethod
    def create(cls, settings: Any, make: Callable[..., Transform], files: Any) -> Model:
        model = cls(settings, make())
        if settings.subgrid is not None:
            model.close(CLOSURES[settings.subgrid.kind](settings.subgrid, model.transform, files))
        return model

    def close(self, closure: Closure) -> None:
        """Adds a closure. The budget of a stress takes a nonlinear term."""
        self.closure = closure
        if not closure.modal:
            self.budget = "row"

    @property
    def varied_arrays(self) -> Mapping[str, Any]:
        return (
            {"model.subgrid.arrays": self.closure.arrays}
            if self.closure and self.closure.arrays
            else {}
        )

    def parameters(self, time: Number) -> Any:
        return self.closure.arrays if self.closure is not None else ()

    @property
    def mean_gradients(self) -> Mapping[str, Sequence[float]]:
        """The scalars that the flow transports, with the constant gradient of their means."""
        return {s.name: s.mean_gradient for s in self.scalars}

    def inputs(self, fields: Fields) -> Fields:
        return {**self._resolved_inputs(fields), **self._subgrid_inputs(fields)}

    def pointwise(self, values: PointValues, points: Points, parameters) -> Local:
        resolved = self._resolved(values, points, parameters)
        if self.closure is None or self.closure.modal:
            return resolved
        products = dict(resolved.products)
        for name, product in self._subgrid_products(values, parameters).items():
            # Added to the resolved product, if there is one, so that one transform serves both.
            place = "stress" if name == SUBGRID_STRESS and "stress" in products else name
            products[place] = products[place] + product if place in products else product
        scalars = bool(self.mean_gradients)
        rate = resolved.maxima["rate"] + self.closure.pointwise_rate(values, scalars=scalars)
        return resolved._replace(products=products, maxima={**resolved.maxima, "rate": rate})

    def _resolved_inputs(self, fields: Fields) -> Fields:
        return {**fields, **self.momentum.inputs(self.transform.layout, fields)}

    def _resolved(self, values: PointValues, points: Points, parameters: Any) -> Local:
        products = {**self.momentum.products(values), **fluid.fluxes(self.mean_gradients, values)}
        return Local(
            products, {"rate": fluid.advection_rate(self.transform.grid, values["velocity"])}
        )

    def linear_force(self, fields: Fields) -> SpectralVector | float:
        """The accelerations of the velocity that are linear in the fields, before the
        projection."""
        return fluid.coriolis(fields["velocity"], self.settings.rotation)

    def acceleration(self, products: Fields, fields: Fields) -> SpectralVector:
        """N of the velocity: its accelerations without the pressure, projected."""
        layout = self.transform.layout
        force = self.momentum.force(layout, products) + self.linear_force(fields)
        if SUBGRID_STRESS in products:
            force = force - divergence_of_stress(layout, products[SUBGRID_STRESS])
        return project(layout, force)

    def combine(self, products: Fields, fields: Fields) -> Fields:
        velocity, scalars = fields["velocity"], self._mixing(products)
        for name in scalars:
            if (produced := self.production_of(name, velocity)) is not None:
                scalars[name] -= produced
        return {"velocity": self.acceleration(products, fields), **scalars}

    def _mixing(self, products: Fields) -> Fields:
        return {
            name: -divergence(self.transform.layout, products[name]) for name in self.mean_gradients
        }

    def production_of(self, name: str, velocity: SpectralVector) -> SpectralScalar | None:
        """u . G of a scalar with the mean gradient G; None without one."""
        mean = self.mean_gradients[name]
        return fluid.along(mean, velocity) if any(mean) else None

    def linear(self) -> dict[str, OverModes]:
        layout, dtype, s = self.transform.layout, self.transform.dtype, self.settings
        viscous = fluid.damping_rate(layout, s.damping, dtype)
        velocity = viscous + fluid.drag_rate(layout, s, dtype)
        return {
            "velocity": -velocity,
            **{n: -d * layout.k_squared(dtype) for n, d in self.diffusivities.items()},
        }

    def rate(self, maxima: Mapping[str, Number]) -> Number:
        return maxima["rate"] + 2 * hypot(*self.settings.rotation)

    def tendency(self, fields, time, accelerations=None, keep=()) -> tuple[Fields, Evaluated]:
        """As for every model, with the rates of a modal closure; other closures are among the
        products."""
        rates, evaluated = super().tendency(fields, time, accelerations, keep)
        if self.closure is None or not self.closure.modal:
            return rates, evaluated
        rates = {**rates, **{n: rates[n] + r for n, r in self.subgrid_tendencies(fields).items()}}
        limit = self.closure.modal_rate(fields["velocity"], scalars=bool(self.mean_gradients))
        maxima = {**evaluated.maxima, "rate": evaluated.maxima["rate"] + limit}
        return rates, evaluated._replace(maxima=maxima)

    def _subgrid_inputs(self, fields: Fields) -> Fields:
        if self.closure is None or self.closure.modal:
            return {}
        layout, u = self.transform.layout, fields["velocity"]
        gradients = {
            f"gradient/{name}": gradient(layout, fields[name]) for name in self.mean_gradients
        }
        return {**self.closure.inputs(layout, u), **gradients}

    def _subgrid_products(self, values: PointValues, held: Mapping[str, Any]) -> PointValues:
        assert self.closure is not None
        closure, found = self.closure.with_arrays(held), {}
        for name, mean in self.mean_gradients.items():
            whole = values[f"gradient/{name}"] + fluid.constant(mean, values[name].dtype)
            found[name] = closure.flux(values, values[name], whole)
        return {SUBGRID_STRESS: closure.stress(values), **found}

    def subgrid_tendencies(self, fields: Fields) -> Fields:
        """The closure's part in the tendency of each field; in that of the velocity before the
        projection."""
        closure, scalars = self.closure, list(self.mean_gradients)
        assert closure is not None
        if closure.modal:
            of_velocity, of_scalars = closure.modal_damping(fields["velocity"])
            rates = dict.fromkeys(scalars, of_scalars) | {"velocity": of_velocity}
            return {name: -rate * fields[name] for name, rate in rates.items()}
        inputs = {**self._subgrid_inputs(fields), **{name: fields[name] for name in scalars}}

        def products(values: PointValues, points: Points, parameters: Any) -> Local:
            return Local(self._subgrid_products(values, parameters))

        return self._of_products(self.transform.evaluate(inputs, products, closure.arrays).products)

    def _of_products(self, products: Fields) -> Fields:
        force = -divergence_of_stress(self.transform.layout, products[SUBGRID_STRESS])
        return {"velocity": force, **self._mixing(products)}

    def subgrid_losses(self, fields: Fields) -> dict[str, Number]:
        """The rates, by column, at which the closure moves energy and variance to scales below the
        grid: kinetic energy, the variance of each scalar, and the energy of a further field."""
        inner, found = self.transform.layout.inner, {}
        for name, rate in self.subgrid_tendencies(fields).items():
            found[_loss(name)] = -self._weight(name) * inner(fields[name], rate).sum()
        return found

    def _weight(self, name: str) -> float:
        """1 for f^2 / 2 of a field, 2 for the variance of a scalar."""
        return 2.0 if name in self.mean_gradients else 1.0

    @property
    def energy_weights(self) -> dict[str, float]:
        """w of the energy, the sum of w <f . f> / 2 over some evolved fields f."""
        return {"velocity": 1.0}

    def balance(self, fields: Fields) -> Balance:
        layout, linear, weights = self.transform.layout, self.linear(), self.energy_weights
        energy = sum(0.5 * w * fluid.power(layout, 1.0, fields[n]) for n, w in weights.items())
        lost = sum(w * fluid.power(layout, -linear[n], fields[n]) for n, w in weights.items())
        if self.closure is not None:
            losses = self.subgrid_losses(fields)
            lost += sum(w / self._weight(n) * losses[_loss(n)] for n, w in weights.items())
        return Balance(jnp.asarray(energy), 0.0, jnp.asarray(lost))

    def work(self, fields: Fields, forces: Fields) -> Number:
        weights, inner = self.energy_weights, self.transform.layout.inner
        terms = (w * inner(fields[n], forces[n]).sum() for n, w in weights.items() if n in forces)
        return jnp.asarray(sum(terms))

    def diagnostics(self, fields: Fields, time: Number) -> dict[str, Number]:
        return self._columns(fields, time, self._measured(fields))

    def _measured(self, fields: Fields) -> Evaluated:
        transform, inputs = self.transform, {"velocity": fields["velocity"]}
        return moments(
            transform, inputs, lambda v: fluid.advection_rate(transform.grid, v["velocity"])
        )

    def _columns(self, fields: Fields, time: Number, measured: Evaluated) -> dict[str, Number]:
        layout, u, s = self.transform.layout, fields["velocity"], self.settings
        balance, turning = self.balance(fields), 2 * hypot(*s.rotation)
        viscous = fluid.power(layout, fluid.damping_rate(layout, s.damping, u.real.dtype), u)
        dragged = fluid.power(layout, fluid.drag_rate(layout, s, u.real.dtype), u)
        flow = flow_scalars(
            self.transform, u, s.damping, self._cascaded(viscous, curl(layout, u)), measured
        )
        subgrid: dict[str, jax.Array] = {}
        if self.closure is not None:
            subgrid = self.subgrid_losses(fields)
            # With a closure the cascade ends at scales below the grid.
            flow = {n: v for n, v in flow.items() if n not in ("kolmogorov_scale", "k_max_eta")}
            flow["rate"] = self.tendency(fields, time)[1].maxima["rate"]
        return {
            "energy": balance.energy,
            "kinetic_energy": 0.5 * fluid.power(layout, 1.0, u),
            "dissipation": balance.dissipation,
            "viscous_dissipation": viscous,
            **({"drag_dissipation": dragged} if s.drag else {}),
            **subgrid,
            **flow,
            **(
                {"rossby": ratio(flow["u_rms"], turning * flow["integral_scale"])}
                if turning
                else {}
            ),
            **fluid.scalar_diagnostics(layout, self.scalars, fields),
            "rate": self.rate(flow),
        }

    def _cascaded(self, viscous: jax.Array, vorticity: jax.Array) -> Cascade:
        if not self.transform.grid.planar:
            return Cascade("energy", viscous)
        layout, s = self.transform.layout, self.settings
        rate = fluid.damping_rate(layout, s.damping, vorticity.real.dtype)
        return Cascade("enstrophy", fluid.power(layout, rate, vorticity))

    def warnings(self, row: Mapping[str, float]) -> list[str]:
        """Remarks on the resolution from a row of diagnostics; a closure is for flows that the grid
        cuts off."""
        return unresolved(row) if self.closure is None else []

    def spectral_energies(self, fields: Fields) -> dict[str, OfModes]:
        layout, names = self.transform.layout, self.mean_gradients
        variances = {
            f"{name}_variance": fluid.variance_modes(layout, fields[name]) for name in names
        }
        return {"kinetic_energy": 0.5 * squared(fields["velocity"]), **variances}

    def cospectra(self, fields: Fields) -> dict[str, OfModes]:
        """The flux u_i theta of every scalar along each axis; of rotating flows the energy of
        waves."""
        fluxes = fluid.scalar_fluxes(self.transform.layout, self.mean_gradients, fields)
        return {**fluxes, **self.wave_parts(fields)}

    def wave_parts(self, fields: Fields) -> dict[str, OfModes]:
        """The energy of waves and of the rest, if the linear terms make waves."""
        rotation = self.settings.rotation
        if not any(rotation):
            return {}
        axis = [x / hypot(*rotation) for x in rotation]
        return energy_parts(self.transform.layout, fields["velocity"], None, rotation, 0.0, axis)

    def transfers(self, fields: Fields) -> dict[str, OfModes]:
        """Transfers by advection; with a closure also `subgrid`, the energy that modes gain from
        scales below the grid, and `NAME_subgrid`, the variance of a scalar that they gain."""
        resolved = self.transform.evaluate(self._resolved_inputs(fields), self._resolved).products
        return {**self.transfers_of(resolved, fields), **self.subgrid_transfers(fields)}

    def subgrid_transfers(self, fields: Fields) -> dict[str, OfModes]:
        if self.closure is None:
            return {}
        rates = self.subgrid_tendencies(fields).items()
        found = {n: self._weight(n) * fluid.transfer(fields[n], rate) for n, rate in rates}
        return {"subgrid" if n == "velocity" else f"{n}_subgrid": rate for n, rate in found.items()}

    def transfers_of(self, products: Fields, fields: Fields) -> dict[str, OfModes]:
        """`transfers` from the coefficients of the products."""
        kinetic = fluid.transfer(
            fields["velocity"], self.momentum.force(self.transform.layout, products)
        )
        return {"kinetic_energy": kinetic, **self.scalar_transfers(products, fields)}

    def scalar_transfers(self, products: Fields, fields: Fields) -> dict[str, OfModes]:
        """The rate at which advection adds to the variance of each mode, as `NAME_variance`."""
        rates = self._mixing(products).items()
        return {f"{name}_variance": 2 * fluid.transfer(fields[name], rate) for name, rate in rates}

    @property
    def diffusivities(self) -> dict[str, float]:
        """The diffusivities (length^2/time) of the scalars, by name."""
        return {s.name: s.diffusivity for s in self.settings.scalars}

    def derived(self) -> Mapping[str, DerivedField]:
        found = fluid.flow_fields(self.transform)
        # A closure states its stress only up to the trace, which the pressure contains; a modal
        # force has no divergence.
        if self.closure is None or self.closure.modal:
            found[PRESSURE.name] = DerivedField(PRESSURE, self._pressure)
        return {
            **found,
            **by_name(fluid.dissipation_rate(self.transform, self.settings.viscosity)),
            **fluid.scalar_fields(self.transform, self.diffusivities),
        }

    def _pressure(self, fields: Fields) -> PhysicalScalar:
        force = self.exact_force
        inputs = {n: fields[n] for n in force.fields} | force.inputs(self.transform.layout, fields)
        return fluid.pressure(
            self.transform, inputs, lambda v: force.products(v)["force"], self.linear_force(fields)
        )


def _loss(name: str) -> str:
    return "subgrid_dissipation" if name == "velocity" else f"{name}_subgrid_dissipation"
