"""Everything on disk, and reading it back: snapshots, checkpoints, series, the ledger, verification, `open_run`.

A folder such as `snapshots/00000010` holds `manifest.json` and one HDF5 shard per process; the manifest is the only
authority on its content. `writer.Writer` writes it; `reader.open_snapshot` and `restore.restore` read it. Only
`restore`, which puts fields onto devices, and the writers need JAX.
"""
