"""How processes wait for one another: threads stand for the others, and real processes where JAX takes part."""

import json
import socket
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import simulator
from simulator.errors import UserError
from simulator.processes import Allocation, discover, launcher, meeting
from simulator.processes.launcher import launch

NODES = ("n1", "n1", "n2", "n2")
STEP = Allocation(
    source="slurm", num_processes=4, nodes=("n1", "n2"), local_processes=2, hosts=NODES,
    coordinator_host="localhost", rendezvous="7.0.0.9",
)  # fmt: skip


def process(i: int, **changes) -> Allocation:
    return replace(STEP, process_id=i, node=i // 2, local_rank=i % 2, **changes)


class Room:
    """Process 0 in a thread, and where it is."""

    def __init__(self, seconds: float = 10.0, allocation: Allocation = STEP) -> None:
        self.said: list[str] = []
        self.guests: meeting.Guests | None = None
        self.error: meeting.NotAllCame | None = None
        server = meeting.open_server("127.0.0.1", 0, allocation.num_processes)
        self.address = f"127.0.0.1:{server.getsockname()[1]}"

        def wait() -> None:
            try:
                self.guests = meeting.await_all(server, allocation, seconds, self.said.append)
                self.guests.tell(go=4321)
                self.guests.close()
            except meeting.NotAllCame as error:
                self.error = error

        self._thread = threading.Thread(target=wait)
        self._thread.start()

    def attend(self, allocation: Allocation, seconds: float = 10.0, say=lambda line: None) -> str:
        return meeting.attend(lambda: self.address, allocation, seconds, say)

    def ends(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


class Guest(threading.Thread):
    def __init__(self, room: Room, allocation: Allocation, after: float = 0.0, seconds: float = 10) -> None:
        super().__init__()
        self.room, self.allocation, self.after, self.seconds = room, allocation, after, seconds
        self.said: list[str] = []
        self.found: object = None
        self.start()

    def run(self) -> None:
        time.sleep(self.after)
        try:
            self.found = self.room.attend(self.allocation, self.seconds, self.said.append)
        except Exception as error:
            self.found = error


@pytest.mark.smoke
def test_all_that_come_are_sent_to_the_same_port_and_nothing_is_said():
    room = Room()
    guests = [Guest(room, process(i)) for i in (3, 1, 2)]
    for guest in guests:
        guest.join()
        assert guest.found == "127.0.0.1:4321"
    room.ends()
    assert room.said == []


@pytest.mark.smoke
def test_a_late_process_is_named_with_its_host_while_the_others_wait():
    room = Room(seconds=8)  # the first line comes after a quarter
    guests = [Guest(room, process(i), after=4.0 * (i == 3)) for i in (1, 2, 3)]
    for guest in guests:
        guest.join()
        assert guest.found == "127.0.0.1:4321"
        assert guest.said == [], "process 0 has said it"
    assert room.said[0].startswith("waiting for 1 of 4 processes, ") and room.said[0].endswith(
        " left: 3 (n2)"
    )
    assert room.said[-1] == "all 4 processes are here after 4 s"


@pytest.mark.smoke
def test_a_process_that_never_comes_ends_the_wait_of_all_with_one_line():
    room = Room(seconds=1)
    guest = Guest(room, process(2))
    guest.join()
    room.ends()
    told = "2 of 4 processes did not come within 1 s (run.rendezvous): 1 (n1), 3 (n2)"
    assert room.error is not None and (str(room.error), room.error.speaks) == (told, True)
    assert isinstance(guest.found, meeting.NotAllCame)
    assert (str(guest.found), guest.found.speaks) == (told, False)


@pytest.mark.smoke
def test_process_0_may_come_late_too():
    found: list[str] = []
    said: list[str] = []
    where: dict[str, str] = {}
    waiter = threading.Thread(
        target=lambda: found.append(
            meeting.attend(lambda: where.get("here"), process(1, num_processes=2), 4, said.append)
        )
    )
    waiter.start()
    time.sleep(1.5)
    room = Room(allocation=replace(STEP, num_processes=2))
    where["here"] = room.address
    waiter.join()
    assert found == ["127.0.0.1:4321"]
    assert said == ["waiting for process 0 of 2 (localhost), 3 s left"]


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("i", "speaks"), [(1, True), (2, True), (3, False)], ids=["the next one", "another node's", "the rest"]
)
def test_without_process_0_one_of_each_node_says_so(i: int, speaks: bool):
    with pytest.raises(meeting.NotAllCame) as failure:
        meeting.attend(lambda: None, process(i), 0.2, lambda line: None)
    assert failure.value.speaks is speaks
    assert str(failure.value).startswith(
        "process 0 of 4 (localhost) did not come within 0 s (run.rendezvous): "
    )
    assert "published no address" in str(failure.value)


@pytest.mark.smoke
def test_an_address_that_nobody_answers_is_named():
    with (
        socket.socket() as unused,
        pytest.raises(meeting.NotAllCame, match=r"127.0.0.1:\d+: Connection refused"),
    ):
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        meeting.attend(lambda: address, process(1), 0.3, lambda line: None)


@pytest.mark.smoke
def test_who_is_killed_while_waiting_is_missing_again():
    room = Room(seconds=1.5)
    host, _, port = room.address.partition(":")
    with socket.create_connection((host, int(port))) as connection:
        hello = {"run": "7.0.0.9", "process": 3, "processes": 4, "node": "n2", "host": "n2", "pid": 1}
        connection.sendall(json.dumps(hello).encode() + b"\n")
        time.sleep(0.3)
    room.ends()
    assert str(room.error).endswith(": 1 (n1), 2 (n2), 3 (n2)")


@pytest.mark.smoke
def test_strangers_disturb_nobody():
    room = Room(seconds=20)
    host, _, port = room.address.partition(":")
    for text in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 5000, b"[1]\n", b'{"run": 3}\n', b"half a li"):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(text)
    silent = socket.create_connection((host, int(port)))
    silent.settimeout(10)
    time.sleep(0.3)  # it is accepted before all have come
    guests = [Guest(room, process(i)) for i in (1, 2, 3)]
    other = Guest(room, process(1, rendezvous="8.0.0.9"), seconds=1)  # of another step, sent here by mistake
    for guest in guests:
        guest.join()
        assert guest.found == "127.0.0.1:4321"
    room.ends()
    other.join()
    assert isinstance(other.found, meeting.NotAllCame)
    with silent:
        assert silent.recv(1) == b""  # who says nothing is not kept waiting


@pytest.mark.smoke
def test_a_second_process_of_the_same_number_and_one_of_another_run_are_refused():
    room = Room()
    guest = Guest(room, process(1))
    time.sleep(0.3)
    with pytest.raises(UserError, match=r"process 1 is here already \(.*, pid \d+\).* its own --process-id"):
        room.attend(process(1))
    with pytest.raises(UserError, match="process 2 of 8 joined a run of 4 processes"):
        room.attend(replace(STEP, process_id=2, num_processes=8))
    for last in (Guest(room, process(2)), Guest(room, process(3)), guest):
        last.join()
        assert last.found == "127.0.0.1:4321"


@pytest.mark.smoke
def test_hosts_are_named_only_where_all_that_came_are_where_we_think():
    room = Room(seconds=1)
    Guest(room, replace(process(1), node=1)).join()  # on the second node: not one node after the other
    room.ends()
    assert str(room.error).endswith(": 2, 3")


@pytest.mark.smoke
def test_a_process_with_a_terminal_of_its_own_hears_who_is_missing():
    by_hand = discover({}, coordinator="127.0.0.1:1", num_processes=3, process_id=1)
    room = Room(seconds=2, allocation=replace(by_hand, process_id=0))
    guest = Guest(room, by_hand)
    guest.join()
    assert guest.said[0].endswith(" left: 2")


@pytest.mark.smoke
@pytest.mark.parametrize(("processes", "minutes"), [(2, 15), (512, 15), (1024, 30), (4096, 120)])
def test_more_processes_wait_longer(processes: int, minutes: float):
    assert meeting.patience(meeting.DEFAULT, processes) == 60 * minutes


CHILD = """
    import os, sys, time
    from simulator.processes import discover, failure
    from simulator.processes.start import start
    allocation = discover(os.environ)
    if allocation.process_id == 1:
        time.sleep({pause})
    with failure.contained(allocation):
        start(allocation, platform="cpu", count=2, wait={wait}).close()
"""


@pytest.mark.spmd
@pytest.mark.parametrize(("pause", "wait", "code"), [(4, 12, 0), (60, 2, 1)], ids=["late", "never"])
def test_processes_that_jax_joins(tmp_path: Path, capfd, monkeypatch, pause: int, wait: int, code: int):
    """One that comes late joins; where it does not come, one line says so, and no stack of C++."""
    monkeypatch.setattr(launcher, "GRACE", 0.1)
    path = tmp_path / "child.py"
    path.write_text(textwrap.dedent(CHILD.format(pause=pause, wait=wait)))
    root = str(Path(simulator.__file__).parents[1])
    environ = {"PYTHONPATH": root, "SIMULATOR_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin"}
    assert launch([sys.executable, str(path)], 2, environ=environ) == code
    said = capfd.readouterr().err.splitlines()
    here = socket.gethostname()
    assert said[0].startswith("simulator: waiting for 1 of 2 processes") and said[0].endswith(
        f"left: 1 ({here})"
    )
    last = (
        f"simulator: 1 of 2 processes did not come within {wait} s (run.rendezvous): 1 ({here})"
        if code
        else "simulator: all 2 processes are here after "
    )
    assert said[-1].startswith(last)
    assert all("waiting for" in line for line in said[:-1])
