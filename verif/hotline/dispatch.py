"""What the tests of the Hotline core's dispatcher share: models of all that stands around it."""

import os
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cocotb.triggers import RisingEdge

from golden.hotline.dispatch import GATHERED, POPULAR, Scheduler, beats_of, sent
from hw.hotline.config import HotlineConfig
from hw.hotline.transfers import chunk_beats
from verif.bench import reset
from verif.bench.memory import base
from verif.bench.pack import Ports
from verif.bench.stream import StreamRule
from verif.hotline.shapes import CONFIGS

STREAMS_IN = ("i_popular", "i_gathered", "i_beats", "i_query", "i_rows", "i_vectors")
STREAMS_OUT = ("o_place", "o_query", "o_rows", "o_bags", "o_requests", "o_data", "o_update")
TO_HEADER, BETWEEN = 10, 11     # cycles from a mini-batch to its header's beat, from the last beat to the next header


@dataclass
class Portion:
    """What is offered to the dispatcher, and what has to come of it. words: (beats, words) of the frame's samples."""

    kind: int
    frame: int
    samples: int
    words: np.ndarray
    start: int = 0
    batch: int = 0
    frees: bool = True
    slots: list[int] = field(default_factory=list)  # of the embedding buffer
    rest: np.ndarray | None = None                  # rows, or vectors
    gpu: int = 0                                    # as dispatched, and its number there
    own: int = 0


@dataclass
class Pace:
    """How often each stream goes on, and how long things take. `slow` streams go rarely, now and then."""

    flow: float = 1.0           # of every stream
    slow: tuple[str, ...] = ()
    arrive: float = 1.0         # of new mini-batches
    latency: int = 3            # of reads
    write: int = 6              # from a request to its response
    gpu: int = 10               # cycles of a mini-batch, of any GPU
    poll: int = 5
    update: int = 8


class Bench:
    """Input buffer, row table, embedding buffer, pooling, write port, doorbell, GPU and updates, cycle by cycle."""

    def __init__(self, dut: Any, config: HotlineConfig, r: random.Random, *, pace: Pace | None = None):
        self.dut, self.config, self.r, self.pace = dut, config, r, pace or Pace()
        self.ports = Ports(dut)
        self.draw = np.random.default_rng(r.getrandbits(64))
        self.edge = RisingEdge(dut.clk)
        self.cycle = 0
        self.memory: dict[int, np.ndarray] = {}         # beats of the mailbox, by number
        self.queues: dict[str, deque[Any]] = {name: deque() for name in STREAMS_IN}   # (cycle, payload)
        self.offered: dict[str, Any] = {}
        self.waits: dict[str, int] = {}
        self.frames: dict[int, np.ndarray] = {}
        self.lists: dict[int, list[int]] = {}
        self.rows: dict[int, np.ndarray] = {}
        self.freed: list[int] = []
        self.coming: dict[int, deque[Portion]] = {POPULAR: deque(), GATHERED: deque()}
        self.standing: dict[int, deque[Portion]] = {POPULAR: deque(), GATHERED: deque()}
        self.taken: list[Portion] = []
        none = [0] * config.gpus
        self.scheduler = Scheduler(slots=1, begun=none.copy(), finished=none.copy())
        self.accepted = deque([none] * (1 + config.gpus.bit_length()), 1 + config.gpus.bit_length())
        # Writes: beats, requests, those under way until their response.
        self.beats: deque[np.ndarray] = deque()
        self.requests: deque[dict[str, int]] = deque()
        self.under_way: deque[tuple[int, int]] = deque()
        self.reserved = 0
        self.finished, self.read = none.copy(), none.copy()
        self.gpu_at: list[int | None] = [None] * config.gpus
        self.done_at: int | None = None
        self.updates: list[dict[str, int]] = []
        self.update_at: int | None = None
        self.pooled_by: dict[int, Portion] = {}
        self.held = False       # the GPU does nothing
        self.lie: list[int] | None = None
        self.data_at: list[int] = []
        self.take_at: list[int] = []
        self.notified: list[int] = []
        self.events = [0, 0]
        self.stalls = 0
        self.gpu_kinds: list[int] = []

    # -- What is to be done.

    def portion(self, kind: int, *, samples: int | None = None, rows: int | None = None, **more: Any) -> Portion:
        """A mini-batch with contents of its own."""
        r, job, config = self.r, self.job, self.config
        row_beats = 1 << job["row_beats_log2"]
        samples = r.randint(1, job["batch"]) if samples is None else samples
        start_ = more.pop("start", 0)
        beats = (start_ + samples) * job["sample_beats"]
        words = self.draw.integers(0, 1 << 32, (beats, config.words), np.uint32)
        result = Portion(kind, more.pop("frame", r.randrange(config.frames)), samples, words, start=start_, **more)
        if kind == GATHERED:
            most = min(samples * job["indices"], config.row_slots, config.embedding_beats >> job["row_beats_log2"])
            count = r.randint(1, most) if rows is None else rows
            result.slots = r.sample(range(config.embedding_beats >> job["row_beats_log2"]), count) if (
                config.row_slots >= config.embedding_beats >> job["row_beats_log2"]) else r.sample(
                range(config.row_slots), count)
            each = samples * job["vectors"] if job["pooled"] else count
            result.rest = self.draw.integers(0, 1 << 32, (each * row_beats, config.words), np.uint32)
        return result

    def put(self, *portions: Portion) -> None:
        for portion in portions:
            self.coming[portion.kind].append(portion)

    async def begin(self, **job: int) -> None:
        """Another job."""
        config = self.config
        self.job = {
            "learn": 0, "indices": config.words, "sample_beats": 1, "row_beats_log2": 0, "batch": 4, "pooled": 0,
            "half": 0, "vectors": 0, "mailbox_slots": 2, "mailbox_pitch": 100, "gradients_pitch": 50} | job
        ports = self.ports
        ports.clear("start", "polled", "written", "updated", "i_popular__valid", "i_gathered__valid", "finished",
                    *(f"{name}__valid" for name in STREAMS_IN), *(f"{name}__ready" for name in STREAMS_OUT))
        self.mailbox, self.gradients = base("mailbox"), base("gradients")
        ports.set("mailbox_address", self.mailbox)
        ports.set("gradients", self.gradients)
        ports.set("finished", _numbers(self.finished))
        ports.set("job", self.job)
        ports.set("start", 1)
        self.scheduler.slots = self.job["mailbox_slots"]
        await self.edge
        self.cycle += 1
        ports.set("start", 0)

    @classmethod
    async def fresh(cls, dut: Any, r: random.Random, *, pace: Pace | None = None, **job: int) -> "Bench":
        """A bench behind a reset, with a job begun."""
        bench = cls(dut, CONFIGS[os.environ["HOTLINE"]], r, pace=pace)
        for name in ("start", "polled", "written", "updated", *(f"{name}__valid" for name in STREAMS_IN)):
            getattr(dut, name).value = 0
        await reset(dut)
        await bench.begin(**job)
        return bench

    def any_job(self) -> dict[str, int]:
        r, config = self.r, self.config
        sample_beats = r.choice([1, 1, 2, 3])
        log2 = r.choice([0, 0, 1, 2])
        batch = r.randint(1, max(1, min(6, config.frame_beats // sample_beats)))
        indices = r.randint(1, min(config.words, config.positions, config.embedding_beats >> log2))
        pooled = r.randrange(2)
        vectors = r.randint(1, indices) if pooled else 0
        most = min(batch * indices, config.row_slots, config.embedding_beats >> log2)
        least = 1 + batch * sample_beats + ((batch * vectors if pooled else most) << log2)
        return {"sample_beats": sample_beats, "row_beats_log2": log2, "batch": batch, "indices": indices,
                "pooled": pooled, "half": r.randrange(2), "vectors": vectors,
                "mailbox_slots": r.choice([1, 2, 3, 4, 7]), "mailbox_pitch": least + r.choice([0, 1, 17]),
                "gradients_pitch": (most << log2) + r.choice([0, 5])}

    def fill(self, count: int, share: float = 0.6) -> None:
        """Mini-batches of both kinds; gathered ones may share a frame."""
        r = self.r
        while count > 0:
            if r.random() < share:
                self.put(self.portion(POPULAR))
                count -= 1
                continue
            frame, first, parts = r.randrange(self.config.frames), 0, r.choice([1, 1, 2, 3])
            parts = min(parts, self.job["batch"])
            whole: list[Portion] = []
            for at in range(parts):
                samples = r.randint(1, self.job["batch"] - first - (parts - at - 1))
                whole.append(self.portion(GATHERED, samples=samples, start=first, frame=frame, frees=at == parts - 1,
                                          batch=(len(self.coming[GATHERED]) + at) % self.config.batches))
                first += samples
            # They are all parts of the same frame.
            longest = whole[-1].words
            for part in whole:
                longest[part.start * self.job["sample_beats"]:len(part.words)] = part.words[
                    part.start * self.job["sample_beats"]:]
            for part in whole:
                part.words = longest
            self.put(*whole)
            count -= parts

    # -- A cycle.

    def _goes(self, name: str) -> bool:
        if self.waits.get(name, 0):
            self.waits[name] -= 1
            return False
        if name in self.pace.slow:
            if self.r.random() < 0.1:
                self.waits[name] = self.r.randrange(60)
            return True
        return self.r.random() < self.pace.flow

    def _offer(self) -> None:
        """Shows what is there at the unit's inputs."""
        ports = self.ports
        for kind, name in ((POPULAR, "i_popular"), (GATHERED, "i_gathered")):
            if not self.standing[kind] and self.coming[kind] and self.r.random() < self.pace.arrive:
                portion = self.coming[kind].popleft()
                self.standing[kind].append(portion)
                payload = {"frame": portion.frame, "samples": portion.samples}
                if kind == GATHERED:
                    payload |= {"start": portion.start, "batch": portion.batch, "rows": len(portion.slots),
                                "frees": int(portion.frees)}
                ports.set(f"{name}__payload", payload)
            ports.set(f"{name}__valid", bool(self.standing[kind]))
        for name in STREAMS_IN[2:]:
            queue = self.queues[name]
            if name not in self.offered and queue and queue[0][0] <= self.cycle and self._goes(name):
                self.offered[name] = queue.popleft()[1]
                ports.set(f"{name}__payload", self.offered[name])
            ports.set(f"{name}__valid", name in self.offered)
        self.ready = {name: self._goes(name) for name in STREAMS_OUT}
        # The port's queue of beats; it takes one request and another behind it.
        self.ready["o_data"] &= len(self.beats) < self.config.output_beats
        self.ready["o_requests"] &= len(self.requests) < 2
        for name, ready in self.ready.items():
            ports.set(f"{name}__ready", ready)

    async def step(self) -> None:
        ports, pending = self.ports, self.scheduler.pending or self.update_at is not None
        self._offer()
        written = bool(self.under_way) and self.under_way[0][0] <= self.cycle
        polled = self.cycle % self.pace.poll == 0
        updated = self.update_at is not None and self.update_at <= self.cycle
        ports.set("written", written)
        ports.set("polled", polled)
        ports.set("updated", updated)
        ports.set("finished", _numbers(self.finished if self.lie is None else self.lie))
        await self.edge
        self.cycle += 1
        assert not (pending and ports.get("idle")), f"cycle {self.cycle}: idle before the updates are made"
        self._inputs()
        self._outputs()
        # What is reported of the past.
        if ports.get("free") & 1:
            self._free(ports.get("free") >> 1)
        if ports.get("notify"):
            self.notified.append(self.cycle)
        dispatched = self.counts("dispatched")
        more = sum(dispatched) - sum(self.read)
        assert more in (0, 1) and sum(dispatched) == len(self.notified), "dispatched and notify"
        if more:
            number = sum(self.read)
            self.read[self.taken[number].gpu] += 1
            assert dispatched == self.read, f"mini-batch {number} is dispatched to another GPU: {dispatched}"
            assert self.done_of(number), f"mini-batch {number} is dispatched before it is written"
        self.accepted.append(self.counts("completed"))
        self.events = [self.events[0] + ports.get("popular"), self.events[1] + ports.get("gathered")]
        self.stalls += ports.get("stall_mailbox")
        if written:
            self.under_way.popleft()
        if updated:
            self.update_at = None
        self._write()
        self._gpu()

    def _inputs(self) -> None:
        ports = self.ports
        taken = [kind for kind, name in ((POPULAR, "i_popular"), (GATHERED, "i_gathered"))
                 if self.standing[kind] and ports.get(f"{name}__ready")]
        assert len(taken) <= 1
        if taken:
            want = self.scheduler.pick(popular=bool(self.standing[POPULAR]), gathered=bool(self.standing[GATHERED]))
            assert taken[0] == want, f"cycle {self.cycle}: kind {taken[0]}, expected {want}"
            portion = self.standing[want].popleft()
            known = Scheduler(slots=1, begun=self.scheduler.begun, finished=self.accepted[0])
            portion.gpu, portion.own = known.gpu, known.begun[known.gpu]
            self.scheduler.begun[known.gpu] += 1
            self.scheduler.pending |= want == GATHERED
            self.taken.append(portion)
            self.take_at.append(self.cycle)
            self.frames[portion.frame] = portion.words
            self.lists[portion.batch] = portion.slots
            row_beats = 1 << self.job["row_beats_log2"]
            if want == GATHERED and not self.job["pooled"]:
                for at, slot in enumerate(portion.slots):
                    self.rows[slot] = portion.rest[at * row_beats:(at + 1) * row_beats]
            if want == POPULAR or portion.frees:
                self.freed.append(portion.frame)
        for name in STREAMS_IN[2:]:
            if name in self.offered and ports.get(f"{name}__ready"):
                del self.offered[name]

    def _outputs(self) -> None:
        ports, config = self.ports, self.config
        due = self.cycle + self.pace.latency
        for name in STREAMS_OUT:
            valid = ports.get(f"{name}__valid")
            payload = ports.get(f"{name}__payload") if valid else None
            before = self.waits.get(f"{name} held")
            if before is not None and payload != before:
                raise StreamRule(f"cycle {self.cycle}: {name} changed before it was taken")
            self.waits[f"{name} held"] = payload if valid and not self.ready[name] else None
            if not (valid and self.ready[name]):
                continue
            if name == "o_data":
                self.beats.append(_words(payload, config.words))
                self.data_at.append(self.cycle)
                continue
            item = payload if name == "o_rows" else ports.fields(f"{name}__payload")
            if name == "o_place":
                self.queues["i_beats"].append((due, _packed(self.frames[item["frame"]][item["beat"]])))
            elif name == "o_query":
                assert self.update_at is None, "rows are asked for before the updates are made"
                self.queues["i_query"].append((due, {"slot": self.lists[item["batch"]][item["ordinal"]]}))
            elif name == "o_rows":
                self.queues["i_rows"].extend((due, _packed(beat)) for beat in self.rows[item])
            elif name == "o_bags":
                portion = self.taken[-1]
                assert self.update_at is None, "rows are asked for before the updates are made"
                assert item == {"frame": portion.frame, "start": portion.start, "samples": portion.samples,
                                "batch": portion.batch, "rows": len(portion.slots), "frees": int(portion.frees)}
                assert not self.queues["i_beats"] and "i_beats" not in self.offered, "samples are still being read"
                self.queues["i_vectors"].extend((due, _packed(beat)) for beat in portion.rest)
            elif name == "o_requests":
                assert 1 <= item["beats"] <= chunk_beats(config), item
                self.requests.append(item)
            else:
                self._update(item)

    def _free(self, frame: int) -> None:
        """The frame of the oldest mini-batch that frees one; all of it has been read."""
        assert self.freed.pop(0) == frame, "the wrong frame is freed"
        assert not self.queues["i_beats"] and not self.queues["i_vectors"], "a frame is freed before it is read"

    def _write(self) -> None:
        """The port: a request whose beats are there goes; its response comes later."""
        if not self.requests or len(self.beats) < self.requests[0]["beats"]:
            return
        item = self.requests.popleft()
        first, rest = divmod(item["address"] - self.mailbox, 4 * self.config.words)
        assert not rest
        for at in range(item["beats"]):
            self.memory[first + at] = self.beats.popleft()
        after = self.under_way[-1][0] + 1 if self.under_way else 0
        self.under_way.append((max(after, self.cycle + self.r.randint(self.pace.write, 2 * self.pace.write)), 0))

    def done_of(self, number: int) -> bool:
        """Whether all of a mini-batch is in the mailbox, as it has to be."""
        portion = self.taken[number]
        job = self.job
        first, last = (at * job["sample_beats"] for at in (portion.start, portion.start + portion.samples))
        rest = np.empty((0, self.config.words), np.uint32) if portion.rest is None else portion.rest
        want = beats_of(number, portion.kind, portion.samples, portion.words[first:last], len(portion.slots),
                        sent(rest, job["half"]))
        place = self.slot(portion) * job["mailbox_pitch"]
        got = [self.memory.get(place + at) for at in range(len(want))]
        return all(beat is not None and (beat == word).all() for beat, word in zip(got, want, strict=True))

    def slot(self, portion: Portion) -> int:
        return portion.gpu * self.job["mailbox_slots"] + portion.own % self.job["mailbox_slots"]

    def counts(self, name: str) -> list[int]:
        """Of each GPU."""
        return [self.ports.get(name) >> 32 * gpu & (1 << 32) - 1 for gpu in range(self.config.gpus)]

    def _gpu(self) -> None:
        """Each GPU finishes its mini-batches in order; what it has not finished must not have been written over."""
        for gpu in range(0 if self.held else self.config.gpus):
            at = self.gpu_at[gpu]
            if at is None and self.read[gpu] > self.finished[gpu]:
                self.gpu_at[gpu] = at = self.cycle + self.r.randint(self.pace.gpu, 2 * self.pace.gpu)
            if at is not None and at <= self.cycle:
                number = next(number for number, portion in enumerate(self.taken)
                              if (portion.gpu, portion.own) == (gpu, self.finished[gpu]))
                assert self.done_of(number), f"mini-batch {number} was written over before it was finished"
                self.gpu_kinds.append(self.taken[number].kind)
                self.finished[gpu] += 1
                self.gpu_at[gpu] = None
        # The dispatcher knows of it by the next poll, at the earliest.
        self.scheduler.finished = self.finished

    def _update(self, item: dict[str, int]) -> None:
        gathered = [number for number, portion in enumerate(self.taken) if portion.kind == GATHERED]
        number = gathered[len(self.updates)]
        portion, job = self.taken[number], self.job
        assert self.finished[portion.gpu] > portion.own, f"updates of mini-batch {number} before it is finished"
        place = self.slot(portion) * job["gradients_pitch"]
        assert item == {"batch": portion.batch, "rows": len(portion.slots),
                        "address": self.gradients + place * 4 * self.config.words}, item
        self.updates.append(item)
        self.scheduler.pending = False
        self.update_at = self.cycle + self.r.randint(self.pace.update, 2 * self.pace.update)

    async def run(self, cycles: int = 200_000) -> None:
        """Until everything is done and the unit idle."""
        limit, quiet = self.cycle + cycles, 0
        while quiet < 8:
            await self.step()
            assert not self.ports.get("error") & 1, self.ports.fields("error")
            assert self.cycle < limit, f"{sum(self.read)} mini-batches of {len(self.taken)} after {cycles} cycles"
            busy = any(self.coming.values()) or any(self.standing.values())
            quiet = quiet + 1 if not busy and self.ports.get("idle") else 0
        assert self.read == self.finished and sum(self.read) == len(self.taken) and not self.beats and not self.requests
        assert len(self.updates) == sum(portion.kind == GATHERED for portion in self.taken)
        assert self.events == [sum(portion.kind == kind for portion in self.taken) for kind in (POPULAR, GATHERED)]
        assert not self.freed and not self.under_way


def _words(value: int, count: int) -> np.ndarray:
    return np.frombuffer(value.to_bytes(4 * count, "little"), np.uint32)


def _numbers(counts: list[int]) -> int:
    """The GPUs' words, the first lowest."""
    return sum(count << 32 * gpu for gpu, count in enumerate(counts))


def _packed(words: np.ndarray) -> int:
    return int.from_bytes(words.tobytes(), "little")
