"""Compares the configuration that a run's checkpoints were computed with and the one that is to continue them.

Every checkpoint and snapshot carries the resolved configuration in its manifest, under the manifest's checksum.
Anybody can edit `RUN/config.yaml`; the blocks that may not change are therefore taken from the manifest.
"""

from collections.abc import Collection
from pathlib import Path

from simulator.config import Change, Difference, RunConfig, diff_configs, load_config
from simulator.config.compare import FROZEN
from simulator.config.load import parse_config
from simulator.errors import RunFailure, UserError
from simulator.run.folder import in_words, within

ATTRIBUTE = "configuration"


def stored_config(checkpoint: Path) -> RunConfig | None:
    """The configuration in the manifest of a checkpoint; None if an earlier version wrote the checkpoint without one.

    Raises the errors of `open_snapshot`, and UserError if this version cannot read the configuration.
    """
    from simulator.archive.manifest import NAME, read_manifest

    text = read_manifest(checkpoint).attributes.get(ATTRIBUTE)
    return parse_config(text, str(checkpoint / NAME)) if text else None


def computed_with(config_file: Path) -> RunConfig:
    """The configuration of the run in the folder of `config_file`, with the frozen blocks of its newest checkpoint.

    Raises UserError if the file cannot be read.
    """
    from simulator.archive.manifest import committed

    config = load_config(config_file, check_files=False)
    for checkpoint in reversed(committed(config_file.parent / "checkpoints")):
        try:
            stored = stored_config(checkpoint)
        except (RunFailure, UserError):  # damaged or of another version: the run does not continue from it
            continue
        return config if stored is None else with_frozen_of(config, stored)
    return config


def with_frozen_of(config: RunConfig, stored: RunConfig) -> RunConfig:
    """`config` with the frozen blocks of `stored`."""
    return config.model_copy(update={block: getattr(stored, block) for block in FROZEN})


def frozen_differences(stored: RunConfig, now: RunConfig, allow: Collection[str] = ()) -> list[Difference]:
    """The frozen keys in which `now` differs, except those that lie at or below a key in `allow`."""
    return [
        d
        for d in diff_configs(stored, now)
        if d.change is Change.FROZEN and not any(within(d.key, a) for a in allow)
    ]


def edited(config_file: Path, now: RunConfig, allow: Collection[str]) -> str | None:
    """The refusal of a run whose `config.yaml` was edited; None if the file agrees with the checkpoints."""
    truth = computed_with(config_file)
    wrong = frozen_differences(truth, now, allow)
    changed = {d.key for d in frozen_differences(truth, load_config(config_file, check_files=False))}
    if not wrong or not changed.issuperset(d.key for d in wrong):
        return None
    keys = ", ".join(
        f"{d.key} is {in_words(d.new)}, but the checkpoints were computed with {in_words(d.old)}"
        for d in wrong
    )
    return (
        f"{config_file}: was edited: {keys}; put it back, or allow the change: "
        f"simulator resume {config_file.parent} {_allowing(wrong)}"
    )


def check_restored(checkpoint: Path, now: RunConfig, allow: Collection[str]) -> None:
    """Raises UserError if the frozen keys of `checkpoint` differ from those of `now`."""
    stored = stored_config(checkpoint)
    if stored is not None and (wrong := frozen_differences(stored, now, allow)):
        keys = ", ".join(f"{d.key} (there {in_words(d.old)}, now {in_words(d.new)})" for d in wrong)
        raise UserError(
            f"{checkpoint}: was computed with another {keys}; continue with its value, or allow the change: "
            f"{_allowing(wrong)}"
        )


def _allowing(differences: list[Difference]) -> str:
    return " ".join(f"--allow {d.key}" for d in differences)
