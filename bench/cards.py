"""What can be had: cards, CPU cores, sockets and GPUs by published figures, and the table and picture of docs/cards.md.

    python -m bench.cards       writes both
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from pathlib import Path

import numpy as np

from bench.card import zipf
from bench.emb import BAG, Rig, dense, rows_of
from bench.framework import Row, at_least, at_most, bench, figure
from bench.page import RESULTS, recorded, with_table
from fpga.api.comparison import Compared, Lookups, compare
from fpga.api.embedding import EmbeddingBags
from fpga.api.verdict import Prices
from fpga.card.memory import random_rows
from fpga.synth.failfast import left
from gen.compiler.tables import DRAM, SSD, TT, Table
from gen.model.device import Device
from gen.model.platform import DEFAULT, RESOURCES, Platform, names
from gen.planner.plan import rate
from gen.rtl.headers import KERNELS

DOCS = Path(__file__).parents[1] / "docs"
PAGE, PICTURE = DOCS / "cards.md", DOCS / "pictures" / "cards.svg"
SIZES = (64, 256, 1024)         # bytes of a row
TABLES, BAGS = 26, (1, 32)      # bags of a sample, and rows of each
TIMES = 20                      # the SmartSSD's rows at D = 64
DIMS = (16, 32, 64, 128, 256)
EQUAL = 2_000       # bags, of which every board's twin is to give the same bits
HEAD = ("machine", *(f"rows/s, {size} B" for size in SIZES), *(f"samples/s, bags of {rows}" for rows in BAGS), "W",
        f"samples/J, bags of {BAGS[-1]}", "USD, 3 years")
COLOUR, WIDTH, LEFT, TOP, BAR = "#0b6e99", 720, 190, 40, 26


@cache
def _compared(size: int, rows: int) -> tuple[Compared, ...]:
    return compare(Lookups(TABLES * rows, size, TABLES, size), Prices.given("smartssd"))


def cores() -> int:
    """EMB cores without a TT unit that fit a U55C: recorded areas, the core's less its TT unit's, within AMD's
    guidelines; masters as the platform has ports."""
    board = Platform.load("u55c")
    ports = len({argument.port for argument in KERNELS["emb"].arguments if argument.port})
    return min(board.masters_max // ports, *(int(left(key, board) // each) for key, each in _core().items() if each))


def _core() -> dict[str, float]:
    """What an EMB core without its TT unit takes, by the recorded areas."""
    rows = recorded(RESULTS)
    return {key: max(float(rows[f"area.emb.{key}"].value) - float(rows[f"area.tt.{key}"].value), 0)
            for key in RESOURCES}


@bench("cards")
def cards() -> Iterator[Row]:
    """Random rows of machines by published figures, and of a U55C's pseudo-channels as modelled."""
    for size in SIZES:
        for each in _compared(size, BAGS[-1]):
            yield figure(f"cards.published.{each.key}.{size}", f"{each.name}: rows of {size} B by published figures",
                         round(each.rows_s / 1e6, 1), "M rows/s")
    device = Device.load("u55c")
    yield figure("cards.u55c.cores", "EMB cores without a TT unit that AMD's guidelines and the master ports of a U55C "
                 "leave room for", cores(), "cores")
    taken = {key: cores() * amount for key, amount in _core().items()}
    over = [key for key, amount in taken.items() if amount > left(key, "u55c")]
    yield at_most("cards.u55c.failfast", f"AMD's guidelines of {len(taken)} resources that these cores are over: "
                  f"{', '.join(over) or 'none'}", len(over), "lines", 0)
    for size in SIZES:
        found = device.memory.channels * random_rows(device, size, count=1_000_000 // size).rows_per_s
        yield figure(f"cards.u55c.modelled.{size}", f"all pseudo-channels of a U55C, as modelled, rows of {size} B",
                     round(found / 1e6, 1), "M rows/s")


@bench("cards_equal")
def cards_equal() -> Iterator[Row]:
    """The same tables and bags on the twins of all boards: bits of the vectors."""
    draw = np.random.default_rng(1)
    ranks = (1, 4, 4, 1)
    tt = [draw.standard_normal((ranks[k], 15, 4, ranks[k + 1])).astype(np.float32) for k in range(3)]
    rows = draw.standard_normal((15 ** 3, 64)).astype(np.float32)
    table = Table.place("items", rows, draw.permutation(np.resize((DRAM, TT, SSD), len(rows))), cores=tt)
    offsets = np.concatenate([[0], np.cumsum(draw.integers(0, 2 * BAG, EQUAL))])
    indices = draw.integers(0, len(rows), offsets[-1])
    found = {}
    for name in names():
        with EmbeddingBags([table], preset="smartssd", card="twin", device=name) as bags:
            found[name] = bags("items", indices, offsets, include_last_offset=True).view(np.uint32)
    different = sum((found[name] != found[DEFAULT]).any(axis=1) for name in names())
    yield at_most("cards.equal", f"vectors of {EQUAL:,} over DRAM, TT and SSD rows that differ in a bit on the twins "
                  f"of {', '.join(names())}", int((different > 0).sum()), "vectors", 0)


@bench("cards_rows")
def cards_rows() -> Iterator[Row]:
    """Random rows through EMB cores at a U55C's pseudo-channels, by the twin of one as virtual card of a full board: of
    what the channels give, and beside a SmartSSD's core."""
    board = Device.load("u55c")
    channels, card = board.memory.channels, board.shared(board.memory.channels)
    for dim in DIMS:
        rig, rows, count = Rig("ddr4", card, [dense(dim)], card="twin"), dense(dim).rows, rows_of(dim)
        most = random_rows(card, 4 * dim, count=1_000_000 // (4 * dim)).rows_per_s / 1e6
        even, skewed = (count / 2 / rig.steady(f"dense{dim}", indices, BAG) * card.kernel_mhz
                        for indices in (rig.distinct(f"dense{dim}", count), zipf(count, rows)))
        yield at_least(f"cards.u55c.rows.d{dim}", f"{channels} cores, rows of {4 * dim} B in bags of {BAG}: "
                       f"{channels * even:,.0f} M rows/s, share of what the channels give",
                       round(100 * even / most, 1), "%", 90)
        yield at_least(f"cards.u55c.rows.d{dim}.zipf", f"{channels} cores, Zipf 1.05: {channels * skewed:,.0f} M "
                       "rows/s, over uniform ones", round(skewed / even, 2), "", 1)
        if dim == 64:
            one = Rig("ddr4", tables=[dense(dim)], card="twin")
            ours = count / 2 / one.steady("dense64", one.distinct("dense64", count), BAG) * card.kernel_mhz
            for name, number in (("cards.u55c.times", channels), ("cards.u55c.times.fit", cores())):
                yield at_least(name, f"{number} cores over the one of a SmartSSD, D = 64",
                               round(number * even / ours, 1), "", TIMES)


def table() -> list[str]:
    """Of docs/cards.md."""
    by_size = [_compared(size, BAGS[-1]) for size in SIZES]
    by_bag = [_compared(256, rows) for rows in BAGS]
    out = [f"| {' | '.join(HEAD)} |", "| --- |" + " ---: |" * (len(HEAD) - 1)]
    for place, each in enumerate(by_bag[-1]):
        watts = " to ".join(f"{end:.3g}" for end in sorted(set(each.watts)))
        money = "not listed" if each.usd is None else f"{each.usd:,.0f}"
        out.append("| " + " | ".join([each.name, *(rate(found[place].rows_s) for found in by_size),
                                      *(rate(found[place].samples_s) + ("" if found[place].limit == "rows" else " *")
                                        for found in by_bag), watts, rate(each.samples_j), money]) + " |")
    return out


def picture(found: Sequence[Compared]) -> str:
    """Bars of rows per second on a logarithmic axis, as SVG."""
    low, high = 1e7, 10 ** math.ceil(math.log10(max(each.rows_s for each in found)))
    width, height = WIDTH - LEFT - 90, TOP + BAR * len(found) + 30

    def across(value: float) -> float:
        return LEFT + width * math.log(value / low) / math.log(high / low)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
           f'font-size="12" fill="#333"><title>Random rows of 256 bytes per second</title>',
           f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
           f'<text x="{LEFT}" y="20" font-weight="bold">Random rows of 256 bytes per second, one of each</text>']
    for power in range(round(math.log10(low)), round(math.log10(high)) + 1):
        at = across(10.0 ** power)
        out += [f'<path d="M{at:.1f} {TOP - 6}V{height - 24}" stroke="#ddd"/>',
                f'<text x="{at:.1f}" y="{height - 8}" text-anchor="middle">{rate(10.0 ** power)}</text>']
    for place, each in enumerate(found):
        top = TOP + BAR * place
        out += [f'<text x="{LEFT - 8}" y="{top + 15}" text-anchor="end">{escape(each.name)}</text>',
                f'<rect x="{LEFT}" y="{top + 3}" width="{across(each.rows_s) - LEFT:.1f}" height="{BAR - 8}" '
                f'fill="{COLOUR}"/>',
                f'<text x="{across(each.rows_s) + 6:.1f}" y="{top + 15}">{rate(each.rows_s)}</text>']
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8"), "cards", table()), "utf-8")
    PICTURE.write_text(picture(_compared(256, BAGS[-1])), "utf-8")
