"""The shipping EMB core on the simulated card: how fast each memory's rows are pooled, alone and together."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bench.card import bound, tuned, zipf
from bench.framework import Row, at_least, at_most, bench, figure
from fpga.api.embedding import DRAM, SSD, TT, EmbeddingBags, Table
from gen.compiler.tables import stripes
from gen.model.device import Device
from gen.rtl import config

PRESET = "smartssd"
DEVICE = "smartssd"
TABLE_BYTES = 32 << 20          # of each table in DRAM: many pages of every bank
LINE = 64                       # bytes, a beat of the preset
BAG = 32                        # rows, where their number is not what is measured
DIMS = (16, 32, 64, 128, 256, 512)
TT_MODES, TT_COLUMNS, TT_RANK = (100, 100, 100), (4, 4, 4), 4
TT_ROWS = 64_000                # of a run: two halves' ends lie some ten cycles apart
CYCLES_PER_S = 20_000
CARD = {"ddr4": "card"}         # what ids call the card's own memory


def dense(dim: int) -> Table:
    values = np.random.default_rng(dim).standard_normal((TABLE_BYTES // (4 * dim), dim), dtype=np.float32)
    return Table.place(f"dense{dim}", values, DRAM)


def _train() -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(4)
    ranks = (1, TT_RANK, TT_RANK, 1)
    return tuple(random.standard_normal((ranks[k], TT_MODES[k], TT_COLUMNS[k], ranks[k + 1])).astype(np.float32)
                 for k in range(3))


def _mixed() -> Table:
    """D = 64: half of the rows in DRAM, half in the tensor train, some on the SSD."""
    rows, dim = 65_536, 64
    device = np.resize([DRAM, TT], rows)
    device[-4096:] = SSD
    values = np.random.default_rng(6).standard_normal((rows, dim), dtype=np.float32)
    return Table.place("mixed", values, device, cores=_train())


def _every_kind() -> list[Table]:
    tt = Table("tt", 64, (TT << 30 | np.arange(10**6)).astype(np.uint32), np.zeros((0, 64), np.float32),
                  np.zeros((0, 64), np.float32), _train())
    return [*map(dense, DIMS), tt, _mixed()]


class Rig:
    """One card, the simulated one or its twin, with tables, by default of every kind."""

    def __init__(self, memory: str, device: Device | str = DEVICE, tables: Sequence[Table] | None = None,
                 card: str = "sim"):
        self.tables = {table.name: table for table in tables or _every_kind()}
        self.bags = EmbeddingBags(list(self.tables.values()), card=card, preset=PRESET, device=device, memory=memory,
                                  ring_bytes=4 << 20)
        self.random = np.random.default_rng(1)

    def cycles(self, name: str, indices: NDArray[np.int64], lengths: "ArrayLike | int", **how: Any) -> int:
        """Cycles of the core for bags of the given lengths."""
        count = len(indices)
        sizes = np.full(-(-count // lengths), lengths) if isinstance(lengths, int) else np.asarray(lengths)
        offsets = np.minimum(np.concatenate([[0], np.cumsum(sizes)]), count)
        self.bags(name, indices, offsets, include_last_offset=True, **how)
        return self.bags.last["cycles"]

    def steady(self, name: str, indices: NDArray[np.int64], lengths: "ArrayLike | int", **how: Any) -> int:
        """Cycles of the second half of the indices: what a run takes to begin and to end is in the first. Two runs end
        some ten cycles apart in what memory and units do then: halves are to be thousands of cycles."""
        return self.steady_and_moved(name, indices, lengths, **how)[0]

    def steady_and_moved(self, name: str, indices: NDArray[np.int64], lengths: "ArrayLike | int",
                         **how: Any) -> tuple[int, int]:
        """The same, and the beats that memory moved in them."""
        first: ArrayLike | int = lengths
        half = len(indices) // 2
        if not isinstance(lengths, int):
            first = np.asarray(lengths)[:len(np.asarray(lengths)) // 2]
            half = int(np.sum(first))
        at = [moved(self.bags.card)]
        taken = []
        for part, sizes in ((indices, lengths), (indices[:half], first)):
            taken.append(self.cycles(name, part, sizes, **how))
            at.append(moved(self.bags.card))
        return taken[0] - taken[1], 2 * at[1] - at[0] - at[2]

    def distinct(self, name: str, count: int) -> NDArray[np.int64]:
        """Random rows, none twice: nothing to coalesce."""
        return self.random.choice(self.tables[name].rows, count, replace=False)


def moved(card: Any) -> int:
    """Beats that the ports and the drive have moved to and from a card's memory."""
    counters = card.counters()
    ports = sum(counters[f"{port}.beats_{way}"] for port in card.beat_bytes for way in ("read", "written"))
    return int(ports + counters["ssd.bytes"] // LINE)


@cache
def _rig(memory: str) -> Rig:
    return Rig(memory)


@bench("emb_dram")
def dram() -> Iterator[Row]:
    """Random rows of DRAM through the whole core: beats of the port, and of what DDR4 can give."""
    rig, device = _rig("ideal"), Device.load(DEVICE)
    for dim in DIMS:
        rows = rows_of(dim)
        indices = rig.distinct(f"dense{dim}", rows)
        beats = rows // 2 * dim // 16
        share = beats / rig.steady(f"dense{dim}", indices, BAG)
        yield at_least(f"emb.dram.port.d{dim}", f"rows of {4 * dim} B, memory of {device.port.ideal_latency} cycles' "
                       "latency: share of the port's beats", round(100 * share, 1), "%", 95)
    yield from _dram_rows(_rig("ddr4"), "emb.dram.card", "", device, 90)


@bench("emb_dram_skew")
def dram_skew() -> Iterator[Row]:
    """A million rows, also by Zipf's law and laid out by their accesses: what the window finds is not fetched."""
    device = Device.load(DEVICE)
    for dim, target in ((16, None), (32, None), (64, 50)):
        rows = 1 << 20
        table = Table.place(f"million{dim}", np.zeros((rows, dim), np.float32), DRAM)
        rig = Rig("ddr4", tables=[table])
        for name, indices, least in (("uniform", rig.random.integers(0, rows, 16_384), target and 30),
                                     ("zipf", zipf(16_384, rows), target)):
            rate = 8192 / rig.steady(table.name, indices, BAG) * device.kernel_mhz
            row = (f"emb.dram.card.{name}.d{dim}", f"{rows:,} rows of {4 * dim} B, {name}, bags of {BAG}, at "
                   f"{device.kernel_mhz} MHz", round(rate, 1), "M rows/s")
            yield at_least(*row, least) if least else figure(*row)
        rig.bags.close()


@bench("emb_dram_bags")
def dram_bags() -> Iterator[Row]:
    """The same rows in bags of 1 to 512: what writing a vector for each bag costs."""
    rig, device = _rig("ddr4"), Device.load(DEVICE)
    for dim in (16, 64, 128, 256):
        indices = rig.distinct(f"dense{dim}", rows_of(dim))
        for length in (1, 8, BAG, 512):
            rate = len(indices) // 2 / rig.steady(f"dense{dim}", indices, length) * device.kernel_mhz
            yield figure(f"emb.dram.bags.d{dim}.{length}", f"rows of {4 * dim} B from DDR4-2400 in bags of {length}, "
                         f"at {device.kernel_mhz} MHz", round(rate, 1), "M rows/s")


@bench("emb_dram_tuned")
def dram_tuned() -> Iterator[Row]:
    """The same rows on the card as the experimental memory.tcl asks for it."""
    for name, (what, device) in tuned().items():
        rig = Rig("ddr4", device)
        yield from _dram_rows(rig, f"emb.dram.{name}", f"; {what}", device)
        rig.bags.close()


def rows_of(dim: int) -> int:
    """That a run asks for: fewer where they are long."""
    return min(16_384, (1 << 19) // dim)


def _dram_rows(rig: Rig, name: str, text: str, device: Device, target: float | None = None) -> Iterator[Row]:
    """Random rows from a device's DRAM: a second, and of what its bound is for them as they lie there."""
    stripe_beats = config.load(PRESET).cores["emb"].stripe_beats
    for dim in DIMS:
        rows = rows_of(dim)
        indices = rig.distinct(f"dense{dim}", rows)
        rate = rows // 2 / rig.steady(f"dense{dim}", indices, BAG) * device.kernel_mhz
        lies = stripes(4 * dim // LINE, stripe_beats, row_in_page=device.row_in_page)
        limit = bound(device, 4 * dim, LINE * lies.piece_beats) / 1e6
        yield figure(f"{name}.rows.d{dim}", f"rows of {4 * dim} B from DDR4-2400, at {device.kernel_mhz} MHz{text}",
                     round(rate, 1), "M rows/s")
        share = (f"{name}.d{dim}", f"the same against what activations, bus, port and bursts leave ({limit:.1f} M "
                 f"rows/s){text}", round(100 * rate / limit, 1), "%")
        yield at_least(*share, target) if target else figure(*share)


@bench("emb_tt")
def tt_rows() -> Iterator[Row]:
    """Rows of a tensor train through the whole core, D = 64, R = 4, bags of 1 to 120."""
    rig = _rig("ideal")
    beats = 64 // config.load(PRESET).cores["emb"].words
    for length in (1, 2, 3, 4, 5, 6, 7):
        bags = TT_ROWS // length // 16 * 16     # halves end alike
        indices = rig.random.integers(0, 10**6, bags * length)
        taken = rig.steady("tt", indices, length) / (bags // 2)
        limit = max(beats, length)  # a vector's beats on the write port; a row a cycle
        yield at_least(f"emb.tt.short.{length}", f"bags of {length}: cycles of the write port ({beats}) or of the rows "
                       "against cycles taken", round(100 * limit / taken, 1), "%", 95)
    for length in (8, 9, 13, 20, 40, 77, 120):
        bags = TT_ROWS // length // 16 * 16
        indices = rig.random.integers(0, 10**6, bags * length)
        rate = bags // 2 * length / rig.steady("tt", indices, length)
        yield at_least(f"emb.tt.rows_per_cycle.{length}", f"bags of {length}", round(rate, 3), "rows/cycle", 0.99)
    lengths = rig.random.integers(8, 121, TT_ROWS // 64)
    indices = rig.random.integers(0, 10**6, int(lengths.sum()))
    second = int(lengths[len(lengths) // 2:].sum())
    yield at_least("emb.tt.rows_per_cycle.random", "bags of 8 to 120 at random",
                   round(second / rig.steady("tt", indices, list(lengths)), 3), "rows/cycle", 0.99)


@bench("emb_mixed")
def mixed() -> Iterator[Row]:
    """Bags that mix the memories against the slowest of their parts alone, each from the run's second half on.

    The card's memory also moves what the other parts have in it, indices, pages and rows of the SSD: a beat takes a
    cycle of the port at least, which counts for the part in DRAM.
    """
    for memory in ("ideal", "ddr4"):
        rig = _rig(memory)
        device = rig.tables["mixed"].placement >> 30
        for label, what, share in (
            ("even", "half DRAM, half tensor train", (0.5, 0.5, 0.0)),
            # Rows of the SSD come through the port of DRAM's rows, so few of them.
            ("all", "30 % DRAM, 69.5 % tensor train, .5 % SSD", (0.3, 0.695, 0.005)),
            # More rows than the one index a cycle that is dealt out: both memories are as busy as can be.
            ("balanced", "20 % DRAM, 80 % tensor train", (0.2, 0.8, 0.0)),
        ):
            lengths = rig.random.integers(1, 41, 2400)
            count = int(lengths.sum())
            kind = rig.random.choice(3, count, p=share)
            indices = np.zeros(count, np.int64)
            for place in (DRAM, TT, SSD):
                there = np.flatnonzero(device == place)
                mine = kind == place
                # Rows on the SSD come page by page; the rest at random.
                indices[mine] = there[np.arange(mine.sum())] if place == SSD else rig.random.choice(there, mine.sum())
            bag = np.repeat(np.arange(len(lengths)), lengths)
            together, all_beats = rig.steady_and_moved("mixed", indices, lengths)
            alone = {}
            for place, name in ((DRAM, "DRAM"), (TT, "tensor train"), (SSD, "SSD")):
                mine = kind == place
                if mine.any():
                    alone[name], beats = rig.steady_and_moved("mixed", indices[mine],
                                                              np.bincount(bag[mine], minlength=len(lengths)))
                if place == DRAM and memory != "ideal":
                    alone[name] += all_beats - beats
            slowest = max(alone, key=alone.__getitem__)
            yield at_most(f"emb.mixed.{label}.{CARD.get(memory, memory)}", f"{what}, bags of 1 to 40, {memory} memory: "
                          f"cycles against those of the slowest alone, {slowest}",
                          round(together / alone[slowest], 3), "", 1.05)


@bench("emb_sim")
def sim() -> Iterator[Row]:
    """Speed of the simulated card with the shipping core, every tier at work."""
    rig = _rig("ddr4")
    indices = rig.random.integers(0, 60_000, 20_000)
    rig.cycles("mixed", indices, BAG)
    yield at_least("sim.card.cycles_per_s", "the shipping EMB core on the simulated card, one thread",
                   round(rig.bags.card.cycles_per_s), "cycles/s", CYCLES_PER_S)
