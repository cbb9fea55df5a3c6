"""The example host of a package: byte for byte the project's own, which the tests compile and run.

What it does with the core is shown there; a copy can only be the same.
"""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

__all__ = ["FILE", "HOSTS", "host"]

FILE = "host.cpp"
HOSTS = {"emb": Path(__file__).parents[2] / "host" / "emb_bags.cpp"}


def host(data: bytes, core: str) -> Iterator[str]:
    """Where a package's host.cpp leaves the project's."""
    wanted, name = HOSTS[core].read_bytes(), HOSTS[core].name
    pairs = zip_longest(data.splitlines(True), wanted.splitlines(True))
    for number, (found, line) in enumerate(pairs, 1):
        if found != line:
            yield f"{FILE}: line {number} is not that of fpga/vitis/hosts/{name}"
            return
