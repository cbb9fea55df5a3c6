"""Tells the host how a run goes and how it ended: the progress and the result block."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.isa import Kernel
from hw.kernel.counters import TOTAL_BITS
from hw.place import Part

HEADER_WORDS = 16   # before the first counter


class Reporter(Part):
    """Writes the result block at the end of a run and the progress words during it.

    block = header, then every counter's total as two words, low first.      Source: hw.isa, the result block

    Parameters  words: 32-bit words of a beat, 4, 8 or 16; counters: totals in a round of the counter file;
                kernel: describes the block
    Members     base           In  byte address of the block
                header         In
                number, total  In  from the counter file
                finish         In  a pulse: write the block
                finished       Out  a pulse once it is written
                progress       In  the block's words of that kind
                report_progress  In  a pulse: write them
                busy           Out  something is still to be written
                o_requests     Out(stream)  {address, beats}
                o_data         Out(stream)  a client of the write port
                done           In  its pulse
    Timing      the block takes 8 cycles for the header, up to a round until the first total comes by and a
                cycle a total; its beats must fit the client's queue, `beats` of them
    Handshake   o_data is always taken at once if the queue has room for the block, which the core provides
    Reset       forgets what was asked for
    Raises      ValueError: words or counters out of range
    Golden      hw.isa describes the words          Tests  verif/kernel/test_report.py
    """

    def __init__(self, *, words: int, counters: int, kernel: Kernel):
        if words not in (4, 8, 16):
            raise ValueError(f"words must be 4, 8 or 16, not {words}")
        if counters < 2 or counters & (counters - 1):
            raise ValueError(f"counters must be a power of two of at least 2, not {counters}")
        self.words = words
        self.counters = counters
        self.kernel = kernel
        self._progress = [value for value in kernel.result if value.kind == "progress"]
        super().__init__({
            "base": In(64),
            "header": In(data.ArrayLayout(32, HEADER_WORDS)),
            "number": In(range(counters)),
            "total": In(TOTAL_BITS),
            "finish": In(1),
            "finished": Out(1),
            "progress": In(data.StructLayout(dict.fromkeys((value.name for value in self._progress), 32))),
            "report_progress": In(1),
            "busy": Out(1),
            "o_requests": Out(stream.Signature(data.StructLayout({"address": 64, "beats": 16}))),
            "o_data": Out(stream.Signature(32 * words)),
            "done": In(1),
        })

    @property
    def beats(self) -> int:
        """Beats of the block as it is written."""
        return -(-(HEADER_WORDS + 2 * self.counters) // self.words)

    def elaborate(self, platform):
        m = Module()
        pairs = self.words // 2
        finish = Signal()
        progress_pending = Signal()
        beat = Signal(data.ArrayLayout(64, pairs), reset_less=True)
        filled = Signal(range(pairs))
        pair = Signal(64)
        taking = Signal()
        at = Signal(range(HEADER_WORDS // 2))
        push = Signal()

        address = Signal(64)
        ends = Signal()
        m.d.comb += [
            self.o_requests.payload.address.eq(address),
            self.o_requests.payload.beats.eq(Mux(finish, self.beats, 1)),
            self.o_data.payload.eq(beat),
            self.o_data.valid.eq(push),
        ]
        with m.If(self.finish):
            m.d.sync += finish.eq(1)
        with m.If(self.report_progress):
            m.d.sync += progress_pending.eq(1)

        # Beats are put together from pairs of words, the first lowest.
        with m.If(push & self.o_data.ready):
            m.d.sync += push.eq(0)
        with m.If(taking):
            m.d.sync += beat.eq(Cat(beat.as_value()[64:], pair))
            m.d.sync += filled.eq(Mux(filled == pairs - 1, 0, filled + 1))
            with m.If(filled == pairs - 1):
                m.d.sync += push.eq(1)

        heads = Array(Cat(self.header[2 * k], self.header[2 * k + 1]) for k in range(HEADER_WORDS // 2))
        with m.FSM() as steps:
            with m.State("IDLE"):
                m.d.sync += filled.eq(0)
                m.d.sync += at.eq(0)
                # Progress that is pending goes first, so that the block is the last word.
                with m.If(progress_pending):
                    m.d.sync += [
                        address.eq(self.base + 4 * self._progress[0].word),
                        beat.as_value().eq(Cat(self.progress.as_value())),
                        progress_pending.eq(self.report_progress),
                        push.eq(1),
                    ]
                    m.next = "PROGRESS"
                with m.Elif(finish):
                    m.d.sync += address.eq(self.base)
                    m.next = "HEAD"
            with m.State("PROGRESS"):
                m.d.comb += self.o_requests.valid.eq(1)
                m.d.comb += self.o_requests.payload.beats.eq(1)
                with m.If(self.o_requests.ready):
                    m.next = "WAIT PROGRESS"
            with m.State("WAIT PROGRESS"):
                with m.If(self.done):
                    m.next = "IDLE"
            with m.State("HEAD"):
                m.d.comb += taking.eq(1)
                m.d.comb += pair.eq(heads[at])
                m.d.sync += at.eq(at + 1)
                with m.If(at == HEADER_WORDS // 2 - 1):
                    m.next = "ALIGN"
            with m.State("ALIGN"):
                with m.If(self.number == self.counters - 1):
                    m.next = "TOTALS"
            with m.State("TOTALS"):
                m.d.comb += taking.eq(1)
                m.d.comb += pair.eq(self.total)
                with m.If(self.number == self.counters - 1):
                    m.next = "FILL"
            with m.State("FILL"):
                # A last beat that is not full is filled with zeros; one more of them goes nowhere.
                m.d.comb += taking.eq(1)
                with m.If(filled == 0):
                    m.next = "REQUEST"
            with m.State("REQUEST"):
                m.d.comb += self.o_requests.valid.eq(1)
                with m.If(self.o_requests.ready):
                    m.next = "WAIT BLOCK"
            with m.State("WAIT BLOCK"):
                m.d.comb += ends.eq(self.done)
                with m.If(self.done):
                    m.d.sync += finish.eq(0)
                    m.next = "IDLE"
        m.d.comb += self.finished.eq(ends)
        m.d.comb += self.busy.eq(finish | progress_pending | ~steps.ongoing("IDLE"))
        return m
