"""The row loader against its cycle model and golden.mlp.loader: any rows and features, waits, a slow memory, faults."""

from collections.abc import Sequence

import cocotb
import numpy as np
import pytest

from golden.fp.narrow import widen
from golden.mlp.program import stored_beats
from hw.axi.requester import REQUEST_LOG2
from hw.mlp.config import MlpConfig
from hw.mlp.loader import RowLoader
from verif.bench import report, rng
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, shapes, simulate
from verif.mlp.cycles import Load
from verif.mlp.cycles import RowLoader as Model
from verif.mlp.front import (
    CONFIGS,
    REGRESS,
    Feed,
    LoaderBench,
    Side,
    any_rows,
    beat_of,
    finish_rows,
    pressed_loads,
    random_loads,
    reset_loads,
)


class Bench(LoaderBench):
    sides = "weights_done", "layers_done"
    ready = "o_load__ready"
    make = staticmethod(any_rows)

    def __init__(self, dut, unit: MlpConfig, feed: Feed, *, bad: Sequence[int] = ()):
        super().__init__(dut, unit, feed, Model, bad=bad)
        self.load = layout_of("o_load__payload")
        self.loads: list[Load] = []         # taken from o_load

    @staticmethod
    def beats(jobs: Sequence[dict[str, int]]) -> list[int]:
        """Every row once."""
        return [job["source"] + row * job["stride"] + beat
                for job in jobs for row in range(job["less_one"] + 1) for beat in range(job["stored_beats"])]

    def outputs(self, where: str, room: bool) -> dict[str, bool]:
        load = self.model.load
        assert (self.pins.get("o_load__valid") == 1) == (load is not None), f"{where}: golden has {load}"
        if load is None:
            return {"load_taken": False}
        found, words = self.load.unpack(self.pins.get("o_load__payload")), self.unit.words
        beat = np.frombuffer(beat_of(load.data, words).to_bytes(4 * words, "little"), np.uint32)
        *place, half = load.place
        if half is not None:
            beat = widen(beat.view(np.uint16)[half * words:][:words], "float16").view(np.uint32)
        wanted = {"words": beat.tolist(), **dict(zip(("unit", "row", "line", "turn"), place, strict=True))}
        assert found == wanted, f"{where}: {found}, golden {wanted}"
        if room:
            self.loads.append(load)
            self.at.append(self.cycle)
        return {"load_taken": room}


@cocotb.test()
async def smoke(dut):
    """Five samples of two beats, and features 3 to 5 of three samples: where they go, written down by hand."""
    unit = await Bench.begin(dut)
    bench = Bench(dut, unit, Feed(rng("smoke")))
    plain = finish_rows({
        "features_in": 0, "half": 0, "count": 5, "row_beats": 2, "features": 1, "feature": 0, "line": 10,
        "line_stride": 100, "source": 7, "stride": 3, "wait_weights": 0, "wait_layers": 0, "number": 0})
    # Two units of two rows; feature 3 is the second of the second group, whose lines begin at 20 of the sample.
    features = finish_rows({
        "features_in": 1, "half": 0, "count": 3, "row_beats": 1, "features": 3, "feature": 3, "line": 20,
        "line_stride": 50, "source": 40, "stride": 1, "wait_weights": 0, "wait_layers": 0, "number": 1})
    # Two samples of three beats, of which the port has two each.
    half = plain | {"half": 1, "count": 2, "row_beats": 3, "source": 60, "stride": 2, "number": 2}
    await bench.carry_out([plain, features, finish_rows(half)])
    assert [load.place[:4] for load in bench.loads[:10]] == [
        (0, 0, 10, 0), (0, 0, 110, 0), (0, 1, 10, 0), (0, 1, 110, 0), (1, 0, 10, 0), (1, 0, 110, 0),
        (1, 1, 10, 0), (1, 1, 110, 0), (0, 0, 11, 0), (0, 0, 111, 0)]
    assert [load.place[:4] for load in bench.loads[10:19]] == [
        (0, 1, 20, 1), (0, 0, 21, 2), (0, 1, 21, 2), (0, 1, 70, 1), (0, 0, 71, 2), (0, 1, 71, 2),
        (1, 1, 20, 1), (1, 0, 21, 2), (1, 1, 21, 2)]
    assert [load.place[:4] for load in bench.loads[19:]] == [
        (0, 0, 10, 0), (0, 0, 110, 0), (0, 0, 210, 0), (0, 1, 10, 0), (0, 1, 110, 0), (0, 1, 210, 0)]
    assert [load.data - bench.base for load in bench.loads[:19]] == [
        7, 8, 10, 11, 13, 14, 16, 17, 19, 20, *range(40, 49)]
    assert [(load.data - bench.base, load.place.half) for load in bench.loads[19:]] == [
        (60, 0), (60, 1), (61, 0), (62, 0), (62, 1), (63, 0)]
    assert bench.feed.asked == [*((bench.base + at, 2) for at in (7, 10, 13, 16, 19)), (bench.base + 40, 9),
                                (bench.base + 60, 4)]


@cocotb.test()
async def random_match_golden(dut):
    """Random loads of rows and features of any shape, with waits for the other engines: every output in every cycle as
    golden, which counts places by the formulas."""
    await random_loads(dut, Bench)


@cocotb.test()
async def backpressure_both_sides(dut):
    """The same with pauses of jobs, requests, data and the memory."""
    await pressed_loads(dut, Bench)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A beat a cycle over instructions behind a port of 100 cycles' latency, none lost between those of 3 beats,
    whether the port has as many or half; a load that waited has its data at once."""
    unit = await Bench.begin(dut)
    r = rng("rate")
    for half, beats, line_stride in ((0, 1, 0), (0, 3, 0), (0, 8, 0), (0, 16, 1), (1, 3, 0), (1, 16, 1)):
        count, jobs_each = 64 // beats, 12 if REGRESS else 6
        jobs = [any_rows(r, unit, at, features_in=0, half=half, features=1, count=count, row_beats=beats,
                         stride=stored_beats(beats, half) + line_stride, source=4096 * at) for at in range(jobs_each)]
        bench = Bench(dut, unit, Feed(r, latency=100))
        await bench.carry_out([finish_rows(job) for job in jobs])
        gaps = [b - a - 1 for a, b in zip(bench.at, bench.at[1:], strict=False)]
        assert sum(gaps) == 0 and len(bench.at) == jobs_each * count * beats, (half, beats, line_stride, sum(gaps))
        await Bench.clean(dut)
    # Instructions of three beats do not lose a cycle either, once their data is there.
    jobs = [finish_rows(any_rows(r, unit, at, features_in=0, half=0, features=1, count=3, row_beats=1, stride=1,
                                 wait_layers=1, source=at * 64)) for at in range(20)]
    bench = Bench(dut, unit, Feed(r, latency=100))
    for cycle in range(600):
        await bench.step(jobs[0] if jobs else None, counts=(0, cycle > 400)) and jobs.pop(0)
    assert bench.at[0] == 401 + 3 and bench.at == list(range(404, 404 + 60)), bench.at[:5]
    assert bench.done_at == list(range(404 + 3, 404 + 61, 3))


@cocotb.test()
async def reset_midstream(dut):
    """A reset at any cycle forgets all that is inside."""
    await reset_loads(dut, Bench)


@cocotb.test()
async def corner_values(dut):
    """The longest rows, the most features, rows at one place, runs of more beats than a request has, counts
    near 2**32."""
    unit = await Bench.begin(dut)
    r = rng("corners")
    top = (1 << 32) - 1
    piece = 1 << REQUEST_LOG2
    cases = [
        {"features_in": 0, "half": 0, "features": 1, "count": 2, "row_beats": 4095, "stride": top - 5000,
         "source": 0},
        {"features_in": 0, "half": 1, "features": 1, "count": 3 if REGRESS else 1, "row_beats": 4095, "stride": 2048,
         "source": 9},
        {"features_in": 0, "features": 1, "count": 3, "row_beats": 1, "stride": 0, "source": top - 1},
        {"features_in": 1, "features": 255, "feature": 255, "count": 2, "row_beats": 1, "stride": 1, "source": 5},
        {"features_in": 1, "features": 3, "feature": 0, "count": unit.samples + 1, "row_beats": 7, "stride": 0xFFFF},
        {"wait_weights": top, "wait_layers": top, "number": top},
    ]
    jobs = [finish_rows(any_rows(r, unit, at) | case) for at, case in enumerate(cases)]
    jobs = [job | {"end": job["end"] & top} for job in jobs]
    bench = Bench(dut, unit, Feed(r))
    sides = Side(r, top, 1.0), Side(r, top, 1.0)
    for side in sides:
        side.now = top - 200
    await bench.carry_out(jobs, sides=sides)
    bench.judge(Bench.beats(jobs))
    # Requests of long runs, of which the data does not matter.
    for beats in (piece - 1, piece, piece + 1, 2 * piece, 5 * piece + 3):
        await Bench.clean(dut)
        job = finish_rows({**any_rows(r, unit, 0), "features_in": 0, "half": 0, "features": 1, "count": beats,
                           "row_beats": 1, "stride": 1, "source": 77})
        feed = Feed(r, latency=1 << 30)
        bench = Bench(dut, unit, feed)
        for cycle in range(40):
            await bench.step(job if not cycle else None)
        assert sum(n for _, n in feed.asked) == beats and len(feed.asked) == -(-beats // piece)


@cocotb.test()
@pytest.mark.testpoint("read_errors")
async def read_errors(dut):
    """An error on any beat is told with its instruction; what came before is loaded, nothing behind it is taken or
    asked for."""
    unit = await Bench.begin(dut)
    tried = 0
    for number in range(30 if REGRESS else 12):
        r = rng(f"errors {number}")
        jobs = [any_rows(r, unit, at) for at in range(6)]
        for at, job in enumerate(jobs):     # apart from one another, so that an address has one instruction
            job["stride"] = max(job["stride"], job["stored_beats"])
            jobs[at] = finish_rows(job | {"source": at << 16})
        victim = r.choice(jobs)
        place = (victim["source"] + r.choice([0, victim["less_one"], r.randint(0, victim["less_one"])])
                 * victim["stride"] + r.randrange(victim["stored_beats"]))
        bench = Bench(dut, unit, Feed(r, latency=r.choice([1, 30]), flow=r.choice([1.0, 0.5])), bad=[place])
        await bench.carry_out(jobs, room=r.choice([1.0, 0.5]))
        assert bench.model.error == victim["number"]
        before = Bench.beats(jobs)
        before = before[:before.index(place)]
        assert list(dict.fromkeys(load.data - bench.base for load in bench.loads)) == before
        tried += 1
        await Bench.clean(dut)
    report(read_errors=tried)


NAMES = ("smoke", "random_match_golden", "backpressure_both_sides", "latency_and_rate_as_documented",
         "reset_midstream", "corner_values", "read_errors")


@pytest.mark.parametrize(("name", "tests"), shapes([
    ("tiny", NAMES), ("flat", NAMES[1:3]), ("wide", NAMES[1:2])], 1))
@pytest.mark.parametrize("number", seeds())
def test_mlp_loader(number, name, tests):
    simulate(RowLoader(CONFIGS[name]), "verif.mlp.test_loader", name=f"mlp_loader_{name}", tests=len(tests),
             seed=number, only="|".join(tests), env={"UNIT": name})
