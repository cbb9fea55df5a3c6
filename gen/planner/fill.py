"""What is left of the DRAM, after the optimum: rows that would lie on the SSD, hottest expected first.

A row that leaves the SSD takes nothing from any other and costs no more time in DRAM, in which it lands otherwise. So
each card's free bytes go to the rows of its tables that are read most, one by one and not in steps: rows that the log
has once, then rows that it does not have, and those that nobody is expected to read last, of small tables first. Of a
table on several cards as many as all of them have room for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gen.data.expected import Expected
from gen.planner import in_order
from gen.planner.choices import cuts
from gen.planner.costs import Costs
from gen.planner.problem import CardChoice, Item, Placement, Problem, TableChoice


@dataclass(frozen=True)
class Part:
    """Where a table's rows lie on each of its cards: hot, spare in DRAM, warm in the tensor train, cold on the SSD.
    item: what each of them serves; to_*: accesses of a batch there; fetches: of DRAM,
    for those to rows that lie there; reads: pages of a batch."""

    cards: tuple[int, ...]
    item: Item
    hot: int
    warm: int
    spare: int
    cold: int
    to_dram: float
    to_tt: float
    to_ssd: float
    fetches: float
    reads: float

    @property
    def tt_s(self) -> float:
        """Seconds of the TT unit a batch."""
        return self.to_tt * self.item.tt_s

    @property
    def drive_s(self) -> float:
        """Seconds of the drive a batch, behind its first page."""
        return float(self.item.drive_s_at(self.hot + self.warm + self.spare, self.reads)) if self.reads else 0.0


def fill(problem: Problem, found: Placement, expected: Mapping[str, Expected]) -> tuple[int, ...]:
    """Of each table, how many rows behind its last cut get the DRAM that its card has left."""
    spare = [0] * len(problem.items)
    room = [problem.dram_bytes - card.dram_bytes for card in found.emb]
    waiting = []
    shards = [problem.ways(j)[choice.way].item for j, choice in enumerate(found.tables)]
    for j, (item, choice) in enumerate(zip(problem.items, found.tables, strict=True)):
        waiting += [(-each / item.row_bytes, item.total_rows, j, rows)
                    for each, rows in _cold(item, choice, expected[item.name])]
    for _, _, j, rows in sorted(waiting):
        cards, row_bytes = found.tables[j].cards, shards[j].row_bytes
        more = min(rows, min(room[card] for card in cards) // row_bytes)
        spare[j] += more
        for card in cards:
            room[card] -= more * row_bytes
    return tuple(spare)


def _cold(item: Item, choice: TableChoice, expected: Expected) -> list[tuple[float, int]]:
    """(accesses of a batch to each, rows) of those on the SSD that may leave it, hottest first."""
    heat, last = expected.heat, int(cuts(item)[-1])
    end = item.total_rows if last == item.steps else int(item.rows[last])
    levels = np.append(heat.accesses * (item.lookups / max(heat.total, 1)), 0.0)
    edges = np.concatenate([[0], np.cumsum(heat.rows), [item.total_rows]]).clip(int(item.rows[choice.i_hot]), end)
    rows = np.diff(edges)
    return [(float(each), int(many)) for each, many in zip(levels[rows > 0], rows[rows > 0], strict=True)]


def parts_of(problem: Problem, found: Placement, spare: Sequence[int], expected: Mapping[str, Expected],
             costs: Costs) -> tuple[Part, ...]:
    """Rows, accesses and pages of a shard of every table, the spare rows in DRAM."""
    shards = (problem.ways(j)[choice.way].item for j, choice in enumerate(found.tables))
    return tuple(part_of(item, choice, more, expected[item.name], costs)
                 for item, choice, more in zip(shards, found.tables, spare, strict=True))


def part_of(item: Item, choice: TableChoice, more: int, expected: Expected, costs: Costs) -> Part:
    """Of a shard, `more` rows behind its last cut in DRAM."""
    a, h, heat = choice.i_dram, choice.i_hot, expected.heat
    hot, end = int(item.rows[a]), int(item.rows[h]) + more
    left, reads = float(1 - item.share[h]), float(item.reads[h])
    if more:
        left = min(left, float(1 - heat.cdf(end))) if end < heat.touched else 0.0
        reads = min(reads, float(in_order.reads(
            expected, np.array([end]), item.lookups, costs.page_bytes // item.row_bytes,
            costs.ring_bytes // costs.page_bytes)[0])) if left else 0.0
    to_tt = item.lookups * float(item.share[h] - item.share[a])
    to_dram = item.lookups * (1 - left) - to_tt
    fetches = to_dram if item.fetch_curve is None else float(
        np.interp([hot, end, item.rows[h]], *item.fetch_curve) @ (1, 1, -1))
    return Part(choice.cards, item, hot, int(item.rows[h]) - hot, more, item.total_rows - end, to_dram, to_tt,
                item.lookups * left, fetches, reads)


def loads_of(parts: Sequence[Part], cards: Sequence[CardChoice], costs: Costs) -> list[CardChoice]:
    """The load of the cards with the spare rows; `cards` without them."""
    found = []
    for number, card in enumerate(cards):
        mine = [part for part in parts if number in part.cards]
        work = (sum(dram_seconds(part, costs) for part in mine), sum(part.tt_s for part in mine),
                sum(part.drive_s for part in mine),
                sum(part.item.in_s + part.reads * part.item.page_in_s for part in mine), card.out_s)
        found.append(CardChoice(    # type: ignore[call-arg]
            *costs.idle.added(work).tolist(),
            card.dram_bytes + sum(part.spare * part.item.row_bytes for part in mine), card.tt_bytes,
            sum(cold_bytes(part, costs) for part in mine)))
    return found


def dram_seconds(part: Part, costs: Costs) -> float:
    """Of a batch: rows of DRAM, bags, and pages that land with the rows read there."""
    item = part.item
    return (float(item.hot_s_of(part.fetches, part.to_dram)) + part.to_ssd * item.dram_s
            + part.reads * costs.landing_s + item.bags_s)


def cold_bytes(part: Part, costs: Costs) -> int:
    """Of the SSD, whole pages."""
    return -(-part.cold // (costs.page_bytes // part.item.row_bytes)) * costs.page_bytes
