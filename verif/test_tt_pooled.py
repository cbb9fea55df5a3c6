"""The TT unit with pooling against its golden model: sums of chunks bit for bit, marks, counters and cycles."""

import os
from dataclasses import replace

import cocotb
import numpy as np
import pytest

from gen.config import load
from golden.tt.load import Loader
from golden.tt.rows import pooled
from hw.tt.unit import TTUnit
from verif.bench.runner import seeds, simulate
from verif.bench.tt import PooledBench, limits_of
from verif.test_tt import Table

POOLED = {"pool_log2": 3, "reuse_entries": 32}
CONFIGS = {
    "tiny": lambda: replace(load("tiny").cores["tt"], **POOLED, output_beats=128),
    "two_lanes": lambda: replace(load("tiny").cores["tt"], **POOLED, output_beats=256, lanes=2),
    "smartssd": lambda: replace(load("smartssd").cores["tt"], pool_log2=3, output_beats=512),
}


def _config():
    return CONFIGS[os.environ["TT_CONFIG"]]()


@cocotb.test()
async def smoke(dut):
    config = _config()
    bench = await PooledBench.begin(dut, config)
    side = config.side
    table = Table(np.random.default_rng(0), (2, 3, 2), (side,) * 3, (side, side))
    loader = Loader(limits_of(config))
    _, layout, beats = loader.add(table.cores)
    await bench.load(beats)
    chunks = [(0, [0]), (0, [11]), (0, [1, 2, 3]), (0, [4] * 8), (0, [5, 6, 7, 8, 9, 10, 11, 0]), (0, [1, 2])] * 6
    bench.ask_chunks(chunks)
    indices = [i for _, rows in chunks for i in rows]
    want = pooled(table.cores, indices, np.cumsum([0] + [len(rows) for _, rows in chunks]), grid_log2=config.grid_log2)
    for at, (words, error, _) in enumerate(await bench.sums(len(chunks))):
        assert not error
        assert np.array_equal(words[:layout.dim], want[at].view(np.uint32)), (at, words.view(np.float32), want[at])


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", ["tiny", "two_lanes"])
def test_tt_pooled(name, number):
    simulate(TTUnit(CONFIGS[name]()), "verif.test_tt_pooled", name=f"tt_pooled_{name}", tests=1, seed=number,
             env={"TT_CONFIG": name})
