"""Energy transfer and flux between scales, by the sign of helicity and from band to band:
transfer.h5, helicity.h5 and shell_to_shell.h5."""

from functools import partial
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from pydantic import Field

from simulator import spectral
from simulator.measure.kind import Kind, Measured, SeriesCadence, Subject, Unsupported
from simulator.measure.rows import in_shells, row_names
from simulator.physics import models
from simulator.physics.models import outputs
from simulator.physics.models.observables.budget import energy_transfer
from simulator.settings import Integer
from simulator.spectral import operators
from simulator.spectral.arrays import PointValues
from simulator.spectral.bins import flux, shell_spectra
from simulator.spectral.transform import Points, Tree


def check_flow(subject: Subject) -> None:
    """Refuses models without an evolved velocity that is free of divergence."""
    if "velocity" not in subject.model.solenoidal:
        raise Unsupported("needs an incompressible flow")


class Transfer(Kind):
    sheared = True
    name = "transfer"
    description = "Energy transfer and flux between scales in transfer.h5."

    def measured(self, subject: Subject, settings: SeriesCadence) -> Measured:
        """Energy transfer T(k) by the nonlinear terms, `transfer/NAME`, and its flux to larger
        wavenumbers, `flux/NAME`: Pi(k) = -sum of T up to k."""
        model = subject.model
        layout = subject.transform.layout
        if not (names := row_names(subject, partial(outputs.transfers, model))):
            raise Unsupported("needs energy transfers between modes")

        return in_shells(
            layout,
            [f"{kind}/{n}" for kind in ("transfer", "flux") for n in names],
            lambda state: transfers_and_fluxes(model, state.fields),
        )


def transfers_and_fluxes(model: models.Equation, fields: models.Fields) -> dict[str, jax.Array]:
    """`transfer/NAME` and `flux/NAME` by shell."""
    layout = model.transform.layout
    transfers = shell_spectra(layout, outputs.transfers(model, fields))
    fluxes = {f"flux/{n}": flux(t, layout.shell_width) for n, t in transfers.items()}
    return {f"transfer/{n}": t for n, t in transfers.items()} | fluxes


SIGNS = ("positive", "negative")


class Helicity(Kind):
    sheared = True
    name = "helicity"
    description = (
        "Helicity spectrum, and energy, transfer and flux by the sign of helicity, in helicity.h5."
    )

    def measured(self, subject: Subject, settings: SeriesCadence) -> Measured:
        """As functions of the shells' wavenumbers `k`: `helicity`, the sum of Re(u* . omega), and
        for both signs of helicity `energy/SIGN`, `transfer/SIGN` = Re(u_SIGN* . (u x omega)^) and
        `flux/SIGN`. The sum of both transfers is the transfer of kinetic energy."""
        check_flow(subject)
        transform = subject.transform
        layout = subject.transform.layout
        if transform.grid.dimensions < 3:
            raise Unsupported(f"is zero in {transform.grid.in_words}", of_model=False)

        def terms(values: PointValues, points: Points, parameters: Tree) -> spectral.Local:
            return spectral.Local(
                {"force": operators.cross(values["velocity"], values["vorticity"])}
            )

        def compute(state: models.State) -> dict[str, jax.Array]:
            u = state.fields["velocity"]
            omega = operators.curl(layout, u)
            force = transform.evaluate({"velocity": u, "vorticity": omega}, terms).products["force"]
            modes = {"helicity": energy_transfer(u, omega)}
            for sign, part in zip(SIGNS, _helical_parts(transform, u), strict=True):
                modes[f"energy/{sign}"] = operators.squared(abs(part)) / 2
                modes[f"transfer/{sign}"] = energy_transfer(part, force)
            row = {
                name: layout.shell_sum(values) / layout.shell_width
                for name, values in modes.items()
            }
            return row | {
                f"flux/{s}": flux(row[f"transfer/{s}"], layout.shell_width) for s in SIGNS
            }

        names = [f"{kind}/{sign}" for kind in ("energy", "transfer", "flux") for sign in SIGNS]
        return in_shells(layout, ["helicity", *names], compute)


def _helical_parts(
    transform: spectral.Transform, velocity: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """u+ and u-: the parts of every mode except k = 0 that satisfy i k x u = +|k| u and -|k| u
    (Waleffe 1992, Phys. Fluids A 4, 350, eq. 1). Their sum is u without its mean."""
    layout = transform.layout
    inverse_k = jnp.sqrt(layout.inverse_k_squared(velocity.real.dtype))
    scaled_curl = operators.curl(layout, velocity) * inverse_k
    without_mean = jnp.where(inverse_k > 0, velocity, 0)
    return (without_mean + scaled_curl) / 2, (without_mean - scaled_curl) / 2


class ShellToShellSettings(SeriesCadence):
    bands_per_octave: Annotated[Integer, Field(ge=1, le=16)] = 2
    """Number of wavenumber bands per octave. Each band costs one nonlinear term and is at least one
    shell wide."""


class ShellToShell(Kind):
    sheared = True
    name = "shell_to_shell"
    description = (
        "Kinetic energy that bands of wavenumbers receive from one another in shell_to_shell.h5."
    )
    Settings = ShellToShellSettings

    def measured(self, subject: Subject, settings: ShellToShellSettings) -> Measured:
        """`transfer` (receiver, giver): T(K, Q) = -<u_K . (u . grad) u_Q>, the kinetic energy per
        time that band K receives from band Q (Dar, Verma and Eswaran 2001, Physica D 157, 207). The
        sum over Q is the transfer into band K, and T(K, Q) = -T(Q, K)."""
        check_flow(subject)
        transform = subject.transform
        layout = subject.transform.layout
        edges = band_edges(layout.shells, settings.bands_per_octave)
        bands = len(edges) - 1
        band_of = np.searchsorted(edges, np.arange(layout.shells), side="right") - 1

        def terms(values: PointValues, points: Points, parameters: Tree) -> spectral.Local:
            u = values["velocity"]
            v = values["band"]
            return spectral.Local({"stress": jnp.stack([v[i] * u for i in range(len(v))])})

        def compute(state: models.State) -> dict[str, jax.Array]:
            u = state.fields["velocity"]
            number = jnp.asarray(band_of)[layout.shell_numbers()]

            def from_band(band: jax.Array) -> jax.Array:
                part = layout.constrain(jnp.where(number == band, u, 0))
                stress = transform.evaluate({"velocity": u, "band": part}, terms).products["stress"]
                force = -jnp.stack([operators.divergence(layout, part) for part in stress])
                return (
                    jnp.zeros(bands)
                    .at[jnp.asarray(band_of)]
                    .add(layout.shell_sum(energy_transfer(u, force)))
                )

            return {"transfer": lax.map(from_band, jnp.arange(bands)).T}

        middles = layout.shell_width * (edges[:-1] + edges[1:] - 1) / 2
        both = {"receiver": middles, "giver": middles}
        return Measured(
            both,
            {"transfer": tuple(both)},
            compute,
            {"edges": (edges * layout.shell_width).tolist()},
        )


def band_edges(shells: int, per_octave: int) -> np.ndarray:
    """First shell numbers of the bands, and the number of shells: band 0 is k = 0, followed by
    `per_octave` bands per octave, each at least one shell wide."""
    steps = range(per_octave * (int(np.log2(max(shells, 2))) + 2))
    inner = sorted({round(2 ** (i / per_octave)) for i in steps})
    return np.array([0, *(n for n in inner if n < shells), shells])
