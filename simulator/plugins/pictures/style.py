"""The style of figures: names of quantities with their units, colour scales, ticks, and small PNG
files."""

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, Self

import matplotlib
import numpy as np
import yaml
from cycler import cycler
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from PIL import Image

from simulator.files import replace_file

DPI = 144
WIDTH = 6.4  # The width of figures in inches: about that of a documentation page, which then shows pictures unscaled.

# Okabe and Ito (2008): distinguishable with every kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

_FOLDER = Path(__file__).parent
_GREYS = np.linspace(0, 1, 40)[:, None].repeat(3, axis=1)
_PALE = np.array([1, 0.85, 0.7, 0.5, 0.3, 0.15])  # The parts of the colours of antialiased curves.


@cache
def vocabulary(part: str) -> Mapping[str, Any]:
    """The words of pictures in a part of labels.yaml, e.g. `symbols` of columns in formulas."""
    return yaml.safe_load((_FOLDER / "labels.yaml").read_text())[part]


def rc(style: str = "screen") -> Any:
    """matplotlib's parameters for pictures of a style: `screen`, or `paper`, which differs from
    it."""
    names = ("screen",) if style == "screen" else ("screen", style)
    parameters: dict[str, Any] = {"axes.prop_cycle": cycler(color=COLOURS)}
    for name in names:
        file = _FOLDER / f"{name}.mplstyle"
        parameters |= matplotlib.rc_params_from_file(file, use_default_template=False)
    return parameters


def as_words(name: str) -> str:
    return name.replace("_", " ")


def quantity(name: str) -> str:
    """The axis label of a quantity: its name in words, and its symbol if there is a common one."""
    if name in (known := vocabulary("quantities")):
        return known[name]
    if moment := re.fullmatch(r"(.+)_(mean|variance)((?:_[xyz])?)", name):
        return f"{moment[2]} of {quantity(moment[1] + moment[3])}"
    for pattern, words in vocabulary("patterns").items():
        if match := re.fullmatch(pattern, name):
            return words.format(*(as_words(part or "") for part in match.groups())).strip()
    return as_words(name)


_PLAIN = {"alpha": "α", "beta": "β", "ell": "ℓ", "gamma": "γ", "psi": "ψ", "sqrt": "√"}
_PLAIN |= {"geq": "≥", "leq": "≤", "lambda": "λ", "varepsilon": "ε", "epsilon": "ε", "nu": "ν"}
_PLAIN |= {"eta": "η", "kappa": "κ", "omega": "ω", "Omega": "Ω", "rho": "ρ", "Delta": "Δ", ",": " "}
_PLAIN |= {"langle": "⟨", "rangle": "⟩", "boldsymbol": "", "mathbf": "", "mathrm": "", " ": " "}


def plain(text: str) -> str:
    """Mathematical text in letters: `Reynolds number Re_λ`."""
    letters = re.sub(
        r"\\([A-Za-z]+ ?|[, ])", lambda name: _PLAIN.get(name[1].strip() or " ", name[1]), text
    )
    return letters.replace("$", "").replace("{", "").replace("}", "").replace("^2", "²")


def spectrum_of(name: str) -> str:
    return vocabulary("spectra").get(name, f"spectrum of {as_words(name)}")


def draw(build: Callable[[], Figure], path: Path, style: str = "screen") -> Path:
    """Build a figure in a style and write it to `path` atomically; returns `path`. The suffix is
    the format: .png, or .pdf and .svg, in which text stays text."""
    data = io.BytesIO()
    with matplotlib.rc_context(rc(style)):
        built = fitted(build())
        if path.suffix == ".png":
            picture = rendered(built)
            shown = [i for axes in built.axes for i in axes.images]
            # These keep all their colours.
            if not any(np.asarray(image.get_array()).ndim == 3 for image in shown):
                picture = fewer_colours(picture, colour_map(built))
            picture.save(data, "png", optimize=True, dpi=(DPI, DPI))
        else:
            metadata: dict[str, Any] = (
                {"CreationDate": None} if path.suffix == ".pdf" else {"Date": None}
            )
            # The same picture gives the same file.
            built.savefig(data, format=path.suffix[1:], metadata=metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, data.getvalue())
    return path


def fitted(drawn: Figure) -> Figure:
    """The figure with all its texts inside: those too long for the figure, or for their panel among
    several, are broken into two lines, then shrunk."""
    texts = [text for text in drawn.findobj(Text) if isinstance(text, Text) and text.get_text()]
    for text in texts:  # the bar of the mathematical font is as short as a small letter
        formulas = text.get_text().split("$")
        formulas[1::2] = [part.replace("|", r"\mathrm{∣}") for part in formulas[1::2]]
        text.set_text("$".join(formulas))
    drawn.draw_without_rendering()  # places the labels
    for text, _ in _too_long(drawn, texts):
        text.set_text(_broken(text.get_text()))
        if text in drawn.texts:  # two lines have to stand where there was room for one
            text.set_fontsize(0.75 * float(text.get_fontsize()))
    drawn.draw_without_rendering()
    for text, ratio in _too_long(drawn, texts):
        text.set_fontsize(float(text.get_fontsize()) * max(ratio, 0.6))
    for text in texts:  # labels of colour bars in two lines
        box = text.get_window_extent()
        beyond = box.x1 + 2 - drawn.bbox.x1
        if text in drawn.texts:
            text.set_x(text.get_position()[0] - max(0.0, beyond) / drawn.bbox.width)
        elif beyond > 0 and text.get_rotation() == 90:
            text.set_fontsize(float(text.get_fontsize()) * max(0.6, 1 - beyond / box.width))
    labels = [axes.yaxis.label.get_window_extent().x0 for axes in drawn.axes]
    titles = [axes.title.get_window_extent().y1 - drawn.bbox.y1 for axes in drawn.axes]
    left = max(0.0, 2 - min(labels, default=2)) / drawn.bbox.width
    above = max(0.0, 2 + max(titles, default=-2)) / drawn.bbox.height
    place = drawn.subplotpars
    # A picture of a few pixels has no room for labels.
    has_room = left < place.right - place.left and above < place.top - place.bottom
    if (left or above) and has_room:
        drawn.subplots_adjust(left=place.left + left, top=place.top - above)
    return drawn


def _too_long(drawn: Figure, texts: Sequence[Text]) -> list[tuple[Text, float]]:
    """The texts longer than their room, each with the ratio of both."""
    whole = drawn.bbox.padded(-2)
    found = []
    for text in texts:
        box = text.get_window_extent()
        i = 1 if text.get_rotation() in (90, 270) else 0
        ends = zip((box.min[i], box.max[i]), (whole.min[i], whole.max[i]), strict=True)
        (low, least), (high, most) = ends
        room = min(min(high, most) - max(low, least), _room_of_panel(drawn, text))
        if text.get_visible() and 0 < room < 0.99 * (high - low):
            found.append((text, room / (high - low)))
    return found


def _room_of_panel(drawn: Figure, text: Text) -> float:
    """The largest length in pixels of the title or the vertical label of a panel that has others
    beside it; infinite for other texts."""
    for axes in drawn.axes:
        box = axes.get_window_extent()
        if text is axes.yaxis.label and box.height < 0.6 * drawn.bbox.height:
            return 1.05 * box.height
        if text is axes.title and box.width < 0.6 * drawn.bbox.width:
            return 1.25 * box.width
    return math.inf


def _broken(text: str) -> str:
    """The text in two lines, broken at the space outside of formulas that is nearest its middle."""
    spaces = [n for n, c in enumerate(text) if c == " " and text[:n].count("$") % 2 == 0]
    if not spaces or "\n" in text:
        return text
    place = min(spaces, key=lambda n: abs(len(plain(text[:n])) - len(plain(text[n:]))))
    return f"{text[:place]}\n{text[place + 1 :]}"


def rendered(drawn: Figure) -> Image.Image:
    canvas = FigureCanvasAgg(drawn)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def colour_map(drawn: Figure) -> str | None:
    """The name of the colour map of a figure; None without one, also for images of colours."""
    images = (image for axes in drawn.axes for image in axes.images)
    return next(
        (image.get_cmap().name for image in images if np.asarray(image.get_array()).ndim == 2), None
    )


def fewer_colours(picture: Image.Image, colours: str | None) -> Image.Image:
    """The picture with at most 256 colours, which looks the same with a third of the bytes; most
    colours are from the colour map `colours`, if given, and some from curves at six times."""
    if colours is None:
        return picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    curves = 1 - np.multiply.outer(_PALE, 1 - sequence_colours(6)[:, :3]).reshape(-1, 3)
    table = np.concatenate([colormaps[colours](np.linspace(0, 1, 180))[:, :3], curves, _GREYS])
    palette = Image.new("P", (1, 1))
    palette.putpalette(np.rint(255 * table).astype(np.uint8).tobytes())
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


def figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches."""
    return Figure(figsize=(width, height), dpi=DPI)


def sequence_colours(count: int) -> np.ndarray:
    """Colours (count, 4) for a sequence of curves, from dark to light; a single curve gets the last
    colour."""
    return colormaps["viridis"](np.linspace(0.0, 0.88, max(count, 2)))[max(2 - count, 0) :]


def evenly(count: int, most: int) -> list[int]:
    """At most `most` indices below `count`, evenly spread, including the first and the last."""
    if count <= most:
        return list(range(count))
    return sorted({round(position) for position in np.linspace(0, count - 1, most)})


def lengths(axis: Axis, low: float, high: float, most: int) -> None:
    """Sets at most `most` intervals between the ticks of a length: at multiples of pi if the extent
    is a multiple of pi. With `most` = 0 there is one tick, at the upper end."""
    ratio = (high - low) / math.pi
    if most and low == 0 and 0.45 < ratio < 33 and abs(ratio * 4 - round(ratio * 4)) < 1e-6:
        step = next((size for size in (0.25, 0.5, 1, 2, 4, 8, 16) if ratio / size <= most), ratio)
        axis.set_major_locator(
            FixedLocator([math.pi * step * n for n in range(math.floor(ratio / step + 1e-6) + 1)])
        )
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: f"${_multiple_of_pi(value / math.pi)}$")
        )
    else:
        ends = most < 2
        axis.set_major_locator(
            FixedLocator([low, high][-most - 1 :]) if ends else MaxNLocator(most)
        )
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"${value:.{3 if ends else 4}g}$"))


def powers_of_ten(axis: Axis) -> None:
    """Sets few and plain ticks along a logarithmic axis, also at 2 and 5 if the axis spans less
    than two decades."""
    low, high = axis.get_view_interval()
    short = high < 60 * low
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if short else (1.0,), numticks=12))
    if short:
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: f"${value:g}$" if 1e-3 <= value < 1e5 else _power(value))
        )
    axis.set_minor_formatter(NullFormatter())


def _power(value: float) -> str:
    exponent = math.floor(math.log10(value) + 1e-9)
    digits = round(value / 10.0**exponent)
    return rf"$10^{{{exponent}}}$" if digits == 1 else rf"${digits}\cdot 10^{{{exponent}}}$"


def position(value: float) -> str:
    """A coordinate in mathematical text: `\\pi/2`, `1.25`."""
    quarters = value / math.pi * 4
    if abs(quarters - round(quarters)) < 1e-6:
        return _multiple_of_pi(value / math.pi)
    return f"{value:.3g}"


def name_vertical(axes: Axes, words: str) -> None:
    """Sets the label of the vertical axis; a single symbol stands upright."""
    symbol = words.startswith("$") and words.count("$") == 2 and words.endswith("$")
    if len(words) == 1 or (symbol and len(words) < 16 and " " not in words):
        axes.set_ylabel(words, rotation=0, ha="right", va="center")
    else:
        axes.set_ylabel(words)


def note(axes: Axes, text: str) -> None:
    """Text in the middle of axes without data."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="#666666")


def _multiple_of_pi(multiple: float) -> str:
    quarters = round(multiple * 4)
    common = math.gcd(quarters, 4)
    over = quarters // common
    under = 4 // common
    if over == 0:
        return "0"
    number = "" if over == 1 else "-" if over == -1 else str(over)
    return rf"{number}\pi" if under == 1 else rf"{number}\pi/{under}"


@dataclass(frozen=True)
class Labels:
    """The labels of a run with the block `model`; dimensionless runs have no units."""

    model: Mapping[str, Any]
    homogeneous: bool = True
    """Three dimensions, and no term within a mask, such as a body, a wall or a sponge."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The labels of a run by its resolved configuration."""
        shape = (config.get("grid") or {}).get("shape", ())
        masked = any(term.get("mask") for term in config.get("terms") or ())
        return cls(config.get("model") or {}, len(shape) == 3 and 1 not in shape and not masked)

    @property
    def comoving(self) -> bool:
        return bool(self.model.get("cosmology"))

    def unit(self, dimension: str) -> str:
        """`kpc` in mathematical text; empty if the run has no units."""
        return vocabulary("units").get(str(self.model.get("units")), {}).get(dimension, "")

    def axis(self, words: str, dimension: str) -> str:
        """`comoving radius $r$ ($\\mathrm{kpc}$)`, with the parts that apply."""
        return ("comoving " if self.comoving else "") + self.with_unit(words, dimension)

    def with_unit(self, words: str, dimension: str) -> str:
        """`$x$ ($\\mathrm{kpc}$)`; `words` if the run has no units."""
        unit = self.unit(dimension)
        return f"{words} (${unit}$)" if unit else words

    @cached_property
    def background(self) -> Any:
        """The expanding background of the run; None without one."""
        if not self.comoving:
            return None
        from simulator.plugins.gravity.cosmology import Background, CosmologySettings

        return Background(CosmologySettings(**self.model["cosmology"]))

    def scale_factor(self, time: float) -> float:
        """a at a time of the run; 1 without expansion."""
        return 1.0 if self.background is None else self.background.scale_factor_at(time)

    def rows(self, times: Sequence[float] | np.ndarray, most: int) -> list[int]:
        """At most `most` rows to show, including the first and the last, spread evenly in number;
        for an expanding run in the logarithm of the scale factor."""
        if self.background is None or len(times) <= most:
            return evenly(len(times), most)
        logs = np.log([self.scale_factor(float(time)) for time in times])
        return sorted(
            {int(abs(logs - target).argmin()) for target in np.linspace(logs[0], logs[-1], most)}
        )

    def moment(self, time: float) -> str:
        """`t = 0.5`, or `redshift 9` for an expanding run until today, then `a = 1.2`; z is a
        coordinate."""
        if self.background is not None:
            a = self.scale_factor(time)
            redshift = f"redshift {abs(round(1 / a - 1, 9)):.3g}"
            return f"$a = {a:.3g}$" if a > 1 + 1e-6 else redshift
        unit = self.unit("time")
        return f"$t = {time:.4g}" + (rf"\,{unit}$" if unit else "$")


PLAIN = Labels({})


_MAPS = {"speed": "viridis"}
_WIDE = 30.0  # A density that varies by more than this factor is shown by its logarithm.
_DECADES = 7.0  # The largest extent of a logarithmic scale below its upper end.

Extend = Literal["neither", "min", "max", "both"]


@dataclass(frozen=True)
class Scale:
    """A colour scale from `low` to `high`, of the values or of their decimal logarithm."""

    low: float
    high: float
    colours: str
    extend: Extend = "neither"
    logarithmic: bool = False
    smooth: bool = True  # Whether values may be interpolated between points.

    @property
    def look(self) -> dict[str, Any]:
        """Arguments of matplotlib's functions for images."""
        return {"vmin": self.low, "vmax": self.high, "cmap": self.colours}

    def shown(self, values: np.ndarray) -> np.ndarray:
        """The values to be drawn, in single precision."""
        if self.logarithmic:
            values = np.log10(np.maximum(values, 10.0 ** (self.low - 1)))
        return values.astype(np.float32)

    def label(self, words: str) -> str:
        return rf"$\log_{{10}}$ {words}" if self.logarithmic else words


def is_density(field: str) -> bool:
    return field == "density" or field.endswith("_density")


def scale_of(field: str, samples: Sequence[np.ndarray], *, logarithmic: bool = False) -> Scale:
    """The colour scale for all of `samples`: cyclic for phases, symmetric about zero for values of
    both signs, logarithmic for densities with a large range, or if asked, else starting at zero. A
    few extreme values are cut off, because the other values would get almost the same colour."""
    colours = _MAPS.get(field, "magma")
    if field == "phase":
        return Scale(-math.pi, math.pi, "twilight", smooth=False)
    values = np.concatenate([np.ravel(sample) for sample in samples])
    values = values[np.isfinite(values)]
    if not values.any():
        return Scale(0.0, 1.0, colours)
    least = float(values.min())
    most = float(values.max())
    positive = values[values > 0]
    if (
        is_density(field)
        and least >= 0
        and (logarithmic or most > _WIDE * float(np.quantile(positive, 0.01)))
    ):
        bottom = math.log10(float(np.quantile(positive, 0.002)))
        top = math.log10(float(positive.max()))
        low = max(bottom, top - _DECADES)
        cut = low > math.log10(float(positive.min())) + 0.1 or least <= 0
        top = max(top, low + (0.01 if logarithmic else 0.1))
        return Scale(low, top, colours, "min" if cut else "neither", logarithmic=True)
    if least < -1e-3 * max(most, 0):
        most = float(abs(values).max())
        nearly = float(np.quantile(abs(values), 0.999))
        end, extend = (nearly, "both") if most > 1.25 * nearly > 0 else (most, "neither")
        return Scale(-end, end, "RdBu_r", extend)
    if is_density(field) and least > most / 2:
        # Small waves on a background would be invisible on a scale from zero.
        middle = (most + least) / 2
        half = max((most - least) / 2, 1e-12 * most)
        return Scale(middle - half, middle + half, colours)
    nearly = float(np.quantile(values, 0.999))
    return (
        Scale(0.0, nearly, colours, "max")
        if most > 1.25 * nearly > 0
        else Scale(0.0, most, colours)
    )
