"""Pictures of predicted scaling."""

from pathlib import Path
from typing import NamedTuple

import pytest

from simulator.cli import main
from simulator.show.scaling import draw

CASE = str(Path(__file__).parents[2] / "configs" / "taylor_green.yaml")


class Point(NamedTuple):
    devices: int
    shape: tuple[int, ...]
    seconds: float
    exchange: float
    fits: bool = True


def test_shapes_are_in_the_titles(tmp_path: Path) -> None:
    strong = [Point(n, (64, 64, 64), 1 / n, 0.1 / n) for n in (1, 2, 4)]
    weak = [Point(1, (64, 64, 32), 1.0, 0.0), Point(8, (128, 128, 64), 1.2, 0.2)]
    text = draw(str(tmp_path / "scaling.svg"), strong, weak, "case on h100").read_text()
    assert "case on h100" in text and "strong scaling: " in text and "128" in text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--plot x.png", "--plot: draws the tables of --scaling; give that too"),
        ("--scaling --plot x.gif", "--plot: x.gif: the name has to end with .png, .pdf, .svg"),
    ],
)
def test_a_wrong_name_is_refused_before_anything_is_compiled(line: str, message: str, capsys) -> None:
    assert main(["plan", CASE, *line.split()]) == 2
    assert capsys.readouterr().err.strip() == message
