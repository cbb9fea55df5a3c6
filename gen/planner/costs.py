"""What the planner reckons with: seconds and bytes of one card, as plain numbers.       Source: SCRec table I

Seconds a row or a page are what the memory models of the simulated card give (fpga.card.costs measures them);
those of a tensor train are the golden model's cycles at the kernel's clock, those of the networks what the compiler
predicts of its programs, loads of weights and samples from DRAM included.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from gen.compiler.mlp import Compiler
from gen.compiler.tables import stripes
from gen.compress import search
from gen.data.profile import Heat
from gen.model.network import Model, Network
from gen.model.recommender import RESULTS, ROW_FORMATS, TableSpec
from gen.model.row_formats import fused_bytes
from gen.planner.plan import DriveUse
from gen.planner.problem import Idle
from gen.planner.window import fetches
from gen.rtl import config as presets
from gen.rtl.config import ConfigError
from golden.emb import packer, row_decoder
from golden.emb.row_requests import in_turns

#: Of what the memory model gives for random rows, in the pieces and the order that the core asks in, the share that the
#: EMB core takes beside the time of its bags: with it twins take 0.98 to 1.02 of what is planned for rows of 16 to 512
#: values in bags of 32, and up to 1.07 where every bag has one row.
CORE_SHARE = 0.98
LINE_BYTES = 64
PACKET = 4          # lines of the link's packets, as in fpga/card/cpp/link.h
#: Rows that the TT unit adds up before they leave it as one vector, at most; and the fewest cycles from one such sum to
#: the next, rows of other bags in between (golden.tt.cycles: 3.3 to 3.4 for rows of one beat).
CHUNK_ROWS, CHUNK_CYCLES = 8, 3.35
#: Requests among which the compiler finds those of one flash page, on average: it looks 128 ahead, and while a page
#: waits for its die as many more come.
TOGETHER = 256
#: Dies and link in a row take the norm of this order of what each takes alone (bench plan_drive).
MEETING = 6


@dataclass(frozen=True, eq=False)
class Costs:
    """Of a device with the cores of a preset.

    row_s: seconds a random row of DRAM, by its lines of 64 bytes. read_s, write_s: seconds a byte of a stream
    there. page_s: seconds a random page of page_bytes from the drive into the ring, many under way; few_s: the same of
    so many different pages, rising, where those of a flash page often come together; drive_s: until the first of a
    batch is there; landing_s: of DRAM a page.
    link_s: seconds a byte over the link, each direction for itself; packet_s: of DRAM a byte that comes or goes over
    it, in packets by themselves, and about so beside rows no longer than a packet, which the core's port limits and not
    the memory. turn_s: what such a byte takes more beside longer rows, since the bus turns around and pages close.
    dram_bytes, ssd_bytes: of a card; ring_bytes: of DRAM, where pages land. channels: cards that share a board's link
    at most; sharing: that do. dies: of the drive, each of which reads a flash page, of flash_pages pages, in die_s;
    die_s 0: a page takes page_s or few_s whatever else the batch asks for. drive_use: of a card. run_s: of each run, in
    which the memories of a card do nothing (gen.planner.problem.Idle).
    """

    device: str
    preset: str
    clock_hz: float
    row_s: Mapping[int, float]
    read_s: float
    write_s: float
    page_s: float
    drive_s: float
    landing_s: float
    link_s: float
    packet_s: float
    page_bytes: int
    ring_bytes: int
    dram_bytes: int
    ssd_bytes: int
    turn_s: float = 0.0
    channels: int = 1
    sharing: int = 1
    dies: int = 1
    flash_pages: int = 1
    die_s: float = 0.0
    few_s: Mapping[int, float] = field(default_factory=dict)
    drive_use: DriveUse = DriveUse()
    run_s: float = 0.0

    @property
    def _page_s(self) -> float:
        """Of as many different pages as are asked for, where that is known."""
        if not self.few_s or not self.drive_use.pages:
            return self.page_s
        found = np.interp(self.drive_use.pages, [*self.few_s, 2 * max(self.few_s)], [*self.few_s.values(), self.page_s])
        return max(float(found), self.page_bytes * self.link_s)

    @property
    def idle(self) -> Idle:
        """Of a card, in each batch."""
        return Idle(self.drive_s, self.run_s)

    def shared(self, cards: int) -> "Costs":
        """Those of each of so many cards, which have equal parts of a board's link and of pages over it."""
        of = min(cards, self.channels)
        if of == self.sharing:
            return self
        link_s = self.link_s * of / self.sharing
        return replace(self, link_s=link_s, page_s=max(self.page_s, self.page_bytes * link_s), sharing=of)

    def flash_reads(self, reads: NDArray[np.float64], pages: NDArray[np.float64]) -> NDArray[np.float64]:
        """Flash pages that the dies read for so many `reads` of a batch, of so many `pages` that are asked for at all:
        pages of a flash page that come soon behind each other are requested together (gen.compiler.dies)."""
        part = np.clip(np.minimum(reads, TOGETHER) / np.maximum(pages, 1.0), 1e-9, 1.0)
        return reads * -np.expm1(self.flash_pages * np.log1p(-np.minimum(part, 1 - 1e-12))) / (self.flash_pages * part)

    def drive_seconds(self, reads: NDArray[np.float64], pages: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds of the drive, behind its first page, for so many `reads` of a batch, of so many `pages` that are
        asked for at all, beside the others of `drive_use`.

        The pages lie on the dies at random, so the last one is behind the mean, by as many deviations as the largest of
        `dies` normal numbers is (Blom 1958). Pages that are all read leave nothing to chance. The
        link takes them one after the other. Where both take about as long, each waits for the other now and then.
        """
        if not self.die_s:
            return reads * self._page_s
        mean = max(self.drive_use.die_reads, 1.0)
        left = np.sqrt(1 - np.minimum(reads / np.maximum(pages, 1.0), 1.0))
        more = NormalDist().inv_cdf((self.dies - 0.375) / (self.dies + 0.25)) if self.dies > 1 else 0.0
        each = self.die_s / self.dies * np.maximum(1 + (more * left * math.sqrt(mean) - 1) / mean, 0.0)
        by_dies, by_link = self.flash_reads(reads, pages) * each, reads * self.page_bytes * self.link_s
        slower = np.maximum(by_dies, by_link)
        return slower * (1 + (np.minimum(by_dies, by_link) / np.maximum(slower, 1e-300)) ** MEETING) ** (1 / MEETING)

    @cached_property
    def core(self):
        """The configuration of the EMB core."""
        return _core(self.preset, "emb")

    @property
    def unit(self):
        """Of its TT unit."""
        return self.core.tt

    @property
    def tt_bytes(self) -> float:
        """Of the TT unit's core memories."""
        return float(search.capacity(self.unit))

    def row_bytes(self, dim: int, row_format: str = ROW_FORMATS[0]) -> int:
        return _row_bytes(self.core, self.preset, dim, self.page_bytes, row_format)

    def spare_bytes(self, dim: int, row_format: str = ROW_FORMATS[0]) -> int:
        """Of DRAM that a table takes at most beside its rows: it begins with a stripe and ends with a block."""
        core = self.core
        lies = stripes(_beats(core, dim, row_format), core.stripe_beats)
        return (lies.beats(1) - lies.row_beats + lies.stripe_beats) * 4 * core.words if lies.piece_beats else 0

    def vector_bytes(self, dim: int, results: str) -> int:
        """That a pooled vector takes in DRAM and on the link: whole beats."""
        return self.core.beat_bytes * packer.beats(_beats(self.core, dim), RESULTS.index(results))

    def sliced(self, dim: int, count: int, row_format: str = ROW_FORMATS[0]) -> bool:
        """Whether rows may be cut into so many slices: whole beats, of a width whose rows were measured, in a format
        without a scale of each row, which a slice would have anew."""
        each = dim // count
        return (dim % count == 0 and each >= self.core.words and not fused_bytes(row_format, dim)
                and -(-self.row_bytes(each, row_format) // LINE_BYTES) in self.row_s)

    def beside_s(self, dim: int, row_format: str = ROW_FORMATS[0]) -> float:
        """Seconds of DRAM a byte that comes or goes over the link while such rows are read."""
        longer = self.row_bytes(dim, row_format) > PACKET * LINE_BYTES
        return self.packet_s + (self.turn_s if longer else 0.0)

    def dram_s(self, dim: int, row_format: str = ROW_FORMATS[0]) -> float:
        """Seconds a random row: as memory brings and the core pools them, a beat of FP32 values a cycle at most."""
        lines = -(-self.row_bytes(dim, row_format) // LINE_BYTES)
        return max(self.row_s[lines] / CORE_SHARE, self.core_s(dim))

    def core_s(self, dim: int) -> float:
        """Seconds a row in the core, wherever it comes from: a beat of FP32 values a cycle."""
        return _beats(self.core, dim) / self.clock_hz

    def row_beats(self, spec: TableSpec) -> int:
        """Of a row of the table as it is stored."""
        return _beats(self.core, spec.dim, spec.row_format)

    def fetched(self, spec: TableSpec, heat: Heat, cuts: NDArray[np.int64], lookups: float) -> NDArray[np.float64]:
        """(len(cuts),) of `fetches`, those of the hottest cuts[i] rows."""
        found = heat.rows * self.fetches(spec, heat.accesses / max(heat.total, 1), heat.rows, lookups)
        return np.interp(cuts, np.cumsum(np.append(0, heat.rows)), np.cumsum(np.append(0.0, found)))

    def each_fetched(self, spec: TableSpec, accesses: NDArray[np.int64], lookups: float) -> NDArray[np.float64]:
        """(rows,) of `fetches`, of each row by the accesses to it, in any unit."""
        heat = Heat.of(accesses)
        each = np.append(self.fetches(spec, heat.accesses / max(heat.total, 1), heat.rows, lookups), 0.0)
        return each[np.where(accesses > 0, np.searchsorted(-heat.accesses, -accesses), -1)]

    def fetches(self, spec: TableSpec, share: NDArray[np.float64], rows: NDArray[np.int64],
                lookups: float) -> NDArray[np.float64]:
        """As gen.planner.window.fetches, of a table with all rows in DRAM; each column that looks it up finds nothing
        of the others."""
        columns = len(spec.looked_up_by)
        return columns * fetches(self.core, self.row_beats(spec), share, rows, lookups / columns)


def row_bytes(preset: str, dim: int, page_bytes: int, row_format: str = ROW_FORMATS[0]) -> int:
    """That a row takes in DRAM and on the SSD: whole beats.

    Raises      ValueError: the core takes no rows as wide"""
    return _row_bytes(_core(preset, "emb"), preset, dim, page_bytes, row_format)


def _row_bytes(core, preset: str, dim: int, page_bytes: int, row_format: str) -> int:
    beat, values, beats = core.beat_bytes, _beats(core, dim), _beats(core, dim, row_format)
    if values > core.row_beats_max or beats * beat > page_bytes:
        most = min(core.row_beats_max, page_bytes // beat)
        raise ValueError(f"rows of {dim} words take {values} beats of {beat} bytes; the EMB core of the preset "
                         f"{preset} takes {most}, a dim of {most * beat // 4} at most")
    return beats * beat


def _beats(core, dim: int, row_format: str = ROW_FORMATS[0]) -> int:
    """Of a row as it is stored."""
    return row_decoder.beats(-(-dim // core.words), ROW_FORMATS.index(row_format))


def requests(preset: str, row_bytes: int, rows: NDArray[np.int64], *, row_in_page: bool = False) \
        -> tuple[NDArray[np.int64], int]:
    """What the EMB core asks DRAM for: byte addresses of the pieces of rows of a table from address 0 on, bank after
    bank, and the bytes of a piece. Where pieces would be shorter than a line rows are taken whole, in their order.
    row_in_page: as gen.compiler.tables.stripes takes it.
    """
    core = _core(preset, "emb")
    lies = stripes(row_bytes // core.beat_bytes, core.stripe_beats, row_in_page=row_in_page)
    piece_bytes = lies.piece_beats * core.beat_bytes
    if piece_bytes % LINE_BYTES:
        lies, piece_bytes = lies._replace(piece_beats=0), 0
    pieces = [lies.pieces(row) for row in rows.tolist()]
    order = in_turns([first[0] % core.stripe_beats * core.banks // core.stripe_beats for first in pieces], core.banks)
    places = np.array([at for row in order for at in pieces[row]], np.int64)
    return places * core.beat_bytes, piece_bytes or row_bytes


def _core(preset: str, name: str):
    cores = presets.load(preset).cores
    if name not in cores:
        raise ConfigError(f"the preset {preset} has no [{name}], which the plan needs; it has {', '.join(cores)}")
    return cores[name]


def tt_seconds(costs: Costs, dim: int, rank: int, pooling: float) -> float:
    """Seconds a row of a tensor train in bags of `pooling` rows: the chain's cycles, or the beats in which a sum of
    rows leaves the unit. Raises ValueError: the unit takes no tensor train of this width and rank."""
    words = 1 << 2 * costs.unit.grid_log2
    leaving = max(-(-dim // words), CHUNK_CYCLES) / min(max(pooling, 1.0), CHUNK_ROWS)
    wide = search.width(dim, rank, config=costs.unit)
    return max(search.cycles_of(wide, rank, config=costs.unit), leaving) / costs.clock_hz


def network_seconds(costs: Costs, model: Model, batch: int) -> tuple[float, float]:
    """Seconds of a batch's bottom network, and of interaction and top, on one MLP core in throughput mode. A bottom
    alone is all bottom. Raises ValueError: a network that does not fit the core."""
    core, network = _core(costs.preset, "mlp"), model.network()

    def cycles(part: Network) -> int:
        # Sizes are chosen for a small batch: the schedule repeats, and large ones take long to choose.
        return Compiler(part, core, batch=min(batch, 128)).compile(batch, mode="throughput").predicted

    whole = cycles(network)
    bottom = whole if not network.top else min(cycles(Network(network.bottom)), whole)
    return bottom / costs.clock_hz, (whole - bottom) / costs.clock_hz


def drive_reads(heat: Heat, cuts: NDArray[np.int64], lookups: float, page_rows: int, ring_pages: int) \
        -> NDArray[np.float64]:
    """(len(cuts),) pages that a batch is expected to bring from the drive where the rows from rank cuts[i] on lie
    there by heat, page_rows a page: accesses that fall on a page which is still in the ring share it.

    t accesses touch D(t) = sum over pages of 1 - (1 - q)^t different ones, q a page's share of the accesses. They are
    drawn independently; in a log that repeats itself there are fewer.
    """
    if lookups <= 0 or not heat.total:
        return np.zeros(len(cuts))
    share = np.minimum(page_rows * heat.accesses / heat.total, 1.0)
    edges = np.concatenate([[0], np.cumsum(heat.rows)])
    rounds = np.geomspace(min(lookups, 1.0), lookups, 25)
    touched = np.empty((len(rounds), len(cuts)))
    for at, number in enumerate(rounds):
        with np.errstate(divide="ignore"):
            found = -np.expm1(number * np.log1p(-share)) * heat.rows / page_rows
        behind = np.concatenate([np.cumsum(found[::-1])[::-1], [0.0]])
        touched[at] = np.interp(cuts, edges, behind)
    rest = lookups * (1 - heat.cdf(cuts))
    reads = in_rounds(touched, rounds, lookups, ring_pages)
    # A page at least where there is an access, never more than a page an access; falling with the cut.
    return np.maximum.accumulate(np.minimum(np.maximum(reads, 1.0), rest)[::-1])[::-1]


def in_rounds(touched: NDArray[np.float64], rounds: NDArray[np.float64], lookups: float,
              ring_pages: int) -> NDArray[np.float64]:
    """(C,) pages of a batch of so many lookups. touched (T, C): different ones of rounds[t] lookups, rising; the last
    row is of the batch.

    The first instruction brings half a ring; each other one finds the quarter before it and brings half a ring too
    (gen.compiler.emb): as many lookups as take `touched` from a quarter of the ring to three quarters.
    """
    rounds, touched = np.append(0.0, rounds), np.concatenate([np.zeros((1, touched.shape[1])), touched])

    def filled(pages: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(lookups that touch so many pages, or all; pages that these touch)."""
        high = np.clip((touched < pages).sum(axis=0), 1, len(rounds) - 1)[None]
        before, behind = np.take_along_axis(touched, high - 1, 0)[0], np.take_along_axis(touched, high, 0)[0]
        reached = np.minimum(pages, touched[-1])
        part = (reached - before) / np.where(behind > before, behind - before, 1.0)
        return rounds[high[0] - 1] + part * (rounds[high[0]] - rounds[high[0] - 1]), reached

    (start, first), (middle, own), (end, last) = (filled(quarters * ring_pages / 4) for quarters in (1, 2, 3))
    rate = (last - first) / np.where(end > start, end - start, 1.0)
    return own + rate * (lookups - middle)
