"""Slurm's host lists, job scripts and queue."""
