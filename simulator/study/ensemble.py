"""Steps many runs in one program: the process that `sweep run --batch auto` starts.

The devices of the process are divided into equal parts, on each of which a share of the runs lives. Every run is an
ordinary run on the devices of its part, in its own thread, with its own folder, lock, schedule and files; only
`advance` is shared by all. The threads take turns: only one runs at a time, and it yields only while it waits for the
others to request their steps too. Therefore the code of a run need not be thread-safe.
"""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator.archive.state import CONFIG
from simulator.archive.states import RunInputs
from simulator.cluster import Allocation, discover
from simulator.cluster.start import Cluster, choose_platform, gpu_ids
from simulator.config import RunConfig, load_config
from simulator.errors import RunFailure, UserError
from simulator.physics.models import State
from simulator.run.execute import execute
from simulator.run.log import RunLog
from simulator.run.prepare import Choices
from simulator.run.signals import SignalFlags
from simulator.simulation import members
from simulator.simulation.advance import Until
from simulator.simulation.placement import can_have_members, connect
from simulator.simulation.simulation import Simulation
from simulator.study.batch import BatchedStep
from simulator.study.grouping import numbers
from simulator.study.record import ended, last_line, read_record
from simulator.study.runner import CANNOT


class EnsemblePart:
    """Equal shares of the devices and of the runs. The runs' measurements are compiled once for each part."""

    def __init__(self, simulation: Simulation, step: BatchedStep):
        self.simulation, self.step = simulation, step

    def idle(self) -> State:
        """A state for members without a run, which take no steps."""
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.simulation.template)
        return self.simulation.placed(zeros)


class Ensemble:
    """What the runs share: one compiled step, and the synchronization of the runs before it."""

    def __init__(self, configs: Sequence[RunConfig], keys: Sequence[str], cluster: Cluster, parts: int = 1):
        """The devices of `cluster` are divided into `parts`."""
        self.shared = Simulation(configs[0], cluster=cluster, members=parts)
        self.step = BatchedStep(self.shared, keys)
        self.parts = [EnsemblePart(self.shared, self.step)]
        if parts > 1:
            each = len(cluster.devices) // parts
            clusters = (
                replace(cluster, devices=cluster.devices[i * each : (i + 1) * each]) for i in range(parts)
            )
            alone = [Simulation(configs[0], cluster=cluster) for cluster in clusters]
            self.parts = [EnsemblePart(simulation, BatchedStep(simulation, keys)) for simulation in alone]
        self._share = -(-len(configs) // parts)
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
        jax.block_until_ready(self._stepped())

    def part_of(self, number: int) -> EnsemblePart:
        """The part on which a run lives."""
        return self.parts[number // self._share]

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
        try:
            results: Sequence[State | BaseException] = self._stepped()
        except Exception as error:
            results = [error] * len(self.values)
        self._results |= {number: results[number] for number in self._requests}
        self._requests.clear()
        self.turn.notify_all()

    def _stepped(self) -> Sequence[State]:
        """The states of all runs after the requested steps. Runs that have ended stay in the batch without taking
        steps, so that nothing is recompiled, and the last part may have places without a run."""
        count, share = len(self.values), self._share
        places = range(share * len(self.parts))
        groups = [places[i * share : (i + 1) * share] for i in range(len(self.parts))]
        states: list[tuple[State, ...]] = []
        for part, group in zip(self.parts, groups, strict=True):
            stand_in = next((self._latest[i] for i in group if i in self._latest), None) or part.idle()
            states.append(tuple(self._latest.get(i, stand_in) for i in group))
        values = tuple(self.values[min(i, count - 1)] for i in places)
        untils = tuple(self._requests[i][1] if i in self._requests else _no_steps() for i in places)
        if len(self.parts) == 1:
            return self.step.together(values, states[0], untils)
        alone = [part.simulation for part in self.parts]
        stacked = [simulation.stack(given) for simulation, given in zip(alone, states, strict=True)]
        joined = members.joined(stacked, self.shared.shardings(self.shared.template))
        new = self.step.on_parts(_rows(values), joined, _rows(untils))
        parted = members.parted(new, [simulation.shardings(simulation.template) for simulation in alone])
        return [s for simulation, given in zip(alone, parted, strict=True) for s in simulation.unstack(given)]


def _rows(trees: Sequence[Any]) -> Any:
    """Trees of numbers as one tree of rows."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


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
        inputs: RunInputs,
        report: Callable[[str], None],
    ):
        self._ensemble, self._number, self._part = ensemble, number, ensemble.part_of(number)
        super().__init__(config, cluster=self._part.simulation.cluster, inputs=inputs, report=report)

    @property
    def _own(self) -> Any:
        return self._ensemble.values[self._number]

    @cached_property
    def advance(self) -> Callable[[State, Until], State]:
        return partial(self._ensemble.advance, self._number)

    @cached_property
    def diagnostics(self) -> Callable[[State], dict[str, jax.Array]]:
        shared = self._ensemble.shared_program("diagnostics", self._part.step.diagnostics)
        return partial(shared, self._own) if shared else super().diagnostics

    @cached_property
    def spectra(self) -> Callable[[State], dict[str, jax.Array]]:
        shared = self._ensemble.shared_program("spectra", self._part.step.spectra)
        return partial(shared, self._own) if shared else super().spectra

    def values(self, name: str) -> Callable[[State], jax.Array]:
        if name not in self.field_names:
            raise KeyError(name)
        shared = self._ensemble.shared_program(name, self._part.step.field(name))
        return partial(shared, self._own) if shared else super().values(name)

    @cached_property
    def are_finite(self) -> Callable[..., dict[str, jax.Array]]:
        return self._part.simulation.are_finite


def run_together(folders: Sequence[Path], keys: Sequence[str], parts: int | None = None) -> int:
    """Runs the frozen configurations in `folders` together and records in each folder how its run ended. A run has
    `devices.count` devices, or one. `parts` of so many devices step members side by side; by default all that the
    GPUs of this process give, and one on processors.

    Returns CANNOT if the step cannot be compiled for all of them, else 0.
    """
    configs = [load_config(folder / CONFIG, check_files=False) for folder in folders]
    devices = configs[0].devices
    each, allocation = 1 if devices.count == "auto" else devices.count, discover(os.environ)
    parts = parts or _parts(configs[0], each, allocation)
    parts = -(-len(configs) // -(-len(configs) // parts))  # none without a run
    one = configs[0].model_copy(update={"devices": devices.model_copy(update={"count": each * parts})})
    cluster = connect(one, allocation, members=parts)
    try:
        ensemble = Ensemble([one, *configs[1:]], keys, cluster, parts)
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


def _parts(config: RunConfig, each: int, allocation: Allocation) -> int:
    """The number of parts of `each` devices that the GPUs of this process give; 1 on processors."""
    if not can_have_members(config):
        return 1
    platform = choose_platform(allocation, config.devices.platform, lambda line: None)
    return max(1, len(gpu_ids(allocation)) // each) if platform == "gpu" else 1


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
                simulation = Member(config, ensemble, number, RunInputs(folder / "inputs"), log.say)
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
    """`python -m simulator.study.ensemble JSON`, started by `sweep run`."""
    job = json.loads(arguments[0])
    try:
        return run_together([Path(folder) for folder in job["folders"]], job["keys"], job["members"])
    except (UserError, RunFailure) as error:
        print(error, flush=True)
        return 2 if isinstance(error, UserError) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
