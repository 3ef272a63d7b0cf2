"""The output of a run: series, snapshots, checkpoints, and when each is due."""
