"""Decides which runs go to their banks' queues, so that no more accesses wait there than there are places."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.hotline.splitter import part_layout
from hw.place import Part


def command_layout(*, lanes: int, columns: int) -> data.StructLayout:
    """A run that goes to its bank's queue. older: of the older of the two waves; start: its first place; more: places
    behind that."""
    return data.StructLayout({"valid": 1, "older": 1, "start": (lanes - 1).bit_length(),
                              "more": (columns - 1).bit_length()})


def _ones(bits: Sequence[Value]) -> list[Value]:
    """How many of up to six bits are set, as bits: each of them a LUT."""
    tables = [sum((bin(k).count("1") >> place & 1) << k for k in range(1 << len(bits)))
              for place in range(len(bits).bit_length())]
    return [Const(table, 1 << len(bits)).bit_select(Cat(*bits), 1) for table in tables]


def _compress(m: Module, name: str, columns: list[list[Value]]) -> list[list[Value]]:
    """One LUT level of adding up columns of bits, column k of weight 2**k: each six of a column become three of one,
    two, four times its weight. Columns of up to two bits stay."""
    after: list[list[Value]] = [[] for _ in range(len(columns) + 2)]
    for place, column in enumerate(columns):
        if len(column) <= 2:
            after[place] += column
            continue
        for group in range(0, len(column), 6):
            bits = column[group:group + 6]
            for k, bit in enumerate(_ones(bits) if len(bits) > 1 else bits):
                wire = Signal(name=f"{name}_{place}_{group}_{k}")
                m.d.comb += wire.eq(bit)
                after[place + k].append(wire)
    while not after[-1]:
        after.pop()
    return after


def _three(a: Value, b: Value, c: Value, low: int) -> tuple[Value, Value]:
    """a + b + c + low as two words, modulo their width."""
    carry = (a & b) | (a & c) | (b & c)
    return a ^ b ^ c, Cat(Const(low, 1), carry[:-1])


class ReleaseStage(Part):
    """Holds the runs of two waves and releases them to the banks' queues: a bank's in order, a bank at most one a
    cycle, and as long as there are credits, of which there are as many as places.

    A run of n accesses needs n - 1 credits: one access is taken by the bank in the cycle of the release, or another
    one that waits there leaves its place to it. Every bank that takes an access in a cycle without a release for it
    returns a credit. Banks always take, so what happens in the queues is known here without asking them. Credits go
    to runs in the order of (wave, bank).
    Parameters  lanes, banks, columns: powers of two; queue: places; tag, cost_bits: bits
    Members     i        In(stream)  of part_layout
                hold     In  no release in this cycle, to be held back only for a time
                o        Out  a command for each bank
                o_tags   Out  {older, newer} tags of the waves that they are of
                advance  Out  the newer wave becomes the older one before the next cycle's commands
                load     Out  in the same manner, a newer wave comes that is not a further part of the one before
                ended    Out  a pulse for each wave of which all runs have been released by commands up to this cycle's
    Timing      o and all that goes with it is a cycle late. A credit can be used again two cycles after its return
    Handshake   i.ready from registers by one LUT
    Numerics    costs modulo 2**cost_bits
    Reset       drops everything, all credits are back
    Golden      golden.hotline.scheduler.Scheduler                      Tests  verif/hotline/test_scheduler.py
    """

    def __init__(self, *, lanes: int, banks: int, queue: int, tag: int, columns: int, cost_bits: int):
        self.lanes, self.banks, self.queue, self.tag = lanes, banks, queue, tag
        self.columns, self.cost_bits = columns, cost_bits
        super().__init__({
            "i": In(stream.Signature(
                part_layout(lanes=lanes, banks=banks, tag=tag, columns=columns, cost_bits=cost_bits))),
            "hold": In(1),
            "o": Out(data.ArrayLayout(command_layout(lanes=lanes, columns=columns), banks)),
            "o_tags": Out(data.StructLayout({"older": tag, "newer": tag})),
            "advance": Out(1),
            "load": Out(1),
            "ended": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        banks, bits = self.banks, self.cost_bits
        run_bits = (self.lanes - 1).bit_length() + (self.columns - 1).bit_length()

        # -- Two waves; `lack` is what a run's credits go beyond those there are, less one: negative lets it go.
        older = Signal()
        newer = Signal()
        last = Signal(2)                        # of its wave's parts: the older's, the newer's
        tags = [Signal(self.tag, name=f"tag_{k}", reset_less=True) for k in range(2)]
        runs = [[Signal(run_bits, name=f"run{k}_{b}", reset_less=True) for b in range(banks)] for k in range(2)]
        lacks = [[Signal(bits, name=f"lack{k}_{b}", reset_less=True) for b in range(banks)] for k in range(2)]
        done = [Signal(banks, name=f"done_{k}", init=-1) for k in range(2)]
        enough = [Cat(lack[-1] for lack in each) for each in lacks]
        advance = Signal()
        load = Signal()
        m.d.comb += advance.eq(~older | (lacks[0][-1][-1] & ~self.hold))
        m.d.comb += load.eq(self.i.valid & (advance | ~newer))
        m.d.comb += self.i.ready.eq(advance | ~newer)
        goes = [Signal(banks, name=f"goes_{k}") for k in range(2)]
        stopped = self.hold.replicate(banks)
        m.d.comb += goes[0].eq(enough[0] & ~done[0] & ~stopped)
        m.d.comb += goes[1].eq(enough[1] & done[0] & ~done[1] & ~stopped)
        m.d.sync += newer.eq(load | (newer & ~advance))
        m.d.sync += done[1].eq(done[1] | goes[1])
        part = self.i.payload
        with m.If(advance):
            m.d.sync += [
                older.eq(newer),
                done[0].eq(done[1] | goes[1]),
                done[1].eq(-1),
                tags[0].eq(tags[1]),
                last[0].eq(last[1]),
                *(runs[0][b].eq(runs[1][b]) for b in range(banks)),
            ]
        with m.Else():
            m.d.sync += done[0].eq(done[0] | goes[0])
        with m.If(load):
            m.d.sync += [
                tags[1].eq(part.tag),
                last[1].eq(part.last),
                *(done[1][b].eq(~part.runs[b].some) for b in range(banks)),
                *(runs[1][b].eq(Cat(part.runs[b].start, part.runs[b].more)) for b in range(banks)),
            ]

        # -- Accesses that wait, bank by bank, and who returns a credit.
        returns = Signal(banks)
        some = Signal(banks)
        for b in range(banks):
            waits = Signal(range(self.queue + 1), name=f"waits_{b}")
            more = Signal((self.columns - 1).bit_length(), name=f"more_{b}")
            start = Signal((self.lanes - 1).bit_length(), name=f"start_{b}")
            m.d.comb += Cat(start, more).eq(Mux(goes[0][b], runs[0][b], runs[1][b]))
            m.d.comb += some[b].eq(waits != 0)
            m.d.comb += returns[b].eq(some[b] & ~goes[0][b] & ~goes[1][b])
            m.d.sync += [
                waits.eq(waits + Mux(goes[0][b] | goes[1][b], more, Cat(some[b].replicate(len(waits))))),
                self.o[b].valid.eq(goes[0][b] | goes[1][b]),
                self.o[b].older.eq(goes[0][b]),
                self.o[b].start.eq(start),
                self.o[b].more.eq(more),
            ]
        m.d.sync += [
            self.o_tags.older.eq(tags[0]),
            self.o_tags.newer.eq(tags[1]),
            self.advance.eq(advance),
            self.load.eq(load & part.first),
            self.ended.eq(older & advance & last[0]),
        ]
        self._credits(m, returns, lacks, advance, load)
        return m

    def _credits(self, m: Module, returns: Signal, lacks, advance: Signal, load: Signal) -> None:
        """Adds up what is returned, in two cycles, and takes it off what every run lacks."""
        bits = self.cost_bits
        columns = [[returns[b] for b in range(self.banks)]]
        for level in range(2):
            columns = _compress(m, f"add{level}", columns)
        kept = [[Signal(name=f"sum_{place}_{k}") for k in range(len(column))]
                for place, column in enumerate(columns)]
        m.d.sync += [Cat(*bits_).eq(Cat(*column)) for bits_, column in zip(kept, columns, strict=True) if column]
        columns, level = kept, 2
        while max(map(len, columns)) > 2:
            columns = _compress(m, f"add{level}", columns)
            level += 1
        rows = []
        for k in range(2):
            row = Signal(bits, name=f"less_{k}")    # the inverse of what is to be taken off
            word = Cat(*(column[k] if len(column) > k else Const(0, 1) for column in columns))
            m.d.comb += row.eq(~Cat(word, Const(0, bits)))
            rows.append(row)

        # x - a - b = x + ~a + ~b + 2, the two from the free lowest places of the carries.
        def reduced(name: str, value: Value) -> Signal:
            high, low = _three(value, rows[0], rows[1], 1)
            word = Signal(bits, name=name)
            m.d.comb += word.eq(high - ~low)        # with the carry in: + low + 1
            return word

        known = Signal(bits, init=(1 << bits) - 1 - self.queue)   # minus all credits there ever were, less one
        m.d.sync += known.eq(reduced("known_after", known))
        for b in range(self.banks):
            newest = Mux(load, self.i.payload.runs[b].cost, lacks[1][b])
            first, second = _three(newest, rows[0], rows[1], 1)
            third, fourth = _three(first, second, Mux(load, known, 0), 1)
            m.d.sync += lacks[0][b].eq(reduced(f"lack_{b}", Mux(advance, lacks[1][b], lacks[0][b])))
            m.d.sync += lacks[1][b].eq(third + fourth)
