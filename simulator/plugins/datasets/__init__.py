"""Data sets of many runs for training: the files of The Well with their certificates, batches that
are streamed to a training on the same devices, and the error and cost of the solver as a baseline.

It adds the commands `dataset` and `baseline`, the name `stream`, and the block `dataset` of a
study."""
