"""Trajectories for a training from a process that runs beside it.

The process, `python -m simulator.plugins.datasets.producer`, connects to this one by a socket, which a Slurm
step on another node can reach, too, and waits while the reservoir holds enough."""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

import numpy as np

from simulator.errors import RunFailure, UserError
from simulator.plugins.datasets.reservoir import Reservoir

SECRET = "SIMULATOR_STREAM_SECRET"
_OTHERS = (
    *("SLURM_", "PMI_", "PMIX_", "OMPI_", "MPI_", "FLUX_", "PALS_"),
    *("SIMULATOR_P", "SIMULATOR_N"),
)
"""Beginnings of the variables that would make the process one of this job's."""
LOOK = 0.5  # Seconds between two looks whether the other process has ended.
PATIENCE = 5.0  # Seconds within which a connection has to show that it knows the secret.
Sample = dict[str, Any]


class Beside:
    """Samples of the trajectories of a study; each iteration computes the study once more.

    A sample is a dict: the values of each field (time, component, x, y, z) as numpy arrays, `time`
    (time,), `run`, the number of the run, and `parameters`, its swept numbers by key."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        reservoir: int,
        window: int | None,
        repeat: bool,
        launcher: Sequence[str],
        environ: Mapping[str, str],
    ):
        """`arguments` of `stream` in the other process; the others are those of
        `TrajectoryStream.beside`."""
        self._arguments = arguments
        self._size = reservoir
        self._window = window
        self._repeat = repeat
        self._launcher = tuple(launcher)
        self._environ = dict(environ)

    def __iter__(self) -> Iterator[Sample]:
        """Raises RunFailure with the last line of the other process if it fails."""
        seed = self._arguments["seed"]
        reservoir = Reservoir[Sample](self._size, seed, repeat=self._repeat)
        places = np.random.default_rng(seed)
        secret = secrets.token_hex(16)
        host = socket.gethostname() if self._launcher else "localhost"
        with socket.create_server((host, 0)) as listener:
            process = self._started(listener, secret)
            worker = threading.Thread(
                target=_receive, args=(listener, secret, process, reservoir), daemon=True
            )
            worker.start()
            try:
                for sample in reservoir:
                    yield _windowed(sample, self._window, places)
            finally:
                reservoir.end()
                process.terminate()
                process.wait()
                worker.join()

    def torch(self) -> Any:
        """The samples as a `torch.utils.data.IterableDataset`, whose arrays are tensors. Raises
        UserError if torch is not installed, or in a worker of a DataLoader besides the first: the
        other process is the worker."""
        try:
            import torch  # pyright: ignore[reportMissingImports] - optional
            from torch.utils import data  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise UserError("stream: torch() needs torch: pip install torch") from None

        def tensors(sample: Sample) -> Sample:
            return {
                name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
                for name, value in sample.items()
            }

        samples = self

        class TorchSamples(data.IterableDataset):
            def __iter__(self) -> Iterator[Sample]:
                worker = data.get_worker_info()
                if worker is not None and worker.num_workers > 1:
                    raise UserError(
                        "stream: num_workers must be 0 or 1; another process computes already"
                    )
                return map(tensors, samples)

            def __reduce__(self) -> tuple[Any, ...]:  # a local class cannot be pickled by name
                return Beside.torch, (samples,)

        return TorchSamples()

    def _started(self, listener: socket.socket, secret: str) -> subprocess.Popen[str]:
        host, port = listener.getsockname()[:2]
        order = {**self._arguments, "host": host, "port": port}
        command = [sys.executable, "-m", "simulator.plugins.datasets.producer", json.dumps(order)]
        kept = {
            name: value
            for name, value in os.environ.items()
            if self._launcher or not name.startswith(_OTHERS)
        }
        return subprocess.Popen(
            [*self._launcher, *command],
            env={**kept, **self._environ, SECRET: secret},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )


def _windowed(sample: Sample, window: int | None, places: np.random.Generator) -> Sample:
    """A random window of the frames of a sample."""
    frames = len(sample["time"])
    first = 0 if window is None else int(places.integers(frames - window + 1))
    chosen = slice(first, first + (window or frames))
    return {n: v[chosen] if isinstance(v, np.ndarray) else v for n, v in sample.items()}


def _receive(
    listener: socket.socket,
    secret: str,
    process: "subprocess.Popen[str]",
    reservoir: Reservoir[Sample],
) -> None:
    """Puts what the process sends into the reservoir, until it ends."""
    said: list[str] = []

    def listen_to_errors() -> None:
        assert process.stderr is not None
        said.extend(line.strip() for line in process.stderr if line.strip())

    watching = threading.Thread(target=listen_to_errors, daemon=True)
    watching.start()
    try:
        with contextlib.closing(_accepted(listener, secret, process)) as connection:
            while (sample := _next_sample(connection)) is not None and reservoir.put(sample):
                pass
        reservoir.end()
    except (OSError, EOFError):
        watching.join()
        reservoir.end(RunFailure(f"stream: {said[-1] if said else 'the process has ended'}"))


def _accepted(listener: socket.socket, secret: str, process: "subprocess.Popen[str]") -> Connection:
    """The connection of the process that knows the secret. Others, which may be silent, are shut.
    Raises EOFError if the process ends before it has connected."""
    listener.settimeout(LOOK)
    while process.poll() is None:
        try:
            stranger = listener.accept()[0]
        except TimeoutError:
            continue
        if (connection := _challenged(stranger, secret.encode())) is not None:
            return connection
    raise EOFError


def _challenged(stranger: socket.socket, secret: bytes) -> Connection | None:
    """The connection of a peer that knows the secret; None, and closed, for another one."""
    stranger.settimeout(None)
    connection = Connection(os.dup(stranger.fileno()))

    def shut() -> None:
        with contextlib.suppress(OSError):
            stranger.shutdown(socket.SHUT_RDWR)

    # `Connection` has no time limits; this ends the reads from a peer that is silent.
    limit = threading.Timer(PATIENCE, shut)
    limit.start()
    try:
        deliver_challenge(connection, secret)
        answer_challenge(connection, secret)
    except (OSError, EOFError, AssertionError, AuthenticationError):
        connection.close()
        return None
    finally:
        limit.cancel()
        limit.join()
        stranger.close()
    return connection


def _next_sample(connection: Connection) -> Sample | None:
    """The next sample, or None at the end."""
    header = json.loads(connection.recv_bytes())
    if header is None:
        return None
    sample: Sample = {"run": header["run"], "parameters": header["parameters"]}
    for name, dtype, shape in header["arrays"]:
        values = np.frombuffer(bytearray(connection.recv_bytes()), dtype)
        sample[name] = values.reshape(shape)
    return sample


def send(connection: Connection, run: int, parameters: Mapping[str, float], arrays: Sample) -> None:
    """Sends a sample to the training."""
    forms = [(name, values.dtype.str, values.shape) for name, values in arrays.items()]
    header = {"run": run, "parameters": dict(parameters), "arrays": forms}
    connection.send_bytes(json.dumps(header).encode())
    for values in arrays.values():
        connection.send_bytes(np.ascontiguousarray(values).tobytes())


def send_end(connection: Connection) -> None:
    connection.send_bytes(b"null")
