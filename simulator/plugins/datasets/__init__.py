"""Learning from many runs: data sets and streams for training, and flows recovered from observations."""
