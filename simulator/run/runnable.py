"""The simulation of a script or a notebook: it runs, with all the output that its configuration asks for."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from simulator.config import RunConfig, as_mapping
from simulator.config.load import make_config
from simulator.measurements.python import PythonOutputSettings
from simulator.models.equation import Equation
from simulator.processes.start import Cluster
from simulator.read.display import flat, picture, table
from simulator.run.execute import execute
from simulator.simulation.equation import model_name
from simulator.simulation.inputs import Inputs
from simulator.simulation.simulation import Report, Simulation


class RunnableSimulation(Simulation):
    """A simulation that a script or a notebook holds and runs; the package exports it as `Simulation`.

        from simulator import Simulation, load_config
        simulation = Simulation(load_config("run.yaml", ["time.stop=1"]))

    or, without a file, by the blocks of one, as mappings or as settings objects:

        simulation = Simulation(
            model={"kind": "navier_stokes", "viscosity": 0.01},
            grid={"shape": [64, 64, 64]},
            initial={"kind": "taylor_green"},
            time={"stop": 1},
        )
        simulation.fields["velocity"]         # values (3, x, y, z) on the grid
        simulation.every(0.1, function)       # a series of your own
        simulation.run()                      # runs to the end, with all output; interrupted, it continues

    The class of an equation of one's own may stand in the place of `model`, or of its key `equation`.
    """

    def __init__(
        self,
        config: RunConfig | None = None,
        *,
        cluster: Cluster | None = None,
        inputs: Inputs | None = None,
        report: Report = print,
        **blocks: Any,
    ):
        inputs = inputs or Inputs()
        if config is None:
            config = make_config({**blocks, "model": _named(blocks.get("model"), inputs)})
        elif blocks:
            raise TypeError("give a configuration or the blocks of one, not both")
        super().__init__(config, cluster=cluster, inputs=inputs, report=report)

    def every(self, interval: float, function: Callable[..., Any], name: str | None = None) -> None:
        """Calls `function(fields, time)` every `interval` of simulation time during `run`, and keeps the numbers and
        small arrays that it returns by name, in a series RUN/NAME.h5 (by default of the function's name), which
        `plot` draws.

        `fields["velocity"]` are values on the devices, traced by JAX: the function is compiled once. It is what
        `output.python` is in a file. The file that it stands in is kept with the run.
        """
        path = _source(function)
        self.inputs.give(path, function.__name__, function)
        settings = PythonOutputSettings.model_construct(
            path=Path(path), function=function.__name__, name=name, every=float(interval), parameters={}
        )
        output: Any = self.config.output
        others = tuple(one for one in output.python or () if one.series != settings.series)
        output = output.model_copy(update={"python": (*others, settings)})
        self.config = self.config.model_copy(update={"output": output})

    def run(self, **options: Any) -> int:
        """Runs to the end with all output; returns the exit code: 3 where it was interrupted, and goes on when it is
        called again. Options: see `simulator.run.execute.execute`."""
        return execute(self, **options)

    def _repr_html_(self) -> str:
        config = as_mapping(self.config)
        state = self.state
        rows = flat(
            {block: config[block] for block in ("model", "grid", "initial", "time") if block in config}
        )
        rows |= {
            "state": f"step {int(state.step)}, t = {float(state.time):g}",
            "devices": len(self.cluster.devices),
        }
        shown = self.model.pictured[:1]
        if not shown or self.cluster.num_processes > 1:
            return table(rows, f"{self.config.name}: {model_name(self.config)}")
        values = np.asarray(self.fields[shown[0]])
        plane = values if values.ndim == 2 else values[:, :, values.shape[2] // 2]
        return table(rows, f"{self.config.name}: {model_name(self.config)}", picture(plane, shown[0]))


def _named(model: Any, inputs: Inputs) -> Any:
    """The block `model`, with the name of an equation's class in the place of the class."""
    block = {"equation": model} if inspect.isclass(model) else model
    if not isinstance(block, dict) or not inspect.isclass(equation := block.get("equation")):
        return block
    if not issubclass(equation, Equation):
        raise TypeError(f"{equation.__name__} is no equation; derive it from simulator.equations.Equation")
    path = _source(equation)
    inputs.give(path, equation.__name__, equation)
    return {"kind": "python", **block, "path": path, "equation": equation.__name__}


def _source(thing: Any) -> str:
    """The file that a class or a function stands in; of a notebook's cell a name for it."""
    try:
        path = inspect.getsourcefile(thing)
    except TypeError:  # a class of __main__ that has no file
        path = None
    return str(Path(path or "notebook.py").absolute())
