"""Real logs through the EMB core on the simulated card, every word against the oracle.

Preset `tiny`. Rows are placed by how often the log looks them up: the hottest in DRAM, the next in a tensor
train, the rest on the SSD, with a row cache.
"""

import os

import numpy as np
import pytest

from fpga.api.embedding import DRAM, SSD, TT, EmbeddingBags, Table
from fpga.card import Device
from gen.compiler.oracle import EmbOracle, first_difference
from gen.compiler.tables import CardImages
from gen.data import reorder, shapes
from gen.rtl.config import load

SAMPLES = 6000 if os.environ.get("HOTRAIL_REGRESS") else 900
BATCH = 300
DIM, RANK, MOST = 16, 4, 1500
# What the core counts by the word and not by time.
COUNTED = ("instructions", "bags", "indices", "dram_rows", "dram_bytes", "tt_rows", "tt_bytes", "ssd_rows",
           "ssd_bytes", "cache_fills")
# A drive and a host with short times, so that the cycles go into the core.
QUICK = Device.load("smartssd").replace("ssd", read_us=1.0, dies=32).replace(
    "host", submit_us=0.2, complete_us=0.2, poll_us=0.1, doorbell_us=0.1)


class Lockstep:
    """The oracle of one EmbeddingBags, with DRAM of its own."""

    def __init__(self, bags):
        self.bags = bags
        self.oracle = EmbOracle(bags.images, bags.compiler)

    def batch(self, requests):
        """Carries a batch out on both."""
        found = self.bags.batch(requests)
        program = self.bags.program
        wanted, counters = self.oracle.run(program)
        assert not first_difference(found, wanted), first_difference(found, wanted)
        if program.count:
            assert {name: self.bags.last[name] for name in COUNTED} == {name: counters[name] for name in COUNTED}


def placed(name, indices, rows, random):
    """A table of random rows that lie where their heat says, at most MOST of them in DRAM and TT."""
    rank = reorder.by_frequency(indices, rows)
    device = np.select([rank < max(1, rows // 10), rank < min(rows // 2, MOST)], [DRAM, TT], SSD)
    count = int(np.count_nonzero(device == TT))
    cores = []
    if count:
        ranks, modes, columns = (1, RANK, RANK, 1), shapes.row_modes(count), shapes.column_modes(DIM)
        cores = [random.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
                 for k in range(3)]
    values = random.standard_normal((rows, DIM)).astype(np.float32)
    tt_row = np.zeros(rows, np.int64)
    tt_row[device == TT] = random.permutation(count)
    return Table.place(name, values, device, cores=cores, rank=rank, tt_row=tt_row if count else None)


def carry(bags, log, random):
    """Totals of the result block over the batches, every word the oracle's; of every other table rows that are summed
    are weighted."""
    twin = Lockstep(bags)
    total = dict.fromkeys(("cycles", "bags", "indices", "dram_rows", "tt_rows", "ssd_rows", "cache_fills"), 0)
    for start in range(0, SAMPLES, BATCH):
        requests = []
        for number, name in enumerate(log.indices):
            indices, offsets = log.bags(name)
            offsets = offsets[start:start + BATCH + 1]
            mode = ("sum", "mean", "max")[(start // BATCH + number) % 3]
            part = indices[offsets[0]:offsets[-1]]
            drawn = random.random(len(part), np.float32) if mode == "sum" and number % 2 else None
            requests.append(bags.request(name, part, offsets - offsets[0], drawn, mode, True))
        twin.batch(requests)
        for name in total:
            total[name] += bags.last[name]
    return total


def opened(tables, cached):
    """cached: rows of the row cache of each table."""
    images = CardImages(tables, load("tiny").cores["emb"], cache_rows={table.name: cached for table in tables})
    return EmbeddingBags(images, preset="tiny", device=QUICK, memory="ideal", ring_bytes=1 << 18, limit_cycles=500_000)


@pytest.mark.turns(1)
@pytest.mark.parametrize("file", ["anime_420k", "msweb", "openbandit_60k"])
def test_a_real_log(file, real_log):
    log = real_log(file)
    random = np.random.default_rng(1)
    tables = [placed(name, indices, log.rows[name], random) for name, indices in log.indices.items()]
    with opened(tables, 64) as bags:
        total = carry(bags, log, random)
    assert total["bags"] == SAMPLES * len(tables) and min(total.values()) > 0
