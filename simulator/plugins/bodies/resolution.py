"""How well the grid resolves a body, and the numbers that its term takes by default, from the
configuration alone: for checks of a run before it starts, for its log and for its report.

Commands that read tables use this module without JAX."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, pi, prod, sqrt
from typing import Any, Literal, TypeGuard

from simulator.archive.open_run import Run
from simulator.physics.resolution_columns import UNRESOLVED

NO_SLIP = 6.746830440636106
"""Smoothing / sqrt(nu tau) with which a shear flow along the surface vanishes on it.

In the layer of the mask nu u'' = chi u / tau. The linear flow outside vanishes at a wall that lies
sqrt(nu tau) within the surface of a sharp mask, and outside of that of a wide one; with this ratio
the two cancel, and the error falls from O(sqrt(tau)) to O(tau): Hester, Vasil & Burns, J. Comput.
Phys. 430, 110043 (2021), whose mask is a tanh."""
LAYER = 2
"""The default of `smoothing`, in grid spacings."""
FEW, TOO_FEW = 20, 8
"""Points across a body below which its drag is too large by several percent, and by a fifth: that of
a cylinder at Re = 100 in a wide box is 1.61 at 8 points and 1.34 at 24, where published ones are
1.32 to 1.40 (docs/tutorials/obstacle.md)."""
MEANING = f"a drag needs {FEW} points across the body; below {TOO_FEW} it is about a fifth too large, or more"


@dataclass(frozen=True)
class BodyResolution:
    """A body in units of the coarsest grid spacing; nan where a number does not exist."""

    name: str
    across: float  # Its smallest length.
    layer: float  # Of the mask, `smoothing`.
    depth: float  # sqrt(nu tau), by which the flow enters the body.
    blockage: float  # The share of the box's section that it blocks.

    @property
    def verdict(self) -> Literal["good", "warn", "bad"]:
        return "bad" if self.across < TOO_FEW else "warn" if self.across < FEW else "good"

    @property
    def numbers(self) -> str:
        parts = {
            "{:.3g} grid points across": self.across,
            "layer of the mask {:.3g} spacings": self.layer,
            "sqrt(nu tau) {:.2g} spacings": self.depth,
            "blocks {:.3g}% of the section": 100 * self.blockage,
        }
        return ", ".join(text.format(value) for text, value in parts.items() if isfinite(value))

    @property
    def line(self) -> str:
        if self.verdict == "good":
            return f"{self.name}: {self.numbers}"
        return f"{self.name}{UNRESOLVED}{self.numbers}; {MEANING}"


def body_of(
    term: Mapping[str, Any], shape: Sequence[int], box: Sequence[float], viscosity: object
) -> BodyResolution | None:
    """The body of a term's settings, of a union that of its smallest part; None for other terms,
    such as a sponge, and for masks that are no shapes."""
    given = completed_term(term, shape, box, viscosity)
    mask = given.get("mask") or {}
    moves = (given.get("target") or {}).get("velocity") == "body"
    solid = moves or given.get("forces") or given.get("coefficients")
    parts = mask.get("parts") or [mask]
    if not solid or any("smoothing" not in part for part in parts):
        return None
    spacing = _spacing(shape, box)
    flow = "xyz".index((given.get("coefficients") or {}).get("direction", "x"))
    lengths = [_lengths(part, box) for part in parts]
    smallest = min(range(len(parts)), key=lambda i: min(lengths[i]))
    tau = given.get("relaxation_time")
    depth = sqrt(viscosity * tau) if _positive(viscosity) and _positive(tau) else float("nan")
    across = min(lengths[smallest])
    blockage = float("nan")
    if len(parts) == 1 and isfinite(across):
        section = [pair for i, pair in enumerate(zip(lengths[0], box, strict=True)) if i != flow]
        disc = "radius" in mask and len(section) == 2 and all(isfinite(a) for a, _ in section)
        blockage = prod(min(a, b) / b for a, b in section) * (pi / 4 if disc else 1)
    layer = parts[smallest]["smoothing"] / spacing
    return BodyResolution(str(given["name"]), across / spacing, layer, depth / spacing, blockage)


def completed_term(
    term: Mapping[str, Any], shape: Sequence[int], box: Sequence[float], viscosity: object
) -> dict[str, Any]:
    """A term's settings with the `smoothing` and the `relaxation_time` that a run takes."""
    mask = term.get("mask")
    if term.get("kind") != "relax" or not mask or mask.get("kind") in ("python", "array"):
        return dict(term)
    width = LAYER * _spacing(shape, box)

    def smoothed(part: Mapping[str, Any]) -> dict[str, Any]:
        return {**part, "smoothing": part.get("smoothing") or width}

    if "parts" in mask:
        return {**term, "mask": {**mask, "parts": [smoothed(part) for part in mask["parts"]]}}
    mask = smoothed(mask)
    tau = term.get("relaxation_time")
    if tau is None and _positive(viscosity):
        tau = (mask["smoothing"] / NO_SLIP) ** 2 / viscosity
    return {**term, "mask": mask, "relaxation_time": tau}


def _spacing(shape: Sequence[int], box: Sequence[float]) -> float:
    return max(length / n for length, n in zip(box, shape, strict=True))


def _lengths(part: Mapping[str, Any], box: Sequence[float]) -> list[float]:
    """The lengths of a shape along the axes, infinite where it ends with the box or nowhere."""
    if "radius" in part:
        along = "xyz".index(part.get("axis", "z")) if part["kind"] == "cylinder" else None
        return [float("inf") if i == along else 2 * part["radius"] for i in range(len(box))]
    sides = part.get("size") or [None] * len(box)
    return [float("inf") if side is None else side for side in sides]


def _positive(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and value > 0


def _of_run(config: Mapping[str, Any]) -> tuple[Sequence[int], Sequence[float], object]:
    grid = config["grid"]
    return grid["shape"], grid["box"], (config.get("model") or {}).get("viscosity")


def completed_terms(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration of a run with its terms completed."""
    terms = [completed_term(term, *_of_run(config)) for term in config.get("terms") or ()]
    return {**config, "terms": terms}


def health_of_bodies(run: Run) -> Iterator[tuple[str, str, str, str]]:
    """Name, verdict, numbers and their meaning of each body of a run."""
    for term in run.config.get("terms") or ():
        if (body := body_of(term, *_of_run(run.config))) is not None:
            yield f"resolution ({body.name})", body.verdict, body.numbers, MEANING
