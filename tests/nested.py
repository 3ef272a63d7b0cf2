"""What stands where in nested lists and mappings."""

from typing import Any

Place = tuple[str | int, ...]


def places(data: Any, way: Place = ()) -> list[Place]:
    """The places of all values in nested mappings and lists."""
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    return [p for key, value in items for p in ((*way, key), *places(value, (*way, key)))]
