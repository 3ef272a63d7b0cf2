"""The linear power spectrum of matter: a power law, a table, a published fit, or the result of a library."""

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
from simulator.physics.initial.random import interpolated, tabulated
from simulator.physics.models.cosmology import UNITS, CosmologySettings
from simulator.settings import InputPath, Positive, Real, Settings, wrong
from simulator.spectral import Grid

Power = Callable[[jax.Array], jax.Array]  # Function from k (1/length) to P(k) (length^3).
CMB = 2.7255
"""Temperature of the microwave background today (K): Fixsen, Astrophys. J. 707, 916 (2009)."""


def _installed(library: str | None) -> str | None:
    if library is not None and find_spec(library) is None:
        raise ValueError(f"{library} is not installed; pip install 'simulator[cosmology]' brings it")
    return library


class LinearPowerSettings(Settings):
    """The linear power spectrum P(k) at a = 1: from a table, a power law, a published fit or a library."""

    table: InputPath | None = None
    """Text file with two columns: k (1/length) and P(k) (length^3), in the run's units."""
    amplitude: Positive | None = None
    """P at k = 1 (length^3), for a power law."""
    index: Real = 0.0
    """Slope of the power law: P ~ k^index."""
    transfer: Literal["eisenstein_hu", "eisenstein_hu_smooth"] | None = None
    """The fit of Eisenstein & Hu (1998) to cold dark matter and baryons, or its form without oscillations."""
    library: Annotated[Literal["camb"] | None, AfterValidator(_installed)] = None
    """CAMB's spectrum of cold dark matter and baryons; like transfer it needs model.units."""
    h: Positive | None = None
    """With transfer or library in units of Mpc / h: H0 in 100 km/s/Mpc."""
    baryons: Annotated[float, Field(gt=0, lt=1)] = 0.0493
    """With transfer or library: Omega_b; the rest of model.cosmology.matter is cold."""
    spectral_index: Real = 0.965
    """With transfer or library: n_s of the primordial spectrum."""
    sigma8: Positive = 0.811
    """With transfer or library: standard deviation of the density contrast in spheres of 8 Mpc / h at a = 1."""
    boson_mass: Positive | None = None
    """With transfer or library: m c^2 in 1e-22 eV of an axion, whose waves suppress small scales: Hu, Barkana &
    Gruzinov, Phys. Rev. Lett. 85, 1158 (2000)."""
    cutoff: Positive | None = None
    """P falls off as exp(-(k / cutoff)^2)."""

    @model_validator(mode="after")
    def _one_spectrum(self) -> Self:
        if sum(given is not None for given in (self.table, self.amplitude, self.transfer, self.library)) != 1:
            given = "table (a file with k and P), amplitude (of a power law), transfer and library"
            raise wrong("table", f"give one of {given}")
        if self.boson_mass is not None and self.transfer is self.library is None:
            raise wrong("boson_mass", "applies to transfer and library; leave it out")
        return self


def linear_power(settings: LinearPowerSettings, model: Any, files: StartFiles) -> Power:
    """The spectrum in the units of a run of `model`, whose background expands. Raises UserError if a fit or library
    lacks the run's units."""
    if settings.table is not None:
        power = tabulated(files, settings.table, "P")
    elif settings.amplitude is not None:
        power = _power_law(settings.amplitude, settings.index)
    else:
        power = interpolated(
            *physical_spectrum(settings, model.units, model.background.settings, model.transform.grid)
        )
    cutoff = settings.cutoff
    return power if cutoff is None else lambda k: power(k) * jnp.exp(-((k / cutoff) ** 2))


def _power_law(size: float, index: float) -> Power:
    return lambda k: size * k**index


def physical_spectrum(
    settings: LinearPowerSettings, units: str, cosmology: CosmologySettings, grid: Grid
) -> tuple[np.ndarray, np.ndarray]:
    """k (1/length) and P (length^3) of a fit or library, in the run's units, up to the grid's largest wavenumber."""
    key = f"library: {settings.library}" if settings.library else f"transfer: {settings.transfer}"
    if units not in UNITS:
        raise UserError(f"{key} needs model.units: {' or '.join(UNITS)}; in other units give a table of k and P")
    unit = UNITS[units]
    if unit.per_h and settings.h is None:
        raise UserError(f"h: {key} in units of Mpc / h needs H0 in 100 km/s/Mpc, e.g. h: 0.68")
    h = settings.h if settings.h is not None else cosmology.hubble / unit.hubble
    if abs(cosmology.hubble / ((1 if unit.per_h else h) * unit.hubble) - 1) > 1e-9:
        raise UserError(f"h: model.cosmology.hubble has to be {(1 if unit.per_h else h) * unit.hubble:g}")
    length = unit.megaparsecs * (1.0 if unit.per_h else h)  # the unit of length in Mpc / h
    corner = math.hypot(*(math.pi * n / extent for n, extent in zip(grid.shape, grid.box, strict=True)))
    largest = max(1.1 * corner / length, 20.0)
    if settings.library:
        k, power = _camb(settings, cosmology, h, largest)
    else:
        k = np.geomspace(1e-5, largest, 3000)
        fit = transfer(k * h, cosmology.matter * h**2, settings.baryons / cosmology.matter, settings.transfer)
        power = k**settings.spectral_index * fit**2
    power = power * (settings.sigma8 / sigma(k, power)) ** 2
    if settings.boson_mass is not None:
        x = 1.61 * settings.boson_mass ** (1 / 18) * k * h / (9 * math.sqrt(settings.boson_mass))
        power = np.maximum(power * (np.cos(x**3) / (1 + x**8)) ** 2, 1e-30 * power)
    return k * length, power / length**3


def sigma(k: np.ndarray, power: np.ndarray, radius: float = 8.0) -> float:
    """The standard deviation of the density contrast in spheres, from P(k) on logarithmically spaced k."""
    x = k * radius
    window = np.where(x > 1e-2, 3 * (np.sin(x) - x * np.cos(x)) / x**3, 1 - x**2 / 10)
    return math.sqrt(np.trapezoid(power * window**2 * k**3 / (2 * math.pi**2), np.log(k)))


def _camb(
    settings: LinearPowerSettings, cosmology: CosmologySettings, h: float, largest: float
) -> tuple[np.ndarray, np.ndarray]:
    """k (h/Mpc) and P with massless neutrinos. Lewis, Challinor & Lasenby, Astrophys. J. 538, 473 (2000)."""
    import camb  # pyright: ignore[reportMissingImports] - an extra

    try:
        parameters = camb.set_params(
            H0=100 * h,
            ombh2=settings.baryons * h**2,
            omch2=(cosmology.matter - settings.baryons) * h**2,
            mnu=0,
            omk=cosmology.curvature,
            w=cosmology.dark_energy.w0,
            wa=cosmology.dark_energy.wa,
            dark_energy_model="ppf",
            ns=settings.spectral_index,
            As=2e-9,
        )
        parameters.set_matter_power(redshifts=[0.0], kmax=largest * h)
        parameters.NonLinear = camb.model.NonLinear_none
        k, _, power = camb.get_results(parameters).get_matter_power_spectrum(minkh=1e-4, maxkh=largest, npoints=1000)
    except (camb.CAMBError, ValueError) as error:
        raise UserError(f"library: camb: {str(error).splitlines()[0]}") from None
    return k, power[0]


def transfer(k: np.ndarray, matter: float, baryons: float, form: str | None = "eisenstein_hu") -> np.ndarray:
    """The transfer function T(k), 1 on large scales, at k in 1/Mpc; `matter` is Omega_m h^2, `baryons` Omega_b /
    Omega_m. Names follow Eisenstein & Hu, Astrophys. J. 496, 605 (1998), equations 2 to 31."""
    theta, b, cold = CMB / 2.7, baryons * matter, 1 - baryons
    k_eq = 7.46e-2 * matter / theta**2
    if form == "eisenstein_hu_smooth":
        s = 44.5 * math.log(9.83 / matter) / math.sqrt(1 + 10 * b**0.75)
        alpha = 1 - 0.328 * math.log(431 * matter) * baryons + 0.38 * math.log(22.3 * matter) * baryons**2
        q = k * theta**2 / (matter * (alpha + (1 - alpha) / (1 + (0.43 * k * s) ** 4)))
        log = np.log(2 * math.e + 1.8 * q)
        return log / (log + (14.2 + 731 / (1 + 62.5 * q)) * q**2)
    z_eq = 2.5e4 * matter / theta**4
    b1 = 0.313 * matter**-0.419 * (1 + 0.607 * matter**0.674)
    z_d = 1291 * matter**0.251 / (1 + 0.659 * matter**0.828) * (1 + b1 * b ** (0.238 * matter**0.223))
    r_eq, r_d = (31.5e3 * b / theta**4 / z for z in (z_eq, z_d))
    s = math.log((math.sqrt(1 + r_d) + math.sqrt(r_d + r_eq)) / (1 + math.sqrt(r_eq)))
    s *= 2 / (3 * k_eq) * math.sqrt(6 / r_eq)
    silk = 1.6 * b**0.52 * matter**0.73 * (1 + (10.4 * matter) ** -0.95)
    q, ks = k / (13.41 * k_eq), k * s

    def pressureless(alpha: float, beta: float) -> np.ndarray:
        log = np.log(math.e + 1.8 * beta * q)
        return log / (log + (14.2 / alpha + 386 / (1 + 69.9 * q**1.08)) * q**2)

    a1 = (46.9 * matter) ** 0.670 * (1 + (32.1 * matter) ** -0.532)
    a2 = (12.0 * matter) ** 0.424 * (1 + (45.0 * matter) ** -0.582)
    beta = 1 / (1 + 0.944 / (1 + (458 * matter) ** -0.708) * (cold ** ((0.395 * matter) ** -0.0266) - 1))
    f = 1 / (1 + (ks / 5.4) ** 4)
    cdm = f * pressureless(1, beta) + (1 - f) * pressureless(a1**-baryons * a2 ** -(baryons**3), beta)
    y = (1 + z_eq) / (1 + z_d)
    root = math.sqrt(1 + y)
    g = y * (-6 * root + (2 + 3 * y) * math.log((root + 1) / (root - 1)))
    alpha_b = 2.07 * k_eq * s * (1 + r_d) ** -0.75 * g
    beta_b = 0.5 + baryons + (3 - 2 * baryons) * math.sqrt((17.2 * matter) ** 2 + 1)
    damped = alpha_b / (1 + (beta_b / ks) ** 3) * np.exp(-((k / silk) ** 1.4))
    shift = k * s / (1 + (8.41 * matter**0.435 / ks) ** 3) ** (1 / 3)
    sound = (pressureless(1, 1) / (1 + (ks / 5.2) ** 2) + damped) * np.sinc(shift / math.pi)
    return baryons * sound + cold * cdm
