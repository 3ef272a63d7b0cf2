"""Volume pictures of a run, with the time written on them."""

import numpy as np
from matplotlib.figure import Figure

from simulator.show.style import DPI, figure


def volume_picture(image: np.ndarray, words: str) -> Figure:
    """A picture (row, column, channel) of 8 bits, pixel by pixel, with `words` in its lower left corner."""
    rows, columns = image.shape[:2]
    result = figure(columns / DPI, rows / DPI)
    axes = result.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.imshow(image, interpolation="nearest", aspect="auto")
    axes.text(0.03, 0.03, words, transform=axes.transAxes, color="white", fontsize=11)
    return result
