"""Accesses that the scheduler of the logger's banks issues a cycle, while waves are always on offer."""

import os

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from verif.bench import report, reset, seed, start
from verif.bench.pack import layout_of


@cocotb.test()
async def issue(dut):
    """Rows drawn from a Zipf distribution (0: each bank as likely) whose banks are random. issued: accesses a cycle;
    busiest: share of the cycles in which the bank that is asked most gets one."""
    cycles, warm = int(os.environ["ISSUE_CYCLES"]), int(os.environ["ISSUE_WARM"])
    lanes, banks, skew = (int(os.environ[f"ISSUE_{key}"]) for key in ("LANES", "BANKS", "SKEW_PER_MILLE"))
    random = np.random.default_rng(seed("rows"))
    if skew:
        rows = 2_000_000
        sums = np.cumsum(1 / np.arange(1, rows + 1) ** (skew / 1000))
        drawn = np.searchsorted(sums, random.random((warm + cycles, lanes)) * sums[-1])
        names = random.integers(banks, size=rows)[np.minimum(drawn, rows - 1)]
    else:
        names = random.integers(banks, size=(warm + cycles, lanes))
    i, o = layout_of("i__payload"), layout_of("o")
    each = {key: i.pack({"lanes": [{"valid": 1, "bank": key}] + [0] * (lanes - 1), "tag": 0}) for key in range(banks)}
    place = layout_of("i__payload").pack({"lanes": [0, {"valid": 1}] + [0] * (lanes - 2), "tag": 0}).bit_length() - 1
    valid = o.pack([{"valid": 1}] * banks)
    start(dut)
    dut.i__valid.value = 0
    await reset(dut)
    edge = RisingEdge(dut.clk)
    waves = iter(names.tolist())
    shown = []      # which banks got an access, cycle by cycle
    offer, number = None, 0
    for cycle in range(warm + cycles):
        if offer is None:
            lane_banks = next(waves)
            word = 0
            for lane, bank in enumerate(lane_banks):
                word |= each[bank] << lane * place
            offer = word
            dut.i__valid.value = 1
            dut.i__payload.value = offer
        await edge
        if cycle >= warm:
            shown.append(int(dut.o.value) & valid)
        if dut.i__ready.value == 1:
            number += 1
            offer = None
    hot = o.pack([{"valid": bank == int(np.bincount(names[:number].ravel()).argmax())} for bank in range(banks)])
    report(issued=sum(word.bit_count() for word in shown) / cycles,
           busiest=sum(word & hot != 0 for word in shown) / cycles)
