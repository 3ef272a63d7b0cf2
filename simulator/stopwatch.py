"""Accounts for the wall time of a run."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

START = "start"
REST = "the rest"


class Stopwatch:
    """Charges every moment to exactly one name, so that the parts add up to the whole.

    Activities may be nested: while the inner activity lasts, the outer one is not charged. Outside
    of all activities time is charged to `START` until `started` is called, then to `REST`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._since = clock()
        self._names = [START]
        self._parts: dict[str, float] = {}

    @contextlib.contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Charges the time spent inside to `name`."""
        self._charge()
        self._names.append(name)
        try:
            yield
        finally:
            self._charge()
            self._names.pop()

    def started(self) -> None:
        """Ends the start: from now on time outside of all activities is charged to `REST`."""
        self._charge()
        self._names[0] = REST

    @property
    def parts(self) -> Mapping[str, float]:
        """Seconds by name, up to now."""
        self._charge()
        return dict(self._parts)

    def _charge(self) -> None:
        now = self._clock()
        name = self._names[-1]
        self._parts[name] = self._parts.get(name, 0.0) + now - self._since
        self._since = now
