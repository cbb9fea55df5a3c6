"""The Hotline core's input buffer against its model, cycle by cycle, and against the mini-batches that samples make."""
import os
from collections import deque
from dataclasses import replace

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.hotline.frames import InputBuffer as Model
from golden.hotline.frames import mini_batches
from hw.hotline.frames import InputBuffer
from verif.bench import reset, rng, seed, start
from verif.bench.directed import with_each_bit_above
from verif.bench.pack import layout_of
from verif.bench.runner import one_of, seeds, simulate
from verif.bench.stream import always, bursty, never, sometimes
from verif.hotline.bench import TINY

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
CONFIGS = {
    "tiny": TINY,
    # A number of frames that is no power of two.
    "three": replace(TINY, frames=3, frame_beats=64),
    # As few as there can be, beats of 16 words.
    "two": replace(TINY, frames=2, frame_beats=16, lanes=16, words=16),
}
CONFIG = CONFIGS[os.environ.get("HOTRAIL_SHAPE", "tiny")]
BITS = 32 * CONFIG.words
OUT = ("o_popular", "o_cold")


class Bench:
    """The buffer between samples, two readers that free what they have read, and one that rewrites; everything that
    it shows is judged in every cycle, and every beat that is read by what was written there."""

    def __init__(self, dut, *, samples=always, frames=(always, always), reads=(always, always),
                 beats=(always, always), frees=always, rewrites=0.0, label="bench"):
        self.dut = dut
        self.edge = RisingEdge(dut.clk)
        self.model = Model(frames=CONFIG.frames, frame_beats=CONFIG.frame_beats)
        self.patterns = {"samples": samples(), "frees": frees(), "frames": [p() for p in frames],
                         "reads": [p() for p in reads], "beats": [p() for p in beats]}
        self.rewrites, self.random = rewrites, rng(label)
        self.layouts = {name: layout_of(name) for name in ("i__payload", "i_write__payload", "free")}
        self.place, self.frame = layout_of("i_read__0__payload"), layout_of("o_popular__payload")
        self.cycle = 0
        self.offered, self.asked = None, [None, None]
        self.to_read = (deque(), deque())       # (frame, beat) of each client
        self.to_write = deque()
        self.to_free = deque()
        self.expected = (deque(), deque())
        self.shadow = {}
        self.unread = {}                        # frame -> beats that have not been read yet
        self.log = {name: [] for name in ("taken", "popular", "cold", "asked_0", "asked_1", "read_0", "read_1",
                                          "freed", "flushed")}
        self.frames_of = ([], [])

    @classmethod
    async def begin(cls, dut, **arguments):
        start(dut)
        for name in ("i__valid", "i_write__valid", "i_read__0__valid", "i_read__1__valid", "free", "flush",
                     "o_popular__ready", "o_cold__ready", "o_read__0__ready", "o_read__1__ready"):
            getattr(dut, name).value = 0
        await reset(dut)
        return cls(dut, **arguments)

    def _take_frame(self, kind, frame, samples):
        """Judges a mini-batch that was handed out and has it read."""
        number = len(self.frames_of[kind])
        wanted = self.batches[kind][number]
        self.frames_of[kind].append((frame, samples))
        assert samples == len(wanted), f"{OUT[kind]} {number}: {samples} samples, expected {len(wanted)}"
        beats = [self.contents[sample][k] for sample in wanted for k in range(self.sample_beats)]
        assert frame not in self.unread, f"{OUT[kind]} {number}: frame {frame} is not free"
        self.shadow |= {(frame, k): beat for k, beat in enumerate(beats)}
        places = [(frame, k) for k in range(len(beats))]
        self.unread[frame] = len(places)
        client = self.random.randrange(2)
        changed = [place for place in places if self.random.random() < self.rewrites]
        if changed:
            self.to_write.extend((place, self.random.getrandbits(BITS)) for place in changed)
            self.to_write.append((client, places))
        else:
            self.to_read[client].extend(places)

    async def run(self, cold, sample_beats, batch, *, until=None, cycles=20_000):
        """Sends samples of these classes, flushes, and waits until all mini-batches were read; or stops after `until`
        cycles."""
        dut, model = self.dut, self.model
        self.sample_beats = sample_beats
        self.contents = [[self.random.getrandbits(BITS) for _ in range(sample_beats)] for _ in cold]
        self.batches = mini_batches(cold, batch)
        self.frames_of = ([], [])
        coming = deque((bool(kind), k == 0, k == sample_beats - 1, beat)
                       for kind, sample in zip(cold, self.contents, strict=True) for k, beat in enumerate(sample))
        dut.batch.value = batch
        # Sizes are there before the first sample.
        for _ in range(2):
            await self._step(batch, False)
        stop = self.cycle + (cycles if until is None else until)
        quiet = 0
        while quiet < 3:
            if self.cycle >= stop:
                assert until is not None, f"not done after {cycles} cycles"
                return
            if self.offered is None and coming and next(self.patterns["samples"]):
                self.offered = coming.popleft()
            # The last beat may still wait.
            flush = not coming
            await self._step(batch, flush)
            quiet = quiet + 1 if flush and model.flushed and model.idle else 0
        for kind in range(2):
            assert len(self.frames_of[kind]) == len(self.batches[kind]), OUT[kind]
        await self._step(batch, False)

    async def _step(self, batch, flush):
        dut, model, patterns = self.dut, self.model, self.patterns
        for k in range(2):
            if self.asked[k] is None and self.to_read[k] and next(patterns["reads"][k]):
                self.asked[k] = self.to_read[k].popleft()
        free = self.to_free.popleft() if self.to_free and next(patterns["frees"]) else None
        write = None
        if self.to_write:
            if isinstance(self.to_write[0][0], int):
                client, places = self.to_write.popleft()
                self.to_read[client].extend(places)
            elif self.random.random() < 0.7:
                write = self.to_write.popleft()
        frames_ready, beats_ready = ([next(p) for p in patterns[name]] for name in ("frames", "beats"))

        beat = self.offered
        dut.i__valid.value = beat is not None
        if beat is not None:
            dut.i__payload.value = self.layouts["i__payload"].pack(
                {"words": beat[3], "first": int(beat[1]), "last": int(beat[2]), "cold": int(beat[0])})
        else:
            dut.i__payload.value = self.random.getrandbits(BITS + 3)
        dut.i_write__valid.value = write is not None
        if write is not None:
            (frame, at), words = write
            dut.i_write__payload.value = self.layouts["i_write__payload"].pack(
                {"place": {"frame": frame, "beat": at}, "words": words})
        dut.free.value = self.layouts["free"].pack({"valid": int(free is not None), "frame": free or 0})
        dut.flush.value = flush
        for k in range(2):
            port = f"i_read__{k}__"
            getattr(dut, port + "valid").value = self.asked[k] is not None
            if self.asked[k] is not None:
                getattr(dut, port + "payload").value = self.place.pack(dict(zip(("frame", "beat"), self.asked[k])))
            getattr(dut, f"o_read__{k}__ready").value = beats_ready[k]
            getattr(dut, OUT[k] + "__ready").value = frames_ready[k]
        await self.edge

        # What is shown, against the model.
        got = {name: int(getattr(dut, name).value) for name in ("flushed", "idle", "waits")}
        want = {name: int(getattr(model, name)) for name in got}
        assert got == want, f"cycle {self.cycle}: {got}, expected {want}"
        taken = beat is not None and model.ready(beat[0], write is not None)
        grants = model.grants(self.asked)
        assert int(dut.i_write__ready.value) == 1
        if beat is not None:
            assert int(dut.i__ready.value) == taken, f"cycle {self.cycle}: i.ready, expected {taken}"
        frames_taken, beats_taken = [False, False], [False, False]
        for k in range(2):
            if self.asked[k] is not None:
                assert int(getattr(dut, f"i_read__{k}__ready").value) == grants[k], f"cycle {self.cycle}: read {k}"
            for name, queue, ready, took in ((OUT[k], model.out[k], frames_ready[k], frames_taken),
                                             (f"o_read__{k}", model.read[k], beats_ready[k], beats_taken)):
                valid = int(getattr(dut, name + "__valid").value)
                assert valid == (queue.o is not None), f"cycle {self.cycle}: {name}.valid is {valid}"
                took[k] = bool(valid and ready)
            if model.out[k].o is not None:
                shown = self.frame.unpack(int(getattr(dut, OUT[k] + "__payload").value))
                assert (shown["frame"], shown["samples"]) == model.out[k].o, f"cycle {self.cycle}: {OUT[k]} {shown}"
            if model.read[k].o is not None:
                shown = int(getattr(dut, f"o_read__{k}__payload").value)
                assert shown == self.expected[k][0][1] == model.read[k].o[0], f"cycle {self.cycle}: beat of client {k}"

        # What follows of it.
        if taken:
            self.log["taken"].append(self.cycle)
            self.offered = None
        if write is not None:
            self.shadow[write[0]] = write[1]
        asked = list(self.asked)
        for k in range(2):
            if asked[k] is not None and grants[k]:
                self.expected[k].append((asked[k], self.shadow[asked[k]]))
                self.log[f"asked_{k}"].append(self.cycle)
                self.asked[k] = None
            if beats_taken[k]:
                frame = self.expected[k].popleft()[0][0]
                self.log[f"read_{k}"].append(self.cycle)
                self.unread[frame] -= 1
                if not self.unread[frame]:
                    self.to_free.append(frame)
            if frames_taken[k]:
                self.log[OUT[k][2:]].append(self.cycle)
                self._take_frame(k, *model.out[k].o)
        if free is not None:
            self.log["freed"].append(self.cycle)
            del self.unread[free]
        if model.flushed:
            self.log["flushed"].append(self.cycle)
        model.step(batch=batch, beat=None if beat is None else (beat[0], beat[2], beat[3]), write=write, reads=asked,
                   frames_taken=frames_taken, beats_taken=beats_taken, free=free, flush=flush)
        self.cycle += 1


def shape_of(random):
    """(beats of a sample, samples of a mini-batch): up to a whole frame."""
    beats = int(random.integers(1, 9))
    return beats, int(random.integers(1, CONFIG.frame_beats // beats + 1))


@cocotb.test()
async def smoke(dut):
    """Seven samples of both classes in mini-batches of two."""
    bench = await Bench.begin(dut)
    await bench.run([0, 1, 0, 0, 1, 0, 0], 2, 2)
    assert [samples for _, samples in bench.frames_of[0]] == [2, 2, 1]
    assert [samples for _, samples in bench.frames_of[1]] == [2]


@cocotb.test()
async def random_match_golden(dut):
    """Samples of any length and class in mini-batches of any size, beats rewritten, one run after the other: every
    output in every cycle as the model's, every mini-batch what the samples make, every beat as it was written."""
    random = np.random.default_rng(seed("samples"))
    bench = await Bench.begin(dut, rewrites=0.3)
    for share in (0.1, 0.5, 0.9, 0.5):
        beats, batch = shape_of(random)
        await bench.run(random.random((400 if REGRESS else 200) // beats) < share, beats, batch)


@cocotb.test()
async def backpressure_both_sides(dut):
    """Samples that pause, frames taken late, reads and beats that wait, frames freed late, each by itself and all
    together; nobody takes anything for long."""
    random, pauses = np.random.default_rng(seed("pauses")), rng("pauses")
    rare, common = (lambda: sometimes(0.15, pauses)), (lambda: bursty(pauses))
    for patterns in (
        dict(samples=common, frames=(common, common), reads=(common, common), beats=(common, common), frees=common),
        dict(samples=rare), dict(frames=(rare, common)), dict(frames=(common, rare)), dict(reads=(rare, common)),
        dict(beats=(common, rare)), dict(frees=rare), dict(frames=(lambda: never(200), lambda: never(200))),
        dict(beats=(lambda: never(200), lambda: never(200)), rewrites=0.2),
    ):
        bench = await Bench.begin(dut, **patterns)
        beats, batch = shape_of(random)
        batch = min(batch, 4)
        await bench.run(random.random(100 // beats) < 0.5, beats, batch)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A beat a cycle in; three cycles from a mini-batch's last beat to its frame, five from a read to its beat, a beat
    a cycle for each client, the first one's before the second's where both want even or both odd ones; a frame every
    other cycle; two cycles from a freed frame to its first beat."""
    # As many mini-batches as there are frames, whole frames each: no gap, and all are there three cycles later.
    beats = 4
    batch = CONFIG.frame_beats // beats
    bench = await Bench.begin(dut)
    await bench.run([1] * batch, beats, batch)
    taken, asked = bench.log["taken"], bench.log["asked_0"] + bench.log["asked_1"]
    read = bench.log["read_0"] + bench.log["read_1"]
    assert np.ptp(taken) == len(taken) - 1, "a gap between beats"
    assert bench.log["cold"] == [taken[-1] + 3]
    assert [r - a for a, r in zip(asked, read, strict=True)] == [5] * len(asked)
    assert np.ptp(asked) == len(asked) - 1, "a gap between reads"

    # Both clients at once: after the first cycle one wants an even beat and the other an odd one; or both even ones.
    for step, cycles in ((1, 9), (2, 16)):
        bench = await Bench.begin(dut)
        await bench.run([0] * 16, 1, 16)
        for queue in bench.to_read:
            queue.extend((0, step * k) for k in range(8))
        bench.unread[0] = 16
        begin = bench.cycle
        for _ in range(30):
            await bench._step(16, False)
        turns = [[at - begin for at in bench.log[f"asked_{k}"] if at >= begin] for k in range(2)]
        assert max(map(max, turns)) == cycles - 1 and sum(map(len, turns)) == 16, turns
        assert turns[0] == list(range(8)), turns

    # Mini-batches of one beat: a frame every other cycle. All frames taken: the next beat waits for the first free one.
    bench = await Bench.begin(dut, frees=lambda: never(40))
    await bench.run([0] * (CONFIG.frames + 1), 1, 1)
    taken = bench.log["taken"]
    assert {b - a for a, b in zip(taken, taken[1:-1])} <= {2}, taken
    assert taken[-1] == bench.log["freed"][0] + 2


@cocotb.test()
async def reset_midstream(dut):
    """A reset with frames open, full, handed out and half read: all are free again, nothing is left."""
    random, pauses = np.random.default_rng(seed("reset")), rng("reset")
    for until in (5, 17, 40, 90, 200):
        bench = await Bench.begin(dut, beats=(lambda: sometimes(0.3, pauses),) * 2, rewrites=0.1)
        await bench.run(random.random(100) < 0.5, 3, 3, until=until)
        bench = await Bench.begin(dut)
        await bench.run(random.random(30) < 0.5, 2, 5)


@cocotb.test()
async def top_values(dut):
    """Mini-batches of more samples than any frame has, of one and two more than each power of two: neither the first
    sample nor the second ends one."""
    bench = await Bench.begin(dut)
    for batch in (*with_each_bit_above(1, 16), *with_each_bit_above(2, 16)):
        await bench.run([0, 1, 0, 1], 1, batch)


@cocotb.test()
async def corner_values(dut):
    """One sample in all, one class alone, mini-batches of one sample and of a whole frame, the last one short or long
    by one, no sample at all; both classes always in turns; the frames of each class from its own end."""
    for cold in ([0], [1], [0] * 40, [1] * 40, [0, 1] * 12, [1, 0] * 12):
        for beats, batch in ((1, 1), (1, CONFIG.frame_beats), (8, CONFIG.frame_beats // 8)):
            bench = await Bench.begin(dut)
            await bench.run(cold, beats, batch)
    for extra in (-1, 0, 1):
        bench = await Bench.begin(dut)
        await bench.run([0] * (2 * 8 + extra) + [1] * (8 + extra), 2, 8)
    # Nothing at all: flushed at once.
    bench = await Bench.begin(dut)
    await bench.run([], 1, 4)
    bench = await Bench.begin(dut, frames=(lambda: never(100), lambda: never(100)))
    half = CONFIG.frames // 2
    await bench.run([0] * (CONFIG.frames - half) + [1] * half, 1, 1)
    assert [frame for frame, _ in bench.frames_of[0]] == list(range(CONFIG.frames - half))
    assert [frame for frame, _ in bench.frames_of[1]] == list(range(CONFIG.frames - 1, CONFIG.frames - 1 - half, -1))


@cocotb.test()
async def idle_is_true(dut):
    """A beat that is rewritten, and one that either client asks for, each alone: the buffer is idle before and behind
    it, not with it."""
    bench = await Bench.begin(dut)
    bench.to_write.append(((0, 0), 5))
    while bench.to_write:
        await bench._step(1, False)
    for client in range(2):
        for _ in range(5):
            await bench._step(1, False)
        assert bench.model.idle
        bench.to_read[client].append((0, 0))
        bench.unread[0] = 2
        for _ in range(12):
            await bench._step(1, False)
        bench.unread.clear()
    assert bench.model.idle and [len(bench.log[f"read_{client}"]) for client in range(2)] == [1, 1]


@cocotb.test()
@pytest.mark.testpoint("one_free_frame_serves_either_class")
async def one_free_frame_serves_either_class(dut):
    """With all frames but one in use, popular samples and others go through the last one by turns."""
    bench = await Bench.begin(dut, frees=lambda: never(10**9))
    kept = CONFIG.frames - 1
    await bench.run([k % 2 for k in range(kept)], 1, 1, until=60)
    assert sum(map(len, bench.frames_of)) == kept and not bench.offered
    bench.to_free.clear()
    bench.patterns["frees"] = always()
    await bench.run([0, 1, 1, 0, 1, 0], 1, 1, until=200)
    assert [len(found) for found in bench.frames_of] == [3, 3]
    assert len({frame for found in bench.frames_of for frame, _ in found}) == 1


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", one_of(CONFIGS))
def test_frames(name, number):
    simulate(InputBuffer(CONFIGS[name]), "verif.hotline.test_frames", name=f"hotline_frames_{name}", tests=9,
             seed=number, env={"HOTRAIL_SHAPE": name})


def test_mini_batches():
    popular, others = mini_batches([0, 1, 0, 0, 1, 0], 3)
    assert [found.tolist() for found in popular] == [[0, 2, 3], [5]]
    assert [found.tolist() for found in others] == [[1, 4]]
