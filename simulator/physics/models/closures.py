"""Closures of large-eddy simulations: the effect of the scales below the grid on the resolved
scales.

A new closure is a class here, or in a file of its own, a line in `CLOSURES` and one in
`SubgridSettings`."""

import io
import math
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from pydantic import Field

from simulator.errors import UserError
from simulator.physics.models.advection import (
    divergence_of_stress,
    strain_rate,
    stress_pairs,
    stress_without_trace,
)
from simulator.physics.models.damping import absent
from simulator.physics.models.fields import Fields
from simulator.physics.models.passive_scalars import whole_gradient
from simulator.physics.user_function import UserFiles, UserFunction, traced_values
from simulator.settings import InputPath, Positive, PythonFile, Settings, wrong
from simulator.spectral import Grid, Layout, Local, Points, Transform
from simulator.spectral.arrays import (
    Number,
    PhysicalScalar,
    PhysicalVector,
    PointValues,
    SpectralVector,
    root,
)
from simulator.spectral.collectives import after
from simulator.spectral.operators import (
    curl,
    divergence,
    squared,
    symmetric_pairs,
    wavenumbers,
)
from simulator.spectral.transform import Tree

if TYPE_CHECKING:
    from simulator.physics.models.equation import Equation
    from simulator.physics.models.navier_stokes import NavierStokes


Flow = TypeVar("Flow", bound="Equation")


class Closure(Generic[Flow]):
    """The force -div tau of the subgrid stress tau_ij = <u_i u_j> - <u_i> <u_j> on a filtered
    velocity, up to a gradient, and -div q of the subgrid flux q = <u theta> - <u> <theta> of a
    transported scalar (Pope, Turbulent Flows, section 13.2).

    It adds `inputs`, `products` and a `rate` to those of a flow, or, with `modal`, `modal_rates`.
    `__init__` raises UserError for unsuitable settings."""

    Settings: ClassVar[type[Settings]]
    modal: ClassVar[bool] = False
    """Whether the closure damps each mode at a rate from the fields, and adds no products."""
    arrays: Mapping[str, Tree] = {}
    """Arrays by name, such as weights; a run can be differentiated by them."""

    def __init__(self, settings: Any, transform: Transform, files: UserFiles) -> None:
        """`files` opens the user's files."""
        self.settings = settings
        self.transform = transform

    def numbers(self) -> dict[str, Tree]:
        """The attributes over which pointwise functions must not close: `arrays`, and numbers that
        are traced, because a run is differentiated by them."""
        traced = {name: value for name, value in vars(self).items() if isinstance(value, Tracer)}
        return {"arrays": self.arrays, **traced}

    def with_numbers(self, numbers: Mapping[str, Tree]) -> Self:
        """A copy with these attributes."""
        other = copy(self)
        vars(other).update(numbers)
        return other

    def inputs(self, model: Flow, fields: Fields) -> Fields:
        """Coefficients of the further fields whose values `products` needs."""
        return {}

    def products(self, model: Flow, values: PointValues) -> PointValues:
        """Products at a point, each added to that of the flow with the same name: `stress`, the
        flux of a scalar by the scalar's name, and `emf` of a magnetic field."""
        return {}

    def rate(self, model: Flow, values: PointValues) -> PhysicalScalar | float:
        """The closure's part in the rate (1/time) at a point that limits dt."""
        return 0.0

    def modal_rates(self, model: Flow, fields: Fields) -> Fields:
        """Rates of fields that are not made of products at points."""
        return {}

    def fastest_damping(self, model: Flow, fields: Fields) -> Number | float:
        """The part of `modal_rates` in the rate (1/time) that limits dt."""
        return 0.0

    def tendencies(self, model: Flow, fields: Fields) -> Fields:
        """The closure's part in the tendency of each field; in that of the velocity before the
        projection."""
        return self.modal_rates(model, fields)


class StressClosure(Closure["NavierStokes"]):
    """A closure that states `stress` and `flux`, pointwise functions of the values of
    `stress_inputs`, and for magnetohydrodynamics `electromotive_force`."""

    def stress_inputs(self, layout: Layout, velocity: SpectralVector) -> Fields:
        """Coefficients of the fields whose values `stress` needs."""
        return {}

    def stress(self, values: PointValues) -> Float[Array, "pair x y z"]:
        """tau_ij - tau_zz delta_ij (length^2/time^2) at a point, in the order xx, yy, xy, xz, yz;
        in a plane tau_ij - tau_yy delta_ij, in the order xx, xy."""
        raise TypeError(f"{type(self).__name__} does not define stress")

    def flux(
        self, values: PointValues, scalar: PhysicalScalar, gradient: PhysicalVector
    ) -> PhysicalVector:
        """q at a point, for a scalar's value and its gradient, which includes the gradient of the
        scalar's mean."""
        raise TypeError(f"{type(self).__name__} does not define flux")

    def electromotive_force(self, values: PointValues) -> PhysicalVector:
        """<u x b> - <u> x <b> at a point; `values` hold `current` = curl b, too."""
        raise TypeError(f"{type(self).__name__} does not define electromotive_force")

    def inputs(self, model: "NavierStokes", fields: Fields) -> Fields:
        layout = self.transform.layout
        inputs = self.stress_inputs(layout, fields["velocity"])
        for scalar in model.transported:
            theta = fields[scalar.name]
            inputs[f"gradient/{scalar.name}"] = whole_gradient(layout, theta, scalar.mean_gradient)
        if "magnetic" in fields:
            inputs["current"] = curl(layout, fields["magnetic"])
        return inputs

    def products(self, model: "NavierStokes", values: PointValues) -> PointValues:
        products = {"stress": self.stress(values)}
        for scalar in model.transported:
            full = values[f"gradient/{scalar.name}"]
            products[scalar.name] = self.flux(values, values[scalar.name], full)
        if "magnetic" in model.fields:
            products["emf"] = self.electromotive_force(values)
        return products

    def tendencies(self, model: "NavierStokes", fields: Fields) -> Fields:
        layout = self.transform.layout
        scalars = {scalar.name: fields[scalar.name] for scalar in model.transported}

        def local(values: PointValues, points: Points, numbers: Mapping[str, Tree]) -> Local:
            return Local(self.with_numbers(numbers).products(model, values))

        inputs = {**self.inputs(model, fields), **scalars}
        products = self.transform.evaluate(inputs, local, self.numbers()).products
        rates = {"velocity": -divergence_of_stress(layout, products["stress"])}
        rates |= {name: -divergence(layout, products[name]) for name in scalars}
        if "emf" in products:
            rates["magnetic"] = curl(layout, products["emf"])
        return rates


def filter_width(grid: Grid, width: float | None = None) -> float:
    """The width of the settings; by default the geometric mean of pi / k_max, the width of the
    filter that keeps the modes (Pope, section 13.2)."""
    if width is not None:
        return width
    kept = [n * unit for n, unit in zip(grid.kept, grid.fundamental, strict=True) if n > 0]
    return math.pi / math.prod(kept) ** (1 / len(kept)) if kept else min(grid.box)


def diffusive_rate(grid: Grid, viscosity: jax.Array) -> jax.Array:
    """nu sum_i k_i / dx_i (1/time) with the largest kept k_i: explicit viscosity limits dt like
    speeds nu k_i."""
    scales = zip(grid.kept, grid.fundamental, grid.spacing, strict=True)
    return viscosity * sum(n * unit / h for n, unit, h in scales)


class SmagorinskySettings(Settings):
    kind: Literal["smagorinsky"] = "smagorinsky"
    coefficient: Positive = 0.17
    """C_s; 0.17 for an inertial range up to the filter (Lilly)."""
    filter_width: Positive | None = None
    """Delta (length); by default pi / k_max, of boxes with unequal modes the geometric mean over
    the axes."""
    turbulent_prandtl: Positive = 0.42
    """nu_t / D_t of scalars and of the buoyancy (also called the turbulent Schmidt number); 0.42
    for inertial ranges of velocity and scalar up to the filter (Schmidt and Schumann)."""
    resistive_coefficient: Positive | None = None
    """C_eta of the eddy resistivity (C_eta Delta)^2 |j|; required for mhd, which has no generally
    accepted value."""


class Smagorinsky(StressClosure):
    """tau_ij = -2 nu_t S_ij with nu_t = (C_s Delta)^2 |S|, |S| = sqrt(2 S_ij S_ij) and the strain
    S.

    Scalars have the flux -(nu_t / Pr_t) grad theta. Constants of Kolmogorov and Obukhov-Corrsin of
    1.6 and 1.34 / 2 give Pr_t = 1.34 / (2 * 1.6), as nu_t and D_t then take the whole dissipation
    of the inertial ranges. Magnetic fields have the electromotive force -eta_t j with eta_t =
    (C_eta Delta)^2 |j|.

    Smagorinsky 1963, Mon. Weather Rev. 91, 99; Pope, Turbulent Flows, section 13.4; Schmidt and
    Schumann 1989, J. Fluid Mech. 200, 511; Theobald, Fox and Sofia 1994, Phys. Plasmas 1, 3016."""

    Settings = SmagorinskySettings

    def __init__(self, settings: SmagorinskySettings, transform: Transform, files: UserFiles):
        super().__init__(settings, transform, files)
        width = filter_width(transform.grid, settings.filter_width)
        self._length = settings.coefficient * width
        self._prandtl = settings.turbulent_prandtl
        coefficient = settings.resistive_coefficient
        self._is_resistive = coefficient is not None and not absent(coefficient)
        self._resistive_length = 0.0 if coefficient is None else coefficient * width

    def stress_inputs(self, layout: Layout, velocity: SpectralVector) -> Fields:
        """The components xx, yy, xy, xz, yz of the strain; without divergence zz = -(xx + yy)."""
        return {"strain": strain_rate(layout, velocity, stress_pairs(3))}

    def _viscosity(self, values: PointValues) -> jax.Array:
        return self._length**2 * _size(values["strain"])

    def _resistivity(self, current: jax.Array) -> jax.Array:
        return self._resistive_length**2 * root((current**2).sum(0))

    def stress(self, values: PointValues) -> Float[Array, "5 x y z"]:
        xx, yy, xy, xz, yz = values["strain"]
        return -2 * self._viscosity(values) * jnp.stack([2 * xx + yy, xx + 2 * yy, xy, xz, yz])

    def flux(
        self, values: PointValues, scalar: PhysicalScalar, gradient: PhysicalVector
    ) -> PhysicalVector:
        return -(self._viscosity(values) / self._prandtl) * gradient

    def electromotive_force(self, values: PointValues) -> PhysicalVector:
        return -self._resistivity(values["current"]) * values["current"]

    def rate(self, model: "NavierStokes", values: PointValues) -> PhysicalScalar:
        """Changes of the strain are damped by up to twice the eddy viscosity, because the eddy
        viscosity grows with the strain; likewise changes of the current. The diffusivity of scalars
        does not depend on the scalars."""
        factor = jnp.maximum(2.0, 1 / self._prandtl) if model.transported else 2.0
        largest = factor * self._viscosity(values)
        if self._is_resistive:
            largest = jnp.maximum(largest, 2 * self._resistivity(values["current"]))
        return diffusive_rate(self.transform.grid, largest)


class DynamicSmagorinskySettings(Settings):
    kind: Literal["dynamic_smagorinsky"] = "dynamic_smagorinsky"
    filter_width: Positive | None = None
    """Delta (length); by default pi / k_max, of boxes with unequal modes the geometric mean over
    the axes."""
    turbulent_prandtl: Positive = 0.42
    """nu_t / D_t of scalars and of the buoyancy, as for smagorinsky."""


class DynamicSmagorinsky(Smagorinsky):
    """Smagorinsky's stress, whose coefficient follows from the flow: nu_t = C Delta^2 |S| with C =
    <L_ij M_ij> / <M_ij M_ij> over the box, or 0 where this is negative.

    With the test filter ~, sharp at pi / (2 Delta): L_ij = (u_i u_j)~ - u~_i u~_j and M_ij = 2
    Delta^2 [(|S| S_ij)~ - 4 |S~| S~_ij], on the modes of the state. Germano, Piomelli, Moin and
    Cabot 1991, Phys. Fluids A 3, 1760, with the least squares of Lilly 1992, Phys. Fluids A 4,
    633."""

    Settings = DynamicSmagorinskySettings

    def __init__(
        self, settings: DynamicSmagorinskySettings, transform: Transform, files: UserFiles
    ):
        Closure.__init__(self, settings, transform, files)
        self._prandtl = settings.turbulent_prandtl
        self._width = filter_width(transform.grid, settings.filter_width)
        self._resistive_length = 0.0
        self._is_resistive = False

    def stress_inputs(self, layout: Layout, velocity: SpectralVector) -> Fields:
        strain = super().stress_inputs(layout, velocity)["strain"]
        dtype = velocity.real.dtype

        def products(values: PointValues, points: Points, parameters: Tree) -> Local:
            s = values["strain"]
            return Local({"uu": stress_without_trace(values["velocity"]), "ss": _size(s) * s})

        def coefficients(u: SpectralVector, s: jax.Array) -> Fields:
            # One function for both evaluations, which then share a program.
            return self.transform.evaluate({"velocity": u, "strain": s}, products).products

        kept = (layout.k_squared(dtype) <= (math.pi / (2 * self._width)) ** 2).astype(dtype)
        fine = coefficients(velocity, strain)
        coarse = coefficients(kept * after(velocity, fine["uu"]), kept * strain)
        stress = kept * fine["uu"] - coarse["uu"]
        model = 2 * self._width**2 * (kept * fine["ss"] - 4 * coarse["ss"])
        twice = jnp.array([1, 1, 2, 2, 2])  # both xy and yx
        last = layout.inner(model[0] + model[1], model[0] + model[1])
        over = twice @ layout.inner(stress, model)
        under = twice @ layout.inner(model, model) + last
        squared_length = self._width**2 * jnp.maximum(over / jnp.where(under > 0, under, 1), 0)
        return {
            "strain": strain,
            "squared_length": jnp.where(layout.zero, squared_length, 0).astype(velocity.dtype),
        }

    def _viscosity(self, values: PointValues) -> jax.Array:
        return values["squared_length"] * _size(values["strain"])


def _size(strain: jax.Array) -> jax.Array:
    """|S| = sqrt(2 S_ij S_ij) of the components xx, yy, xy, xz, yz. Its slope at 0 is 0, which is
    that of nu_t S there."""
    xx, yy, xy, xz, yz = strain
    return root(2 * (xx * xx + yy * yy + (xx + yy) ** 2) + 4 * (xy * xy + xz * xz + yz * yz))


class SpectralSettings(Settings):
    kind: Literal["spectral"] = "spectral"
    kolmogorov_constant: Positive = 1.4
    """C_K of the spectrum C_K dissipation^(2/3) k^(-5/3) below the cut-off."""
    turbulent_prandtl: Positive = 0.6
    """nu_t / D_t of scalars and buoyancy, or turbulent Schmidt number; 0.6 by the same theory
    (Lesieur and Metais)."""


class Spectral(Closure["NavierStokes"]):
    """-nu_t(k) k^2 u with nu_t = 0.441 C_K^(-3/2) (1 + 34.5 exp(-3.03 k_c / k)) sqrt(E(k_c) / k_c).

    k_c is the radius of the sphere of kept modes and E(k_c) the energy spectrum in the last shell
    that lies in it. Beyond k_c, in the corners of the modes, nu_t is that at k_c. Scalars are
    damped with nu_t / Pr_t.

    Chollet and Lesieur 1981, J. Atmos. Sci. 38, 2747; Lesieur, Turbulence in Fluids (2008), section
    12.3; Lesieur and Metais 1996, Annu. Rev. Fluid Mech. 28, 45."""

    Settings = SpectralSettings
    modal = True

    def __init__(self, settings: SpectralSettings, transform: Transform, files: UserFiles):
        super().__init__(settings, transform, files)
        self._prandtl = settings.turbulent_prandtl
        self._cut = transform.grid.largest_wavenumber
        width = transform.layout.shell_width
        self._shell = max(1, math.floor(self._cut / width - 0.5 + 1e-9))

    def _scale(self, velocity: SpectralVector) -> Number:
        """0.441 C_K^(-3/2) sqrt(E(k_c) / k_c), length^2 / time."""
        layout = self.transform.layout
        last = layout.shell_numbers() == self._shell
        energy = layout.sum(jnp.where(last, 0.5 * squared(velocity), 0)) / layout.shell_width
        return 0.441 * self.settings.kolmogorov_constant**-1.5 * root(energy / self._cut)

    def modal_rates(self, model: "NavierStokes", fields: Fields) -> Fields:
        velocity = fields["velocity"]
        layout = self.transform.layout
        k2 = layout.k_squared()
        ratio = self._cut / jnp.sqrt(jnp.clip(k2, 1e-300, self._cut**2))
        rate = k2 * (1 + 34.5 * jnp.exp(-3.03 * ratio))
        damping = (self._scale(velocity) * rate).astype(velocity.real.dtype)
        of_scalars = damping / self._prandtl
        scalars = {s.name: -of_scalars * fields[s.name] for s in model.transported}
        return {**scalars, "velocity": -damping * velocity}

    def fastest_damping(self, model: "NavierStokes", fields: Fields) -> Number:
        most = 1 + 34.5 * math.exp(-3.03)
        factor = jnp.maximum(1.0, 1 / self._prandtl) if model.transported else 1.0
        scale = self._scale(fields["velocity"])
        return diffusive_rate(self.transform.grid, factor * most * scale)


class PythonStressSettings(Settings):
    kind: Literal["python"] = "python"
    path: PythonFile
    """A Python file; the run copies the file and executes the copy."""
    function: str
    """function(velocity, gradient, width, **parameters) gives the stress: xx, yy, zz, xy, xz, yz;
    planes: xx, yy, xy."""
    flux: str | None = None
    """flux(velocity, gradient, scalar, scalar_gradient, width, **parameters) gives a scalar's flux
    along x, y and z; required with scalars or a buoyancy."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of both functions."""
    arrays: InputPath | None = None
    """A .npz file, which the run copies: its arrays, such as weights of a network, are keyword
    arguments, too."""
    arrays_function: str | None = None
    """A function of `path` without arguments, which makes the arrays: a dictionary of arrays or
    trees of arrays. With `arrays` the file gives their values: its `layers/0/w` is
    `layers[0]["w"]`."""


class PythonStress(StressClosure):
    """tau at a point as a function of the velocity (3, ...), its gradient A_ij = du_i/dx_j (3, 3,
    ...) and the filter width pi / k_max, by `function(velocity, gradient, width, **parameters)`:
    six arrays xx, yy, zz, xy, xz, yz. The flux of a scalar is three arrays, by `flux(velocity,
    gradient, scalar, scalar_gradient, width, **parameters)`. In planes vectors have two components
    and the stress has three: xx, yy, xy.

    Both functions work point by point with jax.numpy. Their effect on dt is not known: they do not
    limit it."""

    Settings = PythonStressSettings

    def __init__(self, settings: PythonStressSettings, transform: Transform, files: UserFiles):
        super().__init__(settings, transform, files)
        self._width = filter_width(transform.grid)
        self._pairs = symmetric_pairs(len(transform.grid.axes))
        self._function = self._flux = UserFunction.of(files, settings, "values", "subgrid: ")

        def in_dtype(a: ArrayLike) -> Any:
            return (
                jnp.asarray(a, transform.dtype)
                if jnp.issubdtype(jnp.result_type(a), jnp.floating)
                else a
            )

        self.arrays = jax.tree.map(in_dtype, self._read_arrays(files))
        axes = len(transform.grid.axes)
        leads = {"velocity": (axes,), "gradient": (axes, axes), "scalar": ()}
        values = traced_values(leads, transform.dtype)
        advice = "a closure works point by point"
        self._function.check_pointwise(jax.make_jaxpr(self.stress)(values), advice)
        if settings.flux is not None:
            flux = files.function(str(settings.path), settings.flux)
            self._flux = replace(self._function, function=flux, name=settings.flux)
            traced = jax.make_jaxpr(self.flux)(values, values["scalar"], values["velocity"])
            self._flux.check_pointwise(traced, advice)

    def _read_arrays(self, files: UserFiles) -> Mapping[str, Tree]:
        settings = self.settings
        template = {}
        if isinstance(settings.arrays, Mapping):
            return settings.arrays
        if settings.arrays_function is not None:
            function = files.function(str(settings.path), settings.arrays_function)
            with jax.ensure_compile_time_eval():
                template = replace(
                    self._function, function=function, name=function.__name__, parameters={}
                )()
            if not isinstance(template, Mapping):
                raise UserError(
                    f"subgrid.arrays_function: {function.__name__} returned no dictionary of arrays"
                )
        if settings.arrays is None:
            return template
        try:
            with np.load(io.BytesIO(files.read(str(settings.arrays)))) as file:
                stored = {name: file[name] for name in file.files}
        except (ValueError, OSError, AttributeError):
            raise UserError(
                f"subgrid: {settings.arrays}: is no .npz file; numpy.savez writes one"
            ) from None
        return (
            fitted(stored, template, f"subgrid.arrays: {settings.arrays}") if template else stored
        )

    def stress_inputs(self, layout: Layout, velocity: SpectralVector) -> Fields:
        k = wavenumbers(layout, velocity.real.dtype)
        gradient = jnp.stack([jnp.stack([1j * q * component for q in k]) for component in velocity])
        return {"velocity": velocity, "gradient": gradient}

    def stress(self, values: PointValues) -> Float[Array, "pair x y z"]:
        names = ["".join("xyz"[i] for i in pair) for pair in self._pairs]
        parts = dict(zip(self._pairs, self._parts(self._function, names, values), strict=True))
        axis = len(values["velocity"]) - 1
        last = parts.pop((axis, axis))
        return jnp.stack([part - last if i == j else part for (i, j), part in parts.items()])

    def flux(
        self, values: PointValues, scalar: PhysicalScalar, gradient: PhysicalVector
    ) -> PhysicalVector:
        names = list("xyz"[: len(values["velocity"])])
        return jnp.stack(self._parts(self._flux, names, values, scalar, gradient))

    def _parts(
        self, user: UserFunction, names: list[str], values: PointValues, *scalar: jax.Array
    ) -> list[jax.Array]:
        velocity = values["velocity"]

        def parts(*arguments: Any, **parameters: Any) -> list[jax.Array]:
            components = user.function(*arguments, **parameters)
            return [
                jnp.broadcast_to(jnp.asarray(part, velocity.dtype), velocity.shape[1:])
                for part in components
            ]

        keywords = {**user.parameters, **self.arrays}
        called = replace(user, function=parts, parameters=keywords)
        components = called(velocity, values["gradient"], *scalar, self._width)
        if len(components) != len(names):
            raise user.refused(
                f"returned {len(components)} components; {len(names)} are needed: {', '.join(names)}"
            )
        return components


def named(tree: Tree) -> dict[str, Any]:
    """The arrays of a tree by name: `layers/0/w` is `tree["layers"][0]["w"]`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def fitted(tree: Tree, like: Tree, where: str) -> Tree:
    """The arrays of `tree`, by name, in the tree `like`. Raises UserError, `where`: ..., for other
    names or shapes."""
    arrays = named(tree)
    wanted = named(like)
    for name in [*arrays, *wanted]:
        if name not in wanted:
            raise UserError(f"{where}: unknown array {name!r}; the closure has {', '.join(wanted)}")
        if name not in arrays:
            raise UserError(f"{where}: array {name!r} is missing")
        shapes = [np.shape(a[name]) for a in (arrays, wanted)]
        if shapes[0] != shapes[1]:
            raise UserError(
                f"{where}: array {name!r} has the shape {shapes[0]}; {shapes[1]} is needed"
            )
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in wanted])


CLOSURES: dict[str, type[Closure]] = {
    "smagorinsky": Smagorinsky,
    "dynamic_smagorinsky": DynamicSmagorinsky,
    "spectral": Spectral,
    "python": PythonStress,
}
SubgridSettings = Annotated[
    SmagorinskySettings | DynamicSmagorinskySettings | SpectralSettings | PythonStressSettings,
    Field(discriminator="kind"),
]


def check_closed(subgrid: SubgridSettings | None, fields: Collection[str]) -> None:
    """Refuses a closure that lacks a key for one of the `fields`, or has one that no field needs."""
    magnetic = "magnetic" in fields
    match subgrid:
        case PythonStressSettings() | DynamicSmagorinskySettings() | SpectralSettings() if magnetic:
            problem = f"{subgrid.kind} closes no magnetic field; mhd takes smagorinsky"
            raise wrong("subgrid.kind", problem)
        case SmagorinskySettings(resistive_coefficient=None) if magnetic:
            problem = "is required in mhd, C_eta in (C_eta Delta)^2 |j|"
            raise wrong("subgrid.resistive_coefficient", problem)
        case PythonStressSettings(flux=None) if set(fields) - {"velocity", "magnetic"}:
            problem = "is required, a function for the subgrid flux of the scalars"
            raise wrong("subgrid.flux", problem)
        case SmagorinskySettings(resistive_coefficient=float()) if not magnetic:
            problem = "has no effect without a magnetic field; leave it out"
            raise wrong("subgrid.resistive_coefficient", problem)


def varied_arrays(model: "Equation") -> Mapping[str, Tree]:
    """Trees of arrays of the closure by which a run can be differentiated, by their keys in the
    configuration."""
    arrays = {} if model.closure is None else model.closure.arrays
    return {"model.subgrid.arrays": arrays} if arrays else {}
