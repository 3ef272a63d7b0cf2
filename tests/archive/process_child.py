"""One of several processes: `python process_child.py SCENE FOLDER PORT COUNT ID` (test_processes.py)."""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from storage_support import XYZ, grid, random_field

from simulator.archive.manifest import Axis, committed
from simulator.archive.reader import open_snapshot
from simulator.archive.restore import restore
from simulator.archive.shard import Dataset
from simulator.archive.verify import verify
from simulator.archive.writer import Writer, save
from simulator.errors import RunFailure

VELOCITY = random_field(3, 6, 8, 7)
MODES = random_field(5, 4, dtype=np.complex128)
KX = Axis.modes("kx", [0, 1, 2, -2, -1])
KY = Axis.modes("ky", [0, 1, 2, 3])


class Together:
    """`Processes` by JAX's public collectives."""

    def __init__(self) -> None:
        self.process_id, self.num_processes = jax.process_index(), jax.process_count()

    def any(self, flags: np.ndarray) -> np.ndarray:
        return np.asarray(multihost_utils.process_allgather(np.asarray(flags))).any(axis=0)

    def gather(self, obj: Any) -> list[Any]:
        text = np.frombuffer(json.dumps(obj).encode(), np.uint8)
        lengths = np.asarray(multihost_utils.process_allgather(np.array([text.size]))).reshape(-1)
        padded = np.zeros(lengths.max(), np.uint8)
        padded[: text.size] = text
        rows = np.asarray(multihost_utils.process_allgather(padded)).reshape(len(lengths), -1)
        return [json.loads(bytes(row[:n])) for row, n in zip(rows, lengths, strict=True)]

    def broadcast(self, obj: Any) -> Any:
        return self.gather(obj)[0]


def sharding(mesh_shape: tuple[int, ...], *spec: str | None) -> NamedSharding:
    names = ("a", "b")[: len(mesh_shape)]
    mesh = jax.make_mesh(mesh_shape, names, axis_types=(AxisType.Auto,) * len(names))
    return NamedSharding(mesh, PartitionSpec(*spec))


def globally(values: np.ndarray, where: NamedSharding) -> jax.Array:
    """`values`, padded with NaN at the end of sharded axes, over the devices of all processes."""
    shape = list(values.shape)
    for i, name in enumerate(where.spec):  # shorter than the shape where the last axes are whole
        shape[i] += -shape[i] % (where.mesh.shape[name] if name else 1)
    padded = np.full(shape, np.nan, values.dtype)
    padded[tuple(slice(n) for n in values.shape)] = values
    return jax.make_array_from_callback(tuple(shape), where, lambda index: padded[index])


def state(step: int) -> list[Dataset]:
    n = jax.device_count()
    pencils = sharding((2, n // 2), None, "a", None, "b") if n % 2 == 0 else sharding((n,), None, None, "a")
    slabs = sharding((n,), "a", None)
    everywhere = sharding((n,))
    return [
        Dataset("velocity", globally(VELOCITY + step, pencils), grid(6, 8, 7), XYZ),
        Dataset("modes", globally(MODES * step, slabs), (KX, KY)),
        Dataset("table", globally(np.arange(4.0), everywhere)),
        Dataset("step", step),
    ]


def check(folder: Path, step: int) -> None:
    """Each process restores its part on another layout and compares it with what was saved."""
    n = jax.device_count()
    x, y, z = grid(6, 8, 7)
    turned = restore(folder, "velocity", sharding((n,), None, "a"), (y, z, x), (8 + -8 % n, 7, 6))
    expected = np.pad((VELOCITY + step).transpose(0, 2, 3, 1), [(0, 0), (0, -8 % n), (0, 0), (0, 0)])
    for shard in turned.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), expected[shard.index])
    columns = restore(folder, "modes", sharding((n,), "a", None), (KY, KX), (4 + -4 % n, 5))
    expected = np.pad((MODES * step).T, [(0, -4 % n), (0, 0)])
    for shard in columns.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), expected[shard.index])
    np.testing.assert_array_equal(open_snapshot(folder)["table"][...], np.arange(4.0))
    assert open_snapshot(folder)["step"][()] == step


def saved_and_restored(folder: Path, cluster: Together) -> None:
    check(save(folder, 3, state(3), {"time": 0.3}, cluster=cluster), 3)
    for step in (1, 2):  # written by the test, in one process
        check(folder / f"0000000{step}", step)


def in_the_background(folder: Path, cluster: Together) -> None:
    writer = Writer(
        cluster, hook=lambda stage: time.sleep(0.2 * cluster.process_id) if stage == "folder made" else None
    )
    compute = jax.jit(lambda a: a * 2)
    for step in (1, 2):
        datasets = state(step)
        writer.submit(folder, step, datasets, {"time": 0.0})
        assert writer.outstanding
        polls, done = 0, None
        while done is None:  # the computation's collectives and those of the save, in turn
            compute(datasets[0].array).block_until_ready()
            done, polls = writer.poll(), polls + 1
            assert polls < 10_000
        assert polls > 2
        check(done, step)
    writer.close()


def one_disk_is_full(folder: Path, cluster: Together) -> None:
    good = save(folder, 1, state(1), {"time": 0.0}, cluster=cluster)
    for victim in range(cluster.num_processes):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        if cluster.process_id == victim:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        try:
            save(folder, 2, state(2), {"time": 0.0}, cluster=cluster)
            raise AssertionError("nobody noticed")
        except RunFailure as error:
            lines = cluster.gather(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert len(set(lines)) == 1 and "\n" not in lines[0], lines
        assert f"process {victim} on" in lines[0] and "File too large" in lines[0]
        assert committed(folder) == [good] and not list(folder.glob(".tmp*"))
    check(save(folder, 2, state(2), {"time": 0.0}, cluster=cluster), 2)
    assert verify(good).ok


def killed(folder: Path, cluster: Together) -> None:
    victim, stage = json.loads((folder / "kill.json").read_text())

    def hook(reached: str) -> None:
        if reached == stage and cluster.process_id == victim:
            os.kill(os.getpid(), signal.SIGKILL)

    save(folder, 2, state(2), {"time": 0.0}, cluster=cluster, hook=hook)


def main() -> None:
    scene, folder, port, count, number = sys.argv[1:]
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", 2 if int(count) == 2 else 1)
    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(f"127.0.0.1:{port}", int(count), int(number), heartbeat_timeout_seconds=10)
    globals()[scene](Path(folder), Together())
    multihost_utils.sync_global_devices("end")


if __name__ == "__main__":
    main()
