"""Whose turn it is among several."""

from amaranth.hdl import Signal, Value


def round_robin(requests: list[Value], last: Signal) -> list[Value]:
    """Who is granted, one-hot: the first of `requests` after the one that `last` marks (none: after the end)."""
    count = len(requests)
    granted = []
    for this in range(count):
        wins = Value.cast(0)
        for before in range(count):
            # After a grant to `before` those from its successor up to `this` come first.
            rivals = [requests[(before + 1 + step) % count] for step in range((this - before - 1) % count)]
            free = Value.cast(1)
            for rival in rivals:
                free = free & ~rival
            wins = wins | (last[before] & free)
        # Before the first grant `last` is zero: the lowest goes first.
        none = ~last.any()
        for rival in requests[:this]:
            none = none & ~rival
        granted.append(requests[this] & (wins | none))
    return granted
