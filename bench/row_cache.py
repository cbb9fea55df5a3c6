"""The row cache beside rows that stay where their frequency puts them, on twins of a card.

As much DRAM for rows of the SSD either way: the hottest rows of the log's first half for good, as plans place them, or
the row cache, warmed with the same rows. Batches of the second half, 64 values per row; cycles from one batch to the
next. Both with the pages in the order of first need as well, to show what the order by dies is worth.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from bench.data import held, needed
from bench.framework import Row, bench, figure
from bench.link import steady
from fpga.api.embedding import DRAM, SSD, EmbeddingBags, Table
from gen.compiler.emb import Bags
from gen.compiler.tables import CardImages
from gen.data.reorder import by_frequency
from gen.rtl.config import load

LOGS = {"anime_420k": ("user", "anime", "genre"), "nowplaying_128k": ("item",), "grocery_122k": ("user", "item")}
SHARES, SIZES = (0.2, 0.5), (256, 2048)     # of the rows in DRAM; samples per batch
BATCHES, DIM, RING_BYTES = 8, 64, 64 << 20


def cycles(tables: list[Table], batches: list[list[Bags]], cache_rows: Mapping[str, int], *,
           dies: bool = True) -> float:
    images = CardImages(tables, load("smartssd").cores["emb"], cache_rows=cache_rows)
    with EmbeddingBags(images, card="twin", ring_bytes=RING_BYTES) as bags:
        if not dies:
            bags.compiler.drive = None
        return steady(bags, batches)[0]


@bench("emb_row_cache")
def rows() -> Iterator[Row]:
    """Cycles of a batch with the row cache, and in the order of need, over rows placed by frequency."""
    for file, names in LOGS.items():
        log, name = held(needed(f"{file}.npz")), file.split("_")[0]
        half = log.samples // 2
        kept = {table: log.bags(table) for table in names}
        rank = {table: by_frequency(indices[:offsets[half]], log.rows[table])
                for table, (indices, offsets) in kept.items()}
        for size in SIZES:
            starts = half + np.arange(BATCHES) * size
            batches = [[Bags(table, indices[offsets[at]:offsets[at + size]], offsets[at:at + size + 1] - offsets[at])
                        for table, (indices, offsets) in kept.items()] for at in starts.tolist()]
            for share in SHARES:
                inside = {table: max(int(log.rows[table] * share), 1) for table in names}
                blank = {table: np.zeros((log.rows[table], DIM), np.float32) for table in names}
                placed = [Table.place(table, blank[table], np.where(rank[table] < inside[table], DRAM, SSD),
                                      rank=rank[table]) for table in names]
                all_ssd = [Table.place(table, blank[table], SSD, rank=rank[table]) for table in names]
                fixed = cycles(placed, batches, {})
                id = f"emb.row_cache.{name}.{size}.{100 * share:g}"
                what = f"{name}, batches of {size:,}, DRAM for {100 * share:g} % of the rows: cycles of a batch"
                yield figure(id, f"{what} with the row cache over rows placed by frequency",
                             round(cycles(all_ssd, batches, inside) / fixed, 3), "x")
                yield figure(f"{id}.need", f"{what} with pages in the order of need over dies in turns",
                             round(cycles(placed, batches, {}, dies=False) / fixed, 3), "x")
