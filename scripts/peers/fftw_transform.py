"""FFTW in one process with threads: three real transforms there and back, by measured plans."""

from turns import Line, mean_seconds, problem, serve, timed

line = Line()
settings = problem()

import numpy as np  # noqa: E402
import pyfftw  # noqa: E402

shape, threads = settings["shape"], settings["threads"]
real = np.dtype(settings["precision"])
values = pyfftw.empty_aligned((settings["components"], *shape), real)
modes = pyfftw.empty_aligned((*values.shape[:-1], shape[-1] // 2 + 1), np.result_type(real, "c8"))
options = {"axes": (1, 2, 3), "flags": ("FFTW_MEASURE", "FFTW_DESTROY_INPUT"), "threads": threads}
forward = pyfftw.FFTW(values, modes, **options)
inverse = pyfftw.FFTW(modes, values, direction="FFTW_BACKWARD", **options)
# Planning has overwritten the arrays.
values[:] = np.random.default_rng(0).standard_normal(values.shape)

# `execute` leaves the factor of the inverse out, so that values grow by the number of points.
down = real.type(1 / np.prod(shape))


def pair() -> tuple[float, float]:
    there, back = timed(1, forward.execute), timed(1, inverse.execute)
    values[:] *= down
    return there, back


def seconds() -> tuple[float, float]:
    return mean_seconds(pair, settings["pairs"])


serve(line, {"name": f"FFTW, {threads} threads (pyfftw {pyfftw.__version__})"}, seconds)
