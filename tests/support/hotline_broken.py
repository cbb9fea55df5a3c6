"""A Hotline core whose logger has worn out: in every bank the last set reads with wrong parity."""

from contextlib import contextmanager
from unittest import mock

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from hw.hotline.bank import LoggerBank
from hw.hotline.core import HotlineCore


class BrokenBank(wiring.Component):
    """A `LoggerBank` in which the set with the highest number always has an entry with wrong parity."""

    LATENCY = LoggerBank.LATENCY

    def __init__(self, **sizes):
        self.sizes = sizes
        self.bank = LoggerBank(**sizes)
        super().__init__(dict(self.bank.signature.members.items()))

    def key(self):
        return f"BrokenBank({self.sizes})"

    def elaborate(self, platform):
        m = Module()
        m.submodules.bank = bank = self.bank
        wrong = self.i.valid & (self.i.set == self.sizes["sets"] - 1)
        for cycle in range(self.LATENCY):
            before, wrong = wrong, Signal(name=f"wrong_{cycle}")
            m.d.sync += wrong.eq(before)
        m.d.comb += [
            bank.i.eq(self.i), bank.i_write.eq(self.i_write), self.o.eq(bank.o),
            self.o.wrong.eq(bank.o.wrong | wrong),
        ]
        return m


class BrokenCore(HotlineCore):
    """The core with such banks, if made and built within `broken`."""


@contextmanager
def broken():
    with mock.patch("hw.hotline.logger.LoggerBank", BrokenBank):
        yield
