"""`simulator movie RUN`: a movie of a plane of a field as mp4 or, without ffmpeg, as GIF and
frames."""

import importlib
import io
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib
import numpy as np
from matplotlib.animation import FFMpegWriter
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from PIL import Image

from simulator.archive.open_run import open_run
from simulator.errors import RunFailure, UserError
from simulator.files import TEMPORARY, pieces_of, replace_file, write_durably
from simulator.plugins.pictures import style
from simulator.plugins.pictures.frames import PLANE, Frames, View, frames, samples, volume_frames
from simulator.plugins.pictures.kinds.render import colours_of, volume_picture
from simulator.plugins.pictures.lines import panels
from simulator.plugins.pictures.slices import (
    PlaneAxis,
    bar_beside,
    dots,
    draw_solids,
    plane_image,
    words_of,
    wrapped_plane,
)

INSTALL = (
    "without ffmpeg there is no mp4: install the system's ffmpeg, or pip install imageio-ffmpeg"
)
SUFFIXES = (".mp4", ".gif")
_PANEL = 5.0
_LINE = 3.6  # The height of a picture of a curve.
_SMALLER = 2 / 3  # The width of a GIF relative to that of an mp4, because GIFs compress badly.
_LEFT = 0.75
_RIGHT = 1.15
_TOP = 0.45
_BOTTOM = 0.6


@dataclass(frozen=True)
class Movie:
    path: Path
    frames: int
    source: str  # The file or folder from which the frames were read.
    note: str | None = None  # A note for the user.


def ffmpeg() -> str | None:
    """The path of the system's ffmpeg, else of the ffmpeg in the package imageio-ffmpeg; None if
    there is neither."""
    if path := shutil.which("ffmpeg"):
        return path
    try:
        return importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    except (ImportError, RuntimeError):
        return None


def movie(
    path: str | Path,
    view: View | None,
    *,
    fps: float = 15,
    output: Path | None = None,
    keep: Path | None = None,
    encoder: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Movie:
    """Write a movie of a view of the run in `path`, with one frame in memory at a time; without
    `view`, a movie of the run's volume pictures (`output.render`).

    `output` ends in .mp4 or .gif; by default it is `RUN/plots/FIELD_slice_AXIS.mp4`. Without
    ffmpeg, whose path is `encoder`, a GIF and a folder of its frames replace an mp4. `keep` is a
    folder for the frames as PNG. Raises UserError if there is nothing to show, RunFailure if
    ffmpeg fails, OSError if the file cannot be written."""
    run = open_run(path)
    shown = volume_frames(run) if view is None else frames(run, view)
    name = "render" if view is None else f"{view.field}_{view.kind}_{view.axis}"
    name = name if len(shown.coordinates) > 1 else shown.variable.replace("/", "_")
    target = run.path / "plots" / f"{name}.mp4" if output is None else _checked(output)
    labels = style.Labels.of(run.config)
    note = None
    if target.suffix.lower() == ".mp4" and encoder is None:
        target = target.with_suffix(".gif")
        note = INSTALL
        keep = keep or target.with_suffix("")
    context: Any = {**style.rc(), "animation.ffmpeg_path": encoder or "ffmpeg"}
    try:
        target.parent.mkdir(exist_ok=True)
        if keep is not None:
            _make_frames_folder(keep)
        with matplotlib.rc_context(context), TemporaryDirectory() as folder:
            file = Path(folder) / f"movie{target.suffix.lower()}"
            picture = _picture(shown, view, labels)
            each = _shown(picture, shown, keep, progress)
            write = _write_mp4 if encoder and file.suffix == ".mp4" else _write_gif
            write(picture.figure, each, file, fps)
            write_durably(target, pieces_of(file))
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise RunFailure(f"{target}: ffmpeg failed: {said}") from None
    return Movie(target, len(shown), shown.source, note)


def _checked(path: Path) -> Path:
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(
            f"--output: {path}: ends in {path.suffix or 'nothing'}; .mp4 or .gif are made"
        )
    if not path.parent.is_dir():
        raise UserError(f"--output: {path.parent}: no such folder")
    return path


def _make_frames_folder(folder: Path) -> None:
    """Makes a folder for frames, or empties it of the frames of an earlier movie."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("frame_*.png", f"{TEMPORARY}frame_*.png-*"):  # the latter of a killed movie
        for old in folder.glob(pattern):
            old.unlink()


def _shown(
    picture: "_Picture | _Line | _Volume",
    shown: Frames,
    keep: Path | None,
    progress: Callable[[int, int], None],
) -> Iterator[None]:
    for i in range(len(shown)):
        picture.show(i)
        if keep is not None:
            image = style.fewer_colours(
                style.rendered(picture.figure), style.colour_map(picture.figure)
            )
            content = io.BytesIO()
            image.save(content, "png", optimize=True, dpi=(style.DPI, style.DPI))
            replace_file(keep / f"frame_{i:05d}.png", content.getvalue(), sync=False)
        yield
        progress(i + 1, len(shown))


def _write_mp4(drawn: Figure, each: Iterator[None], path: Path, fps: float) -> None:
    quality = ["-pix_fmt", "yuv420p", "-crf", "18", "-movflags", "+faststart"]
    writer = FFMpegWriter(fps=fps, codec="h264", extra_args=quality)  # pyright: ignore[reportArgumentType]
    with writer.saving(drawn, str(path), style.DPI):
        for _ in each:
            writer.grab_frame()


def _write_gif(drawn: Figure, each: Iterator[None], path: Path, fps: float) -> None:
    """Writes an animated GIF that repeats for ever; programs show delays below 20 ms slowly, so
    none is shorter."""

    def images() -> Iterator[Image.Image]:
        for _ in each:
            picture = style.rendered(drawn)
            size = (round(picture.width * _SMALLER), round(picture.height * _SMALLER))
            yield style.fewer_colours(
                picture.resize(size, Image.Resampling.LANCZOS), style.colour_map(drawn)
            )

    rest = images()
    delay = 10 * max(2, round(100 / fps))
    next(rest).save(
        path, "gif", save_all=True, append_images=rest, duration=delay, loop=0, optimize=False
    )


def _picture(
    shown: Frames, view: View | None, labels: style.Labels
) -> "_Picture | _Line | _Volume":
    if view is None:
        return _Volume(shown, labels)
    kind = _Line if len(shown.coordinates) == 1 else _Picture
    return kind(shown, view, labels)


class _Line:
    """One panel with a curve, on an axis that holds the curves of all frames."""

    def __init__(self, shown: Frames, view: View, labels: style.Labels) -> None:
        self._shown = shown
        self._labels = labels
        (points,) = shown.coordinates
        along = PlaneAxis.of(points)
        words = words_of(view.field, labels, projected=False)
        across = labels.axis("$x$", "length")
        self.figure, (axes,) = panels(across, words, title=" ", height=_LINE, right=0.96)
        (self._curve,) = axes.plot(np.append(points, along.high), np.zeros(len(points) + 1))
        values = np.concatenate(samples(shown))
        room = 0.05 * (np.ptp(values) or 1.0)
        axes.set_ylim(values.min() - room, values.max() + room)
        axes.set_xlim(along.low, along.high)
        style.lengths(axes.xaxis, along.low, along.high, 4)
        self._time = axes.set_title("", loc="left", pad=6)
        style.fitted(self.figure)

    def show(self, i: int) -> None:
        values = self._shown.read(i)
        self._curve.set_ydata(np.append(values, values[:1]))
        self._time.set_text(self._labels.moment(self._shown.time(i)))


class _Picture:
    """One panel with its colour bar; only the image and the time change from frame to frame."""

    def __init__(self, shown: Frames, view: View, labels: style.Labels) -> None:
        self._shown = shown
        self._scale = style.scale_of(view.field, samples(shown))
        self._labels = labels
        self._dots = list[Any]()
        self._solids = list[ContourSet]()
        points = shown.coordinates
        self._along = (PlaneAxis.of(points[0]), PlaneAxis.of(points[1]))
        extents = [each.extent for each in self._along]
        wide, tall = (_PANEL * extent / max(extents) for extent in extents)
        inches = _LEFT + wide + _RIGHT, _TOP + tall + _BOTTOM
        # H.264 needs even numbers of pixels.
        width, height = (2 * round(each * style.DPI / 2) / style.DPI for each in inches)
        self.figure = style.figure(width, height)
        self._axes = self.figure.add_axes(
            (_LEFT / width, _BOTTOM / height, wide / width, tall / height)
        )
        nothing = np.zeros([len(each) for each in points])
        self._image = plane_image(self._axes, nothing, self._along, self._scale)
        self._time = self._axes.set_title("", loc="left", pad=6)
        self._label(view, wide, tall)
        place = (_LEFT + wide + 0.14) / width, _BOTTOM / height, 0.13 / width, tall / height
        words = self._scale.label(words_of(view.field, labels, projected=view.projected))
        room = max(1, min(8, int(tall / 0.4)))
        bar_beside(self.figure, self._image, place, words, self._scale.extend, room)
        style.fitted(self.figure)

    def _label(self, view: View, wide: float, tall: float) -> None:
        axes = self._axes
        across, up = self._along
        style.lengths(axes.xaxis, across.low, across.high, 4 if wide > 2 else 1)
        style.lengths(axes.yaxis, up.low, up.high, 4 if tall > 1 else 1)
        x, y = (self._labels.axis(f"${name}$", "length") for name in PLANE[view.axis])
        axes.set_xlabel(x)
        style.name_vertical(axes, y)
        axes.set_title(self._shown.where, loc="right", pad=6)

    def show(self, i: int) -> None:
        for drawn in self._solids:
            drawn.remove()
        self._solids = draw_solids(self._axes, self._shown.solids(i), self._along)
        for number, places in enumerate(self._shown.particles(i)):
            if number == len(self._dots):
                self._dots.append(self._axes.scatter([], [], **dots(number)))
            self._dots[number].set_offsets(places.T)
        self._image.set_data(wrapped_plane(self._shown.read(i), self._scale))
        self._time.set_text(self._labels.moment(self._shown.time(i)))


class _Volume:
    """A volume picture of the run, pixel by pixel, with the time in a corner and bars of its
    colours."""

    def __init__(self, shown: Frames, labels: style.Labels) -> None:
        self._shown = shown
        self._labels = labels
        # H.264 takes even numbers only.
        rows, columns = (len(points) // 2 * 2 for points in shown.coordinates)
        self._part = np.s_[:rows, :columns]
        self.figure = style.figure(columns / style.DPI, rows / style.DPI)

    def show(self, i: int) -> None:
        words = self._labels.moment(self._shown.time(i))
        colours = colours_of(self._shown.series, i)
        style.fitted(volume_picture(self._shown.read(i)[self._part], words, colours, self.figure))
