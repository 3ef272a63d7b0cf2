"""Configurations as users write them, right and wrong: the cases of tests/pairs, and what may go wrong with them."""

from typing import Any

from cover import read_cases
from hypothesis import strategies as st
from table import configuration, user_file

from simulator.config import run_config_class
from simulator.config.messages import all_keys

CASES = [case for case in read_cases() if case.get("initial") != "snapshot"]  # which needs another run
MOST_OUTPUTS = 2

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
def right(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A configuration of any parts with at most two series, and the text of the user's file."""
    case = draw(st.sampled_from(CASES))
    outputs = [factor for factor in case if factor.startswith("output.")]
    kept = draw(st.lists(st.sampled_from(outputs), max_size=MOST_OUTPUTS)) if outputs else []
    config = configuration({factor: case[factor] for factor in case if factor not in outputs or factor in kept})
    config["devices"]["count"] = 1
    return config, user_file(config)


@st.composite
def mutated(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A right configuration in which up to four values were replaced, removed, or put where nobody expects them."""
    data, file = draw(right())
    for _ in range(draw(st.integers(0, 4))):
        keys = all_keys(run_config_class(), data) + _own_keys(data)
        # What these say is how a run ends and where it lies, which the tests decide themselves.
        path = draw(st.sampled_from([key for key in keys if key not in (("output",), ("time",))]))
        _put(data, path, _MISSING if draw(st.integers(0, 9)) == 0 else draw(VALUES))
    return data, file


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
