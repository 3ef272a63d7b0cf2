"""Parts of plugins that tests of the core, and of other plugins, use as examples. A test is skipped
where the plugin is absent: by the configurations among its parameters, by those of the simulations
and of the files that it makes, or by its marker `plugins("NAME")`."""

from functools import cache
from importlib.util import find_spec

import pytest

PARTS = dict.fromkeys(
    ("self_gravitating_gas", "schrodinger_poisson", "composite", "jeans_wave", "zeldovich_wave"),
    "gravity",
) | {"kind: relax": "bodies", "particle_statistics": "statistics", "trajectories": "statistics"}
"""The plugins by the kind of a part."""


@cache
def is_absent(plugin: str) -> bool:
    return not find_spec("simulator.plugins") or not find_spec(f"simulator.plugins.{plugin}")


def absent_plugin(example: object) -> str | None:
    """A plugin that is absent, a part of which an example names, such as a configuration."""
    absent = {part: plugin for part, plugin in PARTS.items() if is_absent(plugin)}
    text = str(example) if absent else ""
    return next((plugin for part, plugin in absent.items() if part in text), None)


def need_plugins_of(*examples: object) -> None:
    """Skips the rest of a test where a plugin is absent."""
    if (plugin := absent_plugin(examples)) is not None:
        pytest.skip(f"the plugin {plugin} is absent")
