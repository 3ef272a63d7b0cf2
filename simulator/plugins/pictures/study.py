"""`simulator sweep plot`: draws quantities against a parameter, and series and spectra of all runs
of a sweep.

A run is a mark or a curve, whose colour encodes one parameter and whose line style encodes
another."""

import ast
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from simulator.archive.open_run import Run, open_run
from simulator.errors import UserError, did_you_mean
from simulator.plugins.pictures.lines import Pictures, legend_beside, limits, logarithmic, panels
from simulator.plugins.pictures.runs import Looks, known, overlays
from simulator.plugins.pictures.style import (
    COLOURS,
    draw,
    note,
    plain,
    quantity,
    sequence_colours,
    vocabulary,
)
from simulator.settings import evaluated
from simulator.study import table as collect
from simulator.study.sweep import Sweep, collectable
from simulator.study.table import collected
from simulator.words import brief

LINES = ("-", "--", ":", "-.")
MARKS = ("o", "s", "^", "D", "v", "P")
_MOST_NAMED = 8  # The largest number of values in a legend; a colour bar shows more values.


@dataclass(frozen=True)
class Parameter:
    """A swept key and its value in each run; or a formula of the keys `of`, with its `words`."""

    key: str
    values: Sequence[Any]
    words: str = ""
    of: Sequence[str] = ()
    errors: ClassVar[None] = None

    @property
    def label(self) -> str:
        if self.words:
            return self.words
        last = self.key.rpartition(".")[2]
        return vocabulary("parameters").get(last, last.replace("_", " "))

    @property
    def numeric(self) -> bool:
        return all(isinstance(v, int | float) and not isinstance(v, bool) for v in self.values)

    @property
    def logarithmic(self) -> bool:
        """Whether equal ratios are drawn as equal distances."""
        return self.numeric and min(self.values) > 0 and max(self.values) >= 4 * min(self.values)

    @property
    def distinct(self) -> list[Any]:
        """The different values: numbers in rising order, others in the order of their
        occurrence."""
        values = list({_text(value): value for value in self.values}.values())
        return sorted(values) if self.numeric else values

    @property
    def positions(self) -> np.ndarray:
        """The coordinate of each run along an axis: its value, or for text the index from
        `place`."""
        return np.array(
            self.values if self.numeric else [self.place(v) for v in self.values], float
        )

    def place(self, value: object) -> int:
        return [_text(v) for v in self.distinct].index(_text(value))

    def set_axis(self, axes: Axes, positions: np.ndarray) -> None:
        """Set the ticks of the horizontal axis: at the values themselves if they are few."""
        distinct = self.distinct
        if not self.numeric:
            axes.set_xticks(range(len(distinct)), [_text(value) for value in distinct])
            axes.set_xlim(-0.5, len(distinct) - 0.5)
            return
        if self.logarithmic:
            logarithmic(axes, "x")
        if len(distinct) <= _MOST_NAMED:
            axes.xaxis.set_major_locator(FixedLocator([float(value) for value in distinct]))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _text(value)))
            axes.xaxis.set_minor_locator(NullLocator())
        if len(distinct) == 1:
            only = float(positions[0])
            axes.set_xlim((only / 2, only * 2) if only > 0 else (only - 1, only + 1))


def plot_sweep(
    sweep: Sweep, *, x: str | None = None, y: Sequence[str] = (), hue: str | None = None
) -> list[Path]:
    """Draws `y` against `x`, and overlays of the series and the latest spectra of all runs; returns
    the files.

    `x` and `hue` are keys that the sweep sets (by default the first numeric key, and the next one);
    `x` may be a formula of them, or an expression;
    `y` are expressions as in `collect` (by default those of the file). UserError if nothing has
    been written yet."""
    quantities = [_expression(sweep, text, "--y") for text in y] or list(sweep.collected)
    if x is not None and x not in sweep.swept and collect.reduction_of(x.partition(".")[0]):
        at = _expression(sweep, x, "--x")
        by = _parameter(sweep, hue, "--hue") if hue else _first(sweep)
        columns = _columns(sweep, [at, *quantities], errors=True)
        return _drawn(sweep, _against(sweep, columns[at.text], by, columns))
    across = _swept(sweep, x) if x else _first(sweep)
    # By default, line styles show a key only if it has few values.
    others = [key for key in sweep.varied if key not in (across.of or (across.key,))]
    by = _parameter(sweep, hue, "--hue") if hue else None
    if by is None and others and len(_values(sweep, others[0]).distinct) <= len(LINES):
        by = _values(sweep, others[0])
    there = [i for i, run in enumerate(sweep.runs) if opened(run.folder)]
    looks = coded(across, by)
    looks = replace(looks, runs=[looks.runs[i] for i in there])
    runs = [open_run(sweep.runs[i].folder) for i in there]
    pictures = _against(sweep, across, by, _columns(sweep, quantities))
    files = _drawn(sweep, chain(pictures, overlays(runs, looks=looks)))
    if files:
        return files
    raise UserError(
        f"{sweep.folder}: no run has written anything yet; simulator sweep run {sweep.file} runs them"
    )


def _drawn(sweep: Sweep, pictures: Pictures) -> list[Path]:
    return [draw(build, sweep.folder / "plots" / f"{name}.png") for name, build in pictures]


def _first(sweep: Sweep) -> Parameter:
    parameters = [_values(sweep, key) for key in sweep.varied]
    return next((parameter for parameter in parameters if parameter.numeric), parameters[0])


def _values(sweep: Sweep, key: str) -> Parameter:
    return Parameter(key, [run.values.get(key) for run in sweep.runs])


def _parameter(sweep: Sweep, key: str, option: str) -> Parameter:
    if key not in sweep.swept:
        meant = did_you_mean(key, sweep.swept, f"; it sets {', '.join(sweep.swept)}")
        raise UserError(f"{option}: the sweep does not set {key!r}{meant}")
    return _values(sweep, key)


def _swept(sweep: Sweep, text: str) -> Parameter:
    """A swept key, or a formula of swept keys such as `1/model.viscosity`."""
    keys = sorted((key for key in sweep.swept if key in text), key=len, reverse=True)
    if text in sweep.swept or not keys:
        return _parameter(sweep, text, "--x")
    names = {key: f"key{number}" for number, key in enumerate(keys)}
    formula = re.sub("|".join(map(re.escape, keys)), lambda key: names[key[0]], text)
    values = []
    for run in sweep.runs:
        numbers = {names[key]: run.values.get(key) for key in keys}
        try:
            tree = ast.parse(formula.strip(), mode="eval").body
            values.append(float(evaluated(tree, numbers, {})))
        except (SyntaxError, TypeError, ArithmeticError):
            form = f"numbers, + - * / **, and swept keys: {', '.join(sweep.swept)}"
            raise UserError(f"--x: {text!r} cannot be computed; a formula has {form}") from None
    words = {key: Parameter(key, ()).label for key in keys}
    return Parameter(text, values, _formula_of(text, words), keys)


def _formula_of(text: str, words: Mapping[str, str]) -> str:
    """A formula of keys as a label, with their symbols where all of them have one."""
    symbols = {key: label[label.find("$") :] for key, label in words.items() if "$" in label}
    for key, label in (symbols if symbols.keys() == words.keys() else words).items():
        text = text.replace(key, label)
    return re.sub(r"(?<!\*)\*(?!\*)", r"$\\,$", text)


def _expression(sweep: Sweep, text: str, option: str) -> collect.Expression:
    try:
        return collect.parse(text, collectable(sweep.runs))
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None


def _columns(
    sweep: Sweep, expressions: Sequence[collect.Expression], *, errors: bool = False
) -> dict[str, "RunQuantity"]:
    """The quantities of all runs by their text; with `errors` also the errors of means."""
    wanted = [e for y in expressions for e in (y, y.error if errors else None) if e]
    rows = [
        collected(run.folder, wanted, status)
        for run, status in zip(sweep.runs, sweep.statuses(), strict=True)
    ]
    values = {e.text: [row[e.text] for row in rows] for e in wanted}
    return {
        e.text: RunQuantity(e.text, values[e.text], values.get(e.error.text) if e.error else None)
        for e in expressions
    }


def _against(
    sweep: Sweep,
    x: "Parameter | RunQuantity",
    hue: Parameter | None,
    columns: Mapping[str, "RunQuantity"],
) -> Pictures:
    """Pictures of quantities against a parameter or another quantity."""
    of_parameter = isinstance(x, Parameter)
    of = (x.of or (x.key,)) if of_parameter else ()
    joined = len(of) == 1 and set(sweep.varied) <= {*of, *((hue.key,) if hue else ())}
    for text, y in columns.items():
        if text != x.key and not (of_parameter and np.isnan(y.values).all()):
            yield stem_of(text, x.key), partial(against, x, y, hue, joined=joined)


def stem_of(y: str, x: str) -> str:
    """The name of the picture of an expression against a key or an expression."""
    return re.sub(r"[\W_]+", "_", f"{y}_against_{x}").strip("_")


def captions_of(sweep: Sweep) -> dict[str, str]:
    """The captions of the pictures of the sweep's quantities against its keys, by their names."""
    captions: dict[str, str] = {}
    for e in sweep.collected:
        for key in sweep.varied:
            words = f"{reduced(e.text)} against {Parameter(key, ()).label}"
            captions[stem_of(e.text, key)] = plain(words[:1].upper() + words[1:])
    return captions


def opened(folder: Path) -> Run | None:
    """The run in a folder; None if `folder` holds no run yet."""
    return known(lambda: open_run(folder), None)


@dataclass(frozen=True)
class RunQuantity:
    """A quantity of each run, with its standard error if it is a mean."""

    key: str
    values: Sequence[float]
    errors: Sequence[float] | None = None
    numeric: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return reduced(self.key)

    @property
    def positions(self) -> np.ndarray:
        return np.asarray(self.values, float)

    def set_axis(self, axes: Axes, positions: np.ndarray) -> None:
        """Make the horizontal axis logarithmic for a wide range of positive values."""
        if positions.min() > 0 and positions.max() > 4 * positions.min():
            logarithmic(axes, "x")


def against(
    x: Parameter | RunQuantity,
    y: RunQuantity,
    hue: Parameter | None = None,
    *,
    joined: bool = False,
) -> Figure:
    """A quantity of every run against a parameter or another quantity, with error bars of means and
    a colour for each value of `hue`, without values that are nan.

    `joined`: points of one colour form a curve, because the runs differ in no other parameter."""
    result, (axes,) = panels(x.label, y.label, height=4.0, right=0.97)
    across = x.positions
    up = y.positions
    there = np.isfinite(across) & np.isfinite(up)
    groups = [(None, there)]
    if hue is not None:
        names = np.array([_text(value) for value in hue.values])
        groups = [(value, there & (names == _text(value))) for value in hue.distinct]
    shades = _shades(hue) if hue is not None else lambda value: COLOURS[0]
    for number, (value, mask) in enumerate(groups):
        rows = np.flatnonzero(mask)[np.argsort(across[mask], kind="stable")]
        errors = [
            None if each.errors is None else np.nan_to_num(np.asarray(each.errors)[rows])
            for each in (x, y)
        ]
        axes.errorbar(
            across[rows],
            up[rows],
            yerr=errors[1],
            xerr=errors[0],
            color=shades(value),
            label=None if value is None or not len(rows) else _text(value),
            **_marks(number, is_curve=joined and x.numeric, above=len(groups) > 1),
        )
    if not there.any():
        note(axes, "no run has finished yet")
    else:
        x.set_axis(axes, across[there])
    limits(axes, up[there], single=False)
    if hue is not None:
        if len(hue.distinct) <= _MOST_NAMED:
            result.subplots_adjust(right=0.78)
            legend_beside(axes, title=hue.label)
        else:
            result.colorbar(_mappable(hue), ax=axes, label=hue.label)
    return result


def _marks(number: int, *, is_curve: bool, above: bool) -> dict[str, Any]:
    """The look of a group of points. Coinciding curves remain visible: the first one is wide if
    others lie `above`, every second one has hollow marks."""
    is_hollow = number % 2 == 1
    look = {
        "elinewidth": 1.0,
        "capsize": 2.5,
        "zorder": 3 + 0.1 * number,
        "linestyle": LINES[number % len(LINES)] if is_curve else "",
        "linewidth": 2.6 if number == 0 and above else 1.5,
        "marker": MARKS[number % len(MARKS)],
        "markersize": 8.5 if is_hollow else 5,
    }
    return look | ({"markerfacecolor": "none"} if is_hollow else {})


def coded(colour: Parameter, line: Parameter | None) -> Looks:
    """The looks of runs if colours encode one parameter and line styles another."""
    shades = _shades(colour)

    def look(i: int) -> dict[str, Any]:
        style = _line(line.place(line.values[i])) if line is not None else {}
        return {"label": None, "colour": shades(colour.values[i]), "how": style}

    return Looks([look(i) for i in range(len(colour.values))], partial(_legends, colour, line))


def _line(number: int) -> dict[str, Any]:
    """A line style; the first one is wide and pale, so that it is visible below a coinciding
    curve."""
    wide = {"linewidth": 1.3, "alpha": 1.0} if number else {"linewidth": 2.2, "alpha": 0.45}
    return {"linestyle": LINES[number % len(LINES)], **wide}


def reduced(expression: str) -> str:
    """`max.dissipation` as an axis label."""
    reduction, _, rest = expression.partition(".")
    if not rest:
        return {"wall_time": "wall time (s)", "steps": "steps"}.get(expression, expression)
    of = vocabulary("reductions").get(reduction, reduction)
    column, _, conditions = rest.partition("[")
    if column.startswith("("):
        words = of.removesuffix(" of")
        words = f"{words} of ${_formula(column[1:-1])}$"
    else:
        words = f"{of} {quantity(column)}"
    if reduction == "integral":
        words = f"{quantity(column)} integrated over time"
    bounds = (
        conditions.rstrip("]").replace("time", "t").replace("<=", r"\leq ").replace(">=", r"\geq ")
    )
    return f"{words}, ${bounds.replace('==', '=')}$" if bounds else words


def _formula(expression: str) -> str:
    """An expression of columns as mathematical text, with symbols for the columns that have a
    common one."""

    def symbol(name: re.Match[str]) -> str:
        words = name[0].replace("_", r"\ ")
        return vocabulary("symbols").get(name[0], rf"\mathrm{{{words}}}")

    powers = re.sub(r"\*\*\s*(-?[\d.]+)", r"^{\1}", re.sub(r"[A-Za-z_]\w*", symbol, expression))
    return powers.replace("*", r"\,")


def _shades(parameter: Parameter) -> Callable[[Any], Any]:
    """A function from a value to its colour: from a colour map for numbers, else from a few
    distinct colours."""
    distinct = parameter.distinct
    if not parameter.numeric or len(distinct) <= 2:
        return lambda value: COLOURS[parameter.place(value) % len(COLOURS)]
    if len(distinct) <= _MOST_NAMED:
        colours = sequence_colours(len(distinct))
        return lambda value: colours[parameter.place(value)]
    scale = _mappable(parameter)
    return lambda value: scale.to_rgba(value)


def _mappable(parameter: Parameter) -> ScalarMappable:
    low = min(parameter.values)
    high = max(parameter.values)
    norm = LogNorm(low, high) if parameter.logarithmic else Normalize(low, high)
    return ScalarMappable(norm, colormaps["viridis"].resampled(256))


def _legends(colour: Parameter, line: Parameter | None, result: Figure, axes: Axes) -> None:
    """Adds the legends of the drawn curves beside the axes, because curves may pass through any
    corner."""
    shades = _shades(colour)
    drawn = [each for each in axes.lines if np.isfinite(each.get_ydata()).any()]
    colours = {to_rgba(each.get_color()) for each in drawn}
    styles = {each.get_linestyle() for each in drawn}
    if not drawn:
        return
    beside: Any = {
        "loc": "upper left",
        "labelspacing": 0.35,
        "alignment": "left",
        "handlelength": 1.8,
    }
    top = 0.3
    if len(colour.distinct) <= _MOST_NAMED:
        entries = [(shades(value), _text(value)) for value in colour.distinct]
        handles = [
            Line2D([], [], color=shade, label=text)
            for shade, text in entries
            if to_rgba(shade) in colours
        ]
        axes.add_artist(
            axes.legend(handles=handles, title=colour.label, bbox_to_anchor=(1.01, 1.0), **beside)
        )
        top = 1.0 - (len(handles) + 1.6) * 0.068
    else:
        place = result.add_axes((0.79, 0.45, 0.02, 0.5))
        result.colorbar(_mappable(colour), cax=place, label=colour.label)
        place.grid(False)
    if line is not None:
        shown = [
            (i, value) for i, value in enumerate(line.distinct) if _line(i)["linestyle"] in styles
        ]
        handles = [
            Line2D([], [], color="#444444", label=_text(value), **_line(i)) for i, value in shown
        ]
        axes.legend(handles=handles, title=line.label, bbox_to_anchor=(1.01, top), **beside)


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return " x ".join(_text(part) for part in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return brief(value).replace("_", " ")
    if value and not 1e-3 <= abs(value) < 1e4:
        power = math.floor(math.log10(abs(value)))
        digits = f"{value / 10.0**power:.4g}"
        return rf"$10^{{{power}}}$" if digits == "1" else rf"${digits}\times 10^{{{power}}}$"
    return f"{value:.4g}"
