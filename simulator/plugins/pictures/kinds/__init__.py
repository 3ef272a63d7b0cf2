"""The pictures of each kind of series, one file per kind of output."""
