"""A bit for each of many places, two of which can change in a cycle."""

from amaranth.hdl import Module
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out


class Marks(wiring.Component):
    """Marks places: a place is marked where two memories of a bit differ, of which either is written for one reason.

    Parameters  places: how many there are
    Members     mark, marked_place    In  marks a place
                clear, clear_place    In  clears a place, not the one that is marked in the same cycle
                place                 In  whose mark is shown
                o                     Out  it is marked
    Timing      shown in the cycle it is asked for, from the cycle after a change on
    Reset       none: a place holds nothing in particular before it is first cleared
    Golden      golden.tt.reuse.ReuseTable          Tests  verif/tt/test_reuse.py
    """

    def __init__(self, places: int):
        self.places = places
        bits = (places - 1).bit_length()
        super().__init__({
            "mark": In(1), "marked_place": In(bits),
            "clear": In(1), "clear_place": In(bits),
            "place": In(bits), "o": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.marking = marking = memory.Memory(shape=1, depth=self.places, init=[])
        m.submodules.clearing = clearing = memory.Memory(shape=1, depth=self.places, init=[])
        mark, clear = marking.write_port(), clearing.write_port()
        m.d.comb += [
            mark.en.eq(self.mark),
            mark.addr.eq(self.marked_place),
            mark.data.eq(~shown(m, clearing, self.marked_place)),
            clear.en.eq(self.clear),
            clear.addr.eq(self.clear_place),
            clear.data.eq(shown(m, marking, self.clear_place)),
            self.o.eq(shown(m, marking, self.place) ^ shown(m, clearing, self.place)),
        ]
        return m


def shown(m: Module, store: memory.Memory, place):
    """What a memory of LUTs holds at a place, through a port of its own."""
    port = store.read_port(domain="comb")
    m.d.comb += port.addr.eq(place)
    return port.data
