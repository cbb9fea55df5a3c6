"""How much of a card a plan uses: its memories and link under their roofs, and the multipliers at work."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from gen.data.shapes import macs
from gen.model.device import Device
from gen.model.recommender import TableSpec
from gen.planner.costs import row_bytes
from gen.planner.plan import NAMES, Plan, PlanCard, PlanTable
from gen.rtl import config as presets
from hotrail.report.page import Axis, Bars, Chart, Lines, Series


@dataclass(frozen=True)
class _Roof:
    """bytes_s: of the memory or link; operations_s: of the arithmetic behind it. points: of each card, operations a
    byte and operations a second."""

    name: str
    colour: str
    bytes_s: float
    operations_s: float
    points: list[tuple[float, float]]

    def lines(self, least: float, most: float) -> Iterator[Series]:
        """In Gop/s, from `least` to `most` operations a byte."""
        ridge = self.operations_s / self.bytes_s
        at = sorted({least, min(max(ridge, least), most), most})
        yield Series(f"{self.name}: roof", [(x, min(x * self.bytes_s, self.operations_s) / 1e9) for x in at],
                     self.colour)
        yield Series(f"{self.name}: cards", [(x, y / 1e9) for x, y in self.points], self.colour, "dots")


def roofline(plan: Plan) -> Iterator[Chart]:
    """One chart, where rows come from a memory or samples cross the link of an MLP card."""
    device, cores = Device.load(plan.device).shared(len(plan.cards)), presets.load(plan.preset).cores
    clock = 1e6 * device.kernel_mhz
    dram = device.dram.bytes_s
    # Pages reach the card over its link, whatever the drive's channels bring.
    drive = min(1e9 * device.ssd.channels * device.ssd.bus_gb_s, 1 / device.link.byte_s)
    adds = cores["emb"].words * clock
    roofs = [_Roof(NAMES["dram"], "dram", dram, adds, _pooling(plan, "dram")),
             _Roof(NAMES["ssd"], "ssd", drive, adds, _pooling(plan, "ssd"))]
    if "mlp" in cores:
        roofs.append(_Roof("link of the MLP cards", "in", 1 / device.link.byte_s, 2 * cores["mlp"].macs * clock,
                           _networks(plan, device.link.byte_s)))
    if roofs := [roof for roof in roofs if roof.points]:
        places = [x for roof in roofs for x, _ in roof.points]
        least, most = min(places) / 4, 8 * max(places)
        yield Lines("Roofline", "Operations per second of each card over operations per byte: additions of rows that "
                    "come from DRAM or the SSD, multiplications and additions of the networks per byte on the link. "
                    "A point far below its roof waits for something else: random rows, whole pages, another memory.",
                    Axis("operations per byte", "op/B", log=True), Axis("Gop/s", "Gop/s", log=True),
                    [series for roof in roofs for series in roof.lines(least, most)])


def multipliers(plan: Plan) -> Iterator[Chart]:
    """One chart, where an array of multipliers works."""
    clock, cores = 1e6 * Device.load(plan.device).kernel_mhz, presets.load(plan.preset).cores
    used = {"TT unit": ("tt", list(_chains(plan, cores["emb"].tt.macs * clock))),
            "MLP core": ("one", list(_arrays(plan, cores["mlp"].macs * clock)) if "mlp" in cores else [])}
    if any(points for _, points in used.values()):
        yield Bars("Multipliers at work", "Multiply-accumulates that a batch needs, as a share of those that the array "
                   "could do while it works on the batch.", Axis("card"),
                   Axis("% of the slots", "%", least=0, most=100),
                   [Series(name, points, colour) for name, (colour, points) in used.items() if points], key="card",
                   labels=[str(card.number) for card in plan.cards])


def _tables(plan: Plan, card: PlanCard) -> Iterator[tuple[TableSpec, PlanTable, int]]:
    """Those on a card, and how many columns of them lie there."""
    for table in plan.tables.values():
        if card.number in table.cards:
            spec = plan.model.tables[table.name]
            part = table.columns(spec.dim, card.number)
            yield spec, table, part.stop - part.start


def _pooling(plan: Plan, memory: str) -> list[tuple[float, float]]:
    """Of each card, additions a byte of rows in a memory, and a second."""
    found, taken = [], cache(row_bytes)     # many tables are of one width and format
    for card in plan.cards:
        additions = bytes = 0.0
        for spec, table, dim in _tables(plan, card):
            rows = table.on_card(memory).accesses
            additions += rows * dim
            bytes += rows * taken(plan.preset, dim, plan.page_bytes, spec.row_format)
        seconds = getattr(card, memory).seconds
        if bytes and seconds:
            found.append((additions / bytes, additions / seconds))
    return found


def _shares(plan: Plan) -> Iterator[tuple[PlanCard, float]]:
    """Each MLP card, and the multiply-accumulates of its part of a batch."""
    cards = [card for card in plan.cards if card.kind == "mlp" and card.bottom_s + card.top_s]
    if cards and plan.model.network is not None:
        needed = plan.model.network.network().macs * plan.batch / len(cards)
        yield from ((card, needed) for card in cards)


def _networks(plan: Plan, byte_s: float) -> list[tuple[float, float]]:
    """Of each MLP card, operations a byte on the link, and a second."""
    return [(2 * needed * byte_s / (card.in_s + card.out_s), 2 * needed / (card.bottom_s + card.top_s))
            for card, needed in _shares(plan) if card.in_s + card.out_s]


def _arrays(plan: Plan, macs_s: float) -> Iterator[tuple[str, float]]:
    """Each MLP card, and the per cent of its slots that are used."""
    for card, needed in _shares(plan):
        yield str(card.number), 100 * needed / (macs_s * (card.bottom_s + card.top_s))


def _chains(plan: Plan, macs_s: float) -> Iterator[tuple[str, float]]:
    """Each card whose TT unit works, and the per cent of its slots that are used."""
    for card in plan.cards:
        needed = sum(table.on_card("tt").accesses * macs(table.column_modes, max(table.ranks))
                     for _, table, _ in _tables(plan, card) if table.ranks)
        if needed and card.tt.seconds:
            yield str(card.number), 100 * needed / (macs_s * card.tt.seconds)
