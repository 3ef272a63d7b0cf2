"""Helicity, and energy and flux by its sign: helicity.h5."""

from __future__ import annotations

from simulator.measure.kind import Curves, Kind, Measured, SeriesCadence, Subject, Unsupported, in_shells
from simulator.measure.lazy import cross, curl, flux, jax, jnp, models, spectral, squared, transfer


def check_flow(subject: Subject) -> None:
    """Refuses models without an evolved velocity that is free of divergence."""
    if "velocity" not in subject.model.solenoidal:
        raise Unsupported("needs an incompressible flow")


class Helicity(Kind):
    name = "helicity"
    description = "Helicity spectrum, and energy, transfer and flux by the sign of helicity, in helicity.h5."
    curves = Curves(coordinates={"k": r"wavenumber $k$"}, log="x")

    def measured(self, subject: Subject, settings: SeriesCadence) -> Measured:
        check_flow(subject)
        if subject.transform.grid.planar:
            raise Unsupported("is zero in two dimensions", of_model=False)
        return helical(subject.transform)


SIGNS = ("positive", "negative")


def helical_parts(transform: spectral.Transform, velocity: jax.Array) -> tuple[jax.Array, jax.Array]:
    """u+ and u- (3, *order): the parts of every mode except k = 0 with i k x u = +|k| u and -|k| u (Waleffe 1992,
    Phys. Fluids A 4, 350, eq. 1). Their sum is u without its mean."""
    layout = transform.layout
    inverse_k = jnp.sqrt(layout.inverse_k_squared(velocity.real.dtype))
    scaled_curl = curl(layout, velocity) * inverse_k
    without_mean = jnp.where(inverse_k > 0, velocity, 0)
    return (without_mean + scaled_curl) / 2, (without_mean - scaled_curl) / 2


def helical(transform: spectral.Transform) -> Measured:
    """As functions of the shells' wavenumbers `k`: `helicity`, the sum of Re(u* . omega), and for both signs of
    helicity `energy/SIGN`, `transfer/SIGN` = Re(u_SIGN* . (u x omega)^) and `flux/SIGN`. The sum of both transfers is
    that of the kinetic energy."""
    layout = transform.layout

    def terms(values, points, parameters) -> spectral.Local:
        return spectral.Local({"force": cross(values["velocity"], values["vorticity"])})

    def compute(state: models.State) -> dict[str, jax.Array]:
        u = state.fields["velocity"]
        omega = curl(layout, u)
        force = transform.evaluate({"velocity": u, "vorticity": omega}, terms).products["force"]
        modes = {"helicity": transfer(u, omega)}
        for sign, part in zip(SIGNS, helical_parts(transform, u), strict=True):
            modes[f"energy/{sign}"] = squared(abs(part)) / 2
            modes[f"transfer/{sign}"] = transfer(part, force)
        row = {name: layout.shell_sum(values) / layout.shell_width for name, values in modes.items()}
        return row | {f"flux/{s}": flux(row[f"transfer/{s}"], layout.shell_width) for s in SIGNS}

    names = ["helicity", *(f"{kind}/{sign}" for kind in ("energy", "transfer", "flux") for sign in SIGNS)]
    return in_shells(layout, names, compute)
