"""Writes readable job scripts for sbatch.

`slurm/run_cpu.sbatch` and `slurm/run_gpu.sbatch` are job scripts for any configuration;
`JobScript` is the script of one run. All job scripts share their first and last lines
(`shared_lines`)."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from math import ceil
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from simulator.cluster.queue import slurm_seconds
from simulator.errors import UserError, shown
from simulator.settings import Count, Integer, Settings, ShellText

LEAD = 120  # Seconds before a long time limit at which Slurm warns a job script (see `SlurmSettings.lead`).


def _slurm_time(value: object) -> str:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str) and slurm_seconds(text) is not None:
        return text
    raise ValueError(
        f"a time in Slurm's format is needed, e.g. 00:30:00 or 2-12:00:00, not {shown(value)}"
    )


def _one_line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError("one line of text is needed")
    return value


Word = Annotated[str, AfterValidator(_one_line)]


class SlurmSettings(Settings):
    """Resources that `simulator submit` requests from Slurm; Slurm's defaults apply to all other
    resources."""

    nodes: Count | None = None
    """Number of nodes."""
    tasks_per_node: Count | None = None
    """Processes on each node; by default one per GPU, on CPUs one per socket."""
    gpus_per_node: Annotated[Integer, Field(ge=0)] | None = None
    """GPUs on each node."""
    cpus_per_task: Count | None = None
    """Cores for each process."""
    time: Annotated[str, BeforeValidator(_slurm_time, json_schema_input_type=str | int)] | None = (
        None
    )
    """Time limit in Slurm's format: minutes, HH:MM:SS or D-HH:MM:SS."""
    partition: Word | None = None
    """Partition (queue) of the job."""
    account: Word | None = None
    """Account that is charged."""
    qos: Word | None = None
    """Quality of service."""
    constraint: Word | None = None
    """Features that the nodes must have."""
    sbatch: Word | None = None
    """Further flags of sbatch, as on its command line."""
    prologue: ShellText | None = None
    """Shell commands that run first, for example to load modules or configure the network."""
    device: Word | None = None
    """The kind of device in the nodes, by its name in `simulator plan`, which then suggests missing
    resources."""

    def flags(self) -> list[str]:
        """The flags of sbatch, one per line, without those in `sbatch`."""
        options = self.model_dump(exclude={"sbatch", "prologue", "device"}, exclude_none=True)
        if not self.gpus_per_node:
            options.pop("gpus_per_node", None)
        ours = {"tasks_per_node": "ntasks_per_node"}
        return [
            f"--{ours.get(name, name).replace('_', '-')}={value}" for name, value in options.items()
        ]

    @property
    def limit(self) -> float | None:
        """The time limit in seconds; None if the job has no limit, or Slurm's default limit."""
        others = re.findall(r"(?:^|\s)(?:--time(?:=| )|-t ?)(\S+)", self.sbatch or "")
        seconds = slurm_seconds(others[-1] if others else self.time or "") or 0
        # 0 means no limit, and Slurm rounds up to minutes.
        return 60.0 * ceil(seconds / 60) or None

    @property
    def lead(self) -> int:
        """Seconds before the time limit at which Slurm warns the run; a quarter of a limit of less
        than 8 minutes.

        With 120 s for every limit, a short job would stop as soon as it has started, and be
        requeued after each step."""
        return LEAD if self.limit is None else max(1, min(LEAD, int(self.limit / 4)))


@dataclass(frozen=True)
class JobScript:
    """The script of a job that executes one run, or one run of several in each task of an array.

    folder: the run's folder, or the folder of the logs of an array's tasks. command: the words that
    start this program. arguments: the arguments of `run` (default: config.yaml in the folder).
    setup: for arrays, shell lines that set `run` (the run folder) and `"$@"` (the arguments). site:
    shell lines for modules and the network. about: comments at the top."""

    name: str
    folder: Path
    command: Sequence[str]
    resources: SlurmSettings
    _: KW_ONLY
    arguments: Sequence[str] | None = None
    setup: Sequence[str] | None = None
    array: str | None = None
    site: str = ""
    max_restarts: int = 50
    about: Sequence[str] = ()

    def text(self) -> str:
        """Raises UserError if Slurm cannot write a log below the folder."""
        lines = [
            "#!/bin/bash",
            *(f"# {line}" for line in self.about),
            "",
            *self._flags(),
            "",
            *shared_lines("begin").splitlines(),
            "",
            "# ---- your site " + 91 * "-",
            *(self.site.strip().splitlines() or ["# module load ..."]),
            "# " + 106 * "-",
            "",
            f"max_restarts={self.max_restarts}",
            f"simulator=({shlex.join(self.command)})",
            *(_setup_of_run(self.folder, self.arguments) if self.setup is None else self.setup),
            "",
        ]
        return "\n".join(lines) + "\n" + shared_lines("end")

    def _flags(self) -> list[str]:
        """The comments with the flags of sbatch."""
        resources = self.resources
        flags = [
            f"--job-name={self.name}",
            *resources.flags(),
            *([f"--array={self.array}"] if self.array else []),
            f"--output={_log_of_job(self.folder, self.array is not None)}",
            "--open-mode=append",
            "--requeue",
        ]
        lines = [f"#SBATCH {_quoted(flag)}" for flag in flags]
        # If a flag is given twice, sbatch takes the last one, but it mixes the parts of two
        # --signal flags.
        if not re.search(r"(^|\s)--signal( |=|$)", resources.sbatch or ""):
            lines += [
                "# The warning: Slurm signals this script this many seconds before the time limit.",
                f"#SBATCH --signal=B:USR2@{resources.lead}",
            ]
        return [*lines, f"#SBATCH {resources.sbatch}"] if resources.sbatch else lines


def _log_of_job(folder: Path, is_array: bool) -> Path:
    """The log of a job, with Slurm's patterns for its number. Raises UserError if Slurm cannot write
    a log below the folder."""
    if "\\" in str(folder) or not str(folder).isprintable():
        bad = "contains a backslash, a line break or another character that sbatch does not accept in a path"
        raise UserError(f"output.directory: {str(folder)!r} {bad}; give another name with --output")
    name = "slurm-%A_%a.out" if is_array else "slurm-%j.out"
    # sbatch replaces patterns such as `%j` in the flag `--output`.
    return Path(str(folder).replace("%", "%%")) / "logs" / name


def _setup_of_run(folder: Path, arguments: Sequence[str] | None) -> list[str]:
    """Shell lines that set `run` and `"$@"` for a job with one run."""
    arguments = ["$run/config.yaml"] if arguments is None else arguments
    words = " ".join(
        f'"{word}"' if word.startswith("$run") else shlex.quote(word) for word in arguments
    )
    return [f"run={shlex.quote(str(folder))}", f"set -- {words}"]


def shared_lines(part: Literal["begin", "end"]) -> str:
    """The lines with which every job script begins, after its flags, or ends."""
    return Path(__file__).with_name(f"job_{part}.sh").read_text()


def _quoted(flag: str) -> str:
    """A flag quoted for a comment, which sbatch parses like a shell."""
    name, equals, value = flag.partition("=")
    return f"{name}={shlex.quote(value)}" if equals else flag
