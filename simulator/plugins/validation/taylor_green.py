"""The Taylor-Green vortex against published numbers."""

from pathlib import Path

import numpy as np

from simulator.plugins.validation.case import Case, Check, Curve, Result, march, simulation

VAN_REES = "van Rees et al., J. Comput. Phys. 230, 2794 (2011), spectral, 512³"
with np.load(Path(__file__).with_name("taylor_green_re1600.npz")) as _file:
    REFERENCE = _file["rows"]
"""Every published row, from t = 0 to 19.99: t, kinetic energy, dissipation, enstrophy."""
# Brachet et al., J. Fluid Mech. 130, 411 (1983): enstrophy over its initial value in powers of t^2.
SERIES = (1, 5 / 48, 25 / 3168, -52439 / 141250560, 8.13976e-5, -1.28482e-5, 1.65019e-6)


def _vortex(points: int, viscosity: float):
    model = {"kind": "navier_stokes", "viscosity": viscosity}
    return simulation(model, {"kind": "taylor_green"}, (points,) * 3)


def early() -> Result:
    _, rows = march(_vortex(32, 1 / 1600), 0.01, 10)
    known = {"kinetic energy": 0.124953117517, "enstrophy": 0.375249931114}  # to 12 decimals
    return Result(
        [
            Check(f"{name}, t = 0.1", e, rows[name.replace(" ", "_")][-1], 5.1e-13, VAN_REES, True)
            for name, e in known.items()
        ]
    )


def inviscid() -> Result:
    _, rows = march(_vortex(32, 0.0), 0.0125, 80, every=8)
    time = rows["time"]
    enstrophy = rows["enstrophy"] / 0.375
    series = np.polynomial.polynomial.polyval(time**2, SERIES)
    source = "Brachet et al., J. Fluid Mech. 130, 411 (1983)"
    # The first omitted coefficient, of t^14, is about 3e-7.
    checks = [
        Check(f"enstrophy / initial, t = {t:g}", s, f, 1e-8 + 4e-7 * t**14, source)
        for t, s, f in zip(time[1:], series[1:], enstrophy[1:], strict=True)
        if round(t, 6) in (0.5, 0.8, 1.0)
    ]
    labels = ("time $t$", "enstrophy / initial")
    return Result(
        checks, [Curve("taylor_green_inviscid", time, enstrophy, time, series, labels, source)]
    )


def worst_row(
    name: str, time: np.ndarray, published: np.ndarray, computed: np.ndarray, allowed: float
) -> Check:
    """The row with the largest relative error."""
    worst = int(abs(computed / published - 1).argmax())
    quantity = f"{name}, worst of {len(time)} rows, t = {time[worst]:g}"
    return Check(quantity, published[worst], computed[worst], allowed, VAN_REES)


def _reynolds_1600(
    points: int, dt: float, stop: float, energy: float, dissipation: float
) -> Result:
    """All published rows up to `stop`; `energy` and `dissipation` are the allowed relative errors.
    The rows of every step are interpolated linearly, which costs less than 2e-4."""
    _, rows = march(_vortex(points, 1 / 1600), dt, round(stop / dt), every=1)
    reached = REFERENCE[REFERENCE[:, 0] <= stop + 1e-9]
    time = reached[:, 0]
    checks = []
    curves = []
    for column, name, allowed in ((1, "energy", energy), (2, "dissipation", dissipation)):
        published = reached[:, column]
        computed = np.interp(time, rows["time"], rows[name])
        checks.append(worst_row(name, time, published, computed, allowed))
        few = slice(None, None, 50)
        curves.append(
            Curve(
                f"taylor_green_{points}_{name}",
                rows["time"],
                rows[name],
                time[few],
                published[few],
                ("time $t$", name),
                VAN_REES,
            )
        )
    return Result(checks, curves)


_RE_1600 = "Taylor-Green vortex, Re = 1600"
CASES = (
    Case("taylor_green_early", f"{_RE_1600}, to t = 0.1", early),
    Case(
        "taylor_green_inviscid", "Taylor-Green vortex, inviscid, against its power series", inviscid
    ),
    # 64^3 becomes too coarse at t = 3: the dissipation is off by 0.3 % there.
    Case(
        "taylor_green_64",
        f"{_RE_1600}, 64^3, to t = 3",
        lambda: _reynolds_1600(64, 0.05, 3.0, 1e-4, 5e-3),
    ),
    *(
        Case(f"taylor_green_{points}", f"{_RE_1600}, {points}^3, {end}", run, full=True)
        for points, end, run in (
            (128, "to t = 5", lambda: _reynolds_1600(128, 0.02, 5.0, 0.005, 0.01)),
            (
                256,
                "through transition to t = 15",
                lambda: _reynolds_1600(256, 0.0125, 15.0, 0.005, 0.02),
            ),
        )
    ),
)
