"""Makes of sorted waves what the release stage needs: runs that are short enough, and what they cost."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.place import Part


def runs_layout(*, lanes: int, banks: int, tag: int) -> data.StructLayout:
    """A sorted wave. ends[b]: accesses with a bank <= b; heavy: a bank has more of them than there are columns."""
    return data.StructLayout({"ends": data.ArrayLayout(range(lanes + 1), banks), "heavy": 1, "tag": tag})


def part_layout(*, lanes: int, banks: int, tag: int, columns: int, cost_bits: int) -> data.StructLayout:
    """A wave, or a part of a heavy one. A bank's run: `some`, whether it has one; start: its first place in the
    sorted wave; more: places behind that; cost: credits that all runs of all waves up to this one need, modulo its
    width. first, last: of the parts of its wave."""
    run = data.StructLayout({"some": 1, "start": (lanes - 1).bit_length(), "more": (columns - 1).bit_length(),
                             "cost": cost_bits})
    return data.StructLayout({"runs": data.ArrayLayout(run, banks), "first": 1, "last": 1, "tag": tag})


class RunSplitter(Part):
    """Cuts the runs of heavy waves into parts of at most `columns` accesses a bank, and adds up costs.

    A run of n accesses costs n - 1: its bank takes one of them at once. Part k of a wave has the accesses k * columns
    to k * columns + columns - 1 of every run.
    Parameters  lanes, banks, columns: powers of two; tag, cost_bits: bits
    Members     i     In(stream)  of runs_layout
                o     Out(stream, always ready)  a part, of part_layout
                room  In  whether a part may leave
    Timing      latency `latency`; a wave per cycle, a heavy one takes lanes / columns cycles
    Handshake   `room` and i.valid reach i.ready through one LUT; o comes from registers and has no ready
    Numerics    costs modulo 2**cost_bits
    Reset       drops what is inside, costs count from 0
    Golden      golden.hotline.scheduler.Scheduler                      Tests  verif/hotline/test_scheduler.py
    """

    def __init__(self, *, lanes: int, banks: int, tag: int, columns: int, cost_bits: int):
        self.lanes, self.banks, self.tag, self.columns, self.cost_bits = lanes, banks, tag, columns, cost_bits
        self.levels = (banks - 1).bit_length()
        super().__init__({
            "i": In(stream.Signature(runs_layout(lanes=lanes, banks=banks, tag=tag))),
            "room": In(1),
            "o": Out(stream.Signature(
                part_layout(lanes=lanes, banks=banks, tag=tag, columns=columns, cost_bits=cost_bits),
                always_ready=True)),
        })

    @property
    def latency(self) -> int:
        return 3 + self.levels

    def elaborate(self, platform):
        m = Module()
        lane_bits = (self.lanes - 1).bit_length()
        column_bits = (self.columns - 1).bit_length()
        parts = self.lanes // self.columns
        part_bits = (parts - 1).bit_length()

        def register(name: str, width: int) -> Signal:
            return Signal(width, name=name, reset_less=True)

        # -- Which part of the wave at hand leaves.
        wave = self.i.payload
        part = Signal(max(1, part_bits))
        final = Signal()
        leaves = Signal()
        m.d.comb += final.eq(~wave.heavy | (part == parts - 1))
        m.d.comb += leaves.eq(self.i.valid & self.room)
        m.d.comb += self.i.ready.eq(self.room & final)
        with m.If(leaves):
            m.d.sync += part.eq(Mux(final, 0, part + 1))
        # What accompanies the runs: valid, first, last, tag.
        going = Signal(self.latency)
        beside = Array([register(f"beside_{k}", 2 + self.tag) for k in range(self.latency)])
        m.d.sync += [
            going.eq(Cat(leaves, going)),
            beside[0].eq(Cat(part == 0, final, wave.tag)),
            *(beside[k].eq(beside[k - 1]) for k in range(1, self.latency)),
        ]
        m.d.comb += self.o.valid.eq(going[-1])
        o = self.o.payload
        m.d.comb += Cat(o.first, o.last, o.tag).eq(beside[self.latency - 1])

        # -- Lengths of whole runs, then of the part's.
        now = register("now", max(1, part_bits))
        m.d.sync += now.eq(part)
        runs, costs = [], []
        for b in range(self.banks):
            begin = wave.ends[b - 1] if b else Const(0, lane_bits + 1)
            length, start = register(f"length_{b}", lane_bits + 1), register(f"start_{b}", lane_bits)
            m.d.sync += length.eq(wave.ends[b] - begin)
            m.d.sync += start.eq(begin)
            whole, rest = length[column_bits:], length[:column_bits]
            some, more = register(f"some_{b}", 1), register(f"more_{b}", column_bits)
            first = register(f"first_{b}", lane_bits)
            full, tail = Signal(name=f"full_{b}"), Signal(name=f"tail_{b}")
            m.d.comb += full.eq(whole > now if parts > 1 else whole.any())
            m.d.comb += tail.eq((whole == now if parts > 1 else ~whole.any()) & rest.any())
            m.d.sync += some.eq(full | tail)
            m.d.sync += more.eq(Mux(full, self.columns - 1, Mux(tail, rest - 1, 0)))
            m.d.sync += first.eq(Cat(start[:column_bits], start[column_bits:] + now) if parts > 1 else start)
            runs.append(Cat(some, first, more))
            costs.append(more)

        # -- Costs up to each bank: pairs, fours, ... (Sklansky), then with those of the waves before.
        for level in range(self.levels):
            after = []
            for b in range(self.banks):
                width = min(self.cost_bits, column_bits + level + 1)
                cost, run = register(f"cost{level}_{b}", width), register(f"run{level}_{b}", len(runs[b]))
                lower = (b >> level << level) - 1
                m.d.sync += cost.eq(costs[b] + costs[lower] if b >> level & 1 else costs[b])
                m.d.sync += run.eq(runs[b])
                after.append(cost)
                runs[b] = run
            costs = after
        base = Signal(self.cost_bits)
        with m.If(going[self.latency - 2]):
            m.d.sync += base.eq(base + costs[-1])
        for b in range(self.banks):
            total, run = register(f"total_{b}", self.cost_bits), register(f"out_{b}", len(runs[b]))
            m.d.sync += total.eq(base + costs[b])
            m.d.sync += run.eq(runs[b])
            m.d.comb += Cat(o.runs[b].some, o.runs[b].start, o.runs[b].more).eq(run)
            m.d.comb += o.runs[b].cost.eq(total)
        return m
