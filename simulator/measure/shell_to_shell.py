"""Transfer of kinetic energy from band to band of wavenumbers: shell_to_shell.h5."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from simulator.measure.helicity import check_flow
from simulator.measure.kind import Kind, Measured, SeriesCadence, Subject
from simulator.measure.lazy import divergence, jax, jnp, lax, models, spectral, transfer
from simulator.settings import Integer


class ShellToShellSettings(SeriesCadence):
    bands_per_octave: Annotated[Integer, Field(ge=1, le=16)] = 2
    """Number of wavenumber bands per octave; each costs a nonlinear term, and is at least one shell wide."""


class ShellToShell(Kind):
    name = "shell_to_shell"
    description = "Kinetic energy that bands of wavenumbers receive from one another in shell_to_shell.h5."
    Settings = ShellToShellSettings

    def measured(self, subject: Subject, settings: ShellToShellSettings) -> Measured:
        check_flow(subject)
        return shell_to_shell(subject.transform, settings.bands_per_octave)


def band_edges(transform: spectral.Transform, per_octave: int) -> np.ndarray:
    """First shell numbers of the bands, and the number of shells: band 0 is k = 0, followed by `per_octave` bands per
    octave, each at least one shell wide."""
    shells = transform.layout.shells
    steps = range(per_octave * (int(np.log2(max(shells, 2))) + 2))
    inner = sorted({round(2 ** (i / per_octave)) for i in steps})
    return np.array([0, *(n for n in inner if n < shells), shells])


def shell_to_shell(transform: spectral.Transform, per_octave: int) -> Measured:
    """`transfer` (receiver, giver): T(K, Q) = -<u_K . (u . grad) u_Q>, the kinetic energy per time that band K
    receives
    from band Q (Dar, Verma and Eswaran 2001, Physica D 157, 207). The sum of a row is the transfer into a band, and
    T(K, Q) = -T(Q, K)."""
    layout = transform.layout
    edges = band_edges(transform, per_octave)
    bands = len(edges) - 1
    band_of = np.searchsorted(edges, np.arange(layout.shells), side="right") - 1

    def terms(values, points, parameters) -> spectral.Local:
        u, v = values["velocity"], values["band"]
        return spectral.Local({"stress": jnp.stack([v[i] * u for i in range(len(v))])})

    def compute(state: models.State) -> dict[str, jax.Array]:
        u = state.fields["velocity"]
        number = jnp.asarray(band_of)[layout.shell_numbers()]

        def given(band: jax.Array) -> jax.Array:
            part = layout.constrain(jnp.where(number == band, u, 0))
            stress = transform.evaluate({"velocity": u, "band": part}, terms).products["stress"]
            force = -jnp.stack([divergence(layout, part) for part in stress])
            return jnp.zeros(bands).at[jnp.asarray(band_of)].add(layout.shell_sum(transfer(u, force)))

        return {"transfer": lax.map(given, jnp.arange(bands)).T}

    middles = layout.shell_width * (edges[:-1] + edges[1:] - 1) / 2
    return Measured(
        {"receiver": middles, "giver": middles},
        {"transfer": ("receiver", "giver")},
        compute,
        {"edges": (edges * layout.shell_width).tolist()},
    )
