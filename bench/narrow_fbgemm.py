"""Rows that one core of this machine looks up by FBGEMM, in each format, and how many such cores a card's tiers are.

Where other jobs share the machine their work empties the caches; processor time alone is counted.
"""

import time
from collections.abc import Iterator

import numpy as np

from bench.framework import Row, at_least, bench, figure
from bench.narrow import SHORT
from bench.page import RESULTS, recorded
from fpga.api.servers import fbgemm_table

ROWS, DIM = 4_000_000, 64
FORMS = ("float32", "float16", "int8", "int4")
POOLING = (1, 20)
LOOKUPS = 40_000        # of a call
CALLS = 101
#: Where the card's own rates are recorded: random rows of DRAM, and TT rows per cycle in bags.
DRAM_RATE, TT_RATE = "narrow.rate.d64.{}", "emb.tt.rows_per_cycle.20"
CORE_MHZ = 250.0
CORES, TT_CORES = 4, 10


@bench("narrow_fbgemm", needs="fbgemm_gpu")
def cores() -> Iterator[Row]:
    """Millions of rows per second of FBGEMM's inference tables on one core; the card's DRAM and TT tiers over them."""
    card = recorded(RESULTS)
    for form in FORMS:
        rates = {pooling: _rate(form, pooling) for pooling in POOLING}
        best, what = max(rates.values()), f"FBGEMM, {form}, {ROWS:,} rows of D = {DIM}, one core"
        for pooling, rate in rates.items():
            yield figure(f"narrow.fbgemm.{SHORT[form]}.pool{pooling}", f"{what}, bags of {pooling}, median of {CALLS} "
                         "calls by processor time", round(rate, 1), "M rows/s")
        dram = float(card[DRAM_RATE.format(SHORT[form])].value)
        yield at_least(f"narrow.fbgemm.{SHORT[form]}", f"the card's DRAM tier in {form} ({dram:g} M rows/s) over the "
                       "faster of these", round(dram / best, 2), "cores", CORES)
        tt = float(card[TT_RATE].value) * CORE_MHZ
        yield at_least(f"narrow.fbgemm.{SHORT[form]}.tt", f"its TT tier, bags of 20 ({tt:g} M rows/s), over the same",
                       round(tt / best, 2), "cores", TT_CORES)


def _rate(form: str, pooling: int) -> float:
    """Millions of rows per second of a table's bags, pooled vectors in float32, other rows in every call."""
    looked_up, random = fbgemm_table(ROWS, DIM, form), np.random.default_rng(1)
    offsets = np.arange(0, LOOKUPS + 1, pooling, dtype=np.int32)
    took = []
    for _ in range(1 + CALLS):      # the first fills the tables' pages and is not counted
        indices = random.integers(0, ROWS, LOOKUPS).astype(np.int32)
        begin = time.process_time()
        looked_up(indices, offsets)
        took.append(time.process_time() - begin)
    return LOOKUPS / float(np.median(took[1:])) / 1e6
