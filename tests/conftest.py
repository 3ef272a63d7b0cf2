"""What every test relies on: the tiers, eight virtual CPU devices, double precision, Hypothesis' profile."""

import gc
import itertools
import os
import random
import time

import hypothesis
import pytest

os.environ.setdefault(
    "TF_CPP_MIN_LOG_LEVEL", "2"
)  # as the command sets it; else JAX sets 1, for our processes too
import jax

# The tiers that a plain `pytest` leaves out, each with the option that brings it in.
TIERS = ("slow", "slurm", "gpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests too")
    parser.addoption("--slurm", action="store_true", help="run the tests on a throwaway Slurm cluster too")
    parser.addoption(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="run as many of the tests as fit, in another order every day; the rest are skipped",
    )
    parser.addoption("--gpu", action="store_true", help="run the tests that need a GPU too, on that GPU")


def pytest_configure(config: pytest.Config) -> None:
    # Before any device starts; in-process tests share these devices, subprocesses choose their own.
    if not config.getoption("gpu"):
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_x64", True)
    jax.devices()  # at once: else a test that starts a run of one device would decide for all
    hypothesis.settings.register_profile("default", deadline=None)
    hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {tier for tier in TIERS if not config.getoption(tier)}
    kept = [item for item in items if not left_out.intersection(mark.name for mark in item.iter_markers())]
    chosen = set(kept)
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = kept
    if config.getoption("budget") is not None:
        # Test files stay together: they share compiled functions and fixtures.
        files = sorted({item.path for item in items})
        random.Random(int(time.time() // 86400)).shuffle(files)
        items.sort(key=lambda item: files.index(item.path))


_began = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    budget = item.config.getoption("budget")
    if budget is not None and time.monotonic() - _began > budget:
        pytest.skip(f"no time left of --budget {budget:g} s")


_MAPS, _MOST_MAPS = "/proc/self/maps", 30_000
_ended = itertools.count(1)


def pytest_runtest_teardown() -> None:
    """Drops compiled programs before there are too many: each holds memory mappings, of which Linux gives a process
    65530, and where they are used up the compiler ends in a segmentation fault."""
    if next(_ended) % 20 == 0 and os.path.exists(_MAPS):
        with open(_MAPS) as lines:
            count = sum(1 for _ in lines)
        if count > _MOST_MAPS:
            jax.clear_caches()
            gc.collect()
