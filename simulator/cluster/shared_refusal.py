"""Reports an error only once that all processes of a step raise before they have met, such as a configuration error.

Process 0 prints the error and waits at the step's derived port; a process that reaches it there exits silently. A
process that does not has an error of its own and prints it. Process 0 exits last, so that
`srun --kill-on-bad-exit` does not kill the others.
"""

import contextlib
import socket
import time

from simulator.cluster.allocation import Allocation

FIRST_WAITS = 10.0  # seconds for which process 0 waits for the others, which may still be starting
OTHERS_TRY = 3.0  # seconds in which the others try to reach process 0


def told_all(allocation: Allocation, patience: float = FIRST_WAITS) -> None:
    """Process 0, after printing the error: returns when all others know of it, or after `patience` seconds."""
    if allocation.port is None or allocation.coordinator is not None:
        return
    end = time.monotonic() + patience
    with contextlib.suppress(OSError), socket.create_server(("", allocation.port)) as server:
        for _ in range(allocation.num_processes - 1):
            server.settimeout(max(end - time.monotonic(), 0.01))
            with server.accept()[0] as other:
                other.sendall(_token(allocation))


def told_by_first(allocation: Allocation, patience: float = OTHERS_TRY) -> bool:
    """Another process: whether process 0 has printed the error."""
    if allocation.port is None or allocation.coordinator is not None:
        return False
    end, token = time.monotonic() + patience, _token(allocation)
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            address = (allocation.coordinator_host or "localhost", allocation.port)
            with socket.create_connection(address, timeout=patience) as first:
                first.settimeout(patience)
                with first.makefile("rb") as answer:
                    if answer.read(len(token)) == token:
                        return True
        time.sleep(0.05)
    return False


def _token(allocation: Allocation) -> bytes:
    return f"simulator refuses {allocation.rendezvous}\n".encode()
