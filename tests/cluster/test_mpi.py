"""MPI between processes: when it is used and refused, the library, and real runs under mpirun.

Real runs need an MPI with its compiler, which `.ci/run` and `./scripts/test --slurm` install."""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from run_support import CASE, command, wait_until, write_case
from tiers import slow_but

from simulator import load_config, open_run
from simulator.cluster import Allocation, discover, mpi
from simulator.errors import UserError
from simulator.run import refusals
from simulator.simulation.abstract_run import paper_simulation
from simulator.simulation.inputs import Inputs

PACKAGES = {"openmpi": "libopenmpi-dev openmpi-bin", "mpich": "libmpich-dev mpich"}
PAIR = Allocation("mpi", 0, 2, mpi=True)
FLOW = CASE.replace("count: 2", "count: auto")
LONG = FLOW.replace("stop: 1.0, cfl: 0.3", "stop: 1000.0, dt: 0.01").replace(
    "every: 0.", "every: 9"
)


# `.ci/run native` runs the tests of both every time.
@pytest.fixture(scope="module", params=slow_but(PACKAGES, ["openmpi"]))
def launcher(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    return Mpi.of(request.param, tmp_path_factory.mktemp("mpi"))


class Mpi:
    """An implementation of MPI, and the library built for it."""

    def __init__(self, name: str, library: Path) -> None:
        self.name = name
        self.library = library

    @classmethod
    def of(cls, name: str, folder: Path) -> "Mpi":
        compiler = f"mpicc.{name}"
        if not (shutil.which(compiler) and shutil.which(f"mpirun.{name}")):
            pytest.skip(f"{name} is missing: apt-get install {PACKAGES[name]}")
        folder.mkdir(exist_ok=True)
        return cls(name, mpi.build_library(os.environ | {"MPICC": compiler}, folder / "library.so"))

    def start(
        self, output: Path, *arguments: str | Path, number: int = 2, **variables: str
    ) -> subprocess.Popen[bytes]:
        """`mpirun -n NUMBER simulator ARGUMENTS` with its output in a file."""
        rooted = ["--allow-run-as-root", "--oversubscribe"] if self.name == "openmpi" else []
        launch = [f"mpirun.{self.name}", *rooted, "-n", str(number)]
        environ = os.environ | {mpi.LIBRARY: str(self.library)} | variables
        with output.open("wb") as file:
            return subprocess.Popen(
                [*launch, *command(*arguments)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={name: value for name, value in environ.items() if value},
                start_new_session=True,
            )

    def run(
        self, output: Path, *arguments: str | Path, number: int = 2, **variables: str
    ) -> tuple[int, str]:
        """The exit code and the output."""
        process = self.start(output, *arguments, number=number, **variables)
        try:
            return process.wait(timeout=480), output.read_text(errors="replace")
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.smoke
def test_mpi_is_used_only_where_it_works():
    """`auto` says why it takes gloo if MPI has started the processes; `mpi` refuses."""
    environ: dict[str, str] = {}
    assert mpi.choose_transport("auto", Allocation(), 1, environ) == mpi.Transport()
    by_hand = Allocation("explicit", 0, 2, coordinator="a:1")
    assert mpi.choose_transport("auto", by_hand, 2, environ).declined == ""
    declined = mpi.choose_transport("auto", PAIR, 2, environ)
    assert (declined.name, "scripts/build_mpi" in declined.declined) == ("gloo", True)
    assert mpi.choose_transport("gloo", PAIR, 2, environ) == mpi.Transport()
    for allocation, problem in ((by_hand, "mpirun, or srun --mpi=pmix"), (PAIR, "build_mpi")):
        with pytest.raises(UserError, match=f"run.transport: mpi: .*{problem}"):
            mpi.choose_transport("mpi", allocation, 2, environ)
    named = {mpi.LIBRARY: "/library.so"}
    with pytest.raises(UserError, match=r"have 4 devices, .* set devices.count: 2"):
        mpi.choose_transport("mpi", PAIR, 4, named)
    with pytest.raises(UserError, match="JAX was imported without MPITRAMPOLINE_LIB"):
        mpi.choose_transport("mpi", PAIR, 2, named)


@pytest.mark.smoke
@pytest.mark.plugins("validation")
def test_what_cannot_be_built_or_opened_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"mpicc is not on PATH: .*apt-get install libopenmpi-dev"):
        mpi.build_library({"PATH": str(tmp_path)})
    compiler = tmp_path / "mpicc"
    compiler.write_text("#!/bin/sh\necho 'x.c:1: error: no mpi.h' >&2; exit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(UserError, match=r"mpicc cannot build the library: x.c:1: error: no mpi.h"):
        mpi.build_library(
            {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SIMULATOR_CACHE": str(tmp_path)}
        )
    missing = tmp_path / "none.so"
    environ = os.environ | {mpi.LIBRARY: str(missing)}
    done = subprocess.run(command("doctor"), env=environ, capture_output=True, text=True)
    assert done.returncode == 2
    assert (
        done.stderr.startswith(f"{mpi.LIBRARY}: {missing}: cannot open") and "build" in done.stderr
    )
    assert len(done.stderr.splitlines()) == 1
    with pytest.raises(UserError, match="libc"):  # a library, but of something else
        mpi.version(Path("libc.so.6"))


@pytest.mark.smoke
def test_the_library_has_every_name_that_jaxlib_looks_up(launcher):
    library = ctypes.CDLL(str(launcher.library), os.RTLD_LAZY | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    names = mpi.jaxlib_names()
    assert {"MPIABI_Init_thread", "MPIABI_Sendrecv", "MPIABI_COMM_WORLD"} <= set(names)
    assert [name for name in names if not hasattr(library, name)] == []
    expected = {"openmpi": r"Open MPI v\d", "mpich": r"MPICH \d"}[launcher.name]
    assert re.match(expected, mpi.version(launcher.library))


@pytest.mark.long
@pytest.mark.spmd
def test_runs_over_mpi_and_gloo_are_equal(launcher, tmp_path):
    """Two processes add two numbers in one order only, so that all bits are equal."""
    case = write_case(tmp_path, FLOW)
    for name, words in (("mpi", r"over MPI \((Open MPI|MPICH)"), ("gloo", "over gloo")):
        code, said = launcher.run(
            tmp_path / name, "run", case, f"run.transport={name}", "--output", tmp_path / f"r{name}"
        )
        assert code == 0, said
        assert re.search(f"2 processes {words}", said), said
    tables = [(tmp_path / f"r{name}" / "diagnostics.csv").read_text() for name in ("mpi", "gloo")]
    assert tables[0] == tables[1]
    fields = [open_run(tmp_path / f"r{name}").snapshots[-1]["velocity"] for name in ("mpi", "gloo")]
    np.testing.assert_array_equal(np.asarray(fields[0]), np.asarray(fields[1]))


@pytest.mark.spmd
@pytest.mark.slow  # `.ci/run native` runs it every time
def test_pencils_and_particles_exchange_over_mpi(launcher, tmp_path):
    """Exchanges within rows and columns of four processes, and of particles between neighbours."""
    text = FLOW + "fft: {decomposition: pencil, mesh: [2, 2]}\n"
    text += "particles: [{name: dust, kind: tracer, count: 200}]\n"
    text = re.sub(r"output: .*", "output: {diagnostics: {every_steps: 1}}", text)
    case = write_case(tmp_path, text.replace("stop: 1.0", "stop: 0.2").replace("auto", "4"))
    for name in ("mpi", "gloo"):
        code, said = launcher.run(
            tmp_path / name,
            *("run", case, f"run.transport={name}", "--output", tmp_path / f"r{name}"),
            number=4,
        )
        assert code == 0, said
    snapshots = [open_run(tmp_path / f"r{name}").snapshots[-1] for name in ("mpi", "gloo")]
    for read in (lambda s: s["velocity"], lambda s: s.particles["dust"]["position"]):
        ours, theirs = (np.asarray(read(snapshot)) for snapshot in snapshots)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())


def test_messages_that_mpi_cannot_count_are_refused(tmp_path):
    """On two devices 512^3 points are few enough, and 1024^3 are not."""
    case = write_case(tmp_path)
    for points, too_many in ((512, False), (1024, True)):
        config = load_config(case, [f"grid.shape={points},{points},{points}"])
        flow = paper_simulation(config, Inputs(), 2)
        flow.cluster = replace(flow.cluster, transport=mpi.Transport("mpi"))
        with pytest.raises(UserError, match="or gloo") if too_many else contextlib.nullcontext():
            refusals.check_messages(flow)


@pytest.fixture
def running(launcher, tmp_path) -> Iterator[tuple[Mpi, subprocess.Popen[bytes], Path]]:
    """A long run of two processes that takes steps."""
    case = write_case(tmp_path, LONG)
    process = launcher.start(tmp_path / "said", "run", case, "--output", tmp_path / "run")
    rows = tmp_path / "run" / "diagnostics.csv"
    try:
        wait_until(lambda: rows.exists() and len(rows.read_text().splitlines()) > 3, 120)
        yield launcher, process, tmp_path
    finally:
        _end(process)


def _variables(process: int) -> Mapping[str, str]:
    try:
        text = Path(f"/proc/{process}/environ").read_text(errors="replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def _ranks(folder: Path) -> dict[int, int]:
    """The process ids of the run in `folder`, by rank."""
    ranks = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if bytes(folder) in words and words[0] == os.fsencode(sys.executable):
            process = int(path.parent.name)
            ranks[discover(_variables(process)).process_id] = process
    return ranks


@pytest.mark.long
@pytest.mark.spmd
def test_a_signal_to_mpirun_stops_the_run_with_a_checkpoint(running):
    """Open MPI's mpirun kills its processes a second after SIGTERM, but passes on SIGUSR2; MPICH's
    passes on SIGTERM, and SIGUSR2 ends it."""
    launcher, process, folder = running
    process.send_signal({"openmpi": signal.SIGUSR2, "mpich": signal.SIGTERM}[launcher.name])
    assert process.wait(timeout=120) == 3
    assert list((folder / "run" / "checkpoints").glob("*/manifest.json"))


@pytest.mark.long
@pytest.mark.spmd
def test_a_killed_rank_ends_the_others_within_seconds(running):
    _, process, folder = running
    ranks = _ranks(folder / "run")
    os.kill(ranks[1], signal.SIGKILL)
    began = time.monotonic()
    assert process.wait(timeout=120) != 0
    wait_until(lambda: not _ranks(folder / "run"), 30)
    assert time.monotonic() - began < 30  # seconds; measured: 3, on a loaded machine


@pytest.mark.spmd
@pytest.mark.slow
def test_a_frozen_rank_ends_the_run_by_the_heartbeat(running):
    _, process, folder = running
    os.kill(_ranks(folder / "run")[1], signal.SIGSTOP)
    assert process.wait(timeout=90 + 60) != 0
    assert "process 1 has not responded for 45 s" in (folder / "said").read_text(errors="replace")
    wait_until(lambda: not _ranks(folder / "run"), 30)


@pytest.mark.spmd
def test_mistakes_under_mpirun_exit_with_2(launcher, tmp_path):
    case = write_case(tmp_path, FLOW)
    arguments = ("run", case, "--output", tmp_path / "run", "run.transport=mpi")
    code, said = launcher.run(tmp_path / "said", *arguments, **{mpi.LIBRARY: ""})
    assert code == 2
    # once, unless the machine is so busy that a process does not wait for the first
    assert 1 <= said.count("scripts/build_mpi") <= 2
    assert not (tmp_path / "run").exists()


@pytest.mark.long
@pytest.mark.spmd
def test_the_library_of_another_mpi_is_refused(tmp_path):
    """Its MPI does not know the launcher, and every process would be a world of its own."""
    one, other = (Mpi.of(name, tmp_path / name) for name in PACKAGES)
    arguments = ("run", write_case(tmp_path, FLOW), "--output", tmp_path / "run")
    code, said = Mpi(other.name, one.library).run(tmp_path / "said", *arguments)
    assert code == 2 and "finds 1 of the 2 processes" in said
