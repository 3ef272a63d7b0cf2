"""Job scripts for sbatch, as a person would write them.

`slurm/run_cpu.sbatch` and `slurm/run_gpu.sbatch` are such scripts for any configuration; `render` writes one
for a certain run. All of them begin with `LISTEN` and end in `RUN_AND_REQUEUE`.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LISTEN = r"""
# Requests to stop (the warning, scancel) are heard from here on, and passed on to the step once it runs: all
# processes then stop at the same step and leave a checkpoint. A process that does not listen yet ignores
# them, and the end of its neighbours; so they are repeated.
asked='' step=''
pass_on() { while sleep 0.2 && kill -USR2 "$step" 2>/dev/null; do sleep 5; done; }
trap 'asked=yes; [ -z "$step" ] || pass_on &' TERM INT HUP USR1 USR2
""".lstrip("\n")
"""How every job script begins, after its flags."""

RUN_AND_REQUEUE = r"""
# The step runs in the background, so that this script goes on hearing.
(
  trap '' TERM INT HUP USR1 USR2
  exec srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=1 \
    sh -c 'trap "" TERM USR1 USR2; exec "$@"' sh "${simulator[@]}" run "$@"
) &
step=$!
[ -z "$asked" ] || pass_on &
while kill -0 $step 2>/dev/null; do wait $step; done # a signal ends `wait` early
wait $step
code=$?

# 3 is "stopped early, can continue". The job goes back into the queue if the run got on in it, nobody asked
# for the stop by the file RUN/stop, the job is still RUNNING (COMPLETING is a job that was cancelled), and it
# has not come back too often.
state() { grep -Eq "\"$1\": $2,?\$" "$run/state.json"; }
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$SLURM_JOB_ID}
if [ $code = 3 ] && state state '"stopped"' && state advanced true &&
  state restart_count "${SLURM_RESTART_COUNT:-0}" && ! state reason '".*file stop.*"' &&
  [ "$(squeue --noheader --job="$job" --format=%T)" = RUNNING ]; then
  if [ "${SLURM_RESTART_COUNT:-0}" -lt $max_restarts ]; then
    echo "stopped early: job $job goes back into the queue to continue"
    scontrol requeue "$job"
  else
    echo "stopped early, and came back $max_restarts times: submit the job again to continue"
  fi
fi
exit $code
""".lstrip("\n")

_SITE = "# ---- your site " + 91 * "-"
_SITE_END = "# " + 106 * "-"


@dataclass(frozen=True)
class Resources:
    """What a job asks Slurm for. What is None is left to Slurm's own defaults.

    other: any other flags of sbatch, as on its command line.
    """

    nodes: int | None = None
    tasks_per_node: int | None = None
    gpus_per_node: int | None = None
    cpus_per_task: int | None = None
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    other: str | None = None

    def flags(self) -> list[str]:
        """sbatch's flags, one of a line; without `others`."""
        options = {
            "nodes": self.nodes,
            "ntasks-per-node": self.tasks_per_node,
            "gpus-per-node": self.gpus_per_node or None,
            "cpus-per-task": self.cpus_per_task,
            "time": self.time,
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
        }
        return [f"--{name}={value}" for name, value in options.items() if value is not None]

    def others(self) -> list[str]:
        """The flags in `other`, one of a line."""
        return _split(self.other or "")


def render(
    name: str,
    folder: Path,
    command: Sequence[str],
    resources: Resources,
    *,
    arguments: Sequence[str] | None = None,
    setup: Sequence[str] | None = None,
    array: str | None = None,
    site: str = "",
    lead: int = 120,
    max_restarts: int = 50,
    about: Sequence[str] = (),
) -> str:
    """The script of a job that runs one run, or one run of several in each task of an array.

    folder: the run's, or where the logs of an array's tasks go. command: what starts this program. arguments:
    what `run` gets (default: the folder's own config.yaml). setup: shell lines that set `run` (the run folder)
    and `"$@"` (the arguments) instead, for arrays. site: shell lines for modules and the network. lead:
    seconds before the time limit at which the run is told to stop. about: comments at the top.
    """
    log = folder / "logs" / ("slurm-%A_%a.out" if array else "slurm-%j.out")
    flags = [
        f"--job-name={name}",
        *resources.flags(),
        *([f"--array={array}"] if array else []),
        f"--output={log}",
        "--open-mode=append",
        "--requeue",
    ]
    # Of two lines with one flag sbatch takes the last, but of two signals it mixes the parts.
    warned = any(re.match("--signal( |=|$)", flag) for flag in resources.others())
    warning = [
        "# the warning: to this script, so many seconds before the time limit",
        f"#SBATCH --signal=B:USR2@{lead}",
    ]
    if setup is None:
        given = ["$run/config.yaml"] if arguments is None else arguments
        words = " ".join(f'"{word}"' if word.startswith("$run") else shlex.quote(word) for word in given)
        setup = [f"run={shlex.quote(str(folder))}", f"set -- {words}"]
    lines = [
        "#!/bin/bash",
        *(f"# {line}" for line in about),
        "",
        *(f"#SBATCH {flag}" for flag in map(_quoted, flags)),
        *([] if warned else warning),
        *(f"#SBATCH {flag}" for flag in map(_quoted, resources.others())),
        "",
        *LISTEN.splitlines(),
        "",
        _SITE,
        *(site.strip().splitlines() or ["# module load ..."]),
        _SITE_END,
        "",
        f"max_restarts={max_restarts}",
        f"simulator=({shlex.join(command)})",
        *setup,
        "",
    ]
    return "\n".join(lines) + "\n" + RUN_AND_REQUEUE


def _split(flags: str) -> list[str]:
    """`--mem=8G -C "a b" --exclusive` as single flags, each with its value."""
    parts: list[str] = []
    for word in shlex.split(flags):
        if word.startswith("-") or not parts:
            parts.append(word)
        else:
            parts[-1] += f" {shlex.quote(word)}"
    return parts


def _quoted(flag: str) -> str:
    """A flag as sbatch reads it from a comment: like a shell, so spaces in a value need quotes."""
    name, equals, value = flag.partition("=")
    return f"{name}={shlex.quote(value)}" if equals else flag
