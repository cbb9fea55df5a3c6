"""The whole EMB core under cocotb: its bits against the oracle, its buses against every rule, and by another hand.

The simulated card runs the same core with far more data; here every burst, strobe and response is looked at, all
five channels of the ports stall at random, and cocotbext-axi gives a second opinion on the buses.
"""

import warnings
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from gen.compiler.emb import Bags, Compiler
from gen.compiler.tables import DRAM, SSD, TT, CardImages, Table
from gen.rtl.config import load
from golden.emb.core import Emb, Memory
from hw.axi.control import CTRL, DONE, GIE, IDLE, IER, ISR, START
from hw.emb.core import EmbCore
from hw.isa import EMB
from verif.bench import report, reset, rng, seed, start
from verif.bench.axi import SLVERR, AxiMemory, CardMemory, LiteMaster
from verif.bench.memory import BASE
from verif.bench.runner import seeds, simulate
from verif.bench.stream import bursty, sometimes

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it uses names that cocotb 2 keeps for a while
    from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam
    from cocotbext.axi.sparse_memory import SparseMemory

PRESET = "tiny"
PAGE = 4096
RING_PAGES = 4
FILL = 0xAA
LIMIT = 200_000  # cycles of a run
COUNTED = ("instructions", "bags", "indices", "dram_rows", "tt_rows", "ssd_rows", "cache_fills")


class Work:
    """Tables in all three memories, batches over them, and what the oracle makes of these."""

    def __init__(self, label):
        self.config = load(PRESET).cores["emb"]
        self.draw = np.random.default_rng(seed(label))
        # Rows of 4, 2 and 16 beats, in DRAM in pieces of 2, in one, and of 4; results in every format.
        self.tables = [self._mixed("items", 240, (2, 2, 4), (5, 5, 4), 4), self._mixed("shops", 90, (2, 4), (8, 9), 3),
                       self._wide("texts", 70, 64)]
        self.tables[1:] = [replace(table, results=form)
                           for table, form in zip(self.tables[1:], ("float16", "bfloat16"), strict=True)]
        self.images = CardImages(self.tables, self.config, PAGE, {"items": 20, "texts": 12})
        assert [placed.lies.piece_beats for placed in self.images.placed.values()] == [2, 0, 4]
        self.ring_beats = RING_PAGES * self.images.page_beats
        self.compiler = Compiler(self.images, ring_beats=self.ring_beats)
        self.oracle = Emb.of(self.config, self.images.cores)
        self.rows = self.images.rows.reshape(-1).copy()

    def _mixed(self, name, rows, columns, modes, rank):
        ranks = (1, *[rank] * (len(modes) - 1), 1)
        cores = [self.draw.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
                 for k in range(len(modes))]
        device = self.draw.permutation(np.resize([DRAM, TT, SSD], rows))
        device[device == TT] = np.where(np.cumsum(device == TT)[device == TT] <= np.prod(modes), TT, DRAM)
        values = self.draw.standard_normal((rows, int(np.prod(columns)))).astype(np.float32)
        return Table.place(name, values, device, cores=cores, rank=self.draw.permutation(rows))

    def _wide(self, name, rows, dim):
        return Table.place(name, self.draw.standard_normal((rows, dim)).astype(np.float32),
                           self.draw.choice([DRAM, SSD], rows), rank=self.draw.permutation(rows))

    def batch(self, count=4, longest=6):
        """Requests of every mode over bags that mix the memories, empty bags among them."""
        requests = []
        for number in range(count):
            table = self.tables[number % len(self.tables)]
            lengths = self.draw.integers(0, longest + 1, int(self.draw.integers(2, 6)))
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            indices = self.draw.integers(0, table.rows, offsets[-1])
            mode = ("sum", "mean", "max", "sum")[number % 4]
            weights = self.draw.standard_normal(offsets[-1]).astype(np.float32) if number % 4 == 3 else None
            requests.append(Bags(table.name, indices, offsets, weights, mode))
        program = self.compiler.compile(requests)
        self.compiler.commit(program)
        return program

    def expected(self, program):
        outputs = np.full(program.outputs_beats * self.config.words, FILL * 0x01010101, np.uint32)
        memory = Memory(program.words.reshape(-1), program.inputs.reshape(-1), outputs, self.rows,
                        self.images.pages[program.pages].reshape(-1), 0, self.ring_beats)
        return self.oracle.run(memory), outputs


class Host:
    """What a driver and a host do, on any memory that reads and writes bytes and any control port."""

    def __init__(self, dut, work, write, read, control, allocate):
        self.dut, self.work, self.control = dut, work, control
        self.write, self.read, self.allocate = write, read, allocate
        self.beat = work.config.beat_bytes
        self.at = {}
        self.place("rows", work.rows.tobytes())
        self.place("ring", bytes(work.ring_beats * self.beat))

    def place(self, name, content, **access):
        self.at[name] = self.allocate(name, max(len(content), self.beat), **access)
        self.write(self.at[name], content or bytes(self.beat))

    async def begin(self, program):
        """Places the program's buffers, writes the arguments as the driver does, and starts."""
        work = self.work
        self.program = program
        block = bytearray(4 * EMB.result_words)
        self.place("program", program.words.tobytes(), writable=False)
        self.place("inputs", program.inputs.tobytes(), writable=False)
        self.place("outputs", bytes([FILL]) * (program.outputs_beats * self.beat), readable=False)
        self.place("result", bytes(block))
        values = {**self.at, "program_count": program.count, "inputs_beats": len(program.inputs),
                  "outputs_beats": program.outputs_beats, "rows_beats": len(work.images.rows),
                  "ring_beats": work.ring_beats, "timeout": 20_000}
        last = max(argument.offset + argument.bits // 8 for argument in EMB.arguments)
        words = [0] * ((last - 0x10) // 4)
        for argument in EMB.arguments:
            for part in range(argument.bits // 32):
                words[(argument.offset - 0x10) // 4 + part] = values[argument.name] >> 32 * part & 0xFFFFFFFF
        for number, word in enumerate(words):
            await self.control.write(0x10 + 4 * number, word)
        self.landed = 0
        await self.control.write(CTRL, 1 << START)

    def word(self, name):
        return int.from_bytes(self.read(self.at["result"] + 4 * EMB.value(name).word, 4), "little")

    def bring(self):
        """Lands the next pages that the released ring has room for, and rings the doorbell."""
        program, ring = self.program, self.work.ring_beats
        rang = self.landed
        while self.landed < len(program.pages):
            end = (self.landed + 1) * program.page_beats
            if end - self.word("released") > ring:
                break
            place = self.landed * program.page_beats % ring * self.beat
            self.write(self.at["ring"] + place, self.work.images.pages[program.pages[self.landed]].tobytes())
            self.landed += 1
        if self.landed != rang:
            filled = self.landed * program.page_beats
            self.write(self.at["result"] + 4 * EMB.value("filled").word, filled.to_bytes(4, "little"))

    async def end(self):
        """Polls as the driver does until the run is over, landing pages meanwhile."""
        for _ in range(LIMIT // 100):
            self.bring()
            await ClockCycles(self.dut.clk, 80)
            if await self.control.read(CTRL) >> DONE & 1:
                return
        raise AssertionError(f"the run did not end in {LIMIT} cycles")

    async def run(self, program, code="OK"):
        """A run and its verdict: code, outputs, counters, card memory."""
        await self.begin(program)
        await self.end()
        assert self.word("code") == EMB.code(code), f"ended with code {self.word('code')}, not {code}"
        if code == "OK":
            self.judge(program)

    def judge(self, program):
        result, wanted = self.work.expected(program)
        assert result.code == 0
        got = np.frombuffer(self.read(self.at["outputs"], wanted.nbytes), np.uint32) if wanted.size else wanted
        different = np.flatnonzero(got != wanted)
        assert not len(different), f"{len(different)} of {len(wanted)} words differ, the first is {different[0]}"
        assert {name: self.word(name) for name in COUNTED} == {name: result.counters[name] for name in COUNTED}
        rows = np.frombuffer(self.read(self.at["rows"], self.work.rows.nbytes), np.uint32)
        assert (rows == self.work.rows).all(), "card memory"


class Own:
    """The core on this project's memory and monitors."""

    def __init__(self, dut, work, *, latency=4, stalls=None, pauses=None):
        self.memory = CardMemory(work.config.beat_bytes)
        self.ports = [AxiMemory(dut, name, self.memory, latency=latency,
                                stalls={c: stalls(f"{name}{c}") for c in ("ar", "r", "aw", "w", "b")} if stalls else {})
                      for name in ("m00_axi", "m01_axi")]
        self.host = Host(dut, work, self.memory.write, self.memory.read, LiteMaster(dut, "s_axi_control", rng=pauses),
                         lambda *a, **k: self.memory.allocate(*a, **k).address)

    def check(self):
        """Nothing outside the buffers was touched, and nothing is under way."""
        self.memory.check()
        assert all(port.quiet for port in self.ports)

    def stop(self):
        for port in self.ports:
            port.stop()


async def _begin(dut):
    start(dut)
    for name in ("awvalid", "wvalid", "arvalid", "bready", "rready"):
        getattr(dut, f"s_axi_control__{name}").value = 0
    for port in ("m00_axi", "m01_axi"):
        for name in ("arready", "rvalid", "awready", "wready", "bvalid"):
            getattr(dut, f"{port}__{name}").value = 0
    await reset(dut, 4)


@cocotb.test()
async def smoke(dut):
    """Tables are loaded and one batch over three memories is pooled; the interrupt tells the end."""
    await _begin(dut)
    work = Work("smoke")
    own = Own(dut, work)
    host = own.host
    assert await host.control.read(CTRL) == 1 << IDLE
    await host.control.write(GIE, 1)
    await host.control.write(IER, 1)
    await host.run(work.compiler.load())
    await ClockCycles(dut.clk, 2)
    assert dut.interrupt.value == 1
    await host.control.write(ISR, 1)
    await ClockCycles(dut.clk, 3)
    assert dut.interrupt.value == 0
    await host.run(work.batch())
    assert all(host.word(name) for name in ("dram_rows", "tt_rows", "ssd_rows", "cycles")), "all three memories"
    own.check()


@cocotb.test()
async def backpressure_both_sides(dut):
    """Random stalls on all channels of both ports, a hesitant driver, latencies from 1 to 40."""
    for number, (latency, stalls) in enumerate((
            (1, lambda name: sometimes(0.5, rng(name))), (40, lambda name: bursty(rng(name))), (12, None))):
        await _begin(dut)
        work = Work(f"stalls{number}")
        own = Own(dut, work, latency=latency, stalls=stalls, pauses=rng(f"driver{number}"))
        await own.host.run(work.compiler.load())
        for _ in range(2):
            await own.host.run(work.batch(count=4, longest=5))
        own.check()
        own.stop()


@cocotb.test()
@pytest.mark.testpoint("random_match_golden", "second_opinion")
async def second_opinion(dut):
    """The same loads and batches on cocotbext-axi's memories and control master, which pause at random, with guard
    bytes around the buffers."""
    await _begin(dut)
    work = Work("peer")
    rams = []
    for name in ("m00_axi", "m01_axi"):
        ram = AxiRam(AxiBus.from_prefix(dut, name, bus_separator="__"), dut.clk, dut.rst,
                     mem=rams[0].mem if rams else SparseMemory(2**62))
        for side, channels in ((ram.write_if, ("aw", "w", "b")), (ram.read_if, ("ar", "r"))):
            for channel in channels:
                getattr(side, f"{channel}_channel").set_pause_generator(
                    not go for go in sometimes(0.7, rng(f"{name}{channel}")))
        rams.append(ram)
    ram = rams[0]
    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi_control", bus_separator="__"), dut.clk, dut.rst)

    class Control:
        async def write(self, offset, value):
            await master.write_dword(offset, value)

        async def read(self, offset):
            return await master.read_dword(offset)

    ends = [BASE]

    def allocate(name, size, **access):
        address = ends[-1]
        ends.append((address + size + 2 * PAGE - 1) // PAGE * PAGE)
        ram.write(address + size, bytes([0x5A]) * (ends[-1] - address - size))
        return address

    host = Host(dut, work, ram.write, lambda address, size: bytes(ram.read(address, size)), Control(), allocate)
    await host.run(work.compiler.load())
    for _ in range(2):
        await host.run(work.batch())
    for address, size in ((host.at["outputs"], host.program.outputs_beats * host.beat),
                          (host.at["rows"], work.images.rows.nbytes), (host.at["result"], 4 * EMB.result_words)):
        assert bytes(ram.read(address + size, PAGE)) == bytes([0x5A]) * PAGE, "the guard behind a buffer"


@cocotb.test()
async def reset_midstream(dut):
    """Reset at any time with everything under way; tables in the tensor-train unit stay, the next run is right."""
    await _begin(dut)
    work = Work("reset")
    own = Own(dut, work)
    await own.host.run(work.compiler.load())
    own.stop()
    draw = rng("when")
    tried = 0
    for _ in range(12):
        own = Own(dut, work, stalls=lambda name: sometimes(0.8, rng(name)))
        program = work.batch()
        rows = work.rows.copy()
        await own.host.begin(program)
        for _ in range(draw.randrange(40)):
            own.host.bring()
            await ClockCycles(dut.clk, draw.randrange(1, 60))
        own.stop()
        await _begin(dut)
        assert dut.m00_axi__arvalid.value == dut.m00_axi__awvalid.value == dut.m01_axi__arvalid.value == 0
        work.rows = rows
        own = Own(dut, work)
        await own.host.run(program)
        own.check()
        own.stop()
        tried += 1
    report(resets=tried)


@cocotb.test()
@pytest.mark.testpoint("errors")
async def abort_and_errors(dut):
    """An abort, a failing row and a failing output end the run with their cause, quiet buses and no stray byte."""
    await _begin(dut)
    work = Work("abort")
    own = Own(dut, work, latency=9)
    host = own.host
    await host.run(work.compiler.load())
    draw = rng("when")
    tried = 0
    for kind in ("abort", "rows", "outputs") * 4:
        program = work.batch()
        rows = work.rows.copy()
        if kind == "rows":
            own.memory.fail(host.at["rows"], work.images.rows.nbytes, response=SLVERR, writes=False)
        await host.begin(program)
        if kind == "outputs":
            own.memory.fail(host.at["outputs"], program.outputs_beats * host.beat, response=SLVERR)
        for _ in range(draw.randrange(12)):
            host.bring()
            await ClockCycles(dut.clk, draw.randrange(1, 40))
        if kind == "abort":
            await host.control.write(EMB.register("abort").offset, 1)
        await host.end()
        want = {"abort": "ABORTED", "rows": "READ_ERROR", "outputs": "WRITE_ERROR"}[kind]
        # An abort may come when all is done.
        assert host.word("code") in (EMB.code(want), EMB.code("OK") if kind == "abort" else EMB.code(want)), (
            f"{kind}: code {host.word('code')}")
        await ClockCycles(dut.clk, 10)
        own.check()
        own.memory.heal()
        host.write(host.at["rows"], rows.tobytes())
        work.rows = rows
        await host.run(program)
        own.check()
        tried += 1
    report(stopped=tried)
    await RisingEdge(dut.clk)


@pytest.mark.parametrize("number", seeds())
def test_emb(number):
    simulate(EmbCore(load(PRESET).cores["emb"]), "verif.emb.test_core", name="emb_tiny", tests=5, seed=number)


@pytest.mark.parametrize("changes, message", [
    ({"row_beats_max": 12}, "row_beats_max must be a power of two from 1 to 64, not 12"),
    ({"partial_beats": 16}, "partial_beats must be at least 2 times row_beats_max = 16, not 16"),
    ({"output_beats": 16}, "output_beats must be at least 2 times row_beats_max = 16, not 16"),
    ({"window_beats": 128}, "window_beats must be at least 16 times row_beats_max = 16, not 128"),
    ({"ssd_queue": 16}, "ssd_queue must be at least 32, .*, not 16"),
    ({"writes_in_flight": 0}, "writes_in_flight must be a power of two from 2 to .*, not 0"),
])
def test_illegal_config_wrong(changes, message):
    """Sizes that do not go together are refused with a sentence."""
    with pytest.raises(ValueError, match=message):
        replace(load(PRESET).cores["emb"], **changes)
