"""A whole board: programs of the EMB core over the serial line, bit by bit, against the oracle.

What a person with the board does: fill the memory, write the arguments, start, poll, read the results. A board's
timing is that of its parts: the link's and the memory's are measured in their own benches.
"""

import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles, Timer

from gen.compiler.emb import Bags, Compiler
from gen.compiler.tables import DEVICE_SHIFT, DRAM, SSD, TT, CardImages, Table
from gen.rtl import config
from gen.rtl.board import PRESET, board
from golden.emb.core import Emb, Memory
from hw.axi.control import CTRL, DONE, GIE, IDLE, IER, START
from hw.board.registers import BOARD_BASE, CONTROL_BASE, IDENTITY, REGISTERS
from hw.board.top import LAMPS, BoardConfig
from hw.isa import EMB
from verif.bench import report, reset, rng, seed, start
from verif.bench.runner import seeds, simulate
from verif.board.bench import PERIOD_NS, SerialHost

DIVISOR, MEMORY_BYTES = 4, 1 << 15
SETTINGS = {"divisor": DIVISOR, "gap_cycles": 100 * DIVISOR, "memory_bytes": MEMORY_BYTES, "lamp_log2": 6}
PAGE_BYTES, RING_PAGES = 256, 8
FILL = 0xAAAAAAAA
LONG = 4 if os.environ.get("HOTRAIL_REGRESS") else 0     # how often, in the long run
TIMEOUT = 1 << 30   # a row from the SSD takes as long as the serial line does
COUNTED = ("instructions", "bags", "indices", "dram_rows", "tt_rows", "ssd_rows", "cache_fills")


class Work:
    """A small table in all three memories, batches over it, and what the oracle makes of these."""

    def __init__(self, label, core=None, devices=(DRAM, TT, SSD)):
        self.config = core or config.load(PRESET).cores["emb"]
        self.draw = draw = np.random.default_rng(seed(label))
        columns, modes, ranks, rows = (2, 2, 4), (3, 3, 2), (1, 3, 3, 1), 36
        cores = [draw.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
                 for k in range(3)]
        self.table = Table.place("items", draw.standard_normal((rows, 16)).astype(np.float32),
                                 draw.permutation(np.resize(devices, rows)), cores=cores,
                                 rank=draw.permutation(rows))
        self.images = CardImages([self.table], self.config, PAGE_BYTES, {"items": 4})
        self.ring_beats = RING_PAGES * self.images.page_beats
        self.compiler = Compiler(self.images, ring_beats=self.ring_beats)
        self.oracle = Emb.of(self.config, self.images.cores)
        self.rows = self.images.rows.reshape(-1).copy()

    def batch(self, bags=3):
        """Sum, mean, maximum and weighted sum, of each so many bags, an empty one among them; some row of each memory,
        one that must be brought from the SSD."""
        requests = []
        for mode in ("sum", "mean", "max", "weighted"):
            lengths = self.draw.permutation([0, 3, *self.draw.integers(1, 6, bags - 2)])
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            weights = self.draw.standard_normal(offsets[-1]).astype(np.float32) if mode == "weighted" else None
            indices = self.draw.integers(0, self.table.rows, offsets[-1])
            if mode == "sum":
                indices[:3] = [self.draw.choice(rows) for rows in self._by_memory()]
            requests.append(Bags("items", indices, offsets, weights, "sum" if mode == "weighted" else mode))
        program = self.compiler.compile(requests)
        self.compiler.commit(program)
        return program

    def _by_memory(self):
        """Rows in DRAM, of the tensor train, and on the SSD but not in the row cache."""
        device, number = self.table.placement >> DEVICE_SHIFT, self.table.placement & (1 << DEVICE_SHIFT) - 1
        cold = np.flatnonzero(device == SSD)
        cold = cold[self.compiler.caches["items"].slots[number[cold]] < 0]
        return np.flatnonzero(device == DRAM), np.flatnonzero(device == TT), cold

    def expected(self, program):
        outputs = np.full(program.outputs_beats * self.config.words, FILL, np.uint32)
        memory = Memory(program.words.reshape(-1), program.inputs.reshape(-1), outputs, self.rows,
                        self.images.pages[program.pages].reshape(-1), 0, self.ring_beats)
        return self.oracle.run(memory), outputs


class Driver:
    """What a person's program does with the board, over the serial line alone."""

    base, memory_bytes = 0, MEMORY_BYTES

    def __init__(self, dut, work, line):
        self.dut, self.work, self.line = dut, work, line
        self.beat = work.config.beat_bytes
        self.at, self.end_of = {}, self.base

    def stop(self):
        self.line.stop()

    async def place(self, name, content, size=None):
        size = max(size or len(content), self.beat)
        self.at[name] = self.end_of
        self.end_of += -(-size // 1024) * 1024 if name in ("rows", "ring") else -(-size // self.beat) * self.beat
        assert self.end_of <= self.base + self.memory_bytes, "the bench's buffers outgrow its memory"
        await self.line.write_bytes(self.at[name], bytes(content))

    async def prepare(self):
        """The buffers that stay from run to run. The result block lies on a multiple of its size."""
        self.at, self.end_of = {}, self.base
        await self.place("result", b"", 4 * EMB.result_words)
        await self.place("rows", self.work.rows.tobytes())
        await self.place("ring", b"", self.work.ring_beats * self.beat)
        self.kept = self.end_of

    async def control(self, offset, value=None):
        if value is None:
            return (await self.line.read(CONTROL_BASE + offset, 1))[0]
        await self.line.write(CONTROL_BASE + offset, [value])

    async def begin(self, batch, **changes):
        self.end_of, self.program, self.landed = self.kept, batch, 0
        for value in EMB.result:    # what the host and the core look at during a run, and the verdict
            if value.kind in ("progress", "doorbell") or value.name == "code":
                await self.line.write(self.at["result"] + 4 * value.word, [0xFFFF if value.name == "code" else 0])
        await self.place("program", batch.words.tobytes())
        await self.place("inputs", batch.inputs.tobytes())
        await self.place("outputs", np.full(batch.outputs_beats * self.work.config.words, FILL, np.uint32).tobytes())
        values = {**self.at, "program_count": batch.count, "inputs_beats": len(batch.inputs),
                  "outputs_beats": batch.outputs_beats, "rows_beats": len(self.work.images.rows),
                  "ring_beats": self.work.ring_beats, "timeout": TIMEOUT, **changes}
        last = max(argument.offset + argument.bits // 8 for argument in EMB.arguments)
        words = [0] * ((last - 0x10) // 4)
        for argument in EMB.arguments:
            for part in range(argument.bits // 32):
                words[(argument.offset - 0x10) // 4 + part] = values[argument.name] >> 32 * part & 0xFFFFFFFF
        await self.line.write(CONTROL_BASE + 0x10, words)
        assert await self.line.read(CONTROL_BASE + 0x10, 2) == words[:2]
        await self.control(CTRL, 1 << START)

    async def word(self, name):
        return (await self.line.read(self.at["result"] + 4 * EMB.value(name).word, 1))[0]

    async def serve(self, polls):
        """Brings pages as the released ring has room for them, and polls; whether the run is over."""
        ring, program = self.work.ring_beats, self.program
        for _ in range(polls):
            if self.landed < len(program.pages):
                end = (self.landed + 1) * program.page_beats
                if end - await self.word("released") <= ring:
                    at = self.at["ring"] + self.landed * program.page_beats % ring * self.beat
                    await self.line.write_bytes(at, self.work.images.pages[program.pages[self.landed]].tobytes())
                    self.landed += 1
                    await self.line.write(self.at["result"] + 4 * EMB.value("filled").word, [end])
            if await self.control(CTRL) >> DONE & 1:
                return True
        return False

    async def end(self, polls=400):
        assert await self.serve(polls), f"the run did not end in {polls} polls"

    async def run(self, program):
        await self.begin(program)
        await self.end()
        await self.judge(program)

    async def judge(self, program):
        code = await self.word("code")
        assert code == EMB.code("OK"), f"ended with code {code}"
        result, wanted = self.work.expected(program)
        assert result.code == 0
        got = np.array(await self.line.read(self.at["outputs"], wanted.size), np.uint32) if wanted.size else wanted
        different = np.flatnonzero(got != wanted)
        assert not len(different), f"{len(different)} of {len(wanted)} words differ, the first is {different[0]}"
        for name in COUNTED:
            assert await self.word(name) == result.counters[name], name


    async def judge_rows(self):
        """Card memory is what it was, but for the rows that the program copied."""
        rows = np.array(await self.line.read(self.at["rows"], self.work.rows.size), np.uint32)
        assert (rows == self.work.rows).all(), "card memory"


_KEPT: list = []            # where its buffers lie
_LOADED: list[Work] = []    # what the board holds: memory and tables stay through resets


async def _begin(dut, **options):
    """A board after its power-up reset; the first test of a run fills it and loads the tables."""
    start(dut)
    dut.rx.value, dut.button.value = 1, 0
    # The core's reset comes a cycle behind the board's: for so long it would run from whatever was drawn.
    await reset(dut, 4, keeps=True)
    await ClockCycles(dut.clk, 40)
    driver = Driver(dut, _LOADED[0] if _LOADED else Work("work"), SerialHost(dut, DIVISOR, **options))
    if _LOADED:
        driver.at, driver.kept = dict(_KEPT[0]), _KEPT[1]
        return driver
    await driver.prepare()
    assert await driver.line.read(BOARD_BASE, 3) == [IDENTITY, MEMORY_BYTES, 0]
    await driver.run(driver.work.compiler.load())
    _LOADED.append(driver.work)
    _KEPT[:] = [{name: driver.at[name] for name in ("result", "rows", "ring")}, driver.kept]
    return driver


@cocotb.test(skip="BARE" not in os.environ)
@pytest.mark.testpoint("smoke")
async def without_a_core(dut):
    """A board around no core: its identity and size, words at the ends and in the middle of its memory, over the serial
    line; the lamps show the frames; the button ends a frame and leaves the memory as it was."""
    start(dut)
    dut.rx.value, dut.button.value = 1, 0
    await reset(dut, 4)
    await ClockCycles(dut.clk, 40)
    line, draw, seen = SerialHost(dut, DIVISOR), rng("words"), set()

    watching = cocotb.start_soon(_watch(dut, seen))
    assert await line.read(BOARD_BASE, 3) == [IDENTITY, MEMORY_BYTES, 0]
    words = {at: [draw.getrandbits(32) for _ in range(12)] for at in (0, MEMORY_BYTES // 2 - 8, MEMORY_BYTES - 48)}
    for at, content in words.items():
        await line.write(at, content)
    for at, content in words.items():
        assert await line.read(at, len(content)) == content, f"{at:#x}"
    watching.cancel()
    assert seen >= {"alive", "frame"} and "refused" not in seen, seen
    await line.send(b"\x01\x02")
    dut.button.value = 1
    await ClockCycles(dut.clk, 10)
    dut.button.value = 0
    await ClockCycles(dut.clk, 40)
    line.received.clear()
    assert await line.read(0, 12) == words[0]


async def _watch(dut, seen: set[str]):
    """Notes the lamps that light up."""
    while True:
        await Timer(30 * PERIOD_NS, "ns")    # a lamp shows an event for 64 cycles at least
        seen.update(name for k, name in enumerate(LAMPS) if int(dut.lamps.value) >> k & 1)


@cocotb.test()
async def smoke(dut):
    """Tables are loaded and a batch over three memories is pooled, all over the serial line; the lamps show frames,
    reads, writes and the interrupt."""
    driver = await _begin(dut)
    seen = set()

    watching = cocotb.start_soon(_watch(dut, seen))
    assert await driver.control(CTRL) & 1 << IDLE
    await driver.control(GIE, 1)
    await driver.control(IER, 1)
    await driver.run(driver.work.batch())
    await driver.judge_rows()
    assert all([await driver.word(name) for name in ("dram_rows", "tt_rows", "ssd_rows", "cycles")]), "three memories"
    watching.cancel()
    assert seen >= {"alive", "frame", "interrupt", "read0", "read1", "written"} and "refused" not in seen, seen
    report(words=int(driver.work.rows.size))


@cocotb.test()
async def random_match_golden(dut):
    """Batch after batch over three memories, at other bit times and phases of the bits and with pauses: outputs,
    counters and card memory are the oracle's."""
    driver = await _begin(dut, skew=0.02, pauses=rng("pauses"))
    for _ in range(LONG or 1):
        await driver.run(driver.work.batch())
    await driver.judge_rows()


@cocotb.test()
async def backpressure_both_sides(dut):
    """While the core runs, the host reads and writes the same memory as fast as the line goes."""
    driver = await _begin(dut)
    spare = MEMORY_BYTES - 1024
    for number in range(LONG or 1):
        await driver.begin(driver.work.batch())
        words = [number + k for k in range(16)]
        for _ in range(4):
            await driver.line.write(spare, words)
            assert await driver.line.read(spare, 16) == words
        await driver.end()
        await driver.judge(driver.program)


@cocotb.test()
@pytest.mark.testpoint("outside_of_the_memory")
async def outside_of_the_memory(dut):
    """Buffers behind the memory's end, to the highest address bit, end the run with READ_ERROR or WRITE_ERROR; the
    next run is right."""
    driver = await _begin(dut)
    cases = (({"ring": MEMORY_BYTES}, "READ_ERROR"), ({"outputs": 1 << 40}, "WRITE_ERROR"),
             ({"program": 1 << 63}, "READ_ERROR"))
    for changes, code in cases if LONG else cases[1:]:
        rows = driver.work.rows.copy()
        program = driver.work.batch()
        await driver.begin(program, **changes)
        await driver.end()
        assert await driver.word("code") == EMB.code(code), f"{changes}: {await driver.word('code')}"
        driver.work.rows = rows
        await driver.line.write_bytes(driver.at["rows"], rows.tobytes())
    await driver.run(program)


@cocotb.test()
async def reset_midstream(dut):
    """The host's reset and the button at any time of a run: the core is idle, tables in the tensor-train unit stay,
    the next run is right."""
    driver = await _begin(dut)
    draw = rng("when")
    for kind in ("register", "button") * (LONG or 1):
        rows = driver.work.rows.copy()
        program = driver.work.batch()
        await driver.begin(program)
        await ClockCycles(dut.clk, draw.randrange(1, 400))
        if kind == "register":
            await driver.line.write(BOARD_BASE + REGISTERS["reset"], [1])
        else:
            dut.button.value = 1
            await ClockCycles(dut.clk, 10)
            dut.button.value = 0
            await ClockCycles(dut.clk, 40)
            driver.line.received.clear()
        assert await driver.control(CTRL) == 1 << IDLE
        assert await driver.control(EMB.arguments[0].offset) == 0, "arguments are gone with the reset"
        driver.work.rows = rows
        await driver.line.write_bytes(driver.at["rows"], rows.tobytes())
        await driver.run(program)


@pytest.mark.turns(1, of="tops")
@pytest.mark.parametrize("number", seeds())
def test_board_without_a_core(number):
    simulate(board(None, None, **SETTINGS), "verif.board.test_top", name="board_none", tests=1, seed=number,
             only="without_a_core", env={"BARE": "1"})


@pytest.mark.regress
@pytest.mark.parametrize("number", seeds())
def test_board(number):
    # Long waits for a serial line, with little Python: optimised, it runs in a third of the time.
    simulate(board("emb", PRESET, **SETTINGS), "verif.board.test_top", name="board_emb", tests=5, seed=number,
             opt="-O1")


@pytest.mark.parametrize("core, preset, changes, message", [
    ("tt", "tiny", {}, "core = 'tt': must be one of emb, mlp, hotline"),
    ("emb", "screc", {}, "the preset screc has no \\[emb\\]; it has "),
    (None, None, {"divisor": 3}, "divisor must be a whole number from 4 to 65535, not 3"),
    (None, None, {"memory_bytes": 1000}, "memory_bytes must be a power of two from 1024 to 1048576, not 1000"),
])
def test_illegal_config_wrong(core, preset, changes, message):
    """Cores that are no kernel, presets without them and settings that cannot be are refused with a sentence."""
    with pytest.raises(ValueError, match=message):
        board(core, preset, **{**SETTINGS, **changes})


def test_every_setting_is_one_of_the_board():
    assert set(SETTINGS) == set(BoardConfig.__dataclass_fields__)
