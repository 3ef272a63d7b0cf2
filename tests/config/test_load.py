"""What a short file becomes; a written one is the same run; what the schema says; which changes a
run survives."""

import copy
import math
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simulator.config import RunConfig, as_mapping, assemble, dump_config, json_schema, load_config
from simulator.config.blocks import TimeSettings
from simulator.config.compare import Change, Difference, classify, diff_configs
from simulator.config.run_config import Registries
from simulator.errors import UserError


@pytest.mark.smoke
def test_a_short_file_is_a_whole_run(load, short: str, tmp_path: Path):
    assert as_mapping(load(short)) == {
        "name": "run",
        "model": {"kind": "viscous", "viscosity": 1 / 1600, "scalars": []},
        "grid": {"shape": [64, 64, 64], "box": [2 * math.pi] * 3, "dealias": "two_thirds"},
        "initial": {"kind": "vortex", "amplitude": 1.0},
        "time": {"integrator": "rk4", "stop": 1.0, "cfl": 0.5},
        "terms": [],
        "particles": [],
        "precision": "double",
        "devices": {"platform": "auto", "count": "auto", "threads": "auto"},
        "fft": {
            "backend": "custom_partitioning",
            "decomposition": "auto",
            "mesh": "auto",
            "kernels": "auto",
            "exchange": "full",
        },
        "output": {
            "directory": f"{tmp_path}/outputs/run",
            "diagnostics": {"every_steps": 10, "align": False},
            "spectra": {"every_steps": 100, "align": False},
            "snapshots": {"sample": ["velocity"], "index": True},
            "checkpoints": {"every_wall": 900.0, "keep_last": 2},
            "compression": "none",
        },
        "run": {
            "memory": "auto",
            "watchdog": 600.0,
            "stop_within": 60.0,
            "rendezvous": 900.0,
            "transport": "auto",
            "sync": True,
        },
        "slurm": {},
    }


def test_values_of_every_form(load, short: str):
    config = load(
        short
        + "grid: {shape: [63, 64, 67], box: [2*pi, 1e1, 1/3]}\n"
        "devices: {platform: cpu, count: 8}\n"
        "fft: {block: auto, mesh: [2, 4]}\n"
        "output: {checkpoints: {every_wall: 10min, every_steps: 1e3}, slices: {every: 0.1, align: true}}\n"
        "run: {watchdog: 2h}\n"
        "slurm: {time: 30, nodes: 2, gpus_per_node: 0, sbatch: --exclusive --mail-type=END}\n"
        "name: ‘ab’\n".replace("‘ab’", "Größe_1.0")
    )
    assert config.grid.shape == (63, 64, 67)
    assert config.grid.box == (2 * math.pi, 10.0, 1 / 3)
    assert config.devices.count == 8
    assert config.fft.mesh == (2, 4)
    assert config.output.checkpoints.every_wall == 600.0
    assert config.output.checkpoints.every_steps == 1000
    assert config.output.slices.align
    assert config.run.watchdog == 7200.0
    assert config.slurm.time == "30"
    assert config.name == "Größe_1.0"
    for time in (
        "30",
        "30:00",
        "00:30:00",
        "1-12",
        "1-12:30",
        "1-12:30:00",
    ):  # Slurm's forms stay text
        assert load(short + f"slurm: {{time: {time}}}\n").slurm.time == time


def test_output_lies_relative_to_the_current_folder(load, short: str, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("SCRATCH", "/scratch")
    for given_path, meant in [
        ("out", f"{tmp_path}/out"),
        ("../out", f"{tmp_path.parent}/out"),
        ("~/out", "/home/someone/out"),
        ("$SCRATCH/out", "/scratch/out"),
        ("${SCRATCH}/a/../out", "/scratch/out"),
    ]:
        text = short + f"output: {{directory: '{given_path}'}}\n"
        assert load(text).output.directory == Path(meant)
        assert load(short, f"output.directory={given_path}").output.directory == Path(meant)


def test_a_run_is_named_after_its_file(config_class, tmp_path: Path, short: str):
    path = tmp_path / "my case.v2.yaml"
    path.write_text(short)
    config = load_config(path)
    assert config.name == "my_case.v2"
    assert config.output.directory == Path.cwd() / "outputs/my_case.v2"
    with pytest.raises(ValueError, match="frozen"):
        config.time.stop = 2.0
    path.write_bytes(
        b"\xef\xbb\xbf" + short.replace("\n", "\r\n").encode()
    )  # as editors on Windows write it
    assert load_config(path) == config


def test_registries_do_not_leak_into_each_other(registries: Registries, config_class):
    assert TimeSettings.model_fields["integrator"].annotation is str
    assert RunConfig.model_fields["forcing"].default is None
    one = assemble(registries._replace(forcings={"stirred": registries.forcings["stirred"]}))
    data = {
        "model": {"kind": "viscous", "viscosity": 0},
        "initial": {"kind": "vortex"},
        "time": {"stop": 1},
    }
    assert one.model_validate(copy.deepcopy(data)).forcing is None
    with pytest.raises(ValueError):
        one.model_validate({**data, "forcing": {"kind": "driven"}})


FLOATS = st.floats(min_value=1e-30, max_value=1e30)  # of every kind: a length's are the narrowest
PARAMETERS = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=5).filter(lambda key: key != "<<"),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**20), 10**20)
        | st.floats(allow_nan=False)
        | st.text(st.characters(codec="utf-8"), max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("abc 1.", max_size=3), inner)
        ),
        max_leaves=5,
    ),
    max_size=3,
)
RUNS = st.fixed_dictionaries(
    {
        "model": st.fixed_dictionaries(
            {"kind": st.just("viscous"), "viscosity": FLOATS},
            optional={
                "hyperviscosity": st.fixed_dictionaries(
                    {"order": st.integers(1, 9), "coefficient": FLOATS}
                )
            },
        ),
        "initial": PARAMETERS.map(
            lambda values: {"kind": "python", "path": "f.py", "parameters": values}
        ),
        "time": st.fixed_dictionaries({"stop": FLOATS, "max_steps": st.integers(1, 10**12)})
        | st.tuples(st.floats(1e-6, 1e6), st.integers(1, 10**9)).map(
            lambda drawn: {"stop": drawn[0], "dt": drawn[0] / drawn[1]}
        ),
    },
    optional={
        "name": st.from_regex(r"[a-z0-9_]{1,8}", fullmatch=True),
        "grid": st.fixed_dictionaries(
            {"shape": st.lists(st.integers(1, 2**16), min_size=3, max_size=3)},
            optional={
                "box": st.lists(st.floats(1e-9, 1e9), min_size=3, max_size=3),
                "dealias": st.just("none"),
            },
        ),
        "forcing": st.just({"kind": "driven", "rate": 3}),
        "precision": st.sampled_from(["single", "double"]),
        "devices": st.just({"platform": "cpu", "count": 8}),
    },
)


@pytest.mark.long
@given(run=RUNS)
def test_a_written_configuration_is_the_same_run(tmp_path_factory, config_class, run: dict):
    """Every number survives exactly, in both directions, whatever the folder it is read from."""
    config = config_class.model_validate(run)
    written = dump_config(config)
    path = tmp_path_factory.getbasetemp() / "dumped.yaml"
    path.write_text(written)
    again = load_config(path, check_files=False)
    assert again == config
    assert dump_config(again) == written
    assert again.initial.parameters == run["initial"]["parameters"]
    assert again.time.stop == run["time"]["stop"]


def test_overrides_survive_in_a_written_configuration(
    load, config_class, short: str, tmp_path: Path
):
    (tmp_path / "f.py").touch()
    parameters = "initial.parameters={a: 1e-3, b: '1e-3', c: null}"
    config = load(short, "initial.kind=python", "initial.path=f.py", parameters)
    (tmp_path / "again.yaml").write_text(dump_config(config))
    again = load_config(tmp_path / "again.yaml")
    assert again == config
    assert again.initial.parameters == {"a": 1e-3, "b": "1e-3", "c": None}
    assert as_mapping(config) == yaml.safe_load(dump_config(config))


KEYS = [
    "model",
    "initial",
    "time",
    "grid",
    "kind",
    "viscous",
    "vortex",
    "stop",
    "cfl",
    "shape",
    "output",
    "every",
]
LINES = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from(KEYS), st.text("01e-.[]{}:,ab '\"~*&!|", max_size=8)
    ),
    max_size=8,
).map(lambda lines: "\n".join(f"{'  ' * depth}{key}: {value}" for depth, key, value in lines))


@given(
    text=st.text() | LINES,
    override=st.text(max_size=12) | st.sampled_from(KEYS).map(lambda key: f"{key}.x=1"),
)
def test_no_file_and_no_override_raises_anything_but_a_user_error(
    tmp_path_factory, config_class, text, override
):
    path = tmp_path_factory.getbasetemp() / "arbitrary.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    for overrides in ((), (override,)):
        try:
            load_config(path, overrides)
        except UserError as error:
            assert all(
                line.startswith((os.fspath(path), "command line"))
                for line in str(error).split("\n")
            )


def test_the_schema_names_every_key(config_class):
    schema = json_schema()
    assert set(schema["properties"]) == set(config_class.model_fields)
    assert schema["required"] == ["model", "initial", "time"]
    assert schema["additionalProperties"] is False
    model = schema["properties"]["model"]
    kinds = {
        schema["$defs"][ref["$ref"].rpartition("/")[2]]["properties"]["kind"]["const"]
        for ref in model["oneOf"]
    }
    assert kinds == {"viscous", "stratified"}
    for definition in schema["$defs"].values():
        assert definition["additionalProperties"] is False
        if "kind" in definition["properties"]:
            assert "kind" in definition["required"]
    assert schema["$defs"]["TimeSettings"]["properties"]["integrator"]["enum"] == ["rk4", "rk2"]
    assert schema["properties"]["precision"]["description"].startswith("Precision of the fields")


FROZEN = Change.FROZEN
CHANGEABLE = Change.CHANGEABLE
FREE = Change.FREE


@pytest.mark.parametrize(
    ("override", "difference"),
    [
        ("model.viscosity=1", ("model.viscosity", 1 / 1600, 1.0, FROZEN)),
        ("grid.shape=8,8,8", ("grid.shape", [64, 64, 64], [8, 8, 8], FROZEN)),
        ("initial.amplitude=2", ("initial.amplitude", 1.0, 2.0, FROZEN)),
        ("precision=single", ("precision", "double", "single", FROZEN)),
        ("time.stop=2", ("time.stop", 1.0, 2.0, CHANGEABLE)),
        ("name=other", ("name", "run", "other", CHANGEABLE)),
        ("output.slices={every: 1, align: true}", ("output.slices.every", None, 1.0, CHANGEABLE)),
        ("output.directory=/a", ("output.directory", None, "/a", FREE)),
        ("devices.count=2", ("devices.count", "auto", 2, FREE)),
        ("fft.exchange=single", ("fft.exchange", "full", "single", FREE)),
        ("run.watchdog=1", ("run.watchdog", 600.0, 1.0, FREE)),
        ("slurm.account=me", ("slurm.account", None, "me", FREE)),
    ],
)
def test_a_change_and_its_class(load, short: str, override: str, difference: tuple):
    key, old, new, change = difference
    found = diff_configs(load(short), load(short, override))[0]
    assert (found.key, found.new, found.change) == (key, new, change)
    assert old is None or found.old == old


@pytest.mark.smoke
def test_the_same_configuration_does_not_differ_however_it_was_written(load, short: str):
    assert diff_configs(load(short), load(short, "time.cfl=1/2", "model.viscosity=6.25e-4")) == []


def test_all_differences_block_by_block_of_keys_that_have_a_class(load, short: str):
    assert diff_configs(
        load(short), load(short, "time.dt=1e-3", "forcing.kind=driven", "grid.dealias=none")
    ) == [
        Difference("grid.dealias", "two_thirds", "none", FROZEN),
        Difference("forcing.kind", None, "driven", FROZEN),
        Difference("forcing.rate", None, 0.1, FROZEN),
        Difference("time.dt", None, 0.001, CHANGEABLE),
        Difference("time.cfl", 0.5, None, CHANGEABLE),
    ]
    assert all(classify(f"{key}.anything") in Change for key in RunConfig.model_fields)


def test_the_number_of_planes_of_a_block_is_a_variable_of_the_environment(load, short: str):
    """Records of earlier runs have the key all the same."""
    with pytest.raises(UserError, match=r"fft\.block: is now the environment variable SIMULATOR_"):
        load(short, "fft.block=4")
    assert load(short, "fft.block=4", check_files=False).fft == load(short).fft
