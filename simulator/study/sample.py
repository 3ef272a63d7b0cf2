"""Samples points in a space of parameters."""

import hashlib
from typing import Any

import numpy as np

from simulator.study.settings import Distribution, SampleSettings


def draw(settings: SampleSettings) -> list[dict[str, Any]]:
    """`settings.n` points, each with a value for every key. They depend on the seed only, and the values of a
    parameter do not depend on the other parameters."""
    columns = {
        key: [_value(distribution, u) for u in _uniform(settings, key)]
        for key, distribution in settings.parameters.items()
    }
    return [{key: values[i] for key, values in columns.items()} for i in range(settings.n)]


def _uniform(settings: SampleSettings, key: str) -> np.ndarray:
    """`n` numbers in (0, 1) for one parameter, from its own random stream."""
    stream = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")
    generator = np.random.default_rng([settings.seed, stream])
    if settings.method == "latin_hypercube":
        order = generator.permutation(settings.n)
        numbers = (order + generator.random(settings.n)) / settings.n
    else:
        numbers = generator.random(settings.n)
    return np.clip(numbers, 1e-12, 1 - 1e-12)


def _value(distribution: Distribution, u: float) -> Any:
    """The value at which the distribution's cumulative probability is `u`."""
    if distribution.choice is not None:
        return distribution.choice[int(u * len(distribution.choice))]
    if distribution.normal is not None:
        from statistics import NormalDist

        return NormalDist(*distribution.normal).inv_cdf(float(u))
    if distribution.log_uniform is not None:
        low, high = np.log(distribution.log_uniform)
        return float(np.exp(low + u * (high - low)))
    assert distribution.uniform is not None
    low, high = distribution.uniform
    return float(low + u * (high - low))
