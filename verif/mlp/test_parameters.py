"""The parameter loader against its cycle model and golden.mlp.loader: any loads, waits, a slow memory, faults."""

from collections.abc import Sequence

import cocotb
import pytest

from golden.mlp.loader import ParameterPlace
from hw.mlp.config import MlpConfig
from hw.mlp.parameters import ParameterLoader
from verif.bench import report, rng
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, shapes, simulate
from verif.mlp.cycles import Line
from verif.mlp.cycles import ParameterLoader as Model
from verif.mlp.front import (
    CONFIGS,
    REGRESS,
    Feed,
    LoaderBench,
    Side,
    any_addends,
    any_weights,
    beat_of,
    pressed_loads,
    random_loads,
    reset_loads,
)


class Bench(LoaderBench):
    sides = "rows_done", "layers_done"
    ready = "o_addends__ready"

    def __init__(self, dut, unit: MlpConfig, feed: Feed, *, bad: Sequence[int] = ()):
        super().__init__(dut, unit, feed, Model, bad=bad)
        self.weights, self.addends = layout_of("o_weights"), layout_of("o_addends__payload")
        self.got: list[Line] = []

    @staticmethod
    def make(r, unit: MlpConfig, number: int, **more: int) -> dict[str, int]:
        return (any_addends if r.random() < 0.4 else any_weights)(r, unit, number, **more)

    @staticmethod
    def beats(jobs: Sequence[dict[str, int]]) -> list[int]:
        return [at for job in jobs for at in range(job["source"], job["end"])]

    def takes(self, data: int | None, room: bool) -> bool:
        return self.model.takes(data, room and self.model.addends is not None)

    def outputs(self, where: str, room: bool) -> dict[str, bool]:
        weights, addends, words = self.model.weights, self.model.addends, self.unit.words
        found = self.weights.unpack(self.pins.get("o_weights"))
        assert found["valid"] == (weights is not None), f"{where}: golden has {weights}"
        if weights is not None:
            line = sum(beat_of(at, words) << 32 * words * place for place, at in enumerate(weights.data))
            wanted = {"valid": 1, "unit": weights.place.unit, "line": weights.place.line,
                      "words": [line >> 32 * at & 0xFFFFFFFF for at in range(self.unit.line_words)]}
            assert found == wanted, f"{where}: {found}, golden {wanted}"
            self._note(weights)
        assert (self.pins.get("o_addends__valid") == 1) == (addends is not None), f"{where}: golden has {addends}"
        if addends is not None:
            found = self.addends.unpack(self.pins.get("o_addends__payload"))
            first, line = addends.part * self.unit.columns, beat_of(addends.data[0], words)
            wanted = {"line": addends.place.line,
                      "words": [line >> 32 * (first + at) & 0xFFFFFFFF for at in range(self.unit.columns)]}
            assert found == wanted, f"{where}: {found}, golden {wanted}"
            if room:
                self._note(addends)
        return {"addends_taken": addends is not None and room}

    def _note(self, line: Line) -> None:
        self.got.append(line)
        self.at.append(self.cycle)


@cocotb.test()
async def smoke(dut):
    """Five column groups of two lines of two beats, and five lines of addends: where they go, written down by hand."""
    unit = await Bench.begin(dut)
    bench = Bench(dut, unit, Feed(rng("smoke")))
    common = {"wait_rows": 0, "wait_layers": 0}
    await bench.carry_out([
        {"addends": 0, "count": 5, "steps": 2, "line": 100, "source": 4, "end": 24, "number": 0, **common},
        {"addends": 1, "count": 5, "steps": 9, "line": 254, "source": 30, "end": 33, "number": 1, **common}])
    base = bench.base
    assert bench.got == [
        *(Line(ParameterPlace(*place), (base + 4 + 2 * at, base + 5 + 2 * at)) for at, place in enumerate(
            [(0, 100), (0, 101), (1, 100), (1, 101), (2, 100), (2, 101), (3, 100), (3, 101), (0, 102), (0, 103)])),
        *(Line(ParameterPlace(None, line), (base + 30 + at // 2,), at % 2) for at, line in enumerate(
            [254, 255, 0, 1, 2]))]
    assert bench.feed.asked == [(base + 4, 20), (base + 30, 3)]


@cocotb.test()
async def random_match_golden(dut):
    """Random loads with waits for the other engines, lines of one to four beats, beats of one to four lines: every
    output in every cycle as golden."""
    await random_loads(dut, Bench)


@cocotb.test()
async def backpressure_both_sides(dut):
    """The same with pauses of jobs, requests, data and the addends' memory."""
    await pressed_loads(dut, Bench)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A beat of weights a cycle over instructions behind a port of 100 cycles' latency, a line of addends a cycle."""
    unit = await Bench.begin(dut)
    r = rng("rate")
    jobs = [any_weights(r, unit, at, steps=r.choice([1, 3, 20]), count=r.choice([10, 24]), source=4096 * at)
            for at in range(16)]
    bench = Bench(dut, unit, Feed(r, latency=100))
    await bench.carry_out(jobs)
    assert len(bench.at) == sum(job["count"] * job["steps"] for job in jobs)
    assert bench.at[-1] - bench.at[0] == unit.line_beats * (len(bench.at) - 1)
    await Bench.clean(dut)
    jobs = [any_addends(r, unit, at, count=40, source=4096 * at) for at in range(5)]
    bench = Bench(dut, unit, Feed(r, latency=100))
    await bench.carry_out(jobs)
    gaps = [b - a - 1 for a, b in zip(bench.at, bench.at[1:], strict=False)]
    assert len(bench.at) == 200 and sum(gaps) == 4, gaps     # one behind each instruction
    await Bench.clean(dut)
    # Instructions of three beats do not lose a cycle, once their data is there.
    jobs = [any_weights(r, unit, at, count=3, steps=1, wait_layers=1, source=at * 64) for at in range(20)]
    bench = Bench(dut, unit, Feed(r, latency=100))
    for cycle in range(700):
        await bench.step(jobs[0] if jobs else None, counts=(0, cycle > 400)) and jobs.pop(0)
    first = 401 + 2 + unit.line_beats
    assert bench.at == [first + unit.line_beats * at for at in range(60)], bench.at[:5]
    assert bench.done_at == [at + 1 for at in bench.at[2::3]]


@cocotb.test()
async def reset_midstream(dut):
    """A reset at any cycle forgets all that is inside."""
    await reset_loads(dut, Bench)


@cocotb.test()
async def corner_values(dut):
    """The most lines of a group, thousands of groups and of addends, a buffer's end at 2**32, counts near 2**32."""
    unit = await Bench.begin(dut)
    r = rng("corners")
    top = (1 << 32) - 1
    jobs = [
        any_weights(r, unit, 0, count=2 if REGRESS else 1, steps=4095, line=0xFFFF),
        any_weights(r, unit, 1, count=4099, steps=1, source=top - 1 - 4099 * unit.line_beats),
        any_addends(r, unit, 2, count=1, wait_rows=top, wait_layers=top),
        any_addends(r, unit, top, count=4100, line=0xFFFF),
    ]
    sides = Side(r, top, 1.0), Side(r, top, 1.0)
    for side in sides:
        side.now = top - 20_000
    bench = Bench(dut, unit, Feed(r))
    await bench.carry_out(jobs, sides=sides)
    bench.judge(Bench.beats(jobs))


@cocotb.test()
@pytest.mark.testpoint("read_errors")
async def read_errors(dut):
    """An error on any beat is told with its instruction; what came before is loaded, nothing behind it is taken or
    asked for."""
    unit = await Bench.begin(dut)
    tries = 40 if REGRESS else 12
    for number in range(tries):
        r = rng(f"errors {number}")
        jobs = [Bench.make(r, unit, at, source=at << 16) for at in range(6)]
        victim = r.choice(jobs)
        place = r.choice([victim["source"], victim["end"] - 1, r.randrange(victim["source"], victim["end"])])
        bench = Bench(dut, unit, Feed(r, latency=r.choice([1, 30]), flow=r.choice([1.0, 0.5])), bad=[place])
        await bench.carry_out(jobs, room=r.choice([1.0, 0.5]))
        assert bench.model.error == victim["number"]
        lines = 0
        for job in jobs[:victim["number"] + 1]:
            beats = (place if job is victim else job["end"]) - job["source"]
            lines += min(job["count"], beats * unit.groups_per_beat) if job["addends"] else beats // unit.line_beats
        assert len(bench.got) == lines
        await Bench.clean(dut)
    report(read_errors=tries)


NAMES = ("smoke", "random_match_golden", "backpressure_both_sides", "latency_and_rate_as_documented",
         "reset_midstream", "corner_values", "read_errors")


@pytest.mark.parametrize(("name", "tests"), shapes([
    ("wide", NAMES), ("tiny", ("random_match_golden", "latency_and_rate_as_documented", "read_errors")),
    ("flat", ("random_match_golden", "backpressure_both_sides")), ("low", ("random_match_golden", "read_errors"))], 1))
@pytest.mark.parametrize("number", seeds())
def test_mlp_parameters(number, name, tests):
    simulate(ParameterLoader(CONFIGS[name]), "verif.mlp.test_parameters", name=f"mlp_parameters_{name}",
             tests=len(tests), seed=number, only="|".join(tests), env={"UNIT": name})
