"""How large a memory is that holds arrays with given lives: placed as XLA's buffer assignment places them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(eq=False)
class Span:
    """An array and its life, from one moment to another, both included."""

    bytes: float
    begin: int
    end: int
    what: str
    pieces: int = 1
    """So many arrays of one size."""
    state: bool = False
    """Part of the state that steps hand on: as it comes (life begins at 0), or as it goes."""

    def meets(self, other: "Span") -> bool:
        return self.begin <= other.end and other.begin <= self.end


def heap(spans: Iterable[Span]) -> float:
    """The size of a heap in which the largest are placed first, then those that live longest, each in the smallest
    gap that is free all its life."""
    order = sorted((s for s in spans if s.bytes > 0), key=lambda s: (-s.bytes, s.begin - s.end))
    least = 1e-4 * order[0].bytes if order else 0.0
    placed: list[tuple[Span, float]] = []
    for span in order:
        if span.bytes < least:
            break
        taken = sorted((at, at + s.bytes) for s, at in placed if s.meets(span))
        gaps, low = [], 0.0
        for begin, end in taken:
            if begin - low >= span.bytes:
                gaps.append((begin - low, low))
            low = max(low, end)
        placed.append((span, min(gaps)[1] if gaps else low))
    small = sum(s.bytes for s in order if s.bytes < least)
    return max((at + s.bytes for s, at in placed), default=0.0) + small


def with_state(spans: Sequence[Span]) -> float:
    """The state, and a heap for the rest. What fits into the state's own arrays while nobody reads these goes there,
    the largest first."""
    slots = [(s.bytes, [s]) for s in spans if s.state and s.begin == 0]
    rest = []
    for new in (s for s in spans if s.state and s.begin > 0):
        free = [held for size, held in slots if size == new.bytes and not any(new.meets(s) for s in held)]
        if free:
            free[0].append(new)
        else:
            rest.append(new)
    for span in sorted((s for s in spans if not s.state), key=lambda s: (-s.bytes, s.begin)):
        free = [held for size, held in slots if span.bytes <= size and not any(span.meets(s) for s in held)]
        if free:
            free[0].append(span)
        else:
            rest.append(span)
    return sum(size for size, _ in slots) + heap(rest)
