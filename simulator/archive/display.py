"""The display of runs and simulations in a notebook: a table, and a plane of a field."""

import base64
import html
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import colormaps
from PIL import Image

_WIDTH = 220
"""Width of a picture in pixels."""


def table(rows: Mapping[str, Any], title: str, picture: str = "") -> str:
    """HTML of a title, names and values, and a picture beside them."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return (
        f"<div style='display:flex;gap:1.5em;align-items:flex-start'><div><b>{html.escape(title)}</b>"
        f"<table>{cells}</table></div>{picture}</div>"
    )


def picture(values: np.ndarray, caption: str) -> str:
    """HTML of an image of the values (x, y) of a plane, with x to the right and y upwards."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if low < 0 < high:  # zero is white
        high = max(high, -low)
        low, colours = -high, colormaps["RdBu_r"]
    else:
        colours = colormaps["magma"]
    shown = (values.T[::-1] - low) / (high - low or 1.0)
    pixels = (colours(np.nan_to_num(shown))[..., :3] * 255).astype(np.uint8)
    image = Image.fromarray(pixels).resize(
        (_WIDTH, max(1, round(_WIDTH * values.shape[1] / values.shape[0])))
    )
    file = io.BytesIO()
    image.save(file, format="PNG")
    data = base64.b64encode(file.getvalue()).decode()
    text = html.escape(caption)
    return (
        f"<figure style='margin:0'><img src='data:image/png;base64,{data}' alt='{text}'><br>{text}</figure>"
    )


def flat(block: Any, key: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted keys."""
    if not isinstance(block, Mapping):
        return {key: block}
    items: dict[str, Any] = {}
    for name, item in block.items():
        items |= flat(item, f"{key}.{name}" if key else str(name))
    return items
