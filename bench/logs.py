"""Real logs through the EMB core on the simulated card, full size, every word against the oracle.

All tables of a log in batches of 4,096 samples, D = 64: the tenth of the rows that the log looks up most lies in card
memory, the rest of the more popular half in a tensor train of rank 4, what is left on the SSD with a row cache of 5 %
of the rows. Modes take turns.
"""

from collections.abc import Iterator

import numpy as np

from bench.data import logs
from bench.framework import Row, bench, figure
from bench.lockstep import Lockstep
from fpga.api.embedding import DRAM, SSD, TT, EmbeddingBags, Table
from gen.data import shapes
from gen.data.logs import Trace
from gen.data.reorder import by_frequency
from gen.rtl.config import load

BATCH = 4096
BATCHES = 2
DIM, RANK = 64, 4


def placed(name: str, indices: np.ndarray, rows: int, random: np.random.Generator, *, dim: int = DIM,
           most: int = 1 << 30) -> Table:
    """A table of random rows that lie where their heat says, no more than `most` of them in DRAM and TT."""
    rank = by_frequency(indices, rows)
    device = np.select([rank < max(1, rows // 10), rank < min(rows // 2, most)], [DRAM, TT], SSD)
    count = int(np.count_nonzero(device == TT))
    cores: list[np.ndarray] = []
    if count:
        ranks, modes, columns = (1, RANK, RANK, 1), shapes.row_modes(count), shapes.column_modes(dim)
        cores = [random.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
                 for k in range(3)]
    values = random.standard_normal((rows, dim)).astype(np.float32)
    return Table.place(name, values, device, cores=cores, rank=rank)


def carry(bags: EmbeddingBags, log: Trace, batch: int, batches: int, *,
          weights: np.random.Generator | None = None) -> dict[str, int]:
    """Totals of the result block over the batches; AssertionError where a word is not the oracle's. weights: draws
    those of every other table where its rows are summed."""
    twin = Lockstep(bags)
    total = dict.fromkeys(("cycles", "bags", "indices", "dram_rows", "tt_rows", "ssd_rows", "cache_fills"), 0)
    for start in range(0, batch * batches, batch):
        requests = []
        for number, name in enumerate(log.indices):
            indices, offsets = log.bags(name)
            offsets = offsets[start:start + batch + 1]
            mode = ("sum", "mean", "max")[(start // batch + number) % 3]
            part = indices[offsets[0]:offsets[-1]]
            drawn = weights.random(len(part), np.float32) if weights and mode == "sum" and number % 2 else None
            requests.append(bags.request(name, part, offsets - offsets[0], drawn, mode, True))
        twin.batch(requests)
        for name in total:
            total[name] += bags.last[name]
    return total


@bench("emb_logs")
def rows() -> Iterator[Row]:
    """Real logs through the full-size core on the simulated card, compared with the oracle word by word."""
    random = np.random.default_rng(7)
    config = load("smartssd").cores["emb"]
    for name, log in logs():
        tables = [placed(table, indices, log.rows[table], random) for table, indices in log.indices.items()]
        with EmbeddingBags(tables, preset="smartssd", ring_bytes=1 << 22,
                           cache_rows={table.name: table.rows // 20 for table in tables}) as bags:
            total = carry(bags, log, BATCH, BATCHES)
            speed = bags.card.cycles_per_s
        yield figure(f"emb.logs.{name}.bags", f"{name}: bags, every word equal to the oracle's", total["bags"], "bags")
        shares = ", ".join(f"{100 * total[f'{place}_rows'] / total['indices']:.0f} % {place}"
                           for place in ("dram", "tt", "ssd"))
        yield figure(f"emb.logs.{name}.cycles", f"{name}: cycles per index ({shares}; fills count as ssd)",
                     total["cycles"] / total["indices"], "cycles")
        yield figure(f"emb.logs.{name}.speed", f"{name}: simulated, {config.words} words a beat", speed, "cycles/s")
