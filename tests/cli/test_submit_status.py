"""`submit` and `status` without a Slurm; with one: tests/slurm."""

import os
import shlex
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from refusals import pairs, refusal
from run_support import tool

from simulator.archive.run_state import RunState, write_state
from simulator.cli import build_parser
from simulator.errors import RunFailure, UserError
from simulator.run.run_status import RunStatus, look_at, remember_job

pytestmark = pytest.mark.smoke

CONFIG = """\
name: case
model: {kind: navier_stokes, viscosity: 0.01}
grid: {shape: [16, 16, 16]}
initial: {kind: taylor_green}
time: {stop: 1}
"""


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No queue to ask, no file of the user, an empty folder to be in."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.yaml").write_text(CONFIG)


def command(name: str, *arguments: str) -> int:
    args = build_parser([name]).parse_args([name, *arguments])
    return args.func(args)


def dry(capsys, *arguments: str) -> str:
    assert command("submit", "case.yaml", "--dry-run", *arguments) == 0
    return capsys.readouterr().out


def test_a_dry_run_prints_the_script_and_writes_nothing(tmp_path, capsys):
    before = sorted(tmp_path.rglob("*"))
    script = dry(
        capsys, "time.stop=2", "--nodes", "2", "--output", "out", "--sbatch=--mem=1G --exclusive"
    )
    assert script.startswith(
        "#!/bin/bash\n# case: navier_stokes, 16 x 16 x 16, to t = 2, on 2 nodes.\n"
    )
    for line in ("--nodes=2", "--mem=1G --exclusive"):
        assert f"\n#SBATCH {line}\n" in script
    assert f"\nrun={tmp_path}/out\n" in script and sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["7", "1e3", "a,b", "x: #y"])
def test_a_folders_name_is_no_yaml(tmp_path, capsys, name):
    assert f"\nrun={shlex.quote(str(tmp_path / name))}\n" in dry(
        capsys, "--output", name, "--partition", "7"
    )
    assert command("status", "--folder-of", "case.yaml", "--output", name) == 0
    assert capsys.readouterr().out == f"{tmp_path / name}\n"


@pytest.fixture
def site(tmp_path):
    """Writes the user's slurm.yaml; returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "user" / "simulator" / "slurm.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_command_line_over_file_over_site_lines_of_shell_included(tmp_path, site, capsys):
    site(
        "partition: site\naccount: site\nqos: site\nprologue: |\n  module load cuda\n  export A=1\n"
    )
    (tmp_path / "case.yaml").write_text(CONFIG + "slurm: {partition: file, account: file}\n")
    script = dry(capsys, "--partition=line", "--gpus-per-node", "4")
    for line in ("--partition=line", "--account=file", "--qos=site", "--ntasks-per-node=4"):
        assert f"\n#SBATCH {line}\n" in script
    assert "\nmodule load cuda\nexport A=1\n" in script
    (tmp_path / "case.yaml").write_text(CONFIG)
    site("# partition: gpu\n")
    assert "--partition" not in dry(capsys)
    site("prologue: module load site\n")
    assert "\nmodule load site\n# ---" in dry(capsys)
    (tmp_path / "case.yaml").write_text(
        CONFIG + "slurm:\n  prologue: |\n    module load own\n    ulimit -n 9999\n"
    )
    assert "---\nmodule load own\nulimit -n 9999\n# ---" in dry(capsys)


@pytest.mark.parametrize(
    "arguments, cores",
    [
        (("--gpus-per-node", "4"), "4"),
        (("--gpus-per-node", "4", "--tasks-per-node", "1"), "16"),
        (("--gpus-per-node", "4", "--cpus-per-task", "1"), "1"),
        (("--gpus-per-node", "4", "--sbatch=--mem=0 --exclusive"), None),
        (("--gpus-per-node", "4", "--sbatch=--cpus-per-gpu=12"), None),
        (("--gpus-per-node", "4", "--sbatch=-c 12"), None),
        (("--tasks-per-node", "4"), None),
    ],
)
def test_a_gpu_gets_four_cores_where_nobody_says_how_many(capsys, arguments, cores):
    script = dry(capsys, *arguments)
    found = [
        line.partition("=")[2] for line in script.splitlines() if "SBATCH --cpus-per-task" in line
    ]
    assert found == ([] if cores is None else [cores])


SINFO = """\
echo 'test*|2|1:00:00|128|2|(null)'
echo 'test*|1|1:00:00|64|2|(null)'
echo 'small|1|infinite|8+|1|(null)'
echo 'fast|2|1-00:00:00|64|2|gpu:a100:4(S:0-1)'
"""


@pytest.mark.parametrize(
    "arguments, flags, share",
    [
        ("--nodes 2", "2 32", "128 of 128 cores on 2 nodes (4 processes with 32 cores each)"),
        ("--nodes 1 --partition small", "1 8", "8 of 8 cores on 1 node (1 process with 8 cores)"),
        ("", "", "1 of 64 cores on 1 node (1 process with 1 core)"),
        (
            "--nodes 2 --tasks-per-node 1",
            "1",
            "2 of 128 cores on 2 nodes (2 processes with 1 core each)",
        ),
        ("--nodes 2 --sbatch=-n4", "", ""),
        ("--nodes 2 --partition fast", "", ""),
        ("--nodes 2 --gpus-per-node 4 --partition fast", "4 4", ""),
        ("--nodes 2 --sbatch=-popen", "", ""),
    ],
)
def test_nodes_of_processors_are_taken_whole(tmp_path, capsys, arguments, flags, share):
    """A process for each socket of the smallest node, with all its cores."""
    tool(tmp_path / "nothing", "sinfo", SINFO)
    assert command("submit", "case.yaml", "--dry-run", *arguments.split()) == 0
    shown = capsys.readouterr()
    numbers = [
        line.partition("=")[2]
        for line in shown.out.splitlines()
        if line.startswith(("#SBATCH --ntasks-per-node", "#SBATCH --cpus-per-task"))
    ]
    assert numbers == flags.split()
    assert shown.err == (f"the job uses {share}\n" if share else "")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--nodes", "none"], r"command line: slurm\.nodes: "),
        (["--time", "tomorrow"], r"command line: slurm\.time: "),
        (["grid.shap=1"], r"did you mean grid\.shape\?"),
        (["--gres", "gpu"], r"--gres; .* --sbatch='--gres=gpu'"),
        (["-p", "test"], "-p, did you mean --partition?"),
        (["--output", "a\nb"], r"output\.directory: .* another name"),
        ([], "sbatch is not installed here"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(tmp_path, arguments, message):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=message):
        command("submit", "case.yaml", *arguments)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "arguments, message",
    pairs("""
--nodes 99
    nodes: 99 is too many: partition test has 3 nodes
--nodes 2 --partition small
    nodes: 2 is too many: partition small has 1 node
--time 90
    time: partition test has a time limit of 1 h 00 min; ask for less
--time 99:99
    time: a time in Slurm's format is needed, e.g. 00:30:00 or 2-12:00:00, not '99:99'
--partition smal
    partition: this cluster has no 'smal', did you mean small? known: test, small, fast
--tasks-per-node 9 --cpus-per-task 16
    cpus_per_task: 16 cores x tasks_per_node 9 = 144 cores of a node, which has 128; ask for fewer
"""),
)
def test_the_cluster_must_have_what_a_job_asks_for(tmp_path, capsys, arguments, message):
    tool(tmp_path / "nothing", "sinfo", SINFO)
    said = refusal(lambda: dry(capsys, *arguments.split()))
    assert said == f"command line: slurm.{message}"


ACCEPTED = """
--tasks-per-node 8 --cpus-per-task 16
--tasks-per-node 9 --partition small,test
--tasks-per-node 9 --partition small
--tasks-per-node 9 --cpus-per-task 16 --sbatch=--overcommit
--nodes 3 --time 60
--nodes 3 --partition small,test --time 9-0
--time 90 --qos long
--nodes 99 --sbatch=--clusters=other
"""


@pytest.mark.parametrize("arguments", ACCEPTED.split("\n")[1:-1])
def test_what_only_slurm_knows_is_left_to_it(tmp_path, capsys, arguments):
    tool(tmp_path / "nothing", "sinfo", SINFO)
    assert dry(capsys, *arguments.split()).startswith("#!/bin/bash")


def test_a_mistake_in_the_users_file_names_its_line(site):
    path = site("account: a\npartitoin: b\n")
    with pytest.raises(
        UserError, match=rf"{path}:2: partitoin: unknown key, did you mean partition\?"
    ):
        command("submit", "case.yaml", "--dry-run")


def state(**changes) -> RunState:
    values = dict(
        state="running", step=50, time=0.5, stop=1.0, percent=50.0, steps_per_second=10.0, dt=0.01
    )
    return RunState(**(values | changes))


@pytest.fixture
def run(tmp_path) -> Path:
    folder = tmp_path / "outputs" / "case"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG)
    return folder


def test_an_unfinished_run_is_continued_with_what_changed(run, capsys):
    write_state(run, state(state="stopped"))
    script = dry(capsys, "time.stop=3", "devices.count=4", "time.dt=0.5")
    assert script.startswith("time.stop: 1.0 -> 3.0\ntime.dt: nothing -> 0.5\ntime.cfl: ")
    assert '\nset -- "$run/config.yaml" time.stop=3.0 time.dt=0.5 devices.count=4\n' in script
    with pytest.raises(UserError, match=r"another model\.viscosity"):
        dry(capsys, "model.viscosity=2")


def test_a_finished_run_one_that_is_being_written_and_a_foreign_folder_get_no_job(run, capsys):
    write_state(run, state(state="finished", time=1.0))
    assert "already finished" in dry(capsys)
    write_state(run, state())
    (run / "lock").write_text("{}")
    with pytest.raises(UserError, match="a process is writing this run"):
        dry(capsys)
    (run / "lock").unlink()
    (run / "config.yaml").rename(run / "thesis.tex")
    with pytest.raises(UserError, match="not a run of this program"):
        command("submit", "case.yaml")


NOW = datetime.now().astimezone()


@pytest.mark.parametrize(
    "found, job_state, writing, began, word",
    [
        (None, None, False, False, "not started"),
        (None, "PENDING", False, False, "pending"),
        (None, None, True, False, "starting"),
        (None, None, True, True, "starting"),
        (None, "RUNNING", True, True, "running"),
        (None, "CANCELLED", False, True, "cancelled before its first step"),
        (None, "OUT_OF_MEMORY", False, False, "out of memory before its first step"),
        (None, None, False, True, "ended before its first step"),
        (state(), "RUNNING", True, False, "running"),
        (state(), None, False, False, "killed"),
        (state(), "PENDING", False, False, "queued"),
        (state(state="stopped"), "PENDING", False, False, "stopped, queued"),
        (state(state="stopped"), None, False, False, "stopped"),
        (state(state="failed"), None, False, False, "failed"),
        (state(state="finished"), None, False, False, "finished"),
    ],
)
def test_the_state_in_words(found, job_state, writing, began, word):
    assert RunStatus(Path("r"), found, "7", job_state, writing, began).word == word


def test_a_job_that_was_cancelled_while_it_compiled_is_not_starting(run, tmp_path):
    """Its processes were killed: the lock is there, and young."""
    remember_job(run, "17")
    holder = (
        '"host": "n", "pid": 1, "machine": "", "started": 1, "job_id": "17", "restart_count": 0'
    )
    (run / "lock").write_text(f'{{{holder}, "token": "t"}}')
    assert look_at(run, NOW).word == "starting"  # without Slurm nobody knows
    tool(
        tmp_path / "nothing",
        "squeue",
        'case "$*" in *--job=17*--states=all*) echo CANCELLED;; esac',
    )
    found = look_at(run, NOW)
    assert found.cells(NOW)[1:3] == ("17", "cancelled before its first step")
    assert not found.job_lives and not found.writing
    tool(tmp_path / "nothing", "squeue", "exit 1")  # it forgets a job after some minutes
    os.utime(run / "lock", (NOW.timestamp() - 100,) * 2)
    assert look_at(run, NOW).word == "ended before its first step"


def test_the_job_of_a_script_that_was_given_to_sbatch_again(run, tmp_path):
    """A job that computes the run comes before one that waits, and that before those that ended:
    of these the one of the state file, and not one that was refused later."""
    remember_job(run, "17")
    (run / "job.sbatch").touch()
    script = run / "job.sbatch"
    for others, word in (
        ("18|RUNNING", ("18 RUNNING", "running")),
        ("9|COMPLETED", ("17 PENDING", "pending")),
        ("17|RUNNING 18|PENDING", ("17 RUNNING", "running")),
        ("18|CANCELLED", ("17 PENDING", "pending")),
        ("17|FAILED 18|FAILED", ("17", "failed before its first step")),
    ):
        rows = "".join(f"echo '{job}|{script}';" for job in others.split())
        answer = (
            f'case "$*" in *--job=17*) echo PENDING;; *) {rows} echo "99|PENDING|/other";; esac'
        )
        tool(tmp_path / "nothing", "squeue", answer)
        assert look_at(run, NOW).cells(NOW)[1:3] == word
    write_state(run, state(state="stopped", job_id="16"))
    answer = f"""case "$*" in *--job=*) exit 1;; *) echo '18|FAILED|{script}';; esac"""
    tool(tmp_path / "nothing", "squeue", answer)
    assert look_at(run, NOW).cells(NOW)[1:3] == ("16", "stopped")


def test_a_row_of_the_table_and_the_end_expected_at_the_last_speed(run):
    write_state(run, state(last_checkpoint=40, last_checkpoint_time=0.4))
    (run / "lock").write_text("{}")
    remember_job(run, "17")
    found = look_at(run, NOW)
    cells = found.cells(NOW)
    assert cells[:7] == (str(run), "17", "running", "50", "0.5 / 1", "50.0", "10")
    assert cells[8] == "step 40, t = 0.4"
    os.utime(run / "lock", (NOW.timestamp() - 100,) * 2)
    assert look_at(run, NOW).word == "killed"
    updated = NOW.isoformat(timespec="seconds")

    def ends(writing: bool = True, **changes: float) -> datetime | None:
        return RunStatus(Path("r"), state(updated=updated, **changes), None, None, writing).ends

    # 0.5 / (10 * 0.01)
    assert ends() == datetime.fromisoformat(updated) + timedelta(seconds=5)
    assert ends(writing=False) is None and ends(steps_per_second=0.0) is None


def test_the_command_lists_all_runs_or_those_named(run, tmp_path, capsys):
    assert command("status") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "run",
        "outputs/case",
    ]
    assert command("status", str(run)) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(str(run))
    with pytest.raises(UserError, match="not a run folder"):
        command("status", str(tmp_path))


def test_the_folder_of_a_run_for_job_scripts_and_no_run_at_all_is_said(tmp_path, capsys):
    for arguments, folder in (
        (["case.yaml"], "outputs/case"),
        (["case.yaml", "--overwrite", "time.stop=2", "--output", "elsewhere"], "elsewhere"),
        (["case.yaml", "output.directory=there", "--processes", "2"], "there"),
    ):
        assert command("status", "--folder-of", *arguments) == 0
        assert capsys.readouterr().out == f"{tmp_path / folder}\n"
    with pytest.raises(UserError, match=r"command line: grid.shap"):
        command("status", "--folder-of", "case.yaml", "grid.shap=1")
    with pytest.raises(UserError, match="no runs under outputs/"):
        command("status")


def test_a_refused_submission_leaves_a_folder_that_takes_another_one(tmp_path, capsys):
    tool(tmp_path / "nothing", "sbatch", "echo 'invalid partition' >&2; exit 1")
    with pytest.raises(RunFailure, match="invalid partition"):
        command("submit", "case.yaml", "--output", "out")
    script = dry(capsys, "--output", "out", "grid.shape=32,32,32")
    assert script.startswith("#!/bin/bash\n# case: navier_stokes, 32 x 32 x 32, ")
