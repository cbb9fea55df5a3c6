"""The Hotline core's lookup engines against golden.hotline.lookup, with a logger that answers as the test says."""
import os
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles, with_timeout

from golden.hotline import lookup
from golden.hotline.lookup import NONE, Fault, Register
from hw.hotline.lookup import LookupArray, waiting_beats
from verif.bench import rng, seed
from verif.bench.harness import Harness
from verif.bench.pack import layout_of
from verif.bench.runner import one_of, seeds, simulate
from verif.bench.stream import always, bursty, never, sometimes
from verif.hotline.bench import TINY

CONFIGS = {
    "tiny": TINY,
    # Waves of several beats, rows of more bits than an index has, all positions of the longest samples.
    "wide": replace(TINY, lanes=32, positions=64, banks=64, sets=16384),
    # A position a word.
    "short": replace(TINY, lanes=16, positions=8, banks=4, sets=16),
}
CONFIG = CONFIGS[os.environ.get("HOTRAIL_SHAPE", "tiny")]
WORDS, PARTS, DOMAIN = CONFIG.words, CONFIG.beats_of_wave, 1 << CONFIG.domain_bits


def some_registers(random):
    """A table in each position: some tiny, some of all the rows there are, some pinned."""
    found = {}
    for position in range(CONFIG.positions):
        rows = int(random.integers(1, min(DOMAIN, 1 << int(random.choice([random.integers(1, 31), 31])))))
        found[position] = Register(first=int(random.integers(0, DOMAIN - rows + 1)), rows=rows,
                                   pinned=random.random() < 0.15)
    return found


def some_samples(random, count, beats, indices, registers, *, none=0.2):
    """Indices of their tables, NONE here and there, anything in pinned positions and behind the indices."""
    samples = random.integers(0, 1 << 32, (count, beats * WORDS), np.uint32)
    for position in range(indices):
        if not registers[position].pinned:
            samples[:, position] = random.integers(0, registers[position].rows, count)
        samples[random.random(count) < none, position] = NONE
    return samples


class Bench(Harness):
    """The lookup engines between samples and a logger that knows some rows."""

    def __init__(self, dut, *, samples=None, waves=None, answers=None, out=None, seed_of=1):
        self.random = np.random.default_rng(seed_of)
        self.salt = int(self.random.integers(1 << 62))
        self.pulses = 0
        self.idle_at = []
        self.learn = False
        super().__init__(dut, {"i": samples, "o_waves": waves, "i_answers": answers, "o": out})
        self.source, self.waves, self.sink = self.sources["i"], self.sinks["o_waves"], self.sinks["o"]

    def _cycle(self):
        self.pulses += int(self.dut.samples.value)
        if self.dut.idle.value == 1:
            self.idle_at.append(self.cycle)

    def known(self, rows):
        """(hit, number) of rows: what the logger holds is drawn from their numbers."""
        value = (rows.astype(np.uint64) + np.uint64(self.salt)) * np.uint64(0x9E3779B97F4A7C15)
        return (value >> np.uint64(61)) < 5, (value >> np.uint64(24)) & np.uint64((1 << CONFIG.hot_bits) - 1)

    def _o_waves(self, wave):
        assert wave["learn"] == self.learn
        rows = np.array([lane["row"] for lane in wave["lanes"]])
        valid = np.array([lane["valid"] for lane in wave["lanes"]])
        hit, number = self.known(rows)
        # Lanes that ask for nothing are answered with anything.
        hit = np.where(valid, hit, self.random.integers(0, 2, len(rows)))
        self.sources["i_answers"].put({"lanes": [
            {"hit": int(h), "number": int(n)} for h, n in zip(hit, number, strict=True)]})

    async def write(self, registers):
        layout = layout_of("registers")
        for position, register in registers.items():
            self.dut.registers.value = layout.pack({
                "valid": 1, "position": position, "first": register.first, "rows": register.rows,
                "pinned": int(register.pinned), "base": position, "join": position & 1})
            await self.edge
        # What is not valid is not written.
        self.dut.registers.value = layout.pack({"valid": 0, "position": 0, "rows": 1})

    async def run(self, samples, registers, indices, *, learn=False, cycles=5_000):
        """Sends samples and judges all that comes of them; returns the fault that is expected."""
        dut, at = self.dut, (len(self.waves.beats), len(self.sink.beats), self.pulses)
        await self.begin_run(indices, learn)
        self.send(samples)
        rows, fault = lookup.accesses(samples, registers, indices=indices, words=WORDS)
        await with_timeout(self.source.drained(), 100, "us")
        quiet = 0
        while quiet < 3:
            await self.edge
            # The queues of the bench are not the unit's.
            quiet = quiet + 1 if dut.idle.value == 1 else 0
            cycles -= 1
            assert cycles, "never idle"
        await ClockCycles(dut.clk, 2)
        self.judge(samples, rows, at, learn)
        error = layout_of("error").unpack(int(dut.error.value))
        if fault is None:
            assert not error["valid"], error
            assert self.pulses - at[2] == len(samples)
        else:
            assert error == {"valid": 1, "sample": fault.sample, "position": fault.position, "value": fault.value}, (
                error, fault)
            assert self.pulses - at[2] == fault.sample
        return fault

    async def begin_run(self, indices, learn):
        dut = self.dut
        dut.indices.value, dut.learn.value, dut.begin.value = indices, int(learn), 1
        self.learn = learn
        await self.edge
        dut.begin.value = 0

    def send(self, samples):
        beats = samples.shape[1] // WORDS
        self.source.put(*({"words": sample[WORDS * k:WORDS * k + WORDS].tolist(), "first": int(k == 0),
                           "last": int(k == beats - 1)} for sample in samples for k in range(beats)))

    def judge(self, samples, rows, at, learn):
        expected = [row.tolist() for row in rows if (row >= 0).any()]
        place = 0
        for wave in self.waves.beats[at[0]:]:
            lanes = [lane["row"] if lane["valid"] else -1 for lane in wave["lanes"]]
            ended = False
            for part in range(PARTS):
                beat = lanes[part * WORDS:part * WORDS + WORDS]
                if part and max(beat) < 0:
                    ended = True
                    continue
                assert not ended, "a gap in a wave"
                assert place < len(expected) and beat == expected[place], (
                    f"beat {place}: {beat}, expected {expected[place:place + 1]}")
                place += 1
        assert place == len(expected), f"{place} of {len(expected)} beats asked for something"
        got = self.sink.beats[at[1]:]
        if learn:
            assert not got, "beats came out while learning"
            return
        beats = samples.reshape(-1, WORDS)[:len(rows)]
        words, cold = lookup.translate(beats, rows, *self.known(rows))
        each = samples.shape[1] // WORDS
        assert len(got) == len(beats), f"{len(got)} of {len(beats)} beats came out"
        for k, beat in enumerate(got):
            want = {"words": words[k].tolist(), "first": int(k % each == 0), "last": int(k % each == each - 1),
                    "cold": int(cold[k])}
            assert beat == want, f"beat {k}: {beat}, expected {want}"

    def sizes(self, at=0):
        """Beats of each wave."""
        return [sum(any(lane["valid"] for lane in wave["lanes"][part * WORDS:part * WORDS + WORDS])
                    for part in range(PARTS)) for wave in self.waves.beats[at:]]


def shape_of(random):
    """(beats, indices) of samples."""
    beats = int(random.integers(1, 9))
    return beats, int(random.integers(1, min(beats * WORDS, CONFIG.positions) + 1))


@cocotb.test()
async def smoke(dut):
    """Three samples looked up, and the same ones learned."""
    random = np.random.default_rng(1)
    bench = await Bench.begin(dut)
    registers = some_registers(random)
    await bench.write(registers)
    samples = some_samples(random, 3, 2, 5, registers)
    for learn in (False, True):
        await bench.run(samples, registers, 5, learn=learn)


@cocotb.test()
async def random_match_golden(dut):
    """Samples of any length one kind after the other, registers that change between: what every wave asks for, every
    translated beat, every count."""
    random = np.random.default_rng(seed("samples"))
    bench = await Bench.begin(dut, answers=bursty(rng("answers")))
    registers = {}
    for _ in range(8):
        fresh = some_registers(random)
        changed = {p: r for p, r in fresh.items() if p not in registers or random.random() < 0.3}
        await bench.write(changed)
        registers |= changed
        beats, indices = shape_of(random)
        await bench.run(some_samples(random, 30, beats, indices, registers), registers, indices,
                        learn=random.random() < 0.4)


@cocotb.test()
async def backpressure_both_sides(dut):
    """Samples that pause, waves and beats taken late, answers that come late, each by itself and all together; a
    logger that takes nothing for long."""
    random, pauses = np.random.default_rng(seed("pauses")), rng("pauses")
    rare, common = (lambda: sometimes(0.15, pauses)), (lambda: bursty(pauses))
    for patterns in ((common, common, common, common), (rare, always, always, always), (always, rare, always, always),
                     (always, always, rare, always), (always, always, always, rare),
                     (always, lambda: never(100), always, always), (always, always, lambda: never(200), always)):
        bench = await Bench.begin(dut, **dict(zip(("samples", "waves", "answers", "out"), (p() for p in patterns),
                                                  strict=True)))
        registers = some_registers(random)
        await bench.write(registers)
        beats, indices = shape_of(random)
        await bench.run(some_samples(random, 120 // beats, beats, indices, registers), registers, indices,
                        learn=random.random() < 0.2)
        bench.stop()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Cycles from a beat to its wave and from an answer to its beat; a beat a cycle in and out; full waves at
    full rate, none for payload, and none that waits for a beat that is not there; how many beats wait before
    the samples do."""
    random = np.random.default_rng(seed("rate"))
    plain = {position: Register(first=position, rows=1 << 15) for position in range(CONFIG.positions)}
    index_beats = min(2, CONFIG.positions // WORDS)

    async def fresh(**patterns):
        bench = await Bench.begin(dut, **patterns)
        await bench.write(plain)
        return bench

    bench = await fresh(answers=never(70), out=never(200))
    await bench.run(some_samples(random, 1, 1, 3, plain, none=0), plain, 3)
    assert not set(range(bench.source.taken_at[0] + 1, bench.sink.at[0] + 1)) & set(bench.idle_at), "idle too early"
    bench.stop()
    bench = await fresh()
    await bench.run(some_samples(random, 1, 1, 3, plain, none=0), plain, 3)
    assert bench.waves.at[0] - bench.source.taken_at[0] == (6 if PARTS == 1 else 8)
    assert bench.sink.at[0] - bench.sources["i_answers"].taken_at[0] == 1
    bench.stop()

    # Every beat asks: as many waves as it takes, all full. With two beats of payload they cost no wave.
    for payload in (0, 2):
        bench = await fresh()
        count = 8 * PARTS
        indices = index_beats * WORDS
        samples = some_samples(random, count, index_beats + payload, indices, plain, none=0)
        await bench.run(samples, plain, indices)
        assert np.ptp(bench.source.taken_at) == len(bench.source.taken_at) - 1, "a gap between beats"
        assert np.ptp(bench.sink.at) == len(bench.sink.at) - 1, "a gap between translated beats"
        sizes = bench.sizes()
        assert sum(sizes) == count * index_beats
        if not payload:
            assert set(sizes) == {PARTS}, sizes
        bench.stop()

    # A beat in three cycles: each is a wave of its own.
    bench = await fresh(samples=(k % 3 == 0 for k in range(10_000)))
    await bench.run(some_samples(random, 12, 1, WORDS, plain, none=0), plain, WORDS)
    assert set(bench.sizes()) == {1} and len(bench.waves.beats) == 12
    assert {w - i for w, i in zip(bench.waves.at, bench.source.taken_at, strict=True)} == {6 if PARTS == 1 else 8}
    bench.stop()

    # A logger that takes no wave; one that takes all, and answers none.
    for patterns, least in ((dict(waves=never(400)), 9), (dict(answers=never(400)), waiting_beats(CONFIG) - 8)):
        bench = await fresh(**patterns)
        await bench.begin_run(WORDS, False)
        bench.send(some_samples(random, 300, 1, WORDS, plain, none=0))
        await ClockCycles(dut.clk, 200)
        assert least < bench.source.sent <= least + 8 + PARTS, bench.source.sent
        bench.stop()


@cocotb.test()
async def reset_midstream(dut):
    """A reset with beats in every stage: nothing is left of them, and no register outlives it."""
    random, pauses = np.random.default_rng(seed("reset")), rng("reset")
    for after in (3, 5, 9, 20, 60):
        bench = await Bench.begin(dut, answers=sometimes(0.3, pauses), out=sometimes(0.5, pauses))
        registers = some_registers(random)
        await bench.write(registers)
        await bench.begin_run(WORDS, False)
        bench.send(some_samples(random, 80, 2, WORDS, registers))
        await ClockCycles(dut.clk, after)
        bench.stop()
        bench = await Bench.begin(dut)
        known = {p: r for p, r in registers.items() if p}
        await bench.write(known)
        samples = some_samples(random, 4, 2, WORDS, registers)
        samples[2, 0] = 0
        samples[:2, 0] = NONE
        fault = await bench.run(samples, known, WORDS)
        assert fault == Fault(2, 0, 0), "a register outlived the reset"
        bench.stop()
        bench = await Bench.begin(dut)
        await bench.write(registers)
        await bench.run(some_samples(random, 20, 2, WORDS, registers), registers, WORDS)
        bench.stop()


@cocotb.test()
async def corner_values(dut):
    """The first row and the last, of the first table and the last there are, of the largest table; nothing but NONE;
    one index, and all; all positions pinned; the longest samples."""
    bench = await Bench.begin(dut)
    rows = min(DOMAIN, (1 << 31) - 1)
    registers = {p: (Register(0, rows) if p % 4 == 0 else Register(DOMAIN - rows, rows) if p % 4 == 1
                     else Register(DOMAIN - 1, 1) if p % 4 == 2 else Register(5, 1, pinned=True))
                 for p in range(CONFIG.positions)}
    await bench.write(registers)
    width = 8 * WORDS
    highest = np.array([0 if registers[p].pinned else registers[p].rows - 1 for p in range(CONFIG.positions)])
    samples = np.full((6, width), NONE, np.uint32)
    samples[1:3] = 0
    samples[3, :CONFIG.positions] = highest
    samples[4] = 1 << 31
    samples[4, :CONFIG.positions:2] = NONE
    samples[4, 1:CONFIG.positions:4] = highest[1::4]
    for indices in (1, WORDS - 1, WORDS, CONFIG.positions):
        for learn in (False, True):
            await bench.run(samples, registers, indices, learn=learn)
    pinned = {p: Register(0, 1, pinned=True) for p in range(CONFIG.positions)}
    await bench.write(pinned)
    waves = len(bench.waves.beats)
    await bench.run(samples, pinned, CONFIG.positions)
    await bench.run(samples, pinned, CONFIG.positions, learn=True)
    assert len(bench.waves.beats) == waves, "waves that ask for nothing"


@cocotb.test()
@pytest.mark.testpoint("index_out_of_range")
async def index_out_of_range(dut):
    """An index just too large, much too large, or in a position without a register: the first is told with its sample,
    position and value; nothing that comes later goes out, and all that came before does."""
    random, pauses = np.random.default_rng(seed("faults")), rng("faults")
    for turn in range(10):
        bench = await Bench.begin(dut, samples=bursty(pauses), answers=bursty(pauses))
        registers = {p: replace(r, pinned=False) for p, r in some_registers(random).items()}
        beats, indices = shape_of(random)
        missing = int(random.integers(indices)) if turn % 3 == 2 else None
        known = {p: r for p, r in registers.items() if p != missing}
        await bench.write(known)
        if missing is None:
            # A run before, so that samples are counted from the run's first.
            await bench.run(some_samples(random, 5, beats, indices, registers), registers, indices, learn=turn % 2 == 0)
        samples = some_samples(random, 20, beats, indices, registers)
        for _ in range(3 if missing is None else 0):
            # Often several in a beat: the first is told of.
            at = int(random.integers(20))
            for position in random.integers(0, indices, int(random.integers(1, 4))):
                rows = registers[int(position)].rows
                samples[at, position] = rows if turn % 3 == 0 else random.choice([rows, NONE - 1, rows + (1 << 31)])
        if missing is not None:
            samples[:3, missing] = NONE
        fault = await bench.run(samples, known, indices, learn=turn % 2 == 1)
        assert fault is not None
        # It stays.
        bench.send(samples)
        await with_timeout(bench.source.drained(), 100, "us")
        await ClockCycles(dut.clk, 20)
        bench.judge(samples[:0], np.zeros((0, WORDS), np.int64), (len(bench.waves.beats), len(bench.sink.beats)), False)
        assert layout_of("error").unpack(int(dut.error.value))["sample"] == fault.sample
        bench.stop()


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", one_of(CONFIGS))
def test_lookup(name, number):
    simulate(LookupArray(CONFIGS[name]), "verif.hotline.test_lookup", name=f"hotline_lookup_{name}", tests=7,
             seed=number, env={"HOTRAIL_SHAPE": name})
