"""The linear power spectrum of matter: a power law, a table, a published fit, or the result of a
library."""

import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import Annotated, Any, Literal, Self

import jax
import numpy as np
from pydantic import AfterValidator, Field, model_validator

from simulator.errors import UserError
from simulator.physics.initial.initial import StartFiles
from simulator.physics.initial.random import interpolated
from simulator.physics.initial.tables import SpectrumTable, read_table
from simulator.plugins.gravity.cosmology import CosmologySettings, Table
from simulator.plugins.gravity.particle_component import ParticleComponent
from simulator.plugins.gravity.schrodinger_poisson import SchrodingerPoisson
from simulator.plugins.gravity.units import UNITS, HubbleParameter
from simulator.settings import InputPath, Positive, Real, Settings, wrong
from simulator.spectral import Grid
from simulator.spectral.arrays import holds, namespace

Power = Callable[[jax.Array], jax.Array]  # Function from k (1/length) to P(k) (length^3).
CMB = 2.7255  # Temperature of the microwave background today (K): Fixsen, Astrophys. J. 707, 916 (2009).


MODULES = {"camb": "camb", "class": "classy"}
TOTAL = {2: 1, 7: 6, 9: 8, 13: 6}
"""The column of total matter by the number of columns: k and T; CAMB until 2014; axionCAMB;
CAMB."""
DENSITIES = ("d_m", "d_tot")
"""Names of columns of the density contrast of total matter, k^2 T(k) up to a factor, in CLASS."""
NAMED = (*DENSITIES, "-t_tot/k2", "total")
"""Names of columns of total matter in headers of CLASS and CAMB."""

WAYS = ("table", "amplitude", "transfer", "library", "transfer_table")


def _installed(library: str | None) -> str | None:
    if library is not None and find_spec(MODULES[library]) is None:
        cure = "classy" if library == "class" else "'simulator[cosmology]'"
        raise ValueError(f"{library} is not installed; pip install {cure} brings it")
    return library


class LinearPowerSettings(Settings):
    """The linear power spectrum P(k) at a = 1: from a table, a power law, a published fit or a
    library."""

    table: InputPath | None = None
    """Text file with two columns: k (1/length) and P(k) (length^3), in the run's units or in
    `table_units`. It has to cover the modes of the grid; P(k) is zero beyond a row of zero at an
    end."""
    table_units: Literal["run", "mpc_h", "mpc"] = "run"
    """Units of length of the table: the run's, Mpc / h as in files of CAMB, axionCAMB and CLASS, or
    Mpc."""
    transfer_table: InputPath | None = None
    """The transfer function of CAMB, axionCAMB or CLASS, a text file of k (h/Mpc) and columns T(k),
    of which that of total matter is taken, by its name in the header or by the number of columns;
    or of two columns. P ~ k^n_s T^2 has `sigma8`."""
    amplitude: Positive | None = None
    """P at k = 1 (length^3), for a power law."""
    index: Real = 0.0
    """Slope of the power law: P ~ k^index."""
    transfer: Literal["eisenstein_hu", "eisenstein_hu_smooth"] | None = None
    """The fit of Eisenstein & Hu (1998) to cold dark matter and baryons, or its form without
    oscillations."""
    library: Annotated[Literal["camb", "class"] | None, AfterValidator(_installed)] = None
    """The spectrum of cold dark matter and baryons by CAMB or CLASS; like transfer it needs
    model.units."""
    h: HubbleParameter | None = None
    """With transfer or library in units of Mpc / h: H0 in 100 km/s/Mpc."""
    baryons: Annotated[float, Field(gt=0, lt=1)] = 0.0493
    """With transfer or library: Omega_b; the rest of model.cosmology.matter is cold."""
    spectral_index: Real = 0.965
    """With transfer or library: n_s of the primordial spectrum."""
    sigma8: Positive = 0.811
    """With transfer or library: standard deviation of the density contrast in spheres of 8 Mpc / h
    at a = 1."""
    boson_mass: Positive | None = None
    """With transfer or library: m c^2 in 1e-22 eV of an axion, whose waves suppress small scales:
    Hu, Barkana & Gruzinov, Phys. Rev. Lett. 85, 1158 (2000)."""
    cutoff: Positive | None = None
    """P falls off as exp(-(k / cutoff)^2)."""

    @model_validator(mode="after")
    def _one_spectrum(self) -> Self:
        if sum(getattr(self, way) is not None for way in WAYS) != 1:
            ways = "table (a file with k and P), amplitude (of a power law), transfer, transfer_table and library"
            raise wrong("table", f"give one of {ways}")
        if self.boson_mass is not None and self.transfer is self.library is None:
            raise wrong("boson_mass", "applies to transfer and library; leave it out")
        if self.table is None and self.table_units != "run":
            raise wrong("table_units", "applies to table; leave it out")
        return self

    @property
    def way(self) -> str:
        """The key that gives the spectrum."""
        return next(way for way in WAYS if getattr(self, way) is not None)


Matter = ParticleComponent | SchrodingerPoisson
"""A model of matter, or a component of one."""


def system_of_units(matter: Matter) -> str:
    return matter.units if isinstance(matter, ParticleComponent) else matter.settings.units


def linear_power(settings: LinearPowerSettings, matter: Matter, files: StartFiles) -> Power:
    """The spectrum in the units of `matter`, which expands. Raises UserError for units that a fit
    or library lacks."""
    assert matter.background is not None
    cosmology = matter.background.settings
    grid = matter.transform.grid
    units = system_of_units(matter)
    if settings.table is not None:
        power = interpolated(*_power_table(settings, units, cosmology, grid, files))
    elif settings.amplitude is not None:
        power = _power_law(settings.amplitude, settings.index)
    else:
        power = interpolated(*physical_spectrum(settings, units, cosmology, grid, files))
    if settings.boson_mass is not None:
        unit, h = unit_and_h(settings, "boson_mass", units, cosmology)
        power = _suppressed(power, settings.boson_mass, h / unit)
    cutoff = settings.cutoff
    return (
        power
        if cutoff is None
        else lambda k: power(k) * namespace(k, cutoff).exp(-((k / cutoff) ** 2))
    )


def _power_law(size: float, index: float) -> Power:
    return lambda k: size * k**index


def unit_named(table: SpectrumTable) -> str:
    """The unit of length in the header of a table: mpc_h, mpc or ""."""
    if "h/mpc" in table.header:
        return "mpc_h"
    return "mpc" if "1/mpc" in table.header else ""


def _power_table(
    settings: LinearPowerSettings,
    units: str,
    cosmology: CosmologySettings,
    grid: Grid,
    files: StartFiles,
) -> tuple[np.ndarray, np.ndarray]:
    """k (1/length) and P (length^3) in a table. Raises UserError if it does not cover the grid's
    modes, if its header has other units, or if in named units it is no spectrum at a = 1."""
    assert settings.table is not None
    table = read_table(files, "table", settings.table, "P")
    unit = 1.0
    stated = settings.table_units
    if stated != "run":
        key = f"table_units: {stated}"
        unit, h = unit_and_h(settings, key, units, cosmology, converts=stated == "mpc")
        unit *= 1.0 if stated == "mpc_h" else 1 / h
    elif units in UNITS:
        stated = "mpc_h" if UNITS[units].per_h else "kpc"
    named = unit_named(table)
    if named and stated not in ("run", named):
        raise UserError(
            f"table: {settings.table}: its header names other units; set table_units: {named}"
        )
    _check_cover(settings, table, unit, grid)
    k, power = table.k * unit, table.values / unit**3
    if units in UNITS and not isinstance(k, jax.Array):
        per_h = 1.0 if UNITS[units].per_h else cosmology.hubble / UNITS[units].hubble
        length = UNITS[units].megaparsecs * per_h
        deviation, missing = _tabulated_sigma(k / length, power * length**3)
        if deviation > 3 or deviation * (1 + missing) ** 0.5 < 0.1:
            means = f"has sigma_8 = {deviation:.3g}; P (length^3) at a = 1 gives 0.1 to 3"
            raise UserError(f"table: {settings.table}: {means}, in the units of table_units")
    return k, power


def _check_cover(
    settings: LinearPowerSettings, table: SpectrumTable, unit: float, grid: Grid
) -> None:
    """Raises UserError unless the table, with k in 1 / length over `unit`, covers the grid's
    modes."""
    steps = grid.seen(grid.fundamental)
    most = [(n - 1) // 2 * k for n, k in zip(grid.seen(grid.shape), steps, strict=True)]
    low, high = min(steps), math.hypot(*most)
    if settings.cutoff is not None:
        high = min(high, 6 * settings.cutoff)  # exp(-36) of the power is beyond
    first, last = table.first * unit, table.last * unit
    if not holds((first <= low * (1 + 1e-6)) & (last >= high * (1 - 1e-6))):
        covers = (
            f"covers k = {first:.6g} to {last:.6g} of the grid's modes, {low:.6g} to {high:.6g}"
        )
        cure = "extend it, or end it with a row of zero where there is no power"
        raise UserError(f"{settings.way}: {getattr(settings, settings.way)}: {covers}; {cure}")


_MISSING = 0.02  # The largest share of sigma^2 that may lie beyond a table.


def _tabulated_sigma(k: np.ndarray, power: Table) -> tuple[Table, Table]:
    """sigma in spheres of 8 Mpc/h of a power law between rows, k in h/Mpc, and an estimate of the
    share of sigma^2 beyond the rows, where the integrand, with the envelope of the window, goes on
    as the power law that it is at either end."""
    xp = namespace(power)
    fine = np.geomspace(k[0], k[-1], 20_000)
    values = xp.exp(xp.interp(np.log(fine), np.log(k), xp.log(power)))
    deviation = sigma(fine, values)
    window = np.minimum(1, 9 / (8 * fine) ** 4)
    curve = xp.maximum(values * window * fine**3 / (2 * math.pi**2), 1e-300)
    falls = np.array([1, -1]) * xp.log(curve[np.array([1, -1])] / curve[np.array([0, -2])])
    falls = xp.maximum(falls / np.log(fine[1] / fine[0]), 1e-3)
    return deviation, (curve[np.array([0, -1])] / falls).max() / deviation**2


def _suppressed(power: Power, mass: float | jax.Array, per_mpc: float) -> Power:
    """The spectrum of an axion of `mass` (1e-22 eV; it may be traced), for k times `per_mpc` in
    1/Mpc."""
    scale = 1.61 * mass ** (1 / 18) / (9 * mass**0.5) * per_mpc

    def suppressed(k: jax.Array) -> jax.Array:
        xp = namespace(k, scale)
        x = xp.minimum(scale * k, 100.0)  # cos(x^3) / (1 + x^8) is 1e-16 there
        return power(k) * xp.maximum((xp.cos(x**3) / (1 + x**8)) ** 2, 1e-30)

    return suppressed


def unit_and_h(
    settings: LinearPowerSettings,
    key: str,
    units: str,
    cosmology: CosmologySettings,
    *,
    converts: bool = True,
) -> tuple[float, float]:
    """The run's unit of length in Mpc/h, and h. Raises UserError, for `key`, in units without a
    name or, if it `converts` lengths by h, in Mpc / h without h."""
    if units not in UNITS:
        raise UserError(
            f"{key} needs model.units: {' or '.join(UNITS)}; in other units give a table of k and P"
        )
    unit = UNITS[units]
    if unit.per_h and settings.h is None and converts:
        raise UserError(f"h: {key} in units of Mpc / h needs H0 in 100 km/s/Mpc, e.g. h: 0.68")
    h = settings.h if settings.h is not None else cosmology.hubble / unit.hubble
    return unit.megaparsecs * (1.0 if unit.per_h else h), h


def physical_spectrum(
    settings: LinearPowerSettings,
    units: str,
    cosmology: CosmologySettings,
    grid: Grid,
    files: StartFiles,
) -> tuple[np.ndarray, np.ndarray]:
    """k (1/length) and P (length^3) of a fit, library or transfer function, up to the grid's
    largest wavenumber."""
    key = f"{settings.way}: {getattr(settings, settings.way)}"
    converts = settings.transfer_table is None  # whose k is in h/Mpc
    length, h = unit_and_h(settings, key, units, cosmology, converts=converts)
    corner = math.hypot(
        *(math.pi * n / extent for n, extent in zip(grid.shape, grid.box, strict=True))
    )
    largest = max(1.1 * corner / length, 20.0)
    if settings.transfer_table is not None:
        k, power = _transferred(settings, length, grid, files)
        deviation, missing = _tabulated_sigma(k, power)
        if not holds(missing <= _MISSING):
            ends = f"k = {k[0]:.4g} to {k[-1]:.4g} h/Mpc do not cover the integral for sigma8"
            cure = "extend it (1e-4 to 10 h/Mpc is enough), or give a table of P(k)"
            raise UserError(f"transfer_table: {settings.transfer_table}: {ends}; {cure}")
    else:
        if settings.library:
            solve = _camb if settings.library == "camb" else _class
            k, power = solve(settings, cosmology, h, largest)
        else:
            k = np.geomspace(1e-5, largest, 3000)
            baryons = settings.baryons / cosmology.matter
            fit = transfer_function(k * h, cosmology.matter * h**2, baryons, settings.transfer)
            power = k**settings.spectral_index * fit**2
        deviation = sigma(k, power)
    power = power * (settings.sigma8 / deviation) ** 2
    return k * length, power / length**3


def _transferred(
    settings: LinearPowerSettings, length: float, grid: Grid, files: StartFiles
) -> tuple[np.ndarray, np.ndarray]:
    """k (h/Mpc) and k^n_s T^2 up to a factor, of a table. Raises UserError if it does not cover the
    grid's modes, or if T rises, as densities do."""
    path = settings.transfer_table
    assert path is not None
    table = read_table(
        files, "transfer_table", path, "T(k) of total matter", TOTAL, NAMED, signed=True
    )
    if unit_named(table) == "mpc":
        raise UserError(f"transfer_table: {path}: its header has k in 1/Mpc; h/Mpc is needed")
    k = table.k
    fit = table.values / k**2 if table.column in DENSITIES else table.values
    if (top := fit.argmax()) and fit[top] > 2 * fit[0]:
        rises = f"T(k) rises from {fit[0]:.3g} at k = {k[0]:.3g} to {fit[top]:.3g} at {k[top]:.3g}"
        cure = "densities have to be divided by k^2, as CAMB does and CLASS with format = camb"
        raise UserError(f"transfer_table: {path}: {rises}, and a transfer function falls; {cure}")
    _check_cover(settings, table, length, grid)
    return k, k**settings.spectral_index * (fit / fit[0]) ** 2


def sigma(k: np.ndarray, power: np.ndarray | jax.Array, radius: float = 8.0) -> Any:
    """The standard deviation of the density contrast in spheres, from P(k), perhaps traced, on
    log-spaced k."""
    x = k * radius
    xp = namespace(power)
    window = np.where(x > 1e-2, 3 * (np.sin(x) - x * np.cos(x)) / x**3, 1 - x**2 / 10)
    return xp.trapezoid(power * window**2 * k**3 / (2 * math.pi**2), np.log(k)) ** 0.5


def _camb(
    settings: LinearPowerSettings, cosmology: CosmologySettings, h: float, largest: float
) -> tuple[np.ndarray, np.ndarray]:
    """k (h/Mpc) and P with massless neutrinos. Lewis, Challinor & Lasenby, Astrophys. J. 538, 473
    (2000)."""
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
        k, _, power = camb.get_results(parameters).get_matter_power_spectrum(
            minkh=1e-4, maxkh=largest, npoints=1000
        )
    except (camb.CAMBError, ValueError) as error:
        raise UserError(f"library: camb: {str(error).splitlines()[0]}") from None
    return k, power[0]


def _class(
    settings: LinearPowerSettings, cosmology: CosmologySettings, h: float, largest: float
) -> tuple[np.ndarray, np.ndarray]:
    """k (h/Mpc) and P with massless neutrinos. Blas, Lesgourgues & Tram, JCAP 07, 034 (2011)."""
    import classy  # pyright: ignore[reportMissingImports] - an extra

    dark = cosmology.dark_energy
    fluid = {"Omega_Lambda": 0, "w0_fld": dark.w0, "wa_fld": dark.wa, "use_ppf": "yes"}
    solver = classy.Class()
    solver.set(
        {
            "output": "mPk",
            "P_k_max_h/Mpc": largest,
            "h": h,
            "Omega_b": settings.baryons,
            "N_ur": 3.044,
            "Omega_cdm": cosmology.matter - settings.baryons,
            "Omega_k": cosmology.curvature,
            "n_s": settings.spectral_index,
            "A_s": 2e-9,
            **(fluid if (dark.w0, dark.wa) != (-1, 0) else {}),
        }
    )
    try:
        solver.compute()
        k = np.geomspace(1e-4, largest, 1000)
        return k, np.array([solver.pk_lin(q * h, 0.0) * h**3 for q in k * (1 - 1e-9)])
    except classy.CosmoError as error:
        raise UserError(f"library: class: {str(error).strip().splitlines()[-1]}") from None


def drag_epoch(matter: float, baryons: float) -> tuple[float, float, float, float]:
    """z_eq, z_d, R(z_d) and the sound horizon s (Mpc) at the epoch z_d that releases the baryons, by
    equations 2 to 6 of `transfer_function`, whose arguments these are."""
    xp = namespace(matter, baryons)
    theta = CMB / 2.7
    b = baryons * matter
    k_eq = 7.46e-2 * matter / theta**2
    z_eq = 2.5e4 * matter / theta**4
    b1 = 0.313 * matter**-0.419 * (1 + 0.607 * matter**0.674)
    z_d = (
        1291 * matter**0.251 / (1 + 0.659 * matter**0.828) * (1 + b1 * b ** (0.238 * matter**0.223))
    )
    r_eq, r_d = (31.5e3 * b / theta**4 / z for z in (z_eq, z_d))
    s = xp.log((xp.sqrt(1 + r_d) + xp.sqrt(r_d + r_eq)) / (1 + xp.sqrt(r_eq)))
    return z_eq, z_d, r_d, s * (2 / (3 * k_eq) * xp.sqrt(6 / r_eq))


def transfer_function(
    k: np.ndarray, matter: float, baryons: float, form: str | None = "eisenstein_hu"
) -> np.ndarray:
    """The transfer function T(k), 1 on large scales, at k in 1/Mpc; `matter` is Omega_m h^2,
    `baryons` Omega_b / Omega_m; both may be traced. Names follow Eisenstein & Hu, Astrophys. J.
    496, 605 (1998), equations 2 to 31."""
    xp = namespace(matter, baryons)
    theta = CMB / 2.7
    b = baryons * matter
    cold = 1 - baryons
    k_eq = 7.46e-2 * matter / theta**2
    if form == "eisenstein_hu_smooth":
        s = 44.5 * xp.log(9.83 / matter) / xp.sqrt(1 + 10 * b**0.75)
        alpha = (
            1 - 0.328 * xp.log(431 * matter) * baryons + 0.38 * xp.log(22.3 * matter) * baryons**2
        )
        q = k * theta**2 / (matter * (alpha + (1 - alpha) / (1 + (0.43 * k * s) ** 4)))
        log = xp.log(2 * math.e + 1.8 * q)
        return log / (log + (14.2 + 731 / (1 + 62.5 * q)) * q**2)
    z_eq, z_d, r_d, s = drag_epoch(matter, baryons)
    silk = 1.6 * b**0.52 * matter**0.73 * (1 + (10.4 * matter) ** -0.95)
    q = k / (13.41 * k_eq)
    ks = k * s

    def pressureless(alpha: float, beta: float) -> np.ndarray:
        log = xp.log(math.e + 1.8 * beta * q)
        return log / (log + (14.2 / alpha + 386 / (1 + 69.9 * q**1.08)) * q**2)

    a1 = (46.9 * matter) ** 0.670 * (1 + (32.1 * matter) ** -0.532)
    a2 = (12.0 * matter) ** 0.424 * (1 + (45.0 * matter) ** -0.582)
    beta = 1 / (
        1 + 0.944 / (1 + (458 * matter) ** -0.708) * (cold ** ((0.395 * matter) ** -0.0266) - 1)
    )
    f = 1 / (1 + (ks / 5.4) ** 4)
    cdm = f * pressureless(1, beta) + (1 - f) * pressureless(
        a1**-baryons * a2 ** -(baryons**3), beta
    )
    y = (1 + z_eq) / (1 + z_d)
    root = xp.sqrt(1 + y)
    g = y * (-6 * root + (2 + 3 * y) * xp.log((root + 1) / (root - 1)))
    alpha_b = 2.07 * k_eq * s * (1 + r_d) ** -0.75 * g
    beta_b = 0.5 + baryons + (3 - 2 * baryons) * xp.sqrt((17.2 * matter) ** 2 + 1)
    damped = alpha_b / (1 + (beta_b / ks) ** 3) * xp.exp(-((k / silk) ** 1.4))
    shift = k * s / (1 + (8.41 * matter**0.435 / ks) ** 3) ** (1 / 3)
    sound = (pressureless(1, 1) / (1 + (ks / 5.2) ** 2) + damped) * xp.sinc(shift / math.pi)
    return baryons * sound + cold * cdm
