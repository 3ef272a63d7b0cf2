"""Scale factors, redshifts and h in the data of a configuration of an expanding box."""

import math
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from simulator.physics.models.expansion import Expansion, ExpansionSettings
from simulator.plugins.gravity.units import UNITS
from simulator.settings import evaluate_number, wrong


def stated_h(configuration: Mapping[str, Any]) -> dict[str, float]:
    """h, H0 in 100 km/s/Mpc, by the keys of a resolved configuration that state it: of an expanding
    box in kpc that of H0, which units of Mpc/h do not contain, and the key `h` of starts and
    outputs."""
    model = configuration.get("model") or {}
    initial = configuration.get("initial") or {}
    blocks = {"model": model, "initial": initial}
    blocks |= {f"model.components.{i}": c for i, c in enumerate(model.get("components") or ())}
    blocks |= {f"initial.components.{n}": s for n, s in (initial.get("components") or {}).items()}
    blocks |= {f"output.{n}": block for n, block in (configuration.get("output") or {}).items()}
    stated = {
        f"{key}.h": block["h"]
        for key, block in blocks.items()
        if isinstance(block, Mapping) and isinstance(block.get("h"), float)
    }
    unit = UNITS.get(model.get("units", ""))
    if unit is not None and not unit.per_h and model.get("cosmology"):
        hubble = model["cosmology"]["hubble"]
        return {"model.background.hubble": hubble / unit.hubble, **stated}
    return stated


def contradiction(configuration: Mapping[str, Any]) -> tuple[str, str] | None:
    """The key of a value of h that contradicts another or H0, and the message; None if all
    agree."""
    first, *others = [*stated_h(configuration).items()] or [("", 1.0)]
    for key, h in others:
        if abs(h / first[1] - 1) > 1e-6:
            problem = f"{h:g} contradicts {first[0]}, which means h = {first[1]:g}"
            return key, f"{problem}; make them equal"
    return None


def in_time(data: dict[str, Any], kind: type[ExpansionSettings]) -> dict[str, Any]:
    """A file's data with `model.background` as `model.cosmology`, the settings `kind`, and with
    {scale_factor: A} and {redshift: Z}, or lists of such moments, in `time.stop` and `every` as
    simulation times."""
    model = data["model"]
    if "background" in model:
        if "cosmology" in model:
            raise wrong("model.background", "is the same as model.cosmology; keep one of them")
        model = {**model, "cosmology": model["background"]}
        data = {**data, "model": {k: v for k, v in model.items() if k != "background"}}
    if model.get("cosmology") is None:
        return data
    calendar = Calendar(kind, model["cosmology"])
    blocks = {
        name: calendar.within(name, data[name]) for name in ("time", "output") if name in data
    }
    return {**data, **blocks}


class Calendar:
    """Simulation times of the scale factors and redshifts in the data of a file; `cosmology` is
    that of its model."""

    def __init__(self, kind: type[ExpansionSettings], cosmology: object):
        self.kind = kind
        self.cosmology = cosmology

    @cached_property
    def background(self) -> Expansion | None:
        """The expanding background; None if its settings are wrong, which they say themselves."""
        with suppress(ValidationError):
            return self.kind.model_validate(self.cosmology).expansion()
        return None

    def within(self, path: str, block: object) -> Any:
        """The block at `path` with times in place of moments."""
        if isinstance(block, list):
            return [self.within(f"{path}.{n}", one) for n, one in enumerate(block)]
        if not isinstance(block, dict):
            return block
        times = {}
        for key, value in block.items():
            place = f"{path}.{key}"
            dated = key in ("stop", "every")
            times[key] = self.converted(place, value) if dated else self.within(place, value)
        return times

    def converted(self, key: str, value: object) -> Any:
        """The time, or the times, of {scale_factor: A} or {redshift: Z}; other values as they
        are."""
        if (
            not isinstance(value, dict)
            or len(value) != 1
            or not value.keys() <= {"scale_factor", "redshift"}
        ):
            return value
        ((name, moment),) = value.items()
        if isinstance(moment, list | tuple):
            times = {_time_of(self.background, key, name, one) for one in moment}
            return [t for t in sorted(times) if t > 0]
        return _time_of(self.background, key, name, moment)


def _time_of(history: Expansion | None, key: str, name: str, value: object) -> float:
    """The simulation time of a scale factor or a redshift, in the block `key`."""
    if history is None:
        return 1.0  # any time: the run is refused for its background
    try:
        number = evaluate_number(str(value))
    except ValueError as error:
        raise wrong(f"{key}.{name}", str(error)) from None
    a = number if name == "scale_factor" else 1 / (1 + number) if number > -1 else math.inf
    start = history.settings.start
    if not start * (1 - 1e-9) <= a <= history.latest:
        raise wrong(
            key,
            f"{name}: {value} is a = {a:.4g}, outside of {start:g} (the start) to a = {history.latest:g}",
        )
    return history.time_of(max(a, start))
