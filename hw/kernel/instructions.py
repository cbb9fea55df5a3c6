"""The instructions of a program, one after the other, and why a run of it ends."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data

from hw.axi.requester import request_beats
from hw.isa import WORD_BITS, Kernel
from hw.layouts import instruction_layout

PROGRAM = 0     # detail of READ_ERROR


def program_error_layout() -> data.StructLayout:
    """Why the program ended, as the result block tells it; valid stays until reset."""
    return data.StructLayout({"valid": 1, "code": 8, "instruction": 32, "detail": 32})


class Instructions:
    """Asks for a program's instructions; makes those states of a unit's machine in which they come and it ends.

    Parameters  m: the unit's module, which it adds itself to; unit: has start, arguments, o_requests, i, number, done
                and error (of program_error_layout); kernel: what it carries out; failed: the state behind `refuse`
    Members     item: the instruction
    """

    def __init__(self, m: Module, unit, kernel: Kernel, *, failed: str):
        self.m, self.unit, self.kernel, self.failed = m, unit, kernel, failed
        self.item = Signal(instruction_layout(kernel), name="item", reset_less=True)
        bits = len(unit.i.payload.data)
        self.beats = kernel.words * WORD_BITS // bits       # of an instruction
        span = Cat(Const(0, (self.beats - 1).bit_length()), unit.arguments.program_count)
        request_beats(m, unit.o_requests, start=unit.start, address=unit.arguments.program, span=span,
                      beat_bytes=bits // 8)
        self.following = Signal(32, name="following", reset_less=True)      # the next instruction's number
        self.last, self.more = Signal(name="last", reset_less=True), Signal(name="more")
        m.d.sync += self.following.eq(unit.number + 1)
        m.d.sync += self.last.eq(self.following == unit.arguments.program_count)
        # `more` is high in NEXT alone: a register takes the beats, not what the bits of the state say.
        beat = unit.i.payload.data
        m.d.comb += unit.i.ready.eq(self.more & unit.i.valid)
        with m.If(unit.i.ready):
            m.d.sync += self.item.eq(Cat(self.item.as_value()[len(beat):], beat) if self.beats > 1 else beat)

    def states(self, *, then: str, over: str) -> None:
        """IDLE and NEXT. then: the state behind them, when an instruction is there; over: when none is left; if that is
        IDLE, the program is done."""
        m, unit = self.m, self.unit
        fetched = Signal(range(max(2, self.beats)))
        with m.State("IDLE"):
            with m.If(unit.start):
                m.d.sync += [
                    unit.number.eq(0),
                    self.more.eq(unit.arguments.program_count != 0),
                    fetched.eq(0),
                    unit.done.eq(0),
                ]
                m.next = "NEXT"
        with m.State("NEXT"):
            with m.If(~self.more):
                if over == "IDLE":
                    m.d.sync += unit.done.eq(1)
                m.next = over
            with m.Elif(unit.i.valid):
                m.d.sync += fetched.eq(fetched + 1)
                with m.If(unit.i.payload.error):
                    m.d.sync += self.more.eq(0)
                    self.refuse("READ_ERROR", PROGRAM)
                with m.Elif(fetched == self.beats - 1):
                    m.d.sync += self.more.eq(0)
                    m.d.sync += fetched.eq(0)
                    m.next = then

    def step(self) -> None:
        """In a state of the unit: the instruction is done with, the next one may come."""
        self.m.d.sync += self.unit.number.eq(self.following)
        self.m.d.sync += self.more.eq(~self.last)
        self.m.next = "NEXT"

    def refuse(self, code: str, detail) -> None:
        """In a state of the unit: the program ends with `code`, here."""
        error = self.unit.error
        self.m.d.sync += [
            error.valid.eq(1),
            error.code.eq(self.kernel.code(code)),
            error.detail.eq(detail),
            error.instruction.eq(self.unit.number),
        ]
        self.m.next = self.failed
