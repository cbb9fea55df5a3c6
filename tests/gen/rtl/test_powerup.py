"""Simulations begin without the initial values that the Verilog has."""

import re

import pytest
from amaranth import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from gen.rtl import config, powerup, verilog
from gen.rtl.cores import CORES


class Holder(wiring.Component):
    """A register with a reset, one without, a memory that is written and a table."""

    def __init__(self):
        super().__init__({"at": In(3), "data": In(40), "write": In(1), "held": Out(40, init=5), "read": Out(40),
                          "entry": Out(8), "bare": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = memory.Memory(shape=40, depth=8, init=[1, 2, 3])
        m.submodules.table = table = memory.Memory(shape=8, depth=8, init=range(7, 15))
        write, read, entry = store.write_port(), store.read_port(domain="comb"), table.read_port(domain="comb")
        bare = Signal(8, init=9, reset_less=True)
        m.d.comb += [
            write.addr.eq(self.at), write.data.eq(self.data), write.en.eq(self.write),
            read.addr.eq(self.at), self.read.eq(read.data), entry.addr.eq(self.at), self.entry.eq(entry.data),
            self.bare.eq(bare),
        ]
        with m.If(self.write):
            m.d.sync += [self.held.eq(self.data), bare.eq(self.data)]
        return m


def test_registers_and_written_memories_lose_their_values():
    texts, _ = verilog.convert(Holder(), "dut")
    before, after = texts["dut.v"], powerup.undefined(texts)["dut.v"]
    assert "reg [39:0] held = 40'h0000000005;" in before and "reg [39:0] held;" in after
    assert "reg [7:0] bare = 8'h09;" in before and "reg [7:0] bare;" in after
    assert "    store[1] = 40'h" in before and "store[1] = " not in after
    assert "    table[1] = 8'h08;" in after or "    \\table [1] = 8'h08;" in after
    # Nothing else changes.
    lines = after.splitlines()
    assert [line for line in before.splitlines() if line not in lines] == [
        line for line in before.splitlines()
        if re.match(r"  reg .*(held|bare) = |  initial begin$|    store\[", line) and line not in lines]


def test_random_fills_each_word_of_a_memory():
    text = powerup.random(verilog.convert(Holder(), "dut")[0])["dut.v"]
    assert "    store[_index_0] = {$urandom, $urandom};" in text and "_index_0 <= 7;" in text
    assert "_index_1" not in text


@pytest.mark.turns(1, of="syntheses")
def test_no_core_keeps_an_initial_value():
    """Of a register, but for the one that says which loaded tables a reset has left, which nothing writes before the
    reset has been seen; a table's contents stay."""
    for name, settings in config.load("tiny").cores.items():
        texts, _ = verilog.convert(CORES[name].unit(settings))
        for file, text in powerup.undefined(texts).items():
            left = [line for line in re.findall(r"(?m)^  reg .*=.*", text) if line != "  reg _start_  = 0;"]
            if file.startswith("Loader_"):
                assert [line.split(" =")[0] for line in left] == ["  reg broken", "  reg _begun"]
                assert "    if (_begun) broken <= " in text and "      if (_begun) tables[" in text
                left = []
            assert not left, (name, file, left[:3])
            written = {memory for memory in re.findall(r"(?m)^    (.+?) ?\[\d+\] = ", text)
                       if re.search(rf"(?m)^ +{re.escape(memory)} ?\[.*\] <= ", text)}
            assert not written, (name, file, written)
