"""The control slave of a Vitis kernel: ap_ctrl_hs, its arguments and what stands behind them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import In, Out

from hw.axi.bus import AXI4Lite
from hw.isa import Kernel
from hw.layouts import arguments_layout
from hw.place import Part

# Where Vitis kernels have them (UG1393, control register map of ap_ctrl_hs).
CTRL, GIE, IER, ISR = 0x00, 0x04, 0x08, 0x0C
# Bits of CTRL.
START, DONE, IDLE, READY, AUTO_RESTART, SW_RESET = 0, 1, 2, 3, 7, 8
RANGE_BYTES = 0x1000


class _Writes(NamedTuple):
    """A write of a word. written: of the word at this offset, in this cycle."""

    value: Signal
    strobe: Signal
    written: Callable[[int], Value]


class _Reads(NamedTuple):
    """A read of a word. wanted: its address; grouped: it is answered in the next cycle; clear: it is CTRL, and clears
    ap_done and ap_ready."""

    wanted: Signal
    grouped: Signal
    clear: Signal


class ControlSlave(Part):
    """What the driver sees of a kernel: start, done, idle, interrupts, reset, arguments, abort, status and identity.

    Source: UG1393 (control register map of ap_ctrl_hs); XRT, cu_hls.c (SW_RESET: bit 8 of CTRL)

    Parameters  kernel: a hw.isa.Kernel with registers `abort` and `status`; constants: what others that are read
                hold, by name; those that are not named read 0
    Members     bus        In(AXI4Lite)
                start      Out  a pulse
                done       In  a pulse when the run is over
                arguments  Out  all of them
                abort      Out  a pulse
                drop       Out  a pulse: the run must end, and nobody wants to know of it
                status     In  state of the run, for the host to read
                owing      In  the bus owes answers of a run before
                code       In(8)  how the last run ended, in the register `code` where the kernel has one
                interrupt  Out  a level
    Timing      a write every 2 cycles, a read every 4; `start` comes 2 cycles after the write was taken
    Handshake   ap_ctrl_hs. CTRL (0x00): ap_start is set by writing 1 and cleared by `done`, ap_done and ap_ready are
                set by `done` and cleared by reading CTRL, ap_idle is set while nothing runs; with auto_restart
                `done` starts the next run. Writing 1 to sw_reset drops the run: ap_start, ap_done, ap_ready,
                auto_restart and ISR are cleared, sw_reset reads 1 until the run's end, which sets nothing, and until
                nothing is owed, and no run starts before. GIE (0x04), IER (0x08), ISR (0x0C) bit 0 done, bit 1 ready:
                ISR is set by `done` where IER allows it and toggled by writing 1. A start while a run is on is that
                run's.
                Arguments change when they are written: the driver writes them before it starts. Words that are
                nobody's read 0 and ignore writes; every answer is OKAY
    Reset       ends the run, arguments are 0
    Raises      ValueError: the registers do not fit the 4 KB of a kernel, or there is no abort or status
    Golden      the register map in hw.isa          Tests  verif/axi/test_control.py
    """

    def __init__(self, *, kernel: Kernel, constants: Sequence[tuple[str, int]] = ()):
        for register in ("abort", "status"):
            kernel.register(register)
        self.constants = dict(constants)
        if kernel.control_bytes > RANGE_BYTES:
            raise ValueError(f"{kernel.name}: the control registers take {kernel.control_bytes} bytes, "
                             f"a kernel has {RANGE_BYTES}")
        self.kernel = kernel
        super().__init__({
            "bus": In(AXI4Lite(12)),
            "start": Out(1),
            "done": In(1),
            "arguments": Out(arguments_layout(kernel)),
            "abort": Out(1),
            "drop": Out(1),
            "status": In(32),
            "owing": In(1),
            "code": In(8),
            "interrupt": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        writes = self._writes(m)
        reads = self._reads(m)
        words = self._run(m, writes, reads.clear)
        values = {"status": self.status, "code": self.code, **self.constants}
        words |= {item.offset: Value.cast(values.get(item.name, 0)) for item in self.kernel.registers
                  if item.access == "read"}
        words |= self._arguments(m, writes)
        m.d.sync += self.abort.eq(
            writes.written(self.kernel.register("abort").offset) & writes.strobe[0] & writes.value[0])
        self._answer(m, reads, words)
        return m

    def _writes(self, m: Module) -> _Writes:
        """Writes: address and data in any order, then both at once, when a word is `written`."""
        bus = self.bus
        address = Signal(12)
        value = Signal(32)
        strobe = Signal(4)
        addressed = Signal()
        filled = Signal()
        write = Signal()
        m.d.comb += [
            bus.awready.eq(~addressed),
            bus.wready.eq(~filled),
            bus.bresp.eq(0),
            write.eq(addressed & filled & ~bus.bvalid),
        ]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += address.eq(bus.awaddr)
            m.d.sync += addressed.eq(1)
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += value.eq(bus.wdata)
            m.d.sync += strobe.eq(bus.wstrb)
            m.d.sync += filled.eq(1)
        with m.If(write):
            m.d.sync += addressed.eq(0)
            m.d.sync += filled.eq(0)
            m.d.sync += bus.bvalid.eq(1)
        with m.Elif(bus.bready):
            m.d.sync += bus.bvalid.eq(0)

        def written(offset):
            return write & (address[2:] == offset // 4)

        return _Writes(value=value, strobe=strobe, written=written)

    def _reads(self, m: Module) -> _Reads:
        """Reads: the address, a word of each group, the word."""
        bus = self.bus
        wanted = Signal(12)
        reading = Signal()
        grouped = Signal()
        clear = Signal()  # CTRL is read: ap_done and ap_ready go
        m.d.comb += bus.arready.eq(~reading & ~grouped & ~bus.rvalid)
        m.d.comb += bus.rresp.eq(0)
        m.d.comb += clear.eq(reading & (wanted[2:] == CTRL // 4))
        m.d.sync += reading.eq(bus.arvalid & bus.arready)
        m.d.sync += grouped.eq(reading)
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += wanted.eq(bus.araddr)
        with m.If(grouped):
            m.d.sync += bus.rvalid.eq(1)
        with m.Elif(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        return _Reads(wanted=wanted, grouped=grouped, clear=clear)

    def _run(self, m: Module, writes: _Writes, clear: Signal) -> dict:
        """ap_ctrl_hs: the words of the run and of its interrupts by their offsets."""
        written, value, low = writes.written, writes.value, writes.strobe[0]
        start = Signal()
        done = Signal()
        ready = Signal()
        auto = Signal()
        running = Signal()
        gie = Signal()
        ier = Signal(2)
        isr = Signal(2)
        dropping = Signal()
        drop = Signal()
        ended = Signal()        # a run that was not dropped
        m.d.comb += drop.eq(written(CTRL) & writes.strobe[SW_RESET // 8] & value[SW_RESET])
        m.d.comb += ended.eq(self.done & ~dropping)
        m.d.sync += self.drop.eq(drop)
        m.d.sync += dropping.eq((dropping | drop) & (start | running | self.owing))
        with m.If(self.done):
            m.d.sync += start.eq(auto)
            m.d.sync += running.eq(0)
        with m.Elif(start & ~running):
            m.d.sync += running.eq(1)
        m.d.sync += self.start.eq(start & ~running & ~self.done)
        with m.If(written(CTRL) & low):
            m.d.sync += auto.eq(value[AUTO_RESTART])
            with m.If(value[START] & ~dropping):
                m.d.sync += start.eq(1)
        with m.If(ended):
            m.d.sync += done.eq(1)
            m.d.sync += ready.eq(1)
        with m.Elif(clear):
            m.d.sync += done.eq(0)
            m.d.sync += ready.eq(0)
        with m.If(written(GIE) & low):
            m.d.sync += gie.eq(value[0])
        with m.If(written(IER) & low):
            m.d.sync += ier.eq(value[:2])
        m.d.sync += isr.eq((isr ^ Mux(written(ISR) & low, value[:2], 0)) | Mux(ended, ier, 0))
        with m.If(drop):
            m.d.sync += [
                start.eq(0),
                auto.eq(0),
                done.eq(0),
                ready.eq(0),
                isr.eq(0),
            ]
        m.d.sync += self.interrupt.eq(gie & isr.any())
        ctrl = Cat(start, done, ~(start | running), ready, Const(0, 3), auto, dropping)
        return {CTRL: ctrl, GIE: gie, IER: ier, ISR: isr}

    def _arguments(self, m: Module, writes) -> dict:
        """The words of the arguments by their offsets, which the host writes byte by byte."""
        words = {}
        for argument in self.kernel.arguments:
            held = self.arguments[argument.name]
            for part in range(0, argument.bits, 32):
                word = held[part:part + 32]
                words[argument.offset + part // 8] = word
                hit = Signal(name=f"write_{argument.name}_{part // 32}")
                m.d.comb += hit.eq(writes.written(argument.offset + part // 8))
                for byte in range(4):
                    with m.If(hit & writes.strobe[byte]):
                        m.d.sync += word[8 * byte:8 * byte + 8].eq(writes.value[8 * byte:8 * byte + 8])
        return words

    def _answer(self, m: Module, reads, words) -> None:
        """What a read gives: a word of its group.

        Four words are a group, without regard to the gaps between their addresses; all others are of a last group.
        """
        bus = self.bus
        known = list(words.items())
        count = -(-len(known) // 4)
        slot = Signal(2)
        place = Signal(range(count + 1))
        group = Signal(range(count + 1))
        m.d.comb += place.eq(count)
        with m.Switch(reads.wanted[2:]):
            for number, (offset, _) in enumerate(known):
                with m.Case(offset // 4):
                    m.d.comb += slot.eq(number % 4)
                    m.d.comb += place.eq(number // 4)
        m.d.sync += group.eq(place)
        read = [Signal(32, name=f"group_{number}", reset_less=True) for number in range(count)]
        for number, word in enumerate(read):
            with m.Switch(slot):
                for at, (_, value_there) in enumerate(known[4 * number:4 * number + 4]):
                    with m.Case(at):
                        m.d.sync += word.eq(value_there)
        with m.If(reads.grouped):
            with m.Switch(group):
                for number, word in enumerate(read):
                    with m.Case(number):
                        m.d.sync += bus.rdata.eq(word)
                with m.Default():
                    m.d.sync += bus.rdata.eq(0)
        return m
