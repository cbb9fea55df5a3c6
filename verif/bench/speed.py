"""How fast a model simulates: the clock runs in the simulator, Python changes the operands now and then."""

import json
import os
import time

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles

from golden.tt.load import Limits, Loader
from verif.bench import report, reset, rng, seed, start
from verif.bench.pack import layout_of
from verif.tt.bench import Bench

EVERY = 64  # cycles between two new operands


async def _measured(dut, change) -> None:
    cycles = int(os.environ["HOTRAIL_CYCLES"])
    await ClockCycles(dut.clk, 256)
    # The simulator is one thread, so its own processor time is what an otherwise idle machine would take.
    begin = time.process_time()
    for _ in range(0, cycles, EVERY):
        change()
        await ClockCycles(dut.clk, EVERY)
    report(cycles_per_s=cycles / (time.process_time() - begin))


@cocotb.test()
async def array(dut):
    """A systolic array in which every element multiplies in every cycle."""
    draw = rng("operands")
    start(dut)
    await reset(dut)
    dut.first.value, dut.last.value, dut.live_rows.value = 0, 0, 0

    def change():
        dut.x.value = draw.getrandbits(layout_of("x").width)
        dut.y.value = draw.getrandbits(layout_of("y").width)

    await _measured(dut, change)


@cocotb.test()
async def tt(dut):
    """A TT unit whose multipliers all work in every cycle: rows by themselves, D = 64, R = 32, always on offer."""
    draw = rng("lookups")
    numbers = np.random.default_rng(seed("cores"))
    limits = json.loads(os.environ["HOTRAIL_LIMITS"])
    lanes = int(os.environ["HOTRAIL_LANES"])
    start(dut)
    bench = Bench(dut, 4 ** limits["grid_log2"], watch=False)
    await reset(dut)
    cores = [
        numbers.standard_normal(shape, dtype=np.float32)
        for shape in ((1, 16, 4, 32), (32, 16, 4, 32), (32, 16, 4, 1))
    ]
    _, _, beats = Loader(Limits(**limits)).add(cores)
    await bench.load(beats)
    bench.stop()
    layout = layout_of("i_lookups__payload")
    before = layout_of("counters").unpack(int(dut.counters.value))

    def change():
        row = {"table": 0, "index": draw.randrange(4096), "begin": 1, "end": 1}
        dut.i_lookups__payload.value = layout.pack(row)

    change()
    dut.i_lookups__valid.value, dut.o_vectors__ready.value = 1, 1
    await _measured(dut, change)
    after = layout_of("counters").unpack(int(dut.counters.value))
    slots = after["slots"] - before["slots"]
    assert slots > 0.95 * lanes * int(os.environ["HOTRAIL_CYCLES"]), f"{slots} issue slots had work"
