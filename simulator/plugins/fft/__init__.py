"""Transforms of arrays that are divided among devices, for other programs in JAX."""
