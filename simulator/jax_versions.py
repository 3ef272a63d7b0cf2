"""Releases of JAX that are known to compute wrongly.

The installation excludes them (`pyproject.toml`, held to this table by a test), but a site's module
or another program's environment may bring one all the same."""

from collections.abc import Mapping

from simulator.errors import UserError
from simulator.words import version_of

FAULTS: Mapping[str, str] = {
    "0.10.2": "sums wrongly on processors (jax-ml/jax 39103)",
    "0.11.0": "crashes in sums of products on processors and is wrong on some GPUs (jax-ml/jax 39257, 40633)",
    "0.11.1": "copies whole arrays for small writes in loops and is wrong on some GPUs (jax-ml/jax 40101, 40633)",
}
"""Versions of jaxlib, each with what it does wrong and the public report."""


def fault() -> str | None:
    """A line that names the fault of the installed jaxlib and its cure; None if none is known."""
    version = version_of("jaxlib")
    if version not in FAULTS:
        return None
    return (
        f"jaxlib {version} {FAULTS[version]}; install another: "
        f'pip install "jax!={",!=".join(FAULTS)}"'
    )


def refuse_faulty_jax() -> None:
    """Raises UserError if the installed jaxlib is known to compute wrongly."""
    if line := fault():
        raise UserError(line)
