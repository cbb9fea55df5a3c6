"""Ids of a click log in sentences."""

__all__ = ["id_text"]


def id_text(value: int) -> str:
    """Of an id, as its owner wrote it: negative ones are at the top of 64 bits, where hashes are one in 65,536."""
    return str(int(value) - (1 << 64) if value >= (1 << 64) - (1 << 48) else value)
