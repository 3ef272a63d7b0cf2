"""The variables of a gradient through particles: their records at the beginning, and the numbers of
their start."""

PARTICLES = "particles"
START = "initial."
