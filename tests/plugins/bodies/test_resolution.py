"""The resolution of bodies, from configurations alone: in `check`, the log and the report."""

import pytest
from flow_support import flow
from numpy.testing import assert_allclose

from simulator.plugins.bodies.resolution import body_of, completed_term

CYLINDER = {"kind": "cylinder", "center": [4, 4], "radius": 0.5}
WALL = {"kind": "half_space", "axis": "y", "below": 1}


def term(mask, **keys):
    return {"name": "it", "kind": "relax", "target": {"velocity": "body"}, "mask": mask, **keys}


@pytest.mark.parametrize("across, verdict", [(7, "bad"), (8, "warn"), (19, "warn"), (20, "good")])
def test_points_across_the_diameter_are_judged(across, verdict):
    body = body_of(term(CYLINDER), (16 * across, 8 * across), (16, 8), 0.01)
    assert (body.across, body.verdict, body.blockage) == (across, verdict, 1 / 8)


def test_the_section_that_a_body_blocks_and_its_smallest_length():
    """Cylinders across and along the stream, a sphere, a plate, and a wall, which has no size."""
    shape, box = (64, 64, 64), (8, 8, 4)
    ball = {**CYLINDER, "kind": "sphere"}
    plate = {"kind": "box", "center": [4, 4, 2], "size": [0.25, 2, None]}
    for mask, across, blockage in (
        ({**CYLINDER, "axis": "z"}, 8, 1 / 8),
        ({**CYLINDER, "axis": "x"}, 8, 3.141592653589793 / 4 / 32),
        (ball, 8, 3.141592653589793 / 4 / 32),
        (plate, 2, 1 / 4),
    ):
        body = body_of(term(mask), shape, box, 0.01)
        assert_allclose((body.across, body.blockage), (across, blockage), rtol=1e-14)
    wall = body_of(term(WALL), shape, box, 0.01)
    assert wall.verdict == "good" and "across" not in wall.line
    both = body_of(
        term({"kind": "union", "parts": [WALL, plate]}, relaxation_time=1), shape, box, 1
    )
    assert both.across == 2 and "section" not in both.line


def test_the_completed_term_is_that_of_the_run_which_says_so_before_it_starts():
    """A sponge, whose target is no body, has no line."""
    sponge = {**term(CYLINDER, relaxation_time=1), "name": "sponge", "target": {"velocity": [1, 0]}}
    start = {"kind": "uniform", "velocity": [1, 0]}
    terms = [term(CYLINDER), sponge]
    model = flow(64, 32, initial=start, viscosity=0.01, grid={"box": [16, 8]}, terms=terms).model
    body, layer = model.terms
    given = completed_term(term(CYLINDER), (64, 32), (16, 8), 0.01)
    assert given["mask"]["smoothing"] == body.settings.mask.width(body.grid) == 0.5
    assert_allclose(given["relaxation_time"], body.settings.relaxation_time, rtol=1e-14)
    ((line, resolved),) = body.outlook().items()
    assert line.startswith("it is under-resolved: 4 grid points across") and not resolved
    assert layer.outlook() == {}
