"""Faults on the simulated card: what the tests of the cores share. Each core adds how it is started and judged."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fpga.card import CardHang, CardViolation, ErrorResponse, Faults, Silence
from verif.bench.runner import one_of, seeds

FILL = 0xAA             # what lies in the outputs before a run
UNTOUCHED = FILL * 0x01010101
OTHERS = 0x5A           # what somebody else has in memory that was given back
UNSET = 0xDEADBEEF      # what lies in the result block before a run
CHANNELS = ("aw", "w", "b", "ar", "r")
PORTS = [("m00_axi", "read"), ("m01_axi", "read"), ("m00_axi", "write")]


def count_of(number):
    """Of a fault's variants: half as many, ten times as many in the long runs."""
    return number * 10 if os.environ.get("HOTRAIL_REGRESS") else (number + 1) // 2


def spread(first, last, count):
    """Places all over a run: ten times `count` in the long runs; of these a quarter of `count` by default, in turn by
    the first seed."""
    places = np.unique(np.linspace(first, last, 10 * count).astype(int))
    if os.environ.get("HOTRAIL_REGRESS"):
        return places
    step = -(-4 * len(places) // count)
    return places[seeds()[0] % step::step]


def place(card, buffers, name, data):
    """A buffer of exactly that size, anew where it has another one."""
    held = buffers.get(name)
    if held is None or held.bytes != data.nbytes:
        if held:
            card.free(held)
        buffers[name] = card.allocate(data.nbytes, name)
    card.write(buffers[name], data)
    return buffers[name]


def named(kernel, block):
    """A result block by name."""
    return {value.name: int(block[value.word]) | (int(block[value.word + 1]) << 32 if value.bits == 64 else 0)
            for value in kernel.result}


def _channel(item):
    """In the order of a kernel's channels."""
    (port, way), _ = item
    return port, way


class FaultyBench:
    """A card and the oracle beside it.

    A core's own has `start(run)`, `expected(run)` (the oracle's result and outputs), `compare(run, told, outputs)`
    (which returns the cycles) and `kept(run)` (buffers by name that a run must not change); where it leaves more than
    one buffer of outputs, `left(run)` and `cut(run, told, outputs)`. tried: faults by kind.
    """

    limit = 200_000     # cycles that any run stays below
    ports = PORTS
    spoiling = ()       # codes of runs that may have written wrong results before they ended

    def __init__(self, opened, kernel, config, tried):
        self.card, self.kernel, self.config, self.tried = opened, kernel, config, tried
        self.codes = {code.name: code.code for code in kernel.codes}
        self.buffers = {}
        self.busy = False

    def place(self, name, data):
        return place(self.card, self.buffers, name, data)

    def block(self, *cleared):
        """The result block before a run; what is counted up during one is cleared by whoever starts it."""
        block = np.full(self.kernel.result_words, UNSET, np.uint32)
        block[[self.kernel.value(name).word for name in cleared]] = 0
        return block

    def finish(self, run, cycles=None):
        """Waits; the result block by name, and the outputs."""
        self.card.wait(cycles or self.limit)
        return self.collect(run)

    def collect(self, run):
        self.busy = False
        block = self.card.read(self.buffers["result"], np.uint32)
        told = named(self.kernel, block)
        for name, data in self.kept(run).items():
            if data.size:
                assert (self.card.read(self.buffers[name], np.uint32) == data.reshape(-1)).all(), name
        return told, self.left(run)

    def left(self, run):
        """What the run has written."""
        return self.card.read(self.buffers["outputs"], np.uint32)[:run.outputs_beats * self.config.words]

    def serve(self, run, cycles):
        """Lets so many cycles pass."""
        self.card.step(int(cycles))

    def same(self, run):
        """Runs it on both; what they make of it is the same. Returns the cycles."""
        self.start(run)
        return self.compare(run, *self.finish(run))

    def equal(self, outputs, wanted):
        different = np.flatnonzero(outputs != wanted)
        assert not len(different), f"{len(different)} of {len(outputs)} words differ, the first is {different[0]}"

    def whole(self, run, outputs):
        """After a run that was cut short: every beat is the right one or was not touched. Returns which are missing."""
        _, wanted = self.expected(run)
        beats, right = (words.reshape(-1, self.config.words) for words in (outputs, wanted))
        untouched = (beats == UNTOUCHED).all(axis=1)
        assert (untouched | (beats == right).all(axis=1)).all()
        return untouched & (right != UNTOUCHED).any(axis=1)

    def cut(self, run, told, outputs):
        """After a run that was cut short: what is there is right, and all of it if the run ended well. Returns whether
        something is missing."""
        missing = self.whole(run, outputs).any()
        assert told["code"] or not missing
        return missing

    def refused(self, run, place=("code", "instruction", "detail")):
        """Runs a program with a mistake, see `judge`."""
        self.start(run)
        told, outputs = self.finish(run)
        return told, self.judge(run, told, outputs, place)

    def judge(self, run, told, outputs, place):
        """Of a run that ended in a fault: code and place are the oracle's, what is written is right or untouched, or
        was not to be written at all, but after a code of `spoiling`. Returns the oracle's result."""
        result, wanted = self.expected(run)
        assert result.code
        assert {name: told[name] for name in place} == {name: getattr(result, name) for name in place}
        beats, right = (words.reshape(-1, self.config.words) for words in (outputs, wanted))
        untouched = (beats == UNTOUCHED).all(axis=1)
        assert result.code in self.spoiling or (
            untouched | (beats == right).all(axis=1) | (right == UNTOUCHED).all(axis=1)).all()
        return result

    def clean(self):
        """Whatever a test that failed has left behind."""
        if self.busy:
            self.card.reset()
            self.busy = False
        self.sound()

    def sound(self):
        self.card.set_faults(Faults())
        self.card.clear()

    def mend(self, run):
        """Nothing is left of a fault: the next run is right."""
        self.sound()
        return self.same(run)

    # Faults that every core can meet.

    def stalls(self, run, channel, share):
        for seed in range(count_of(2)):
            channels = CHANNELS if channel == "all" else (channel,)
            self.card.set_faults(Faults(seed=seed, stalls=dict.fromkeys(channels, share)))
            self.same(run)
            self.tried["stalls"] += 1
        self.mend(run)

    def beats(self, run):
        """Beats that each port moves in a sound run."""
        self.card.clear()
        self.same(run)
        counters = self.card.counters()
        past = {"read": "read", "write": "written"}
        return {(port, way): counters[f"{port}.beats_{past[way]}"] for port, way in self.ports}

    def error_code(self, way):
        return self.codes["READ_ERROR" if way == "read" else "WRITE_ERROR"]

    def error_responses(self, run, port, way, count, progress):
        """On beats all over the run. An error on the last `progress` beats before the result block, or on the block,
        comes too late to be told in it. Yields what is told."""
        total = self.beats(run)[port, way]
        block = 4 * self.kernel.final_words // self.config.beat_bytes if port == "m00_axi" else 0
        late = total - block - progress if block else total
        for number, beat in enumerate(spread(0, total - 1, count)):
            response = ("SLVERR", "DECERR")[number & 1]
            self.card.set_faults(Faults(errors=(ErrorResponse(port, way, response, beat=int(beat)),)))
            self.start(run)
            told, outputs = self.finish(run)
            missing = self.cut(run, told, outputs)
            # The last beat read may be a look at the doorbell that nobody waits for any more.
            too_late = beat >= late if way == "write" else beat == total - 1
            assert told["code"] == self.error_code(way) or too_late and not missing, (int(beat), total, told)
            yield told
            self.mend(run)
            self.tried["error responses"] += 1

    def abort(self, run, at):
        """Aborts it in a cycle; everything or nothing of each beat is there, and all of it if the run ended well."""
        self.start(run)
        self.serve(run, at)
        self.card.abort()
        self.card.wait(self.limit)
        told, outputs = self.collect(run)
        assert told["code"] in (0, self.codes["ABORTED"]), told
        self.cut(run, told, outputs)
        self.mend(run)
        self.tried["aborts"] += 1

    def aborts(self, run, cycles, count):
        for at in spread(1, cycles + 60, count):
            self.abort(run, at)

    def resets(self, run, cycles, count):
        for number, at in enumerate(spread(1, cycles + 60, count)):
            self.start(run)
            self.serve(run, at)
            self.card.reset(1 + number % 2)
            self.mend(run)
            self.tried["resets"] += 1

    def gone(self):
        """The host is gone, and its driver resets the core alone, not the card: nothing is written from then on,
        whoever has the memory. Returns what lay there, by buffer."""
        self.card.set_faults(Faults(host_dies_after=0))
        self.card.software_reset()
        self.busy = False
        contents = {held: self.card.read(held) for held in self.card.buffers()}
        for held, data in contents.items():
            self.card.write(held, np.full_like(data, OTHERS))
        assert not self.card.step(3000), "an interrupt for a host that is gone"
        for held in contents:
            assert (self.card.read(held) == OTHERS).all(), held.name
        assert not self.card.violations(), self.card.violations()
        return contents

    def kills(self, run, cycles, count):
        """A host that is gone at any moment: the next run is right, without a reset of the card."""
        for at in spread(1, cycles + 60, count):
            self.start(run)
            self.serve(run, at)
            for held, data in self.gone().items():
                self.card.write(held, data)
            self.mend(run)
            self.tried["hosts killed"] += 1

    def silences(self, run, stalled="STALLED"):
        """A port that answers no more from a beat on: the watchdog ends the run, and says what owed an answer where
        there is a way for that. While the port is silent, so ends the next run; when it has answered, runs are right
        again, without a reset."""
        beats = self.beats(run)
        for channel, ((port, way), total) in enumerate(sorted(beats.items(), key=_channel)):
            assert self.kernel.channels[channel] == f"{port[:3]} {way}"
            for beat in one_of(tuple(np.unique(np.linspace(0, total - 1, 6).astype(int)))):
                self.card.set_faults(Faults(silences=(Silence(port, way, int(beat)),)))
                for attempt in range(2):
                    self.start(run)
                    self.finish_stalled(run)
                    assert (code := self.card.code()) == self.codes[stalled], (code, port, way, beat, attempt)
                    assert self.card.status() == self.kernel.states.index("draining")
                    told, _ = self.collect(run)
                    if port != "m00_axi":
                        assert told["code"] == self.codes[stalled] and told["state"] == 1
                        assert f"{port[:3]} {way}" in self.kernel.waited(told["detail"]), told
                self.sound()
                self.rest()
                self.mend(run)
                self.tried["silent memories"] += 1

    def finish_stalled(self, run):
        self.card.wait(self.limit)

    def rest(self):
        """Until the memory owes the core nothing; what was under way may be written before."""
        for _ in range(100):
            if self.card.status() == self.kernel.states.index("idle"):
                return
            self.card.step(100)
        raise AssertionError("the memory still owes the core an answer")

    def some_of_each(self, run):
        """A few aborts and error responses, with stalls."""
        cycles = self.same(run)
        for at in np.linspace(1, cycles, count_of(6)).astype(int):
            self.abort(run, at)
        for port, way in self.ports:
            total = self.beats(run)[port, way]
            for beat in one_of((0, total // 3, total // 2)):
                self.card.set_faults(Faults(seed=beat, stalls={"r": 0.5, "ar": 0.5, "b": 0.5},
                                            errors=(ErrorResponse(port, way, beat=beat),)))
                self.start(run)
                told, outputs = self.finish(run)
                assert told["code"] == self.error_code(way), told
                self.cut(run, told, outputs)
                self.mend(run)
                self.tried["with DDR4"] += 1

    def never_written(self, cycles=None):
        """Waits for a run that reads what nobody wrote: the card names it, and the code and its detail are told."""
        with pytest.raises(CardViolation) as error:
            self.card.wait(cycles or self.limit)
        self.busy = False
        assert {v.rule for v in error.value.violations} == {"never_written"}
        block = self.card.read(self.buffers["result"], np.uint32)
        code, detail = (int(block[self.kernel.value(name).word]) for name in ("code", "detail"))
        assert code == self.codes["READ_ERROR"]
        self.tried["never written"] += 1
        return error.value.violations, detail

    def hang(self, run):
        """The card, not the core: too few cycles are an error of their own."""
        self.start(run)
        with pytest.raises(CardHang, match="the core was not done after 100 cycles, its status register is 0x1"):
            self.finish(run, 100)
        told, _ = self.finish(run)
        assert told["code"] == 0
        self.mend(run)


def side_by_side(pair, draw):
    """Two cards in processes of their own, at work at the same time. draw: makes a run for a bench."""
    try:
        runs = [(bench, draw(bench)) for bench in pair]
        for bench, run in runs:
            bench.start(run)
            bench.card.begin_wait(bench.limit)
        for bench, run in runs:
            bench.card.end_wait()
            bench.compare(run, *bench.collect(run))
    finally:
        for bench in pair:
            bench.card.close()


def benches_of(make, tried, core, variable):
    """A fixture: cards by memory; at the end the number of faults goes to the terminal, and to the file that an
    environment variable names."""
    @pytest.fixture(scope="module")
    def benches(request):
        made = {}

        def get(memory="ideal", **options):
            key = (memory, *sorted(options.items()))
            if key not in made:
                made[key] = make(memory, **options)
            made[key].clean()
            return made[key]

        yield get
        for bench in made.values():
            bench.card.close()
        text = ", ".join(f"{count} {kind}" for kind, count in tried.items())
        with request.config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{core} core: {sum(tried.values())} faults tried: {text}")
        if path := os.environ.get(variable):
            Path(path).write_text(json.dumps(tried), "utf-8")

    return benches
