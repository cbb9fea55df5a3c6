"""The updater against its golden model: mini-batches of gradients, with the list, the embedding buffer and both ports
as models beside it."""
import os
from collections import deque
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from golden.hotline import reducer
from golden.hotline.embeddings import EmbeddingBuffer
from golden.hotline.update import CHUNK
from golden.hotline.update import Updater as Model
from hw.hotline.update import PACE, Updater
from verif.bench import rng, seed
from verif.bench.harness import Harness
from verif.bench.memory import base
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, shapes, simulate
from verif.bench.stream import always, bursty, never, sometimes
from verif.hotline.bench import TINY, WIDE

# With many slots a mini-batch's gradients make several requests.
SHAPES = {"tiny": TINY, "wide": WIDE,
          "many": replace(TINY, row_slots=1024, embedding_beats=4096)}
CONFIG = SHAPES[os.environ.get("HOTRAIL_SHAPE", "tiny")]
WORDS, BYTES = CONFIG.words, CONFIG.beat_bytes
MEMORY = 8192               # beats of the rows' buffer that are looked at

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))


class Bench(Harness):
    """list_delay, port_delay: cycles from a query to its answer, from a whole request's last beat to its response."""

    def __init__(self, dut, log2, list_delay, port_delay, rate, **patterns):
        self.log2, self.beats, self.rate = log2, 1 << log2, rate
        self.list_delay, self.port_delay = list_delay, port_delay
        draw = np.random.default_rng(seed("memory"))
        # Two copies: what the unit's ports leave behind, and the model's.
        self.buffer, other = (EmbeddingBuffer(beats=CONFIG.embedding_beats, words=WORDS, row_beats_log2=log2)
                              for _ in range(2))
        self.buffer.memory[:] = other.memory[:] = draw.integers(0, 1 << 32, self.buffer.memory.shape, np.uint32)
        self.memory = draw.integers(0, 1 << 32, (MEMORY, WORDS), np.uint32)
        self.model = Model(other, self.memory.copy())
        self.asked, self.responses = deque(), deque()       # cycle due, ...
        self.lists = {}                                     # batch -> slots, addresses
        self.data = {}                                      # beat address of gradients -> words
        self.rows, self.writes = base("rows"), 0
        self.first = base("first", MEMORY) & 0xFFFFFFFF     # the beat that is the memory's first
        self.counts = dict.fromkeys(("v_mul", "v_add", "dma_wr", "updated", "done"), 0)
        self.at = {name: [] for name in ("o_write", "updated", "done", "written")}
        self.stored = 0         # requests whose data are in memory
        self.refuses = set()    # requests, from 0 on, of which the last beat is not written and answered with an error
        self.poison = None      # beat address of gradients that are answered with an error
        super().__init__(dut, {name: made() for name, made in patterns.items()})

    @classmethod
    async def begin(cls, dut, log2=0, *, rate=0xBE800000, list_delay=8, port_delay=20, **patterns):
        bench = await super().begin(dut, log2=log2, rate=rate, list_delay=list_delay, port_delay=port_delay, **patterns)
        dut.rate.value, dut.rows.value, dut.row_beats_log2.value = rate, bench.rows, log2
        dut.reads_wait.value = 0
        return bench

    # -- What stands around the unit.
    def _o_query(self, beat):
        self.asked.append((self.cycle + self.list_delay, beat))

    def _o_requests(self, beat):
        address, offset = divmod(beat["address"], BYTES)
        assert not offset and beat["beats"] >= 1
        for k in range(beat["beats"]):
            words = self.data[address + k]
            self.sources["i_gradients"].put_raw([sum(int(word) << 32 * at for at, word in enumerate(words))
                                    | (address + k == self.poison) << 32 * WORDS
                                    | (k == beat["beats"] - 1) << 32 * WORDS + 1])

    def _o_read(self, slot):
        self.sources["i_rows"].put_raw(sum(int(word) << 32 * at for at, word in enumerate(words))
                          for words in self.buffer.read(slot))

    def _store(self):
        """Requests whose data have all come are written, and answered some time later."""
        requests, data = self.sinks["o_write_requests"].beats, self.sinks["o_write_data"].beats
        while self.stored < len(requests):
            request = requests[self.stored]
            if len(data) - self.writes < request["beats"]:
                break
            address, offset = divmod(request["address"] - self.rows - self.first * BYTES, BYTES)
            assert not offset and request["beats"] == self.beats
            refused = self.stored in self.refuses
            for k in range(request["beats"] - refused):
                word = data[self.writes + k]["data"]
                self.memory[address + k] = [word >> 32 * at & 0xFFFFFFFF for at in range(WORDS)]
            self.writes += request["beats"]
            self.stored += 1
            self.responses.append((self.cycle + self.port_delay, refused))

    def _o_write(self, beat):
        assert beat["beat"] < self.beats
        self.buffer.write(beat["slot"], beat["beat"], beat["words"])
        self.at["o_write"].append(self.cycle + 1)

    def _cycle(self):
        dut = self.dut
        for name in self.counts:
            if getattr(dut, name).value == 1:
                self.counts[name] += 1
                if name in self.at:
                    self.at[name].append(self.cycle)
        self._store()
        if self.asked and self.asked[0][0] <= self.cycle:
            query = self.asked.popleft()[1]
            slots, addresses = self.lists[query["batch"]]
            self.sources["i_query"].put({"slot": slots[query["ordinal"]], "address": addresses[query["ordinal"]]})
        answer, refused = bool(self.responses) and self.responses[0][0] <= self.cycle, False
        if answer:
            _, refused = self.responses.popleft()
            self.at["written"].append(self.cycle)
        dut.written.value, dut.not_written.value = answer, refused

    def refused(self):
        return layout_of("refused").unpack(int(self.dut.refused.value))

    def batch(self, draw, count, words=None, number=None):
        """A mini-batch's list and gradients. Returns what goes to the unit, and what the model needs."""
        slots = draw.permutation(min(CONFIG.row_slots, CONFIG.embedding_beats >> self.log2))[:count].tolist()
        addresses = (draw.permutation(MEMORY >> self.log2)[:count] << self.log2).tolist()
        number = int(draw.integers(CONFIG.batches)) if number is None else number
        self.lists[number] = slots, [self.first + address for address in addresses]
        at = base("gradients") // BYTES + int(draw.integers(1 << 20))
        gradients = draw.integers(0, 1 << 32, (count * self.beats, WORDS), np.uint32) if words is None else words
        self.data = {at + k: row for k, row in enumerate(gradients)}
        return {"batch": number, "rows": count, "address": at * BYTES}, (slots, addresses, gradients, at)

    async def update(self, draw, count, words=None, limit=60_000, again=None, written=None):
        """One mini-batch, from start to `done`, judged. again: the row from which on all are written once more, if any;
        written: without an error, in all."""
        before, model = dict(self.counts), self.model
        sent = {name: len(sink.beats) for name, sink in self.sinks.items()}
        was = {name: len(values) for name, values in self.at.items()}
        beat, (slots, addresses, gradients, at) = self.batch(draw, count, words)
        self.sources["i"].put(beat)
        while self.counts["done"] == before["done"]:
            await self.edge
            limit -= 1
            assert limit, "not done"
        model.update(slots, addresses, self.rate, gradients)
        beats = count * self.beats
        again = count if again is None else again
        new = {name: sink.beats[sent[name]:] for name, sink in self.sinks.items()}
        ports = {"o_requests": (model.reads(at, count), 0),
                 "o_write_requests": (model.writes(addresses) + model.writes(addresses[again:]),
                                      self.rows + self.first * BYTES)}
        for name, (wanted, first) in ports.items():
            assert [(r["address"], r["beats"]) for r in new[name]] == [(first + a * BYTES, b) for a, b in wanted], name
        assert new["o_read"] == 2 * slots + slots[again:] and new["o_release"] == slots
        assert [q["ordinal"] for q in new["o_query"]] == [*range(count), *range(count), *range(again, count)]
        assert {q["batch"] for q in new["o_query"]} <= {beat["batch"]}
        assert (self.buffer.memory == model.buffer.memory).all(), "rows in the embedding buffer"
        assert (self.memory == model.memory).all(), "rows in memory"
        got = {name: self.counts[name] - before[name] for name in self.counts}
        assert got == {"v_mul": beats, "v_add": beats, "dma_wr": count if written is None else written, "updated": 1,
                       "done": 1}, got
        at = {name: values[was[name]:] for name, values in self.at.items()}
        if count:
            assert len(at["o_write"]) == beats and at["updated"] == [at["o_write"][-1] + 1]
            first = self.sinks["o_write_data"].at[sent["o_write_data"]]
            assert first > at["o_write"][-1], "written before the last gradient was applied"
            releases = self.sinks["o_release"].at[sent["o_release"]:]
            responses = at["written"][:again] + at["written"][count:]
            assert all(release > response for release, response in zip(releases, responses, strict=True)), (
                "released before the response to its write")
            # `done` is a register behind the last release.
            assert at["done"][0] > releases[-1]
        await ClockCycles(self.dut.clk, 3)
        assert self.dut.idle.value == 1 and self.dut.error.value == 0 and self.counts["done"] == before["done"] + 1
        return at


def lengths():
    return [log2 for log2 in range(7) if CONFIG.embedding_beats >> log2 >= 1]


def most(log2):
    return min(CONFIG.row_slots, CONFIG.embedding_beats >> log2)


@cocotb.test()
async def smoke(dut):
    """Three rows of two beats."""
    bench = await Bench.begin(dut, 1)
    await bench.update(np.random.default_rng(1), 3)


@cocotb.test()
@pytest.mark.testpoint("latency_and_rate_as_documented")
async def random_match_golden(dut):
    """Mini-batches of any size one after the other, rows of any length, any words and numbers of near exponents: every
    request, every row in the embedding buffer and in memory, every release, all counts as the model's."""
    draw = np.random.default_rng(seed("random"))
    for log2 in lengths():
        bench = await Bench.begin(dut, log2, rate=int(draw.integers(1 << 32)), list_delay=int(draw.integers(1, 12)))
        for _ in range(3 if REGRESS else 1):
            count = int(draw.integers(1, 1 + min(60, most(log2))))
            words = draw.integers(0, 1 << 32, (count << log2, WORDS), np.uint32)
            dut.reads_wait.value = int(draw.integers(2))
            await bench.update(draw, count, (words & 0x81FFFFFF) | 0x3E000000)
            await bench.update(draw, int(draw.integers(1, 1 + min(60, most(log2)))))


@cocotb.test()
async def backpressure_both_sides(dut):
    """Each of nine streams slow by itself, all slow together, a port that takes nothing for long."""
    draw, pauses = np.random.default_rng(seed("slow")), rng("pauses")
    names = ("i_query", "i_gradients", "i_rows", "o_query", "o_requests", "o_read", "o_write_requests", "o_write_data",
             "o_release")
    for name in names:
        slow = (lambda: sometimes(0.2, pauses)) if pauses.random() < 0.5 else (lambda: bursty(pauses))
        bench = await Bench.begin(dut, pauses.randrange(2), **{name: slow})
        for _ in range(2):
            await bench.update(draw, int(draw.integers(10, 30)))
    bench = await Bench.begin(dut, 1, **dict.fromkeys(names, lambda: bursty(pauses)))
    await bench.update(draw, 30)
    # A port that takes no data for long: as many beats as there is room for are taken, none is lost.
    bench = await Bench.begin(dut, 0, o_write_data=lambda: never(300), o_write_requests=lambda: never(200))
    await bench.update(draw, 32)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A beat a cycle, in the embedding buffer and to memory; while rows wait to be read, no row is written sooner than
    PACE cycles behind the one before."""
    draw = np.random.default_rng(seed("rate"))
    for log2 in lengths()[:4]:
        bench = await Bench.begin(dut, log2)
        at = await bench.update(draw, min(100, most(log2)))
        for cycles in (at["o_write"], bench.sinks["o_write_data"].at):
            assert cycles[-1] - cycles[0] == len(cycles) - 1, "a pause between two beats"
        bench = await Bench.begin(dut, log2)
        dut.reads_wait.value = 1
        at = await bench.update(draw, min(100, most(log2)))
        assert at["o_write"][-1] - at["o_write"][0] == len(at["o_write"]) - 1, "a pause between two beats"
        between = np.diff(bench.sinks["o_write_requests"].at)
        assert between.min() >= PACE and (1 << log2 > PACE or between.max() == PACE)


@cocotb.test()
async def reset_midstream(dut):
    """A reset in any phase of a mini-batch: nothing of it is left, the next one is right."""
    draw = np.random.default_rng(seed("reset"))
    for cycles in (1, 2, 12, 25, 40, 60, 90, 120):
        bench = await Bench.begin(dut, 1, port_delay=50)
        beat, _ = bench.batch(draw, 20)
        bench.sources["i"].put(beat)
        for _ in range(cycles):
            await bench.edge
        bench = await Bench.begin(dut, 1)
        await bench.edge
        await bench.edge
        assert dut.idle.value == 1
        await bench.update(draw, 5)


@cocotb.test()
async def corner_values(dut):
    """No row, one, as many as there are slots; special words and rates; more gradients than one request asks for."""
    draw = np.random.default_rng(seed("corners"))
    specials = np.array([s | w for s in (0, 1 << 31) for w in (
        0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000)], np.uint32)
    for rate in (0, 0x80000000, 0x7F800000, 0x7FC00001, 1, 0xBF800000):
        bench = await Bench.begin(dut, 0, rate=rate)
        count = min(32, most(0))
        for memory in (bench.buffer.memory, bench.model.buffer.memory):
            memory[:] = np.resize(specials, memory.shape)
        await bench.update(draw, count, draw.choice(specials, (count, WORDS)))
        await bench.update(draw, 0)
        await bench.update(draw, 1)
    for log2 in lengths():
        bench = await Bench.begin(dut, log2)
        if most(log2) << log2 <= 300:
            await bench.update(draw, most(log2))
        await bench.update(draw, 1)


@cocotb.test()
@pytest.mark.testpoint("faults")
async def faults(dut):
    """A beat of gradients that cannot be trusted: it and those behind it are not taken, nothing is written to memory or
    released, the error stays; a reset clears it."""
    draw = np.random.default_rng(seed("faults"))
    for bad in (0, 1, 7, 30, 31):
        bench = await Bench.begin(dut, 1)
        beat, (*_, at) = bench.batch(draw, 16)
        bench.poison = at + bad
        bench.sources["i"].put(beat)
        for _ in range(300):
            await bench.edge
        assert dut.error.value == 1 and dut.idle.value == 0 and dut.rests.value == 1
        assert bench.counts["updated"] == bench.counts["done"] == 0 and not bench.sinks["o_release"].beats
        assert len(bench.at["o_write"]) == bad and bench.counts["v_mul"] == bad
        assert (bench.memory == bench.model.memory).all(), "rows in memory"
        assert not bench.sinks["o_write_data"].beats and not bench.sinks["o_write_requests"].beats
        bench = await Bench.begin(dut, 1)
        await bench.edge
        assert dut.error.value == 0
        await bench.update(draw, 4)


@cocotb.test()
@pytest.mark.testpoint("refused_writes")
async def refused_writes(dut):
    """Rows whose write is answered with an error, one, several, all: all rows from the first of them on are written
    once more, then all is there and `refused` says so; if one cannot be written that time either, the first of them is
    named, it and those behind it are not released, and the others are there."""
    draw = np.random.default_rng(seed("refused"))
    count = 12
    for log2 in lengths()[:3]:
        for refuses in ({0}, {count - 1}, {3, 4, 9}, set(range(count))):
            bench = await Bench.begin(dut, log2)
            bench.refuses = refuses
            first = min(refuses)
            await bench.update(draw, count, again=first, written=2 * count - first - len(refuses))
            assert bench.refused() == {"valid": 1, "twice": 0, "ordinal": 0}
            bench.sources["i"].put(bench.batch(draw, 3)[0])
            for _ in range(50):
                await bench.edge
            assert bench.counts["updated"] == 1, "a further mini-batch was taken"
        for first, again in (({2}, {2}), ({2}, {7, 5}), ({0, 11}, {11}), ({1}, {3})):
            bench = await Bench.begin(dut, log2)
            bench.refuses = first | {count + k - min(first) for k in again}
            beat, (slots, addresses, gradients, _) = bench.batch(draw, count)
            bench.sources["i"].put(beat)
            for _ in range(600):
                await bench.edge
            assert bench.refused() == {"valid": 1, "twice": 1, "ordinal": min(again)}
            assert dut.rests.value == 1 and dut.idle.value == 0 and bench.counts["done"] == 0
            assert bench.sinks["o_release"].beats == slots[:min(again)] and bench.stored == 2 * count - min(first)
            torn = [addresses[k] + bench.beats - 1 for k in first & again]
            before = bench.model.memory[torn].copy()
            bench.model.update(slots, addresses, bench.rate, gradients)
            bench.model.memory[torn] = before
            assert (bench.memory == bench.model.memory).all(), "rows in memory"
    bench = await Bench.begin(dut)
    await bench.edge
    assert bench.refused()["valid"] == 0
    await bench.update(draw, 4)


@cocotb.test()
@pytest.mark.testpoint("hold")
async def hold(dut):
    """While it is high, in any phase, no further mini-batch is taken, the one under way is brought to its end, and
    then the unit rests."""
    draw = np.random.default_rng(seed("hold"))
    for cycles in (0, 1, 2, 5, 20, 60):
        bench = await Bench.begin(dut, 1)
        await bench.edge
        await bench.edge
        assert dut.rests.value == 1
        beat, (slots, addresses, gradients, _) = bench.batch(draw, 10)
        dut.hold.value = cycles == 0
        bench.sources["i"].put(beat)
        for cycle in range(400):
            await bench.edge
            if cycle >= cycles:
                dut.hold.value = 1
            if cycle > cycles + 1 and dut.rests.value == 1:
                break
        begun = bench.counts["updated"]
        assert bench.counts["done"] == begun and (cycles < 5 or begun == 1) and (cycles or not begun)
        if begun:
            bench.model.update(slots, addresses, bench.rate, gradients)
        assert (bench.memory == bench.model.memory).all()


@cocotb.test(skip=os.environ.get("HOTRAIL_SHAPE") != "many")
@pytest.mark.testpoint("corner_values")
async def requests(dut):
    """Gradients of more beats than a request may have, and of exactly as many: what is asked for, not what follows."""
    for log2, count in ((6, 512), (6, 513), (6, 1024), (6, 1023), (0, 1)):
        bench = await Bench.begin(dut, log2, o_read=lambda: never(10_000), o_requests=always)
        bench.sinks["o_requests"]._on_beat = None
        bench.lists[0] = list(range(1024)), list(range(1024))
        address = base("gradients")
        bench.sources["i"].put({"batch": 0, "rows": count, "address": address})
        for _ in range(60):
            await bench.edge
        got = [(r["address"] // BYTES, r["beats"]) for r in bench.sinks["o_requests"].beats]
        assert got == bench.model.reads(address // BYTES, count), (count, got)
        assert max(beats for _, beats in got) <= CHUNK


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", shapes(SHAPES, 1))
def test_update(name, number):
    only = "smoke|requests|latency" if name == "many" else None
    simulate(Updater(SHAPES[name]), "verif.hotline.test_update", name=f"hotline_update_{name}",
             tests=3 if only else 9, seed=number, only=only, env={"HOTRAIL_SHAPE": name})


@pytest.mark.testpoint("smoke")
def test_golden_updates():
    """Two rows of two beats by hand."""
    buffer = EmbeddingBuffer(beats=8, words=2, row_beats_log2=1)
    model = Model(buffer, np.zeros((16, 2), np.uint32))
    row = np.array([[1, 2], [3, 4]], np.float32)
    buffer.land(1, row.view(np.uint32))
    buffer.land(2, 2 * row.view(np.uint32) * 0)
    gradients = np.array([row, row]).view(np.uint32)
    got = model.update([1, 2], [4, 10], int(np.float32(-0.5).view(np.uint32)), gradients)
    assert got.view(np.float32).tolist() == [[[0.5, 1], [1.5, 2]], [[-0.5, -1], [-1.5, -2]]]
    assert (buffer.read(1) == got[0]).all() and (model.memory[10:12] == got[1]).all()
    assert (reducer.update(row.view(np.uint32), 0, row.view(np.uint32)) == row.view(np.uint32)).all()
