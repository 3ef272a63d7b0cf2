"""Whatever is in a sweep's file: it is refused with lines that name it, or listed, the same way every time."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sweep_support import BASE

from simulator.config.yaml12 import dump_yaml
from simulator.errors import UserError
from simulator.study import open_sweep
from simulator.study.report import plan_lines

KEYS = st.sampled_from(
    ["model.viscosity", "precision", "grid.shape", "time.stop", "initial.kind", "initial.amplitude", "time.cfl",
     "time.dt", "time.max_steps", "output.diagnostics.every_steps", "output.directory", "devices.count", "name",
     "model", "initial", "slurm.time", "modle.viscosity", "a..b", "grid.shape.0"]
)  # fmt: skip
VALUES = st.one_of(
    st.sampled_from([1, 0.1, "1/50", "single", "double", "abc", "taylor_green", [8, 8, 8], [12, 8, 9], None, True]),
    st.floats(1e-3, 1),
    st.integers(-1, 3),
    st.text(max_size=3),
)  # fmt: skip
BLOCK = st.dictionaries(KEYS, st.lists(VALUES, max_size=3), max_size=3)
ENTRY = st.dictionaries(KEYS, VALUES, max_size=2)
PAIR = st.lists(st.floats(-2, 10), min_size=1, max_size=3)
WHOLE = st.lists(st.integers(-(2**60), 2**60) | st.integers(0, 9), min_size=2, max_size=2)
DISTRIBUTION = st.dictionaries(
    st.sampled_from(["uniform", "log_uniform", "normal", "choice", "integers", "seeds"]), PAIR | WHOLE, max_size=2
)
SAMPLE = st.fixed_dictionaries(
    {"parameters": st.dictionaries(KEYS, DISTRIBUTION, max_size=2)},
    optional={
        "n": st.integers(0, 4),
        "method": st.sampled_from(["latin_hypercube", "random", "grid"]),
        "seed": st.integers(-1, 9),
    },
)
SWEEP = st.fixed_dictionaries(
    {},
    optional={
        "grid": BLOCK, "zip": BLOCK, "list": st.lists(ENTRY, max_size=3), "sample": SAMPLE,
        "exclude": st.lists(ENTRY, max_size=2), "gird": BLOCK,
    },
)  # fmt: skip
FILE = st.fixed_dictionaries(
    {"base": st.sampled_from(["base.yaml", "base.yaml", "base.yaml", "nowhere.yaml"]), "sweep": SWEEP},
    optional={
        "name": st.sampled_from(["study", "a/b", "", "x y"]),
        "collect": st.lists(
            st.sampled_from(
                ["final.energy", "max.speed", "mean.energy[time>0.5]", "wall_time", "[", "mean.energy[]"]
            ),
            max_size=3,
        ),
        "slurm": st.sampled_from([{}, {"throttle": 2}, {"throttle": 0}, {"time": "00:30:00"}]),
    },
)


def opened(path: Path) -> list[str]:
    """The lines of `plan`, or those of the refusal."""
    try:
        sweep = open_sweep(path)
    except UserError as error:
        lines = str(error).splitlines()
        assert lines and all(line.startswith(f"{path.parent}/") for line in lines), lines
        return lines
    assert [run.index for run in sweep.runs] == list(range(len(sweep.runs)))
    assert len({run.hash for run in sweep.runs}) == len(sweep.runs) > 0
    return plan_lines(sweep)


@given(content=FILE)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_is_refused_or_listed_and_always_alike(content, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir("/")  # so that every message has the whole path
    (tmp_path / "base.yaml").write_text(BASE)
    path = tmp_path / "study.yaml"
    path.write_text(dump_yaml(content))
    first = opened(path)
    assert opened(path) == first
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["base.yaml", "study.yaml"]
