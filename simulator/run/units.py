"""The units of stored fields, where they are known, as text for people."""

from typing import Any

_DIMENSIONS = {
    "velocity": "length/time",
    "speed": "length/time",
    "vorticity": "1/time",
    "vorticity_magnitude": "1/time",
    "magnetic": "length/time",
    "current": "1/time",
    "buoyancy": "length/time^2",
    "pressure": "length^2/time^2",  # over density
    "potential": "length^2/time^2",
    "density": "mass/length^3",
    "psi": "(mass/length^3)^(1/2)",
}
_ASTRONOMICAL = {"length/time": "km/s", "length^2/time^2": "km^2/s^2", "mass/length^3": "Msun/kpc^3"}


def attributes(field: str, model: Any) -> dict[str, str]:
    """What is written beside a field. Runs have units of their own, of which only the dimension is known, unless
    the model names some; a user's scalar has none."""
    for component in getattr(model, "components", ()):  # of a composite, whose fields begin with a name
        if field.startswith(f"{component.name}_"):
            field = field.removeprefix(f"{component.name}_")
            break
    dimension = _DIMENSIONS.get(field)
    if dimension is None:
        return {}
    if getattr(model, "units", None) == "kpc_km_s_msun":
        for known, unit in _ASTRONOMICAL.items():
            dimension = dimension.replace(known, unit)
    return {"units": dimension}
