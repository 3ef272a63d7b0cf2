# ruff: noqa: E501 - tables of texts and messages
"""`key.path=value` on the command line: how values are read, what they replace, where mistakes are blamed."""

import itertools
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.config import Override, load_config, parse_override
from simulator.errors import UserError

BASE = "model: {kind: viscous, viscosity: 1/1600}\ninitial: {kind: vortex, amplitude: 2}\ntime: {stop: 1, cfl: 0.4}\n"


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("time.stop=2", ("time", "stop"), 2), ("a=1e-3", ("a",), 1e-3), ("a=no", ("a",), "no"),
        ("a=010", ("a",), 10), ("a=64,64,64", ("a",), [64, 64, 64]),
        ("a=2*pi,1, pi", ("a",), ["2*pi", 1, "pi"]), ("a=[1, 2]", ("a",), [1, 2]),
        ("a='1,2'", ("a",), "1,2"), ("a={b: 1, c: x}", ("a",), {"b": 1, "c": "x"}), ("a=null", ("a",), None),
        ("a.0.b=x=y", ("a", 0, "b"), "x=y"), ("a=~/x", ("a",), "~/x"),
    ],
)  # fmt: skip
def test_how_an_override_is_read(text: str, path: tuple, value: object) -> None:
    assert parse_override(text) == Override(path, value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo", "foo: an override is written key=value, e.g. time.stop=2"),
        ("=3", "=3: a key is written with dots, e.g. time.stop=2"),
        ("a..b=3", "a..b=3: a key is written with dots, e.g. time.stop=2"),
        ("\n", r"\n: an override is written key=value, e.g. time.stop=2"),
        ("a=", "a: has no value; a=null removes the key"),
        ("a=@x", "a: unreadable YAML: while scanning for the next token, found character '@' that cannot start any token; quotes around the value may help"),
        ("a=*x", "a: unreadable YAML: found undefined alias 'x'; quotes around the value may help"),
    ],
)  # fmt: skip
def test_what_is_no_override(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_override(text)
    assert str(caught.value) == f"command line: {message}"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["tiem.stop=2"], "tiem: unknown key, did you mean time?"),
        (["time.stpo=2"], "time.stpo: unknown key, did you mean time.stop?"),
        (["precision=half"], "precision: unknown choice 'half'; known: double, single"),
        (["time.dt=1e-3", "time.cfl=0.5"], "time.dt: excludes time.cfl; keep one of the two"),
        (["time={stop: 1, dt: 1, cfl: 1}"], "time.dt: excludes time.cfl; keep one of the two"),
        (["precision.x=1", "precision=single"], "precision.x: precision is 'single', not a block of keys"),
        (["grid.shape=8,8,8", "grid.shape.3=1"], "grid.shape.3: grid.shape has 3 entries, counted from 0"),
        (["model.kind=stratified"], "model.viscosity: missing; it is required"),
    ],
)  # fmt: skip
def test_mistakes_are_blamed_on_the_command_line(refused, overrides: list[str], message: str) -> None:
    assert refused(BASE, *overrides) == [f"command line: {message}"]


def test_all_overrides_are_blamed_and_a_removed_key_is_missing_in_the_file(refused) -> None:
    assert [line[:19] for line in refused(BASE, "foo", "bar")] == ["command line: foo: ", "command line: bar: "]
    assert refused(BASE, "model.viscosity=null") == ["run.yaml:1: model.viscosity: missing; it is required"]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["time.stop=2"], {"time.stop": 2.0, "initial.amplitude": 2.0}),
        (["grid.shape=8,9,11", "grid.box=2*pi,1,1/3"], {"grid.shape": (8, 9, 11), "grid.box": (2 * math.pi, 1.0, 1 / 3)}),
        (["model.viscosity=0"], {"model.viscosity": 0.0}),
        (["initial.amplitude=null", "time.cfl=null", "output.spectra=null"], {"initial.amplitude": 1.0, "time.cfl": 0.5}),
        (["model.scalars.0.diffusivity=3"], {"model.scalars.0.diffusivity": 3.0}),
        (["time.dt=1e-3"], {"time.cfl": None, "time.dt": 1e-3}),
        (["time.dt=1e-3", "time.cfl=null"], {"time.cfl": None, "time.dt": 1e-3}),
        (["time.dt=null"], {"time.cfl": 0.4, "time.dt": None}),
        (["time.cfl=0.2", "time.dt=null"], {"time.cfl": 0.2, "time.dt": None}),
        (["time={stop: 2, dt: 0.1}"], {"time.cfl": None, "time.dt": 0.1}),
        (["model.kind=stratified", "model.viscosity=2", "model.stratification=3"],
         {"model": {"kind": "stratified", "viscosity": 2.0, "stratification": 3.0}}),
        (["initial.kind=vortex"], {"initial.amplitude": 2.0}),
        (["initial={kind: vortex}", "initial.amplitude=5"], {"initial.amplitude": 5.0}),
        (["initial={kind: vortex}"], {"initial.amplitude": 1.0}),
        (["forcing.kind=driven", "forcing.rate=2"], {"forcing.rate": 2.0}),
    ],
)  # fmt: skip
def test_overrides_replace_the_files_values_in_any_order(load, overrides: list[str], expected: dict) -> None:
    text = BASE.replace("1/1600", "0, scalars: [{name: a, diffusivity: 1}]") if "scalars" in overrides[0] else BASE
    for order in itertools.permutations(overrides):
        whole = load(text, *order).model_dump()
        for key, value in expected.items():
            found = whole
            for part in key.split("."):
                found = found[int(part) if part.isdecimal() else part]
            assert found == value, key


def test_the_last_of_the_same_key_wins_and_cfl_replaces_a_dt_of_the_file(load) -> None:
    assert load(BASE, "time.stop=2", "time.stop=3").time.stop == 3.0
    time = load(BASE.replace("cfl: 0.4", "dt: 0.1"), "time.cfl=0.3").time
    assert (time.cfl, time.dt) == (0.3, None)


def test_input_paths_start_at_the_current_folder_only_on_the_command_line(
    load, tmp_path: Path, config_class, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, here = tmp_path / "cases", tmp_path / "here"
    for place in (folder, here):
        place.mkdir()
        (place / "fields.py").touch()
    monkeypatch.chdir(here)
    monkeypatch.setenv("CASES", str(folder))
    (folder / "run.yaml").write_text(BASE.replace("{kind: vortex, amplitude: 2}", "{kind: python, path: fields.py}"))

    def path(*overrides: str) -> Path:
        return load_config("../cases/run.yaml", overrides).initial.path

    assert path() == folder / "fields.py"
    assert path("initial.path=fields.py") == here / "fields.py"
    assert path("initial={kind: python, path: ./fields.py}") == here / "fields.py"
    assert path("initial.path=${CASES}/fields.py") == folder / "fields.py"


@given(st.text() | st.text(alphabet="a.=[]{}\n\t\x1b\x85\u2028\ufeff\ud800", max_size=8))
def test_a_refusal_is_one_line_without_control_characters(text: str) -> None:
    try:
        parse_override(text)
    except UserError as refusal:
        assert str(refusal).isprintable()
