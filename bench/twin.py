"""Runs bags on a card and on the oracle side by side, and compares every word and what is counted."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fpga.embedding import EmbeddingBags
from gen.compile import Bags, Program
from golden.emb import Emb, Memory

# What the core counts by the word and not by time.
COUNTED = ("instructions", "bags", "indices", "dram_rows", "dram_bytes", "tt_rows", "tt_bytes", "ssd_rows",
           "ssd_bytes", "cache_fills")


class Twin:
    """The oracle of one EmbeddingBags, with card memory of its own."""

    def __init__(self, bags: EmbeddingBags):
        self.bags = bags
        images: Any = bags.images
        unit = images.config.tt
        self.core = Emb(words=images.words, row_beats_max=images.row_beats_max, tables=images.cores,
                        grid_log2=unit.grid_log2, index_bits=unit.index_bits)
        self.rows = images.rows.reshape(-1).copy()
        self._carry_out(bags.compiler.load())

    def _carry_out(self, program: Program) -> tuple[list[np.ndarray], dict[str, int]]:
        images = self.bags.images
        outputs = np.zeros(program.outputs_beats * images.words, np.uint32)
        memory = Memory(program.words.reshape(-1), program.inputs.reshape(-1), outputs, self.rows,
                        images.pages[program.pages].reshape(-1), 0, self.bags.compiler.ring_beats)
        result = self.core.run(memory)
        assert result.code == 0, result
        return program.vectors(outputs), result.counters

    def batch(self, requests: Sequence[Bags]) -> list[np.ndarray]:
        """What the card gives for a batch; AssertionError where the oracle gives something else."""
        found = self.bags.batch(requests)
        program = self.bags.program
        assert program is not None
        wanted, counters = self._carry_out(program)
        for number, (vectors, want) in enumerate(zip(found, wanted, strict=True)):
            different = np.flatnonzero((vectors.view(np.uint32) != want.view(np.uint32)).any(axis=1))
            assert not len(different), f"request {number}: {len(different)} bags differ, the first is {different[0]}"
        if program.count:
            assert {name: self.bags.last[name] for name in COUNTED} == {name: counters[name] for name in COUNTED}
        return found
