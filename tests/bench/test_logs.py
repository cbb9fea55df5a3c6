"""The bench of real logs carries out what it says, on a card whose core is the oracle."""

import numpy as np
import pytest

from bench import logs
from fpga.api.embedding import DRAM, SSD, TT, EmbeddingBags
from gen.data.logs import Trace
from golden.emb.core import Emb
from tests.support import emb_tables as make
from tests.support.emb_card import OracleCard


def rig():
    random = np.random.default_rng(1)
    log = Trace("a log", {"a": random.zipf(1.3, 400) % 60, "b": random.integers(0, 30, 900)}, {"a": 60, "b": 30},
                offsets={"b": np.concatenate([[0], np.cumsum(np.resize([0, 1, 2, 6], 400))])})
    tables = [logs.placed(name, indices, log.rows[name], random, dim=16) for name, indices in log.indices.items()]
    config = make.config()
    card = OracleCard(Emb.of(config, [t.cores for t in tables]))
    return log, tables, EmbeddingBags(tables, card=card, preset=config, cache_rows={"a": 3})


def test_rows_lie_where_their_heat_says():
    log, (table, _), _ = rig()
    counts = np.bincount(log.indices["a"], minlength=60)
    device = table.placement >> 30
    assert [int(np.count_nonzero(device == place)) for place in (DRAM, TT, SSD)] == [6, 24, 30]
    assert counts[device == DRAM].min() >= counts[device == TT].max() >= counts[device == TT].min() >= counts[
        device == SSD].max()


def test_totals_are_those_of_the_log():
    log, _, bags = rig()
    total = logs.carry(bags, log, 50, 3)
    indices = 150 + int(log.offsets["b"][150])
    assert (total["bags"], total["indices"]) == (300, indices)
    assert total["dram_rows"] + total["tt_rows"] + total["ssd_rows"] >= indices and total["ssd_rows"] > 0


def test_a_word_that_differs_is_found():
    log, _, bags = rig()
    run = bags.card.core.run

    def flips(memory, count=None):
        done = run(memory, count)
        if len(memory.outputs):
            memory.outputs[-1] ^= 1
        return done

    bags.card.core.run = flips
    with pytest.raises(AssertionError, match="request 1: 1 vectors differ, the first is 49"):
        logs.carry(bags, log, 50, 1)
