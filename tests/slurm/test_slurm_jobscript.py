"""The end of every job script on a real Slurm, with a few lines of Python as the simulation."""

import json
import re
import sys
import time
from pathlib import Path

import pytest
from run_support import wait_until

from simulator.cluster.jobscript import JobScript, SlurmSettings

pytestmark = pytest.mark.slurm

# A run that counts its starts, waits for a request to stop where it is told to, and keeps a state
# file.
PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
run, plan = Path(sys.argv[2]).parent, json.loads(Path(sys.argv[2]).read_text())
first = os.environ["SLURM_PROCID"] == "0"
asked = []
time.sleep(plan.get("deaf", 0))
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, _: asked.append(signal.Signals(number).name))
starts = int(os.environ.get("SLURM_RESTART_COUNT", 0))
if first:
    (run / f"start.{starts}").write_text("")
end = time.monotonic() + 60
while starts < plan["stops"] and not asked and time.monotonic() < end:
    time.sleep(0.05)
stopped = starts < plan["stops"]
state = {"state": "stopped" if stopped else "finished", "advanced": True, "reason": asked[0] if asked else None}
state |= {"restart_count": starts} | plan.get("state", {})
if first:
    (run / "state.json").write_text(json.dumps(state, indent=2))
    print("left:", state["reason"], flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as the run does at its end
time.sleep(0.3)
sys.exit(plan.get("code", 3 if stopped else 0))
"""


class Run:
    """A run folder with its script, submitted."""

    def __init__(self, slurm, folder: Path, options=(), flags=None, setup=(), **plan) -> None:
        self.slurm = slurm
        self.folder = folder
        (folder / "logs").mkdir(parents=True)
        program = folder / "program.py"
        program.write_text(PROGRAM)
        (folder / "config.yaml").write_text(json.dumps({"stops": 0} | plan))
        resources = SlurmSettings(nodes=2, tasks_per_node=1, sbatch=flags)
        lines = [*setup, f"run={folder}", 'set -- "$run/config.yaml"']
        command = [sys.executable, str(program)]
        job = JobScript("counting", folder, command, resources, setup=lines, max_restarts=2)
        text = job.text()
        (folder / "job.sbatch").write_text(text)
        self.job = slurm.sbatch(options, folder / "job.sbatch", cwd=folder)

    @property
    def starts(self) -> int:
        return len(list(self.folder.glob("start.*")))

    def has_started(self, times: int) -> None:
        wait_until(lambda: self.starts >= times, 60, f"start number {times}")
        time.sleep(0.3)

    def tell(self, *command: str) -> None:
        done = self.slurm.run(*command, self.job)
        assert done.returncode == 0, done.stderr

    def ends(self) -> dict[str, str]:
        return self.slurm.wait(self.job)

    @property
    def log(self) -> str:
        return "".join(path.read_text() for path in (self.folder / "logs").iterdir())


@pytest.fixture
def run(slurm, tmp_path):
    made = []

    def make(**options) -> Run:
        made.append(Run(slurm, tmp_path / "run", **options))
        return made[-1]

    yield make
    for one in made:
        slurm.run("scancel", one.job)


@pytest.mark.parametrize("plan", [{"deaf": 3}, {"setup": ["sleep 3"]}], ids=["program", "step"])
def test_a_warning_before_the_program_listens_or_the_step_runs_is_not_lost(run, plan):
    job = run(stops=1, **plan)
    wait_until(lambda: job.slurm.job(job.job)["JobState"] == "RUNNING", 30, "start of the job")
    time.sleep(1)
    job.tell("scancel", "-b", "-s", "USR2")
    ended = job.ends()
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "1"), job.log
    assert "left: SIGUSR2" in job.log


def test_the_users_own_signal_wins(slurm, tmp_path):
    """On the command line of sbatch, and in the script by `submit --sbatch`: both are due at once,
    ours never."""
    flag = "--signal=USR1@600"
    options = {"line": {"options": [flag, "--time=5"]}, "script": {"flags": f"{flag} --time=5"}}
    jobs = [Run(slurm, tmp_path / name, stops=1, **given) for name, given in options.items()]
    for job in jobs:
        ended = job.ends()
        assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "1"), job.log
        assert re.search("left: SIGUSR[12]", job.log)  # from this Slurm by way of the script or not
    assert "left: SIGUSR1" in jobs[1].log


def test_the_warning_is_passed_on_and_the_job_comes_back_as_often_as_it_may(run):
    job = run(stops=9)
    for start in (1, 2, 3):
        job.has_started(start)
        job.tell("scancel", "-b", "-s", "USR2")
    ended = job.ends()
    assert (ended["ExitCode"], ended["Restarts"]) == ("3:0", "2")
    assert job.starts == 3
    assert job.log.count("left: SIGUSR2") == 3  # one log, appended to
    assert job.log.count("goes back into the queue") == 2
    assert "came back 2 times" in job.log


@pytest.mark.parametrize(
    "plan",
    [
        {"state": {"advanced": False}},
        {"state": {"state": "failed"}},
        {"state": {"restart_count": 7}},
        {"state": {"reason": "the file stop in the run folder"}},
        {"code": 1},
        {"code": 2},
    ],
    ids=[
        "no step taken",
        "a crash is recorded",
        "state of another start",
        "stop file",
        "code 1",
        "code 2",
    ],
)
def test_it_does_not_come_back(run, plan):
    job = run(stops=1, **plan)
    job.has_started(1)
    job.tell("scancel", "-b", "-s", "USR2")
    ended = job.ends()
    assert (ended["ExitCode"], ended["Restarts"]) == (f"{plan.get('code', 3)}:0", "0")


def test_a_shipped_script_away_from_a_checkout_says_what_to_do(slurm, tmp_path):
    script = Path(__file__).parents[2] / "slurm" / "run_cpu.sbatch"
    job = slurm.sbatch(["-o", "out"], script, "configs/taylor_green.yaml", cwd=tmp_path)
    assert slurm.wait(job)["ExitCode"] == "2:0"
    said = (tmp_path / "out").read_text()
    assert len(said.splitlines()) == 1
    assert re.search(
        r"on the login node run ./scripts/run --setup, and submit from the checkout", said
    )
