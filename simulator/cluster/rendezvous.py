"""Lets the processes of a run find process 0, and claims the ports at which process 0 listens.

Process 0 claims a port and publishes host, port and the run's secret as a file in the shared run
folder, by rename; only the user may read the file. The other processes connect to the port
(`meeting`). In a Slurm step the file's name contains job, step, restart count and the port of the
srun that started the step, so that no two steps read each other's file. The other processes list
the folder, because network file systems cache missing files."""

import contextlib
import json
import os
import random
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulator.cluster.allocation import PORTS
from simulator.errors import RunFailure
from simulator.files import dataclass_from, read_json

_PREFIX = ".coordinator-"


@dataclass(frozen=True)
class Place:
    """The address of process 0 (`host:port`), and the secret of its run."""

    address: str
    secret: str = field(repr=False)


@dataclass
class Claim:
    """A port of this host that no other process of this program uses until `release` is called.

    gRPC listens with SO_REUSEPORT, so that two services of one user may share a port without an
    error and answer each other's processes. The claim binds the UDP port of the same number
    exclusively, which other claims of it notice."""

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
    """Whether a process of this host listens on the TCP port."""
    with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
        return True
    return False


def start_service(
    initialize: Callable[[int], None], announce: Callable[[int], None], port: int | None = None
) -> Claim | None:
    """Called by process 0: starts JAX's service with `initialize(port)` and announces the port
    (default: a free one). Returns the claim on a port that this function has chosen.

    `initialize` blocks until all other processes have connected, so a thread announces the port as
    soon as the service listens."""
    claim = claim_port() if port is None else None
    chosen = claim.port if claim else port
    assert chosen is not None
    ended = threading.Event()

    def announced() -> None:
        while not ended.wait(0.02):
            if listens(chosen):
                return announce(chosen)

    threading.Thread(target=announced, daemon=True).start()
    try:
        initialize(chosen)
    except BaseException:
        if claim is not None:
            claim.release()
        raise
    finally:
        ended.set()
    return claim


def publish(folder: Path, name: str, place: Place) -> None:
    """Called by process 0: publishes its place in `folder`, until `retract`. Raises RunFailure if
    that fails."""
    path = folder / f"{_PREFIX}{name}"
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    # jobs that meet in the same folder remove the folder while it is empty
    for attempt in range(10):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in (path, draft):  # left by a start that was killed
                old.unlink(missing_ok=True)
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            break
        except FileNotFoundError:
            if attempt == 9:
                raise
        except OSError as error:
            raise RunFailure(
                f"{folder}: the processes cannot meet there: {error.strerror}"
            ) from error
    draft.write_text(json.dumps({"address": place.address, "secret": place.secret}))
    draft.replace(path)


def retract(folder: Path, name: str) -> None:
    """Called by process 0: removes the published file after all processes have read it."""
    with contextlib.suppress(OSError):
        (folder / f"{_PREFIX}{name}").unlink()


def published_place(folder: Path, name: str, mine: bool = False) -> Place | None:
    """Called by the other processes: the place of process 0, or None while it is not published.
    `mine`: only a file of this user counts."""
    path = folder / f"{_PREFIX}{name}"
    with contextlib.suppress(OSError):
        if path.name in os.listdir(folder) and (not mine or path.stat().st_uid == os.getuid()):
            return dataclass_from(Place, read_json(path))
    return None
