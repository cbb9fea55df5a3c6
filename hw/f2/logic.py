"""The custom logic of an F2 instance: a core, its control registers and the card's DDR4 behind the shell's ports."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import AXI4, AXI4Lite
from hw.f2.interconnect import ID_BITS, Interconnect
from hw.place import Part, place

CLOCK = "clk_main_a0"
ADDRESS_BITS = 36       # 64 GB of DDR4
CONTROL_BITS = 12
NOBODY = (1 << CONTROL_BITS) - 4    # a word of the control slave that nobody has


class CustomLogic(Part):
    """A core as the Small Shell of an F2 instance sees it; gen.rtl.f2 names the shell's ports.

    The host reaches the core's control registers (hw.isa) by OCL (BAR0), from 0 on, and all of the memory by PCIS
    (BAR4), from 0 on: programs, inputs, tables and results. The core sees the memory at the same addresses.
    Source: AWS Shell Interface Specification (F2, Small Shell)

    Parameters  core: a component with the members of hw.kernel.shell.kernel_ports
    Members     rst_main_n  In  the shell's reset; the clock is `clk_main_a0`
                ddr_rst_n   Out  the same from a register, for sh_ddr
                ddr_ready   In  sh_ddr is calibrated; the host may use PCIS from then on
                vled        Out(16)  bit 0: ddr_ready; bit 1: the core's interrupt
                flr_assert  In  a function-level reset is under way
                flr_done    Out  its answer; the core goes on, and whoever opens the card next ends its run
                ocl         In(AXI4-Lite, 32 address bits)  from 4 KB on words read 0 and ignore writes
                pcis        In(AXI4, 16 ID bits)  see Interconnect
                ddr         Out(AXI4, 16 ID bits)  see Interconnect
    Timing      that of the core and of Interconnect; the reset reaches both 2 cycles after rst_main_n
    Handshake   nothing at ocl and pcis is ready while the reset lasts
    Reset       of everything together with the memory: answers to what was asked before must not come after it
    Raises      ValueError: a control register that lies at the last word of the 4 KB
    Golden      golden.emb.core, for the EMB core          Tests  verif/f2/test_logic.py
    """

    verilog_clock, verilog_reset = CLOCK, ""

    def __init__(self, core):
        self.core, self.kernel, self.config = core, core.kernel, getattr(core, "config", None)
        if self.kernel.control_bytes > NOBODY:
            raise ValueError(f"{self.kernel.name}: the control registers take {self.kernel.control_bytes} bytes, and "
                             f"at most {NOBODY} may be taken")
        data_bits = core.m00_axi.wdata.shape().width
        memory = AXI4(data_bits, id_bits=ID_BITS)
        super().__init__({
            "rst_main_n": In(1), "ddr_rst_n": Out(1), "ddr_ready": In(1), "vled": Out(16), "flr_assert": In(1),
            "flr_done": Out(1), "ocl": In(AXI4Lite(32)), "pcis": In(memory), "ddr": Out(memory),
        })

    def elaborate(self, platform):
        m = Module()
        core = self.core
        held = Signal(2, init=0b11, reset_less=True)
        m.d.sync += held.eq(Cat(~self.rst_main_n, held[0]))
        m.d.comb += self.ddr_rst_n.eq(~held[0])
        join = Interconnect(beat_bytes=core.m00_axi.wdata.shape().width // 8, address_bits=ADDRESS_BITS)
        place(m, platform, "core", core, reset=held[1])
        place(m, platform, "join", join, reset=held[1])
        wiring.connect(m, core.m00_axi, join.m00_axi)
        wiring.connect(m, core.m01_axi, join.m01_axi)
        wiring.connect(m, join.memory, wiring.flipped(self.ddr))
        for outside, inside in ((self.pcis, join.host), (self.ocl, core.s_axi_control)):
            for (name,), member, inner in inside.signature.flatten(inside):
                outer = getattr(outside, name)
                if inside is core.s_axi_control and name in ("awaddr", "araddr"):
                    m.d.comb += inner.eq(Mux(outer[CONTROL_BITS:].any(), NOBODY, outer[:CONTROL_BITS]))
                elif member.flow == In:
                    m.d.comb += inner.eq(outer)
                else:
                    m.d.comb += outer.eq(inner & ~held[1] if name.endswith("ready") else inner)
        m.d.sync += self.flr_done.eq(self.flr_assert)
        m.d.sync += self.vled.eq(Cat(self.ddr_ready, core.interrupt))
        return m
