"""The documentation without a network, and citations."""
