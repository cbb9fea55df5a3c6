"""Brings the accesses of waves to the logger's banks."""

from amaranth.hdl import Array, Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.hotline.bank_queue import BankQueue
from hw.hotline.release import ReleaseStage
from hw.hotline.sorter import BankSorter, wave_layout
from hw.hotline.splitter import RunSplitter, part_layout, runs_layout
from hw.place import Part, place
from hw.stream.fifo import Fifo

__all__ = ["BankScheduler", "issue_layout", "wave_layout"]

COLUMNS = 8     # accesses that a bank's queue takes at once


def issue_layout(*, lanes: int, banks: int, payload: int, tag: int) -> data.ArrayLayout:
    """An access of each bank that has one. lane: that it came from; tag: of its wave."""
    return data.ArrayLayout(data.StructLayout({
        "valid": 1, "tag": tag, "lane": (lanes - 1).bit_length(), "payload": payload}), banks)


class _LaneWindow(Part):
    """The places of a few lanes of the two waves in the release stage, and of the waves that follow.

    Members     i             In(stream, always ready)  the places of a wave
                advance       In  the newer wave becomes the older one
                load          In  the next wave becomes the newer one
                older, newer  Out  the places of the two waves
    """

    def __init__(self, *, lanes: int, width: int, depth: int):
        self.lanes, self.width, self.depth = lanes, width, depth
        places = data.ArrayLayout(width, lanes)
        super().__init__({
            "i": In(stream.Signature(places, always_ready=True)),
            "advance": In(1), "load": In(1), "older": Out(places), "newer": Out(places),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.waves = waves = Fifo(self.i.payload.shape(), depth=self.depth)
        advance = Signal()
        load = Signal()
        older, newer = (Signal(self.i.payload.shape(), name=name, reset_less=True) for name in ("first", "second"))
        m.d.comb += [
            waves.i.valid.eq(self.i.valid),
            waves.i.payload.eq(self.i.payload),
            waves.o.ready.eq(load),
            self.older.eq(older),
            self.newer.eq(newer),
        ]
        m.d.sync += advance.eq(self.advance)
        m.d.sync += load.eq(self.load)
        with m.If(advance):
            m.d.sync += older.eq(newer)
        with m.If(load):
            m.d.sync += newer.eq(waves.o.payload)
        return m


class _Crossing(Part):
    """One column's places to all banks: a multiplexer for each.

    Members     older, newer  In  the column's places of the two waves
                select        In  of each bank: the place, the newer wave's above
                o             Out  the place that each bank gets
    """

    def __init__(self, *, rows: int, banks: int, width: int):
        self.rows, self.banks, self.width = rows, banks, width
        places = data.ArrayLayout(width, rows)
        super().__init__({
            "older": In(places), "newer": In(places),
            "select": In(data.ArrayLayout((2 * rows - 1).bit_length(), banks)),
            "o": Out(data.ArrayLayout(width, banks)),
        })

    def elaborate(self, platform):
        m = Module()
        places = Array([*(self.older[k] for k in range(self.rows)), *(self.newer[k] for k in range(self.rows))])
        for b in range(self.banks):
            m.d.comb += self.o[b].eq(places[self.select[b]])
        return m


class BankScheduler(Part):
    """Takes waves of accesses, one of each lane at most, and gives each bank one access per cycle, in order.

    A bank's accesses leave in the order of (wave, lane). Waves are sorted by bank; runs of equal banks of two waves
    are released into the banks' queues as long as no more than `queue` accesses wait there.
                                        Source: Hotline §6.2, figures 6.3 and 6.4, whose entry queue this is
    Parameters  lanes: 4..64, banks: 2..64, queue: accesses that wait for their banks, besides those that banks take
                at once; powers of two, queue >= 8; payload: bits of an access; tag: bits that all accesses of a wave
                have in common
    Members     i         In(stream)  of wave_layout, may be without any access
                o         Out  of issue_layout, a pulse for each access
                released  Out  a pulse for each wave, in order: from its cycle on a bank that issues nothing has none
                    of that wave left
    Timing      `latency` cycles from a wave to its first access, if nothing is ahead. A wave a cycle while there is
                room. With random banks as much as an ideal queue of as many places issues that is filled up every
                cycle: with 64 lanes and banks 38 a cycle at 64 places, 60 at 512, 62 at 1024. With a hot bank, what
                that bank can take, as long as its runs fit: what waits for a bank is bounded by its columns'
                memories, and a full one stops all releases
    Handshake   i.ready comes from a register; o has no ready
    Numerics    none
    Reset       drops everything
    Raises      ValueError: names the parameter, its value and what is allowed
    Golden      golden.hotline.scheduler.Scheduler, to the cycle        Tests  verif/hotline/test_scheduler.py
    """

    def __init__(self, *, lanes: int, banks: int, queue: int, payload: int, tag: int):
        for name, value, low, high in (("lanes", lanes, 4, 64), ("banks", banks, 2, 64), ("queue", queue, 8, 4096)):
            if not low <= value <= high or value & (value - 1):
                raise ValueError(f"{name} must be a power of two from {low} to {high}, not {value}")
        for name, value in (("payload", payload), ("tag", tag)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1 bit, not {value}")
        self.lanes, self.banks, self.queue, self.payload, self.tag = lanes, banks, queue, payload, tag
        self.columns = min(COLUMNS, lanes)
        # Places of a column: what waits for one bank lies in all columns, four times as much as on average fits.
        self.depth = max(32, 4 * queue // banks)
        # Credits and costs differ by less than half of what they are counted in.
        self.cost_bits = (queue + 3 * lanes).bit_length() + 1
        # Waves in the sorter and parts in the splitter, or in the queues behind them.
        self.waves_ahead, self.parts_ahead = (32, 32) if lanes > 8 else (16, 16)
        super().__init__({
            "i": In(stream.Signature(wave_layout(lanes=lanes, banks=banks, payload=payload, tag=tag))),
            "o": Out(issue_layout(lanes=lanes, banks=banks, payload=payload, tag=tag)),
            "released": Out(1),
        })

    @property
    def latency(self) -> int:
        """Cycles from a wave to its first accesses, where nothing is ahead."""
        levels = (self.lanes - 1).bit_length()
        sorted_ = 1 + levels * (levels + 1) // 2 + 1 + -(-levels // 4)
        return sorted_ + 3 + (self.banks - 1).bit_length() + 10

    def elaborate(self, platform):
        m = Module()
        lanes, banks, columns, tag = self.lanes, self.banks, self.columns, self.tag
        width = (lanes - 1).bit_length() + self.payload

        # -- Waves are sorted, and wait: runs and accesses by themselves.
        sorter = BankSorter(lanes=lanes, banks=banks, payload=self.payload, tag=tag, columns=columns)
        place(m, platform, "sorter", sorter)
        m.submodules.waves = waves = Fifo(runs_layout(lanes=lanes, banks=banks, tag=tag), depth=self.waves_ahead)
        takes = Signal()
        leaves = Signal()
        m.d.comb += [
            takes.eq(self.i.valid & self.i.ready),
            sorter.i_valid.eq(takes),
            sorter.i.eq(self.i.payload),
            waves.i.valid.eq(sorter.runs_valid),
            waves.i.payload.eq(sorter.runs),
            leaves.eq(waves.o.valid & waves.o.ready),
        ]
        # Room that becomes free is seen a cycle late, which spares the counters a long path.
        ahead = Signal(range(self.waves_ahead + 2))
        left = Signal()
        m.d.sync += left.eq(leaves)
        m.d.sync += ahead.eq(ahead + takes - left)
        m.d.sync += self.i.ready.eq(ahead + takes - left < self.waves_ahead)

        # -- Parts of waves, and what they cost.
        splitter = RunSplitter(lanes=lanes, banks=banks, tag=tag, columns=columns, cost_bits=self.cost_bits)
        place(m, platform, "splitter", splitter)
        release = ReleaseStage(lanes=lanes, banks=banks, queue=self.queue, tag=tag, columns=columns,
                               cost_bits=self.cost_bits)
        place(m, platform, "release", release)
        m.submodules.parts = parts = Fifo(
            part_layout(lanes=lanes, banks=banks, tag=tag, columns=columns, cost_bits=self.cost_bits),
            depth=self.parts_ahead)
        wiring.connect(m, waves.o, splitter.i)
        wiring.connect(m, parts.o, release.i)
        enters = Signal()
        goes = Signal()
        m.d.comb += [
            parts.i.valid.eq(splitter.o.valid),
            parts.i.payload.eq(splitter.o.payload),
            enters.eq(waves.o.valid & splitter.room),
            goes.eq(parts.o.valid & parts.o.ready),
        ]
        behind = Signal(range(self.parts_ahead + 2))
        gone = Signal()
        m.d.sync += gone.eq(goes)
        m.d.sync += behind.eq(behind + enters - gone)
        m.d.sync += splitter.room.eq(behind + enters - gone < self.parts_ahead)

        # -- The accesses of the two waves in the release stage, column by column.
        group = min(8, lanes)
        older, newer = [], []
        depth = self.waves_ahead + self.parts_ahead
        for g in range(0, lanes, group):
            window = _LaneWindow(lanes=group, width=width, depth=depth)
            place(m, platform, f"window_{g}", window)
            m.d.comb += [
                window.i.valid.eq(sorter.o_valid),
                window.advance.eq(release.advance),
                window.load.eq(release.load),
                *(window.i.payload[k].eq(sorter.o[g + k].as_value()) for k in range(group)),
            ]
            older += [window.older[k] for k in range(group)]
            newer += [window.newer[k] for k in range(group)]
        crossings = []
        for c in range(columns):
            crossing = _Crossing(rows=lanes // columns, banks=banks, width=width)
            place(m, platform, f"crossing_{c}", crossing)
            m.d.comb += [crossing.older[r].eq(older[r * columns + c]) for r in range(lanes // columns)]
            m.d.comb += [crossing.newer[r].eq(newer[r * columns + c]) for r in range(lanes // columns)]
            crossings.append(crossing)

        # -- The banks' queues.
        full = []
        for b in range(banks):
            queue = BankQueue(lanes=lanes, columns=columns, payload=width, tag=tag, depth=self.depth)
            place(m, platform, f"queue_{b}", queue)
            m.d.comb += [
                queue.i.eq(release.o[b]),
                queue.i_tags.eq(release.o_tags),
                *(crossings[c].select[b].eq(queue.o_select[c]) for c in range(columns)),
                *(queue.i_places[c].eq(crossings[c].o[b]) for c in range(columns)),
                self.o[b].valid.eq(queue.o.valid),
                self.o[b].tag.eq(queue.o.tag),
                Cat(self.o[b].lane, self.o[b].payload).eq(queue.o.place),
            ]
            full.append(queue.full)
        m.d.sync += release.hold.eq(Cat(full).any())

        ended = Signal(4)       # commands take as long to become accesses
        m.d.comb += self.released.eq(ended[-1])
        m.d.sync += ended.eq(Cat(release.ended, ended))
        return m
