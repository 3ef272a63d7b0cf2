"""What the storage tests share: fields, layouts, folders of many shards, and processes that may be
killed."""

import contextlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from process_server import fork

from simulator.archive.derived import make_derived
from simulator.archive.manifest import Axis, FieldEntry, Manifest, name_of_step
from simulator.archive.shard import Block, Dataset, build_shard, shard_name
from simulator.archive.snapshot_writer import Options, Writer, commit
from simulator.files import write_durably

XYZ = (("x", "y", "z"),)
STAGES = (
    "copied",  # host copies taken, nothing on disk
    "folder made",  # the temporary folder exists
    "shard written",  # this process's shard is synced and has its final name
    "gathered",  # process 0 has the records of all shards
    "manifest written",  # the manifest is synced, in the temporary folder
    "before rename",  # all names are synced, nothing is committed
    "moved aside",  # an older folder of the same step, if any, has been renamed
    "renamed",  # the save is committed
    "committed",  # the parent folder is synced
    "index written",
    "done",  # every process knows the result
)
"""The stages of a save in order; the hook is called with each name when the stage is reached."""


def grid(*shape: int) -> tuple[Axis, ...]:
    """Axes x, y, z of a box of length 1."""
    return tuple(Axis.uniform(n, size, 1 / size) for n, size in zip("xyz", shape, strict=False))


def random_field(*shape: int, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    return (
        values + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else values
    ).astype(dtype)


def on_devices(
    values: np.ndarray, mesh_shape: tuple[int, ...], split: tuple[int | None, ...]
) -> jax.Array:
    """`values` over a mesh of the first devices: axis i split along mesh axis `split[i]`, padded
    with NaN."""
    names = tuple(f"m{i}" for i in range(len(mesh_shape)))
    count = int(np.prod(mesh_shape))
    mesh = jax.make_mesh(
        mesh_shape, names, axis_types=(AxisType.Auto,) * len(names), devices=jax.devices()[:count]
    )
    pad = [
        (0, -n % mesh_shape[m] if m is not None else 0)
        for n, m in zip(values.shape, split, strict=True)
    ]
    padded = np.pad(values, pad, constant_values=np.nan) if any(p for _, p in pad) else values
    spec = PartitionSpec(*(names[m] if m is not None else None for m in split))
    return jax.device_put(padded, NamedSharding(mesh, spec))


def write_sharded(
    parent: Path,
    step: int,
    arrays: Mapping[str, tuple[np.ndarray, tuple[Axis, ...]]],
    parts: tuple[int, ...],
) -> Path:
    """Commit scalar fields cut into `parts` per axis, one shard for each, as that many processes
    would."""
    fields = {name: FieldEntry(dtype=a.dtype.str, axes=axes) for name, (a, axes) in arrays.items()}
    target = parent / name_of_step(step)
    temporary = target.with_name(f".tmp-{target.name}-test")
    (temporary / "shards").mkdir(parents=True)
    shards = []
    for process, corner in enumerate(itertools.product(*map(range, parts))):
        blocks = {}
        for name, (array, _) in arrays.items():
            edges = [
                np.linspace(0, n, p + 1).astype(int)
                for n, p in zip(array.shape, parts, strict=True)
            ]
            bounds = [slice(int(e[i]), int(e[i + 1])) for e, i in zip(edges, corner, strict=True)]
            blocks[name] = [Block(tuple(b.start for b in bounds), array[tuple(bounds)].copy())]
        pieces, record = build_shard(process, fields, blocks)
        write_durably(temporary / shard_name(process), pieces)
        shards.append(record)
    manifest = Manifest(step=step, time=float(step), fields=fields, shards=tuple(shards))
    commit(temporary, target, manifest, lambda: None, lambda stage: None)
    make_derived(target, manifest)
    return target


class Alone:
    """A cluster of this process alone: every collective is trivial."""

    process_id = 0
    num_processes = 1
    any = broadcast = staticmethod(lambda value: value)
    gather = staticmethod(lambda value: [value])


ALONE: Any = Alone()


def save(
    parent: Path,
    step: int,
    data: Sequence[Dataset],
    attributes: Mapping[str, Any] = {"time": 0.0},
    options: Options = Options(),  # noqa: B008
    **calls: Any,
) -> Path:
    """The committed folder `parent/step` with `data`. `calls` go to the writer."""
    with contextlib.closing(Writer(ALONE, **calls)) as writer:
        writer.submit(parent, step, data, attributes, options=options)
        folder = writer.wait()
    assert folder is not None
    return folder


def tiny(step: int, seed: int | None = None, n: int = 6) -> list[Dataset]:
    """A state that needs no devices: a vector field, a counter and the exact time."""
    values = random_field(3, n, n, n, seed=step if seed is None else seed)
    return [
        Dataset("velocity", values, grid(n, n, n), XYZ),
        Dataset("counter", np.array([step, 7], dtype=np.uint32)),
        Dataset("time", 0.1 * step),
    ]


def in_child(function: Callable[..., None], *arguments: Any, timeout: float = 60) -> int:
    """Exit code of `function(*arguments)` in a process of its own (-9: killed)."""
    return fork(function, *arguments, environ=os.environ).wait(timeout)
