"""What every test relies on: tiers, eight virtual CPU devices, double precision, a compile cache, a
profile."""

import gc
import itertools
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from plugin_parts import absent_plugin, is_absent

import simulator  # noqa: F401  # sets what XLA prints, before JAX is imported

# Most of the tests' time is compilation, and their grids are small: programs are compiled quickly
# rather than to run fast, here and in the processes that tests start.
# JAX_DISABLE_MOST_OPTIMIZATIONS=0 gives those that users get.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1" and version("jaxlib").startswith("0.10."):
    # XLA's older emitter compiles in half the time. A later jaxlib may not know the flag, and then
    # ends.
    flag = "--xla_cpu_use_fusion_emitters=false"
    if flag not in (flags := os.environ.get("XLA_FLAGS", "")):
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()
# JAX's plugin for GPUs asks no driver for its version: `-m gpu_program` compiles where there is
# none.
os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
import jax

from simulator.cli import main
from simulator.cluster import cache_folders, compile_cache
from simulator.cluster.environment import with_xla_flags

with_xla_flags("cpu")  # of every run on processors

if os.environ.get("SIMULATOR_TESTS_ARRAYS"):  # slower; not yet proven on the whole suite
    import array_types

    array_types.check_rooms()

# The tiers that a plain `pytest` leaves out, each with the option that brings it in.
TIERS = ("slow", "slurm", "gpu")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="run the long tests too, as with names of files"
    )
    parser.addoption("--slow", action="store_true", help="run the long and the slow tests too")
    parser.addoption(
        "--slurm", action="store_true", help="run the tests on a throwaway Slurm cluster too"
    )
    parser.addoption(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="run as many of the tests as fit, in another order every day; the rest are skipped",
    )
    parser.addoption(
        "--once",
        type=Path,
        metavar="FILE",
        help="leave out the tests that FILE names, and add those that pass to it",
    )
    parser.addoption(
        "--gpu", action="store_true", help="run the tests that need a GPU too, on that GPU"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Before any device starts; in-process tests share these devices, subprocesses choose their own.
    if not config.getoption("gpu"):
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_x64", True)
    jax.devices()  # at once: else a test that starts a run of one device would decide for all
    # Tracing makes many objects and little garbage: looking for the garbage less often saves a
    # twentieth of the time.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    os.fsync = lambda fd: None  # nothing waits for the disk: tests kill processes, not the machine
    _begin_session(config)
    # Random tests are the same every day; with --slow they are drawn anew, and a failure says how
    # to repeat it.
    hypothesis.settings.register_profile("same", deadline=None, derandomize=True)
    hypothesis.settings.register_profile("anew", deadline=None, derandomize=False, print_blob=True)
    hypothesis.settings.load_profile("anew" if config.getoption("slow") else "same")


def _begin_session(config: pytest.Config) -> None:
    """One choice of tiers, and one empty compile cache, for the workers of a session and all
    processes that they start."""
    if not hasattr(config, "workerinput"):
        # Workers, which know all files by name, take the choice from here.
        of_files = config.args_source is pytest.Config.ArgsSource.ARGS
        long = of_files or config.getoption("long") or config.getoption("slow")
        os.environ["SIMULATOR_TESTS_LONG"] = "1" if long else ""
        folder = os.environ.get(
            "SIMULATOR_TESTS_CACHE", ""
        )  # kept, for those who run the same tests many times
        if folder:
            os.makedirs(folder, exist_ok=True)
        else:
            folder = tempfile.mkdtemp(prefix="simulator-tests-")
            config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        # The native kernels are the user's, which the set-up has built: their name says which
        # sources they are of.
        (kernels := cache_folders.own_folder(os.environ) / "kernels").mkdir(
            parents=True, exist_ok=True
        )
        if not os.path.lexists(link := os.path.join(folder, "kernels")):
            os.symlink(kernels, link)
        os.environ["SIMULATOR_CACHE"] = folder
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)  # it would win
        os.environ["SIMULATOR_TESTS_DAY"] = str(int(time.time() // 86400))
    if not config.getoption("gpu"):
        compile_cache.use(compile_cache.prepare_cache(os.environ, "cpu"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {tier for tier in TIERS if not config.getoption(tier)}
    if not os.environ["SIMULATOR_TESTS_LONG"]:
        left_out.add("long")
    kept = [
        item
        for item in items
        if not left_out.intersection(mark.name for mark in item.iter_markers())
    ]
    once = config.getoption("once")
    passed = set(once.read_text().splitlines()) if once is not None and once.exists() else set()
    kept = [item for item in kept if item.nodeid not in passed]
    chosen = set(kept)
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = kept
    if find_spec("jaxdecomp") is None:  # it has no packages for Python 3.14
        absent = pytest.mark.skip(reason="jaxdecomp is not installed")
        for item in items:
            if "jaxdecomp" in item.name:
                item.add_marker(absent)
    for item in items:
        if (plugin := _absent_plugin(item)) is not None:
            item.add_marker(pytest.mark.skip(reason=f"the plugin {plugin} is absent"))
    if config.getoption("budget") is not None:
        # Test files stay together: they share fixtures. Workers must agree on the order, at
        # midnight too.
        files = sorted({item.path for item in items})
        random.Random(int(os.environ["SIMULATOR_TESTS_DAY"])).shuffle(files)
        items.sort(key=lambda item: files.index(item.path))


def _absent_plugin(item: pytest.Item) -> str | None:
    """A plugin that a test needs, by its marker or by its parameters, and that is absent."""
    named = (name for mark in item.iter_markers("plugins") for name in mark.args)
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return next(filter(is_absent, named), None) or absent_plugin(parameters)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """With --budget: what share of the tests ran. With --once: the names of those that passed."""
    if (once := config.getoption("once")) is not None:
        with once.open("a") as file:
            file.writelines(
                f"{report.nodeid}\n" for report in terminalreporter.stats.get("passed", ())
            )
    if config.getoption("budget") is None:
        return
    stats = terminalreporter.stats
    left_out = sum(_NO_TIME in str(report.longrepr) for report in stats.get("skipped", ()))
    ran = sum(len(stats.get(outcome, ())) for outcome in ("passed", "failed", "error"))
    share = 100 * ran / max(ran + left_out, 1)
    terminalreporter.write_line(f"{ran} of {ran + left_out} tests ran, {share:.0f} %")


_NO_TIME = "no time left of --budget"
_began = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    budget = item.config.getoption("budget")
    if budget is not None and time.monotonic() - _began > budget:
        pytest.skip(f"{_NO_TIME} {budget:g} s")


@pytest.fixture(scope="session")
def differentiate() -> Any:
    """Gradients of a run. Their plugin may be absent: such tests have the marker `plugins`."""
    return pytest.importorskip("simulator.plugins.gradients.differentiate").differentiate


@pytest.fixture
def refused_command(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`refused_command(NAME, ...)` is the line with which a command is refused: it prints nothing
    else, and its exit code is 2."""

    def refused_command(*words: object) -> str:
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        out, err = capsys.readouterr()
        assert out == "" and len(err.splitlines()) == 1, out + err
        return err

    return refused_command


@pytest.fixture
def optimised() -> Iterator[None]:
    """As a run's programs are; tests are compiled quickly."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


_MAPS = "/proc/self/maps"
_MOST_MAPS = 30_000
_ended = itertools.count(1)


def pytest_runtest_teardown() -> None:
    """Drops compiled programs before there are too many: each holds memory mappings, of which Linux
    gives a process 65530, and where they are used up the compiler ends in a segmentation fault."""
    if next(_ended) % 20 == 0 and os.path.exists(_MAPS):
        with open(_MAPS) as lines:
            count = sum(1 for _ in lines)
        if count > _MOST_MAPS:
            jax.clear_caches()
            gc.collect()
