"""Flows recovered from observations: four-dimensional variational assimilation with a posterior, and
an ensemble Kalman filter.

It adds the command `assimilate` and the file that it reads."""
