"""Real logs and a trained tensor train through the EMB core on the simulated card, every word against the oracle.

Preset `tiny`. Rows are placed by how often the log looks them up: the hottest in DRAM, the next in a tensor
train, the rest on the SSD, with a row cache.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from bench import logs
from bench.lockstep import Lockstep
from fpga.api.embedding import DRAM, SSD, TT, EmbeddingBags, Table
from fpga.card import Device
from gen.data import learn, reorder, shapes
from gen.data.logs import Trace, open_log

ROOT = Path(__file__).parents[3]
SAMPLES = 6000 if os.environ.get("HOTRAIL_REGRESS") else 900
BATCH = 300
# A drive and a host with short times, so that the cycles go into the core.
QUICK = Device.load("smartssd").replace("ssd", read_us=1.0, dies=32).replace(
    "host", submit_us=0.2, complete_us=0.2, poll_us=0.1, doorbell_us=0.1)


def opened(tables, **options):
    return EmbeddingBags(tables, preset="tiny", device=QUICK, memory="ideal", ring_bytes=1 << 18,
                         limit_cycles=500_000, **options)


@pytest.mark.turns(1)
@pytest.mark.parametrize("file", ["anime_420k", "msweb", "openbandit_60k"])
def test_a_real_log(file, real_log):
    log = real_log(file)
    random = np.random.default_rng(1)
    tables = [logs.placed(name, indices, log.rows[name], random, dim=16, most=1500)
              for name, indices in log.indices.items()]
    with opened(tables, cache_rows={table.name: 64 for table in tables}) as bags:
        total = logs.carry(bags, log, BATCH, SAMPLES // BATCH, weights=random)
    assert total["bags"] == SAMPLES * len(tables) and min(total.values()) > 0


def test_a_trained_tensor_train():
    """An item table, trained as a tensor train on MovieLens; bags are the users' histories."""
    try:
        log = Trace.of(open_log("movielens"))
    except ValueError as error:
        pytest.skip(str(error))
    items, users = log.table("item_id"), log.table("user_id")
    ratings = learn.split(users, items, log.values["rating"], seed=20)
    count = log.rows["item_id"]
    model = learn.dense(ratings, columns=16, sweeps=1, seed=20)
    new_row = reorder.by_similarity(model.items)
    _, wide = learn.tensor_train(ratings, row_modes=shapes.row_modes(count), column_modes=shapes.column_modes(16),
                                 rank=4, rows_of=new_row, sweeps=1, seed=20)
    cores = [np.ascontiguousarray(core, np.float32) for core in wide]
    rank = reorder.by_frequency(items, count)
    device = np.select([rank < 50, rank < 1400], [DRAM, TT], SSD)
    table = Table.place("items", model.items, device, cores=cores, rank=rank, tt_row=new_row)
    order = np.argsort(users[:4000], kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(users[:4000]))])
    with opened([table], cache_rows={"items": 50}) as bags:
        twin = Lockstep(bags)
        for mode in ("sum", "mean", "max"):
            twin.batch([bags.request("items", items[order], offsets, None, mode, True)])
        assert bags.last["tt_rows"] > 1000 and bags.last["dram_rows"] > 500
