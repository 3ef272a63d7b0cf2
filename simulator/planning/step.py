"""What a step needs of a device: the memory that it holds and the work that it does."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from simulator.config import RunConfig
from simulator.planning.graph import Graph, Kind, Operation, whole
from simulator.planning.liveness import COMPILERS, bytes_held
from simulator.planning.paper import Platform, paper_simulation
from simulator.planning.work import Work, work_of

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
    def memory(self) -> float:
        """Bytes that the compiled loop over steps holds: state, temporary arrays, results."""
        return bytes_held(self.loop, COMPILERS[self.platform])

    @cached_property
    def work(self) -> Work:
        """What a step reads, computes, writes and sends."""
        return work_of(self.loop, COMPILERS[self.platform])

    @cached_property
    def state(self) -> float:
        """Bytes of the state."""
        import jax

        return sum(map(self._size, jax.tree.leaves(self.simulation.template)))

    @cached_property
    def output_memory(self) -> float:
        """Bytes held while a snapshot is written: the state, and the largest field's values as they are made."""
        simulation = self.simulation
        names = simulation.config.output.snapshots.fields or tuple(simulation.model.components)
        return self.state + max(self._held(simulation.values(name)) for name in names)

    @cached_property
    def diagnostics_memory(self) -> float:
        """Bytes held while a row of diagnostics is computed, the state included."""
        return self.state + self._held(self.simulation.diagnostics)

    @property
    def largest(self) -> float:
        """Bytes at the worst moment of a run."""
        return max(self.memory, self.output_memory, self.diagnostics_memory)

    def _held(self, function: Callable[..., Any]) -> float:
        graph = self._graph(function, self.simulation.template)
        whole_program = Operation("call", Kind.LOOP, [], [], {}, graph)
        return bytes_held(whole_program, COMPILERS[self.platform])

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
