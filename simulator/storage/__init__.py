"""Floor 2: arrays on disk, committed or absent, verified, and readable on any layout.

A folder such as `snapshots/00000010` holds `manifest.json` and one HDF5 shard per process; the manifest is
the only authority on its content. `save` and `Writer` write it, `open_snapshot` and `restore` read it.
"""

from simulator.storage.commit import clean_leftovers, committed, remove
from simulator.storage.dataset import Axis, Dataset
from simulator.storage.manifest import Damaged, Manifest
from simulator.storage.options import ALONE, STAGES, Options, Processes
from simulator.storage.prune import prune
from simulator.storage.reader import Snapshot, StoredField, open_snapshot
from simulator.storage.restore import restore
from simulator.storage.verify_snapshot import Report, newest_good, stored_in, verify
from simulator.storage.writer import Writer, rebuild_index, save

__all__ = [
    "ALONE",
    "STAGES",
    "Axis",
    "Damaged",
    "Dataset",
    "Manifest",
    "Options",
    "Processes",
    "Report",
    "Snapshot",
    "StoredField",
    "Writer",
    "clean_leftovers",
    "committed",
    "newest_good",
    "open_snapshot",
    "prune",
    "rebuild_index",
    "remove",
    "restore",
    "save",
    "stored_in",
    "verify",
]
