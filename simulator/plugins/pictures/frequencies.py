"""Spectra in frequency, and in frequency and wavenumber, of the series of probes."""

from typing import NamedTuple

import numpy as np

from simulator.archive.series_file import SeriesReader
from simulator.errors import UserError

FEWEST = 16  # The smallest number of evenly spaced rows for a spectrum.
EVEN = 1e-6  # The largest relative difference between the intervals of evenly spaced rows.


class FrequencySpectrum(NamedTuple):
    """E(omega). Its sum, times the distance of two frequencies, is the mean square of the
    fluctuations."""

    omega: np.ndarray  # (frequencies,), from 0 on.
    energy: np.ndarray


class WaveSpectrum(NamedTuple):
    """E(omega, k) of waves exp(i (k x - omega t)), which travel along the axis if k > 0 and against
    it if k < 0. Its sum, times the distances of two frequencies and two wavenumbers, is the mean
    square of the fluctuations."""

    omega: np.ndarray  # (frequencies,), rising from 0.
    k: np.ndarray  # (wavenumbers,), rising from the most negative.
    energy: np.ndarray  # (frequencies, wavenumbers).


def even_rows(time: np.ndarray) -> slice:
    """The longest sequence of rows at equal intervals of `time`. Raises UserError if it is shorter
    than `FEWEST`."""
    intervals = np.diff(time)
    usual = np.median(intervals) if len(intervals) else 0.0
    even = np.concatenate([[False], abs(intervals - usual) <= EVEN * usual, [False]])
    edges = np.flatnonzero(even[1:] != even[:-1]).reshape(-1, 2)
    first, last = max(edges, key=lambda edge: edge[1] - edge[0], default=(0, 0))
    if last - first + 1 < FEWEST:
        raise UserError(
            f"{len(time)} rows, at most {last - first + 1} of them at even intervals; a spectrum in frequency needs "
            f"{FEWEST}: use a fixed time.dt, or every with align: true"
        )
    return slice(int(first), int(last) + 1)


def frequency_spectrum(time: np.ndarray, values: np.ndarray) -> FrequencySpectrum:
    """E(omega) of `values` (row, point): the mean over the points of the spectra of the
    fluctuations about each point's mean over time. A Hann window keeps the jump between both ends
    of the record from spreading over all frequencies; the resolution is 4 pi / duration."""
    omega, amplitudes, step = _in_frequency(time, values)
    return FrequencySpectrum(omega, (abs(amplitudes) ** 2).mean(1) / step)


def wave_spectrum(time: np.ndarray, values: np.ndarray, spacing: float) -> WaveSpectrum:
    """E(omega, k) of `values` (row, position) on a line of evenly spaced positions around the box,
    with the window and the resolution of `frequency_spectrum`."""
    omega, amplitudes, step = _in_frequency(time, values)
    points = values.shape[1]
    # numpy's forward transform in time expands in exp(i omega t); waves exp(-i omega t) have the
    # conjugate amplitudes.
    modes = np.fft.fftshift(np.fft.fft(amplitudes.conj(), axis=1), axes=1) / points
    k = 2 * np.pi * np.fft.fftshift(np.fft.fftfreq(points, spacing))
    return WaveSpectrum(omega, k, abs(modes) ** 2 / (step * (k[1] - k[0] if points > 1 else 1.0)))


def _in_frequency(time: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """(frequencies, amplitudes, distance of two frequencies). The squares of the amplitudes
    (frequencies, point) add up to the mean square of the fluctuations."""
    rows = even_rows(time)
    time = time[rows]
    values = np.asarray(values[rows], np.float64)
    count = len(time)
    window = np.sin(np.pi * (np.arange(count) + 0.5) / count) ** 2
    window /= np.sqrt((window**2).mean())
    amplitudes = np.fft.rfft((values - values.mean(0)) * window[:, None], axis=0) / count
    # rfft leaves out the negative frequencies, which hold as much.
    pairs = np.full(len(amplitudes), 2.0)
    pairs[0] = 1.0
    if count % 2 == 0:
        pairs[-1] = 1.0
    step = 2 * np.pi / (count * (time[-1] - time[0]) / (count - 1))
    return np.arange(len(amplitudes)) * step, amplitudes * np.sqrt(pairs)[:, None], step


def probe_spectrum(series: SeriesReader, name: str) -> FrequencySpectrum | WaveSpectrum:
    """The spectrum of a variable of `probes.h5`: in frequency for a variable at points, in
    frequency and wavenumber for a variable on a line (`LINE/NAME`). Raises UserError if the rows
    are not evenly spaced in time."""
    values = series[name]
    (dimension,) = series.variables[name]
    if dimension == "point":
        return frequency_spectrum(series.time, values)
    along = series.coordinates[dimension]
    return wave_spectrum(series.time, values, float(along[1] - along[0]) if len(along) > 1 else 1.0)
