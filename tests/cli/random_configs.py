"""Configurations as users write them, right and wrong: a right one of every model, and what may go wrong with it."""

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from simulator.config import run_config_class
from simulator.config.messages import all_keys

FLOW = {"kind": "taylor_green"}
WAVE = {"kind": "schrodinger_poisson", "hbar_over_m": 0.1}
GAS = {"kind": "self_gravitating_gas", "sound_speed": 1.0, "gravitational_constant": 0.1}
MODELS: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    (
        {"kind": "navier_stokes", "viscosity": 0.05, "scalars": [{"name": "dye", "diffusivity": 0.05}]},
        [FLOW, {"kind": "abc", "scalars": {"dye": {"variance": 0.5}}}, {"kind": "random", "peak": 2, "seed": 3}],
    ),
    (
        {"kind": "boussinesq", "viscosity": 0.05, "diffusivity": 0.05, "stratification": 1.0},
        [FLOW, {"kind": "random", "scalars": {"buoyancy": {}}}],
    ),
    (
        {"kind": "mhd", "viscosity": 0.05, "resistivity": 0.05},
        [{"kind": "orszag_tang"}, {"kind": "abc", "magnetic": {"energy": 0.1, "helicity": 1}}],
    ),
    (
        GAS,
        [{"kind": "jeans_wave", "amplitude": 0.01}, {"kind": "uniform", "velocity": [0.1, 0, 0]},
         {"kind": "zeldovich_wave"}],
    ),
    (
        WAVE,
        [{"kind": "jeans_wave"}, {"kind": "uniform"}, {"kind": "soliton", "core_radius": 1.0},
         {"kind": "soliton_merger", "count": 2}],
    ),
    (
        {"kind": "composite", "components": [{"kind": "self_gravitating_gas", "sound_speed": 1.0}, WAVE]},
        [{"kind": "composite", "components": {"gas": {"kind": "uniform"}, "waves": {"kind": "jeans_wave"}}}],
    ),
]  # fmt: skip
FORCINGS: list[Any] = [
    None,
    {"kind": "kolmogorov"},
    {"kind": "abc", "amplitude": 0.1},
    {"kind": "linear", "coefficient": 0.1},
    {"kind": "constant_power", "rate": 0.1},
    {"kind": "ornstein_uhlenbeck", "rate": 0.1, "correlation_time": 0.5},
]
CADENCES = st.sampled_from(
    [
        {"every_steps": 1}, {"every_steps": 2}, {"every": 0.01}, {"every": "1/50", "align": True},
        {"every_wall": "1h"},
    ]
)  # fmt: skip
SERIES = (
    "diagnostics", "spectra", "transfer", "structure_functions", "histograms", "profiles", "projections", "slices",
)  # fmt: skip
FIELDS = (
    "velocity", "speed", "vorticity", "pressure", "density", "psi", "magnetic", "buoyancy", "dye", "potential",
)  # fmt: skip

EXTREME = st.sampled_from(
    [1e308, -1e308, 1e300, 1e-300, 5e-324, 1e100, 1e-100, 1e49, 1e-49, 1e31, 1e29, 1e-29, 1e15, 10**14, 10**20, 2**31,
     2**63, 10**400, -1, 0, -0.0, 1, 2, 3, 5, 7, 0.5, 1.5, ".inf", float("inf"), float("nan"), 1e6, 65536, 65537]
)  # fmt: skip
TEXTS = st.sampled_from(
    ["", " ", "null", "~", "~nouser/x", "$HOME", "$NO_SUCH_VARIABLE", "${", "1/0", "9**9**9**9", "exp(1e9)", "2*pi",
     "-", "x" * 300, "x" * 5000, "a/" * 3000, "(" * 400, "\x00", "\x07", "é", "\U0001f300", "../..", "/", ".",
     "12:30", "1e400", "step", "time", "dt", "x", "k", "drag", "step_mean", "kinetic_energy", "density", "speed",
     "velocity", "gas", "auto", "low", "single", "none", "spherical", "pencil", "jaxdecomp", "10 parsec", "10min",
     "1e9h", "99999999999999d"]
)  # fmt: skip
VALUES = st.one_of(
    EXTREME,
    TEXTS,
    st.floats(allow_nan=True),
    st.integers(-(10**25), 10**25),
    st.text(max_size=6),
    st.none(),
    st.booleans(),
    st.lists(st.one_of(EXTREME, TEXTS), max_size=4),
    st.dictionaries(
        st.sampled_from(["kind", "every", "every_steps", "name", "x"]), st.one_of(EXTREME, TEXTS), max_size=2
    ),
)
_MISSING = object()


@st.composite
def right(draw: st.DrawFn, small: bool = True) -> dict[str, Any]:
    """A configuration whose blocks fit together, nearly always; `small`: of 8^3 points and two steps."""
    model, starts = draw(st.sampled_from(MODELS))
    model, start = deepcopy(model), deepcopy(draw(st.sampled_from(starts)))
    extents = st.just(8) if small else st.sampled_from([1, 4, 6, 8, 9, 12, 16])
    data: dict[str, Any] = {
        "model": model,
        "initial": start,
        "grid": {"shape": [draw(extents) for _ in range(3)]},
        "time": {"stop": draw(st.sampled_from([0.05, 1, "2*pi"])), "max_steps": 2, "max_dt": 0.05},
        "devices": {"platform": "cpu", "count": 1},
    }
    split = model["kind"] in ("schrodinger_poisson", "composite")
    if not split:
        data["grid"]["dealias"] = draw(st.sampled_from(["two_thirds", "two_thirds", "spherical", "none"]))
        data["time"]["integrator"] = draw(st.sampled_from(["rk2", "rk3", "rk4"]))
        if (force := draw(st.sampled_from(FORCINGS))) is not None and draw(st.booleans()):
            data["forcing"] = deepcopy(force)
    if draw(st.booleans()):
        data["time"]["dt"] = 0.01
    data["precision"] = draw(st.sampled_from(["double", "double", "single"]))
    names = draw(st.lists(st.sampled_from(SERIES), max_size=3, unique=True))
    data["output"] = {name: deepcopy(draw(CADENCES)) for name in names}
    if "slices" in names and draw(st.booleans()):
        data["output"]["slices"]["fields"] = draw(
            st.lists(st.sampled_from(FIELDS), min_size=1, max_size=2, unique=True)
        )
    return data


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A right configuration in which up to four values were replaced, removed, or put where nobody expects them."""
    data = draw(right(small=draw(st.booleans())))
    for _ in range(draw(st.integers(0, 4))):
        keys = all_keys(run_config_class(), data) + _own_keys(data)
        # What these say is how a run ends and where it lies, which the tests decide themselves.
        path = draw(st.sampled_from([key for key in keys if key not in (("output",), ("time",))]))
        _put(data, path, _MISSING if draw(st.integers(0, 9)) == 0 else draw(VALUES))
    return data


def _own_keys(data: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The places of all values in nested mappings and lists."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [p for key, value in items for p in ((*path, key), *_own_keys(value, (*path, key)))]


def _put(data: Any, path: tuple[str | int, ...], value: Any) -> None:
    """Sets or removes what stands at `path`, making the blocks on the way to it."""
    for part in path[:-1]:
        if isinstance(data, dict):
            if not isinstance(data.get(part), dict | list):
                data[part] = {}
            data = data[part]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return
    last = path[-1]
    if isinstance(data, dict):
        data.pop(last, None)
        if value is not _MISSING:
            data[last] = value
    elif isinstance(data, list) and isinstance(last, int) and last < len(data) and value is not _MISSING:
        data[last] = value
