"""What a step does on a device: bytes read and written, arithmetic of the transforms, bytes sent."""

from dataclasses import dataclass, fields
from math import log2, prod

from simulator.planning.fusion import Arrays, Compiler
from simulator.planning.graph import COLLECTIVES, Kind, Operation, Value

PARTIAL = ("slice", "dynamic_slice", "gather")
"""Read a part of their operand."""


@dataclass(frozen=True)
class Work:
    """Of one device and one step. Bytes read and written, by what reads and writes them:"""

    transforms: float = 0.0
    """Fourier transforms: each axis is a pass over its data."""
    blocks: float = 0.0
    """Padding, truncation, packing and the pointwise work: of arrays of a block's size."""
    parcels: float = 0.0
    """The same: of arrays of whole size."""
    modes: float = 0.0
    """In spectral space: the integrator, and what the model does there."""
    flops: float = 0.0
    """Operations of the Fourier transforms, 5 N log2 N for a complex one of N points, half of it for a real one."""
    sent: float = 0.0
    """Bytes given to all-to-alls."""
    exchanges: float = 0.0
    """All-to-alls."""
    kernels: float = 0.0
    """Routines and loops that are started."""

    def __add__(self, other: "Work") -> "Work":
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def times(self, count: float) -> "Work":
        return Work(*(getattr(self, f.name) * count for f in fields(self)))

    @property
    def bytes(self) -> float:
        """All that is read and written."""
        return self.transforms + self.blocks + self.parcels + self.modes


def work_of(loop: Operation, compiler: Compiler) -> Work:
    """The work of one turn of a loop, with that of the loops inside."""
    return _work(Arrays(loop, compiler), in_block=False)


def _work(arrays: Arrays, *, in_block: bool) -> Work:
    total = Work()
    for number, operation in enumerate(arrays.graph.operations):
        if number in arrays.inside:
            inner = arrays.inside[number]
            split = operation.name == "scan" and _visits_blocks(inner)
            total += _work(inner, in_block=in_block or split).times(operation.trips)
        elif any(map(arrays.stored, operation.outputs)) and not (operation.constant and arrays.over_steps):
            total += _of(operation, arrays, in_block)
    return total


def _visits_blocks(arrays: Arrays) -> bool:
    return any(o.kind is Kind.UPDATE for o in arrays.graph.operations)


def _of(operation: Operation, arrays: Arrays, in_block: bool) -> Work:
    written = sum(v.bytes for v in operation.outputs)
    if operation.name == "fft":
        lengths = operation.parameters["fft_lengths"]
        count, real = prod(lengths), "RFFT" in str(operation.parameters["fft_type"]).upper()
        side = max(operation.inputs + operation.outputs, key=lambda v: prod(v.shape))
        flops = (2.5 if real else 5.0) * prod(side.shape) * log2(count) if count > 1 else 0.0
        moved = operation.inputs[0].bytes + written + 2 * (len(lengths) - 1) * written
        return Work(transforms=moved, flops=flops, kernels=len(lengths))
    if operation.name in COLLECTIVES:
        if operation.name != "all_to_all":
            return Work(kernels=1)
        return Work(sent=operation.inputs[0].bytes, exchanges=1, kernels=1)
    read: dict[int, tuple[Value, float]] = {}
    if operation.kind is Kind.UPDATE:
        written = operation.inputs[1].bytes
        given = operation.inputs[1:2]
    else:
        given = operation.inputs
    seen: set[tuple[int, float]] = set()
    most = written if operation.name in PARTIAL else float("inf")
    for value in given:
        _read(arrays, value, read, seen, most)
    moved = sum(size for _, size in read.values())
    if not operation.of_transform:
        return Work(modes=written + moved, kernels=1)
    if not in_block:
        return Work(parcels=written + moved, kernels=1)
    given_whole = set(map(id, arrays.graph.inputs))
    whole = sum(size for value, size in read.values() if id(value) in given_whole)
    if operation.kind is Kind.UPDATE:
        return Work(blocks=moved - whole, parcels=whole + written, kernels=1)
    return Work(blocks=moved - whole + written, parcels=whole, kernels=1)


def _read(
    arrays: Arrays,
    value: Value,
    found: dict[int, tuple[Value, float]],
    seen: set[tuple[int, float]],
    most: float,
) -> None:
    """Adds the arrays in memory that a value is computed from, with the bytes of them that are read: of each at most
    `most` for all that is not in `seen`."""
    if (id(value), most) in seen:
        return
    seen.add((id(value), most))
    if arrays.stored(value):
        before = found.get(id(value), (value, 0.0))[1]
        found[id(value)] = value, min(value.bytes, before + min(value.bytes, most))
        return
    made = value.made_by
    if made is None:
        return
    if made.name in PARTIAL:
        _read(arrays, made.inputs[0], found, seen, min(most, value.bytes))
        return
    for given in made.inputs:
        _read(arrays, given, found, seen, most)
