"""The Small Shell of AWS F2 around a custom logic: OCL, PCIS, the DDR4 behind sh_ddr, and the shell's time-out.

Ports and sh_ddr are stand-ins by the names and widths of aws/aws-fpga@fd77a72 (hdk/common/shell_stable/design:
interfaces/cl_ports.vh, sh_ddr/sh_ddr.stub.sv). The masters and the memory are by another hand (cocotbext-axi). Source
of the rules: Shell Interface Specification; errata: PCIS bursts of the instance have ID 0x20, are INCR and of 64-byte
beats, their strobes say which bytes count, and 8 us after its address was shown a request must be over.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from logging import ERROR, getLogger
from types import SimpleNamespace
from typing import Any

import cocotb
from amaranth.hdl import Module
from amaranth.lib import wiring
from cocotb.triggers import ClockCycles
from cocotb.utils import get_sim_time

from gen.rtl.f2 import top
from hw.axi.bus import attach
from hw.axi.control import IDLE, ControlSlave
from hw.board.registers import CONTROL_BASE
from hw.isa import EMB
from hw.kernel.shell import kernel_ports
from hw.place import Part
from verif.bench.driver import Driver, Steps
from verif.bench.memory import CardMemory
from verif.bench.stream import Pattern

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it uses names that cocotb 2 keeps for a while
    from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiMaster, AxiResp, AxiSlave  # type: ignore

CL = "cl_hotrail"
HOST_ID = 0x20
PERIOD_NS = 4
LIMIT = 8000 // PERIOD_NS       # cycles in 8 us
TLP_BYTES = 256     # of a request of the instance
ISSUED = 32         # requests of a kind that the shell issues at most before it waits for an answer
_FULL = "awid:16 awaddr:64 awlen:8 awsize:3 awburst:2 awcache:4 awlock awprot:3 awqos:4 awuser:55 awvalid awready< " \
        "wid:16 wdata:512 wstrb:64 wlast wuser:64 wvalid wready< bid:16< bresp:2< bvalid< bready " \
        "arid:16 araddr:64 arlen:8 arsize:3 arburst:2 arcache:4 arlock arprot:3 arqos:4 aruser:55 arvalid arready< " \
        "rid:16< rdata:512< rresp:2< rlast< ruser:64< rvalid< rready"
_LITE = "awaddr:32 awvalid awready< wdata:32 wstrb:4 wvalid wready< bresp:2< bvalid< bready araddr:32 arvalid " \
        "arready< rdata:32< rresp:2< rvalid< rready"
_APB = "preset_n paddr:22< pprot:3< psel< penable< pwrite< pwdata:32< pstrb:4< pready< prdata:32< pslverr<"
_DIMM = "CLK_DIMM_DP CLK_DIMM_DN M_ACT_N< M_MA:18< M_BA:2< M_BG:2< M_CKE:2< M_ODT:2< M_CS_N:2< M_CLK_DN:2< " \
        "M_CLK_DP:2< M_PAR< M_DQ:64= M_ECC:8= M_DQS_DP:18= M_DQS_DN:18="
_REST = "clk_main_a0 rst_main_n clk_hbm_ref sh_cl_flr_assert cl_sh_flr_done< cl_sh_status0:32< cl_sh_status1:32< " \
        "cl_sh_status2:32< cl_sh_id0:32< cl_sh_id1:32< sh_cl_ctl0:32 sh_cl_ctl1:32 sh_cl_ctl2:32 " \
        "sh_cl_status_vdip:16 cl_sh_status_vled:16< sh_cl_pwr_state:2 cl_sh_dma_wr_full< cl_sh_dma_rd_full< " \
        "cfg_max_payload:2 cfg_max_read_req:3 RST_DIMM_N< sh_cl_ddr_stat_addr:8 sh_cl_ddr_stat_wdata:32 " \
        "sh_cl_ddr_stat_wr sh_cl_ddr_stat_rd sh_cl_ddr_stat_user:3 cl_sh_ddr_stat_ack< cl_sh_ddr_stat_rdata:32< " \
        "cl_sh_ddr_stat_int:8< cl_sh_apppf_irq_req:16< sh_cl_apppf_irq_ack:16 drck shift tdi update sel tdo< tms tck " \
        "runtest reset capture bscanid_en sh_cl_glcount0:64 sh_cl_glcount1:64"
_LINKS = "PCIE_EP_PERSTN PCIE_EP_REF_CLK_P PCIE_EP_REF_CLK_N PCIE_EP_TXP:8< PCIE_EP_TXN:8< PCIE_EP_RXP:8 " \
         "PCIE_EP_RXN:8 PCIE_RP_PERSTN< PCIE_RP_REF_CLK_P PCIE_RP_REF_CLK_N PCIE_RP_TXP:8< PCIE_RP_TXN:8< " \
         "PCIE_RP_RXP:8 PCIE_RP_RXN:8"
_STATS = "sh_ddr_stat_bus_addr:8 sh_ddr_stat_bus_wdata:32 sh_ddr_stat_bus_wr sh_ddr_stat_bus_rd " \
         "sh_ddr_stat_bus_ack< sh_ddr_stat_bus_rdata:32< ddr_sh_stat_int:8< sh_cl_ddr_is_ready<"


def _ports(listed: str, name: Callable[[str, bool], str] = lambda field, back: field) -> dict[str, tuple[str, int]]:
    """(direction, bits) by name, of "name:bits" with `<` for outputs and `=` for pins of both directions."""
    found = {}
    for word in listed.split():
        field, _, bits = word.rstrip("<=").partition(":")
        kind = {"<": "output", "=": "inout"}.get(word[-1], "input")
        found[name(field, kind == "output")] = kind, int(bits or 1)
    return found


def ports() -> dict[str, tuple[str, int]]:
    """The ports that a CL has: direction and bits by name."""
    turned = {"input": "output", "output": "input"}
    pcim = _ports(_FULL, lambda field, back: f"{'sh_cl' if back else 'cl_sh'}_pcim_{field}")
    return {
        **_ports(_REST), **_ports(_DIMM), **_ports(_LINKS),
        **{name: (turned[kind], bits) for name, (kind, bits) in pcim.items()},
        **_ports(_FULL, lambda field, back: f"{'cl_sh' if back else 'sh_cl'}_dma_pcis_{field}"),
        **_ports(f"{_LITE} awuser:55 aruser:55", lambda field, back: f"{'cl_ocl' if back else 'ocl_cl'}_{field}"),
        **_ports(_LITE, lambda field, back: f"{'cl_sda' if back else 'sda_cl'}_{field}"),
        **{f"hbm_apb_{name}_{stack}": port for stack in range(2) for name, port in _ports(_APB).items()},
    }


def _declared(listed: Mapping[str, tuple[str, int]], mark: str = "") -> str:
    return ",\n".join(f"  {kind} wire [{bits - 1}:0] {name}{mark}" for name, (kind, bits) in listed.items())


def sh_ddr(visible: bool = False) -> str:
    """A sh_ddr of ports alone. visible: a bench reaches them."""
    axi = " ".join(word for word in _FULL.split() if word.rstrip("<").partition(":")[0] not in (
        "wid", "wuser", "ruser", *(f"{channel}{name}" for channel in ("ar", "aw")
                                   for name in ("cache", "lock", "prot", "qos")))).replace("user:55", "user")
    bus = _ports(axi, lambda field, back: f"cl_sh_ddr_axi_{field}") | _ports("rst_n sh_cl_ddr_is_ready<")
    rest = _ports("clk stat_clk stat_rst_n cl_RST_DIMM_N<") | _ports(_DIMM) | _ports(_STATS)
    rest.pop("sh_cl_ddr_is_ready")
    mark = " /* verilator public_flat_rw */" if visible else ""
    return (f"module sh_ddr #(parameter DDR_PRESENT = 1) (\n{_declared(rest)},\n{_declared(bus, mark)}\n);\n"
            "endmodule\n")


def texts(logic: Mapping[str, str], module: str, *, visible: bool = False) -> dict[str, str]:
    """A CL's top with what it includes, sh_ddr, and the Verilog of its logic, by file name."""
    own = top(CL, module).replace('`include "cl_ports.vh"', _declared(ports())).replace(
        '`include "cl_id_defines.vh"', "`define CL_SH_ID0 32'd1\n`define CL_SH_ID1 32'd2")
    return {**logic, f"{CL}.sv": own, "sh_ddr.sv": sh_ddr(visible)}


def metadata_of(logic: Mapping[str, Any]) -> dict[str, Any]:
    """Of the top, from that of its logic."""
    return {**logic, "top": CL, "clock": "clk_main_a0", "reset": "", "streams": [], "ports": {
        name: {"direction": "out" if kind == "output" else "in", "width": bits, "signed": False}
        for name, (kind, bits) in ports().items() if kind != "inout"}}


class Registers(Part):
    """A core of the EMB core's registers alone, at whose masters nothing happens: elaborated in a second.

    Golden      none, it is a stand-in          Tests  verif/f2/test_logic.py
    """

    kernel = EMB

    def __init__(self):
        super().__init__(kernel_ports(64))

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.control = control = ControlSlave(kernel=EMB, constants=[("core", EMB.number)])
        wiring.connect(m, wiring.flipped(self.s_axi_control), control.bus)
        m.d.comb += self.interrupt.eq(control.interrupt)
        for port in (self.m00_axi, self.m01_axi):
            attach(m, port)
        return m


def issue_all(master: AxiMaster) -> None:
    """Lets a master show an address as soon as the one before is taken, however far the data are behind, as the shell
    does, which issues ISSUED requests of each kind before an answer."""
    for channel, beats in ((master.read_if.ar_channel, 1), (master.write_if.aw_channel, 1),
                           (master.write_if.w_channel, TLP_BYTES // 64)):
        channel.queue_occupancy_limit = ISSUED * beats


class Deadlines:
    """Counts the cycles of every request from the first of its address to the end of its answer.

    channels: name -> (address valid and ready, answer valid and ready, last beat or None). waits: of those that are
    over, by name. A request that lasts longer than LIMIT is an AssertionError. works: while this signal is low
    nothing is looked at, as registers begin at random."""

    def __init__(self, clock: Any, channels: Mapping[str, Sequence[Any]], *, works: Any = None):
        self.waits: dict[str, list[int]] = {name: [] for name in channels}
        self._channels, self._works = channels, works
        self._since: dict[str, list[int]] = {}
        self.forget()
        self._driver = Driver(self._watch(), clock)

    def forget(self) -> None:
        """A reset has ended what is under way."""
        self._since = {name: [] for name in self._channels}
        self._shown = dict.fromkeys(self._channels, False)

    def stop(self) -> None:
        self._driver.stop()

    def _watch(self) -> Steps:
        cycle = 0
        while True:
            yield
            cycle += 1
            if self._works is not None and self._works.value != 1:
                continue
            for name, (valid, ready, answer, taken, last) in self._channels.items():
                since, shows = self._since[name], valid.value == 1
                if shows and not self._shown[name]:
                    since.append(cycle)
                self._shown[name] = shows and ready.value != 1
                if since and cycle - since[0] > LIMIT:
                    raise AssertionError(f"{name}: not answered after {LIMIT} cycles: the shell has ended it")
                if answer.value == 1 and taken.value == 1 and (last is None or last.value == 1):
                    assert since, f"{name}: an answer to nothing"
                    self.waits[name].append(cycle - since.pop(0))


class _Ddr:
    """The memory as cocotbext-axi's slave asks it. What was never written cannot be read: ECC."""

    def __init__(self) -> None:
        self.memory = CardMemory(64)
        self.violations: list[str] = []

    async def read(self, address: int, length: int) -> bytes:
        if address // 64 not in self.memory.beats:
            self.violations.append(f"read of {address:#x}, which was never written")
            raise ValueError("SLVERR")
        return self.memory.read(address, length)

    async def write(self, address: int, data: bytes) -> None:
        self.memory.write(address, data)


class Shell:
    """The shell, for a bench: words and bytes as a host reaches them by BAR0 and BAR4, and the reset.

    stalls: a pattern for each channel, by its name; channels pause where it says so. Addresses from CONTROL_BASE on
    are those of BAR0, as on other boards; all others are the memory's."""

    def __init__(self, dut: Any, stalls: Callable[[str], Pattern] | None = None):
        getLogger("cocotb.cl").setLevel(ERROR)      # cocotbext-axi tells of every transfer
        self.dut, clock, reset = dut, dut.clk_main_a0, dut.rst_main_n
        self.ddr = _Ddr()
        dut.sh_cl_flr_assert.value = 0

        def entity(prefix: str, fields: str, to: str, back: str) -> Any:
            names = {field: f"{back if kind == 'output' else to}_{field}" for field, (kind, _) in _ports(fields).items()
                     if not field.endswith("user") and field != "wid"}
            return SimpleNamespace(_name=f"cl.{prefix}", _log=getLogger(f"cocotb.cl.{prefix}"), **{
                f"{prefix}_{field}": getattr(dut, name) for field, name in names.items()})

        ocl = AxiLiteBus.from_prefix(entity("ocl", _LITE, "ocl_cl", "cl_ocl"), "ocl")
        pcis = AxiBus.from_prefix(entity("pcis", _FULL, "sh_cl_dma_pcis", "cl_sh_dma_pcis"), "pcis")
        ddr = AxiBus.from_prefix(dut.SH_DDR, "cl_sh_ddr_axi")
        self._ocl = AxiLiteMaster(ocl, clock, reset, reset_active_level=False)
        self._pcis = AxiMaster(pcis, clock, reset, reset_active_level=False, max_burst_len=TLP_BYTES // 64)
        issue_all(self._pcis)
        self._ddr = AxiSlave(ddr, clock, reset, reset_active_level=False, target=self.ddr)
        for name, part in (("ocl", self._ocl), ("pcis", self._pcis), ("ddr", self._ddr)):
            for side, channels in ((part.write_if, ("aw", "w", "b")), (part.read_if, ("ar", "r"))):
                side.log.setLevel(ERROR)
                for channel in channels if stalls else ():
                    getattr(side, f"{channel}_channel").set_pause_generator(
                        not go for go in stalls(f"{name} {channel}"))
        self.deadlines = Deadlines(clock, {
            f"{name} {kind}": (bus.arvalid, bus.arready, bus.rvalid, bus.rready, getattr(bus, "rlast", None))
            if kind == "read" else (bus.awvalid, bus.awready, bus.bvalid, bus.bready, None)
            for name, whole in (("ocl", ocl), ("pcis", pcis)) for kind, bus in (
                ("read", SimpleNamespace(**(vars(whole.read.ar) | vars(whole.read.r)))),
                ("write", SimpleNamespace(**(vars(whole.write.aw) | vars(whole.write.b)))))}, works=reset)

    def stop(self) -> None:
        self.deadlines.stop()

    async def _ddr_is_reset(self, level: int) -> None:
        """sh_ddr's reset follows from a register."""
        await ClockCycles(self.dut.clk_main_a0, 2)
        assert int(self.dut.SH_DDR.rst_n.value) == level

    async def reset(self, cycles: int = 8) -> None:
        """The shell's, at any time, with a read at the edge that ends it; then until sh_ddr is calibrated."""
        dut = self.dut
        dut.rst_main_n.value, dut.SH_DDR.sh_cl_ddr_is_ready.value = 0, 0
        await self._ddr_is_reset(0)
        await ClockCycles(dut.clk_main_a0, cycles - 2)
        self.deadlines.forget()
        dut.rst_main_n.value = 1
        first = cocotb.start_soon(self.read(CONTROL_BASE, 1))
        await self._ddr_is_reset(1)
        await ClockCycles(dut.clk_main_a0, 6)
        assert int(dut.cl_sh_status_vled.value) & 1 == 0
        dut.SH_DDR.sh_cl_ddr_is_ready.value = 1
        await ClockCycles(dut.clk_main_a0, 4)
        assert int(dut.cl_sh_status_vled.value) & 1 == 1
        assert await first == [1 << IDLE]

    def check(self) -> None:
        assert not self.ddr.violations, self.ddr.violations[0]

    async def _in_time(self, request: Any, size: int) -> Any:
        """The answer. The shell issues requests before the CL sees them, and their time counts from then: what it
        issues at once must be over within LIMIT."""
        began = get_sim_time("ns")
        answer = await request
        cycles = (get_sim_time("ns") - began) / PERIOD_NS
        assert size > ISSUED * TLP_BYTES or cycles <= LIMIT, f"{size} bytes took {cycles:.0f} cycles"
        return answer

    async def write_bytes(self, address: int, content: bytes) -> None:
        write = await self._in_time(self._pcis.write(address, content, awid=HOST_ID), len(content))
        assert write.resp == AxiResp.OKAY

    async def is_answered(self, address: int) -> bool:
        """Whether a read is answered without an error."""
        return bool((await self._pcis.read(address, 64, arid=HOST_ID)).resp == AxiResp.OKAY)

    async def read_bytes(self, address: int, size: int) -> bytes:
        read = await self._in_time(self._pcis.read(address, size, arid=HOST_ID), size)
        assert read.resp == AxiResp.OKAY, f"{size} bytes at {address:#x}: {read.resp}"
        return bytes(read.data)

    async def write(self, address: int, words: Sequence[int]) -> None:
        if not 0 <= address - CONTROL_BASE < 1 << 26:
            await self.write_bytes(address, b"".join(word.to_bytes(4, "little") for word in words))
            return
        for number, word in enumerate(words):
            await self._ocl.write_dword(address - CONTROL_BASE + 4 * number, word)

    async def read(self, address: int, count: int) -> list[int]:
        if not 0 <= address - CONTROL_BASE < 1 << 26:
            return list(memoryview(await self.read_bytes(address, 4 * count)).cast("I"))
        return [await self._ocl.read_dword(address - CONTROL_BASE + 4 * number) for number in range(count)]
