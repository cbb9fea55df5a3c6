"""Runs bags on a card and on the oracle side by side, and compares every word and what is counted."""

from collections.abc import Sequence

import numpy as np

from fpga.api.embedding import EmbeddingBags
from gen.compiler.emb import Bags
from gen.compiler.oracle import EmbOracle, first_difference

# What the core counts by the word and not by time.
COUNTED = ("instructions", "bags", "indices", "dram_rows", "dram_bytes", "tt_rows", "tt_bytes", "ssd_rows",
           "ssd_bytes", "cache_fills")


class Lockstep:
    """The oracle of one EmbeddingBags, with DRAM of its own."""

    def __init__(self, bags: EmbeddingBags):
        self.bags = bags
        self.oracle = EmbOracle(bags.images, bags.compiler)

    def batch(self, requests: Sequence[Bags]) -> list[np.ndarray]:
        """What the card gives for a batch; AssertionError where the oracle gives something else."""
        found: list[np.ndarray] = self.bags.batch(requests)
        program = self.bags.program
        assert program is not None
        wanted, counters = self.oracle.run(program)
        assert not first_difference(found, wanted), first_difference(found, wanted)
        if program.count:
            assert {name: self.bags.last[name] for name in COUNTED} == {name: counters[name] for name in COUNTED}
        return found
