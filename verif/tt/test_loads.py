"""Loads of the TT unit: their rate, beside lookups, and broken off by a reset."""

import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from golden.tt import Limits, Loader
from hw.tt.unit import TTUnit, load_wait
from verif.bench import seed
from verif.bench.runner import one_of, seeds, simulate
from verif.tt.bench import CONFIGS, Bench, Table, chunks_of

UNIT = "tt/unit"
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))


async def _begin(dut):
    config = CONFIGS[os.environ["TT_CONFIG"]]()
    return config, await Bench.begin(dut, config=config)


def _table(config, random, block16):
    return Table(random, (4, 4, 4), (config.side,) * 3, (6, 5), block16=config.block16_only or block16)


@cocotb.test()
@pytest.mark.testpoint("load_while_looking_up")
async def load_while_looking_up(dut):
    """A table is loaded while another is read: neither disturbs the other."""
    config, bench = await _begin(dut)
    random = np.random.default_rng(seed("load"))
    tables = [_table(config, random, config.grouped and bool(at)) for at in range(3)]
    loader = Loader(Limits.of(config))
    parts = []
    for table in tables:
        _, table.layout, beats = loader.add(table.cores, block16=table.block16)
        parts.append(beats)
    await bench.send(parts[0])
    chunks = chunks_of(config, random, tables[:1], 80)
    bench.ask(chunks)
    for beats in parts[1:]:
        await bench.send(beats)
    more = chunks_of(config, random, tables, 40)
    bench.ask(more)
    bench.judge(tables, chunks + more, await bench.sums(120))


@cocotb.test()
@pytest.mark.testpoint("latency_and_rate_as_documented")
async def loads_take_the_cycles_documented(dut):
    """Loads into an idle unit, back to back: one a cycle, or the cycles that its groups take through their aligner."""
    config, bench = await _begin(dut)
    await bench.load([_table(config, np.random.default_rng(seed("rate")), False)])
    taken = np.array(bench.sources["i_load"].taken_at)
    each = load_wait(config) + 2 if config.grouped else 1
    assert len(taken) > 8 and (np.diff(taken) == each).all(), f"{np.diff(taken)} cycles between loads, not {each}"


@cocotb.test()
@pytest.mark.testpoint("reset_midstream")
async def reset_inside_a_load(dut):
    """A reset at every moment of a load; what is then loaded anew gives the sums that it should, in their cycles."""
    config, bench = await _begin(dut)
    random = np.random.default_rng(seed("reset"))
    moments = range(load_wait(config) + 6)
    for moment in moments if REGRESS else random.choice(len(moments), 2, replace=False):
        old, tables = _table(config, random, False), [_table(config, random, False)]
        bench = await bench.fresh()
        _, _, beats = Loader(Limits.of(config)).add(old.cores, block16=old.block16)
        bench.sources["i_load"].put(*({**vars(beat), "flip": 0} for beat in beats))
        await ClockCycles(dut.clk, 40 + int(moment))
        bench = await bench.fresh()
        await bench.load(tables)
        await bench.run(tables, chunks_of(config, random, tables, 12 if REGRESS else 6))


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", [*one_of(["two_lanes", "uram", "tiny"]), *(
    pytest.param(name, marks=pytest.mark.regress) for name in ("grouped", "block16_only"))])
def test_loads(name, number):
    config = CONFIGS[name]()
    simulate(TTUnit(config), "verif.tt.test_loads", name=f"tt_{name}", tests=3, seed=number, env={"TT_CONFIG": name},
             opt="-O1" if config.side >= 4 else "-O0")
