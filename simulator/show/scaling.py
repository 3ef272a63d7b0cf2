"""Pictures of predicted scaling."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from simulator.errors import UserError
from simulator.plan.plan import Point
from simulator.show import style

ENDINGS = (".png", ".pdf", ".svg")


def check_name(file: str) -> None:
    """Refuses a file whose ending is not known."""
    if Path(file).suffix not in ENDINGS:
        raise UserError(f"--plot: {file}: the name has to end with {', '.join(ENDINGS)}")


def draw(file: str, strong: Sequence[Point], weak: Sequence[Point], title: str) -> Path:
    """Writes a picture of both tables: seconds per step against devices, and the part that exchanges take.

    Raises UserError if the file cannot be written, or if its ending is not known.
    """
    check_name(file)
    try:
        return style.draw(lambda: _scaling(strong, weak, title), Path(file))
    except OSError as error:
        raise UserError(f"--plot: {file}: {error}") from None


def _scaling(strong: Sequence[Point], weak: Sequence[Point], title: str) -> Figure:
    drawn = style.figure(1.25 * style.WIDTH, 3.6)
    drawn.set_layout_engine("constrained")
    panels = drawn.subplots(1, 2, sharey=True)
    for panel, points, name in zip(panels, (strong, weak), ("strong scaling", "weak scaling"), strict=True):
        devices = [p.devices for p in points]
        panel.loglog(devices, [p.seconds for p in points], marker="o", label="a step")
        exchanges = [p.exchange or float("nan") for p in points]
        panel.loglog(devices, exchanges, marker="s", linestyle="--", label="its exchanges")
        if points:
            first = next((p for p in points if p.fits), points[0])
            power = -1 if name.startswith("strong") else 0
            ideal = [first.seconds * (n / first.devices) ** power for n in devices]
            panel.loglog(devices, ideal, color="#888888", linestyle=":", label="ideal")
            grown = f" to {_shape(points[-1])}" if power == 0 else ""
            panel.set_title(f"{name}: {_shape(points[0])}{grown}")
        panel.set_xlabel("devices")
    panels[0].set_ylabel("seconds, predicted")
    panels[0].legend()
    drawn.suptitle(title)
    return drawn


def _shape(point: Point) -> str:
    """The grid in a title: 2048^3, or its sides."""
    sides = set(point.shape)
    power = f"${{{point.shape[0]}}}^{len(point.shape)}$"
    return power if len(sides) == 1 else r" $\times$ ".join(map(str, point.shape))
