"""How processes find their coordinator: claims on ports, publication by rename."""

import json
import socket
import threading
import time

import pytest

from simulator.cluster import rendezvous
from simulator.errors import RunFailure

pytestmark = pytest.mark.smoke


def test_a_claimed_port_is_claimed_once_until_released():
    first = rendezvous.claim_port()
    with pytest.raises(RunFailure, match="no free port"):
        rendezvous.claim_port([first.port])
    first.release()
    rendezvous.claim_port([first.port]).release()


def test_a_port_on_which_someone_listens_is_not_claimed():
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as gRPC does
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(RunFailure, match=str(port)):
            rendezvous.claim_port([port])


def test_claiming_goes_on_until_a_port_is_free():
    with socket.socket() as one, socket.socket() as two:
        for taken, port in ((one, 30000), (two, 30001)):
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            taken.bind(("", port))
            taken.listen()
        for _ in range(20):
            claim = rendezvous.claim_port(range(30000, 30003))
            assert claim.port == 30002
            claim.release()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFailure, match="file/run: the processes cannot meet there"):
        rendezvous.serve(tmp_path / "file" / "run", "name", "host", lambda port: None)


def test_listens_means_this_process(tmp_path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert not rendezvous.listens(port)
        server.listen()
        assert rendezvous.listens(port)
    assert not rendezvous.listens(port)


def listen_on(port: int) -> socket.socket:
    server = socket.socket()
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def test_the_address_is_published_while_the_service_waits_for_the_others(tmp_path):
    found = []

    def initialize(port):
        with listen_on(port):
            other = threading.Thread(
                target=lambda: found.append(rendezvous.find(tmp_path, "1.0.0.9", "first", 10))
            )
            other.start()
            other.join(10)

    claim = rendezvous.serve(tmp_path, "1.0.0.9", "first", initialize)
    assert found == [f"first:{claim.port}"]
    assert [path.name for path in tmp_path.iterdir() if not rendezvous.is_rendezvous(path.name)] == []
    rendezvous.retract(tmp_path, "1.0.0.9")
    assert list(tmp_path.iterdir()) == []
    claim.release()


def test_another_port_is_tried_where_the_service_does_not_start(tmp_path):
    tried = []

    def initialize(port):
        tried.append(port)
        if len(tried) < 3:
            raise RuntimeError("address already in use")
        with listen_on(port):
            assert rendezvous.find(tmp_path, "name", None, 10) == f"host:{port}"

    claim = rendezvous.serve(tmp_path, "name", "host", initialize)
    assert claim.port == tried[-1]
    assert len(set(tried)) == 3
    claim.release()


def test_a_service_that_never_starts_fails_with_its_own_error(tmp_path):
    def initialize(port):
        raise RuntimeError("address already in use")

    with pytest.raises(RuntimeError, match="already in use"):
        rendezvous.serve(tmp_path, "name", "host", initialize)
    assert list(tmp_path.iterdir()) == []


def test_once_others_may_have_come_no_other_port_is_tried(tmp_path):
    tried = []

    def initialize(port):
        tried.append(port)
        with listen_on(port):
            rendezvous.find(tmp_path, "name", None, 10)
            raise RuntimeError("one process did not come")

    with pytest.raises(RuntimeError, match="did not come"):
        rendezvous.serve(tmp_path, "name", "host", initialize)
    assert len(tried) == 1


def test_a_missing_address_names_file_and_host_after_the_wait(tmp_path):
    (tmp_path / ".coordinator-17.1.0.5").write_text(json.dumps({"host": "n", "port": 1}))
    began = time.monotonic()
    with pytest.raises(RunFailure) as failure:
        rendezvous.find(tmp_path, "17.0.0.4", "node7", wait=0.3)
    assert 0.3 <= time.monotonic() - began < 5
    assert str(tmp_path / ".coordinator-17.0.0.4") in str(failure.value)
    assert "node7" in str(failure.value)
