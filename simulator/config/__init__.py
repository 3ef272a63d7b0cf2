"""The description of a run: converts YAML to a frozen `RunConfig` and back, with errors that name
file and line."""

from simulator.config.compare import Change, Difference, classify, diff_configs
from simulator.config.load import (
    as_mapping,
    dump_config,
    json_schema,
    load_config,
    read_settings,
    read_yaml,
)
from simulator.config.overrides import Override, parse_override
from simulator.config.run_config import (
    Registries,
    RunConfig,
    assemble,
    largest_cfl,
    run_config_class,
)

__all__ = [
    "Change",
    "Difference",
    "Override",
    "Registries",
    "RunConfig",
    "as_mapping",
    "assemble",
    "classify",
    "diff_configs",
    "dump_config",
    "json_schema",
    "largest_cfl",
    "load_config",
    "parse_override",
    "read_settings",
    "read_yaml",
    "run_config_class",
]
