"""The energy that a run takes, in joules, from the counters of its machines: of processors and their
memory by RAPL, of GPUs by NVML, of the nodes of a step by Slurm.

Several processes may read the same counter. A counter therefore has a name that is unique among all
hosts, and a sum counts each name once. Where nothing can be read (RAPL's files belong to root on many
machines) there is no energy, which is not an energy of zero."""

import contextlib
import ctypes
import math
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.cluster.start import Cluster
from simulator.cluster.variables import whole_number

RAPL = "RAPL"
NVML = "NVML"
SLURM = "Slurm"
_READ_EVERY = 30.0
"""Seconds between two readings. A counter of RAPL may begin again after 65 kJ: after two minutes at
500 W."""
_ANSWER_WITHIN = 30.0  # seconds, of Slurm
_MOST_JOULES = 10**15  # Slurm writes numbers near 2^32 and 2^64 for none.


@dataclass(frozen=True)
class Counter:
    """A counter of joules, which begins again at zero after `extent`."""

    source: str
    name: str
    read: Callable[[], float]
    extent: float = math.inf


def rapl_counters(root: Path = Path("/")) -> list[Counter]:
    """The packages and their memory. Cores and graphics are parts of a package, and the whole
    platform (psys) contains it."""
    counters = []
    for zone in sorted(root.glob("sys/class/powercap/intel-rapl:*")):
        with contextlib.suppress(OSError, ValueError):
            kind = (zone / "name").read_text().strip()
            if not kind.startswith("package" if zone.name.count(":") == 1 else "dram"):
                continue
            extent = _micro(zone / "max_energy_range_uj")
            counter = Counter(RAPL, zone.name, lambda zone=zone: _micro(zone / "energy_uj"), extent)
            counter.read()
            counters.append(counter)
    return counters


def _micro(file: Path) -> float:
    return int(file.read_text()) / 1e6


def nvml_counters(ordinals: Sequence[int]) -> list[Counter]:
    """The GPUs with these numbers of CUDA; those that are divided (MIG) have no energy of their
    own."""
    counters = []
    with contextlib.suppress(OSError, AttributeError):  # no library, or an old one
        cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
        if cuda.cuInit(0) or nvml.nvmlInit_v2():
            return []
        for ordinal in ordinals:
            device = ctypes.c_int()
            bus = ctypes.create_string_buffer(32)
            gpu = ctypes.c_void_p()
            divided, pending = ctypes.c_uint(), ctypes.c_uint()
            if (
                cuda.cuDeviceGet(ctypes.byref(device), ordinal)
                or cuda.cuDeviceGetPCIBusId(bus, len(bus), device)
                or nvml.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(gpu))
            ):
                continue
            modes = ctypes.byref(divided), ctypes.byref(pending)
            if nvml.nvmlDeviceGetMigMode(gpu, *modes) == 0 and divided.value:
                continue
            counter = Counter(NVML, bus.value.decode(), lambda gpu=gpu: _of_gpu(nvml, gpu))
            with contextlib.suppress(OSError):
                counter.read()
                counters.append(counter)
    return counters


def _of_gpu(nvml: ctypes.CDLL, gpu: ctypes.c_void_p) -> float:
    millijoules = ctypes.c_ulonglong()
    if nvml.nvmlDeviceGetTotalEnergyConsumption(gpu, ctypes.byref(millijoules)):
        raise OSError("NVML does not know the energy of this GPU")
    return millijoules.value / 1e3


class Meter:
    """Adds up what the counters of this process count until `close`."""

    def __init__(self, counters: Iterable[Counter]) -> None:
        self._last = {counter: counter.read() for counter in counters}
        self._joules = dict.fromkeys(self._last, 0.0)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        if self._last:
            threading.Thread(target=self._keep_reading, name="energy", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _keep_reading(self) -> None:
        while not self._closed.wait(_READ_EVERY):
            self.joules()

    def joules(self) -> dict[str, float]:
        """The energy until now, by source and counter of this boot of the host."""
        with self._lock:
            for counter, before in self._last.items():
                with contextlib.suppress(OSError):  # a counter that goes away keeps its sum
                    now = counter.read()
                    self._joules[counter] += (now - before) % counter.extent
                    self._last[counter] = now
            return {f"{c.source} {_boot()} {c.name}": joules for c, joules in self._joules.items()}


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def meter_of(cluster: Cluster) -> Meter:
    """The meter of a process: its host's processors, and the GPUs that it uses."""
    gpus = [] if cluster.platform == "cpu" else cluster.local_devices
    ordinals = [gpu.local_hardware_id for gpu in gpus]  # pyright: ignore[reportAttributeAccessIssue]
    return Meter([*rapl_counters(), *nvml_counters(ordinals)])


def by_source(processes: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The joules of all processes by source, from the `Meter.joules` of each of them."""
    counters: dict[str, float] = {}
    for process in processes:
        for name, joules in process.items():
            counters[name] = max(joules, counters.get(name, 0.0))
    sums: dict[str, float] = {}
    for name, joules in counters.items():
        source = name.partition(" ")[0]
        sums[source] = sums.get(source, 0.0) + joules
    return sums


def of_step(environ: Mapping[str, str]) -> dict[str, float]:
    """The joules of the nodes of this Slurm step since its begin, as its accounting has last polled
    them; empty where it measures none."""
    job, step = environ.get("SLURM_JOB_ID"), whole_number(environ.get("SLURM_STEP_ID"))
    if job is None or step is None or step > _MOST_JOULES:
        return {}
    command = ["sstat", "--noheader", "--parsable2", "--format=ConsumedEnergyRaw"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        words = [*command, f"--jobs={job}.{step}"]
        said = subprocess.run(words, capture_output=True, text=True, timeout=_ANSWER_WITHIN)
        joules = whole_number(said.stdout.strip())
        if said.returncode == 0 and joules and joules < _MOST_JOULES:
            return {SLURM: float(joules)}
    return {}


def in_words(joules: Mapping[str, float]) -> str:
    """`12.3 kJ by RAPL, 4.56 MJ by NVML`."""
    return ", ".join(f"{with_prefix(value)} by {source}" for source, value in joules.items())


def with_prefix(joules: float) -> str:
    """`12.3 kJ`, `4.56 nJ`."""
    power = min(max(math.floor(math.log10(joules or 1.0) / 3), -3), 3)
    return f"{joules / 1000**power:.3g} {'nµm kMG'[power + 3].strip()}J"
