"""The custom logic (CL) around a core for the Small Shell of AWS F2: its Verilog, and its top in SystemVerilog.

The top wires hw.f2.logic to the shell's ports, which the HDK's own cl_ports.vh declares, and to sh_ddr; it sets to 0
what a CL without PCIM, SDA, HBM and interrupts does not drive. Source of names and meanings: aws/aws-fpga@fd77a72,
hdk/common/shell_stable/design/interfaces/cl_ports.vh and sh_ddr/sh_ddr.stub.sv; Shell Interface Specification.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from amaranth.lib.wiring import Out

from gen.rtl import config
from gen.rtl.cores import CORES
from gen.rtl.delivery import LICENCE
from hw.axi.bus import AXI4, AXI4Lite
from hw.f2.interconnect import ID_BITS
from hw.f2.logic import CLOCK, CustomLogic

BEAT_BYTES = 64     # of the shell's ports and of sh_ddr

_DIMM = ("CLK_DIMM_DP", "CLK_DIMM_DN", "M_ACT_N", "M_MA", "M_BA", "M_BG", "M_CKE", "M_ODT", "M_CS_N", "M_CLK_DN",
         "M_CLK_DP", "M_PAR", "M_DQ", "M_ECC", "M_DQS_DP", "M_DQS_DN")
_ADDRESS = ("id", "addr", "len", "size", "burst", "cache", "lock", "prot", "qos", "user", "valid")
_LITE = ("awready", "wready", "bresp", "bvalid", "arready", "rdata", "rresp", "rvalid")
_APB = ("paddr", "pprot", "psel", "penable", "pwrite", "pwdata", "pstrb", "pready", "prdata", "pslverr")
_ABSENT = ("cache", "lock", "prot", "qos")      # from sh_ddr; `region` from the shell, too


def custom_logic(preset: str | Path | config.Preset, core: str) -> CustomLogic:
    """The component hw.f2.logic.CustomLogic around a core of a preset.

    Raises      ConfigError: the preset; ValueError: it has no such core, the core is no kernel, or its beats are not
                those of the shell
    """
    chosen = config.load(preset) if isinstance(preset, str | Path) else preset
    kernels = [name for name in chosen.cores if CORES[name].is_kernel]
    if core not in kernels:
        raise ValueError(f"core = {core!r}: must be one of the kernels of preset {chosen.name}, {', '.join(kernels)}")
    unit = CORES[core].unit(chosen.cores[core])
    if (found := unit.m00_axi.wdata.shape().width // 8) != BEAT_BYTES:
        raise ValueError(f"preset {chosen.name}: the {core} core has beats of {found} bytes, and F2's memory has beats "
                         f"of {BEAT_BYTES}: take a preset of 16 words")
    return CustomLogic(unit)


def unused() -> list[str]:
    """The shell's inputs that the top sets to 0. No request leaves by PCIM; none that comes by SDA is answered, so the
    shell's time-out ends it."""
    return [
        *(f"cl_sh_status{number}" for number in range(3)), "cl_sh_dma_wr_full", "cl_sh_dma_rd_full",
        *(f"cl_sh_pcim_{channel}{name}" for channel in ("aw", "ar") for name in _ADDRESS),
        *(f"cl_sh_pcim_w{name}" for name in ("id", "data", "strb", "last", "user", "valid")),
        "cl_sh_pcim_bready", "cl_sh_pcim_rready", "cl_sh_apppf_irq_req", "cl_sh_dma_pcis_ruser",
        *(f"cl_sda_{name}" for name in _LITE), "tdo",
        *(f"hbm_apb_{name}_{stack}" for stack in range(2) for name in _APB),
        *(f"PCIE_{name}" for name in ("EP_TXP", "EP_TXN", "RP_PERSTN", "RP_TXP", "RP_TXN")),
    ]


def top(name: str, logic: str) -> str:
    """The CL's top module `name` around `logic`, the module of a CustomLogic."""
    parts = {CLOCK: CLOCK, "rst_main_n": "rst_main_n", "ddr_rst_n": "ddr_rst_n", "ddr_ready": "ddr_ready",
             "vled": "cl_sh_status_vled", "flr_assert": "sh_cl_flr_assert", "flr_done": "cl_sh_flr_done"}
    ddr = {"clk": CLOCK, "rst_n": "ddr_rst_n", "stat_clk": CLOCK, "stat_rst_n": "ddr_rst_n",
           **{pin: pin for pin in _DIMM}, "cl_RST_DIMM_N": "RST_DIMM_N"}
    wires = {"ddr_rst_n": 1, "ddr_ready": 1}
    for field, to_slave, _ in _members(AXI4Lite(32)):
        parts[f"ocl__{field}"] = f"{'ocl_cl' if to_slave else 'cl_ocl'}_{field}"
    for field, to_slave, bits in _members(AXI4(8 * BEAT_BYTES, id_bits=ID_BITS)):
        absent = field.endswith("region")
        parts[f"pcis__{field}"] = f"{bits}'d0" if absent else f"{'sh_cl' if to_slave else 'cl_sh'}_dma_pcis_{field}"
        if absent or field[2:] in _ABSENT:
            parts[f"ddr__{field}"] = ""
            continue
        wires[f"ddr_{field}"] = bits
        parts[f"ddr__{field}"] = ddr[f"cl_sh_ddr_axi_{field}"] = f"ddr_{field}"
    ddr |= {"cl_sh_ddr_axi_awuser": "1'd0", "cl_sh_ddr_axi_aruser": "1'd0"}     # no auto-precharge
    ddr |= {f"sh_ddr_stat_bus_{field}": f"sh_cl_ddr_stat_{field}" for field in ("addr", "wdata", "wr", "rd")}
    ddr |= {f"sh_ddr_stat_bus_{field}": f"cl_sh_ddr_stat_{field}" for field in ("ack", "rdata")}
    ddr |= {"ddr_sh_stat_int": "cl_sh_ddr_stat_int", "sh_cl_ddr_is_ready": "ddr_ready"}
    return "".join([
        f"// SPDX-License-Identifier: {LICENCE}\n"
        "// Custom logic for the Small Shell of AWS F2. Generated: do not edit.\n\n"
        f"module {name} (\n  `include \"cl_ports.vh\"\n);\n\n`include \"cl_id_defines.vh\"\n\n",
        *(f"  wire {f'[{bits - 1}:0] ' if bits > 1 else ''}{wire};\n" for wire, bits in wires.items()),
        "\n", _instance(logic, "LOGIC", parts), "\n", _instance("sh_ddr #(.DDR_PRESENT(1))", "SH_DDR", ddr),
        "\n  assign cl_sh_id0 = `CL_SH_ID0;\n  assign cl_sh_id1 = `CL_SH_ID1;\n\n",
        *(f"  assign {port} = '0;\n" for port in unused()), "\nendmodule\n",
    ])


def _members(signature: Any) -> Iterable[tuple[str, bool, int]]:
    """Of a bus: name, whether the master drives it, bits."""
    return [(name, member.flow == Out, member.shape) for name, member in signature.members.items()]


def _instance(module: str, name: str, connections: dict[str, str]) -> str:
    wide = max(map(len, connections))
    lines = ",\n".join(f"    .{port:{wide}} ({wire})" for port, wire in connections.items())
    return f"  {module} {name} (\n{lines}\n  );\n"
