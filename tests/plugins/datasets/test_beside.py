"""Trajectories from a process beside the training, through a reservoir."""

import socket
import sys
import threading
import types
from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose
from small_study import base_of, study_of
from tiers import slow

from simulator.errors import RunFailure, UserError
from simulator.plugins.datasets import beside
from simulator.plugins.datasets.reservoir import Reservoir
from simulator.plugins.datasets.stream import stream
from simulator.study.sweep import Sweep

BASE = base_of()
STUDY = study_of()


def produced(reservoir: Reservoir[int], number: int) -> threading.Thread:
    def put() -> None:
        for i in range(number):
            reservoir.put(i)
        reservoir.end()

    thread = threading.Thread(target=put)
    thread.start()
    return thread


def test_every_item_is_drawn_once_in_an_order_without_bias():
    """The first item drawn is uniform over the first eight: over 400 seeds each comes 50 times, with
    a standard deviation of sqrt(400 * 1/8 * 7/8) = 6.6; five of these are 33."""
    first = Counter[int]()
    for seed in range(400):
        reservoir = Reservoir[int](8, seed, repeat=False)
        thread = produced(reservoir, 20)
        drawn = list(reservoir)
        thread.join()
        assert sorted(drawn) == list(range(20)) and len(drawn) == 20
        first[drawn[0]] += 1
    assert set(first) == set(range(8)) and max(abs(n - 50) for n in first.values()) < 33


def test_items_are_repeated_until_new_ones_come():
    """The third item comes only after five draws: of the two that are there, both were repeated."""
    reservoir = Reservoir[int](2, 0)
    reservoir.put(0)
    reservoir.put(1)
    draws = iter(reservoir)
    early = [next(draws) for _ in range(5)]
    assert set(early) <= {0, 1} and len(set(early)) == 2
    assert reservoir.put(2)  # the place of one that was drawn
    reservoir.end()
    assert list(draws) == [2]


def test_the_producer_waits_while_nothing_was_drawn_and_ends_with_the_training():
    reservoir = Reservoir[int](2, 0)
    accepted = []

    def put() -> None:
        accepted.extend(reservoir.put(i) for i in range(4))

    thread = threading.Thread(target=put)
    thread.start()
    next(iter(reservoir))
    reservoir.end()
    thread.join(10)
    assert not thread.is_alive()
    assert accepted[:2] == [True, True] and accepted[-1] is False


def torch_like(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part of torch that is used, where torch is not installed."""
    data = types.ModuleType("torch.utils.data")
    vars(data).update(IterableDataset=type("IterableDataset", (), {}), get_worker_info=lambda: None)
    utils = types.ModuleType("torch.utils")
    vars(utils).update(data=data)
    torch = types.ModuleType("torch")
    vars(torch).update(utils=utils, from_numpy=lambda values: ("tensor", values))
    for module in (torch, utils, data):
        monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.spmd
@pytest.mark.parametrize("points, devices", [(8, 1), slow(16, 2), slow(16, 4)])
def test_a_process_beside_has_the_trajectories_of_the_stream(
    study, monkeypatch, points: int, devices: int
):
    """The other process divides the grid as the configuration asks."""
    sweep: Sweep = study(STUDY, base_of((points, points), devices=devices))
    expected = {
        run.index: values
        for part in stream(sweep, batch=2)
        for run, values in zip(part.runs, np.asarray(part["velocity"]), strict=True)
    }
    torch_like(monkeypatch)
    samples = stream(sweep, batch=2, seed=1).beside(reservoir=2, window=2, repeat=False)
    samples = list(samples.torch())
    assert sorted(sample["run"] for sample in samples) == [0, 1, 2, 3]
    for sample in samples:
        kind, velocity = sample["velocity"]
        assert (
            kind == "tensor"
            and velocity.shape == (2, 2, points, points)
            and velocity.flags.writeable
        )
        first = round(sample["time"][1][0] / 0.1)
        assert_allclose(velocity, expected[sample["run"]][first : first + 2], rtol=0, atol=1e-12)
        values = sweep.run(sample["run"]).values
        assert sample["parameters"]["model.viscosity"] == values["model.viscosity"]
    assert not sweep.folder.exists()


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_loader_of_torch_itself_batches_the_samples(study, workers: int):
    """Both in the process of the training and in a worker, to which the samples are pickled."""
    torch = pytest.importorskip("torch", reason="pip install torch")
    sweep: Sweep = study(STUDY, BASE)
    samples = stream(sweep, batch=2, seed=1).beside(reservoir=2, window=2, repeat=False)
    loader = torch.utils.data.DataLoader(
        samples.torch(),
        batch_size=2,
        num_workers=workers,
        multiprocessing_context="spawn" if workers else None,
    )
    if workers == 2:
        with pytest.raises(UserError, match="num_workers must be 0 or 1"):
            next(iter(loader))
        return
    batches = list(loader)
    assert sorted(int(run) for batch in batches for run in batch["run"]) == [0, 1, 2, 3]
    for batch in batches:
        assert batch["velocity"].shape == (2, 2, 2, 8, 8)
        assert batch["velocity"].dtype == torch.float64


def test_a_failure_beside_reaches_the_training(study):
    """The flow has no such field, which the other process finds."""
    study(STUDY, BASE)
    with pytest.raises(RunFailure, match="unknown field 'velocit', did you mean velocity"):
        list(stream("study.yaml", batch=2, fields=["velocit"]).beside(reservoir=2))


@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x14" + 20 * b"x"])
def test_a_stranger_who_connects_first_is_shut_out(study, monkeypatch, words: bytes):
    """Silent, of another protocol, or with a wrong answer to the challenge; two stay connected."""
    sweep: Sweep = study(STUDY, BASE)
    strangers: list[socket.socket] = []

    class BesideStrangers(beside.Beside):
        def _started(self, listener, secret):
            for _ in range(2):
                strangers.append(socket.create_connection(listener.getsockname()))
                strangers[-1].sendall(words)
            return super()._started(listener, secret)

    monkeypatch.setattr(beside, "PATIENCE", 0.5)
    monkeypatch.setattr("simulator.plugins.datasets.stream.Beside", BesideStrangers)
    samples = stream(sweep, batch=2, seed=1).beside(reservoir=2, repeat=False)
    assert sorted(sample["run"] for sample in samples) == [0, 1, 2, 3]
    for stranger in strangers:
        stranger.close()


def test_a_process_that_ends_before_it_connects_ends_the_stream(study):
    sweep = study(STUDY, BASE)
    for launcher in ("true", "false"):
        with pytest.raises(RunFailure, match="the process has ended"):
            list(stream(sweep, batch=2).beside(reservoir=2, launcher=[launcher]))


def test_reservoirs_that_are_refused(study, monkeypatch):
    sweep = study(STUDY, BASE)
    monkeypatch.setitem(sys.modules, "torch", None)
    for message, call in {
        "reservoir must be at least 1, not 0": lambda s: s.beside(reservoir=0),
        "window must be 1 to 3 frames, not 4": lambda s: s.beside(window=4),
        r"torch\(\) needs torch": lambda s: s.beside().torch(),
    }.items():
        with pytest.raises(UserError, match=message):
            call(stream(sweep, batch=2))
