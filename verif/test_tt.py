"""The TT unit against its golden model: values bit for bit, marks, counters and the cycle of every vector."""

import os
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from gen.config import load
from golden.tt.load import Loader
from golden.tt.rows import rows
from hw.tt.unit import TTUnit
from verif.bench import reset, rng, seed
from verif.bench.runner import seeds, simulate
from verif.bench.stream import bursty, sometimes
from verif.bench.tt import Bench, limits_of

CONFIGS = {
    "tiny": lambda: load("tiny").cores["tt"],
    "two_lanes": lambda: replace(load("tiny").cores["tt"], lanes=2),
    "smartssd": lambda: load("smartssd").cores["tt"],
}
COLUMNS = {
    1: [(2, 2, 4), (2, 2, 2), (4, 4, 4), (1, 2, 8), (3, 3, 3), (4, 4), (3, 5), (2, 2, 2, 2), (2, 4, 8), (3, 2, 2, 5)],
    2: [(4, 4, 4), (2, 2, 4), (2, 4, 4), (4, 4, 8), (8, 8, 8), (4, 8, 8), (2, 2, 32), (5, 5, 5), (8, 8), (4, 4, 4, 4),
        (2, 2, 16), (3, 2, 5, 3), (4, 4, 32), (16, 32)],
}


class Table:
    """Random cores of one shape, and what the unit makes of them."""

    def __init__(self, random, modes, columns, ranks, existing=None):
        ranks = (1, *ranks, 1)
        self.cores = [random.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
                      for k in range(len(modes))]
        self.rows = int(np.prod(modes)) if existing is None else existing


def _config():
    return CONFIGS[os.environ["TT_CONFIG"]]()


def _tables(config, random, shapes, rank_of):
    out = []
    for columns in shapes:
        modes = [int(v) for v in random.integers(1, 8, len(columns))]
        out.append(Table(random, modes, columns, [rank_of() for _ in columns[1:]]))
    return out


async def _load(bench, config, tables):
    loader = Loader(limits_of(config))
    for table in tables:
        _, _, beats = loader.add(table.cores, rows=table.rows)
        await bench.load(beats)


def _expected(config, tables, asked):
    """Vectors of lookups [(table, index)] as words."""
    out = [None] * len(asked)
    for number, table in enumerate(tables):
        mine = [at for at, (t, _) in enumerate(asked) if t == number]
        found = rows(table.cores, [i if i < table.rows else 0 for _, i in (asked[at] for at in mine)],
                     grid_log2=config.grid_log2)
        for at, row in zip(mine, found, strict=True):
            out[at] = row.view(np.uint32)
    return out


def _check(config, tables, asked, found):
    for at, ((words, error, _), want) in enumerate(zip(found, _expected(config, tables, asked), strict=True)):
        number, index = asked[at]
        assert error == (index >= tables[number].rows), f"lookup {at}: error mark {error}"
        assert np.array_equal(words, want), (
            f"lookup {at}, row {index} of table {number}: {np.flatnonzero(words != want)[:4]} of {len(want)} differ")


def _lookups(random, tables, count, runs=0.5):
    """Lookups that stay with a table, and near a row, for a while."""
    asked, table, index = [], 0, 0
    for _ in range(count):
        if random.random() > runs:
            table = int(random.integers(len(tables)))
            index = int(random.integers(tables[table].rows))
        else:
            index = (index + int(random.integers(3))) % tables[table].rows
        asked.append((table, index))
    return asked


@cocotb.test()
async def smoke(dut):
    """One table of ones: every row is the product of the ranks."""
    config = _config()
    bench = await Bench.begin(dut, config)
    side = config.side
    table = Table(np.random.default_rng(0), (2, 3, 2), (side,) * 3, (side, side))
    table.cores = [np.ones_like(core) for core in table.cores]
    await _load(bench, config, [table])
    bench.ask([0, 0], [0, 11])
    for words, error, _ in await bench.vectors(2):
        assert not error
        assert np.array_equal(words.view(np.float32), np.full(side**3, side**2, np.float32))


@cocotb.test()
async def random_match_golden(dut):
    """Many tables of all kinds of shapes, lookups of different tables back to back."""
    config = _config()
    random = np.random.default_rng(seed("tables"))
    bench = await Bench.begin(dut, config)
    tables = _tables(config, random, COLUMNS[config.grid_log2][: config.tables],
                     lambda: int(random.integers(1, config.rank_max // 2)))
    await _load(bench, config, tables)
    asked = _lookups(random, tables, 300)
    bench.ask(*zip(*asked, strict=True))
    _check(config, tables, asked, await bench.vectors(len(asked)))


def _simulate(name, tests, number, only=None):
    simulate(TTUnit(CONFIGS[name]()), "verif.test_tt", name=f"tt_{name}", tests=tests, seed=number,
             env={"TT_CONFIG": name}, only=only)


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", ["tiny", "two_lanes"])
def test_tt(name, number):
    _simulate(name, 2, number)


_ = (ClockCycles, bursty, sometimes, reset, rng)
