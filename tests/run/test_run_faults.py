"""Full disks, folders that refuse, checkpoints that rot, orphans that wake up, kill -9 in every
stage of saves."""

import json
import os
import re
import resource
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
from fault_support import (
    CONFIG,
    Harm,
    Limit,
    ReadOnly,
    assert_blameless,
    assert_clean,
    assert_equal,
    assert_near,
    call,
    cut,
    everything,
    flip,
    freeze,
    is_frozen,
    ran,
    start,
    start_all,
    steps,
)
from run_support import command, copied, environment, free_port, wait_until
from storage_support import STAGES
from tiers import slow

from simulator.archive.manifest import committed
from simulator.archive.open_run import open_run
from simulator.archive.run_state import read_state
from simulator.archive.snapshot_reader import open_snapshot
from simulator.archive.verify import newest_good
from simulator.cli import main
from simulator.cluster import failure
from simulator.config import load_config, read_yaml
from simulator.run import lock
from simulator.run.run_status import read_holder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "run.yaml").write_text(CONFIG)
    return folder


@pytest.fixture(scope="module")
def undisturbed(place: Path) -> Path:
    ran(place, place / "undisturbed")
    return place / "undisturbed"


@pytest.fixture(scope="module")
def half(place: Path, undisturbed: Path) -> Path:
    """The same run, killed when it had reached step 28."""
    run = place / "half"
    ran(place, run, harm=Harm("copied", nth=12), code=-signal.SIGKILL)
    assert steps("checkpoints", run) == [20, 24, 28]
    return run


@pytest.fixture
def run(half: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may ruin."""
    return copied(half, tmp_path)


def shards(checkpoint: Path) -> list[Path]:
    return sorted((checkpoint / "shards").iterdir())


@pytest.mark.long
def test_damaged_checkpoints_are_named_and_skipped(place: Path, undisturbed: Path, run: Path):
    good, cut_off, flipped = committed(run / "checkpoints")
    cut(shards(cut_off)[0], 0.7)
    flip(shards(flipped)[0], 0.6)
    said = ran(place, run)
    assert f"skipped {flipped}: shards/p00000.h5: altered (its checksum does not match)" in said
    assert f"skipped {cut_off}: shards/p00000.h5: short: " in said
    assert f"continuing from {good}" in said
    assert "removed the output later than step 20: 12 rows of diagnostics.csv" in said
    assert "snapshot 00000024, checkpoint 00000024, checkpoint 00000028" in said
    assert_equal(run, undisturbed)


def test_no_good_checkpoint_is_a_failure_that_changes_nothing(place: Path, run: Path):
    for checkpoint, harm in zip(
        committed(run / "checkpoints"), ("shard", "manifest", "both"), strict=True
    ):
        if harm != "manifest":
            shards(checkpoint)[0].unlink()
        if harm != "shard":
            flip(checkpoint / "manifest.json", 0.5)
    before = everything(run)
    said = ran(place, run, code=1)
    assert (
        said.splitlines()[-1]
        == f"{run}: none of its checkpoints is good; start again with --overwrite"
    )
    assert said.count("skipped ") == 3 and "shards/p00000.h5: missing" in said
    after = everything(run)
    assert {name for name in before if before[name] != after.get(name)} == {"state.json"}
    state = read_state(run)
    assert state.state == "failed"


def test_another_versions_checkpoints_are_skipped_with_the_reason(run: Path):
    newest = committed(run / "checkpoints")[-1]
    manifest = open_snapshot(newest).manifest
    (newest / "manifest.json").write_bytes(manifest.model_copy(update={"version": 0}).encode())
    chosen, ((skipped, why),) = newest_good(run / "checkpoints")
    assert chosen != newest == skipped and why.startswith(
        "format version 0, but this program reads 1; use the"
    )
    assert main(["verify", str(run), "--quiet"]) == 1
    assert main(["verify", str(newest)]) == 2


@pytest.mark.parametrize(
    "name, every, harm",
    [
        ("slices.h5", "slices.every_steps=1", Harm(largest=80_000)),
        ("snapshots/00000030", "snapshots.every_steps=10", Harm("copied", act=Limit(95_000))),
    ],
)
def test_a_full_disk_is_one_line_and_harms_nothing(
    place: Path, undisturbed: Path, run: Path, name, every, harm
):
    """No file may grow beyond a size, as with a quota; with room again the run goes on as if
    nothing had been."""
    saved = ("checkpoints/", "snapshots/")
    kept = {name: data for name, data in everything(run).items() if name.startswith(saved)}
    said = ran(place, run, f"output.{every}", harm=harm, code=1)
    last = said.splitlines()[-1]
    kept_whole = (
        "all earlier output is intact" if name.endswith(".h5") else "earlier files are untouched"
    )
    assert name in last and "File too large" in last and last.endswith(kept_whole), said
    assert said.count("File too large") == 1 and "Traceback" not in said
    state = read_state(run)
    assert state.state == "failed" and state.reason == last
    assert main(["verify", str(run), "--quiet"]) == 0
    after = everything(run)
    assert {name for name in kept if name in after and kept[name] != after[name]} == set()
    ran(place, run)
    assert_near(run, undisturbed, 0.0)
    assert_clean(run)


@dataclass(frozen=True)
class Limited:
    """`simulator ARGUMENTS` in a process that may write no file beyond a size."""

    largest: int

    def __call__(self, arguments: list[str]) -> int:
        Limit(self.largest)()
        return main(arguments)


def begun(place: Path, run: Path, *arguments: str, limit: int | None = None) -> tuple[int, str]:
    """Exit code and output of two steps, within a limit on the size of files."""
    words = ["run", place / "run.yaml", "--output", run, "time.max_steps=2", *arguments]
    return start(words, place, run=Limited(limit) if limit else main).ended()


@pytest.mark.parametrize("again", [(), ("--overwrite",)], ids=["again", "overwrite"])
def test_a_start_that_wrote_its_state_but_not_its_configuration_is_known_as_ours(
    place: Path, tmp_path: Path, again: tuple[str, ...]
):
    """state.json has 480 bytes, config.yaml 870."""
    run = tmp_path / "run"
    code, said = begun(place, run, limit=600)
    assert code == 1 and said.splitlines()[-1] == f"File too large: {run}/config.yaml", said
    assert "state.json" in everything(run) and "config.yaml" not in everything(run)
    code, said = begun(place, run, *again)
    assert code == 0 and "warning" not in said, said
    assert_clean(run)


def test_a_start_that_wrote_its_state_but_not_its_ledger_is_known_as_ours(
    place: Path, tmp_path: Path
):
    run = tmp_path / "run"
    (run / "ledger.json").mkdir(parents=True)
    code, said = begun(place, run)
    assert code == 1 and said.splitlines()[-1] == f"Is a directory: {run}/ledger.json", said
    (run / "ledger.json").rmdir()
    assert list(everything(run)) == ["state.json"]
    code, said = begun(place, run)
    assert code == 0 and "warning" not in said, said
    assert_clean(run)


@pytest.mark.slow
@pytest.mark.spmd
@pytest.mark.parametrize(
    "victim, harm, last",
    [
        # Room for rows, not for spectra.h5 and a checkpoint, which are written at the same time.
        (
            0,
            Harm("done", act=Limit(9000)),
            r"File too large: {run}/spectra.h5; all earlier .*|{run}/checkpoints/\d+ was not written: .*",
        ),
        (
            1,
            Harm("copied", nth=2, act=Limit(30_000)),
            r"{run}/snapshots/\d+ was not written: process 1 on .*",
        ),
    ],
)
def test_a_full_disk_of_one_of_two_processes_ends_both(
    place: Path, tmp_path: Path, victim, harm, last
):
    """In the middle of an event the other waits in collectives, to which the victim must come; and
    in a save."""
    run = tmp_path / "run"
    started = start_all(["run", place / "run.yaml", "--output", run], place, 2, harm, victim)
    (code, said), (other, _) = started[0].ended(), started[1].ended()
    assert (code, other) == (1, 1), said
    assert re.fullmatch(last.format(run=run), said.splitlines()[-1]), said
    assert main(["verify", str(run), "--quiet"]) == 0
    assert steps("snapshots", run) == [0]


@pytest.mark.slow
@pytest.mark.spmd
@pytest.mark.parametrize("victim", [0, 1])
def test_a_suspended_process_is_named_in_one_line(place: Path, tmp_path: Path, victim: int):
    """JAX's runtime ends the other one with a C++ stack, which goes to its log."""
    run = tmp_path / "run"
    words = ["run", place / "run.yaml", "--output", run, "time.max_steps=100000000"]
    words += ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 2, "--process-id"]
    started = [start([*words, i], place, name=f"said.{i}", run=impatient) for i in (0, 1)]
    try:
        wait_until(lambda: (run / "state.json").exists(), 240)
        os.kill(started[victim].pid, signal.SIGSTOP)
        code, said = started[1 - victim].ended()
    finally:
        for process in started:
            process.kill()
    line = rf"simulator: process {1 - victim} of 2 \(.*, pid \d+\) ends: process {victim} has not responded for 12 s"
    assert code == 1 and re.match(line, said.splitlines()[-1]), said
    assert "***" not in said and "SIGABRT" not in said
    log = (run / "logs" / f"p{1 - victim:05d}.log").read_text()
    assert "*** Check failure stack trace: ***" in log and log.splitlines()[-1] in said


def impatient(arguments: list[str]) -> int:
    """`simulator ARGUMENTS` in a process that others wait less long for."""
    failure.HEARTBEAT = 12
    return main(arguments)


@pytest.mark.slow
def test_a_folder_that_turns_read_only(place: Path, undisturbed: Path, run: Path):
    said = ran(
        place, run, harm=Harm("gathered", act=ReadOnly(run / "checkpoints"), tame=True), code=1
    )
    os.chmod(run / "checkpoints", 0o755)
    assert f"{run}/checkpoints/00000032 was not written: " in said.splitlines()[-1], said
    assert "Permission denied" in said.splitlines()[-1] and "Traceback" not in said
    assert main(["verify", str(run), "--quiet"]) == 0

    os.chmod(run, 0o555)
    said = ran(place, run, harm=Harm(tame=True), code=2)
    os.chmod(run, 0o755)
    assert said == f"output.directory: {run}: Permission denied\n"
    ran(place, run)
    assert_equal(run, undisturbed)


def test_a_live_run_is_verified_and_a_second_start_refused(place: Path, tmp_path: Path):
    run = tmp_path / "run"
    arguments = ["run", place / "run.yaml", "time.max_steps=100000", "--output", run]
    first = start(arguments, place)
    try:
        wait_until(lambda: len(steps("checkpoints", run)) == 3)
        for _ in range(5):
            assert main(["verify", str(run), "--quiet"]) == 0
        code, said = call(arguments, place)
        holder = read_holder(run)
        assert holder.pid == first.pid
        assert code == 2 and said.startswith(
            f"{run}/lock: {holder} is writing this run (lock renewed"
        ), said
        (run / "stop").touch()
        code, said = first.ended()
        assert code == 3, said
        assert_clean(run)
    finally:
        first.kill()


def hasty(arguments: list[str]) -> int:
    """`simulator ARGUMENTS` in a process that watches a doubtful lock for a second."""
    lock._WATCHED = 0.1
    return main(arguments)


@pytest.mark.long
def test_an_orphan_that_wakes_up_writes_nothing(place: Path, run: Path):
    """Its node was lost in the middle of a save, as it seemed for an hour; another start finished
    the run."""
    words = ["run", place / "run.yaml", "--output", run]
    orphan = start(words, place, Harm("gathered", act=freeze))
    try:
        wait_until(lambda: is_frozen(orphan))
        holder = read_holder(run)
        os.utime(run / "lock", (0, 0))
        code, said = start(words, place, run=hasty).ended()
        assert code == 0 and f"took over {run}/lock from {holder}: not renewed for" in said, said
        before = everything(run)
        os.kill(orphan.pid, signal.SIGCONT)
        code, said = orphan.ended()
        assert code == 1, said
        last = said.splitlines()[-1]
        assert (
            last
            == f"{run}/lock: the lock of this run now belongs to nobody; nothing more is written"
        )
        after = everything(run)
        assert [name for name in {**before, **after} if before.get(name) != after.get(name)] == []
        assert_clean(run)
    finally:
        orphan.kill()


def test_an_edited_configuration(place: Path, run: Path):
    """Changed keys are printed, and a snapshot tells with which configuration it was made."""
    fields = "output.snapshots.fields=[velocity, pressure]"
    said = ran(place, run, "time.dt=0.01", "output.compression=gzip", fields)
    assert "output.compression: none -> gzip" in said and "time.dt: nothing -> 0.01" in said
    times = open_run(run).diagnostics["time"]
    np.testing.assert_allclose(times[29:], times[28] + 0.01 * np.arange(1, 13), rtol=1e-14)
    assert_clean(run)
    with h5py.File(run / "snapshots" / "00000040.h5", locking=False) as file:
        assert file["velocity_x"].attrs["units"] == b"length/time"
        assert np.isfinite(file["pressure"][...]).all()
        (run / "inside.yaml").write_bytes(file.attrs["configuration"])
        provenance = json.loads(file.attrs["provenance"])
        iteration = file["data/40"]
        state = read_state(run)
        assert (iteration.attrs["time"], iteration.attrs["dt"]) == (state.time, state.dt)
        assert file.attrs["step"] == 40 and file.attrs["box"].tolist() == [2 * np.pi] * 3
    assert read_yaml(run / "inside.yaml").value == read_yaml(run / "config.yaml").value
    assert load_config(run / "inside.yaml").output.compression == "gzip"
    assert provenance["devices"]["count"] == 2 and provenance["versions"]["jax"]
    plain, packed = (committed(run / "snapshots")[i] for i in (1, -1))
    assert (
        open_snapshot(packed).manifest.compression
        == "gzip"
        != open_snapshot(plain).manifest.compression
    )


REACHED = [stage for stage in STAGES if stage != "moved aside"]
"""A run never saves the same step twice: it removes what is later than its checkpoint (storage
tests replace)."""
DIFFERENT = ["copied", "shard written", "before rename", "renamed", "index written"]
"""Stages that leave different things for the next start of a run; tests/archive kills savers in all
stages."""
BEFORE_COMMIT = STAGES[1 : STAGES.index("renamed")]
"""Stages in which a temporary folder is there."""


@pytest.mark.long
@pytest.mark.parametrize("stages", [DIFFERENT, slow(REACHED)], ids=["some", "all"])
def test_killed_in_stages_of_a_save(place: Path, undisturbed: Path, run: Path, stages: list[str]):
    """Several starts of one run, each killed in the next stage: until it is committed, that of the
    checkpoint of step 32, then that of the snapshot before it; then the run ends."""
    killed_at = "copied"
    for stage in (*stages, None):
        harm = Harm(stage, nth=2 if stage in ("copied", *BEFORE_COMMIT) else 1)
        said = ran(place, run, harm=harm, code=-signal.SIGKILL if stage else 0)
        # The main thread goes on meanwhile: a half-written series may be left too.
        left = re.search(r"/\.tmp-\d{8}-\w+: left by a run that was killed", said)
        assert bool(left) == (killed_at in BEFORE_COMMIT), (killed_at, said)
        assert f"took over {run}/lock" in said, said
        assert_blameless(run)
        killed_at = stage
    assert_equal(run, undisturbed)


@pytest.mark.slow
def test_killed_between_a_snapshot_and_its_index(place: Path, undisturbed: Path, tmp_path: Path):
    """The snapshot stands; the next start makes its index."""
    run = tmp_path / "run"
    ran(place, run, harm=Harm("committed", nth=4), code=-signal.SIGKILL)
    assert steps("snapshots", run) == [0, 8] and steps("checkpoints", run) == [4, 8]
    (run / "snapshots" / "00000008.h5").unlink()
    (run / "snapshots" / "00000000.vtkhdf").unlink()
    assert f"{run}/snapshots/00000008.h5: was missing, made again" in ran(place, run)
    assert_equal(run, undisturbed)


def _kill_in_two_processes(place: Path, run: Path, stage: str, victim: int, *more: str) -> None:
    """A lost node: one process dies in a stage of a save, and whoever started them ends the
    other."""
    arguments = ["run", place / "run.yaml", "--output", run, *more]
    started = start_all(arguments, place, 2, Harm(stage, nth=3), victim)
    code, said = started[victim].ended()
    for process in started:
        process.kill()
    assert code == -signal.SIGKILL, said
    assert_blameless(run)


@pytest.mark.long
@pytest.mark.spmd
def test_one_of_two_processes_is_killed(place: Path, undisturbed: Path, tmp_path: Path):
    """Continued by one process on as many devices, to the same end."""
    run = tmp_path / "run"
    _kill_in_two_processes(place, run, "shard written", 1)
    assert steps("checkpoints", run) == [4]
    said = ran(place, run)
    assert f"continuing from {run}/checkpoints/00000004" in said
    assert_near(run, undisturbed)
    assert_clean(run)


@pytest.mark.slow
@pytest.mark.spmd
def test_a_process_that_is_killed_after_a_request_to_stop_leaves_a_stopped_run(
    place: Path, tmp_path: Path
):
    run = tmp_path / "run"
    arguments = ["run", place / "run.yaml", "--output", run, "time.max_steps=100000000"]
    started = start_all(arguments, place, 2)
    try:
        wait_until(lambda: (run / "state.json").exists(), 240)
        os.kill(started[1].pid, signal.SIGSTOP)  # the first cannot agree to stop
        os.kill(started[0].pid, signal.SIGUSR2)
        time.sleep(0.5)
        os.kill(started[1].pid, signal.SIGKILL)
        code, said = started[0].ended()
    finally:
        for process in started:
            process.kill()
    state = read_state(run)
    assert code == 1 and state is not None and state.state == "stopped", said
    assert state.reason == "SIGUSR2; another process ended before all could stop"


@pytest.mark.slow
@pytest.mark.spmd
@pytest.mark.parametrize("victim", [0, 1])
def test_two_processes_killed_at_every_stage(place: Path, victim: int):
    """Continued by two processes each time; equal, bit for bit, to two that were not disturbed."""
    more = "time.max_steps=72"  # enough for a kill in every stage
    arguments = ["run", place / "run.yaml", more, "--output"]
    undisturbed = place / f"undisturbed two {victim}"
    run = place / f"stages two {victim}"
    for process in start_all([*arguments, undisturbed], place, 2):
        assert process.ended()[0] == 0
    only_first = ("manifest written", "before rename", "renamed", "committed", "index written")
    for stage in REACHED:
        if stage not in only_first or (victim == 0 and stage != "index written"):
            _kill_in_two_processes(place, run, stage, victim, more)
    for process in start_all([*arguments, run], place, 2):
        assert process.ended()[0] == 0
    assert_equal(run, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [250, 450, 600])
def test_hardly_any_address_space_ends_a_start_in_a_line(megabytes, tmp_path):
    """Not in a traceback of an import, in the C++ stack of a thread that could not begin, or never:
    with 600 MB only JAX's threads have no room."""
    (tmp_path / "run.yaml").write_text(CONFIG)
    limit = megabytes << 20
    done = subprocess.run(
        command("run", tmp_path / "run.yaml", "--output", tmp_path / "run"),
        env=environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1 and line.startswith("out of memory"), line
    assert not (tmp_path / "run" / "state.json").exists()
