"""The PCIe link beside the shipping EMB core: how fast pooled vectors reach the host, batch after batch."""

from collections.abc import Iterator, Sequence

import numpy as np

from bench.framework import Row, at_least, bench, figure
from fpga.api.embedding import DRAM, TT, EmbeddingBags, Table
from gen.compiler.emb import Bags
from gen.model.device import Device

PRESET = "smartssd"
DEVICE = "smartssd"
DIM, ROWS, BAGS, BATCHES = 64, 1 << 16, 4096, 5
MIXED_BAGS, LONGEST = 1200, 40
TT_MODES, TT_COLUMNS, TT_RANKS = (40, 40, 40), (4, 4, 4), (1, 4, 4, 1)


def steady(bags: EmbeddingBags, batches: Sequence[Bags]) -> tuple[float, float]:
    """(cycles from one batch to the next, bytes to the host in them). What the first batch takes to begin, and the last
    one to end, is not counted."""
    ends, sent = [], []
    for _ in bags.batches([each] for each in batches):
        ends.append(bags.card.counters()["cycles"])
        sent.append(bags.card.link().out_bytes)
    cycles, passed = ((each[-2] - each[0]) / (len(batches) - 2) for each in (ends, sent))
    return cycles, passed


def mixed(random: np.random.Generator) -> Table:
    """Half of the rows in DRAM, half in a tensor train."""
    cores = [random.standard_normal((TT_RANKS[k], TT_MODES[k], TT_COLUMNS[k], TT_RANKS[k + 1])).astype(np.float32)
             for k in range(3)]
    values = random.standard_normal((ROWS, DIM), dtype=np.float32)
    return Table.place("mixed", values, np.resize([DRAM, TT], ROWS), cores=cores)


@bench("link")
def link() -> Iterator[Row]:
    """Pooled vectors to the host, one batch on the link while the next is run, against the link's rate."""
    device, random = Device.load(DEVICE), np.random.default_rng(1)
    clock, values = device.kernel_mhz * 1e6, random.standard_normal((ROWS, DIM), dtype=np.float32)
    tables = [Table.place(form, values, DRAM, results=form) for form in ("float32", "float16")]
    with EmbeddingBags([*tables, mixed(random)], preset=PRESET, device=DEVICE) as bags:
        for table, id in zip(tables, ("link.results", "link.results.float16"), strict=True):
            cycles, sent = steady(bags, [bags.request(table.name, random.integers(0, ROWS, (BAGS, 1)))
                                         for _ in range(BATCHES)])
            what = f"pooled vectors of D = {DIM} in {table.results}, batches of {BAGS:,}"
            yield at_least(id, f"{what}: share of the link's rate to the host, {1e-9 / device.link.byte_s:.2f} GB/s",
                           round(100 * sent * clock / cycles * device.link.byte_s, 1), "%", 95)
            yield figure(f"{id}.rate", what, round(BAGS * clock / cycles / 1e6, 2), "M vectors/s")
        lengths = random.integers(1, LONGEST + 1, MIXED_BAGS)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        cycles, _ = steady(bags, [bags.request("mixed", random.integers(0, ROWS, offsets[-1]), offsets,
                                               include_last_offset=True) for _ in range(BATCHES - 1)])
        yield figure("link.mixed", f"batches of {MIXED_BAGS:,} bags of 1 to {LONGEST} rows, half DRAM, half TT: "
                     "cycles from one to the next, transfers included, over the core's", round(
                         cycles / bags.last["cycles"], 3), "")
