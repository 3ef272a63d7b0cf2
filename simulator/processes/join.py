"""Connects the processes of a run: they meet, then `jax.distributed` is initialized."""

import contextlib
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path

import jax

from simulator.errors import RunFailure, UserError
from simulator.processes import meeting, rendezvous
from simulator.processes.allocation import Allocation

HEARTBEAT = 10  # seconds after which a silent process counts as dead (JAX's default: 100)
SHUTDOWN = 20  # seconds to wait for the others at the end (JAX's default: 300)
_CONNECTION = 300  # minimum timeout in seconds for JAX to connect processes that have met


def join(
    allocation: Allocation,
    local_ids: list[int] | None,
    folder: Path | None,
    seconds: float,
    say: Callable[[str], None],
) -> rendezvous.Claim | None:
    """Connects the processes; returns the claim on the port of JAX's service, if any.

    folder: the shared folder in which the processes of a step find process 0.
    seconds: how long to wait for missing processes; longer for more than 512 (`meeting.patience`).
    say: gets a line from time to time while processes are missing.

    Raises UserError if the port is in use, NotAllCame if processes stay away, RunFailure if JAX cannot connect them.
    """
    wait = meeting.patience(seconds, allocation.num_processes)
    _allow_connections(allocation.num_processes)

    def initialize(address: str) -> None:
        _initialize(allocation, local_ids, address, timeout=max(_CONNECTION, round(wait)))

    if allocation.process_id > 0:
        initialize(meeting.attend(_address(allocation, folder), allocation, wait, say))
        return None
    if allocation.coordinator is not None:
        host, port = _split(allocation.coordinator)
        if not _free(port):
            raise UserError(f"port {port} of this host is in use: choose another for --coordinator")
        server = meeting.open_server(_interface(host), port, allocation.num_processes)
        # possibly no other port is open between the hosts: once all are here, the service takes this one
        return _serve(server, allocation, wait, say, host, initialize, port)
    if allocation.rendezvous is None or allocation.port is None:
        raise AssertionError("several processes need a coordinator or a Slurm step")
    host = _own_name(allocation)
    place = rendezvous.claim_port() if folder else rendezvous.claim_port([allocation.port])
    try:
        server = meeting.open_server("", place.port, allocation.num_processes)
        if folder is not None:
            rendezvous.publish(folder, allocation.rendezvous, host, place.port)
        return _serve(server, allocation, wait, say, host, initialize)
    finally:  # all are here, or the wait is over
        place.release()
        if folder is not None:
            rendezvous.retract(folder, allocation.rendezvous)
            # The run is not yet certain, so an empty folder is removed. Another step may still use it.
            with contextlib.suppress(OSError):
                folder.rmdir()


def _serve(
    server: socket.socket,
    allocation: Allocation,
    wait: float,
    say: Callable[[str], None],
    host: str,
    initialize: Callable[[str], None],
    port: int | None = None,
) -> rendezvous.Claim | None:
    """Process 0: waits for the others, then starts JAX's service and tells them its port."""
    guests = meeting.await_all(server, allocation, wait, say)
    try:
        return rendezvous.start_service(
            lambda chosen: initialize(f"{host}:{chosen}"), lambda chosen: guests.tell(go=chosen), port
        )
    finally:
        guests.close()


def _address(allocation: Allocation, folder: Path | None) -> Callable[[], str | None]:
    """A function that returns the address of process 0, or None while it is not published."""
    name, coordinator = allocation.rendezvous, allocation.coordinator
    if coordinator is None and folder is not None and name is not None:
        return lambda: rendezvous.find(folder, name)
    address = coordinator or f"{allocation.coordinator_host or ''}:{allocation.port}"
    return lambda: address


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _interface(host: str) -> str:
    """The address to listen on for connections to `host`: loopback only, or all interfaces (empty)."""
    return {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "[::1]": "::1"}.get(host, "")


def _own_name(allocation: Allocation) -> str:
    """A name of this host that others can resolve, preferably the launcher's."""
    for name in filter(None, (allocation.host, socket.gethostname())):
        with contextlib.suppress(OSError):
            socket.getaddrinfo(name, None)
            return name
    return socket.gethostname()


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _allow_connections(processes: int) -> None:
    """Raises the soft limit on open files (often 1024) so that this process can connect to all others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 1024 + 4 * processes
    if resource.RLIM_INFINITY not in (soft, hard) and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def _initialize(allocation: Allocation, local_ids: list[int] | None, address: str, timeout: int) -> None:
    host, port = _split(address)
    if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        # otherwise gRPC would try to reach other nodes through the site's web proxy
        os.environ.setdefault("no_grpc_proxy", host.strip("[]"))
    bind = {"": "[::]", "::1": "[::1]"}.get(_interface(host), _interface(host))
    try:
        jax.distributed.initialize(
            coordinator_address=address,
            num_processes=allocation.num_processes,
            process_id=allocation.process_id,
            local_device_ids=local_ids,
            cluster_detection_method="deactivate",
            coordinator_bind_address=f"{bind}:{port}",
            initialization_timeout=timeout,
            heartbeat_timeout_seconds=HEARTBEAT,
            shutdown_timeout_seconds=SHUTDOWN,
        )
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise RunFailure(
            f"process {allocation.process_id} of {allocation.num_processes} on {socket.gethostname()} "
            f"did not join the others at {address}: {reason}"
        ) from error
