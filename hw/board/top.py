"""A core on a board of its own: a host's serial line, block memory for card DRAM, lamps, a button."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from hw.board.link import Link
from hw.board.memory import BoardMemory
from hw.board.registers import BoardRegisters, HostMap
from hw.board.uart import DIVISOR_MIN, Receiver, Transmitter
from hw.config import Config, whole
from hw.place import Part, place

HOLD_CYCLES = 16    # everything is held for so long after configuration and after the button
LAMPS = ("alive", "frame", "refused", "interrupt", "read0", "read1", "written", "held")
BEAT_BYTES = 16     # of the memory where no core says it


@dataclass(frozen=True, kw_only=True)
class BoardConfig(Config):
    """What is on the board besides the core.

    Raises      ValueError: names the key, its value and what is allowed
    """

    divisor: int = whole(DIVISOR_MIN, (1 << 16) - 1, "cycles of a bit on the serial line")
    gap_cycles: int = whole(1, (1 << 28) - 1, "cycles of silence that end a frame")
    memory_bytes: int = whole(1 << 10, 1 << 20, "block memory in the place of card DRAM", power_of_two=True)
    lamp_log2: int = whole(4, 28, "log2 of the cycles that a lamp shows an event for")


class Board(Part):
    """A core, a memory and a serial line by which a host fills the memory, starts the core and reads what it wrote.

    The host's addresses: the memory from 0 on, as the core sees it; the core's control registers (hw.isa) from
    0x8000_0000 on; identity, size of the memory and reset of the core from 0xC000_0000 on (hw.board.registers). Frames:
    hw.board.link.

    Parameters  core: a component with the members of hw.kernel.shell.kernel_ports, or None for a board without one;
                config: BoardConfig
    Members     rx      In  serial line
                tx      Out  serial line
                button  In  resets everything while it is high
                lamps   Out(8)  LAMPS from bit 0 on
    Timing      that of its parts; HOLD_CYCLES from configuration or the button to the first cycle
    Reset       the button and power-up: everything but the contents of memories. The host's reset: the core and its
                ports of the memory
    Raises      ValueError: see BoardConfig
    Golden      golden.emb.core, for the EMB core          Tests  verif/board/test_link.py, test_top.py
    """

    def __init__(self, core, config: BoardConfig):
        self.core, self.config = core, config
        super().__init__({"rx": In(1, init=1), "tx": Out(1, init=1), "button": In(1), "lamps": Out(len(LAMPS))})

    def elaborate(self, platform):
        m = Module()
        config, core = self.config, self.core
        held, core_held = self._resets(m)
        beat_bytes = BEAT_BYTES if core is None else core.m00_axi.wdata.shape().width // 8

        m.submodules.receiver = receiver = ResetInserter(held)(Receiver(divisor=config.divisor))
        m.submodules.transmitter = transmitter = ResetInserter(held)(Transmitter(divisor=config.divisor))
        m.submodules.link = link = ResetInserter(held)(Link(gap_cycles=config.gap_cycles))
        m.submodules.map = host = HostMap(control=core is not None)
        m.submodules.registers = registers = ResetInserter(held)(BoardRegisters(memory_bytes=config.memory_bytes))
        memory = BoardMemory(beat_bytes=beat_bytes, size_bytes=config.memory_bytes)
        place(m, platform, "memory", memory, reset=core_held)
        m.d.comb += receiver.rx.eq(self.rx)
        m.d.comb += self.tx.eq(transmitter.tx)
        m.d.sync += core_held.eq(held | registers.reset)
        wiring.connect(m, receiver.o, link.i)
        wiring.connect(m, link.o, transmitter.i)
        wiring.connect(m, link.bus, host.bus)
        wiring.connect(m, host.memory, memory.host)
        wiring.connect(m, host.registers, registers.bus)

        events = {"alive": 0, "frame": link.busy, "refused": link.refused, "interrupt": 0, "read0": 0, "read1": 0,
                  "written": 0, "held": core_held}
        if core is not None:
            place(m, platform, "core", core, reset=core_held)
            wiring.connect(m, host.control, core.s_axi_control)
            wiring.connect(m, core.m00_axi, memory.m00_axi)
            wiring.connect(m, core.m01_axi, memory.m01_axi)
            events |= {"interrupt": core.interrupt, "read0": core.m00_axi.arvalid, "read1": core.m01_axi.arvalid,
                       "written": core.m00_axi.awvalid | core.m01_axi.awvalid}
        self._lamps(m, [events[name] for name in LAMPS])
        return m

    def _resets(self, m: Module):
        """Registers that hold everything, and the core: after power-up, with the button, at the host's wish."""
        button = Signal()
        m.submodules.button = FFSynchronizer(self.button, button)
        left = Signal(range(HOLD_CYCLES), init=HOLD_CYCLES - 1)
        held = Signal(init=1)
        core_held = Signal(init=1)
        with m.If(button):
            m.d.sync += left.eq(HOLD_CYCLES - 1)
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
        m.d.sync += held.eq(left != 0)
        return held, core_held

    def _lamps(self, m: Module, events: list) -> None:
        """Lamp 0 blinks; the others show an event until the next tick of its clock but one."""
        beat = Signal(self.config.lamp_log2)
        seen = Signal(len(events))
        shown = Signal(len(events))
        now = Cat(*events)
        m.d.sync += beat.eq(beat + 1)
        m.d.sync += seen.eq(seen | now)
        with m.If(beat == 0):
            m.d.sync += shown.eq(seen | now)
            m.d.sync += seen.eq(0)
        m.d.comb += self.lamps.eq(Cat(beat[-1], shown[1:]))
