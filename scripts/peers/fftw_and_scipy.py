"""FFT libraries as contenders of `bench_fft.py`: scipy.fft in this process, mpi4py-fft with FFTW in
MPI processes.

mpi4py-fft is optional and installed in another environment, whose interpreter executes the program
`PEER`."""

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator

import numpy as np
from peers.turns import mean_seconds

PYTHON = "SIMULATOR_MPI4PY_FFT"
"""Environment variable: the Python interpreter that has mpi4py-fft."""

PEER = """
import json, sys, time
import numpy as np
from mpi4py import MPI
from mpi4py_fft import PFFT, newDistArray
comm = MPI.COMM_WORLD
shape, dtype, components, pairs = json.loads(sys.argv[1])
fft = PFFT(comm, shape, axes=(0, 1, 2), dtype=dtype, grid=(-1,))
values = [newDistArray(fft, False) for _ in range(components)]
modes = [newDistArray(fft, True) for _ in range(components)]
for v in values:
    v[:] = np.random.default_rng(comm.rank).standard_normal(v.shape)

def timed(transform, sources, targets):
    comm.Barrier()
    start = time.perf_counter()
    for source, target in zip(sources, targets):
        transform(source, target)
    comm.Barrier()
    return time.perf_counter() - start

while True:
    # Waiting inside MPI would occupy a core that the other contenders need.
    if comm.rank == 0:
        go = bool(sys.stdin.readline())
        for other in range(1, comm.size):
            comm.send(go, other)
    else:
        while not comm.Iprobe(source=0):
            time.sleep(0.002)
        go = comm.recv(source=0)
    if not go:
        break
    times = np.zeros(2)
    for _ in range(pairs):
        times += timed(fft.forward, values, modes), timed(fft.backward, modes, values)
    if comm.rank == 0:
        print(json.dumps(list(times / pairs)), flush=True)
"""


class Scipy:
    """`scipy.fft` real transforms of whole arrays in one process, on `workers` threads."""

    def __init__(self, values: np.ndarray, workers: int, pairs: int):
        import scipy.fft

        self._fft = scipy.fft
        self._values = values
        self._workers = workers
        self._pairs = pairs
        self.name = f"scipy.fft rfftn, {workers} workers"

    def round(self) -> tuple[float, float]:
        return mean_seconds(self._pair, self._pairs)

    def _pair(self) -> tuple[float, float]:
        start = time.perf_counter()
        modes = self._fft.rfftn(self._values, axes=(1, 2, 3), workers=self._workers)
        middle = time.perf_counter()
        self._fft.irfftn(modes, self._values.shape[1:], axes=(1, 2, 3), workers=self._workers)
        return middle - start, time.perf_counter() - middle


class Mpi4pyFft:
    """mpi4py-fft in MPI processes, which wait between rounds without using a core."""

    def __init__(self, process: subprocess.Popen, ranks: int):
        self._process = process
        self.name = f"mpi4py-fft, FFTW, {ranks} ranks"

    def round(self) -> tuple[float, float]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        forward, inverse = json.loads(self._process.stdout.readline())
        return forward, inverse


@contextlib.contextmanager
def mpi4py_fft(
    shape: tuple[int, int, int], dtype: np.dtype, components: int, ranks: int, pairs: int
) -> Iterator[Mpi4pyFft | None]:
    """mpi4py-fft in `ranks` MPI processes, or None if there is no mpirun or $SIMULATOR_MPI4PY_FFT
    is not set."""
    python = os.environ.get(PYTHON)
    mpirun = shutil.which("mpirun")
    if python is None or mpirun is None:
        yield None
        return
    allowed = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
    }
    problem = json.dumps([shape, np.dtype(dtype).char, components, pairs])
    process = subprocess.Popen(
        [mpirun, "--oversubscribe", "-n", str(ranks), python, "-c", PEER, problem],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | allowed,
    )
    try:
        yield Mpi4pyFft(process, ranks)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)
