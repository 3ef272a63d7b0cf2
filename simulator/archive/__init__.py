"""Writes and reads the files of a run: snapshots, checkpoints, series, the ledger; verifies them;
`open_run`.

A folder such as `snapshots/00000010` holds `manifest.json` and one HDF5 shard per process; the
manifest is the only authority on the content of the folder. `snapshot_writer.Writer` writes the folder;
`snapshot_reader.open_snapshot` and `restore.restore` read it. Only `restore`, which puts fields onto
devices, and the writers need JAX."""
