"""What a step needs of a device: the memory that it holds and the work that it does."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, prod
from typing import TYPE_CHECKING, Any

from simulator.config import RunConfig
from simulator.planning.compiled import Program, held
from simulator.planning.fusion import COMPILERS
from simulator.planning.graph import Graph, Operation, whole
from simulator.planning.paper import Platform, paper_simulation, virtual_devices
from simulator.planning.work import Work, work_of
from simulator.spectral.jaxdecomp import NAME as JAXDECOMP
from simulator.spectral.staged import NAME

if TYPE_CHECKING:
    from simulator.run.simulation import Simulation


@dataclass
class Step:
    """A configuration's step on one of its devices. Raises UserError where grid and devices do not fit together."""

    config: RunConfig
    devices: int = 1
    platform: Platform = "cpu"
    simulation: "Simulation" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.simulation = paper_simulation(self.config, self.devices, self.platform)

    @cached_property
    def loop(self) -> Operation:
        """The loop over steps."""
        from simulator.stepping import Until

        until = Until(1.0, 1.0, 1)
        graph = self._graph(self.simulation.advance, self.simulation.template, until)
        loop = next(o for o in graph.operations[::-1] if o.name == "while")
        assert loop.body is not None
        loop.body = loop.body.pruned()
        return loop

    @cached_property
    def work(self) -> Work:
        """What a step reads, computes, writes and sends."""
        return work_of(self.loop, COMPILERS[self.platform])

    @cached_property
    def state(self) -> float:
        """Bytes of the state."""
        import jax

        return sum(map(self._size, jax.tree.leaves(self.simulation.template)))

    # ---- memory ------------------------------------------------------------------------------------------

    @property
    def memory(self) -> float:
        """Bytes that the compiled loop over steps holds: state, temporary arrays, results."""
        return self.held("loop")

    @property
    def output_memory(self) -> float:
        """Bytes held while a snapshot is written: the state, and the largest field's values as they are made."""
        return self.held("output")

    @property
    def diagnostics_memory(self) -> float:
        """Bytes held while a row of diagnostics is computed, the state included."""
        return self.held("diagnostics")

    @property
    def largest(self) -> float:
        """Bytes at the worst moment of a run."""
        return max(self.memory, self.output_memory, self.diagnostics_memory)

    def held(self, program: Program) -> float:
        """Bytes that a compiled program holds on a device, as XLA says; on more devices than programs are compiled
        for, those of as many points a device on fewer, in the ratio of the states, which padding may change."""
        if self.devices <= len(virtual_devices()):
            return held(self.config, self.devices, self.platform, program)
        padded = self.config.fft.backend != JAXDECOMP
        ratio = self.state / self._counterpart.state if padded else 1.0
        return ratio * self._counterpart.held(program)

    @cached_property
    def _counterpart(self) -> "Step":
        """On as many devices as programs are compiled for, with as much of physical space for each as here."""
        count, config, transform = len(virtual_devices()), self.config, self.simulation.transform
        if config.fft.backend != JAXDECOMP:  # more devices may ask for pencils where fewer do not
            plan = transform.name.removeprefix(f"{NAME}_").removesuffix("_in_turn").partition("_block")[0]
            fft = config.fft.model_copy(update={"decomposition": plan})
            config = config.model_copy(update={"fft": fft})
        there = paper_simulation(config, count, self.platform).transform
        shape = tuple(
            ceil(n / transform.physical.parts(axis)) * there.physical.parts(axis)
            for axis, n in zip("xyz", self.config.grid.shape, strict=True)
        )
        grid = config.grid.model_copy(update={"shape": shape})
        return Step(config.model_copy(update={"grid": grid}), count, self.platform)

    # ---- shares of a device --------------------------------------------------------------------------------

    def _graph(self, function: Callable[..., Any], *arguments: Any) -> Graph:
        import jax

        return Graph.of(jax.make_jaxpr(function)(*arguments), self._size)

    def _size(self, aval: Any) -> float:
        """Bytes on a device of an array that is laid out like modes or points."""
        size, shape = whole(aval), tuple(getattr(aval, "shape", ()))
        if len(shape) < 3:
            return size
        for arrangement in self._arrangements:
            extents = list(zip(arrangement.order, shape[-3:], arrangement.shape, strict=True))
            if all(n in (1, full) for _, n, full in extents):
                return size / prod(arrangement.parts(axis) for axis, n, _ in extents if n > 1)
        return size

    @cached_property
    def _arrangements(self) -> list[Any]:
        """Of modes and points of all transforms of the model."""
        return [a for t in _transforms(self.simulation.model) for a in (t.layout, t.physical)]


def _transforms(model: Any) -> Iterator[Any]:
    """The transforms of a model and of what it consists of."""
    for part in vars(model).values():
        if hasattr(part, "evaluate"):
            yield part
        for component in part.values() if isinstance(part, Mapping) else ():
            if hasattr(component, "__dict__"):
                yield from _transforms(component)
