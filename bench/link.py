"""The PCIe link beside the shipping EMB core: how fast pooled vectors reach the host, batch after batch."""

from collections.abc import Iterator

import numpy as np

from bench.framework import Row, at_least, bench, figure
from fpga.api.embedding import DRAM, EmbeddingBags, Table
from gen.model.device import Device

PRESET = "smartssd"
DEVICE = "smartssd"
DIM, ROWS, BAGS, BATCHES = 64, 1 << 16, 4096, 5


def results(bags: EmbeddingBags, table: str, device: Device) -> tuple[float, float]:
    """(pooled vectors per second, share of the link's bytes per second), bags of one row. What the first batch takes to
    begin is not counted."""
    random, ends = np.random.default_rng(1), []
    requests = ([bags.request(table, random.integers(0, ROWS, (BAGS, 1)))] for _ in range(BATCHES))
    sent = []
    for _ in bags.batches(requests):
        ends.append(bags.card.counters()["cycles"])
        sent.append(bags.card.link().out_bytes)
    seconds = (ends[-2] - ends[0]) / (device.kernel_mhz * 1e6)
    rate = (sent[-2] - sent[0]) / seconds
    return (BATCHES - 2) * BAGS / seconds, rate * device.link.byte_s


@bench("link")
def link() -> Iterator[Row]:
    """Pooled vectors to the host, one batch on the link while the next is run, against the link's rate."""
    device = Device.load(DEVICE)
    values = np.random.default_rng(2).standard_normal((ROWS, DIM), dtype=np.float32)
    tables = [Table.place(form, values, DRAM, results=form) for form in ("float32", "float16")]
    with EmbeddingBags(tables, preset=PRESET, device=DEVICE) as bags:
        for table, id in zip(tables, ("link.results", "link.results.float16"), strict=True):
            rate, share = results(bags, table.name, device)
            what = f"pooled vectors of D = {DIM} in {table.results}, batches of {BAGS:,}"
            yield at_least(id, f"{what}: share of the link's rate to the host, {1e-9 / device.link.byte_s:.2f} GB/s",
                           round(100 * share, 1), "%", 95)
            yield figure(f"{id}.rate", what, round(rate / 1e6, 2), "M vectors/s")
