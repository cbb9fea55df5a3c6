"""A whole custom logic in the Small Shell: programs of the EMB core by PCIS and OCL, bit by bit, against the oracle.

The model is that of the top as the HDK gets it, with ports and sh_ddr of verif.f2.shell. What it takes to be carried to
an instance is what is tried here: fill the memory, write the arguments, start, poll, read the results.
"""

import os
from dataclasses import replace

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from gen.compiler.tables import DRAM, SSD, TT
from gen.rtl import verilog
from gen.rtl.config import load
from gen.rtl.f2 import custom_logic
from hw.axi.control import CTRL, IDLE, SW_RESET
from hw.board.registers import CONTROL_BASE
from hw.emb.core import EmbCore
from hw.f2.logic import CustomLogic
from hw.isa import EMB
from hw.kernel.identity import identity
from verif.bench import report, rng, start
from verif.bench.runner import build_texts, run, seeds
from verif.bench.stream import bursty, sometimes
from verif.board.test_top import Driver, Work
from verif.f2.shell import Registers, Shell, metadata_of, texts

WAIVED = {"latency_and_rate_as_documented": "It is wires around parts that are measured in their own "
                                            "benches."}
SOAK = int(os.environ.get("HOTRAIL_F2_BAGS", "100000"))
BATCH = 200     # bags of a mode


def core_config():
    """The smallest core with beats of 64 bytes."""
    small = load("tiny").cores["emb"]
    return replace(small, tt=replace(small.tt, grid_log2=2))


class Host(Driver):
    base, memory_bytes = 0xA_5A5A_0000, 1 << 20

    async def end(self, polls=100_000):
        """A poll takes some 20 cycles, so a batch of many bags takes thousands."""
        await super().end(polls)


async def _power_up(dut, stalls=None):
    start(dut, 4)
    shell = Shell(dut, stalls)
    await shell.reset()
    return shell


async def _begin(dut, label="work", stalls=None):
    shell = await _power_up(dut, stalls)
    host = Host(dut, Work(label, core_config(), (DRAM, TT, DRAM, TT, DRAM, DRAM, SSD)), shell)
    await host.prepare()
    await host.run(host.work.compiler.load())
    return host, shell


@cocotb.test(skip="REGISTERS" not in os.environ)
@pytest.mark.testpoint("smoke", "reset_midstream", "corner_values")
async def without_a_core(dut):
    """The core's registers by OCL, which end at 4 KB; memory by PCIS at any byte, to its last and no further; a
    function-level reset is answered; the shell's reset at any time of requests."""
    shell = await _power_up(dut, lambda name: sometimes(0.8, rng(name)))
    draw, at = rng("content"), CONTROL_BASE + EMB.arguments[0].offset
    assert await shell.read(CONTROL_BASE + EMB.register("core").offset, 1) == [EMB.number]
    await shell.write(at, [0x600D_F00D])
    for beyond in (12, 25):
        await shell.write(at | 1 << beyond, [draw.getrandbits(32)])
        assert await shell.read(at | 1 << beyond, 1) == [0]
    assert await shell.read(at, 1) == [0x600D_F00D]
    for address, size in ((0, 64), (0xA_5A5A_0FC1, 4000), ((64 << 30) - 300, 300)):
        content = draw.randbytes(size)
        await shell.write_bytes(address, content)
        assert await shell.read_bytes(address, size) == content
    assert not await shell.is_answered(64 << 30), "behind the memory's end"
    dut.sh_cl_flr_assert.value = 1
    await ClockCycles(dut.clk_main_a0, 3)
    assert dut.cl_sh_flr_done.value == 1
    dut.sh_cl_flr_assert.value = 0
    for _ in range(4):
        tasks = [cocotb.start_soon(job) for job in (shell.write_bytes(1 << 30, bytes(1000)), shell.read_bytes(0, 64),
                                                    shell.write(at, [1]))]
        await ClockCycles(dut.clk_main_a0, draw.randrange(1, 40))
        for task in tasks:
            task.cancel()
        await shell.reset(draw.randrange(4, 20))
        assert await shell.read(at, 1) == [0] and len(await shell.read_bytes(0, 64)) == 64
    shell.check()


@cocotb.test(skip="REGISTERS" in os.environ)
async def smoke(dut):
    """Identity by OCL, tables by PCIS, a batch over three memories."""
    host, shell = await _begin(dut)
    for name, value in identity(EMB, host.work.config):
        assert await host.control(EMB.register(name).offset) == value, name
    await host.run(host.work.batch())
    await host.judge_rows()
    assert all([await host.word(name) for name in ("dram_rows", "tt_rows", "ssd_rows", "cycles")]), "three memories"
    shell.check()


@cocotb.test(skip="REGISTERS" in os.environ)
async def backpressure_both_sides(dut):
    """While the core runs the host reads and writes the same memory, every channel pauses, in bursts and at random; all
    requests are answered in time."""
    host, shell = await _begin(dut, stalls=lambda name: (bursty if "ddr" in name else lambda r: sometimes(0.7, r))(
        rng(name)))
    spare = Host.base + Host.memory_bytes
    for number in range(3):
        await host.begin(host.work.batch(40))
        content = rng(f"content {number}").randbytes(4096)
        for _ in range(4):
            await shell.write_bytes(spare + 3, content)
            assert await shell.read_bytes(spare + 3, 4096) == content
        await host.end()
        await host.judge(host.program)
    await host.judge_rows()
    shell.check()
    report(worst={name: max(waits, default=0) for name, waits in shell.deadlines.waits.items()})


@cocotb.test(skip="REGISTERS" in os.environ)
async def reset_midstream(dut):
    """The host's reset of the core by CTRL, and the shell's reset of everything, at any time of a run: the next run is
    right, with the tables that stay, or are loaded anew."""
    host, shell = await _begin(dut)
    draw = rng("when")
    for kind in ("host", "shell") * 3:
        rows, program = host.work.rows.copy(), host.work.batch()
        await host.begin(program)
        await ClockCycles(dut.clk_main_a0, draw.randrange(1, 300))
        if kind == "host":
            await host.control(CTRL, 1 << SW_RESET)
            for _ in range(100):
                if not await host.control(CTRL) >> SW_RESET & 1:
                    break
            assert await host.control(CTRL) == 1 << IDLE
        else:
            await shell.reset(draw.randrange(4, 20))
            assert await host.control(CTRL) == 1 << IDLE and await host.control(EMB.arguments[0].offset) == 0
            await host.run(host.work.compiler.load())
        host.work.rows = rows
        await shell.write_bytes(host.at["rows"], rows.tobytes())
        await host.run(program)
    shell.check()


@cocotb.test(skip="REGISTERS" in os.environ)
async def soak(dut):
    """100,000 bags of all modes in batches, over card memory, tensor trains and pages that the host lands, with stalls,
    and a reset after some batches: none is wrong, none hangs, no request is late."""
    host, shell = await _begin(dut, stalls=lambda name: sometimes(0.9, rng(name)))
    draw, done, resets = rng("soak"), 0, 0
    while done < SOAK:
        await host.run(host.work.batch(BATCH))
        done += 4 * BATCH
        if draw.random() < 0.05:
            await shell.reset(draw.randrange(4, 20))
            await host.run(host.work.compiler.load())
            resets += 1
    await host.judge_rows()
    shell.check()
    report(bags=done, resets=resets, worst={name: max(waits) for name, waits in shell.deadlines.waits.items()})


def _model(logic, name, **options):
    converted, metadata = verilog.convert(logic, "custom_logic")
    return build_texts(texts(converted, "custom_logic", visible=True), metadata_of(metadata), name, **options)


@pytest.mark.turns(2, of="tops")
@pytest.mark.parametrize("number", seeds())
@pytest.mark.testpoint("smoke")
def test_without_a_core(number):
    """The top as the HDK gets it around registers alone."""
    run(_model(CustomLogic(Registers()), "f2_registers"), "verif.f2.test_logic", tests=1, seed=number,
        only="without_a_core", env={"REGISTERS": "1"})


@pytest.mark.regress
@pytest.mark.parametrize("number", seeds())
@pytest.mark.testpoint("random_match_golden", "soak")
def test_custom_logic(number):
    """All of the above on the top as the HDK gets it."""
    run(_model(CustomLogic(EmbCore(core_config())), "f2_emb", opt="-O1"), "verif.f2.test_logic", tests=4, seed=number)


@pytest.mark.parametrize("preset, core, message", [
    ("tiny", "emb", "preset tiny: the emb core has beats of 16 bytes, and F2's memory has beats of 64"),
    ("tiny", "tt", "core = 'tt': must be one of the kernels of preset tiny, emb, mlp, hotline"),
])
def test_illegal_config_wrong(preset, core, message):
    """Cores that are no kernel, or have other beats than the shell, are refused with a sentence."""
    with pytest.raises(ValueError, match=message):
        custom_logic(preset, core)
