"""The gathering of cold rows against its model, between frames, rows in memory and a GPU, all at any pace."""
from collections import Counter, deque

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles

from hw.hotline.gather import Gather
from hw.hotline.row_table import QUERY_CLIENTS
from verif.bench import rng, seed
from verif.bench.harness import Harness
from verif.bench.memory import base
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.bench.stream import always, bursty, never, sometimes
from verif.hotline.jobs import CONFIG, CONFIGS, NONE, POSITIONS, WORDS, job


class Bench(Harness):
    """Frames, rows in memory with the number of updates for their contents, and what deals, updates and writes back.

    patterns: of the streams by name; land: rows that land; pace: cycles that the GPU and the writing back take, drawn
    up to this."""

    def __init__(self, dut, work, *, land=always, pace=30, label="bench", **patterns):
        self.job, self.random, self.land, self.pace = work, rng(label), land(), pace
        self.memory = {}                            # words of frames in use
        self.to_send = deque()
        self.free = deque(range(CONFIG.frames))
        self.frame_of = {}
        self.reads = deque()                        # (cycle in which it can come, beat)
        self.asked, self.landing = deque(), deque()
        self.dram, self.slots = Counter(), {}       # updates that a row has seen
        self.wanted = deque(work.wanted)
        self.seen = Counter()
        self.flight = deque()                       # mini-batches that came out
        self.rows, self.requests = base("rows"), 0
        self.misses = self.hits = self.released = 0
        self.places_at, self.answers_at, self.out_at = [], [], []
        self.number = 0
        super().__init__(dut, {name: made() for name, made in patterns.items()})

    @classmethod
    async def begin(cls, dut, work, **arguments):
        bench = await super().begin(dut, work=work, **arguments)
        dut.rows.value = bench.rows
        dut.rows_beats.value = work.rows_beats
        dut.indices.value, dut.sample_beats.value = work.indices, work.sample_beats
        dut.row_beats_log2.value = work.row_beats_log2
        pack = layout_of("registers").pack
        for position in range(POSITIONS):
            dut.registers.value = pack({
                "valid": 1, "position": position, "first": work.first[position], "rows": work.table_rows[position],
                "base": work.base[position], "pinned": work.pinned[position]})
            await bench.edge
        dut.registers.value = 0
        await ClockCycles(dut.clk, 3)
        bench.to_send.extend(range(len(work.frames)))
        return bench

    def _cycle(self):
        dut = self.dut
        self.misses += int(dut.miss.value)
        self.hits += int(dut.hit.value)
        if dut.miss.value == 1 or dut.hit.value == 1:
            self.answers_at.append(self.cycle)
        if self.to_send and self.free and self.sources["i"].sent == len(self.frame_of):
            number, frame = self.to_send.popleft(), self.free.popleft()
            self.memory[frame] = self.job.frames[number].copy()
            self.frame_of[number] = frame
            self.sources["i"].put({"frame": frame, "samples": len(self.memory[frame])})
        while self.reads and self.reads[0][0] <= self.cycle:
            self.sources["i_beats"].put(self.reads.popleft()[1])
        lands = bool(self.asked and self.landing and next(self.land))
        if lands:
            self.slots[self.landing.popleft()] = self.asked.popleft()
        dut.landed.value = lands
        dut.released.value = self._serve()

    # -- What comes out.

    def _o_place(self, place):
        self.places_at.append(self.cycle)
        frame, beat = place["frame"], place["beat"]
        flat = self.memory[frame].reshape(-1, WORDS)
        assert beat < len(flat), f"beat {beat} of a frame of {len(flat)}"
        words = int.from_bytes(flat[beat].astype("<u4").tobytes(), "little")
        self.reads.append((self.cycle + 3, words))

    def _o_write(self, write):
        flat = self.memory[write["place"]["frame"]].reshape(-1, WORDS)
        flat[write["place"]["beat"]] = write["words"]

    def _o_requests(self, request):
        row_beats = 1 << self.job.row_beats_log2
        place, rest = divmod(request["address"] - self.rows, CONFIG.beat_bytes)
        assert rest == 0 and request["beats"] == row_beats and place + row_beats <= self.job.rows_beats, request
        self.requests += 1
        # Read at once: before a write that is still under way.
        self.asked.append(self.dram[place])

    def _o_landing(self, slot):
        self.landing.append(slot)

    def _o(self, out):
        assert self.wanted, f"a mini-batch too many: {out}"
        number, part, frees = self.wanted.popleft()
        frame = self.frame_of[number]
        want = {"frame": frame, "start": part.start, "samples": part.samples, "batch": self.number % CONFIG.batches,
                "rows": len(part.rows), "frees": int(frees)}
        assert out == want, f"mini-batch {self.number} is {out}, expected {want}"
        self.number += 1
        self.out_at.append(self.cycle)
        got = self.memory[frame][part.start:part.start + part.samples]
        np.testing.assert_array_equal(got, self.job.translated[number][part.start:part.start + part.samples])
        if frees:
            del self.memory[frame]  # a write of it that came later would be caught
            self.free.append(frame)
        client = self.number % QUERY_CLIENTS
        self.sources[f"i_query__{client}"].put(*({"batch": out["batch"], "ordinal": ordinal}
                                                 for ordinal in range(len(part.rows))))
        self.flight.append({"addresses": part.addresses, "slots": [], "client": client, "state": "asking", "at": 0})

    def _o_query(self, answer, client):
        batch = next(b for b in self.flight if b["client"] == client and len(b["slots"]) < len(b["addresses"]))
        want = batch["addresses"][len(batch["slots"])]
        assert answer["address"] == want, f"cycle {self.cycle}: client {client} {answer}, expected address {want}"
        batch["slots"].append(answer["slot"])

    # -- What stands behind it: deals, updates, writes back and releases, one mini-batch after the other.

    def _serve(self):
        """Whether the oldest mini-batch is released in this cycle."""
        before_updated = True
        for batch in self.flight:
            if batch["state"] == "asking" and len(batch["slots"]) == len(batch["addresses"]) and before_updated:
                assert len(set(batch["slots"])) == len(batch["slots"])
                for slot, address in zip(batch["slots"], batch["addresses"]):
                    assert self.slots[slot] == self.seen[address], (
                        f"cycle {self.cycle}: row at {address} is dealt after {self.slots[slot]} of "
                        f"{self.seen[address]} updates")
                    self.seen[address] += 1
                batch["state"], batch["at"] = "dealt", self.cycle + self.random.randrange(self.pace + 1)
            before_updated = before_updated and batch["state"] not in ("asking", "dealt")
        if not self.flight:
            return False
        batch = self.flight[0]
        if batch["state"] == "dealt" and self.cycle >= batch["at"]:
            for slot in batch["slots"]:
                self.slots[slot] += 1
            batch["state"], batch["at"] = "updated", self.cycle + self.random.randrange(self.pace + 1)
        elif batch["state"] == "updated" and self.cycle >= batch["at"]:
            for slot, address in zip(batch["slots"], batch["addresses"]):
                self.dram[address] = self.slots[slot]
            self.sources["i_release"].put(*batch["slots"])
            self.released += len(batch["slots"])
            batch["state"] = "releasing"
        elif batch["state"] == "releasing" and self.sources["i_release"].sent == self.released:
            self.flight.popleft()
            return True
        return False

    async def run(self, *, until=None, cycles=100_000):
        stop = self.cycle + (cycles if until is None else until)
        while self.wanted or self.flight:
            if self.cycle >= stop:
                assert until is not None, (
                    f"not done after {cycles} cycles: {len(self.wanted)} to come, {list(self.flight)} in flight, error "
                    f"{int(self.dut.error.value)}, rows asked for {len(self.asked)}, slots {len(self.landing)}")
                return
            await self.edge
        if until is not None:
            return
        for _ in range(400):        # the last releases act, each of a row that is not in its bucket by itself
            await self.edge
            if self.dut.idle.value == 1:
                break
        assert self.dut.idle.value == 1 and self.dut.error.value == 0
        assert self.misses + self.hits == sum(part.words for _, part, _ in self.job.wanted)
        assert self.requests == self.misses
        assert all(self.dram[address] == count for address, count in self.seen.items())
        for name in self.sinks:
            assert getattr(self.dut, f"{name}__valid").value == 0, name


@cocotb.test()
async def smoke(dut):
    """Three frames of samples: mini-batches, ordinals, requests, rows that land, queries, releases."""
    random = np.random.default_rng(1)
    bench = await Bench.begin(dut, job(random, 3, beats=2, log2=1, indices=10))
    await bench.run()


@cocotb.test()
async def random_match_golden(dut):
    """Tables, samples and rows of all lengths, many rows shared and many different, mini-batches that are
    cut: what comes out is the model's, every row has all updates of the mini-batches before when it is dealt,
    and each is read once."""
    random = np.random.default_rng(seed("jobs"))
    cut = hits = 0
    for pool, cold in ((5, 0.3), (40, 0.1), (40, 0.5), (500, 0.8), (200, 1.0), (12, 0.7)):
        work = job(random, 8, pool=pool, cold=cold)
        bench = await Bench.begin(dut, work, label=f"{pool} {cold}")
        await bench.run()
        cut += sum(not frees for *_, frees in work.wanted)
        hits += bench.hits
    assert min(cut, hits) > 1, (cut, hits)


@cocotb.test()
async def backpressure_both_sides(dut):
    """Every stream slow by itself and all together, streams that stand for long, rows that land late, a GPU that takes
    long, so that slots and mini-batches run out: the same contents."""
    random, pauses = np.random.default_rng(seed("pauses")), rng("pauses")
    rare, common = (lambda: sometimes(0.07, pauses)), (lambda: bursty(pauses))
    streams = ("o_place", "i_beats", "o_write", "o_requests", "o_landing", "o")
    for slow in (*({name: rare} for name in (*streams, "land")), {"pace": 600}, {"o_landing": lambda: never(400)},
                 {"o_requests": lambda: never(400)}, dict.fromkeys((*streams, "land"), common)):
        work = job(random, 3, pool=int(random.integers(10, 60)), cold=float(random.random() * 0.8 + 0.1), log2=1)
        bench = await Bench.begin(dut, work, label=str(sorted(slow)), **slow)
        await bench.run()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A beat a cycle without cold words, and three cycles between samples where slots run short; a cycle a cold word
    and one a beat, behind one another."""
    random = np.random.default_rng(seed("rate"))
    # Samples of four beats without a cold word: 4 cycles, or 3 more if the slots may not suffice for two.
    for indices in (4, POSITIONS):
        work = job(random, 1, beats=4, indices=indices, cold=0.0, samples=64)
        for frame in work.frames:
            frame[:, :indices] = NONE
        work.__post_init__()
        bench = await Bench.begin(dut, work)
        await bench.run()
        samples = len(work.frames[0])
        took = bench.out_at[0] - bench.places_at[0]
        each = 4 if 2 * indices + 4 <= most(work.row_beats_log2) else 7
        assert took <= each * samples + 16, (took, samples)
    # Samples full of cold words, all of them different: a cycle each, and one more for each beat.
    work = job(random, 2, beats=2, indices=min(WORDS, most(0) // 4), pool=1000, cold=1.0, log2=0, samples=64, tables=1)
    bench = await Bench.begin(dut, work, pace=0)
    await bench.run(until=400)
    # Slots are drawn, and some wait for each other: of 24 steps 15 to 21 take a cycle.
    steps = [after - before for before, after in zip(bench.answers_at, bench.answers_at[1:])][:24]
    assert steps.count(1) >= 12, steps


def most(log2):
    """Slots that there are for rows of 2**log2 beats."""
    return min(CONFIG.row_slots, CONFIG.embedding_beats >> log2)


@cocotb.test()
async def reset_midstream(dut):
    """A reset anywhere, then the same frames, with rows that memories of before still hold: every row is read
    again."""
    random = np.random.default_rng(seed("reset"))
    for _ in range(5):
        work = job(random, 4, pool=20, cold=0.5)
        bench = await Bench.begin(dut, work)
        await bench.run(until=int(random.integers(20, 500)))
        bench = await Bench.begin(dut, work)
        await bench.run()


@cocotb.test()
async def corner_values(dut):
    """A sample alone, one index and as many as slots, samples of one beat and of eight, the last row of a buffer,
    offsets up to 32 bits, rows of 64 beats, payload words that look cold, all positions pinned but one, samples that
    just fit once the ones before are gone."""
    random = np.random.default_rng(seed("corners"))
    for beats, indices, log2, samples in ((1, 1, 0, None), (1, WORDS, 6, None), (4, POSITIONS, 1, None),
                                          (8, 1, 3, None), (4, WORDS + 1, 0, None), (2, CONFIG.row_slots, 0, None),
                                          (1, 1, 0, CONFIG.frame_beats)):
        work = job(random, 3, beats=beats, indices=indices, log2=log2, cold=0.7, pool=100, samples=samples)
        bench = await Bench.begin(dut, work)
        await bench.run()
    # As many indices as slots: every sample is a mini-batch of its own, as soon as one has a row.
    work = job(random, 2, beats=2, indices=min(16, POSITIONS), log2=(CONFIG.embedding_beats // 16).bit_length() - 1,
               cold=0.9, samples=64)
    assert all(part.samples == 1 or not part.rows for _, part, _ in work.wanted[:-1])
    bench = await Bench.begin(dut, work)
    await bench.run()
    # Two samples that just fit, while those before still hold their slots: they wait, and are not parted.
    half = CONFIG.row_slots // 2
    work = job(random, 4, beats=2, indices=half, log2=0, tables=1, pool=8 * half, pinned=0, samples=2)
    rows = random.permutation(work.table_rows[0]).astype(np.uint32)
    for number, frame in enumerate(work.frames):
        frame[:, :half] = rows[2 * half * number:2 * half * (number + 1)].reshape(2, half)
    work.__post_init__()
    assert [(part.samples, len(part.rows)) for _, part, _ in work.wanted] == [(2, 2 * half)] * 4
    bench = await Bench.begin(dut, work, pace=600)
    await bench.run()
    # The last row of a buffer that is exactly as long as the tables, and of one as long as offsets go.
    for end in (None, (1 << 32) - 1):
        work = job(random, 2, beats=1, indices=WORDS, cold=1.0, tables=1, log2=1, pinned=0)
        if end is not None:
            work.base = [end - (work.table_rows[0] << 1)] * POSITIONS
            work.rows_beats = end
        for frame in work.frames:
            frame[:, 0] = work.table_rows[0] - 1
        work.__post_init__()
        bench = await Bench.begin(dut, work)
        await bench.run()


@cocotb.test()
@pytest.mark.testpoint("faults")
async def rows_outside_the_buffer(dut):
    """A row that begins or ends behind the buffer, or so far that its offset does not fit 32 bits, is never asked for;
    an error is told, mini-batches before it come out, its own does not."""
    random = np.random.default_rng(seed("faults"))
    for change in ("short", "tiny", "empty", "far"):
        work = job(random, 3, beats=1, indices=WORDS, cold=0.3, tables=1, log2=2, pinned=0, samples=6)
        for frame in work.frames:
            colds = frame[:, :WORDS] < 1 << 31
            frame[:, :WORDS][colds] %= max(1, work.table_rows[0] - 1)
        position, last = WORDS - 3, work.table_rows[0] - 1
        if change == "far":
            last = (1 << 31) - 1 - int(random.integers(100))
        work.frames[1][0, position] = last
        work.__post_init__()
        if change == "short":
            work.rows_beats -= 1
        elif change == "tiny":
            work.rows_beats = 3
        elif change == "empty":
            work.rows_beats = 0
        bench = await Bench.begin(dut, work, label=change)
        if change in ("short", "far"):
            before = [part for number, part, _ in work.wanted if number == 0]
            bench.wanted = deque(item for item in work.wanted if item[0] == 0)
            await bench.run(until=3000)
            assert not bench.wanted and before
        else:
            bench.wanted = deque()
            await ClockCycles(dut.clk, 300)
            assert bench.requests == 0
        await ClockCycles(dut.clk, 300)
        assert dut.error.value == 1 and dut.idle.value == 0, change


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", ["tiny", pytest.param("wide", marks=pytest.mark.regress)])
def test_gather(name, number):
    simulate(Gather(CONFIGS[name]), "verif.hotline.test_gather", name=f"hotline_gather_{name}", tests=7, seed=number,
             env={"GATHER": name})
