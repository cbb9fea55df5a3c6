"""Many wide counters in little logic: events gather in small residues that a memory collects in turn."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out

from hw.place import Part

TOTAL_BITS = 64


class CounterFile(Part):
    """Counts events of several kinds in 64-bit totals that share one adder.

    total[k] = the sum of events[k] since `clear`.      Source: common practice in network counters

    Parameters  events: name -> bits of its increment in a cycle, 1 to 16
    Members     events         In  what happens in this cycle, by name
                clear          In  held for `period` cycles or longer sets all totals to zero
                number, total  Out  the totals come by one per cycle in the order of `events`, over and over
    Timing      a total shows an event 3 to `period` + 3 cycles after it; `period` is the number of totals, at
                the next power of two
    Numerics    modulo 2**64
    Reset       starts the round anew; totals stay until `clear`
    Raises      ValueError: no events, or an increment of more than 16 bits
    Golden      a sum          Tests  verif/kernel/test_counters.py
    """

    def __init__(self, events: dict[str, int]):
        if not events:
            raise ValueError("events must name at least one counter")
        for name, bits in events.items():
            if not 1 <= bits <= 16:
                raise ValueError(f"events[{name!r}] must be 1 to 16 bits, not {bits}")
        self.names = tuple(events)
        self._bits = dict(events)
        self.period = 1 << max(1, (len(events) - 1).bit_length())
        super().__init__({
            "events": In(data.StructLayout(self._bits)),
            "clear": In(1),
            "number": Out(range(self.period)),
            "total": Out(TOTAL_BITS),
        })

    def elaborate(self, platform):
        m = Module()
        residue_bits = max(self._bits.values()) + (self.period - 1).bit_length()
        turn = Signal(range(self.period))
        m.d.sync += turn.eq(turn + 1)

        residues = []
        for at, name in enumerate(self.names):
            residue = Signal(self._bits[name] + (self.period - 1).bit_length(), name=f"residue_{name}")
            m.d.sync += residue.eq(Mux(turn == at, 0, residue) + self.events[name])
            residues.append(residue)
        residues += [0] * (self.period - len(residues))

        # The residue of this turn, then its total with it.
        picked = Signal(residue_bits)
        place = Signal(range(self.period))
        clearing = Signal()
        m.d.sync += picked.eq(Array(residues)[turn])
        m.d.sync += place.eq(turn)
        m.d.sync += clearing.eq(self.clear)
        store = memory.Memory(shape=TOTAL_BITS, depth=self.period, init=[])
        m.submodules.store = store
        write, read = store.write_port(), store.read_port(domain="comb")
        m.d.comb += [
            read.addr.eq(place),
            write.addr.eq(place),
            write.en.eq(1),
            write.data.eq(Mux(clearing, 0, read.data + picked)),
        ]
        m.d.sync += self.number.eq(place)
        m.d.sync += self.total.eq(write.data)
        return m
