"""Connects the processes of a run: first the processes meet, then each of them initializes
`jax.distributed`.

A process needs the run's secret to take part: the value of SIMULATOR_SECRET, or a text that process
0 draws and publishes in the run folder, in a file that only the user may read. The tasks of a Slurm
step without a run folder (`doctor`, `bench`) use the name of the step, which keeps steps apart but
is not secret on the cluster. JAX's service, which process 0 starts when all processes have met,
does not check secrets."""

import contextlib
import os
import resource
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import jax

from simulator.cluster import failure, meeting, rendezvous
from simulator.cluster.allocation import SECRET, Allocation
from simulator.cluster.rendezvous import Place
from simulator.errors import RunFailure, UserError

SHUTDOWN = 20  # seconds to wait for the others at the end (JAX's default: 300)
CONNECTION = 60.0  # seconds for JAX to connect processes that have met; longer for more than 512
_ASKS = 1.0  # seconds between two questions where the run folder of process 0 is
_BY_HAND = "by-hand"  # the name under which processes started by hand publish


def join(
    attendee: meeting.Attendee, local_ids: list[int] | None, folder: Path | None
) -> rendezvous.Claim | None:
    """Connects the processes; returns the claim on the port of JAX's service, if any.

    attendee: this process; it waits longer for more than 512 processes (`meeting.patience`). folder:
    the shared folder in which the processes of a step find process 0.

    Raises UserError if the port is in use or the processes differ, NotAllCame if processes do not
    come, RunFailure if JAX fails."""
    allocation = attendee.allocation
    processes = allocation.num_processes
    mistake = attendee.record.get(meeting.REFUSED)
    wait = meeting.BRIEF if mistake else meeting.patience(attendee.seconds, processes)
    attendee = replace(attendee, seconds=wait)
    _allow_connections(processes)

    def initialize(address: str) -> None:
        _initialize(allocation, local_ids, address, meeting.patience(CONNECTION, processes))

    name, secret, shared = _meeting_place(allocation, folder)
    if allocation.process_id > 0:
        find = _place_of_first(allocation, name, secret, shared)
        with _mistaken(mistake):
            address = meeting.attend(find, attendee)
        initialize(address)
        return None

    def guests(server: socket.socket, address: str) -> meeting.Guests:
        with _mistaken(mistake), _published(shared, name, Place(address, secret)):
            return meeting.await_all(server, attendee, secret)

    if allocation.coordinator is not None:
        host, port = _split(allocation.coordinator)
        try:
            server = meeting.open_server(_interface(host), port, processes)
        except OSError as error:
            taken = f"port {port} of this host is in use or not allowed ({error.strerror})"
            raise UserError(f"{taken}: choose another for --coordinator") from None
        # Possibly no other port is open between the hosts: JAX's service takes this port when all
        # processes have met.
        return _serve(guests(server, allocation.coordinator), host, initialize, port)
    host = _own_name(allocation)
    claim = _claimed_port(allocation, shared)
    try:
        server = meeting.open_server("", claim.port, processes)
        return _serve(guests(server, f"{host}:{claim.port}"), host, initialize)
    finally:
        claim.release()


def _claimed_port(allocation: Allocation, shared: Path | None) -> rendezvous.Claim:
    """The port at which process 0 listens: that of the step's name if the others look for it there,
    else any, if they read it in the folder `shared`."""
    if allocation.port is None:
        raise AssertionError("several processes need a coordinator or a Slurm step")
    if shared is None:
        return rendezvous.claim_port([allocation.port])
    if _has_own_port(allocation):
        with contextlib.suppress(RunFailure):  # there processes with another folder look, too
            return rendezvous.claim_port([allocation.port])
    return rendezvous.claim_port()


def _place_of_first(
    allocation: Allocation, name: str, secret: str, shared: Path | None
) -> Callable[[], Place | None]:
    """The function that finds the place of process 0; see `_meeting_place`."""
    address = allocation.coordinator or f"{allocation.coordinator_host or ''}:{allocation.port}"
    if shared is None:
        return lambda: Place(address, secret)
    asked = time.monotonic()
    known = allocation.coordinator is not None or _has_own_port(allocation)

    def find() -> Place | None:
        nonlocal asked
        place = rendezvous.published_place(shared, name)
        if place is None and known and time.monotonic() > asked + _ASKS:
            asked = time.monotonic()
            if (other := meeting.folder_at(address, allocation)) is not None:
                place = rendezvous.published_place(Path(other), name, mine=True)
        return place

    return find


def _has_own_port(allocation: Allocation) -> bool:
    """Whether no other start of this user derives its port from the same name, as launches by Hydra
    do."""
    return allocation.source == "slurm" or bool(os.environ.get("PMIX_NAMESPACE"))


@contextlib.contextmanager
def _mistaken(mistake: str | None) -> Iterator[None]:
    """Turns every failure to meet of a process that refuses the run into its mistake."""
    try:
        yield
    except RunFailure:
        if mistake is None:
            raise
        raise UserError(*mistake.split("\n")) from None


def _meeting_place(allocation: Allocation, folder: Path | None) -> tuple[str, str, Path | None]:
    """Name and, on process 0, secret of the meeting; and the folder in which process 0 publishes
    both, None if the other processes know both already.

    Raises UserError if the processes were started by hand and have neither folder nor
    SIMULATOR_SECRET."""
    name = allocation.rendezvous or _BY_HAND
    secret = allocation.secret
    if folder is not None and not (allocation.coordinator and secret):
        return name, secret or secrets.token_hex(16), folder
    if not (
        allocation.coordinator or allocation.coordinator_host or allocation.source == "explicit"
    ):
        lacking = "the host of process 0 is unknown without a shared run folder"
        raise UserError(f"{lacking}: name it with --coordinator HOST:PORT")
    if secret or allocation.rendezvous:
        return name, secret or name, None
    lacking = f"processes started by hand without a run folder need {SECRET}, the same for all"
    raise UserError(f"{lacking}; make it with: export {SECRET}=$(openssl rand -hex 16)")


@contextlib.contextmanager
def _published(folder: Path | None, name: str, place: Place) -> Iterator[None]:
    """Publishes the place in `folder`, if there is one, while the context is open."""
    if folder is None:
        yield
        return
    missing = [parent for parent in folder.parents if not parent.exists()]
    try:
        rendezvous.publish(folder, name, place)
        yield
    finally:
        rendezvous.retract(folder, name)
        # The run may still be refused, so folders that were made are removed while they are empty.
        # Another step may still use them.
        with contextlib.suppress(OSError):
            for path in (folder, *missing):
                path.rmdir()


def _serve(
    guests: meeting.Guests, host: str, initialize: Callable[[str], None], port: int | None = None
) -> rendezvous.Claim | None:
    """Process 0: starts JAX's service and tells the others its port."""
    try:
        return rendezvous.start_service(
            lambda chosen: initialize(f"{host}:{chosen}"),
            lambda chosen: guests.tell(go=chosen),
            port,
        )
    finally:
        guests.close()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _interface(host: str) -> str:
    """The address at which process 0 listens for connections to `host`: loopback only, or all
    interfaces (empty)."""
    return {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "[::1]": "::1"}.get(host, "")


def _own_name(allocation: Allocation) -> str:
    """A name of this host that other hosts can resolve, preferably the launcher's name."""
    for name in filter(None, (allocation.host, socket.gethostname())):
        with contextlib.suppress(OSError):
            socket.getaddrinfo(name, None)
            return name
    return socket.gethostname()


def _allow_connections(processes: int) -> None:
    """Raises the soft limit on open files (often 1024) so that this process can connect to all
    others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1024 + 4 * processes
    if resource.RLIM_INFINITY not in (soft, hard) and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def _initialize(
    allocation: Allocation, local_ids: list[int] | None, address: str, seconds: float
) -> None:
    host, port = _split(address)
    if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        # otherwise gRPC would try to reach other nodes through the site's web proxy
        os.environ.setdefault("no_grpc_proxy", host.strip("[]"))
    bind = {"": "[::]", "::1": "[::1]"}.get(_interface(host), _interface(host))

    def give_up() -> None:
        name = failure.describe(allocation.process_id, allocation.num_processes)
        few = f"the processes met, but not all connected to {address} within {seconds:.0f} s"
        line = f"simulator: {name}: {few}: one has ended since, or cannot reach that port"
        failure.leave(1, line) if allocation.process_id == 0 else failure.leave(1, log=line)

    # JAX's own timeout ends the process with a C++ stack, so this timer fires first.
    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        jax.distributed.initialize(
            coordinator_address=address,
            num_processes=allocation.num_processes,
            process_id=allocation.process_id,
            local_device_ids=local_ids,
            cluster_detection_method="deactivate",
            coordinator_bind_address=f"{bind}:{port}",
            initialization_timeout=round(seconds) + 60,
            heartbeat_timeout_seconds=failure.HEARTBEAT,
            shutdown_timeout_seconds=SHUTDOWN,
        )
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        this = f"process {allocation.process_id} of {allocation.num_processes} on {socket.gethostname()}"
        raise RunFailure(f"{this} did not join the others at {address}: {reason}") from error
    finally:
        timer.cancel()
