"""The top of a Vitis kernel: the names, the clock and the reset that AMD's tools ask for."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.place import Part, place

CLOCK, RESET = "ap_clk", "ap_rst_n"


class VitisKernel(Part):
    """A core as `v++` links it: flat names in lower case, `ap_clk`, `ap_rst_n`.

    Source: UG1393, requirements of an RTL kernel

    Parameters  core: a component with the members of hw.kernel.shell.kernel_ports and an attribute `kernel`
    Members     ap_rst_n         In  low while the kernel is held; the clock is `ap_clk`
                interrupt        Out  the core's
                s_axi_control_*  In(AXI4-Lite)  the core's, with one underscore where its Verilog has two
                m00_axi_*        Out(AXI4)  in the same manner
                m01_axi_*        Out(AXI4)  in the same manner
    Timing      wires; the reset reaches the core 2 cycles after `ap_rst_n`, so that its fan-out begins at a register
    Handshake   the core's; for those 2 cycles more the control slave is not ready, so that no access is lost in them
    Reset       that of the core; it holds the core from configuration on until `ap_rst_n` is high. Held for 3 cycles or
                more (Vitis: 16); all VALIDs are low from the fourth on
    Raises      TypeError: the core describes no kernel
    Golden      the core's          Tests  verif/kernel/test_top.py
    """

    verilog_clock, verilog_reset = CLOCK, ""

    def __init__(self, core):
        if getattr(core, "kernel", None) is None:
            raise TypeError(f"{type(core).__name__} describes no kernel: it has no attribute `kernel`")
        self.core, self.kernel, self.config = core, core.kernel, getattr(core, "config", None)
        flat = {"_".join(map(str, path)): wiring.Member(member.flow, member.shape)
                for path, member, _ in core.signature.flatten(core)}
        super().__init__({RESET: In(1), **flat})

    def elaborate(self, platform):
        m = Module()
        held = Signal(2, init=0b11, reset_less=True)
        m.d.sync += held.eq(Cat(~getattr(self, RESET), held[0]))
        place(m, platform, "core", self.core, reset=held[1])
        for path, member, inner in self.core.signature.flatten(self.core):
            outer = getattr(self, "_".join(map(str, path)))
            if path[0] == "s_axi_control" and path[-1].endswith("ready") and member.flow == Out:
                m.d.comb += outer.eq(inner & ~held[1])
            elif member.flow == In:
                m.d.comb += inner.eq(outer)
            else:
                m.d.comb += outer.eq(inner)
        return m
