"""Writes readable job scripts for sbatch.

`slurm/run_cpu.sbatch` and `slurm/run_gpu.sbatch` are such scripts for any configuration; `render` writes one
for a given run. All of them begin with `LISTEN` and end with `RUN_AND_REQUEUE`.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path

from simulator.errors import UserError

LISTEN = r"""
# From here on the script catches requests to stop (the warning, scancel) and sends them to the srun step once it
# runs: all processes then stop at the same time step and write a checkpoint. A process that does not handle
# signals yet ignores them, and does not notice that other processes end, so the script repeats them.
asked='' step=''
pass_on() { while sleep 0.2 && kill -USR2 "$step" 2>/dev/null; do sleep 5; done; }
trap 'asked=yes; [ -z "$step" ] || pass_on &' TERM INT HUP USR1 USR2
""".lstrip("\n")
"""The beginning of every job script, after its flags."""

RUN_AND_REQUEUE = r"""
# The step runs in the background, so that this script can still catch signals.
(
  trap '' TERM INT HUP USR1 USR2
  exec srun ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} --kill-on-bad-exit=1 \
    sh -c 'trap "" TERM USR1 USR2; exec "$@"' sh "${simulator[@]}" run "$@"
) &
step=$!
[ -z "$asked" ] || pass_on &
while kill -0 $step 2>/dev/null; do wait $step; done # a signal ends `wait` early
wait $step
code=$?

# Exit code 3 means "stopped early, can continue". The job is requeued if the run advanced in it, the file
# RUN/stop did not request the stop, the job is still RUNNING (a cancelled job is COMPLETING), and it has not
# been requeued too often.
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

LEAD = 120
"""Seconds before the time limit at which Slurm warns a job script that has time for it."""

_SITE = "# ---- your site " + 91 * "-"
_SITE_END = "# " + 106 * "-"


@dataclass(frozen=True)
class Resources:
    """The resources of a job; Slurm's defaults apply to those that are None.

    other: further flags of sbatch, as on its command line.
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
        """The flags of sbatch, one per line, without `others`."""
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
        """The flags in `other`, one per line."""
        return _split(self.other or "")

    @property
    def limit(self) -> float | None:
        """The time limit in seconds; None if there is none, or Slurm's default applies."""
        limits = [self.time or ""]
        for flag in self.others():
            if match := re.match(r"(?:--time(?:=| )|-t ?)(\S+)", flag):
                limits.append(match[1])
        return _seconds(limits[-1])

    @property
    def lead(self) -> int:
        """Seconds before the time limit at which the run is warned; a quarter of a limit of less than 8 minutes.

        With 120 s for every limit, a short job would be stopped as it starts, and requeued for one step each time.
        """
        return LEAD if self.limit is None else max(1, min(LEAD, int(self.limit / 4)))


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
    max_restarts: int = 50,
    about: Sequence[str] = (),
) -> str:
    """The script of a job that executes one run, or one run of several in each task of an array.

    folder: the run's folder, or the folder of the logs of an array's tasks. command: starts this program. arguments:
    of `run` (default: config.yaml in the folder). setup: for arrays, shell lines that set `run` (the run folder)
    and `"$@"` (the arguments) instead. site: shell lines for modules and the network. about: comments at the top.

    Raises UserError if Slurm cannot write a log below the folder.
    """
    log = _without_patterns(folder) / "logs" / ("slurm-%A_%a.out" if array else "slurm-%j.out")
    flags = [
        f"--job-name={name}",
        *resources.flags(),
        *([f"--array={array}"] if array else []),
        f"--output={log}",
        "--open-mode=append",
        "--requeue",
    ]
    # If a flag is given twice, sbatch takes the last one, but it mixes the parts of two signals.
    warned = any(re.match("--signal( |=|$)", flag) for flag in resources.others())
    warning = [
        "# The warning: Slurm signals this script this many seconds before the time limit.",
        f"#SBATCH --signal=B:USR2@{resources.lead}",
    ]
    if setup is None:
        arguments = ["$run/config.yaml"] if arguments is None else arguments
        words = " ".join(f'"{word}"' if word.startswith("$run") else shlex.quote(word) for word in arguments)
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


def _without_patterns(folder: Path) -> Path:
    """The folder escaped for `--output`, in which sbatch would replace patterns such as `%j`."""
    if "\\" in str(folder) or not str(folder).isprintable():
        raise UserError(
            f"output.directory: {str(folder)!r} contains a backslash, a line break or another character that sbatch "
            "does not accept in a path; give another name with --output"
        )
    return Path(str(folder).replace("%", "%%"))


def _seconds(time: str) -> float | None:
    """Slurm's M, M:S, H:M:S, D-H, D-H:M and D-H:M:S in seconds, rounded up to minutes as Slurm does.

    None for anything else, and for 0, which means no limit.
    """
    if not re.fullmatch(r"(\d+-\d+(:\d+){0,2})|(\d+(:\d+){0,2})", time):
        return None
    days, _, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    scale = [3600, 60, 1] if days or len(parts) == 3 else [60, 1]
    seconds = 86400 * int(days or 0) + sum(map(prod, zip(parts, scale, strict=False)))
    return 60.0 * ceil(seconds / 60) or None


def _split(flags: str) -> list[str]:
    """Splits `--mem=8G -C "a b" --exclusive` into flags with their values."""
    parts: list[str] = []
    for word in shlex.split(flags):
        if word.startswith("-") or not parts:
            parts.append(word)
        else:
            parts[-1] += f" {shlex.quote(word)}"
    return parts


def _quoted(flag: str) -> str:
    """A flag quoted for a comment, which sbatch parses like a shell."""
    name, equals, value = flag.partition("=")
    return f"{name}={shlex.quote(value)}" if equals else flag
