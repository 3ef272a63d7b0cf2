"""The physics of a run: equations, forcings, starts, particles and the integrators that step them.

A new part of any of these is one new file in its folder and one line of registration in the
folder's `__init__`."""
