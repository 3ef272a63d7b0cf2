"""Steps many runs in one program: the process that `sweep run --batch auto` starts.

Every run is an ordinary run in its own thread, with its own folder, lock, schedule and files; the
runs share only `advance`. The threads take turns: one thread executes at a time, until it waits for
the other threads to request their steps too, or, where the runs are so large that they are stepped
one after another, until its run has ended. Therefore the code of a run need not be thread-safe."""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from simulator.archive.run_state import CONFIG
from simulator.archive.stored_state import RunInputs
from simulator.cluster import discover
from simulator.cluster.start import Cluster
from simulator.config import RunConfig, load_config
from simulator.errors import RunFailure, UserError
from simulator.physics.models import State, outputs
from simulator.run.execute import execute
from simulator.run.folder import Choices, FolderContent, RunFolder
from simulator.run.log import RunLog
from simulator.run.signals import SignalFlags
from simulator.simulation.advance import NO_STEPS, Until
from simulator.simulation.placement import connect
from simulator.simulation.simulation import Simulation
from simulator.study.batch import BatchedStep, on_one_device, varied_numbers
from simulator.study.runner import CANNOT
from simulator.study.study_status import ended, last_line, outcome, read_record


class Ensemble:
    """The compiled step that all runs share, and the synchronization of the runs before each call
    of the step."""

    def __init__(self, configs: Sequence[RunConfig], keys: Sequence[str], cluster: Cluster):
        self.simulation = Simulation(configs[0], cluster=cluster, inputs=RunInputs())
        self.step = BatchedStep(self.simulation, keys)
        self.values = [self.step.values(varied_numbers(config)) for config in configs]
        self.turn = threading.Condition()
        self._working = set(range(len(configs)))
        self._requests: dict[int, tuple[State, Until]] = {}
        self._results: dict[int, State | BaseException] = {}
        self._latest: dict[int, State] = {}

    def compile(self) -> None:
        """Compiles the program for all runs by a call without steps, before any run writes.
        Exceptions propagate."""
        zeros = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.simulation.template
        )
        idle = self.simulation.placed(zeros)
        if self.step.in_turn:
            jax.block_until_ready(self.step.alone(self.values[0], idle, NO_STEPS))
            return
        self._latest = dict.fromkeys(self._working, idle)
        jax.block_until_ready(self._stepped())

    def advance(self, number: int, state: State, until: Until) -> State:
        """The state of one run after its steps: waits until all active runs have requested their
        steps, which are then taken together, except for large states. The calling thread holds
        `turn`."""
        if self.step.in_turn:
            return self.step.alone(self.values[number], state, until)
        self._requests[number] = (state, until)
        self._step_if_all_requested()
        while number not in self._results:
            self.turn.wait()
        result = self._results.pop(number)
        if isinstance(result, BaseException):
            raise RunFailure(
                f"the step of the batch failed: {type(result).__name__}: {result}"
            ) from result
        return result

    def leave(self, number: int) -> None:
        """Called when a run has ended: the other runs no longer wait for this run."""
        self._working.discard(number)
        self._step_if_all_requested()

    def _step_if_all_requested(self) -> None:
        if not self._requests or self._requests.keys() != self._working:
            return
        self._latest |= {number: state for number, (state, _) in self._requests.items()}
        try:
            results: Sequence[State | BaseException] = self._stepped()
        except Exception as error:
            results = [error] * len(self.values)
        self._results |= {number: results[number] for number in self._requests}
        self._requests.clear()
        self.turn.notify_all()

    def _stepped(self) -> Sequence[State]:
        """The states of all runs after the requested steps. A run that has ended stays in the batch
        but takes no steps, so that the program is not compiled again."""
        places = range(len(self.values))
        untils = tuple(self._requests[i][1] if i in self._requests else NO_STEPS for i in places)
        return self.step.together(
            tuple(self.values), tuple(self._latest[i] for i in places), untils
        )


class Member(Simulation):
    """One run of an ensemble: its steps are taken together with the steps of the other runs, and
    measurements are compiled once for all runs if possible."""

    def __init__(
        self,
        config: RunConfig,
        ensemble: Ensemble,
        number: int,
        inputs: RunInputs,
        report: Callable[[str], None],
    ):
        super().__init__(config, cluster=ensemble.simulation.cluster, inputs=inputs, report=report)
        self._ensemble = ensemble
        self._number = number
        common = ensemble.simulation
        # These replace the programs that a simulation compiles for itself.
        shared = {name: self._shared(name) for name in ("diagnostics", "spectra")}
        vars(self).update(
            {name: program for name, program in shared.items() if program is not None}
        )
        advance = partial(ensemble.advance, number)
        vars(self).update(advance=advance, columns=common.columns, are_finite=common.are_finite)

    def _shared(self, name: str) -> Any:
        """The program that measures `name`, shared by all runs, with this run's values; None if
        there is none."""
        measure = self._ensemble.step.measure(name)
        return measure and partial(measure, self._ensemble.values[self._number])

    def start(self) -> State:
        return self._ensemble.step.start(self, self.config) or super().start()

    def _rate(self, state: State) -> jax.Array:
        return (
            self.diagnostics(state)["rate"] if self._shared("diagnostics") else super()._rate(state)
        )

    def field_program(self, name: str) -> Callable[[State], jax.Array]:
        if name not in self.field_names:
            outputs.field_spec(self.model, name)
        return self._shared(name) or super().field_program(name)


def run_together(folders: Sequence[Path], keys: Sequence[str]) -> int:
    """Runs the frozen configurations in `folders` together, on `devices.count` devices (`auto`:
    one), and records in each folder how its run ended. Returns CANNOT if no step can be compiled
    for all runs together, else 0."""
    configs = [load_config(folder / CONFIG, check_files=False) for folder in folders]
    configs[0] = on_one_device(configs[0])
    cluster = connect(configs[0], discover(os.environ))
    try:
        ensemble = Ensemble(configs, keys, cluster)
        ensemble.compile()
    except (UserError, RunFailure):
        raise
    except Exception as error:
        print(
            f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else error}",
            flush=True,
        )
        return CANNOT
    with SignalFlags() as signals:
        threads = []
        for number, (config, folder) in enumerate(zip(configs, folders, strict=True)):
            arguments = (ensemble, number, config, signals, folder)
            threads.append(threading.Thread(target=_run, args=arguments, name=folder.name))
            threads[-1].start()
        for thread in threads:
            thread.join()
    cluster.close()
    return 0


def _run(
    ensemble: Ensemble, number: int, config: RunConfig, signals: SignalFlags, folder: Path
) -> None:
    with ensemble.turn:
        code = 1
        said = ""
        # The run writes its lines to its run.log only, because on the console the lines of several
        # runs would mix.
        with contextlib.closing(RunLog(quiet=True)) as log:
            try:
                if signals.received:
                    code = 3
                    return
                if RunFolder(folder).content() is FolderContent.FINISHED:
                    code = 0
                    return
                simulation = Member(config, ensemble, number, RunInputs(folder / "inputs"), log.say)
                code = execute(
                    simulation,
                    Choices(command=("simulator", "run", str(folder / CONFIG))),
                    log,
                    signals,
                )
            except Exception as error:
                code, said = outcome(error)
            finally:
                ensemble.leave(number)
                if (record := read_record(folder)) is not None:
                    ended(folder, record, code, said or last_line(folder / "run.log"))


def run_ensemble(arguments: Sequence[str]) -> int:
    """`python -m simulator.study.ensemble JSON`, started by `sweep run`."""
    job = json.loads(arguments[0])
    try:
        return run_together([Path(folder) for folder in job["folders"]], job["keys"])
    except (UserError, RunFailure) as error:
        print(error, flush=True)
        return 2 if isinstance(error, UserError) else 1


if __name__ == "__main__":
    code = run_ensemble(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # JAX would clear its caches for seconds, one by one
