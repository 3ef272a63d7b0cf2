"""How processes find their coordinator, and wait for one another: threads stand for the others."""

import contextlib
import json
import re
import socket
import stat
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_support import free_port

from simulator.cluster import Allocation, discover, meeting, rendezvous
from simulator.cluster.meeting import Attendee
from simulator.cluster.rendezvous import Place
from simulator.errors import RunFailure, UserError
from simulator.run.folder import FolderContent, RunFolder

pytestmark = pytest.mark.smoke

OURS = "f3c95dd1d2cd1a0e"
HELLO = {
    "secret": OURS,
    "process": 3,
    "processes": 4,
    "node": "n2",
    "host": "n2",
    "pid": 1,
    "transport": "gloo",
    "record": meeting.checksum_of({}),
}
NODES = ("n1", "n1", "n2", "n2")
STEP = Allocation(
    source="slurm",
    num_processes=4,
    nodes=("n1", "n2"),
    local_processes=2,
    hosts=NODES,
    coordinator_host="localhost",
    rendezvous="7.0.0.9",
)


def process(i: int, **changes) -> Allocation:
    return replace(STEP, process_id=i, node=i // 2, local_rank=i % 2, **changes)


class Room:
    """Process 0 in a thread, and where it is."""

    def __init__(
        self,
        seconds: float = 10.0,
        allocation: Allocation = STEP,
        record: meeting.Record | None = None,
    ) -> None:
        self.said: list[str] = []
        self.guests: meeting.Guests | None = None
        self.error: meeting.NotAllCame | UserError | None = None
        server = meeting.open_server("127.0.0.1", 0, allocation.num_processes)
        self.address = f"127.0.0.1:{server.getsockname()[1]}"

        def wait() -> None:
            try:
                first = Attendee(allocation, seconds, self.said.append, record=record or {})
                self.guests = meeting.await_all(server, first, OURS)
                self.guests.tell(go=4321)
                self.guests.close()
            except (meeting.NotAllCame, UserError) as error:
                self.error = error

        self._thread = threading.Thread(target=wait)
        self._thread.start()

    def connect(self) -> socket.socket:
        host, _, port = self.address.partition(":")
        return socket.create_connection((host, int(port)), timeout=10)

    def attend(
        self,
        allocation: Allocation,
        seconds: float = 10.0,
        say=lambda line: None,
        secret=OURS,
        record: meeting.Record | None = None,
    ) -> str:
        place = Place(self.address, secret)
        return meeting.attend(
            lambda: place, Attendee(allocation, seconds, say, record=record or {})
        )

    def send(self, message: bytes) -> bytes:
        """The answer of process 0 to these bytes before it closes the connection."""
        with (
            self.connect() as connection,
            contextlib.suppress(OSError),  # it may be closed before all is sent
        ):
            connection.sendall(message)
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as answer:
                return answer.read()
        return b""

    def ends(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


class Guest(threading.Thread):
    def __init__(
        self,
        room: Room,
        allocation: Allocation,
        after: float = 0.0,
        seconds: float = 10,
        secret: str = OURS,
        record: meeting.Record | None = None,
    ) -> None:
        super().__init__()
        self.record = record
        self.room = room
        self.allocation = allocation
        self.after = after
        self.seconds = seconds
        self.secret = secret
        self.said: list[str] = []
        self.found: object = None
        self.start()

    def run(self) -> None:
        time.sleep(self.after)
        try:
            self.found = self.room.attend(
                self.allocation, self.seconds, self.said.append, self.secret, self.record
            )
        except Exception as error:
            self.found = error


def all_are_sent(*guests: Guest) -> None:
    """All come, and are sent to the same port."""
    for guest in guests:
        guest.join()
        assert guest.found == "127.0.0.1:4321"


def all_come(room: Room) -> None:
    all_are_sent(*(Guest(room, process(i)) for i in (3, 1, 2)))
    room.ends()


def test_a_late_process_is_named_with_its_host_while_the_others_wait():
    room = Room(seconds=4)  # the first line comes after a quarter
    guests = [Guest(room, process(i), after=2.0 * (i == 3)) for i in (1, 2, 3)]
    all_are_sent(*guests)
    assert not any(guest.said for guest in guests), "process 0 has said it"
    assert room.said[0].startswith("waiting for 1 of 4 processes, ") and room.said[0].endswith(
        " left: 3 (n2)"
    )
    assert room.said[-1] == "all 4 processes have joined after 2 s"


def test_a_process_that_never_comes_ends_the_wait_of_all_with_one_line():
    room = Room(seconds=1)
    guest = Guest(room, process(2))
    guest.join()
    room.ends()
    told = "2 of 4 processes did not join within 1 s (run.rendezvous): 1 (n1), 3 (n2)"
    assert room.error is not None and (str(room.error), room.error.speaks) == (told, True)
    assert isinstance(guest.found, meeting.NotAllCame)
    assert (str(guest.found), guest.found.speaks) == (told, False)


def test_process_0_may_come_late_too():
    found: list[str] = []
    said: list[str] = []
    where: dict[str, Place] = {}
    waiter = threading.Thread(
        target=lambda: found.append(
            meeting.attend(
                lambda: where.get("here"), Attendee(process(1, num_processes=2), 4, said.append)
            )
        )
    )
    waiter.start()
    time.sleep(1.5)
    room = Room(allocation=replace(STEP, num_processes=2))
    where["here"] = Place(room.address, OURS)
    waiter.join()
    assert found == ["127.0.0.1:4321"]
    assert said == ["waiting for process 0 of 2 (localhost), 3 s left"]


def test_without_process_0_one_of_each_node_says_so_and_who_does_not_answer_is_named():
    for i, speaks in ((1, True), (2, True), (3, False)):  # the next one, another node's, the rest
        with pytest.raises(meeting.NotAllCame, match="published no address") as failure:
            meeting.attend(lambda: None, Attendee(process(i), 0.2, lambda line: None))
        assert failure.value.speaks is speaks
        told = "process 0 of 4 (localhost) did not join within 0 s (run.rendezvous): "
        assert str(failure.value).startswith(told)
    place = Place(f"127.0.0.1:{free_port()}", OURS)
    with pytest.raises(meeting.NotAllCame, match=r"127.0.0.1:\d+: Connection refused"):
        meeting.attend(lambda: place, Attendee(process(1), 0.3, lambda line: None))


def test_who_is_killed_while_waiting_is_missing_again():
    room = Room(seconds=1.5)
    with room.connect() as connection:
        connection.sendall(json.dumps(HELLO).encode() + b"\n")
        time.sleep(0.3)
    room.ends()
    assert str(room.error).endswith(": 1 (n1), 2 (n2), 3 (n2)")


def test_strangers_disturb_nobody():
    room = Room(seconds=20)
    brackets = b"[" * 4090 + b"\n"  # no parser survives them
    for text in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 5000,
        b"[1]\n",
        b'{"run": 3}\n',
        b"half a li",
        brackets,
    ):
        with room.connect() as connection:
            connection.sendall(text)
    silent = room.connect()
    time.sleep(0.3)  # it is accepted before all have come
    other = Guest(room, process(1), seconds=1, secret="of another run, sent here by mistake")
    all_come(room)
    other.join()
    assert isinstance(other.found, meeting.NotAllCame)
    assert any(line.endswith(": that is no process of this run") for line in room.said)
    assert len(room.said) >= 4 and all(
        "warning: refused a connection from " in line for line in room.said
    )
    with silent:
        assert silent.recv(1) == b""  # who says nothing is not kept waiting


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(list(HELLO.values())),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(list(HELLO)), inner)
    ),
)
one_wrong = st.tuples(st.sampled_from(list(HELLO)), json_values).filter(
    lambda p: HELLO[p[0]] != p[1]
)
messages = (
    st.binary()
    | st.binary().map(lambda b: b + b"\n")
    | st.tuples(st.sampled_from([b"[", b'{"secret":', b'"', b"1"]), st.integers(1, 5000)).map(
        lambda p: p[0] * p[1]
    )
    | json_values.map(lambda v: json.dumps(v).encode() + b"\n")
    | one_wrong.map(lambda p: json.dumps(HELLO | dict([p])).encode() + b"\n")
)


def test_no_bytes_disturb_the_meeting_or_take_a_place():
    room = Room(seconds=60)

    @settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
    @given(messages)
    def anything(message: bytes) -> None:
        room.send(message)

    anything()
    all_come(room)
    refusals = [line for line in room.said if "refused" in line]
    assert len(refusals) == 5 and refusals[-1].endswith("; further ones are not reported")


def test_without_the_secret_nothing_is_told():
    room = Room(seconds=20)
    for secret in ("", "7.0.0.9", OURS[:-1], OURS + "0", "\ud800"):
        answer = room.send(json.dumps(HELLO | {"secret": secret}).encode() + b"\n")
        assert json.loads(answer) == {"other": ""}
    all_come(room)


RECORD = {"model.viscosity": "0.02", "numpy": "2.4.0", "/a/force.py": "checksum 1"}


@pytest.mark.parametrize(
    "others, said",
    [
        (
            RECORD | {"model.viscosity": "0.2"},
            "model.viscosity is 0.02 on process 0 and 0.2 on process 2",
        ),
        (RECORD | {"/a/h.py": "checksum 2"}, "/a/h.py is absent on process 0 and checksum 2 on"),
        (
            RECORD | {meeting.REFUSED: "c.yaml:3: no such file"},
            r"process 2 refuses the run \(c.yaml:3: no such file\)",
        ),
        (
            {**RECORD, "numpy": "1", "model.viscosity": "1", "a": "1", "b": "2"},
            "numpy is .*; and 1 more",
        ),
    ],
)
def test_all_processes_end_with_the_difference_between_two_of_them(others, said):
    """Also where a further process does not come."""
    room = Room(record=RECORD)
    guests = [Guest(room, process(i), record=others if i == 2 else RECORD) for i in (1, 2, 3)]
    for guest in guests:
        guest.join()
        assert isinstance(guest.found, UserError)
    room.ends()
    assert len({str(room.error), *(str(guest.found) for guest in guests)}) == 1
    assert re.search(f"the processes of this run differ: .*{said}", str(room.error))


def test_a_mistake_that_all_have_found_ends_the_meeting_and_files_that_were_not_read_do_not():
    mistake = {meeting.REFUSED: "c.yaml:3: no such key"}
    room = Room(record=RECORD | mistake)
    guests = [Guest(room, process(i), record=RECORD | mistake) for i in (1, 2, 3)]
    room.ends()
    for guest in guests:
        guest.join()
        assert str(guest.found) == "c.yaml:3: no such key" == str(room.error)
    unread = {k: v for k, v in RECORD.items() if k != "/a/force.py"} | {meeting.UNREAD: "not read"}
    room = Room(record=RECORD)
    all_are_sent(*(Guest(room, process(i), record=unread) for i in (1, 2, 3)))
    room.ends()


def test_a_process_with_another_transport_is_refused():
    """It would wait for ever in the first exchange."""
    room = Room(seconds=20)
    answer = json.loads(room.send(json.dumps(HELLO | {"transport": "mpi"}).encode() + b"\n"))
    assert "process 0 uses gloo, this one (n2, pid 1) mpi" in answer["refused"]
    all_come(room)


def test_hundreds_of_silent_connections_are_survived():
    room = Room(seconds=60)
    with contextlib.ExitStack() as kept:
        for _ in range(400):
            kept.enter_context(room.connect())
        all_come(room)


def test_a_second_process_of_the_same_number_and_one_of_another_run_are_refused():
    room = Room()
    guest = Guest(room, process(1))
    time.sleep(0.3)
    with pytest.raises(
        UserError, match=r"process 1 has already joined \(.*, pid \d+\).* its own --process-id"
    ):
        room.attend(process(1))
    with pytest.raises(UserError, match="process 2 of 8 joined a run of 4 processes"):
        room.attend(replace(STEP, process_id=2, num_processes=8))
    all_are_sent(Guest(room, process(2)), Guest(room, process(3)), guest)


def test_hosts_are_named_only_where_all_that_came_are_where_we_think():
    room = Room(seconds=1)
    Guest(
        room, replace(process(1), node=1)
    ).join()  # on the second node: not one node after the other
    room.ends()
    assert str(room.error).endswith(": 2, 3")


def test_a_process_with_a_terminal_hears_who_is_missing_and_more_processes_wait_longer():
    by_hand = discover({}, coordinator="127.0.0.1:1", num_processes=3, process_id=1)
    room = Room(seconds=2, allocation=replace(by_hand, process_id=0))
    guest = Guest(room, by_hand)
    guest.join()
    assert guest.said[0].endswith(" left: 2")
    minutes = [
        meeting.patience(meeting.DEFAULT, processes) / 60 for processes in (2, 512, 1024, 4096)
    ]
    assert minutes == [15, 15, 30, 120]


def test_a_port_is_claimed_once_until_released_and_not_where_someone_listens():
    first = rendezvous.claim_port()
    with pytest.raises(RunFailure, match="no free port"):
        rendezvous.claim_port([first.port])
    first.release()
    rendezvous.claim_port([first.port]).release()
    with listen_on(30000), listen_on(30001):
        with pytest.raises(RunFailure, match="30001"):
            rendezvous.claim_port([30001])
        for _ in range(20):
            claim = rendezvous.claim_port(range(30000, 30003))
            assert claim.port == 30002
            claim.release()


def listen_on(port: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as gRPC does
    server.bind(("", port))
    server.listen()
    return server


def test_a_port_where_a_process_listens():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert not rendezvous.listens(port)
        server.listen()
        assert rendezvous.listens(port)
    assert not rendezvous.listens(port)


def test_the_address_is_there_from_its_publication_to_its_end_in_a_folder_that_can_be_made(
    tmp_path,
):
    folder = tmp_path / "run"
    assert rendezvous.published_place(folder, "1.0.0.9") is None
    place = Place("first:4321", "secret")
    rendezvous.publish(folder, "1.0.0.9", place)
    assert rendezvous.published_place(folder, "1.0.0.9") == place
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600], (
        "it holds the secret"
    )
    assert rendezvous.published_place(folder, "1.1.0.9") is None, "another step's"
    assert RunFolder(folder).content() is FolderContent.EMPTY, "the folder still counts as empty"
    rendezvous.retract(folder, "1.0.0.9")
    assert list(folder.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailure, match="file/run: the processes cannot meet there"):
        rendezvous.publish(tmp_path / "file" / "run", "name", Place("host:1", "secret"))


def test_the_port_of_a_service_that_starts_is_announced_while_it_waits_for_the_others():
    told = []
    announced = threading.Event()

    def announce(port):
        told.append(port)
        announced.set()

    def initialize(port):
        with listen_on(port):
            assert announced.wait(10)

    claim = rendezvous.start_service(initialize, announce)
    assert told == [claim.port]
    claim.release()


@pytest.mark.parametrize("port", [None, 30000])
def test_a_service_that_does_not_start_fails_with_its_own_error_and_frees_its_port(port):
    tried = []

    def initialize(port):
        tried.append(port)
        raise RuntimeError("address already in use")

    with pytest.raises(RuntimeError, match="already in use"):
        rendezvous.start_service(initialize, lambda port: None, port)
    rendezvous.claim_port(tried).release()
