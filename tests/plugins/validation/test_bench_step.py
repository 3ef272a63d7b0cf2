"""`simulator bench`: the real commands on small grids."""

import json
import os
import subprocess
from math import prod

import pytest
from flow_support import flow
from run_support import command
from shipped_runs import shipped_runs

from simulator.cli import main
from simulator.config import load_config
from simulator.errors import RunFailure
from simulator.plugins.validation.bench_step import seconds_per_step

RUNS = shipped_runs()


def test_the_command_that_is_gone_names_the_script(refused_command):
    assert "scripts/bench_fft.py" in refused_command("bench", "fft", "--shape", "8,8,8")


def bench_step(tmp_path, *arguments):
    """The output of `simulator bench step`, and its JSON."""
    file = tmp_path / "step.json"
    done = subprocess.run(
        command("bench", "step", "--seconds", "0.1", "--json", file, *arguments),
        env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(file.read_text())


@pytest.mark.long
@pytest.mark.spmd
def test_a_step_is_measured(tmp_path):
    arguments = ("--shape", "32,32,32", "--devices", "2", "--precision", "single")
    output, found = bench_step(tmp_path, *arguments, "devices.platform=cpu")
    assert (found["model"], found["shape"], found["devices"]) == ("navier_stokes", [32, 32, 32], 2)
    assert found["fastest"] <= found["step"] <= found["slowest"] and len(found["rounds"]) >= 5
    assert found["points_per_second"] == pytest.approx(32**3 / 2 / found["step"])
    words = found["resident"] + found["temporary"]
    assert found["memory_bytes"] == pytest.approx(words * 4 * 32**3 / 2)
    assert (
        found["resident"] * 32**3 >= 2 * 3 * 21 * 21 * 11
    )  # three components of the modes kept, complex
    assert found["exchanges"]["count"] == 8 and "8 all-to-all" in output
    assert found["threads"] == 1
    limits = found["limits"]  # 3 components in, 5 products out, in each of 4 stages
    assert limits["bytes"] == 4 * 4 * 32**3 * 32 and "GB/s" in output
    assert limits["seconds"] == max(
        limits["bytes"] / limits["bandwidth"], limits["operations"] / limits["rate"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_every_configuration_can_be_measured(tmp_path, path):
    # Small shipped cases are resolved as they are.
    small = load_config(path).grid.shape
    smaller = () if prod(small) <= 32**3 else ("--shape", "32,32,32")
    output, found = bench_step(tmp_path, str(path), *smaller, "--devices", "1")
    assert found["step"] > found["limits"]["seconds"] / 10 > 0 and "nothing" in output


@pytest.mark.slow
@pytest.mark.spmd
def test_several_processes_measure_one_step(tmp_path):
    output, found = bench_step(tmp_path, "--shape", "8,8,8", "--devices", "2", "--processes", "2")
    assert found["processes"] == 2 and output.count("words per grid point") == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--devices", "0"], "devices.count"),
        (["--devices", "3", "--processes", "2"], "3 is not a multiple of 2 processes"),
        (["--processes", "0"], "--processes: must be at least 1, not 0"),
        (["--shape", "16;16"], "'16;16' is not a shape; write e.g. 256,256,256 or 1024,1024"),
        (["--shape", "16"], "navier_stokes is solved in two or three dimensions"),
        (["no_such.yaml"], "no_such.yaml: no such file"),
        (["time.dtt=1"], "time.dtt: unknown key"),
    ],
)
def test_refusals_of_a_step(arguments, message, capsys):
    assert main(["bench", "step", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


@pytest.mark.parametrize("viscosity", [1e-3, 1.0])
def test_a_flow_that_dies_away_begins_anew(viscosity):
    """The CFL number lengthens dt without limit as the velocity vanishes: after 600 steps, and after
    16, too few to measure."""
    simulation = flow(8, 8, 8, initial={"kind": "taylor_green"}, viscosity=viscosity)
    compiled = simulation.compiled_loop()
    if viscosity == 1:
        with pytest.raises(RunFailure, match="not finite; measure another configuration"):
            seconds_per_step(simulation, compiled, 1000)
    else:
        assert seconds_per_step(simulation, compiled, 1000) > 0
        assert 0 < simulation.state.step < 1000
