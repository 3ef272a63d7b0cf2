"""The simulation that a configuration describes, on the available devices, without files."""
