"""The PCIe link beside the shipping EMB core: how fast pooled vectors reach the host, batch after batch."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from bench.framework import Row, at_least, bench, figure
from fpga.api.embedding import DRAM, TT, EmbeddingBags, Table
from gen.compiler.emb import Bags
from gen.model.device import Device

PRESET = "smartssd"
DEVICE = "smartssd"
DIM, ROWS, BAGS, BATCHES = 64, 64_000, 4096, 5
MIXED_BAGS, LONGEST = 1200, 40
TT_BAGS = 16_384        # whose vectors take the link longer than the core, the host's part of a batch included
TT_MODES, TT_COLUMNS, TT_RANKS = (40, 40, 40), (4, 4, 4), (1, 4, 4, 1)


def steady(bags: EmbeddingBags, batches: Sequence[Sequence[Bags]]) -> tuple[float, float]:
    """(cycles from one batch to the next, bytes to the host in them). Not counted are what the first batch takes to
    begin, and the last one, beside which no inputs come, with its vectors."""
    ends, sent = [], []
    for _ in bags.batches(batches):
        ends.append(bags.card.counters()["cycles"])
        sent.append(bags.card.link().out_bytes)
    cycles, passed = ((each[-3] - each[0]) / (len(batches) - 3) for each in (ends, sent))
    return cycles, passed


def with_train(name: str, device: ArrayLike, random: np.random.Generator, **how: str) -> Table:
    """Rows in DRAM and in a tensor train, as `device` says."""
    cores = [random.standard_normal((TT_RANKS[k], TT_MODES[k], TT_COLUMNS[k], TT_RANKS[k + 1])).astype(np.float32)
             for k in range(3)]
    values = random.standard_normal((ROWS, DIM), dtype=np.float32)
    return Table.place(name, values, device, cores=cores, **how)


def single(bags: EmbeddingBags, table: str, count: int, random: np.random.Generator) -> tuple[float, float]:
    """`steady` of batches of so many bags of a row each."""
    return steady(bags, [[bags.request(table, random.integers(0, ROWS, (count, 1)))] for _ in range(BATCHES)])


def mixed(bags: EmbeddingBags, table: str, random: np.random.Generator) -> float:
    """Cycles from one batch of bags of any length to the next, over the core's."""
    lengths = random.integers(1, LONGEST + 1, MIXED_BAGS)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    cycles, _ = steady(bags, [[bags.request(table, random.integers(0, ROWS, offsets[-1]), offsets,
                                            include_last_offset=True)] for _ in range(BATCHES - 1)])
    return cycles / bags.last["cycles"]


@bench("link")
def link() -> Iterator[Row]:
    """Pooled vectors to the host, one batch on the link while the next is run, against the link's rate."""
    device, random = Device.load(DEVICE), np.random.default_rng(1)
    clock, values = device.kernel_mhz * 1e6, random.standard_normal((ROWS, DIM), dtype=np.float32)
    tables = {
        "link.results": Table.place("float32", values, DRAM, results="float32"),
        "link.results.float16": Table.place("float16", values, DRAM, results="float16"),
        "link.results.float16.tt": with_train("tt", TT, random, results="float16"),
    }
    both = with_train("mixed", np.resize([DRAM, TT], ROWS), random)
    with EmbeddingBags([*tables.values(), both], preset=PRESET, device=DEVICE) as bags:
        for id, table in tables.items():
            count = TT_BAGS if table.cores else BAGS
            cycles, sent = single(bags, table.name, count, random)
            of = "a tensor train" if table.cores else "DRAM"
            what = f"pooled vectors of D = {DIM} in {table.results}, a row of {of} each, batches of {count:,}"
            row = (id, f"{what}: share of the link's rate to the host, {1e-9 / device.link.byte_s:.2f} GB/s",
                   round(100 * sent * clock / cycles * device.link.byte_s, 1), "%")
            # A row of DRAM, its vector written and read: memory is slower than the link takes vectors of half the size.
            yield figure(*row) if id == "link.results.float16" else at_least(*row, 95)
            yield figure(f"{id}.rate", what, round(count * clock / cycles / 1e6, 2), "M vectors/s")
        yield figure("link.mixed", f"batches of {MIXED_BAGS:,} bags of 1 to {LONGEST} rows, half DRAM, half TT: "
                     "cycles from one to the next, transfers included, over the core's", round(
                         mixed(bags, both.name, random), 3), "")
