"""A whole custom logic in the Small Shell: programs of the EMB core by PCIS and OCL, bit by bit, against the oracle.

The model is that of the top as the HDK gets it, with ports and sh_ddr of verif.f2.shell. What it takes to be carried to
an instance is what is tried here: fill the memory, write the arguments, start, poll, read the results.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import cocotb
import pytest
from cocotb.triggers import ClockCycles

from gen.compiler.tables import DRAM, SSD, TT
from gen.rtl import verilog
from gen.rtl.config import load
from gen.rtl.f2 import custom_logic
from hw.axi.control import CTRL, DONE, IDLE, SW_RESET
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
SOAK = 10_000   # bags; bench.f2 has it done with ten seeds
BATCH = 200     # most bags of a mode
KINDS = ("host", "shell", "late")       # how a run is interrupted


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
    dut.rst_main_n.value = 0
    await ClockCycles(dut.clk_main_a0, 4)       # registers begin at random
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
    words = {CONTROL_BASE + argument.offset: draw.getrandbits(32) for argument in EMB.arguments}
    for place, word in words.items():
        await shell.write(place, [word])
    assert [(await shell.read(place, 1))[0] for place in words] == list(words.values())
    await shell.write(at, [0x600D_F00D])
    for beyond in range(12, 26):
        await shell.write(at | 1 << beyond, [draw.getrandbits(32)])
        assert await shell.read(at | 1 << beyond, 1) == [0]
    assert await shell.read(at, 1) == [0x600D_F00D]
    anywhere = [(draw.randrange((64 << 30) - 200), draw.randrange(1, 200)) for _ in range(8)]
    for address, size in ((0, 64), (0xA_5A5A_0FC1, 4000), ((64 << 30) - 300, 300), *anywhere):
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


async def _interrupt(host, shell, kind, program, draw):
    """Begins a run that ends before its time: by the `host`'s reset of the core, by the `shell`'s reset of everything,
    or as a page is `late` and the core waits no longer."""
    if kind == "late":
        await host.begin(program, timeout=draw.randrange(100, 1000))
        while not await host.control(CTRL) >> DONE & 1:
            pass
        assert await host.word("code") == EMB.code("TIMEOUT")
    else:
        await host.begin(program)
        await host.serve(draw.choice((0, draw.randrange(100))))
        await ClockCycles(host.dut.clk_main_a0, draw.randrange(1, 30))
    if kind == "host":
        await host.control(CTRL, 1 << SW_RESET)
        while await host.control(CTRL) >> SW_RESET & 1:
            pass
    elif kind == "shell":
        await shell.reset(draw.randrange(4, 20))
        assert await host.control(EMB.arguments[0].offset) == 0
    assert await host.control(CTRL) == 1 << IDLE
    if kind == "shell":
        await host.run(host.work.compiler.load())
    await shell.write_bytes(host.at["rows"], host.work.rows.tobytes())


@cocotb.test(skip="REGISTERS" in os.environ)
async def reset_midstream(dut):
    """The host's reset of the core by CTRL, the shell's reset of everything, at any time of a run, and a page that does
    not land: the next run is right, with the tables that stay, or are loaded anew."""
    host, shell = await _begin(dut)
    draw = rng("when")
    for kind in KINDS * 3:
        program = host.work.batch(40)
        assert len(program.pages), "none would be late"
        await _interrupt(host, shell, kind, program, draw)
        await host.run(program)
    shell.check()


@cocotb.test(skip="REGISTERS" in os.environ)
async def soak(dut):
    """Bags of all modes in batches, over card memory, tensor trains and pages that the host lands, with stalls;
    half of the batches are begun once before, and interrupted: none is wrong, none hangs, no request is late."""
    host, shell = await _begin(dut, stalls=lambda name: sometimes(0.9, rng(name)))
    draw, done, interrupted = rng("soak"), 0, dict.fromkeys(KINDS, 0)
    while done < SOAK:
        bags = draw.randint(2, BATCH)
        program = host.work.batch(bags)
        kind = draw.choice(KINDS)
        if draw.random() < 0.5 and (kind != "late" or len(program.pages)):
            await _interrupt(host, shell, kind, program, draw)
            interrupted[kind] += 1
        await host.run(program)
        done += 4 * bags
    await host.judge_rows()
    shell.check()
    report(bags=done, interrupted=interrupted,
           worst={name: max(waits) for name, waits in shell.deadlines.waits.items()})


def _model(logic, name, **options):
    converted, metadata = verilog.convert(logic, "custom_logic")
    return build_texts(texts(converted, "custom_logic", visible=True), metadata_of(metadata), name, **options)


@pytest.mark.turns(1, of="tops")
@pytest.mark.parametrize("number", seeds())
@pytest.mark.testpoint("smoke")
def test_without_a_core(number):
    """The top as the HDK gets it around registers alone."""
    run(_model(CustomLogic(Registers()), "f2_registers"), "verif.f2.test_logic", tests=1, seed=number,
        only="without_a_core", env={"REGISTERS": "1"})


def _emb(tests, only, number):
    """The top as the HDK gets it, around a whole core."""
    return run(_model(CustomLogic(EmbCore(core_config())), "f2_emb", opt="-O1"), "verif.f2.test_logic", tests=tests,
               seed=number, only=only)


@pytest.mark.regress
@pytest.mark.parametrize("number", seeds())
@pytest.mark.testpoint("random_match_golden")
def test_custom_logic(number):
    """Runs, traffic beside them, resets and pages that are late."""
    _emb(3, "smoke|backpressure_both_sides|reset_midstream", number)


@pytest.mark.regress
@pytest.mark.parametrize("number", seeds())
@pytest.mark.testpoint("soak")
def test_soak(number):
    """Thousands of bags. HOTRAIL_F2_SOAK: a file for what is reported of them."""
    made = _emb(1, "soak", number)
    if path := os.environ.get("HOTRAIL_F2_SOAK"):
        Path(path).write_text(json.dumps(made.values), "utf-8")


@pytest.mark.parametrize("preset, core, message", [
    ("tiny", "emb", "preset tiny: the emb core has beats of 16 bytes, and F2's memory has beats of 64"),
    ("tiny", "tt", "core = 'tt': must be one of the kernels of preset tiny, emb, mlp, hotline"),
])
def test_illegal_config_wrong(preset, core, message):
    """Cores that are no kernel, or have other beats than the shell, are refused with a sentence."""
    with pytest.raises(ValueError, match=message):
        custom_logic(preset, core)
