"""Steps many runs on one device in one program: the process that `sweep run --batch auto` starts.

Every run is an ordinary run in its own thread, with its own folder, lock, schedule and files; only `advance` is
shared. The threads take turns: only one runs at a time, and it yields only while it waits for the others to request
their steps too. Therefore the code of a run need not be thread-safe.
"""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator.config import RunConfig, load_config
from simulator.errors import RunFailure, UserError
from simulator.models import State
from simulator.processes import discover
from simulator.processes.start import Cluster
from simulator.run.execute import execute
from simulator.run.folder import CONFIG
from simulator.run.log import RunLog
from simulator.run.prepare import Choices
from simulator.run.signals import SignalFlags
from simulator.simulation.advance import Until
from simulator.simulation.inputs import Inputs
from simulator.simulation.placement import connect
from simulator.simulation.simulation import Simulation
from simulator.sweeps.batch import BatchedStep
from simulator.sweeps.grouping import numbers
from simulator.sweeps.record import ended, last_line, read_record
from simulator.sweeps.runner import CANNOT


class Ensemble:
    """The shared part: one compiled step, and the synchronization of the runs before it."""

    def __init__(self, configs: Sequence[RunConfig], keys: Sequence[str], cluster: Cluster):
        self.shared = Simulation(configs[0], cluster=cluster)
        self.step = BatchedStep(self.shared, keys)
        self.values = [self.step.values(numbers(config)) for config in configs]
        self.turn = threading.Condition()
        self._working = set(range(len(configs)))
        self._requests: dict[int, tuple[State, Until]] = {}
        self._results: dict[int, State | BaseException] = {}
        self._latest: dict[int, State] = {}
        self._shares: dict[str, bool] = {}

    def compile(self) -> None:
        """Compiles the step for all runs, before anything is written, by a call that takes no steps. Exceptions of
        the compilation propagate."""
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.shared.template)
        state = self.shared.placed(zeros)
        count = len(self.values)
        jax.block_until_ready(
            self.step.together(tuple(self.values), (state,) * count, (_no_steps(),) * count)
        )

    def shared_program(self, name: str, measure: Any) -> Any:
        """`measure` if one program of it serves all runs, else None."""
        if name not in self._shares:
            self._shares[name] = self.step.shares(measure)
        return measure if self._shares[name] else None

    def advance(self, number: int, state: State, until: Until) -> State:
        """The steps of one run: waits until all active runs have requested theirs, which are then taken together.

        Called by the thread that holds `turn`.
        """
        self._requests[number] = (state, until)
        self._step_if_all_requested()
        while number not in self._results:
            self.turn.wait()
        result = self._results.pop(number)
        if isinstance(result, BaseException):
            raise RunFailure(f"the step of the batch failed: {type(result).__name__}: {result}") from result
        return result

    def leave(self, number: int) -> None:
        """A run has ended: the others no longer wait for it."""
        self._working.discard(number)
        self._step_if_all_requested()

    def _step_if_all_requested(self) -> None:
        if not self._working or self._requests.keys() != self._working:
            return
        self._latest |= {number: state for number, (state, _) in self._requests.items()}
        stand_in = next(iter(self._latest.values()))
        count = range(len(self.values))
        # Runs that have ended stay in the batch without taking steps, so that nothing is recompiled.
        states = tuple(self._latest.get(i, stand_in) for i in count)
        untils = tuple(self._requests[i][1] if i in self._requests else _no_steps() for i in count)
        try:
            results: Sequence[State | BaseException] = self.step.together(tuple(self.values), states, untils)
        except Exception as error:
            results = [error] * len(self.values)
        self._results |= {number: results[number] for number in self._requests}
        self._requests.clear()
        self.turn.notify_all()


def _no_steps() -> Until:
    return Until(np.float64(0), np.float64(0), np.int64(0))


class Member(Simulation):
    """One run of an ensemble: its steps are taken together with those of the others, and measurements are compiled
    once for all runs if possible."""

    def __init__(
        self,
        config: RunConfig,
        ensemble: Ensemble,
        number: int,
        inputs: Inputs,
        report: Callable[[str], None],
    ):
        super().__init__(config, cluster=ensemble.shared.cluster, inputs=inputs, report=report)
        self._ensemble, self._number = ensemble, number

    @property
    def _own(self) -> Any:
        return self._ensemble.values[self._number]

    @cached_property
    def advance(self) -> Callable[[State, Until], State]:
        return partial(self._ensemble.advance, self._number)

    @cached_property
    def diagnostics(self) -> Callable[[State], dict[str, jax.Array]]:
        shared = self._ensemble.shared_program("diagnostics", self._ensemble.step.diagnostics)
        return partial(shared, self._own) if shared else super().diagnostics

    @cached_property
    def spectra(self) -> Callable[[State], dict[str, jax.Array]]:
        shared = self._ensemble.shared_program("spectra", self._ensemble.step.spectra)
        return partial(shared, self._own) if shared else super().spectra

    def values(self, name: str) -> Callable[[State], jax.Array]:
        if name not in self.field_names:
            raise KeyError(name)
        shared = self._ensemble.shared_program(name, self._ensemble.step.field(name))
        return partial(shared, self._own) if shared else super().values(name)

    @cached_property
    def are_finite(self) -> Callable[..., dict[str, jax.Array]]:
        return self._ensemble.shared.are_finite


def run_together(folders: Sequence[Path], keys: Sequence[str]) -> int:
    """Runs the frozen configurations in `folders` together and records in each folder how its run ended.

    Returns CANNOT if the step cannot be compiled for all of them, else 0.
    """
    configs = [load_config(folder / CONFIG, check_files=False) for folder in folders]
    one = configs[0].model_copy(update={"devices": configs[0].devices.model_copy(update={"count": 1})})
    cluster = connect(one, discover(os.environ))
    try:
        ensemble = Ensemble([one, *configs[1:]], keys, cluster)
        ensemble.compile()
    except (UserError, RunFailure):
        raise
    except Exception as error:
        print(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else error}", flush=True)
        return CANNOT
    with SignalFlags() as signals:
        threads = [
            threading.Thread(target=_run, args=(ensemble, i, config, signals, folder), name=folder.name)
            for i, (config, folder) in enumerate(zip(configs, folders, strict=True))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    cluster.close()
    return 0


def _run(ensemble: Ensemble, number: int, config: RunConfig, signals: SignalFlags, folder: Path) -> None:
    """One run from start to end."""
    with ensemble.turn:
        code, said = 1, ""
        # The run prints to its run.log only, because the lines of several runs would mix.
        with contextlib.closing(RunLog(quiet=True)) as log:
            try:
                if signals.received:
                    code = 3
                    return
                simulation = Member(config, ensemble, number, Inputs(folder / "inputs"), log.say)
                code = execute(
                    simulation, Choices(command=("simulator", "run", str(folder / CONFIG))), log, signals
                )
            except (UserError, RunFailure) as error:
                code, said = (2 if isinstance(error, UserError) else 1), str(error).splitlines()[-1]
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
            finally:
                ensemble.leave(number)
                if (record := read_record(folder)) is not None:
                    ended(folder, record, code, said or last_line(folder / "run.log"))


def main(arguments: Sequence[str]) -> int:
    """`python -m simulator.sweeps.ensemble JSON`, started by `sweep run`."""
    job = json.loads(arguments[0])
    try:
        return run_together([Path(folder) for folder in job["folders"]], job["keys"])
    except (UserError, RunFailure) as error:
        print(error, flush=True)
        return 2 if isinstance(error, UserError) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
