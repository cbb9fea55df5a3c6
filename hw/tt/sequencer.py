"""Turns a lane's lookups into issue slots: which operands meet in the grid, and where the results go."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib.wiring import In, Out

from hw.place import Part
from hw.tt.admission import Admission
from hw.tt.config import TTConfig
from hw.tt.descriptor import part_layout
from hw.tt.index import slices_layout
from hw.tt.last import LastProduct
from hw.tt.products import FirstProduct, MiddleProduct
from hw.tt.tokens import Product, slot_layout


class Sequencer(Part):
    """Schedules the products of a lane's lookups onto its grid.

    A lookup passes first, middle and last product in order; each has a loop machine, and whenever a tile ends
    the earliest product that can start takes the grid. Between products a lookup waits until its lines are
    written. A first product that is still in the buffer is not computed again.
    Source: SCRec §III.E Alg. 1; EL-Rec §III.A

    Parameters  config: TTConfig; distance: least number of cycles from the slot that ends a product to the first
                slot that reads its lines
    Members     i_valid            In  a lookup comes; there is room for config.in_flight of them
                i                  In  a lookup of slices_layout
                taken              Out  a pulse: one of them has left the queue
                o_valid, o         Out  an issue slot of slot_layout
                hold               In  no tile may begin this cycle
                open               Out  the grid is between tiles (a load may take the slot)
                write, part, table, words  In  loads descriptor parts 2 and 3
                returned           In  a pulse: a vector has left the output memory
                error, error_slot  In  a slot whose operands could not be corrected
                computed           Out  a pulse per lookup whose first product was computed
                reused             Out  a pulse per lookup whose first product was found
    Timing      one slot per cycle, a lookup every other cycle; 6 cycles from i to the first slot, `distance` + 3
                more to the last product's
    Handshake   `taken` comes from a register, a cycle after the lookup has left
    Reset       drops lookups, forgets first products
    Golden      golden.tt.sequencer          Tests  verif/tt/test_unit.py, test_loads.py
    """

    def __init__(self, config: TTConfig, *, distance: int):
        if distance < 4:
            raise ValueError(f"distance must be at least 4, not {distance}")
        self.config = config
        self.distance = distance
        load = part_layout(config).members
        super().__init__({
            "i_valid": In(1),
            "i": In(slices_layout(config)),
            "taken": Out(1),
            "o_valid": Out(1),
            "o": Out(slot_layout(config)),
            "hold": In(1),
            "open": Out(1),
            "write": In(1),
            "part": In(load["part"]),
            "table": In(load["table"]),
            "words": In(load["words"]),
            "returned": In(1),
            "error": In(1),
            "error_slot": In(slot_layout(config)),
            "computed": Out(1),
            "reused": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        # Of the distance three cycles pass in registers before the next product.
        delay = self.distance - 3
        # In line, not shared: their logic and the arbitration are mapped together.
        m.submodules.admission = admission = Admission(config)
        m.submodules.first_product = first = FirstProduct(config, delay=delay)
        m.submodules.middle_product = middle = MiddleProduct(config, delay=delay)
        m.submodules.last_product = last = LastProduct(config)

        load = Signal(part_layout(config))
        m.d.comb += [
            load.valid.eq(self.write),
            load.part.eq(self.part),
            load.table.eq(self.table),
            load.words.eq(self.words),
            *(part.load.eq(load) for part in (admission, middle, last)),
        ]

        # -- The way of a lookup.
        m.d.comb += [
            admission.i_valid.eq(self.i_valid),
            admission.i.eq(self.i),
            admission.free.eq(first.free & middle.room),
            self.taken.eq(admission.taken),
            self.computed.eq(admission.computed),
            self.reused.eq(admission.reused),

            first.push.eq(admission.serve),
            first.i.eq(admission.o),

            middle.begun.eq(admission.serve),
            middle.push.eq(first.done),
            middle.i.eq(first.o),
            middle.ripens.eq(first.ripens),
            middle.last_room.eq(last.room),

            last.begun.eq(middle.begins),
            last.ticket.eq(middle.ticket),
            last.push.eq(middle.done),
            last.i.eq(middle.o),
            last.written.eq(middle.written),
            last.returned.eq(self.returned),
        ]

        # -- Lines that have been read, and memory errors.
        m.d.comb += [
            admission.release.eq(last.release),
            admission.released.eq(last.released),
            middle.freed.eq(last.freed),
            middle.freed_lines.eq(last.freed_lines),
            admission.poison.eq(self.error & (self.error_slot.stage == Product.FIRST)),
            admission.poisoned.eq(self.error_slot.entry),
            admission.asked.eq(last.asked),
            last.bad.eq(admission.bad),
            last.error.eq(self.error),
            last.error_slot.eq(self.error_slot),
        ]
        self._arbitrate(m, first, middle, last)
        return m

    def _arbitrate(self, m: Module, first: FirstProduct, middle: MiddleProduct, last: LastProduct):
        """Who gets the slot: a tile is never interrupted; at its end the earliest product goes first, so that work for
        the last one, which can start every cycle, never runs out."""
        inside = Signal()
        owner = Signal(3)
        free = ~inside & ~self.hold
        m.d.comb += [
            self.open.eq(~inside),
            first.go.eq(Mux(inside, owner[0], free & first.busy)),
            middle.go.eq(Mux(inside, owner[1], free & middle.busy & ~first.busy)),
            last.go.eq(Mux(inside, owner[2], free & last.busy & ~first.busy & ~middle.busy)),
        ]
        granted = Cat(first.go, middle.go, last.go)
        with m.If(granted.any()):
            m.d.sync += inside.eq(~(granted & Cat(first.last, middle.last, last.last)).any())
            m.d.sync += owner.eq(granted)

        # Which slot it is, if any, whoever asks last is nothing to.
        m.d.sync += self.o_valid.eq(granted.any())
        m.d.sync += self.o.eq(Mux(Mux(inside, owner[0], first.busy), first.slot,
                                  Mux(Mux(inside, owner[1], middle.busy), middle.slot, last.slot)))
