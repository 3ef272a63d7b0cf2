"""Volume pictures of a run and of its snapshots, and what is refused of them."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image
from run_support import CASE, simulate, write_case

from simulator import open_run
from simulator.cli import main
from simulator.plugins.pictures.rendered_snapshots import rendered_pictures

RENDERED = """\
name: case
model: {kind: navier_stokes, viscosity: 0.02, scalars: [{name: dye, diffusivity: 0.03}]}
grid: {shape: [16, 12, 10]}
initial: {kind: random, peak: 3, energy: 0.5, seed: 1, scalars: {dye: {peak: 2, variance: 1.0}}}
time: {stop: 0.4, cfl: 0.4, max_steps: 3}
devices: {platform: cpu, count: 2}
output:
  diagnostics: {every_steps: 1}
  render: {every_steps: 1, size: [40, 32]}
  snapshots: {every_steps: 2}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    assert simulate(write_case(folder, RENDERED), folder / "run") == 0
    return folder / "run"


def test_pictures_are_measured_again_from_snapshots(finished):
    """On the same devices: the fields differ by the round-off of transforms, and so do few
    pixels."""
    assert main(["analyze", str(finished), "--what", "render"]) == 0
    first = open_run(finished).series("render")
    again = open_run(finished / "analysis").series("render")
    for row in range(len(again)):
        image = first.one("image", int(np.searchsorted(first.step, again.step[row]))).astype(int)
        assert abs(image - again.one("image", row)).max() <= 1


def test_a_stored_snapshot_is_rendered_as_the_run_did_and_with_several_fields(
    finished, capsys, refused_command
):
    assert main(["render", str(finished)]) == 0
    (path,) = (finished / "plots").glob("render_*.png")
    assert capsys.readouterr().out.strip() == str(path)
    ((_, _, drawn),) = rendered_pictures(finished, [-1])  # without the time and the bar of colours
    series = open_run(finished).series("render")
    for name in series.variables:
        assert_array_equal(drawn[name], series.at(-1)[name])
    assert "no snapshot of step 1" in refused_command("render", finished, "--step", "1")
    assert "velocity is not a scalar" in refused_command("render", finished, "--field", "velocity")
    assert main(["render", str(finished), "--field", "vorticity_z"]) == 0
    assert "render_vorticity_z_" in capsys.readouterr().out
    both = ["--field", "vorticity_magnitude", "--field", "dye"]
    assert main(["render", str(finished), *both]) == 0
    last = open_run(finished).snapshots.steps[-1]
    path = finished / "plots" / f"render_vorticity_magnitude+dye_{last:08d}.png"
    assert capsys.readouterr().out.strip() == str(path)
    points = "output.render.fields={vorticity_magnitude: [[0, red, 0.0], [9, red, 0.1]], dye: auto}"
    assert (
        main(["render", str(finished), "output.render.field=null", points, "devices.count=4"]) == 0
    )
    assert "output.render.fields: velocity is not a scalar" in refused_command(
        "render", finished, "--field", "dye", "--field", "velocity"
    )


def test_a_movie_of_the_volume_pictures(finished, capsys):
    frames = finished / "m"
    series = open_run(finished).series("render")
    assert (
        main(
            [
                "movie",
                str(finished),
                "--render",
                "--output",
                f"{frames}.gif",
                "--frames",
                str(frames),
            ]
        )
        == 0
    )
    with Image.open(f"{frames}.gif") as movie:
        assert movie.n_frames == len(series)
    assert (
        main(["plot", str(finished), "--what", "render"]) == 0
    )  # a frame is a picture with its time and colours
    (last,) = (finished / "plots").glob("render_*magnitude.png")
    pixels = [
        np.asarray(Image.open(p).convert("RGB"), int)
        for p in (last, frames / f"frame_{len(series) - 1:05d}.png")
    ]
    assert abs(pixels[0] - pixels[1]).mean() < 2 < abs(pixels[0] - series.one("image", -1)).mean()
    capsys.readouterr()
    assert main(["movie", str(finished)]) == 0
    assert "vorticity_magnitude_slice_z" in capsys.readouterr().out


@pytest.mark.parametrize(
    "render, message",
    [
        (
            "{every: 1, fields: {speed: [[0, red, 0.0], [-9, red, 0.1]]}}",
            "7: output.render.fields.speed: the values 0, -9 do not rise",
        ),
        (
            "{every: 1, field: speed, fields: {speed: auto}}",
            "7: output.render.field: `fields` names the fields",
        ),
    ],
)
def test_settings_that_contradict_one_another_are_refused(
    tmp_path, refused_command, render, message
):
    case = write_case(tmp_path, CASE.replace("spectra: {", f"render: {render}, spectra: {{"))
    assert message in refused_command("check", case)


def test_a_plane_has_no_volume(tmp_path, refused_command):
    plane = CASE.replace("[16, 12, 10], box: [2*pi, 5, 4]", "[16, 12]")
    case = write_case(tmp_path, plane)
    rendered = "output.render={every: 1, field: vorticity}"
    assert "output.render: a plane has no volume; use slices" in refused_command(
        "run", case, "--output", tmp_path / "run", rendered
    )
