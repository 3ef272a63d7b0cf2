"""The settings for speed, which leave the user's alone."""

import os
import sys
from pathlib import Path

import jax
import pytest
from run_support import fresh, tool

from simulator.cluster import environment, hardware
from simulator.cluster.memory import keep_freed_memory

pytestmark = pytest.mark.smoke


def python(code: str, **environ: str) -> str:
    """Standard output of a fresh interpreter."""
    done = fresh(code, **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_is_compiled_whatever_the_environment_says():
    """JAX's own loops without compilation recurse beyond Python's limit."""
    said = python(
        """
        from simulator.cluster import environment
        environment.apply("cpu", print)
        import jax
        print(jax.config.jax_disable_jit)
        """,
        JAX_DISABLE_JIT="1",
    )
    assert said.splitlines() == [
        "warning: JAX_DISABLE_JIT is ignored, because a run is compiled as a whole",
        "False",
    ]


FAULTS = """
    import os, resource, threading
    from simulator.cluster import environment
    made = environment.apply("cpu", print)
    import numpy as np
    def work():
        def once():
            block = np.ones(64 << 17)  # 64 MiB
        once()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        once()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print(sorted(made))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_freed_memory_is_used_again_without_page_faults_in_threads_too(tmp_path):
    main, thread, made = python(FAULTS, SIMULATOR_CACHE=str(tmp_path)).splitlines()
    assert "mallopt M_ARENA_MAX" in made
    # 64 MiB are 16384 pages (32 huge ones); a handful come from elsewhere
    assert int(main) < 10 and int(thread) < 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_a_commands_own_threads_do_not_undo_it(tmp_path):
    """A thread that starts before the setting has an arena of its own, which later threads share."""
    earlier = """
    import argparse
    from simulator.cluster.failure import Watchdog
    from simulator.run.command import allocated
    with allocated(argparse.Namespace(coordinator=None, num_processes=None, process_id=None)):
        with Watchdog(60, "this process"):
            pass
    """
    said = python(earlier + FAULTS.lstrip("\n"), SIMULATOR_CACHE=str(tmp_path)).splitlines()
    assert int(said[0]) < 10 and int(said[1]) < 10


def huge_pages() -> bool:
    """Whether this kernel gives huge pages to programs that ask for them, and to no others."""
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return path.exists() and "[madvise]" in path.read_text()


@pytest.mark.skipif(not huge_pages(), reason="the kernel gives no huge pages on request")
@pytest.mark.parametrize("limit", ["", "RLIMIT_AS", "RLIMIT_DATA"])
def test_new_memory_comes_in_huge_pages_unless_memory_is_limited(limit):
    body = """
        import os, resource, sys
        from simulator import keep_freed_memory
        if limit := sys.argv[1]:
            resource.setrlimit(getattr(resource, limit), (1 << 33, 1 << 33))
        made = keep_freed_memory()
        assert made == keep_freed_memory()
        used = lambda: resource.getrusage(resource.RUSAGE_SELF)
        before = used()
        block = b"x" * (64 << 20)
        print(used().ru_minflt - before.ru_minflt, used().ru_maxrss - before.ru_maxrss)
        print("madvise MADV_HUGEPAGE" in made)
        child = os.fork()
        if not child:
            os._exit(0)
        print(os.waitpid(child, 0)[1])
    """
    done = fresh(body, limit)
    assert done.returncode == 0, done.stderr
    faults, kilobytes, huge, forked = done.stdout.split()
    assert huge == str(not limit) and forked == "0"
    assert (int(faults) < 16384 / 8) == (not limit)  # 64 MiB are 16384 small pages
    assert int(kilobytes) < 72 << 10


def test_the_users_allocator_settings_are_left_alone(tmp_path):
    main, _, made = python(FAULTS, SIMULATOR_CACHE=str(tmp_path), MALLOC_ARENA_MAX="4").splitlines()
    assert "mallopt" not in made and int(main) > 10
    for user in (
        {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"},
        {"MALLOC_TRIM_THRESHOLD_": "1"},
        {"LD_PRELOAD": "/usr/lib/libjemalloc.so"},
    ):
        assert keep_freed_memory(user) == {}


GPU = """
    import os
    from simulator.cluster import environment
    mine = {"XLA_FLAGS": "--xla_gpu_enable_latency_hiding_scheduler=false", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3"}
    for user in ({}, mine):
        os.environ.pop("XLA_CLIENT_MEM_FRACTION", None)
        os.environ.pop("XLA_FLAGS", None)
        os.environ |= user
        print(sorted(name for name in environment.apply("gpu", print) if name.startswith("XLA")))
        print(os.environ.get("XLA_FLAGS"), os.environ.get("XLA_CLIENT_MEM_FRACTION"))
"""


@pytest.mark.parametrize("devices, roots", [(128, ""), (129, "128"), (1024, "128")])
def test_hundreds_of_gpus_have_several_nccl_roots(devices, roots):
    environ: dict[str, str] = {}
    environment.with_xla_flags("gpu", environ, devices)
    assert (
        environ["XLA_FLAGS"].partition("--xla_gpu_nccl_init_max_rank_per_root_ratio=")[2] == roots
    )


def test_settings_are_made_and_recorded_and_the_users_are_left_alone(tmp_path):
    assert python(GPU, SIMULATOR_CACHE=str(tmp_path)).splitlines() == [
        "['XLA_CLIENT_MEM_FRACTION', 'XLA_FLAGS']",
        "--xla_gpu_enable_latency_hiding_scheduler=true 0.9",
        "[]",
        "--xla_gpu_enable_latency_hiding_scheduler=false None",
    ]
    mine = "--xla_cpu_enable_concurrency_optimized_scheduler=true --xla_disable_hlo_passes=dce"
    mine += " --xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_REDUCE"
    assert (
        environment.with_xla_flags("cpu", environ := {"XLA_FLAGS": mine}) == {}
        and environ["XLA_FLAGS"] == mine
    )
    made = environment.with_xla_flags("cpu", {})
    assert "--xla_cpu_enable_concurrency_optimized_scheduler=false" in made["XLA_FLAGS"]


def test_this_jax_knows_the_flags_and_every_option_that_is_set(tmp_path):
    """XLA ends the process at an unknown flag: so JAX still computing shows that it knows them."""
    body = """
        from simulator.cluster import environment
        environment.apply("cpu", print)
        environment.with_xla_flags("gpu", devices=1000)
        import os
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax
        print(jax.jit(lambda x: x + 1)(1))
    """
    assert python(body, SIMULATOR_CACHE=str(tmp_path)) == "2\n"
    with pytest.raises(AssertionError, match="Unknown flag"):
        python(body, SIMULATOR_CACHE=str(tmp_path), XLA_FLAGS="--xla_no_such_flag=1")
    for name in (
        "threefry_partitionable",
        "cpu_collectives_implementation",
        "remove_custom_partitioning_ptr_from_cache_key",
        "persistent_cache_min_compile_time_secs",
    ):
        assert hasattr(jax.config, f"jax_{name}")


def test_cores_count_hyperthreads_once_and_obey_a_quota(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 8}, raising=False)
    for cpu, siblings in {0: "0,2", 2: "0,2", 1: "1,3", 3: "1,3"}.items():
        folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings)
    assert hardware.usable_cores(tmp_path) == 3
    group = tmp_path / "sys/fs/cgroup/kubepods/pod1"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/kubepods/pod1\n")
    (group / "cpu.max").write_text("max 100000\n")
    assert hardware.usable_cores(tmp_path) == 3
    (group.parent / "cpu.max").write_text("250000 100000\n")
    assert hardware.usable_cores(tmp_path) == 2
    (group / "cpu.max").write_text("10000 100000\n")
    assert hardware.usable_cores(tmp_path) == 1


def test_gpus_are_counted_without_cuda(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hardware.present_gpus(tmp_path) == 0
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).write_text("")
    assert hardware.present_gpus(tmp_path) == 2
    tool(
        tmp_path,
        "nvidia-smi",
        "echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)'\necho '  MIG 1g.10gb Device 0: x'",
    )
    assert hardware.present_gpus(tmp_path) == 1


def test_amds_gpus_are_counted_and_named(tmp_path, monkeypatch):
    """Processors have the number 0 among the driver's nodes."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hardware.gpu_vendor(tmp_path) == "cuda"
    for node, number in enumerate(("0", "4711", "4712")):
        folder = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{node}"
        folder.mkdir(parents=True)
        (folder / "gpu_id").write_text(f"{number}\n")
    assert hardware.present_gpus(tmp_path) == 2 and hardware.gpu_vendor(tmp_path) == "rocm"


def test_a_plugin_of_another_version_is_named_with_the_cure(monkeypatch):
    versions = {"jaxlib": "0.10.2", "jax-rocm7-plugin": "0.12.0"}

    def version(name: str) -> str:
        if name not in versions:
            raise hardware.importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(hardware.importlib.metadata, "version", version)
    assert hardware.plugin_problem("cuda") is None
    problem = hardware.plugin_problem("rocm") or ""
    assert (
        "jax-rocm7-plugin 0.12.0" in problem
        and "pip install 'jax-rocm7-plugin==0.10.2.*'" in problem
    )
    versions["jax-rocm7-plugin"] = "0.10.2.post1"
    assert hardware.plugin_problem("rocm") is None
    versions["jax-rocm7-plugin"] = "0.10.2.1"
    assert hardware.plugin_problem("rocm") is None
