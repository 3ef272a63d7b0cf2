"""Manifests that were changed at random: refused with one line, or sensible."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from nested import places
from storage_support import save, tiny
from tiers import slow

from simulator.archive.snapshot_reader import open_snapshot
from simulator.errors import RunFailure, UserError

ENTRIES = (
    None,
    True,
    -1,
    0,
    3,
    2**62,
    1e300,
    -0.5,
    "",
    "x",
    "<f8",
    "O",
    "V0",
    "<U3",
    "../x",
    [],
    {},
    [[]],
    [-1],
)


def sealed(content: dict[str, Any]) -> bytes:
    """The bytes of a manifest with these other entries, and a checksum that fits."""
    body = (json.dumps(content, indent=1).removesuffix("\n}") + ",\n").encode()
    return body + f'"manifest_xxh3": "{xxhash.xxh3_64_hexdigest(body)}"\n}}\n'.encode()


def altered_manifest(data: bytes, rng: np.random.Generator) -> bytes:
    """The manifest with an entry changed or removed, and a checksum that fits."""
    content = json.loads(data)
    del content["manifest_xxh3"]
    every = places(content)
    *way, last = every[rng.integers(len(every))]
    at: Any = content
    for key in way:
        at = at[key]
    if rng.random() < 0.25:
        del at[last]
    else:
        at[last] = ENTRIES[rng.integers(len(ENTRIES))]
    return sealed(content)


def components(folder: Path) -> dict[str, np.ndarray]:
    """The components of all fields, by their places in the shards."""
    return {
        path: stored[(*index, ...)]
        for name, stored in open_snapshot(folder).items()
        for index, path in stored.entry.component_paths(name)
    }


@pytest.mark.parametrize("count", [60, slow(300)])
def test_manifests_changed_at_random(count: int, tmp_path):
    """Whose checksum was computed anew: no field is read with another shape or type than it has."""
    rng = np.random.default_rng(count)
    refused = 0
    folder = save(tmp_path, 10, tiny(10), {"time": 0.1, "config": "a: 1\n"})
    path = folder / "manifest.json"
    good = path.read_bytes()
    wanted = components(folder)
    for _ in range(count):
        path.write_bytes(altered_manifest(good, rng))
        try:
            found = components(folder)
        except (UserError, RunFailure) as refusal:
            refused += 1
            assert str(folder) in str(refusal) and len(str(refusal).splitlines()) == 1
            continue
        for name, values in found.items():
            assert values.dtype == wanted[name].dtype
            np.testing.assert_array_equal(values, wanted[name])
    assert refused > 0.3 * count


def test_a_bad_dtype_in_a_manifest_is_one_line(tmp_path):
    folder = save(tmp_path, 10, tiny(10), {"time": 0.1})
    path = folder / "manifest.json"
    content = json.loads(path.read_bytes())
    content["fields"]["velocity"]["dtype"] = "O"
    del content["manifest_xxh3"]
    path.write_bytes(sealed(content))
    with pytest.raises(RunFailure, match=r"manifest.json: .*dtype 'O' is no type of numbers"):
        open_snapshot(folder)
