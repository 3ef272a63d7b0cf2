"""Steps, saves, kills, damage and restarts on any layout, in any order: the run is always the run.

The reference is one undisturbed run that keeps every state. Whatever has happened, a run that continues goes on
from the newest good checkpoint; its rows are the reference's rows, each once; its checkpoints are the reference's
states: bit for bit as long as the layout was the reference's, else to 1e-12 of each field's maximum.
"""

import shutil
import signal
import tempfile
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from fault_support import CONFIG, Harm, assert_clean, call, compared, cut, flip, steps
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from simulator.archive.manifest import committed
from simulator.archive.open_run import open_run
from simulator.archive.reader import open_snapshot
from simulator.archive.writer import STAGES

LAST = 60
DEVICES = st.sampled_from([2, 1, 3])


class Runs(RuleBasedStateMachine):
    place: ClassVar[Path]
    """Where the compiled programs and the reference are kept, over all examples."""

    @initialize()
    def begin(self):
        self.reference = self.place / "reference"
        if not self.reference.exists():
            (self.place / "machine.yaml").write_text(CONFIG)
            keep = "output.checkpoints={every_steps: 1, keep_every: 1}"
            assert self._run(self.reference, LAST, 2, more=[keep])[0] == 0
        self.run = Path(tempfile.mkdtemp(dir=self.place)) / "run"
        self.exact = True
        self.done = 0
        self.damaged: set[int] = set()

    def _run(self, run: Path, end: int, devices: int, harm: Harm = Harm(), more=()):  # noqa: B008
        arguments = ["run", self.place / "machine.yaml", "--output", run, f"time.max_steps={end}", *more]
        return call([*arguments, f"devices.count={devices}"], self.place, harm)

    def _good(self) -> list[int]:
        return [s for s in steps("checkpoints", self.run) if s not in self.damaged]

    def _begins(self, devices: int) -> int:
        """The step that the next start begins with."""
        good = self._good()
        self.exact = devices == 2 and (self.exact or not good)
        return good[-1] if good else 0

    def _check(self) -> None:
        for folder in committed(self.run / "checkpoints"):
            if int(folder.name) in self.damaged:
                continue
            mine, true = open_snapshot(folder), open_snapshot(self.reference / "checkpoints" / folder.name)
            for name in true if self.exact else compared(true):
                a, b = mine[name][...], true[name][...]
                if self.exact:
                    assert a.tobytes() == b.tobytes(), (folder, name)
                else:
                    assert np.abs(a - b).max() <= 1e-12 * max(np.abs(b).max(), 1e-300), (folder, name)

    def _check_rows(self, end: int) -> None:
        rows, true = open_run(self.run).diagnostics, open_run(self.reference).diagnostics
        assert rows["step"].tolist() == list(range(end + 1))
        for name in ("time", "energy", "dissipation"):
            np.testing.assert_allclose(rows[name], true[name][: end + 1], rtol=1e-11)
        snapshots = open_run(self.run).snapshots.steps
        assert [s for s in snapshots if s % 8 == 0] == list(range(0, end + 1, 8))

    def _all_lost(self) -> bool:
        return bool(self.damaged) and not self._good()

    @precondition(lambda self: self.done < LAST)
    @rule(more=st.integers(1, 9), devices=DEVICES)
    def run_some_steps(self, more, devices):
        """Which ends with a save; on the layout of before or another."""
        if self._all_lost():
            return self.refused()
        begins = self._begins(devices)
        end = min(max(self.done, begins) + more, LAST)
        code, said = self._run(self.run, end, devices)
        assert code == 0, said
        assert said.count("skipped ") == len(self.damaged), said
        self.done, self.damaged = end, set()
        self._check()
        self._check_rows(end)
        assert_clean(self.run)

    @precondition(lambda self: self.done < LAST)
    @rule(
        stage=st.sampled_from([s for s in STAGES if s != "moved aside"]),
        nth=st.integers(1, 3),
        devices=DEVICES,
    )
    def kill(self, stage, nth, devices):
        if self._all_lost():
            return self.refused()
        self._begins(devices)
        code, said = self._run(self.run, LAST, devices, Harm(stage, nth))
        assert code in (0, -signal.SIGKILL), said
        self.done = LAST if code == 0 else max(steps("checkpoints", self.run), default=0)
        self.damaged = set()  # they were later than the checkpoint that it began with, and so removed
        self._check()

    @precondition(lambda self: self._good() if hasattr(self, "run") else False)
    @rule(
        how=st.sampled_from([flip, cut, lambda path, place: path.unlink()]),
        name=st.sampled_from(["shards/p00000.h5", "manifest.json"]),
        where=st.floats(0.01, 0.99),
    )
    def corrupt_newest(self, how, name, where):
        newest = self._good()[-1]
        how(self.run / "checkpoints" / f"{newest:08d}" / name, where)
        self.damaged.add(newest)
        self.done = min(self.done, LAST - 1)

    def refused(self):
        """Nothing is good any more: said, and left to the user."""
        code, said = self._run(self.run, LAST, 2)
        assert code == 1 and said.splitlines()[-1].endswith("start again with --overwrite"), said
        code, said = self._run(self.run, 8, 2, more=["--overwrite"])
        assert code == 0, said
        self.done, self.damaged, self.exact = 8, set(), True
        self._check()
        self._check_rows(8)

    def teardown(self):
        if hasattr(self, "run"):
            shutil.rmtree(self.run.parent)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    Runs.place = tmp_path_factory.mktemp("machine")
    return Runs.place


# An example takes a minute: a failing one is told as it is found, not shrunk.
LENIENT = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "print_blob": True,
    "phases": (Phase.explicit, Phase.reuse, Phase.generate),
}
Runs.TestCase.settings = settings(max_examples=12, stateful_step_count=12, **LENIENT)


@pytest.mark.slow
class TestRuns(Runs.TestCase):
    @pytest.fixture(autouse=True)
    def _place(self, place: Path) -> Path:
        return place
