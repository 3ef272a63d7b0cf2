"""Seals: the last bytes of a file are the xxh3 of the bytes before them.

A seal that does not fit shows that the file was altered or cut short after this program wrote it.
JSON files carry the seal as the last entry of their object. HDF5 ignores bytes behind its own;
there the seal also covers the manifest of the folder from which the file was derived."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from simulator.files import checksum, pieces_of, reason

ALTERED = "altered (its checksum does not match)"
_RECORD = re.compile(r'\[\s+(\d+),\s+("\w+")\s+\]')


@dataclass(frozen=True)
class Seal:
    """The form of a seal: the checksum, 16 hexadecimal digits, between `before` and `after`."""

    before: bytes
    after: bytes = b""

    @property
    def length(self) -> int:
        """The number of bytes."""
        return len(self.before) + 16 + len(self.after)

    def pieces(self, pieces: Iterable[bytes], origin: bytes = b"") -> Iterator[bytes]:
        """The pieces of a file, and then their seal, which covers `origin` too."""
        digest = xxhash.xxh3_64()
        for piece in pieces:
            digest.update(piece)
            yield piece
        yield self._end(digest, origin)

    def problem(self, path: Path, origin: bytes = b"") -> str | None:
        """Why the file at `path` is not as this program wrote it: missing, unreadable or altered;
        None if it is. Reads only bytes, because HDF5 may hang or crash on a damaged file."""
        digest = xxhash.xxh3_64()
        try:
            size = max(path.stat().st_size - self.length, 0)
            checksum(pieces_of(path, size), digest)
            with path.open("rb") as file:
                file.seek(size)
                end = file.read()
        except FileNotFoundError:
            return "missing"
        except OSError as error:
            return f"unreadable ({reason(error)})"
        return None if end == self._end(digest, origin) else ALTERED

    def fits(self, data: bytes) -> bool:
        """Whether `data` ends with the seal of the bytes before it."""
        body = data[: -self.length]
        return data == b"".join(self.pieces([body]))

    def _end(self, digest: xxhash.xxh3_64, origin: bytes) -> bytes:
        digest.update(origin)
        return self.before + digest.hexdigest().encode() + self.after


_JSON = Seal(b',\n  "xxh3": "', b'"\n}\n')


def sealed_json(content: Mapping[str, Any]) -> str:
    """`content` as JSON with the seal as its last entry."""
    body = json.dumps(content, indent=2).removesuffix("\n}")
    body = _RECORD.sub(r"[\1, \2]", body)  # one line for each record of a file
    return b"".join(_JSON.pieces([body.encode()])).decode()


def unsealed_json(data: bytes) -> dict[str, Any] | None:
    """The content of a sealed JSON file; None if the file was altered."""
    if not _JSON.fits(data):
        return None
    content = json.loads(data)
    del content["xxh3"]
    return content
