"""Interactions between the modes of a flow: helical parts of energy and flux, and the transfer from shell to
shell."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from simulator.diagnostics.measured import Measured, in_shells
from simulator.models import State
from simulator.models.fluid import transfer
from simulator.spectral import Local, Transform
from simulator.spectral.bins import flux
from simulator.spectral.operators import cross, curl, divergence, squared

SIGNS = ("positive", "negative")


def helical_parts(transform: Transform, velocity: jax.Array) -> tuple[jax.Array, jax.Array]:
    """u+ and u- (3, *order): the parts of every mode except k = 0 with i k x u = +|k| u and -|k| u (Waleffe 1992,
    Phys. Fluids A 4, 350, eq. 1). Their sum is u without its mean."""
    layout = transform.layout
    inverse_k = jnp.sqrt(layout.inverse_k_squared(velocity.real.dtype))
    scaled_curl = curl(layout, velocity) * inverse_k
    without_mean = jnp.where(inverse_k > 0, velocity, 0)
    return (without_mean + scaled_curl) / 2, (without_mean - scaled_curl) / 2


def helical(transform: Transform) -> Measured:
    """As functions of the shells' wavenumbers `k`: `helicity`, the sum of Re(u* . omega), and for both signs of
    helicity `energy/SIGN`, `transfer/SIGN` = Re(u_SIGN* . (u x omega)^) and `flux/SIGN`. The sum of both transfers is
    that of the kinetic energy."""
    layout = transform.layout

    def terms(values, points, parameters) -> Local:
        return Local({"force": cross(values["velocity"], values["vorticity"])})

    def compute(state: State) -> dict[str, jax.Array]:
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


def band_edges(transform: Transform, per_octave: int) -> np.ndarray:
    """First shell numbers of the bands, and the number of shells: band 0 is k = 0, followed by `per_octave` bands per
    octave, each at least one shell wide."""
    shells = transform.layout.shells
    steps = range(per_octave * (int(np.log2(max(shells, 2))) + 2))
    inner = sorted({round(2 ** (i / per_octave)) for i in steps})
    return np.array([0, *(n for n in inner if n < shells), shells])


def shell_to_shell(transform: Transform, per_octave: int) -> Measured:
    """`transfer` (receiver, giver): T(K, Q) = -<u_K . (u . grad) u_Q>, the kinetic energy per time that band K
    receives
    from band Q (Dar, Verma and Eswaran 2001, Physica D 157, 207). The sum of a row is the transfer into a band, and
    T(K, Q) = -T(Q, K)."""
    layout = transform.layout
    edges = band_edges(transform, per_octave)
    bands = len(edges) - 1
    band_of = np.searchsorted(edges, np.arange(layout.shells), side="right") - 1

    def terms(values, points, parameters) -> Local:
        u, v = values["velocity"], values["band"]
        return Local({"stress": jnp.stack([v[i] * u for i in range(len(v))])})

    def compute(state: State) -> dict[str, jax.Array]:
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
