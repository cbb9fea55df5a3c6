"""The Hotline core: which rows its logger finds hot, and what comes of it.

Each part has functions of its own that yield rows; `rows` puts them together.
"""

from collections.abc import Callable, Iterable, Iterator

from bench.framework import Row, bench

#: What is measured, in this order.
PARTS: list[Callable[[], Iterable[Row]]] = []


@bench("hotline")
def rows() -> Iterator[Row]:
    """The logger's choice of hot rows beside the oracle's and other caches', popular samples, accesses issued."""
    for part in PARTS:
        yield from part()
