"""Reading a run back: open, verify, status."""
