"""Makes the processes of a run wait for one another before JAX's service starts.

JAX's own wait ends in an abort with a C++ stack and does not name the missing processes. Therefore
process 0 listens on a TCP port, and every other process connects, identifies itself, and stays
connected. Process 0 reports missing processes; when all processes have connected, it starts JAX's
service and sends the port of the service to all of them, so that JAX's wait takes only seconds.

Both sides send lines of JSON. A process sends `{"secret", "process", "processes", "node", "host",
"pid", "transport", "record"}`; process 0 answers with one of `waiting` (the missing processes),
`go` (the port), `over` (the reason for giving up), `refused` (the problem with that process or with
the run) and `other` (the secret is not this run's).

All processes must have the same record: names and values of settings, sources and inputs. A
process sends its checksum; if that is another than process 0's, process 0 sends `record` and the
process answers with the `difference`. All processes then end with that line, and so they do if
each of them has found the same mistake (`REFUSED`).

Anybody in the network may connect and send anything. Therefore messages are short, every field has
its type, a process that does not know the run's secret gets no answer but `other`, and process 0
reports refused connections. With `other` goes the run folder: a process of the same user that looks
for this run in another folder reads the secret there."""

import contextlib
import hmac
import json
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import getpid
from typing import Any

from simulator.cluster.allocation import SECRET, Allocation
from simulator.cluster.rendezvous import Place
from simulator.errors import RunFailure, UserError
from simulator.files import checksum

DEFAULT = 900.0  # Default of `run.rendezvous`: seconds that processes wait for one another.
_PER = 512
# seconds
_FIRST_LINE = 10.0
_LONGEST_PAUSE = 300.0
_LONGEST_MESSAGE = 4096
_MOST_STRANGERS = 256  # Connections without identity; a further one closes the oldest.
_MOST_REFUSALS = 5  # The largest number of lines about refused connections.
_HELLO = {
    "secret": str,
    "process": int,
    "processes": int,
    "node": str,
    "host": str,
    "pid": int,
    "transport": str,
    "record": str,
}
Record = Mapping[str, str]
REFUSED = "refused"
"""In a record: the mistake for which a process refuses the run."""
UNREAD = "inputs"
"""In a record: the files of the run were not read, because of what is in its folder."""
FOLDER = "output.directory"
"""In a record: the run folder."""
_FEW = 3  # Differences that a line names.
BRIEF = 10.0
"""Seconds for which the other processes may come after a mistake or a difference is known."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Attendee:
    """A process that meets the others of its run.

    seconds: how long it waits for them. say: called with a line from time to time while processes
    are missing. transport: how it will exchange arrays. record: names and values. The last two must
    be the same for all processes."""

    allocation: Allocation
    seconds: float
    say: Say
    transport: str = "gloo"
    record: Record = field(default_factory=dict)


class NotAllCame(RunFailure):
    """Not all processes came in time. speaks: whether this process reports the error."""

    def __init__(self, message: str, speaks: bool) -> None:
        super().__init__(message)
        self.speaks = speaks


def patience(seconds: float, processes: int) -> float:
    """The timeout for `processes` processes: `seconds` for up to 512 processes, proportionally
    longer for more."""
    return seconds * max(1.0, processes / _PER)


def checksum_of(record: Record) -> str:
    return checksum([json.dumps(dict(record), sort_keys=True).encode()])[1]


def difference(first: Record, other: Record, process: int) -> str:
    """The line about the names whose values differ between process 0 and another one; empty if
    none does. Names of files begin with a slash."""
    names = [name for name in {**first, **other} if first.get(name) != other.get(name)]
    if {UNREAD, REFUSED} & {*first, *other}:  # one of them has not read all files
        names = [name for name in names if name != UNREAD and not name.startswith("/")]

    def said(name: str) -> str:
        if name == REFUSED and not (name in first and name in other):
            who, line = (0, first[name]) if name in first else (process, other[name])
            return f"process {who} refuses the run ({line})"
        values = first.get(name, "absent"), other.get(name, "absent")
        return f"{name} is {values[0]} on process 0 and {values[1]} on process {process}"

    if not names:
        return ""
    more = [f"and {len(names) - _FEW} more"] if len(names) > _FEW else []
    return f"the processes of this run differ: {'; '.join([*map(said, names[:_FEW]), *more])}"


def open_server(address: str, port: int, processes: int) -> socket.socket:
    """The socket at which process 0 listens, on the interface with `address` (empty: on all).
    Raises OSError."""
    backlog = min(max(processes, 128), 4096)
    if not address and socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog
        )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=backlog)


class Guests:
    """The processes that have connected to process 0, and their connections."""

    def __init__(self, first: Attendee, secret: str) -> None:
        allocation = first.allocation
        self._first = first
        self._checksum = checksum_of(first.record)
        self._differing: dict[socket.socket, bytes] = {}
        """Connections of processes with another record, and their answers about it."""
        self._allocation = allocation
        self._hosts = allocation.hosts
        self._secret = secret
        self._refused = 0
        if allocation.local_processes == allocation.num_processes:
            self._hosts = (allocation.host or socket.gethostname(),) * allocation.num_processes
        self._here: dict[int, tuple[socket.socket, dict[str, Any]]] = {}
        self.unread: dict[socket.socket, bytes] = {}
        """Connections that have not identified themselves, and the bytes that they have sent."""

    @property
    def missing(self) -> list[int]:
        return [i for i in range(1, self._allocation.num_processes) if i not in self._here]

    @property
    def awaited(self) -> bool:
        """Whether a process with another record has not yet answered with the difference."""
        return any(not answer.endswith(b"\n") for answer in self._differing.values())

    @property
    def difference(self) -> str:
        """The first difference that a process has found; empty as long as none has."""
        for answer in self._differing.values():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                if line := json.loads(answer)["difference"]:
                    return str(line)
        return ""

    def open(self, server: socket.socket) -> socket.socket | None:
        """Accepts the next connection; None if the other end has closed it already."""
        try:
            connection, _ = server.accept()
            _keep_alive(connection)
        except OSError:
            return None
        connection.setblocking(False)
        if len(self.unread) >= _MOST_STRANGERS + self._allocation.num_processes:
            with contextlib.suppress(OSError):
                next(iter(self.unread)).shutdown(socket.SHUT_RDWR)  # `hear` closes it
        self.unread[connection] = b""
        return connection

    def hear(self, connection: socket.socket) -> bool:
        """Reads from a connection; returns whether the connection is still open."""
        try:
            data = connection.recv(_LONGEST_MESSAGE)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        text = self.unread.pop(connection, None)
        if not data:  # the process has gone and is missing again
            self._here = {i: guest for i, guest in self._here.items() if guest[0] is not connection}
            self._differing.pop(connection, None)
            connection.close()
        elif connection in self._differing:
            self._differing[connection] += data
        elif text is not None:
            if b"\n" in text + data or len(text + data) >= _LONGEST_MESSAGE:
                self._admit(connection, text + data)
            else:
                self.unread[connection] = text + data
        return connection.fileno() >= 0

    def _admit(self, connection: socket.socket, message: bytes) -> None:
        """Admits the process that sent `message`, or answers with the reason and closes the
        connection."""
        hello = _read_hello(message)
        if hello is None or not hmac.compare_digest(_bytes(hello["secret"]), _bytes(self._secret)):
            if hello is None or hello["secret"]:
                stranger = (
                    "this run has another secret" if hello else "that is no process of this run"
                )
                self._refuse(connection, stranger)
            if hello is not None:
                _send(connection, {"other": self._first.record.get(FOLDER, "")})
            connection.close()
            return
        if problem := self._misfit(hello):
            _send(connection, {"refused": problem})
            connection.close()
            return
        process = hello["process"]
        self._here[process] = connection, hello
        if hello["record"] != self._checksum:
            self._differing[connection] = b""
            _send(connection, {"record": dict(self._first.record)})
        if self._hosts and self._hosts[process] != hello["node"]:
            self._hosts = ()  # the processes are placed in another order, so their hosts are unknown

    def _misfit(self, hello: dict[str, Any]) -> str:
        """The reason why a process cannot take part; empty if it can."""
        process = hello["process"]
        number = self._allocation.num_processes
        transport = self._first.transport
        name = f"{hello['host']}, pid {hello['pid']}"
        if hello["processes"] != number or process not in range(1, number):
            wrong = f"process {process} of {hello['processes']} joined a run of {number} processes"
            return f"{wrong}: --num-processes and --process-id do not fit"
        if process in self._here:
            first = self._here[process][1]
            pair = f"({first['host']}, pid {first['pid']}), this is another one ({name})"
            return f"process {process} has already joined {pair}: every process needs its own --process-id"
        if hello["transport"] != transport:
            both = f"process 0 uses {transport}, this one ({name}) {hello['transport']}"
            return f"{both}: is the MPI library on both hosts? run.transport: gloo needs none"
        return ""

    def _refuse(self, connection: socket.socket, why: str) -> None:
        """Prints a line about a refused connection, unless a few such lines have been printed."""
        self._refused += 1
        if self._refused > _MOST_REFUSALS:
            return
        with contextlib.suppress(OSError):
            last = "; further ones are not reported" if self._refused == _MOST_REFUSALS else ""
            self._first.say(
                f"warning: refused a connection from {connection.getpeername()[0]}: {why}{last}"
            )

    def tell(self, **message: Any) -> None:
        for connection, _ in self._here.values():
            _send(connection, message)

    def close(self) -> None:
        for connection, _ in self._here.values():
            connection.close()

    def named(self, processes: Sequence[int]) -> str:
        """The processes with their hosts: `1, 2 (node2), 5 (node3)`, at most twenty of them."""
        names = [f"{i} ({self._hosts[i]})" if self._hosts else str(i) for i in processes[:20]]
        return ", ".join(names) + (", ..." if len(processes) > 20 else "")


def _read_hello(message: bytes) -> dict[str, Any] | None:
    """The message in which a process identifies itself; None for any other message, such as a port
    scanner's."""
    try:
        hello = json.loads(message)
    except (ValueError, RecursionError):
        return None
    # Python counts `true` as an int; the protocol does not.
    if isinstance(hello, dict) and all(
        type(hello.get(name)) is kind for name, kind in _HELLO.items()
    ):
        return hello
    return None


def _bytes(secret: str) -> bytes:
    return secret.encode(errors="surrogatepass")


def _listen(
    selector: selectors.BaseSelector, server: socket.socket, guests: Guests, seconds: float
) -> None:
    """Takes new connections and messages for `seconds`."""
    for key, _ in selector.select(seconds):
        if key.fileobj is server:
            if (connection := guests.open(server)) is not None:
                selector.register(connection, selectors.EVENT_READ)
        elif isinstance(key.fileobj, socket.socket) and not guests.hear(key.fileobj):
            selector.unregister(key.fileobj)


def await_all(server: socket.socket, first: Attendee, secret: str) -> Guests:
    """Called by process 0: waits for all other processes, which know `secret`, and returns their
    connections. Closes the server.

    Raises NotAllCame after `first.seconds`, UserError on all processes if one has another record or
    if all of them refuse the run; a process with another transport is refused."""
    guests = Guests(first, secret)
    clock = _Lines(first.seconds)
    began = time.monotonic()
    try:
        with server, selectors.DefaultSelector() as selector:
            server.setblocking(False)
            selector.register(server, selectors.EVENT_READ)
            while _awaits(guests, first, clock):
                _listen(selector, server, guests, clock.until_next)
        if line := guests.difference or first.record.get(REFUSED):
            raise UserError(*line.split("\n"))
    except (NotAllCame, UserError) as error:
        guests.tell(**{"over" if isinstance(error, NotAllCame) else "refused": str(error)})
        guests.close()
        raise
    finally:
        for stranger in guests.unread:  # so that nobody waits at the other end
            stranger.close()
        guests.unread.clear()
    if clock.spoke:
        number = first.allocation.num_processes
        first.say(f"all {number} processes have joined after {time.monotonic() - began:.0f} s")
    return guests


def _awaits(guests: Guests, first: Attendee, clock: "_Lines") -> bool:
    """Whether process 0 has to wait longer, which it says from time to time. Raises NotAllCame when
    the time is over."""
    missing = guests.missing
    if not missing and not guests.awaited:
        return False
    if guests.difference:
        clock.shorten(BRIEF)
        if clock.over:
            return False
    absent = f"{len(missing)} of {first.allocation.num_processes} processes"
    if clock.over:
        within = f"did not join within {_duration(first.seconds)} (run.rendezvous)"
        raise NotAllCame(f"{absent} {within}: {guests.named(missing)}", speaks=True)
    if clock.due():
        line = f"waiting for {absent}, {_duration(clock.left)} left: {guests.named(missing)}"
        first.say(line)
        guests.tell(waiting=line)
    return True


def attend(find: Callable[[], Place | None], attendee: Attendee) -> str:
    """Called by every other process: connects to process 0 and waits until all have connected;
    returns the address of JAX's service.

    find: returns the place of process 0, or None while it is unknown. `attendee.say` is called only
    if this process prints elsewhere than process 0.

    Raises NotAllCame if process 0 gives up or is out of reach for `attendee.seconds`, UserError if it
    refuses this process or the run."""
    allocation = attendee.allocation
    clock = _Lines(attendee.seconds)
    problem = ""
    first = f"process 0 of {allocation.num_processes} ({allocation.coordinator_host or 'the first one'})"
    silent = replace(attendee, say=lambda line: None)
    # a terminal of its own
    alone = allocation.source == "explicit" and allocation.local_processes == 1
    speaks = (
        alone or allocation.process_id == 1 or (allocation.node == 1 and allocation.local_rank == 0)
    )
    while True:
        if place := find():
            try:
                if port := _come(place, attendee if alone else silent):
                    return f"{place.address.rpartition(':')[0]}:{port}"
                problem = f"it closed the connection to {place.address}"
            except Other:  # the file of an earlier start, perhaps
                problem = f"the run at {place.address} has another secret ({SECRET}, or its file in the run folder)"
            except OSError as error:
                problem = f"{place.address}: {error.strerror or error}"
        if clock.over:
            why = (
                problem
                or "it published no address: it did not start, or the run folder is not shared"
            )
            late = (
                f"{first} did not join within {_duration(attendee.seconds)} (run.rendezvous): {why}"
            )
            raise NotAllCame(late, speaks=speaks or allocation.local_rank == 0)
        if clock.due() and speaks:
            because = f" ({problem})" if problem else ""
            attendee.say(f"waiting for {first}, {_duration(clock.left)} left{because}")
        time.sleep(min(0.1, attendee.seconds / 20))


class Other(Exception):
    """The port belongs to a run with another secret, and perhaps another folder."""


def folder_at(address: str, allocation: Allocation) -> str | None:
    """The run folder of the process 0 that listens at `address`; None if nobody tells it."""
    try:
        _come(Place(address, ""), Attendee(allocation, 2.0, lambda line: None, ""), timeout=2.0)
    except Other as other:
        return str(other) or None
    except (OSError, UserError, NotAllCame):
        pass
    return None


def _come(place: Place, attendee: Attendee, timeout: float | None = None) -> int | None:
    """Waits for the answer of process 0: the port of JAX's service; None if the connection ends
    before the answer."""
    host, _, port = place.address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=5) as connection:
        connection.settimeout(timeout)
        _keep_alive(connection)
        allocation = attendee.allocation
        hello = {
            "secret": place.secret,
            "process": allocation.process_id,
            "processes": allocation.num_processes,
            "node": allocation.host or socket.gethostname(),
            "host": socket.gethostname(),
            "pid": getpid(),
            "transport": attendee.transport,
            "record": checksum_of(attendee.record),
        }
        connection.sendall(json.dumps(hello).encode() + b"\n")
        with connection.makefile("rb") as lines:
            for line in lines:
                with contextlib.suppress(ValueError):
                    match json.loads(line):
                        case {"go": int(service)}:
                            return service
                        case {"waiting": str(text)}:
                            attendee.say(text)
                        case {"refused": str(text)}:
                            raise UserError(*text.split("\n"))
                        case {"other": str(folder)}:
                            raise Other(folder)
                        case {"record": dict(first)}:
                            line = difference(first, attendee.record, allocation.process_id)
                            connection.sendall(json.dumps({"difference": line}).encode() + b"\n")
                        case {"over": str(text)}:
                            connection.settimeout(5)
                            with contextlib.suppress(OSError):  # let process 0 exit first
                                lines.read()
                            raise NotAllCame(text, speaks=False)
    return None


@dataclass
class _Lines:
    """The schedule of reports during a wait: the first after 10 s, then at growing intervals."""

    seconds: float
    spoke: bool = False

    def __post_init__(self) -> None:
        self._pause = min(_FIRST_LINE, self.seconds / 4)
        self._end = time.monotonic() + self.seconds
        self._next = time.monotonic() + self._pause

    def shorten(self, seconds: float) -> None:
        """End `seconds` from now at the latest."""
        self._end = min(self._end, time.monotonic() + seconds)

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

    @property
    def over(self) -> bool:
        return self.left <= 0

    @property
    def until_next(self) -> float:
        return max(min(self._next, self._end) - time.monotonic(), 0.0)

    def due(self) -> bool:
        if time.monotonic() < self._next:
            return False
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._next = time.monotonic() + self._pause
        self.spoke = True
        return True


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # a closed connection is noticed by the next read
        connection.settimeout(5)
        connection.sendall(json.dumps(message).encode() + b"\n")
        connection.setblocking(False)


def _keep_alive(connection: socket.socket) -> None:
    """Makes the kernel detect a dead host within half a minute."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
