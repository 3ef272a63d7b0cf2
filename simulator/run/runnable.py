"""A simulation for scripts and notebooks, which can run with all the output of its
configuration."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from simulator.archive.open_run import picture
from simulator.archive.provenance import earlier_choice
from simulator.archive.stored_state import RunInputs
from simulator.cluster import discover
from simulator.cluster.start import Cluster
from simulator.config import RunConfig
from simulator.config.load import make_config
from simulator.errors import UserError, shown
from simulator.measure.python_series import PythonOutputSettings
from simulator.physics.models import outputs
from simulator.physics.models.equation import Equation
from simulator.run.execute import execute
from simulator.simulation.equation import model_name
from simulator.simulation.placement import connect
from simulator.simulation.simulation import Report, Simulation
from simulator.words import Shown


class RunnableSimulation(Shown, Simulation):
    """A simulation that a script or a notebook holds and runs. The package exports it as
    `Simulation`.

        from simulator import Simulation, load_config
        simulation = Simulation(load_config("run.yaml", ["time.stop=1"]))

    or, without a file, from the blocks of a configuration, as mappings or as settings objects:

        simulation = Simulation(
            model={"kind": "navier_stokes", "viscosity": 0.01},
            grid={"shape": [64, 64, 64]},
            initial={"kind": "taylor_green"},
            time={"stop": 1},
        )
        simulation.fields["velocity"]         # values (3, x, y, z) on the grid
        simulation.every(0.1, function)       # a series of your own
        simulation.run()                      # runs to the end, with all output; interrupted, it continues

    `model`, or its key `equation`, may also be the class of an equation."""

    def __init__(
        self,
        config: RunConfig | None = None,
        *overrides: object,
        cluster: Cluster | None = None,
        inputs: RunInputs | None = None,
        report: Report = print,
        members: int = 1,
        **blocks: Any,
    ):
        inputs = inputs or RunInputs()
        if blocks and config is not None:
            raise TypeError("give a configuration or the blocks of one, not both")
        if overrides or not isinstance(config, RunConfig | None):
            raise UserError(
                f"Simulation: takes a configuration, not {shown(config)}; "
                'read a file by Simulation(load_config("run.yaml", ["time.stop=1"]))'
            )
        if config is None:
            config = make_config({**blocks, "model": _named(blocks.get("model"), inputs)})
        super().__init__(
            config,
            cluster=cluster or connect(config, discover(os.environ), members=members),
            inputs=inputs,
            report=report,
            members=members,
            earlier=earlier_choice(config),
        )

    def every(self, interval: float, function: Callable[..., Any], name: str | None = None) -> None:
        """Calls `function(fields, time)` every `interval` of simulation time during `run`. The
        function returns numbers and small arrays by name, which the run writes to the series
        RUN/NAME.h5 (`name`: by default the name of the function), and `plot` draws.

        `fields["velocity"]` holds values on the devices, traced by JAX: the function is compiled
        once. The key `output.python` of a file does the same. The run keeps a copy of the
        function's source file."""
        path = _source(function)
        self.inputs.give(path, function.__name__, function)
        settings = PythonOutputSettings.model_construct(
            path=Path(path),
            function=function.__name__,
            name=name,
            every=float(interval),
            parameters={},
        )
        output: Any = self.config.output
        others = tuple(python for python in output.python or () if python.series != settings.series)
        self.config = self.config.changed(output={"python": (*others, settings)})

    def run(self, **options: Any) -> int:
        """Runs to the end with all output. Returns the exit code, which is 3 if the run was
        interrupted; another call then continues the run. For the options see
        `simulator.run.execute.execute`."""
        if (members := self.placement.members) > 1:
            raise UserError(
                f"run: runs one simulation on all devices, and members={members} divides them; leave members out, or "
                "run ensembles with `simulator sweep run --batch auto`"
            )
        return execute(self, **options)

    def shown(self) -> tuple[str, dict[str, Any]]:
        state = self.state
        now = {
            "state": f"step {int(state.step)}, t = {float(state.time):g}",
            "devices": len(self.cluster.devices),
        }
        return f"{self.config.name}: {model_name(self.config)}", {**self.config.shown()[1], **now}

    def picture(self) -> str:
        named = outputs.pictured_fields(self.model)[:1]
        if not named or self.cluster.num_processes > 1:
            return ""
        values = np.asarray(self.fields[named[0]])
        if values.ndim == 1:
            return ""
        return picture(values if values.ndim == 2 else values[:, :, values.shape[2] // 2], named[0])


def _named(model: object, inputs: RunInputs) -> Any:
    """The block `model`, with the class of an equation replaced by its name."""
    block = {"equation": model} if inspect.isclass(model) else model
    if not isinstance(block, dict) or not inspect.isclass(equation := block.get("equation")):
        return block
    if not issubclass(equation, Equation):
        raise TypeError(
            f"{equation.__name__} is not an equation; derive it from simulator.equations.Equation"
        )
    path = _source(equation)
    inputs.give(path, equation.__name__, equation)
    return {"kind": "python", **block, "path": path, "equation": equation.__name__}


def _source(thing: type | Callable[..., Any]) -> str:
    """The source file of a class or a function; a placeholder for an object defined in a
    notebook."""
    try:
        path = inspect.getsourcefile(thing)
    except (OSError, TypeError):  # a class of __main__, which in a notebook has no file
        path = None
    return str(Path(path or "notebook.py").absolute())
