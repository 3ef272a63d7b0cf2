"""The two exceptions that end a command with one line instead of a traceback.

Any other exception that escapes is a bug in this program and keeps its traceback."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


def printable(text: str) -> str:
    """`text` with its control characters escaped: messages print a user's names and texts in this
    form."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def in_a_line(error: BaseException) -> str:
    """The kind and the first line of an error of a user's code, whose text may be empty or fail."""
    try:
        text = str(error).strip().partition("\n")[0]
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _OneLineEach(Exception):
    """An exception with one line for each argument; a line break within an argument is escaped,
    because the arguments of a command and the texts of a file may contain one."""

    def __init__(self, *lines: object) -> None:
        super().__init__(*(printable(str(line)) for line in lines))

    def __str__(self) -> str:
        return "\n".join(self.args)


class UserError(_OneLineEach):
    """The user made a mistake. Each line of the message names the place and the cure; the exit code
    is 2."""


@contextmanager
def prefixed(key: str, end: str = ".") -> Iterator[None]:
    """Adds the key of the block to errors `KEY: MESSAGE` about a key in it; with `end` ": " to
    errors that name no key."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{key}{end}{error}") from None


class RunFailure(_OneLineEach):
    """The computation or the machine failed (a non-finite field, a full disk); the exit code is
    1."""


def shortened(text: str, most: int = 60) -> str:
    """`text` on one line, cut off after `most` characters: an echoed value must not bury the
    message."""
    text = printable(text[: most + 1])
    return text if len(text) <= most else f"{text[: most - 3]}..."


def nearest(name: object, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The known name most similar to `name`; None if none is similar."""
    return next(iter(difflib.get_close_matches(str(name), list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(name: object, known: Iterable[str], otherwise: str = ";") -> str:
    """`, did you mean NAME?` for the known name most similar to `name`; `otherwise` if none is
    similar."""
    similar = nearest(name, known)
    return f", did you mean {similar}?" if similar else otherwise


def shown(value: object) -> str:
    """A user's value in the form in which messages echo it."""
    return shortened(
        {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    )
