"""The simulation that a configuration describes, on the devices at hand, without files."""
