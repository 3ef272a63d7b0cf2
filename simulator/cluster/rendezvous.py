"""How the processes of a Slurm step find their coordinator.

Process 0 claims a port, starts the service on it and, once the service listens, publishes host and port
as a file in the shared run folder, by rename. The file's name holds job, step, restart count and the port
of the srun that started the step, so that no two steps ever read each other's. The others list the folder
(a listing, unlike a stat, is not answered from a network file system's negative cache).
"""

import contextlib
import json
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulator.cluster.allocation import PORTS
from simulator.errors import RunFailure

_PREFIX = ".coordinator-"
WAIT = 120.0


@dataclass
class Claim:
    """A port of this host that no other process of ours has; release() gives it up.

    gRPC listens with SO_REUSEPORT: two services of one user share a port without an error, and answer
    each other's processes. The UDP socket of the same number, bound exclusively, keeps ours apart.
    """

    port: int
    _keeper: socket.socket = field(repr=False)

    def release(self) -> None:
        self._keeper.close()


def claim_port(candidates: Sequence[int] = PORTS, host: str = "") -> Claim:
    """Claims one of the candidates, tried in random order. Raises RunFailure when none is free."""
    for port in random.sample(candidates, min(len(candidates), 200)):
        keeper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            keeper.bind((host, port))
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.bind((host, port))
            return Claim(port, keeper)
        except OSError:
            keeper.close()
    ports = str(candidates[0]) if len(candidates) == 1 else f"{candidates[0]} to {candidates[-1]}"
    raise RunFailure(
        f"no free port on {socket.gethostname()} among {ports}; give one with --coordinator HOST:PORT"
    )


def listens(port: int) -> bool:
    """Whether this process itself listens on the TCP port (where /proc tells; else whether anyone does)."""
    try:
        own = {os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if entry.is_symlink()}
        rows: list[list[str]] = []
        for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
            with contextlib.suppress(FileNotFoundError):
                rows += [line.split() for line in Path(table).read_text().splitlines()[1:]]
    except OSError:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False
    # columns: sl local_address rem_address st ... inode; 0A is LISTEN
    return any(
        row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port and f"socket:[{row[9]}]" in own
        for row in rows
    )


def serve(folder: Path, name: str, host: str, initialize: Callable[[int], None], tries: int = 5) -> Claim:
    """Starts the service by `initialize(port)` and publishes it; for process 0.

    `initialize` blocks until the others have come, so a thread publishes as soon as the service listens.
    Where the service does not start, another port is tried. The file is there until `retract`.
    Raises what `initialize` raised last.
    """
    path = folder / f"{_PREFIX}{name}"
    draft = _draft(path)
    for attempt in range(tries):
        claim = claim_port()
        failed, published = threading.Event(), threading.Event()
        publisher = threading.Thread(
            target=_publish, args=(draft, path, host, claim.port, failed, published), daemon=True
        )
        publisher.start()
        try:
            initialize(claim.port)
            return claim
        except Exception:
            failed.set()
            publisher.join()
            claim.release()
            # once published, others may be connected: a new service would find half of them gone
            if published.is_set() or attempt == tries - 1:
                draft.unlink(missing_ok=True)
                raise
    raise AssertionError("unreachable")


def _draft(path: Path) -> Path:
    """An empty file beside `path`, so that the folder is there, writable, and stays.

    Raises RunFailure where it is not. Other jobs that meet in the same folder may remove it while it is empty.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    for attempt in range(10):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            draft.touch()
            return draft
        except FileNotFoundError:
            if attempt == 9:
                raise
        except OSError as error:
            raise RunFailure(f"{path.parent}: the processes cannot meet there: {error.strerror}") from error
    raise AssertionError("unreachable")


def _publish(
    draft: Path, path: Path, host: str, port: int, failed: threading.Event, published: threading.Event
) -> None:
    while not listens(port):
        if failed.wait(0.02):
            return
    published.set()
    draft.write_text(json.dumps({"host": host, "port": port}))
    draft.replace(path)


def retract(folder: Path, name: str) -> None:
    """Removes the published file, when all have read it."""
    with contextlib.suppress(OSError):
        (folder / f"{_PREFIX}{name}").unlink()


def is_rendezvous(name: str) -> bool:
    """Whether a file of this name in a run folder is ours, so that the folder still counts as empty."""
    return re.match(re.escape(_PREFIX), name) is not None


def find(folder: Path, name: str, expected_host: str | None, wait: float = WAIT) -> str:
    """`host:port` of the coordinator, once process 0 has published it; for the other processes.

    Raises RunFailure, naming file and host, after `wait` seconds.
    """
    path = folder / f"{_PREFIX}{name}"
    end = time.monotonic() + wait
    while True:
        with contextlib.suppress(OSError, ValueError):
            if path.name in os.listdir(folder):
                found = json.loads(path.read_text())
                return f"{found['host']}:{found['port']}"
        if time.monotonic() > end:
            raise RunFailure(
                f"process 0 on {expected_host or 'the first node'} did not publish {path} in {wait:.0f} s: "
                "it did not start, or this folder is not shared between the nodes"
            )
        time.sleep(0.1)
