"""Incompressible Navier-Stokes equations in three dimensions, in rotational form."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp

from simulator.models.model import Fields
from simulator.settings import NonNegative, Settings
from simulator.spectral import Local, Points, Transform
from simulator.spectral.operators import curl, divergence, project


class NavierStokesSettings(Settings):
    kind: Literal["navier_stokes"] = "navier_stokes"
    viscosity: NonNegative
    """Kinematic viscosity, length^2 / time."""


class NavierStokes:
    """du/dt = P[u x omega] + nu lap u, div u = 0, omega = curl u, with P the solenoidal projection.

    The pressure is eliminated by P; what P removes from u x omega is the gradient of p + |u|^2 / 2 (density 1).
    See e.g. Canuto et al., Spectral Methods: Evolution to Complex Geometries (2007), section 3.3.
    """

    Settings = NavierStokesSettings
    components: ClassVar[Mapping[str, tuple[int, ...]]] = {"velocity": (3,)}
    solenoidal: ClassVar[tuple[str, ...]] = ("velocity",)

    def __init__(self, settings: NavierStokesSettings, transform: Transform):
        self.settings, self.transform = settings, transform

    # ---- the equation ------------------------------------------------------------------------------------

    def inputs(self, fields: Fields) -> Fields:
        velocity = fields["velocity"]
        return {"velocity": velocity, "vorticity": curl(self.transform.layout, velocity)}

    def pointwise(self, values: Fields, points: Points, parameters) -> Local:
        u, omega = values["velocity"], values["vorticity"]
        return Local({"lamb": cross(u, omega)}, {"rate": self._advection(u)})

    def parameters(self, time: jax.Array) -> tuple:
        return ()

    def combine(self, products: Fields, fields: Fields) -> Fields:
        return {"velocity": project(self.transform.layout, products["lamb"])}

    def decay(self) -> Fields:
        dtype = self.transform.dtype
        return {"velocity": self.settings.viscosity * self.transform.layout.k_squared(dtype)}

    def rate(self, maxima: Mapping[str, jax.Array]) -> jax.Array:
        return maxima["rate"]

    def _advection(self, u: jax.Array) -> jax.Array:
        """sum_i |u_i| / dx_i."""
        dx, dy, dz = self.transform.grid.spacing
        return abs(u[0]) / dx + abs(u[1]) / dy + abs(u[2]) / dz

    # ---- what is measured --------------------------------------------------------------------------------

    def diagnostics(self, fields: Fields, time: jax.Array) -> dict[str, jax.Array]:
        layout, u = self.transform.layout, fields["velocity"]
        omega = curl(layout, u)
        kinetic = 0.5 * layout.inner(u, u).sum()

        def extremes(values, points, parameters):
            v = values["velocity"]
            speed = jnp.sqrt(v[0] ** 2 + v[1] ** 2 + v[2] ** 2)
            return Local(
                {},
                {"speed": speed, "divergence": abs(values["divergence"]), "rate": self._advection(v)},
            )

        found = self.transform.evaluate({"velocity": u, "divergence": divergence(layout, u)}, extremes).maxima
        return {
            "energy": kinetic,
            "kinetic_energy": kinetic,
            "dissipation": layout.sum(self.decay()["velocity"] * (abs(u) ** 2)).sum(),
            "enstrophy": 0.5 * layout.inner(omega, omega).sum(),
            "helicity": layout.inner(u, omega).sum(),
            "max_speed": found["speed"],
            "max_divergence": found["divergence"],
            "rate": self.rate(found),
        }

    def spectra(self, fields: Fields) -> dict[str, jax.Array]:
        layout = self.transform.layout
        density = 0.5 * (abs(fields["velocity"]) ** 2).sum(0)
        return {"kinetic_energy": layout.shell_sum(density) / layout.shell_width}

    def derived(self) -> Mapping[str, Callable[[Fields], jax.Array]]:
        inverse, layout = self.transform.inverse, self.transform.layout
        return {
            "vorticity": lambda f: inverse(curl(layout, f["velocity"])),
            "speed": lambda f: jnp.linalg.norm(inverse(f["velocity"]), axis=0),
            "vorticity_magnitude": lambda f: jnp.linalg.norm(inverse(curl(layout, f["velocity"])), axis=0),
            "pressure": lambda f: inverse(self._pressure(f)),
        }

    def _pressure(self, fields: Fields) -> jax.Array:
        """Pressure over density, without mean: lap(p + |u|^2 / 2) = div(u x omega)."""

        def head(values, points, parameters):
            u = values["velocity"]
            return Local({"lamb": cross(u, values["vorticity"]), "kinetic": 0.5 * (u**2).sum(0)})

        layout = self.transform.layout
        products = self.transform.evaluate(self.inputs(fields), head).products
        inverse_k2 = layout.inverse_k_squared(self.transform.dtype)
        fluctuation = jnp.where(inverse_k2 == 0, 0, products["kinetic"])
        return -inverse_k2 * divergence(layout, products["lamb"]) - fluctuation


def cross(a: jax.Array, b: jax.Array) -> jax.Array:
    """a x b of vectors (3, ...)."""
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])
