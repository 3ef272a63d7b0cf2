"""A buffer between a simulation and a training that removes the bias of order.

Successive trajectories, and even more successive frames, are alike. Samples are therefore drawn at
random from a reservoir; a new trajectory replaces a random one of those that were drawn already
(Meyer et al., ICML 2023, arXiv:2306.16133)."""

import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


class Reservoir(Generic[T]):
    """At most `size` items, which one thread puts in and another one draws."""

    def __init__(self, size: int, seed: int | None, *, repeat: bool = True):
        """`repeat`: items stay until new ones take their places; else each is drawn once."""
        self._size = size
        self._repeat = repeat
        self._random = np.random.default_rng(seed)
        self._fresh: list[T] = []  # Not drawn yet.
        self._drawn: list[T] = []
        self._ended = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def put(self, item: T) -> bool:
        """Adds an item. Waits until there is room: as long as `size` items have not been drawn.
        False if nobody draws any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or len(self._fresh) < self._size)
            if self._ended:
                return False
            if len(self._fresh) + len(self._drawn) >= self._size:
                self._take(self._drawn)
            self._fresh.append(item)
            self._changed.notify_all()
            return True

    def end(self, error: BaseException | None = None) -> None:
        """No more items come. With `error`, the next draw raises it."""
        with self._changed:
            self._ended = True
            self._error = self._error or error
            self._changed.notify_all()

    def __iter__(self) -> Iterator[T]:
        """Random items, once the reservoir is full or no more come, until each was drawn."""
        while True:
            with self._changed:
                self._changed.wait_for(self._ready)
                if self._error is not None:
                    raise self._error
                if self._ended and not self._fresh:
                    return
                item = self._draw()
                self._changed.notify_all()
            yield item

    def _ready(self) -> bool:
        if self._ended:
            return True
        return len(self._fresh) + len(self._drawn) >= self._size

    def _draw(self) -> T:
        """At the end of the production only items that were not drawn yet."""
        items = len(self._fresh) + (0 if self._ended else len(self._drawn))
        if (place := int(self._random.integers(items))) >= len(self._fresh):
            return self._drawn[place - len(self._fresh)]
        item = self._take(self._fresh, place)
        if self._repeat:
            self._drawn.append(item)
        return item

    def _take(self, items: list[T], place: int | None = None) -> T:
        """Removes an item, by default a random one; the order of the others may change."""
        place = int(self._random.integers(len(items))) if place is None else place
        items[place], items[-1] = items[-1], items[place]
        return items.pop()
