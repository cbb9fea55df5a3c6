"""The index splitter and its divider: every remainder, every mode size, rows past the table."""

import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from gen.config import load
from golden.tt.rows import split
from hw.tt.index import Divider, IndexSplitter
from verif.bench import reset, seed, start
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate


@cocotb.test()
async def divider_exhaustive(dut):
    """Every dividend by every divisor, one a cycle, each after `bits` cycles."""
    bits, divisor_bits = map(int, os.environ["DIVIDER"].split())
    start(dut)
    await reset(dut)
    edge = RisingEdge(dut.clk)
    pairs = [(a, b) for b in range(1, 1 << divisor_bits) for a in range(1 << bits)] + [(7, 1 << divisor_bits)]
    for at in range(len(pairs) + bits):
        dividend, divisor = pairs[min(at, len(pairs) - 1)]
        dut.dividend.value, dut.less_one.value = dividend, divisor - 1
        await edge
        # What shows right after an edge is what stood there before it: `bits` edges after the operands'.
        if at >= bits:
            dividend, divisor = pairs[at - bits]
            got = int(dut.quotient.value), int(dut.remainder.value)
            assert got == divmod(dividend, divisor), f"{dividend} / {divisor} gave {got}"


@cocotb.test()
async def splitter_random(dut):
    """Tables of any mode sizes, lookups of all tables mixed, gaps between them; rows past the table are row 0."""
    config = load("tiny").cores["tt"]
    random = np.random.default_rng(seed("split"))
    start(dut)
    dut.i_valid.value, dut.write.value = 0, 0
    await reset(dut)
    edge = RisingEdge(dut.clk)
    tables = []
    for table in range(config.tables):
        modes = random.integers(1, [40, 60, 9, 50])
        if table == 0:
            modes = np.array([1, 256, 1, 256])
        rows = int(random.integers(1, modes.prod() + 1))
        bases = {name: int(random.integers(1 << config.x_bits)) for name in ("first", "middle", "last")}
        bases["second"] = int(random.integers(1 << config.y_bits))
        strides = {f"{name}_stride": int(random.integers(1 << 12)) for name in bases}
        tables.append((modes, rows, bases, strides))
        parts = ([(rows, config.index_bits + 1)] + [(int(modes[k]) - 1, config.mode_bits) for k in (3, 2, 1)],
                 [(bases["first"], config.x_bits), (bases["middle"], config.x_bits),
                  (bases["last"], config.x_bits), (bases["second"], config.y_bits)]
                 + [(strides[f"{name}_stride"], 12) for name in ("first", "middle", "last", "second")])
        for part, fields in enumerate(parts):
            word, at = 0, 0
            for value, bits in fields:
                word, at = word | value << at, at + bits
            dut.write.value, dut.part.value, dut.table.value, dut.words.value = 1, part, table, word
            await edge
    dut.write.value = 0

    asked, got = [], []
    unpack = layout_of("o").unpack
    latency = 3 * config.index_bits + 5
    for cycle in range(600 + latency):
        go = cycle < 600 and random.random() < 0.7
        dut.i_valid.value = int(go)
        if go:
            table = int(random.integers(config.tables))
            rows = tables[table][1]
            index = int(random.integers(rows)) if random.random() < 0.8 else int(
                random.integers(rows, 1 << config.index_bits))
            dut.i.value = table | index << (config.tables - 1).bit_length()
            asked.append((cycle, table, index))
        await edge
        if dut.o_valid.value == 1:
            got.append((cycle, unpack(int(dut.o.value))))
    assert len(got) == len(asked)
    for (cycle, table, index), (at, slices) in zip(asked, got, strict=True):
        modes, rows, bases, strides = tables[table]
        assert at == cycle + latency
        assert slices["table"] == table and slices["outside"] == (index >= rows)
        parts = dict(zip(("first", "second", "middle", "last"),
                         map(int, split(index if index < rows else 0, modes)), strict=True))
        assert (slices["first_index"], slices["second_index"]) == (parts["first"], parts["second"])
        for name, base in bases.items():
            bits = config.y_bits if name == "second" else config.x_bits
            want = (base + parts[name] * strides[f"{name}_stride"]) % (1 << bits)
            assert slices[name] == want, f"{name} of row {index}, modes {modes}"


@pytest.mark.parametrize(("bits", "divisor_bits"), [(6, 4), (7, 7)])
def test_divider(bits, divisor_bits):
    simulate(Divider(bits=bits, divisor_bits=divisor_bits), "verif.test_tt_index", name=f"divider_{bits}",
             tests=1, only="divider_exhaustive", env={"DIVIDER": f"{bits} {divisor_bits}"})


@pytest.mark.parametrize("number", seeds())
def test_splitter(number):
    simulate(IndexSplitter(load("tiny").cores["tt"]), "verif.test_tt_index", name="splitter", tests=1,
             only="splitter_random", seed=number)


def test_divider_wrong():
    with pytest.raises(ValueError) as caught:
        Divider(bits=4, divisor_bits=5)
    assert str(caught.value) == "divisor_bits must be at most bits = 4, not 5"
