"""Parameter studies: many runs from one file, each in its own run folder."""
