"""The embedding buffer against its model: rows that land, are read by both clients and written over at once."""
import os
from collections import deque

import cocotb
import pytest

from golden.hotline.embeddings import EmbeddingBuffer as Model
from hw.hotline.embeddings import CLIENTS, EmbeddingBuffer
from verif.bench import rng
from verif.bench.harness import Harness
from verif.bench.pack import layout_of
from verif.bench.runner import one_of, seeds, simulate
from verif.bench.stream import always, bursty, never, sometimes
from verif.hotline.bench import TINY, WIDE

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))


class Deep(EmbeddingBuffer):
    """With the output registers of a deep array."""

    registers = 8


SHAPES = {"tiny": EmbeddingBuffer(TINY), "wide": EmbeddingBuffer(WIDE), "deep": Deep(TINY)}
SHAPE = SHAPES[os.environ.get("HOTRAIL_SHAPE", "tiny")]
CONFIG, LATENCY = SHAPE.config, SHAPE.latency


class Bench(Harness):
    """Operations on slots: none begins before those it must not meet on its slot are done. outs: of the clients."""

    raw = tuple(f"o_read__{k}" for k in range(CLIENTS))

    def __init__(self, dut, log2, data, outs):
        self.log2, self.beats = log2, 1 << log2
        self.slots = min(CONFIG.row_slots, CONFIG.embedding_beats >> log2)
        self.model = Model(beats=CONFIG.embedding_beats, words=CONFIG.words, row_beats_log2=log2)
        self.write_layout = layout_of("i_write__payload")
        self.coming, self.wanted = deque(), [deque() for _ in range(CLIENTS)]
        self.known = set()                          # slots with a row
        self.readers = dict.fromkeys(range(self.slots), 0)
        self.closed = set()                         # slots that are landing
        self.landed_at, self.wrote = [], 0
        self.writing = [False] * 2                  # in the last two cycles
        self.asked, self.owing = [0] * CLIENTS, 0   # beats of each client; cycles in which a read was under way
        super().__init__(dut, {"i_data": data(), **{f"o_read__{k}": out() for k, out in enumerate(outs)}})
        self.sources.pop("i_write").stop()          # `step` drives it
        self.landing, self.data = self.sources["i_landing"], self.sources["i_data"]
        self.reads, self.outs = ([parts[f"{name}__{k}"] for k in range(CLIENTS)]
                                 for parts, name in ((self.sources, "i_read"), (self.sinks, "o_read")))

    @classmethod
    async def begin(cls, dut, log2=1, data=always, outs=(always, always)):
        bench = await super().begin(dut, log2=log2, data=data, outs=outs)
        dut.row_beats_log2.value = log2
        return bench

    def _o_read(self, word, k):
        assert self.wanted[k], f"client {k}: a beat that nobody asked for"
        slot, beat, want = self.wanted[k].popleft()
        assert word == want, f"client {k}: beat {beat} of slot {slot} is {word:#x}, expected {want:#x}"
        if beat == self.beats - 1:
            self.readers[slot] -= 1

    def free(self, slot):
        return slot not in self.closed and not self.readers[slot]

    def land(self, slot, draw, error_at=None):
        row = [[draw.getrandbits(32) for _ in range(CONFIG.words)] for _ in range(self.beats)]
        self.landing.put(slot)
        for k, words in enumerate(row):
            word = sum(value << 32 * at for at, value in enumerate(words))
            self.data.put({"data": word, "error": k == error_at, "last": k == self.beats - 1})
        self.coming.append((slot, row))
        self.closed.add(slot)

    def read(self, k, slot):
        self.readers[slot] += 1
        self.reads[k].put(slot)
        self.asked[k] += self.beats
        for beat, words in enumerate(self.model.read(slot).tolist()):
            self.wanted[k].append((slot, beat, sum(value << 32 * at for at, value in enumerate(words))))

    async def step(self, write=None):
        """A cycle. write: slot, beat, words."""
        dut = self.dut
        dut.i_write__valid.value = write is not None
        if write is not None:
            slot, beat, words = write
            dut.i_write__payload.value = self.write_layout.pack({"slot": slot, "beat": beat, "words": words})
            self.model.write(slot, beat, words)
            self.wrote += 1
        await self.edge

    def _cycle(self):
        # `idle` is a cycle late, and so may be what has been taken.
        owed = any(len(source.taken_at) * self.beats > asked - len(wanted) for source, asked, wanted in zip(
            self.reads, self.asked, self.wanted, strict=True))
        self.owing = self.owing + 1 if owed else 0
        assert self.owing < 4 or self.dut.idle.value == 0, f"cycle {self.cycle}: idle with beats to come"
        assert not any(self.writing) or self.dut.idle.value == 0, f"cycle {self.cycle}: idle with a write under way"
        self.writing = [self.dut.i_write__valid.value == 1, self.writing[0]]
        if self.dut.landed.value == 1:
            slot, row = self.coming.popleft()
            self.model.land(slot, row)
            self.known.add(slot)
            self.closed.discard(slot)
            self.landed_at.append(self.cycle)

    async def fill(self, draw):
        for slot in range(self.slots):
            self.land(slot, draw)
        await self.drain()

    async def drain(self, cycles=5000):
        quiet = 0
        while quiet < 3:
            await self.step()
            cycles -= 1
            assert cycles, "not done"
            quiet = quiet + 1 if self.dut.idle.value == 1 and not self.coming and not any(self.wanted) else 0
        assert self.dut.error.value == 0

    async def traffic(self, draw, cycles, writes=0.3, lands=0.2, reads=0.4):
        for _ in range(cycles):
            write = None
            slot = draw.randrange(self.slots)
            if draw.random() < writes and slot in self.known and self.free(slot):
                write = slot, draw.randrange(self.beats), [draw.getrandbits(32) for _ in range(CONFIG.words)]
            await self.step(write)
            slot = draw.randrange(self.slots)
            if draw.random() < lands and self.free(slot) and len(self.coming) < CONFIG.row_read_beats:
                self.land(slot, draw)
            for k in range(CLIENTS):
                slot = draw.randrange(self.slots)
                if draw.random() < reads and slot in self.known and slot not in self.closed \
                        and len(self.wanted[k]) < max(16, 40 // self.beats) * self.beats:
                    self.read(k, slot)
        await self.drain()


def lengths():
    return [log2 for log2 in range(7) if CONFIG.embedding_beats >> log2 >= 4]


@cocotb.test()
async def smoke(dut):
    """A row lands, both clients read it, a beat of it is written over, it is read again."""
    draw = rng("smoke")
    bench = await Bench.begin(dut)
    bench.land(3, draw)
    await bench.drain()
    bench.read(0, 3)
    bench.read(1, 3)
    await bench.drain()
    await bench.step((3, 1, list(range(CONFIG.words))))
    bench.read(1, 3)
    await bench.drain()


@cocotb.test()
async def random_match_golden(dut):
    """Landings, writes and reads of both clients at once, with rows of every length that the memory holds four of:
    every beat as the model's, in order."""
    wrote = landed = 0
    for log2 in lengths():
        draw = rng(f"traffic {log2}")
        bench = await Bench.begin(dut, log2)
        await bench.traffic(draw, 500 if REGRESS else 250)
        await bench.traffic(draw, 300 if REGRESS else 200, writes=0.9, lands=0.6, reads=0.9)
        wrote, landed = wrote + bench.wrote, landed + len(bench.landed_at)
    assert wrote > 80 and landed > 100, (wrote, landed)     # by chance 145 to 332 and 215 to 476


@cocotb.test()
async def backpressure_both_sides(dut):
    """Data that come late, clients that take late, each alone and together; a client that takes nothing does not hold
    the other up."""
    pauses = rng("pauses")
    rare, common = (lambda: sometimes(0.15, pauses)), (lambda: bursty(pauses))
    for data, outs in ((rare, (always, always)), (common, (rare, always)), (always, (common, rare)),
                       (common, (common, common))):
        bench = await Bench.begin(dut, 1, data, outs)
        await bench.traffic(rng("slow"), 400)
    for stopped in range(CLIENTS):
        outs = [always, always]
        outs[stopped] = lambda: never(400)
        bench = await Bench.begin(dut, 1, always, outs)
        draw = rng(f"stopped {stopped}")
        for slot in range(4):
            bench.land(slot, draw)
        for _ in range(20):
            await bench.step()
        for slot in range(60):
            bench.read(stopped, slot % 4)
            bench.read(1 - stopped, slot % 4)
        for _ in range(200):
            await bench.step()
        assert not bench.wanted[1 - stopped] and len(bench.wanted[stopped]) == 60 * bench.beats
        await bench.drain()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A beat a cycle in; a beat a cycle to each client, the first before the second where both want the same half;
    `latency` from a slot to its first beat; writes and landings of the cycle before a slot is taken are read; updates
    go before landings."""
    for log2 in (0, 2):
        draw = rng(f"rate {log2}")
        bench = await Bench.begin(dut, log2)
        for slot in range(bench.slots):
            bench.land(slot, draw)
        await bench.drain()
        taken = bench.data.taken_at
        assert taken[-1] - taken[0] == len(taken) - 1, "a pause between beats that land"
        for slot in range(bench.slots):
            bench.read(0, slot)
        await bench.drain()
        assert bench.outs[0].at[0] - bench.reads[0].taken_at[0] == LATENCY
        assert bench.outs[0].at[-1] - bench.outs[0].at[0] == bench.slots * bench.beats - 1
        count = [len(sink.at) for sink in bench.outs]
        for slot in range(bench.slots):
            bench.read(0, slot)
            bench.read(1, slot)
        await bench.drain()
        for k in range(CLIENTS):
            at = bench.outs[k].at[count[k]:]
            assert at[-1] - at[0] <= len(at), f"client {k} is not served every cycle"
        # Even places only.
        if not log2:
            count = [len(sink.at) for sink in bench.outs]
            for slot in range(0, bench.slots, 2):
                bench.read(0, slot)
                bench.read(1, slot)
            await bench.drain()
            first, second = (bench.outs[k].at[count[k]:] for k in range(CLIENTS))
            assert first[-1] - first[0] == len(first) - 1, "the first client is not served every cycle"
            assert second[-1] - first[0] == 2 * len(first) - 1, "the second client has not all that the first leaves"
        # Written in a cycle, asked for in the next.
        for slot in range(bench.slots):
            await bench.step((slot, bench.beats - 1, [draw.getrandbits(32) for _ in range(CONFIG.words)]))
            bench.read(1, slot)
        await bench.drain()
        for slot in range(bench.slots):
            bench.land(slot, draw)
            while slot in bench.closed:
                await bench.step()
            bench.read(0, slot)
        await bench.drain()
        # Updates go first; what lands in the same half waits for them, and nothing else does.
        bench.land(0, draw)
        for _ in range(50):
            await bench.step((2, 0, [draw.getrandbits(32) for _ in range(CONFIG.words)]))
        assert 0 in bench.closed
        await bench.drain()
        if not log2:
            bench.land(1, draw)
            for _ in range(50):
                await bench.step((2, 0, [draw.getrandbits(32) for _ in range(CONFIG.words)]))
            assert 1 not in bench.closed
        await bench.drain()


@cocotb.test()
async def reset_midstream(dut):
    """A reset with rows landing and being read: the queues are empty, all room is back, rows that had landed
    are still there."""
    draw, pauses = rng("reset"), rng("pauses")
    for _ in range(3):
        bench = await Bench.begin(dut, 1, lambda: sometimes(0.3, pauses), (lambda: sometimes(0.2, pauses), always))
        await bench.fill(draw)
        for _ in range(40):
            bench.read(draw.randrange(CLIENTS), draw.randrange(bench.slots))
        bench.landing.put(0)
        for _ in range(draw.randint(5, 60)):
            await bench.step()
        after = await Bench.begin(dut)
        await after.edge
        assert dut.error.value == 0
        after.model.memory[:] = bench.model.memory
        for slot in range(1, after.slots):
            after.read(slot % CLIENTS, slot)
        await after.drain()
        await after.fill(draw)
        await after.traffic(draw, 200)


@cocotb.test()
async def corner_values(dut):
    """First and last slot and beat at every length, words of ones, as many slots ahead of their rows as the
    queue holds."""
    ones = [0xFFFFFFFF] * CONFIG.words
    for log2 in lengths():
        bench = await Bench.begin(dut, log2)
        draw = rng(f"corner {log2}")
        last = (CONFIG.embedding_beats >> log2) - 1 if CONFIG.embedding_beats >> log2 <= CONFIG.row_slots \
            else CONFIG.row_slots - 1
        for slot in (0, last):
            bench.land(slot, draw)
        await bench.drain()
        for slot in (0, last):
            for beat in (0, bench.beats - 1):
                await bench.step((slot, beat, ones))
        for slot in (0, last):
            bench.read(0, slot)
            bench.read(1, slot)
        await bench.drain()
    # Slots run ahead of their rows, which have not come yet.
    bench = await Bench.begin(dut, 0)
    for _ in range(CONFIG.row_read_beats + 8):
        bench.landing.put(0)
    for _ in range(CONFIG.row_read_beats + 30):
        await bench.step()
    assert bench.landing.sent == CONFIG.row_read_beats + 1
    bench.landing.stop()


@cocotb.test()
@pytest.mark.testpoint("faults")
async def faults(dut):
    """A beat that cannot be trusted does not land, nor does anything behind it; the error stays until a reset, reads
    and writes go on."""
    draw = rng("faults")
    for at in range(2):
        bench = await Bench.begin(dut)
        bench.land(1, draw)
        await bench.drain()
        bench.land(2, draw, error_at=at)
        bench.land(3, draw)
        for _ in range(30):
            await bench.step()
        assert dut.error.value == 1 and bench.known == {1}
        await bench.step((1, 0, [7] * CONFIG.words))
        bench.read(0, 1)
        for _ in range(30):
            await bench.step()
        assert not bench.wanted[0] and dut.error.value == 1
        bench = await Bench.begin(dut)
        await bench.edge
        assert dut.error.value == 0
        bench.land(3, draw)
        await bench.drain()


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", one_of(SHAPES))
def test_embeddings(name, number):
    simulate(SHAPES[name], "verif.hotline.test_embeddings", name=f"hotline_embeddings_{name}",
             tests=7, seed=number, env={"HOTRAIL_SHAPE": name})
