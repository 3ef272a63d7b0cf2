"""Numbers in environment variables, which anybody may have set to anything."""


def whole(text: str | None) -> int | None:
    """The whole number that `text` is, of up to 18 digits; None for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 18 else None
