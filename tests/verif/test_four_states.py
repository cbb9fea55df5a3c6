"""Cores and a unit on Icarus, with unknowns for all that no reset and no program has set.

The benches are the ones that run on Verilator; `verif.bench.unknown` watches the ports meanwhile. A core's cycle costs
about ten milliseconds, so that cores run in `make regress` alone.
"""

import shutil

import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fpga.vitis.description import describe
from fpga.vitis.kernel_xml import kernel_xml
from gen.rtl import verilog
from gen.rtl.config import load
from gen.rtl.cores import CORES
from hw.kernel.doorbell import Doorbell
from hw.tt.serial import SerialTTUnit
from hw.tt.unit import TTUnit
from verif.bench import runner
from verif.tt.test_serial import SMALL

pytestmark = pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus is not installed (apt: iverilog)")
KERNELS = ["emb", "mlp", "hotline"]


def simulate(component, module, folder, *, tests, only=None, env=None, top=verilog.TOP):
    texts, metadata = verilog.convert(component, top)
    model = runner.icarus(texts, metadata, folder)
    return runner.run(model, module, tests=tests, only=only, env=env, seed=runner.seeds()[0])


@pytest.mark.regress
@pytest.mark.parametrize("bench", ["smoke", "reset_midstream"])
@pytest.mark.parametrize("core", KERNELS)
def test_cores(core, bench, tmp_path):
    """Programs end to end, resets in the middle of programs, and the programs again; every bit is the oracle's."""
    kernel, top = CORES[core].kernel(load("tiny").cores[core]), f"hotrail_{core}"
    path = tmp_path / "kernel.xml"
    path.write_bytes(kernel_xml(describe(core, "tiny", verilog.convert(kernel, top)[1])))
    simulate(kernel, "verif.kernel.test_top", tmp_path, tests=1, only=rf"\.{bench}$", top=top,
             env={"HOTRAIL_KERNEL_XML": path})


@pytest.mark.regress
def test_tensor_trains(tmp_path):
    simulate(TTUnit(load("tiny").cores["tt"]), "verif.tt.test_unit", tmp_path, tests=2, env={"TT_CONFIG": "tiny"},
             only=r"\.(smoke|reset_midstream)$")


@pytest.mark.regress
def test_serial_tensor_trains(tmp_path):
    simulate(SerialTTUnit(SMALL), "verif.tt.test_serial", tmp_path, tests=2, env={"SIZE": "small"},
             only=r"\.(smoke|reset_midstream)$")


class Leak(wiring.Component):
    """Valid behind a reset, with what no reset sets."""

    def __init__(self):
        super().__init__({"o__valid": Out(1), "o__payload": Out(8), "i": In(8)})

    def elaborate(self, platform):
        m = Module()
        held, after = Signal(8, reset_less=True), Signal()
        m.d.sync += [held.eq(held + self.i), after.eq(1)]
        m.d.comb += [self.o__valid.eq(after), self.o__payload.eq(held)]
        return m


LEAK = """
import cocotb
from cocotb.triggers import ClockCycles
from verif.bench import reset, start


@cocotb.test()
async def leaks(dut):
    start(dut)
    dut.i.value = 1
    await reset(dut)
    await ClockCycles(dut.clk, 4)
"""


def test_an_unknown_output_is_seen(tmp_path, monkeypatch):
    (tmp_path / "bench_leak.py").write_text(LEAK, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AssertionError, match="o__payload is XXXXXXXX although the unit was reset"):
        simulate(Leak(), "bench_leak", tmp_path, tests=1)


@pytest.mark.parametrize("only, tests", [(r"\.(smoke|reset_midstream)$", 2),
                                         pytest.param(None, 7, marks=pytest.mark.regress)])
def test_a_unit(tmp_path, only, tests):
    simulate(Doorbell(beat_bytes=16, bits=30), "verif.kernel.test_doorbell", tmp_path, tests=tests, only=only,
             env={"BITS": 30})
