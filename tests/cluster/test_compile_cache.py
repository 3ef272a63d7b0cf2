"""The compile cache: a second process hits, a changed partitioning rule misses, and it never fails
a run."""

import os
import re
from pathlib import Path

import pytest
from run_support import ROOT, fresh

from simulator.cluster import cache_folders, compile_cache

# A program whose result shows which partitioning rule it was compiled with.
PROGRAM = """
    import sys
    from pathlib import Path
    from simulator.cluster import compile_cache, discover
    if len(sys.argv) > 2:
        # as if this package's sources lay there: the name of the cache's folder is made from them
        name = compile_cache.cache_name
        compile_cache.cache_name = lambda platform: name(platform, Path(sys.argv[2]))
    from simulator.cluster.start import start
    cluster = start(discover({}), platform="cpu", count=2)
    import jax, jax.numpy as jnp
    from jax import monitoring
    from jax.experimental.custom_partitioning import custom_partitioning
    from jax.sharding import NamedSharding, PartitionSpec
    from simulator.cluster.mesh import make_mesh
    hits = []
    def listen(event, **_):
        if "cache_hits" in event:
            hits.append(event)
    monitoring.register_event_listener(listen)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    factor = float(sys.argv[1])

    @custom_partitioning
    def scale(x):
        return x
    def partition(mesh, arguments, result):
        sharding = NamedSharding(mesh, PartitionSpec("d"))
        return mesh, lambda x: factor * x, sharding, (sharding,)
    scale.def_partition(
        partition=partition,
        infer_sharding_from_operands=lambda mesh, a, r: NamedSharding(mesh, PartitionSpec("d")),
        sharding_rule="i -> i",
    )
    mesh = make_mesh(cluster.devices, (2,), ("d",))
    x = jax.device_put(jnp.ones(4), NamedSharding(mesh, PartitionSpec("d")))
    hits.clear()
    print(float(jax.jit(lambda x: scale(x) * 1.0)(x)[0]), "hit" if hits else "miss")
"""


def answer(cache_folder: Path, *arguments: str) -> list[str]:
    """The first entry that a fresh process computes, whether this cache had its program, and what
    it said of that."""
    done = fresh(PROGRAM, *arguments, SIMULATOR_CACHE=str(cache_folder))
    assert done.returncode == 0, done.stderr
    return [*done.stdout.split(), done.stderr]


@pytest.mark.long
def test_a_second_process_hits_a_changed_rule_misses_and_damage_is_no_failure(tmp_path):
    sources = tmp_path / "package"
    (sources / "spectral").mkdir(parents=True)
    (sources / "spectral" / "rule.py").write_text("factor = 2\n")
    assert answer(tmp_path, "2", str(sources))[:2] == ["2.0", "miss"]
    # The name of the folder is needed: JAX's own key does not see that the rule has changed ...
    assert answer(tmp_path, "3", str(sources))[:2] == ["2.0", "hit"]
    # ... but a changed rule is a changed source.
    (sources / "spectral" / "rule.py").write_text("factor = 3\n")
    assert answer(tmp_path, "3", str(sources))[:2] == ["3.0", "miss"]
    for path in tmp_path.rglob("*-cache"):
        path.write_bytes(path.read_bytes()[:100])
    assert answer(tmp_path, "3", str(sources))[0] == "3.0"  # a damaged cache is no failure


@pytest.mark.smoke
def test_the_sources_of_rules_are_rooms_of_the_package():
    """Rooms move; a name that no longer exists would let old programs run with new rules."""
    texts = {path: path.read_text() for path in (ROOT / "simulator").rglob("*.py")}
    users = [
        path for path, text in texts.items() if re.search(r"\bProgram\(|@custom_partitioning", text)
    ]
    assert users
    folders = [ROOT / "simulator" / name for name in compile_cache.SOURCES]
    assert all(any(folder.glob("**/*.py")) for folder in folders)
    assert all(any(folder in path.parents for folder in folders) for path in users)


@pytest.mark.smoke
def test_the_folders_name_knows_sources_processor_and_platform(tmp_path, monkeypatch):
    kernel = tmp_path / "spectral" / "native" / "tile.h"
    command = tmp_path / "cli" / "a.py"
    for file in (kernel, command):
        file.parent.mkdir(parents=True)
        file.write_text("1")
    first = compile_cache.cache_name("cpu", tmp_path)
    assert first != compile_cache.cache_name("gpu", tmp_path)
    command.write_text("2")
    assert compile_cache.cache_name("cpu", tmp_path) == first
    kernel.rename(kernel.with_name("other.h"))
    assert compile_cache.cache_name("cpu", tmp_path) != first
    second = compile_cache.cache_name("cpu", tmp_path)
    monkeypatch.setattr(compile_cache, "cpu_model", lambda: "another processor")
    assert compile_cache.cache_name("cpu", tmp_path) != second
    assert compile_cache.cache_name("cpu", tmp_path).rpartition("-")[2] == second.rpartition("-")[2]


@pytest.mark.smoke
def test_the_base_folder():
    home = {"HOME": "/home/x"}
    assert cache_folders.base_folder(home | {"XDG_CACHE_HOME": "/c"}) == Path("/c/simulator")
    assert cache_folders.base_folder(
        home | {"SIMULATOR_CACHE": "/s", "XDG_CACHE_HOME": "/c"}
    ) == Path("/s")
    both = {"SIMULATOR_CACHE": "/s", "JAX_COMPILATION_CACHE_DIR": "/j"}
    assert cache_folders.base_folder(both) == Path("/j")
    assert cache_folders.own_folder(both) == Path("/s")


@pytest.mark.smoke
def test_the_oldest_files_go_first_and_only_ours(tmp_path):
    folder = tmp_path / "cpu-0123abcd-0123456789abcdef"
    foreign = tmp_path / "gpu-of-someone"
    for path in (folder, foreign):
        path.mkdir()
        for age in range(4):
            (path / f"{age}-cache").write_bytes(bytes(1000))
            os.utime(path / f"{age}-cache", (1e9 - age, 1e9 - age))
    assert compile_cache.prune_cache(tmp_path, limit=2500) == 2000
    assert sorted(path.name for path in folder.iterdir()) == ["0-cache", "1-cache"]
    assert len(list(foreign.iterdir())) == 4
    assert compile_cache.prune_cache(tmp_path, limit=2500) == 2000


@pytest.mark.smoke
def test_an_unusable_cache_is_one_warning(tmp_path):
    (tmp_path / "file").write_text("")
    *found, said = answer(tmp_path / "file", "2")
    assert found == ["2.0", "miss"]
    assert said.count("\n") == 1 and said.startswith(
        "simulator: warning: compiled programs are not kept"
    )


def test_programs_that_others_could_have_written_are_not_executed(tmp_path):
    """A cache that others may write to is refused in `private_folder`, whichever of its parts they
    may write to."""
    folder = cache_folders.private_folder(tmp_path / "cache" / "cpu-x")
    (file := folder / "program-cache").write_bytes(b"")
    folder.chmod(0o755)
    for path, mode in ((folder.parent, 0o775), (folder, 0o757), (file, 0o646)):
        before = path.stat().st_mode
        path.chmod(mode)
        with pytest.raises(PermissionError, match=f"others may write to {path}"):
            cache_folders.private_folder(folder)
        path.chmod(before)
    assert cache_folders.private_folder(folder) == folder
    if os.geteuid() == 0:  # only root can give files to another user
        os.chown(folder, 54321, -1)
        with pytest.raises(PermissionError, match=rf"{folder} belongs to another user \(54321\)"):
            cache_folders.private_folder(folder)


@pytest.mark.smoke
def test_a_cache_is_made_for_the_user_alone_and_a_sticky_base_is_good(tmp_path):
    before = os.umask(0o002)
    try:
        folder = cache_folders.private_folder(tmp_path / "base" / "cpu-x")
    finally:
        os.umask(before)
    assert not (folder.stat().st_mode | folder.parent.stat().st_mode) & 0o022
    folder.parent.chmod(0o1777)
    assert cache_folders.private_folder(folder) == folder
