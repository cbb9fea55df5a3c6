"""What the benches of the MLP core's front share: sizes, encoded programs, a memory behind a port, random loads."""

import os
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from cocotb.triggers import RisingEdge

from golden.mlp.program import stored_beats
from hw.isa import MLP
from hw.mlp.config import MlpConfig
from verif.bench import pack, report, reset, rng, start
from verif.bench.memory import base
from verif.bench.pack import Ports, layout_of
from verif.mlp.bench import TINY

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))

# A line of weights of one beat and of two, a beat of addends of one line, two and four, an instruction of one beat
# and two.
CONFIGS = {
    "tiny": TINY,
    "wide": replace(TINY, units=4, rows=4, width=4, words=16),
    "flat": replace(TINY, units=4, rows=8, width=1, words=16),
    "low": replace(TINY, units=4, rows=2, width=4, words=16),
}
encode = partial(pack.encode, MLP)
KINDS = {instruction.name: instruction.opcode for instruction in MLP.instructions}


class Feed:
    """Memory behind a port's client: answers requests with the addresses of their beats.

    latency, flow: cycles until a beat is there, how often one then comes; room: how often a request is taken
    """

    def __init__(self, random_: random.Random, *, latency: int = 1, flow: float = 1.0, room: float = 1.0):
        self.rng, self.latency, self.flow, self.room = random_, latency, flow, room
        self.waiting: deque[tuple[int, range]] = deque()      # from when on which beats of a request are there
        self.asked: list[tuple[int, int]] = []
        self.cycle = 0
        self.stands: int | None = None
        self._draw()

    def _draw(self) -> None:
        self.ready = self.rng.random() < self.room
        if (self.stands is None and self.waiting and self.waiting[0][0] <= self.cycle
                and self.rng.random() < self.flow):
            since, beats = self.waiting.popleft()
            self.stands = beats[0]
            if len(beats) > 1:
                self.waiting.appendleft((since, beats[1:]))

    def step(self, request: tuple[int, int] | None, taken: bool) -> None:
        """request: (address, beats) that stands there; taken: the beat is."""
        if request is not None and self.ready:
            self.asked.append(request)
            self.waiting.append((self.cycle + self.latency, range(request[0], sum(request))))
        if taken:
            self.stands = None
        self.cycle += 1
        self._draw()


class Side:
    """Counts of what other engines have done, on their way up to what somebody waits for."""

    def __init__(self, random_: random.Random, most: int, pace: float):
        self.rng, self.most, self.pace, self.now = random_, most, pace, 0

    def step(self) -> None:
        if self.now < self.most and self.rng.random() < self.pace:
            self.now += 1


def any_rows(r: random.Random, unit: MlpConfig, number: int, **more: int) -> dict[str, int]:
    """A LOAD_ROWS of any shape that a bench can carry out."""
    features_in = r.randrange(2)
    item = {
        "features_in": features_in, "half": r.choice([0, 0, 1]),
        "count": r.choice([1, 2, 3, unit.samples, r.randint(1, 3 * unit.samples + 1)]),
        "row_beats": r.choice([1, 1, 2, 3, r.randint(1, 9)]),
        "features": r.choice([1, 2, unit.rows, r.randint(1, 2 * unit.columns)]) if features_in else 1,
        "feature": r.choice([0, 1, unit.rows, r.randrange(60), 255]) if features_in else r.randrange(256),
        "line": r.choice([0, r.randrange(unit.row_lines), 0xFFFF]),
        "line_stride": r.choice([1, 3, r.randrange(unit.row_lines), 0xFFFF]),
        "source": r.randrange(1 << 20), "wait_weights": 0, "wait_layers": 0, "number": number,
    }
    beats = stored_beats(item["row_beats"], item["half"])
    item["stride"] = r.choice([beats, beats, beats + r.randrange(5), r.randrange(beats), 0])
    return finish_rows(item | more)


def finish_rows(item: dict[str, int]) -> dict[str, int]:
    """With what the program works out of the instruction's fields."""
    rows, stored = item["count"] * item["features"], stored_beats(item["row_beats"], item["half"])
    end = item["source"] + (rows - 1) * item["stride"] + stored
    return item | {"less_one": rows - 1, "stored_beats": stored, "end": end, "run": int(item["stride"] == stored)}


def any_weights(r: random.Random, unit: MlpConfig, number: int, **more: int) -> dict[str, int]:
    item = {"addends": 0, "count": r.choice([1, 2, unit.units, r.randint(1, 3 * unit.units)]),
            "steps": r.choice([1, 2, 3, r.randint(1, 30)]),
            "line": r.choice([0, r.randrange(unit.weight_lines), 0xFFFF]), "source": r.randrange(1 << 20),
            "wait_rows": 0, "wait_layers": 0, "number": number} | more
    return item | {"end": item["source"] + item["count"] * item["steps"] * unit.line_beats}


def any_addends(r: random.Random, unit: MlpConfig, number: int, **more: int) -> dict[str, int]:
    # `steps` is not used.
    item = {"addends": 1, "count": r.choice([1, 2, unit.groups_per_beat, r.randint(1, 20)]),
            "steps": r.choice([1, r.randrange(1 << 12)]), "line": r.choice([0, r.randrange(unit.addend_lines), 0xFFFF]),
            "source": r.randrange(1 << 20), "wait_rows": 0, "wait_layers": 0, "number": number} | more
    return item | {"end": item["source"] - (-item["count"] // unit.groups_per_beat)}


def beat_of(address: int, words: int) -> int:
    """The words that lie at an address."""
    return sum(((address * 16 + at) * 0x9E3779B1 + 0x7F4A7C15 & 0xFFFFFFFF) << 32 * at for at in range(words))


class LoaderBench(ABC):
    """A loader beside its cycle model, fed alike and compared in every cycle.

    sides: the two counts that it waits for; bad: beats of the buffer that are answered with an error. `outputs`
    compares what a loader alone has, and says what of it is taken.
    """

    sides: tuple[str, str]
    ready: str      # of the output stream

    def __init__(self, dut: Any, unit: MlpConfig, feed: Feed, model: Callable[[MlpConfig, int], Any], *,
                 bad: Sequence[int] = ()):
        self.dut, self.unit, self.feed = dut, unit, feed
        self.address = base("inputs", unit.beat_bytes)       # of the buffer that is loaded from
        self.base = self.address // unit.beat_bytes
        self.model = model(unit, self.base)
        self.bad = {self.base + at for at in bad}
        self.pins = Ports(dut)
        self.layouts = {name: layout_of(f"{name}__payload") for name in ("i", "i_data", "o_requests")}
        self.error = layout_of("error")
        self.cycle = 0
        self.done_at: list[int] = []
        self.at: list[int] = []     # when what was loaded left

    @classmethod
    async def begin(cls, dut: Any) -> MlpConfig:
        start(dut)
        await cls.clean(dut)
        return CONFIGS[os.environ["UNIT"]]

    @classmethod
    async def clean(cls, dut: Any) -> None:
        for name in ("i__valid", "i_data__valid", "o_requests__ready", cls.ready, *cls.sides):
            getattr(dut, name).value = 0
        await reset(dut)

    @staticmethod
    @abstractmethod
    def make(r: random.Random, unit: MlpConfig, number: int, **more: int) -> dict[str, int]:
        """Any job."""

    @staticmethod
    @abstractmethod
    def beats(jobs: Sequence[dict[str, int]]) -> list[int]:
        """What is read for jobs, in order."""

    @abstractmethod
    def outputs(self, where: str, room: bool) -> dict[str, bool]:
        """What the model's `step` is told of the outputs."""

    def takes(self, data: int | None, room: bool) -> bool:
        """Whether the model takes the beat."""
        return self.model.takes(data)

    async def step(self, job: dict[str, int] | None, *, room: bool = True, counts: Sequence[int] = (0, 0)) -> bool:
        """One cycle; whether the job was taken."""
        pins, model, feed, where = self.pins, self.model, self.feed, f"cycle {self.cycle}"
        data, ready = feed.stands, feed.ready
        bad = data in self.bad
        done = dict(zip(self.sides, counts, strict=True))
        pins.drive(base=self.address, i__valid=job is not None, i_data__valid=data is not None, o_requests__ready=ready,
                 **{self.ready: room}, **done)
        if job is not None:
            pins.drive(i__payload=self.layouts["i"].pack(job))
        if data is not None:
            pins.drive(i_data__payload=self.layouts["i_data"].pack(
                {"data": beat_of(data, self.unit.words), "error": bad}))
        await RisingEdge(self.dut.clk)
        request, takes = model.request, self.takes(data, room)
        error = self.error.unpack(pins.get("error"))
        shown = {
            "i.ready": (pins.get("i__ready"), model.ready), "i_data.ready": (pins.get("i_data__ready"), takes),
            "request": (pins.get("o_requests__valid"), request is not None),
            "done": (pins.get("done"), model.done), "idle": (pins.get("idle"), model.idle),
            "error": (error["instruction"] if error["valid"] else None, model.error),
        }
        if model.number >= 0:
            shown["number"] = (pins.get("number"), model.number)
        wrong = {name: pair for name, pair in shown.items() if pair[0] != pair[1]}
        assert not wrong, f"{where}: unit and model differ: {wrong}"
        if request is not None:
            found = self.layouts["o_requests"].unpack(pins.get("o_requests__payload"))
            assert (found["address"], found["beats"]) == (request[0] * self.unit.beat_bytes, request[1]), where
        outputs = self.outputs(where, room)
        taken = job is not None and model.ready
        if model.done:
            self.done_at.append(self.cycle)
        model.step(job=job, data=data, request_taken=request is not None and ready, bad=bad, **outputs, **done)
        feed.step(request, takes)
        self.cycle += 1
        return taken

    async def carry_out(self, jobs: Sequence[dict[str, int]], *, offer: float = 1.0, room: float = 1.0,
                        sides: Sequence[Side] = (), quiet: int = 200) -> None:
        """All jobs, until nothing is inside; behind an error `quiet` cycles more."""
        r, coming = self.feed.rng, deque(jobs)
        job, limit = None, self.cycle + 200_000
        while coming or job or not self.model.idle or self.model.error is not None:
            if job is None and coming and r.random() < offer:
                job = coming.popleft()
            if await self.step(job, room=r.random() < room, counts=[side.now for side in sides] or (0, 0)):
                job = None
            for side in sides:
                side.step()
            if self.model.error is not None:
                quiet -= 1
                if not quiet:
                    return
            assert self.cycle < limit, f"{len(coming)} of {len(jobs)} jobs are left after {limit} cycles"
        await self.step(None)
        assert len(self.done_at) == len(jobs)

    def judge(self, wanted: Sequence[int]) -> None:
        """The beats that were asked for, in order."""
        asked = [at - self.base + beat for at, beats in self.feed.asked for beat in range(beats)]
        assert asked == list(wanted)


async def random_loads(dut: Any, bench: type[LoaderBench]) -> None:
    """Random jobs with waits for the other engines; every output in every cycle."""
    unit = await bench.begin(dut)
    first, second = (side.removesuffix("_done") for side in bench.sides)
    loads = 0
    for number in range(4 if REGRESS else 2):
        r = rng(f"random {number}")
        jobs, ahead, behind = [], 0, 0
        for at in range(60):
            ahead += r.choice([0, 0, 1, 3])
            behind += r.choice([0, 0, 1])
            jobs.append(bench.make(r, unit, at, **{
                f"wait_{first}": r.choice([0, ahead]), f"wait_{second}": r.choice([0, behind])}))
        run = bench(dut, unit, Feed(r, latency=r.choice([1, 8, 40])))
        pace = r.choice([0.02, 0.2])
        await run.carry_out(jobs, sides=(Side(r, ahead, pace), Side(r, behind, pace)))
        run.judge(bench.beats(jobs))
        loads += len(run.at)
    report(loads=loads)


async def pressed_loads(dut: Any, bench: type[LoaderBench]) -> None:
    """The same with pauses of jobs, requests, data and the memory."""
    unit = await bench.begin(dut)
    for number in range(4 if REGRESS else 2):
        r = rng(f"pressure {number}")
        jobs = [bench.make(r, unit, at) for at in range(25)]
        run = bench(dut, unit, Feed(r, latency=r.choice([1, 20]), flow=r.choice([0.2, 0.9]),
                                    room=r.choice([0.1, 0.7])))
        await run.carry_out(jobs, offer=r.choice([0.1, 0.8]), room=r.choice([0.3, 0.8]))
        run.judge(bench.beats(jobs))


async def reset_loads(dut: Any, bench: type[LoaderBench]) -> None:
    """Whatever is inside, jobs of up to 2^20 among it, a reset forgets it."""
    unit = await bench.begin(dut)
    for number in range(8):
        r = rng(f"reset {number}")
        run = bench(dut, unit, Feed(r, latency=r.choice([1, 20])), bad=[r.randrange(1 << 20)])
        jobs = deque()
        for at in range(20):
            job = bench.make(r, unit, at, count=1 + r.getrandbits(r.choice([2, 20])))
            jobs.append(job | {"end": job["end"] & 0xFFFFFFFF})
        for _ in range(r.randrange(150)):
            await run.step(jobs[0] if jobs else None, room=r.random() < 0.5) and jobs.popleft()
        await bench.clean(dut)
    run = bench(dut, unit, Feed(r))
    await run.carry_out([bench.make(r, unit, at) for at in range(8)])
