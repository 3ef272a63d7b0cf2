"""Small studies."""

from sweep_support import study

__all__ = ["study"]
