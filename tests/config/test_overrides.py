# ruff: noqa: E501 - tables of texts and messages
"""`key.path=value` on the command line: how values are read, what they replace, where mistakes are blamed."""

import contextlib
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.config import Override, parse_override
from simulator.errors import UserError

BASE = "model: {kind: viscous, viscosity: 1/1600}\ninitial: {kind: vortex, amplitude: 2}\ntime: {stop: 1, cfl: 0.4}\n"


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("time.stop=2", ("time", "stop"), 2),
        ("a=1e-3", ("a",), 1e-3),
        ("a=no", ("a",), "no"),
        ("a=010", ("a",), 10),
        ("a=64,64,64", ("a",), [64, 64, 64]),
        ("a=2*pi,1, pi", ("a",), ["2*pi", 1, "pi"]),
        ("a=[1, 2]", ("a",), [1, 2]),
        ("a='1,2'", ("a",), "1,2"),
        ("a={b: 1, c: x}", ("a",), {"b": 1, "c": "x"}),
        ("a=null", ("a",), None),
        ("a.0.b=x=y", ("a", 0, "b"), "x=y"),
        ("a=~/x", ("a",), "~/x"),
    ],
)
def test_how_an_override_is_read(text: str, path: tuple, value: object) -> None:
    assert parse_override(text) == Override(path, value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo", "foo: an override is written key=value, e.g. time.stop=2"),
        ("=3", "=3: a key is written with dots, e.g. time.stop=2"),
        ("a..b=3", "a..b=3: a key is written with dots, e.g. time.stop=2"),
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
    ("overrides", "messages"),
    [
        (["tiem.stop=2"], ["tiem: unknown key, did you mean time?"]),
        (["time.stpo=2"], ["time.stpo: unknown key, did you mean time.stop?"]),
        (["precision=half"], ["precision: unknown choice 'half'; known: double, single"]),
        (["time.dt=1e-3", "time.cfl=0.5"], ["time.dt: excludes time.cfl; keep one of the two"]),
        (["time={stop: 1, dt: 1, cfl: 1}"], ["time.dt: excludes time.cfl; keep one of the two"]),
        (["precision.x=1", "precision=single"], ["precision.x: precision is 'single', not a block of keys"]),
        (["grid.shape=8,8,8", "grid.shape.3=1"], ["grid.shape.3: grid.shape has 3 entries, counted from 0"]),
        (["model.kind=stratified"], ["model.viscosity: missing; it is required"]),
        (["model.viscosity=null"], None),
        (["foo", "bar"], ["foo: an override is written key=value, e.g. time.stop=2", "bar: an override is written key=value, e.g. time.stop=2"]),
    ],
)  # fmt: skip
def test_mistakes_are_blamed_on_the_command_line(
    refused, overrides: list[str], messages: list[str] | None
) -> None:
    expected = [f"command line: {message}" for message in messages] if messages else None
    # What is missing after its removal is missing in the file.
    assert refused(BASE, *overrides) == (expected or ["run.yaml:1: model.viscosity: missing; it is required"])


def test_values_replace_the_files(load) -> None:
    config = load(BASE, "time.stop=2", "grid.shape=8,9,11", "grid.box=2*pi,1,1/3", "model.viscosity=0")
    assert config.time.stop == 2.0
    assert config.grid.shape == (8, 9, 11)
    assert config.grid.box[2] == 1 / 3
    assert config.model.viscosity == 0.0
    assert config.initial.amplitude == 2.0


def test_the_last_of_the_same_key_wins(load) -> None:
    assert load(BASE, "time.stop=2", "time.stop=3").time.stop == 3.0


def test_null_removes_a_key(load) -> None:
    config = load(BASE, "initial.amplitude=null", "time.cfl=null", "output.spectra=null")
    assert config.initial.amplitude == 1.0
    assert config.time.cfl == 0.5


def test_an_entry_of_a_list(load) -> None:
    text = BASE.replace("1/1600", "0, scalars: [{name: a, diffusivity: 1}]")
    assert load(text, "model.scalars.0.diffusivity=3").model.scalars[0].diffusivity == 3.0


@pytest.mark.parametrize(
    ("overrides", "cfl", "dt"),
    [
        (["time.dt=1e-3"], None, 1e-3),
        (["time.dt=1e-3", "time.cfl=null"], None, 1e-3),
        (["time.dt=null"], 0.4, None),
        (["time.cfl=0.2", "time.dt=null"], 0.2, None),
        (["time={stop: 2, dt: 0.1}"], None, 0.1),
    ],
)
def test_cfl_and_dt_exclude_each_other(
    load, overrides: list[str], cfl: float | None, dt: float | None
) -> None:
    for order in itertools.permutations(overrides):
        time = load(BASE, *order).time
        assert (time.cfl, time.dt) == (cfl, dt)


def test_cfl_replaces_a_dt_of_the_file(load) -> None:
    time = load(BASE.replace("cfl: 0.4", "dt: 0.1"), "time.cfl=0.3").time
    assert (time.cfl, time.dt) == (0.3, None)


def test_another_kind_starts_its_block_anew_in_any_order(load) -> None:
    for order in itertools.permutations(
        ["model.kind=stratified", "model.viscosity=2", "model.stratification=3"]
    ):
        model = load(BASE, *order).model
        assert model.model_dump() == {"kind": "stratified", "viscosity": 2.0, "stratification": 3.0}


def test_the_same_kind_keeps_its_block(load) -> None:
    assert load(BASE, "initial.kind=vortex").initial.amplitude == 2.0


def test_a_whole_block_comes_before_its_keys(load) -> None:
    for order in itertools.permutations(["initial={kind: vortex}", "initial.amplitude=5"]):
        assert load(BASE, *order).initial.amplitude == 5.0
    assert load(BASE, "initial={kind: vortex}").initial.amplitude == 1.0


def test_a_block_that_the_file_does_not_have(load) -> None:
    assert load(BASE, "forcing.kind=driven", "forcing.rate=2").forcing.rate == 2.0


def test_input_paths_start_at_the_current_folder_only_on_the_command_line(
    load, tmp_path: Path, config_class, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simulator.config import load_config

    folder, here = tmp_path / "cases", tmp_path / "here"
    for place in (folder, here):
        place.mkdir()
        (place / "fields.py").touch()
    monkeypatch.chdir(here)
    monkeypatch.setenv("CASES", str(folder))
    (folder / "run.yaml").write_text(
        BASE.replace("{kind: vortex, amplitude: 2}", "{kind: python, path: fields.py}")
    )

    def path(*overrides: str) -> Path:
        return load_config("../cases/run.yaml", overrides, config_class=config_class).initial.path

    assert path() == folder / "fields.py"
    assert path("initial.path=fields.py") == here / "fields.py"
    assert path("initial={kind: python, path: ./fields.py}") == here / "fields.py"
    assert path("initial.path=${CASES}/fields.py") == folder / "fields.py"


@given(st.text() | st.text(alphabet="a.=[]{}\n\t\x1b\x85\u2028\ufeff\ud800", max_size=8))
def test_a_refusal_is_one_line_without_control_characters(text: str) -> None:
    with contextlib.suppress(UserError):
        parse_override(text)
        return
    with pytest.raises(UserError) as refusal:
        parse_override(text)
    assert str(refusal.value).isprintable()


def test_a_line_break_is_refused_on_one_line() -> None:
    with pytest.raises(UserError) as refusal:
        parse_override("\n")
    assert str(refusal.value) == r"command line: \n: an override is written key=value, e.g. time.stop=2"
