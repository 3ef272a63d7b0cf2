"""The Taylor-Green vortex against published numbers."""

import numpy as np

from validation_cases.case import Case, Check, Curve, Result, march, simulation

VAN_REES = "van Rees et al., J. Comput. Phys. 230, 2794 (2011), spectral, 512³"
REFERENCE = np.array(  # t, kinetic energy, dissipation
    [
        (0.0, 0.125, 0.00046874284),
        (1.0, 0.124515267367, 0.000518820935),
        (2.0, 0.12391676584, 0.00070756353),
        (3.0, 0.123023878593, 0.001126516665),
        (4.0, 0.121508194351, 0.002066236485),
        (5.0, 0.118435751357, 0.004127097335),
        (7.0, 0.107024732124, 0.00736477023),
        (8.0, 0.0982898834307, 0.010372895103),
        (9.0, 0.086403858222, 0.012854539499),
        (10.0, 0.0744791681585, 0.011272054483),
        (12.0, 0.0544416581953, 0.0083608857475),
        (15.0, 0.0364387248782, 0.004331856538),
    ]
)
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


def _reynolds_1600(
    points: int, dt: float, stop: float, energy: float, dissipation: float
) -> Result:
    """`energy` and `dissipation`: allowed relative errors."""
    steps = round(stop / dt)
    _, rows = march(_vortex(points, 1 / 1600), dt, steps, every=round(0.1 / dt))
    reached = REFERENCE[REFERENCE[:, 0] <= stop + 1e-9]
    checks = []
    curves = []
    for column, name, allowed in ((1, "energy", energy), (2, "dissipation", dissipation)):
        at = np.interp(reached[:, 0], rows["time"], rows[name])
        checks += [
            Check(f"{name}, t = {t:g}", e, f, allowed, VAN_REES)
            for t, e, f in zip(reached[1:, 0], reached[1:, column], at[1:], strict=True)
        ]
        labels = ("time $t$", name)
        x = reached[:, 0]
        shown = f"taylor_green_{points}_{name}"
        curves.append(
            Curve(shown, rows["time"], rows[name], x, reached[:, column], labels, VAN_REES)
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
