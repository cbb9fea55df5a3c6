"""SCRec Fig. 11 beside twins of the cards: batches drawn from the statistics of MELS go through every EMB card of the
plan, whose seconds are held against the cycles that the card takes from one batch to the next.

Rows and tensor trains have no contents that matter: what a batch takes does not depend on values.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from bench.data import needed
from bench.framework import Row, at_most, bench, figure
from bench.link import steady
from bench.papers import CARDS, MELS_BATCH, MELS_DIM, costs, placed
from bench.plan import STATISTICS, TABLES
from fpga.api.embedding import DRAM, SSD, TT, EmbeddingBags, Table
from gen.compiler.emb import Bags
from gen.compiler.tables import DEVICE_SHIFT, CardImages
from gen.data.profile import Profile, TableProfile
from gen.data.profiling.mels import mels
from gen.model.device import Device
from gen.planner.assume import model_of
from gen.planner.plan import Plan, PlanTable
from gen.rtl.config import load

BATCHES = 4     # through each card: from the end of the first to that of the second, inputs of the last beside it
ERROR = 10.0    # per cent between plan and twin


def blank(table: PlanTable, dim: int, random: np.random.Generator) -> Table:
    """A table of the plan without contents, for indices that are remapped already."""
    dram, ssd = (np.broadcast_to(np.float32(0), (rows, dim)) for rows in (table.dram.rows, table.ssd.rows))
    ranks = 1, *table.ranks, 1
    cores = [random.standard_normal((ranks[k], rows, columns, ranks[k + 1]), dtype=np.float32)
             for k, (rows, columns) in enumerate(zip(table.row_modes, table.column_modes, strict=True))]
    return Table(table.name, dim, np.zeros(0, np.uint32), dram, ssd, tuple(cores))


def images(plan: Plan, tables: list[PlanTable], random: np.random.Generator, folder: Path) -> CardImages:
    """Of one card, whose tables these are. folder: for its SSD, a file of hundreds of GB without contents."""
    def room(name: str, shape: tuple[int, int]) -> NDArray[np.uint32]:
        if name == "rows" or not shape[0]:
            return np.zeros(shape, np.uint32)
        return np.memmap(folder / name, np.uint32, "w+", shape=shape)

    return CardImages([blank(table, plan.model.tables[table.name].dim, random) for table in tables],
                      load(plan.preset).cores["emb"], plan.page_bytes, room=room, blank=True,
                      row_in_page=Device.load(plan.device).row_in_page)


def drawn(table: PlanTable, known: TableProfile, batch: int, random: np.random.Generator) -> Bags:
    """A batch's bags: the average pooling factor, rounded down or up; rows as often as the log has them."""
    lengths = np.floor(known.pooling + random.random(batch)).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rank = known.heat.drawn(int(offsets[-1]), random)
    hot, trains, spare = table.ends
    place = np.searchsorted(table.ends, rank, side="right")
    number = rank - np.array([0, hot, trains - hot, spare])[place]
    return Bags(table.name, np.array([DRAM, TT, DRAM, SSD])[place] << DEVICE_SHIFT | number, offsets, remapped=True)


def seconds(plan: Plan, profile: Profile, number: int, *, card: str = "twin", seed: int = 1) -> float:
    """From one batch to the next through a card of the plan, transfers included."""
    random = np.random.default_rng(seed)
    tables = [table for table in plan.tables.values() if number in table.cards]
    with TemporaryDirectory() as folder, EmbeddingBags(
            images(plan, tables, random, Path(folder)), card=card, preset=plan.preset, device=plan.device,
            ring_bytes=plan.ring_bytes) as bags:
        batches = [[drawn(table, profile.tables[table.name], plan.batch, random) for table in tables]
                   for _ in range(BATCHES)]
        return steady(bags, batches)[0] / (Device.load(plan.device).kernel_mhz * 1e6)


@bench("papers_screc_twin")
def figure_11() -> Iterator[Row]:
    """SCRec Fig. 11 on 8 twins: samples per second of MELS, and how far the plan is off."""
    for year in TABLES:
        profile = mels(needed(STATISTICS.format(year)))
        of = model_of(profile, MELS_DIM, MELS_BATCH)[0]
        if (plan := placed(profile, of, costs(MELS_DIM))) is None:
            continue
        each = [seconds(plan, profile, number) for number in range(CARDS)]
        id, what = f"papers.screc.fig11.{year}.{CARDS}.twin", f"MELS {year}, {CARDS} cards: "
        yield figure(id, f"{what}samples per second of their twins, the slowest card's", round(of.batch / max(each)),
                     "samples/s")
        yield at_most(f"{id}.error", f"{what}the plan's batch against the twins', {1e3 * plan.seconds:.2f} and "
                      f"{1e3 * max(each):.2f} ms", round(100 * abs(plan.seconds / max(each) - 1), 1), "%", ERROR)
