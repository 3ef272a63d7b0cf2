"""How processes find their coordinator: claims on ports, publication by rename."""

import socket
import stat
import threading

import pytest

from simulator.cluster import rendezvous
from simulator.cluster.rendezvous import Place
from simulator.errors import RunFailure
from simulator.run.folder import Found, RunFolder

pytestmark = pytest.mark.smoke


def test_a_claimed_port_is_claimed_once_until_released():
    first = rendezvous.claim_port()
    with pytest.raises(RunFailure, match="no free port"):
        rendezvous.claim_port([first.port])
    first.release()
    rendezvous.claim_port([first.port]).release()


def listen_on(port: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as gRPC does
    server.bind(("", port))
    server.listen()
    return server


def test_a_port_on_which_someone_listens_is_not_claimed_and_claiming_goes_on():
    with listen_on(30000), listen_on(30001):
        with pytest.raises(RunFailure, match="30001"):
            rendezvous.claim_port([30001])
        for _ in range(20):
            claim = rendezvous.claim_port(range(30000, 30003))
            assert claim.port == 30002
            claim.release()


def test_listens_means_this_process(tmp_path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert not rendezvous.listens(port)
        server.listen()
        assert rendezvous.listens(port)
    assert not rendezvous.listens(port)


def test_the_address_is_there_from_its_publication_to_its_end_in_a_folder_that_can_be_made(tmp_path):
    folder = tmp_path / "run"
    assert rendezvous.find(folder, "1.0.0.9") is None
    place = Place("first:4321", "secret")
    rendezvous.publish(folder, "1.0.0.9", place)
    assert rendezvous.find(folder, "1.0.0.9") == place
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600], "it holds the secret"
    assert rendezvous.find(folder, "1.1.0.9") is None, "another step's"
    assert RunFolder(folder).found() is Found.EMPTY, "the folder still counts as empty"
    rendezvous.retract(folder, "1.0.0.9")
    assert list(folder.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailure, match="file/run: the processes cannot meet there"):
        rendezvous.publish(tmp_path / "file" / "run", "name", Place("host:1", "secret"))


@pytest.mark.parametrize("failures", [0, 2])
def test_the_port_of_a_service_that_starts_is_announced_while_it_waits_for_the_others(failures):
    tried, told, announced = [], [], threading.Event()

    def announce(port):
        told.append(port)
        announced.set()

    def initialize(port):
        tried.append(port)
        if len(tried) <= failures:
            raise RuntimeError("address already in use")
        with listen_on(port):
            assert announced.wait(10)

    claim = rendezvous.start_service(initialize, announce)
    assert claim is not None and told == [claim.port] == tried[-1:]
    assert len(set(tried)) == failures + 1
    claim.release()


@pytest.mark.parametrize(("port", "times"), [(None, 5), (30000, 1)])
def test_a_service_that_never_starts_fails_with_its_own_error(port, times):
    tried = []

    def initialize(port):
        tried.append(port)
        raise RuntimeError("address already in use")

    with pytest.raises(RuntimeError, match="already in use"):
        rendezvous.start_service(initialize, lambda port: None, port)
    assert len(tried) == times


def test_once_others_may_have_come_no_other_port_is_tried():
    tried, announced = [], threading.Event()

    def initialize(port):
        tried.append(port)
        with listen_on(port):
            assert announced.wait(10)
            raise RuntimeError("one process did not come")

    with pytest.raises(RuntimeError, match="did not come"):
        rendezvous.start_service(initialize, lambda port: announced.set())
    assert len(tried) == 1
