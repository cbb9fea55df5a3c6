"""Ids of a click log in sentences."""


def id_text(value: int) -> str:
    """Of an id: those at the top of 64 bits, where hashes are one in 65,536, are taken for negative ones."""
    return str(int(value) - (1 << 64) if value >= (1 << 64) - (1 << 48) else value)
