"""The nonlinear term of a flow by itself, as timed by `fft.backend: auto`."""

from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simulator.spectral.transform import Local


class NonlinearTerm:
    """Three products of six fields on a transform, compiled."""

    def __init__(self, name: str, transform: Any):
        def cross(values, points, parameters):
            return Local({"c": jnp.cross(values["a"], values["b"], axis=0)})

        def run(array):
            return transform.evaluate({"a": array, "b": 2 * array}, cross).products["c"]

        run.__name__ = f"term_{transform.name}"  # distinguishes programs in the compile cache
        layout, self.name = transform.layout, name
        dtype = np.result_type(transform.dtype, np.complex64)
        array = random_array((3, *layout.shape), dtype, layout.sharding(4))
        self._array = jax.jit(lambda a: jnp.where(layout.mask, a, 0))(array)
        self._run = jax.jit(run).lower(self._array).compile()
        self.temporary = temporary_bytes(self._run)

    def round(self) -> tuple[float]:
        """Seconds of one evaluation."""
        start = perf_counter()
        jax.block_until_ready(self._run(self._array))
        return (perf_counter() - start,)


def temporary_bytes(compiled: Any) -> int:
    """Memory that a compiled program needs on one device besides its arguments and results."""
    return compiled.memory_analysis().temp_size_in_bytes


def random_array(shape: tuple[int, ...], dtype: Any, sharding: Any) -> jax.Array:
    """Normal random numbers, generated on the devices that hold them."""
    return jax.jit(lambda: jax.random.normal(jax.random.key(0), shape, dtype), out_shardings=sharding)()
