"""Runs one run of a sweep in this process: the work of a task of an array."""

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from simulator.archive.state import CONFIG
from simulator.config import load_config
from simulator.errors import RunFailure, UserError
from simulator.run.command import allocated, run_config
from simulator.run.folder import Found, RunFolder
from simulator.study.record import begun, ended


def run_one(folder: Path, arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """`simulator run` of the frozen configuration in `folder`, by every process of a Slurm step or by this one alone.

    `arguments` is the command line. Returns the run's exit code; errors are recorded for the sweep and raised.
    """
    args = argparse.Namespace(
        processes=None,
        coordinator=None,
        num_processes=None,
        process_id=None,
        arguments=list(arguments),
        began=time.monotonic(),
    )
    with allocated(args) as allocation:
        config = load_config(folder / CONFIG, check_files=False)
        run = partial(run_config, config, args, allocation)
        if (allocation and allocation.process_id > 0) or RunFolder(folder).found() is Found.FINISHED:
            return run()
        return _noted(run, folder, environ)


def _noted(run: Callable[[], int], folder: Path, environ: Mapping[str, str]) -> int:
    """Calls `run` and records its start and its end for the sweep."""
    record = begun(folder, os.getpid(), _log(folder.parent, environ), environ)
    code, said = 1, ""
    try:
        code = run()
    except (UserError, RunFailure) as error:
        code, said = (2 if isinstance(error, UserError) else 1), str(error).splitlines()[-1]
        raise
    except KeyboardInterrupt:
        code = 3
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise
    finally:
        ended(folder, record, code, said)
    return code


def _log(sweep: Path, environ: Mapping[str, str]) -> Path:
    """The task's log, as `sweep submit` names it."""
    job, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    return sweep / "logs" / f"slurm-{job}_{task}.out" if job and task else Path(os.devnull)
