"""What a host sees of the board itself, and where everything lies on the host's bus."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import AXI4Lite
from hw.board.link import ADDRESS_BITS

MEMORY_BASE, CONTROL_BASE, BOARD_BASE = 0x0000_0000, 0x8000_0000, 0xC000_0000
CONTROL_BITS = 12
IDENTITY = int.from_bytes(b"HOTR", "little")
REGISTERS = {"identity": 0x0, "memory_bytes": 0x4, "reset": 0x8}
HELD_CYCLES = 8     # of a reset that the host asked for
DECERR = 3


class BoardRegisters(wiring.Component):
    """Three words about the board; all other addresses answer DECERR.

    identity (0x0): IDENTITY. memory_bytes (0x4): the memory's size. reset (0x8): a write of 1 resets the core and its
    ports of the memory, not the memory's contents; reads 1 while that lasts.

    Parameters  memory_bytes: what the register says
    Members     bus    In(AXI4-Lite)  addresses as the host's
                reset  Out
    Timing      a word every 2 cycles; reset begins the cycle after the write and lasts HELD_CYCLES
    Reset       ends a reset that lasts
    Golden      the list above          Tests  verif/board/test_link.py, test_boundaries.py
    """

    def __init__(self, *, memory_bytes: int):
        self.memory_bytes = memory_bytes
        super().__init__({"bus": In(AXI4Lite(ADDRESS_BITS)), "reset": Out(1)})

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        held = Signal(range(HELD_CYCLES + 1))
        m.d.comb += self.reset.eq(held != 0)
        with m.If(self.reset):
            m.d.sync += held.eq(held - 1)

        write = Signal()
        m.d.comb += write.eq(bus.awvalid & bus.wvalid & ~bus.bvalid)
        m.d.comb += bus.awready.eq(write)
        m.d.comb += bus.wready.eq(write)
        with m.If(write):
            m.d.sync += bus.bvalid.eq(1)
            m.d.sync += bus.bresp.eq(DECERR)
            for offset in REGISTERS.values():
                with m.If(bus.awaddr == BOARD_BASE + offset):
                    m.d.sync += bus.bresp.eq(0)
            with m.If((bus.awaddr == BOARD_BASE + REGISTERS["reset"]) & bus.wdata[0] & bus.wstrb[0]):
                m.d.sync += held.eq(HELD_CYCLES)
        with m.Elif(bus.bready):
            m.d.sync += bus.bvalid.eq(0)

        m.d.comb += bus.arready.eq(~bus.rvalid)
        values = {"identity": IDENTITY, "memory_bytes": self.memory_bytes, "reset": self.reset}
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += bus.rvalid.eq(1)
            m.d.sync += bus.rdata.eq(0)
            m.d.sync += bus.rresp.eq(DECERR)
            for name, offset in REGISTERS.items():
                with m.If(bus.araddr == BOARD_BASE + offset):
                    m.d.sync += bus.rdata.eq(values[name])
                    m.d.sync += bus.rresp.eq(0)
        with m.Elif(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        return m


class HostMap(wiring.Component):
    """Takes a host's accesses to the memory, the core's control slave or the board's registers.

    Addresses below CONTROL_BASE are the memory's, the 4 KB from CONTROL_BASE on the control slave's, all others the
    registers', which answer DECERR where they have none.

    Parameters  control: whether there is a control slave; without one its addresses are the registers' too
    Members     bus  In(AXI4-Lite)  from a master that has one access under way and keeps its address until it is
                    answered
                memory, control, registers  Out(AXI4-Lite)
    Timing      wires
    Golden      the addresses above          Tests  verif/board/test_link.py, test_top.py
    """

    def __init__(self, *, control: bool):
        self.control_there = control
        super().__init__({
            "bus": In(AXI4Lite(ADDRESS_BITS)), "memory": Out(AXI4Lite(ADDRESS_BITS)),
            "control": Out(AXI4Lite(CONTROL_BITS)), "registers": Out(AXI4Lite(ADDRESS_BITS)),
        })

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        for direction, channels, payloads in (
                ("write", ("aw", "w"), {"aw": ("addr",), "w": ("data", "strb")}),
                ("read", ("ar",), {"ar": ("addr",)})):
            address = bus.awaddr if direction == "write" else bus.araddr
            answer = "b" if direction == "write" else "r"
            to_memory, to_control = Signal(name=f"{direction}_memory"), Signal(name=f"{direction}_control")
            m.d.comb += to_memory.eq(~address[-1])
            m.d.comb += to_control.eq((address[CONTROL_BITS:] == CONTROL_BASE >> CONTROL_BITS)
                                      & Const(self.control_there, 1))
            sides = ((self.memory, to_memory), (self.control, to_control),
                     (self.registers, ~(to_memory | to_control)))
            for side, mine in sides:
                for channel in channels:
                    for name in payloads[channel]:
                        m.d.comb += getattr(side, channel + name).eq(getattr(bus, channel + name))
                    m.d.comb += getattr(side, f"{channel}valid").eq(getattr(bus, f"{channel}valid") & mine)
                m.d.comb += getattr(side, f"{answer}ready").eq(getattr(bus, f"{answer}ready") & mine)
            for name in (*(f"{channel}ready" for channel in channels), f"{answer}valid", f"{answer}resp",
                         *(("rdata",) if answer == "r" else ())):
                (first, is_first), (second, is_second), (third, _) = sides
                m.d.comb += getattr(bus, name).eq(Mux(is_first, getattr(first, name), Mux(
                    is_second, getattr(second, name), getattr(third, name))))
        return m
