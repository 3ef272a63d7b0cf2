"""The power spectrum of linear theory at a = 1: a power law, a table, or that of a library."""

import io
import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import Annotated, Any, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import AfterValidator, Field, model_validator

from simulator.errors import UserError
from simulator.physics.initial.initial import StartFiles
from simulator.physics.models.cosmology import CosmologySettings
from simulator.settings import InputPath, Positive, Real, Settings, wrong
from simulator.spectral import Grid

Power = Callable[[jax.Array], jax.Array]
"""Function from k (1/length) to P(k) (length^3)."""


def _installed(library: str | None) -> str | None:
    if library is not None and find_spec(library) is None:
        raise ValueError(f"{library} is not installed; pip install 'simulator[cosmology]' brings it")
    return library


class LinearPowerSettings(Settings):
    """The linear power spectrum P(k) at a = 1: from a table, a power law, or a library."""

    table: InputPath | None = None
    """Text file with two columns: k (1/length) and P(k) (length^3), in the run's units."""
    amplitude: Positive | None = None
    """P at k = 1 (length^3), for a power law."""
    index: Real = 0.0
    """Slope of the power law: P ~ k^index."""
    library: Annotated[Literal["camb"] | None, AfterValidator(_installed)] = None
    """CAMB's spectrum of cold dark matter and baryons; needs model.units: kpc_km_s_msun."""
    baryons: Annotated[float, Field(gt=0, lt=1)] = 0.0493
    """With library: Omega_b; the rest of model.cosmology.matter is cold."""
    spectral_index: Real = 0.965
    """With library: n_s of the primordial spectrum."""
    sigma8: Positive = 0.811
    """With library: standard deviation of the density contrast in spheres of 8 Mpc / h at a = 1."""
    cutoff: Positive | None = None
    """P falls off as exp(-(k / cutoff)^2)."""

    @model_validator(mode="after")
    def _one_spectrum(self) -> Self:
        if sum(given is not None for given in (self.table, self.amplitude, self.library)) != 1:
            raise wrong(
                "table", "give one of table (a file with k and P), amplitude (of a power law) and library"
            )
        return self


def linear_power(settings: LinearPowerSettings, model: Any, files: StartFiles) -> Power:
    """The spectrum in the units of a run of `model`, a wave function in an expanding background."""
    if settings.library is not None:
        if model.settings.units != "kpc_km_s_msun":
            raise UserError(
                f"library: {settings.library} needs model.units: kpc_km_s_msun; "
                f"in other units give a table of k and P"
            )
        power = _interpolated(*camb_spectrum(settings, model.settings.cosmology, model.transform.grid))
    elif settings.table is not None:
        power = _interpolated(*_table(settings, files))
    else:
        power = _power_law(settings.amplitude or 0.0, settings.index)
    return power if settings.cutoff is None else _damped(power, settings.cutoff)


def _power_law(size: float, index: float) -> Power:
    return lambda k: size * k**index


def _damped(power: Power, cutoff: float) -> Power:
    return lambda k: power(k) * jnp.exp(-((k / cutoff) ** 2))


def _table(settings: LinearPowerSettings, files: Any) -> tuple[np.ndarray, np.ndarray]:
    try:
        table = np.loadtxt(io.BytesIO(files.read(str(settings.table))), ndmin=2)
    except ValueError as error:
        raise UserError(f"table: {settings.table}: {error}") from None
    if table.shape[1] != 2 or len(table) < 2 or (table <= 0).any() or (np.diff(table[:, 0]) <= 0).any():
        raise UserError(f"table: {settings.table}: two columns of positive numbers with rising k are needed")
    return table[:, 0], table[:, 1]


def camb_spectrum(
    settings: LinearPowerSettings, cosmology: CosmologySettings, grid: Grid
) -> tuple[np.ndarray, np.ndarray]:
    """k (1/kpc) and P (kpc^3) up to the grid's largest wavenumber, for H0 in km/s/kpc and massless neutrinos.

    Lewis, Challinor & Lasenby, Astrophys. J. 538, 473 (2000).
    """
    import camb  # pyright: ignore[reportMissingImports] - an extra

    h = 10 * cosmology.hubble  # H0 in km/s/kpc is 1000 km/s/Mpc
    corner = math.hypot(*(math.pi * n / length for n, length in zip(grid.shape, grid.box, strict=True)))
    largest = 1.1 * 1e3 * corner / h
    try:
        parameters = camb.set_params(
            H0=100 * h,
            ombh2=settings.baryons * h**2,
            omch2=(cosmology.matter - settings.baryons) * h**2,
            mnu=0,
            omk=0,
            ns=settings.spectral_index,
            As=2e-9,
        )
        parameters.set_matter_power(redshifts=[0.0], kmax=largest * h)
        parameters.NonLinear = camb.model.NonLinear_none
        results = camb.get_results(parameters)
        k, _, power = results.get_matter_power_spectrum(minkh=1e-4, maxkh=largest, npoints=600)
    except (camb.CAMBError, ValueError) as error:
        raise UserError(f"library: camb: {str(error).splitlines()[0]}") from None
    scale = (settings.sigma8 / float(results.get_sigma8_0())) ** 2
    return k * h / 1e3, power[0] * scale * (1e3 / h) ** 3


def _interpolated(k: np.ndarray, power: np.ndarray) -> Power:
    """A power law between entries; beyond them the spectrum is unknown and taken as zero."""
    log_k, log_power = jnp.asarray(np.log(k)), jnp.asarray(np.log(power))
    low, high = float(k[0]), float(k[-1])

    def interpolated(k: jax.Array) -> jax.Array:
        return jnp.where((k >= low) & (k <= high), jnp.exp(jnp.interp(jnp.log(k), log_k, log_power)), 0)

    return interpolated
