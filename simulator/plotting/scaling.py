"""Pictures of predicted scaling."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import matplotlib

from simulator.errors import UserError


class Point(Protocol):
    @property
    def devices(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def seconds(self) -> float: ...

    @property
    def exchange(self) -> float: ...

    @property
    def fits(self) -> bool: ...


def draw(file: str, strong: Sequence[Point], weak: Sequence[Point], title: str) -> Path:
    """Writes a picture of both tables: seconds per step against devices, and the part that exchanges take.

    Raises UserError if the file cannot be written, or if its ending is not known.
    """
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for panel, points, name in zip(panels, (strong, weak), ("strong scaling", "weak scaling"), strict=True):
        devices = [p.devices for p in points]
        panel.loglog(devices, [p.seconds for p in points], "o-", color="C0", label="a step")
        panel.loglog(
            devices, [p.exchange or float("nan") for p in points], "s--", color="C1", label="its exchanges"
        )
        if points:
            first = next((p for p in points if p.fits), points[0])
            power = -1 if name.startswith("strong") else 0
            ideal = [first.seconds * (n / first.devices) ** power for n in devices]
            panel.loglog(devices, ideal, ":", color="0.5", label="ideal")
            large = points[-1].shape
            grown = f" to {large[0]} x {large[1]} x {large[2]}" if power == 0 else ""
            panel.set_title(f"{name}: {' x '.join(map(str, points[0].shape))}{grown}", fontsize=10)
        panel.set_xlabel("devices")
        panel.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("seconds, predicted")
    panels[0].legend()
    figure.suptitle(title, fontsize=11)
    path = Path(file)
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise UserError(f"--plot: {file}: {error}") from None
    finally:
        plt.close(figure)
    return path
