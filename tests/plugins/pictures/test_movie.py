"""Movies: what was written is decoded again; where the frames come from; what is refused."""

import signal
import subprocess

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from run_files import write_series
from run_support import command, environment, tool, wait_until

from simulator.archive.open_run import open_run
from simulator.cli import main
from simulator.errors import RunFailure, UserError
from simulator.plugins.pictures import movie as module
from simulator.plugins.pictures.frames import View, frames, readable, usual_view
from simulator.plugins.pictures.movie import ffmpeg, movie
from simulator.plugins.pictures.style import scale_of

TIMES = (0.0, 0.5, 1.0, 1.5, 2.0)
SHAPE = (12, 9, 8)
BOX = (3.0, 2.0, 1.0)


def field(time):
    """A density with a front that moves along x, constant along z."""
    x, y, _ = np.meshgrid(*(np.arange(n) / n for n in SHAPE), indexing="ij")
    return 1 + 0.9 * np.sin(2 * np.pi * (x - time / 4)) * np.cos(2 * np.pi * y)


@pytest.fixture
def folder(tmp_path):
    """A run with slices and projections of a density at five times."""
    (tmp_path / "config.yaml").write_text("name: test\nmodel: {kind: self_gravitating_gas}\n")
    axes = {a: np.arange(n) * h / n for a, n, h in zip("xyz", SHAPE, BOX, strict=True)}
    planes = ("xy", "xz", "yz")
    for kind in ("slices", "projections"):
        rows = []
        for time in TIMES:
            rho = field(time)
            row = {p: rho.sum(i) * BOX[i] / SHAPE[i] for i, p in ((2, "xy"), (1, "xz"), (0, "yz"))}
            if kind == "slices":
                row = {"xy": rho[:, :, 4], "xz": rho[:, 4, :], "yz": rho[6]}
            rows.append((time, {f"density/{p}": row[p] for p in planes}))
        write_series(tmp_path, kind, axes, {f"density/{p}": tuple(p) for p in planes}, rows)
    return tmp_path


def test_a_gif_holds_the_frames_pixel_by_pixel(folder):
    """Every frame of the file is the PNG beside it, made smaller; so are number, size and
    duration."""
    made = movie(folder, View("density"), fps=20, keep=folder / "frames", encoder=None)
    assert made.path == folder / "plots" / "density_slice_z.gif" and made.note == module.INSTALL
    assert (made.frames, made.source) == (5, "slices.h5")
    pictures = sorted((folder / "frames").iterdir())
    assert [p.name for p in pictures] == [f"frame_{i:05d}.png" for i in range(5)]
    with Image.open(made.path) as gif:
        assert gif.n_frames == 5
        for i, path in enumerate(pictures):
            gif.seek(i)
            with Image.open(path) as png:
                expected = png.convert("RGB").resize(gif.size, Image.Resampling.LANCZOS)
                assert gif.width == round(png.width * 2 / 3)
            off = np.abs(np.asarray(gif.convert("RGB"), float) - np.asarray(expected, float))
            assert off.mean() < 3, "another picture differs by 20 and more"
            assert gif.info["duration"] == 50
    one, other = (
        np.asarray(Image.open(p).convert("RGB"), float) for p in (pictures[0], pictures[4])
    )
    assert np.abs(one - other).mean() > 20


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_movie_leaves_nothing_half_written_and_is_repeated(folder, number):
    """Killed when the second frame is there."""
    target = folder / "plots" / "a.gif"
    keep = folder / "frames"
    target.parent.mkdir()
    words = ["movie", str(folder), "--field", "density", "--output", str(target)]
    words += ["--frames", str(keep)]
    process = subprocess.Popen(
        command(*words),
        env=environment(),
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # A shell starts background jobs, perhaps these tests, with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_until((keep / "frame_00001.png").exists)
    process.send_signal(number)
    assert process.wait(30) != 0 and not [*target.parent.iterdir()]
    for path in keep.glob("frame_*.png"):
        Image.open(path).load()
    assert main(words) == 0
    assert [path.name for path in target.parent.iterdir()] == ["a.gif"]
    assert sorted(path.name for path in keep.iterdir()) == [f"frame_{i:05d}.png" for i in range(5)]
    undisturbed = movie(folder, View("density"), keep=folder / "again", encoder=None).path
    assert target.read_bytes() == undisturbed.read_bytes()


def test_a_shorter_movie_leaves_no_old_frames(folder):
    (folder / "frames").mkdir()
    (folder / "frames" / "frame_00007.png").write_bytes(b"")
    (folder / "frames" / "mine.txt").write_text("kept")
    movie(folder, View("density"), keep=folder / "frames", encoder=None, output=folder / "a.gif")
    assert (
        len(list((folder / "frames").iterdir())) == 6 and (folder / "frames" / "mine.txt").exists()
    )


@pytest.mark.skipif(ffmpeg() is None, reason="needs ffmpeg: pip install imageio-ffmpeg")
def test_an_mp4_is_decoded_again(folder, capsys):
    """ffmpeg reads back as many frames as there are, each of an even size, and sees them differ."""
    target = folder / "rho.mp4"
    arguments = ["movie", str(folder), "--field", "density", "--projection", "--axis", "y"]
    assert main([*arguments, "--fps", "10", "--output", str(target)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{target}  5 frames from projections.h5, ") and "install" not in err
    decoder = [
        ffmpeg(),
        "-loglevel",
        "error",
        "-i",
        str(target),
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-",
    ]
    raw = np.frombuffer(subprocess.run(decoder, capture_output=True, check=True).stdout, np.uint8)
    keep = folder / "frames"
    movie(
        folder,
        View("density", "y", projected=True),
        keep=keep,
        encoder=None,
        output=folder / "rho.gif",
    )
    pictures = [np.asarray(Image.open(p).convert("RGB"), float) for p in sorted(keep.iterdir())]
    height, width, _ = pictures[0].shape
    assert height % 2 == width % 2 == 0 and raw.size == 5 * height * width * 3
    decoded = raw.reshape(5, height, width, 3).astype(float)
    for found, expected in zip(decoded, pictures, strict=True):
        assert np.abs(found - expected).mean() < 4
    assert not list(folder.glob(".rho*")), "nothing half-written is left"


@pytest.mark.skipif(ffmpeg() is None, reason="needs ffmpeg: pip install imageio-ffmpeg")
def test_an_ffmpeg_that_fails_ends_with_one_line(folder):
    """A movie that may not be written: ffmpeg's own words, exit 1, no file."""
    broken = tool(folder, "ffmpeg", "echo 'no encoder of that name' >&2; exit 1")
    with pytest.raises(
        RunFailure, match=r"density_slice_z\.mp4: ffmpeg failed: no encoder of that name"
    ):
        movie(folder, View("density"), encoder=str(broken))
    assert list((folder / "plots").iterdir()) == []


def test_what_cannot_be_shown_is_refused(folder):
    with pytest.raises(
        UserError,
        match=r"no slice of a field 'densty', did you mean density\? there are: density; (?!.*densty)",
    ):
        movie(folder, View("densty"))
    with pytest.raises(UserError, match=r"a mean of phases has no meaning"):
        movie(folder, View("phase", projected=True))
    with pytest.raises(
        UserError, match=r"--output: .*a\.avi: ends in \.avi; \.mp4 or \.gif are made"
    ):
        movie(folder, View("density"), output=folder / "a.avi")
    with pytest.raises(UserError, match=r"--output: .*absent: no such folder"):
        movie(folder, View("density"), output=folder / "absent" / "a.gif")
    for kind in ("slices", "projections"):
        axes = {a: np.arange(n) / n for a, n in zip("xyz", SHAPE, strict=True)}
        (folder / f"{kind}.h5").unlink()
        rows = [(0.0, {"density/xy": np.ones((12, 9))})]
        write_series(folder, kind, axes, {"density/xy": ("x", "y")}, rows)
    for projected, key in ((False, "slices"), (True, "projections")):
        with pytest.raises(
            UserError, match=rf"1 frame of density in {key}\.h5, a movie needs two; output\.{key}"
        ):
            movie(folder, View("density", projected=projected))
    assert main(["movie", str(folder), "--field", "density", "--fps", "0"]) == 2
    (folder / "slices.h5").unlink()
    with pytest.raises(UserError, match=r"there are: none yet"):
        movie(folder, View("density"))


@pytest.mark.parametrize(
    "name, values, expected",
    [
        ("phase", [-1.0, 2.0], ("twilight", -np.pi, np.pi, False)),
        ("buoyancy", [-2.0, 1.0], ("RdBu_r", -2.0, 2.0, False)),
        ("speed", [0.0, 3.0], ("viridis", 0.0, 3.0, False)),
        ("density", [0.999, 1.001], ("magma", 0.999, 1.001, False)),
        ("density", [0.5, 2.0], ("magma", 0.0, 2.0, False)),
        ("gas_density", list(np.geomspace(0.01, 10.0, 4000)), ("magma", -2.0, 1.0, True)),
    ],
)
def test_scales(name, values, expected):
    scale = scale_of(name, [np.array(values)])
    assert scale.colours == expected[0] and scale.logarithmic == expected[3]
    assert_allclose((scale.low, scale.high), expected[1:3], rtol=0.02)


FLUID = """\
model: {kind: navier_stokes, viscosity: 0.05}
initial: {kind: taylor_green}
grid: {shape: [8, 10, 9], box: [2*pi, 5, 4]}
"""
WAVE = """\
model: {kind: schrodinger_poisson}
initial: {kind: jeans_wave, amplitude: 0.3, mode: [1, 1, 1]}
grid: {shape: [8, 10, 9], box: [4, 4.5, 5]}
"""


def ran(folder, text):
    """A real run of four steps with three snapshots, and slices of every step."""
    output = "output: {snapshots: {every: 0.1}, slices: {every_steps: 1}}\n"
    text += f"time: {{stop: 0.2, dt: 0.05}}\ndevices: {{platform: cpu, count: 1}}\n{output}"
    (folder / "run.yaml").write_text(text)
    assert main(["run", str(folder / "run.yaml"), "--output", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def fluid(tmp_path_factory):
    return ran(tmp_path_factory.mktemp("fluid"), FLUID)


def test_planes_of_snapshots(fluid):
    """Slices and projections of fields that follow from the stored ones equal those of the whole
    arrays."""
    run = open_run(fluid)
    u = np.asarray(run.snapshots[-1]["velocity"])
    found = frames(run, View("velocity_y", "y"))
    assert found.source == "snapshots" and len(found) == 3 and found.where == "$y = 2.5$"
    assert_array_equal(found.read(2), u[1, :, 5, :])
    for axis, i in zip("xyz", range(3), strict=True):
        projected = frames(run, View("speed", axis, projected=True))
        assert_allclose(projected.read(2), np.sqrt((u**2).sum(0)).mean(i), rtol=1e-13)
    # Slices have a frame for each of four steps and the start, snapshots only three.
    assert frames(run, View("speed")).source == "slices.h5" and len(frames(run, View("speed"))) == 5


@pytest.mark.slow
@pytest.mark.plugins("gravity")
def test_planes_of_a_wave_function(tmp_path):
    """Density and phase of a stored psi; |psi| lies beside it for other programs."""
    wave = open_run(ran(tmp_path, WAVE))
    psi = np.asarray(wave.snapshots[-1]["psi"])
    assert set(readable(wave.snapshots[-1])) == {"density", "phase", "psi_modulus"}
    assert_allclose(frames(wave, View("phase", "x")).read(2), np.angle(psi[4]))
    column = frames(wave, View("density", "y", projected=True)).read(2)
    assert_allclose(column, (abs(psi) ** 2).sum(1) * 0.45, rtol=1e-12)


def test_a_movie_without_a_field_shows_that_of_a_volume_picture(
    fluid, folder, capsys, refused_command
):
    """The vorticity magnitude, else the density, else what is there."""
    for run, name in ((fluid, "vorticity_magnitude"), (folder, "density")):
        assert main(["movie", str(run)]) == 0
        assert capsys.readouterr().out.startswith(f"{run}/plots/{name}_slice_z.")
    assert usual_view(open_run(fluid), View("", projected=True)).field == "velocity_x"
    for kind in ("slices", "projections"):
        (folder / f"{kind}.h5").unlink()
    assert "give --field NAME or --render; slices there are: none yet" in refused_command(
        "movie", folder
    )
