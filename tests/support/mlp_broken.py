"""An MLP core whose memories have worn out in two lines each."""

from contextlib import contextmanager
from unittest import mock

from amaranth.hdl import C, Module, Signal
from amaranth.lib import wiring

from hw.mlp.core import MlpCore
from hw.mlp.store import Store
from hw.secded import WORD_BITS

# Lines from the end, and the bits of each codeword that are read wrong there.
SINGLE, DOUBLE = 1, 2
MASKS = {SINGLE: 1 << 37, DOUBLE: 1 << 5 | 1 << 70}


class BrokenStore(wiring.Component):
    """A `Store` that reads wrong bits in every codeword of its last two lines."""

    latency = Store.latency

    def __init__(self, *, depth: int, words: int, style: str):
        self.depth, self.words = depth, words
        self.store = Store(depth=depth, words=words, style=style)
        super().__init__(dict(self.store.signature.members.items()))

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = self.store
        for name in ("address", "write", "write_address", "i"):
            m.d.comb += getattr(self.store, name).eq(getattr(self, name))
        wrong = Signal(len(self.o))
        for line, mask in MASKS.items():
            hits = self.address == self.depth - line
            for cycle in range(self.latency):
                before, hits = hits, Signal(name=f"hits_{line}_{cycle}")
                m.d.sync += hits.eq(before)
            every = C(sum(mask << WORD_BITS * word for word in range(self.words)), len(self.o))
            with m.If(hits):
                m.d.comb += wrong.eq(every)
        m.d.comb += self.o.eq(self.store.o ^ wrong)
        return m


class BrokenCore(MlpCore):
    """The core with such memories, if made and built within `broken`."""


@contextmanager
def broken():
    with mock.patch("hw.mlp.rows.Store", BrokenStore), mock.patch("hw.mlp.weights.Store", BrokenStore), \
            mock.patch("hw.mlp.addends.Store", BrokenStore):
        yield
