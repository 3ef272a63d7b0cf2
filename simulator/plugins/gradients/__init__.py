"""Derivatives of a run by its start and by the numbers of its configuration, in reverse mode and in
bounded memory.

It adds the name `differentiate`."""
