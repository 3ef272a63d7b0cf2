"""Bodies in the pictures of a flow: their surfaces lie where the configuration says."""

from dataclasses import replace
from importlib import import_module

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from flow_support import flow
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.contour import ContourSet
from numpy.testing import assert_allclose, assert_array_equal

from simulator.archive.series_file import Series, SeriesReader
from simulator.archive.series_recorder import measured_series

STILL = {"kind": "uniform", "velocity": [1, 0]}
SPONGE = {
    "name": "sponge",
    "kind": "relax",
    "target": {"velocity": [1, 0]},
    "relaxation_time": 1,
    "mask": {"kind": "box", "center": [0, 1.5], "size": [0.5, None]},
}


@pytest.fixture
def pictures():
    """The plugin that draws, which may be absent."""
    package = pytest.importorskip("simulator.plugins.pictures")
    for name in ("frames", "slices", "style"):
        import_module(f"{package.__name__}.{name}")
    return package


def body(name, **mask):
    target = {"velocity": "body"}
    return {"name": name, "kind": "relax", "target": target, "relaxation_time": 1, "mask": mask}


def at_time(simulation, kind, time):
    """A row of a series, of the initial fields at another time."""
    compute = jax.jit(measured_series(simulation)[kind].compute)
    values = compute(replace(simulation.state, time=jnp.float64(time)))
    return {name: np.asarray(array) for name, array in values.items()}


def test_the_contour_of_a_disc_is_its_circle_at_each_time(tmp_path, pictures):
    """Between points the mask is taken as linear. Its layer is two spacings h wide, and along an
    axis the chord from the distance -h / 4 to 3 h / 4 crosses 1/2 at 0.067 h, the most there is. The
    disc leaves the box by one side and is drawn at the other; a sponge is not drawn."""
    disc = body("disc", kind="cylinder", center=["1.2 + 2*t", "1.5 + 0.3*t"], radius=0.7)
    simulation = flow(
        *(64, 48),
        initial=STILL,
        terms=[disc, SPONGE],
        grid={"box": [4, 3]},
        output={"slices": {"every": 1}},
    )
    measured = measured_series(simulation)["slices"]
    times = (0.0, 0.5, 1.4)
    rows = [(time, at_time(simulation, "slices", time)) for time in times]
    written = Series(tmp_path / "slices.h5", measured.coordinates, measured.variables)
    written.extend([(step, *row) for step, row in enumerate(rows)])
    series = SeriesReader(written.path)
    with matplotlib.rc_context(pictures.style.rc()):
        figure = pictures.slices.slices(series, "speed")
        FigureCanvasAgg(figure).draw()
    shown = pictures.frames.Frames(series, "speed/xy", range(3))
    panels = [axes for axes in figure.axes if axes.get_title()]
    for number, (axes, time) in enumerate(zip(panels, times, strict=True)):
        fill, line = axes.findobj(ContourSet)
        assert fill.filled and not line.filled
        x, y = np.concatenate([path.vertices for path in line.get_paths()]).T
        across = (x - 1.2 - 2 * time + 2) % 4 - 2
        assert_allclose(np.hypot(across, y - 1.5 - 0.3 * time), 0.7, atol=0.075 * 4 / 64)
        (filled,) = shown.solids(number)
        assert_array_equal(filled, *pictures.slices.solids_at(series, "xy", number))
        assert filled.mean() * 12 == pytest.approx(np.pi * 0.7**2, rel=0.01)


def test_a_flow_without_bodies_stores_no_mask_of_them():
    simulation = flow(8, 8, initial=STILL, terms=[{**SPONGE}], output={"slices": {"every": 1}})
    assert not [name for name in at_time(simulation, "slices", 0.0) if name.startswith("bodies")]


def test_a_ball_in_a_volume_picture_is_a_grey_disc_on_any_layout(pictures):
    """Its area to the width of the layer in which the mask falls."""
    ball = body("ball", kind="sphere", center=[2, "2 + t", 2], radius=0.8)
    clear = [[0, "black", 0], [9, "black", 0]]
    camera = {"azimuth": 0, "elevation": 0, "zoom": 1}
    render = {"every": 1, "field": "speed", "transfer": clear, "camera": camera}
    pictures = []
    for count in (1, 4):
        simulation = flow(
            *(24, 24, 24),
            initial={"kind": "uniform", "velocity": [1, 0, 0]},
            terms=[ball],
            count=count,
            grid={"box": [4, 4, 4]},
            output={"render": {**render, "size": [96, 96], "outline": False}},
        )
        measured = at_time(simulation, "render", 0.5)
        assert [name for name in measured if name != "image"] == ["colours/speed"]
        pictures.append(measured["image"].astype(int))
    assert_array_equal(*pictures)
    pixel = 4 * 3**0.5 / 96
    rows, columns = np.nonzero(pictures[0].min(-1) > 76)
    assert rows.size * pixel**2 == pytest.approx(np.pi * 0.8**2, rel=0.1)
    assert (columns.mean() - 47.5) * pixel == pytest.approx(0.5, abs=pixel)
    assert abs(rows.mean() - 47.5) * pixel < pixel
    assert_array_equal(pictures[0][47, 47 + round(0.5 / pixel)], [153] * 3)
