"""What the tests of the Hotline core's program share: the parts around it as models, and random instructions."""

import os
import random
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from cocotb.triggers import RisingEdge

from golden.hotline.program import Arguments, Fault
from golden.hotline.program import Program as Golden
from hw.hotline.config import HotlineConfig
from hw.hotline.program import CALM_CYCLES
from hw.hotline.transfers import chunk_beats
from hw.isa import HOTLINE
from verif.bench import pack, reset
from verif.bench.memory import base
from verif.bench.pack import Ports
from verif.bench.stream import StreamRule
from verif.hotline.shapes import CONFIGS, sizes_of

TOP = (1 << 32) - 1
BEGIN = 1 << 31 | 5     # beat of row 0
ROW_BEATS_LOG2 = -1
PIECE = 1 << 15
KINDS = {instruction.name: instruction.opcode for instruction in HOTLINE.instructions}
USED = {instruction.name: {use.field for use in instruction.uses} for instruction in HOTLINE.instructions}
PULSES = ("clear", "start_save", "start_load", "begin", "train")
INPUTS_READ = ("i", "i_inputs", "i_image_beats")
OUTPUTS_READY = ("o_requests", "o_input_requests", "o_beats", "o_image_beats", "o_write_requests", "o_write_data")
JOB = ("indices", "sample_beats", "learn", "vectors")
encode = partial(pack.encode, HOTLINE)
TRAINS = ("row_beats_log2", "batch", "pooled", "half", "mailbox_slots", "mailbox_pitch", "gradients_pitch", "rate")


def beat_of(at: int, words: int) -> int:
    """The words that lie at a beat of the inputs, and those of the logger's image."""
    return sum(((at * 16 + word) * 0x9E3779B1 + 0x7F4A7C15 & TOP) << 32 * word for word in range(words))


class Bench:
    """Memory, logger, lookup and write port around the program; what it sets going is compared with golden.

    flow: how often each stream goes on; busy: cycles for which the parts go on after their last beat, at most;
    bad, bad_inputs: beats of the program and of the inputs that are answered with an error.
    """

    def __init__(self, dut: Any, config: HotlineConfig, r: random.Random, *, flow: float = 1.0, busy: int = 3,
                 latency: int = 2, bad: Iterable[int] = (), bad_inputs: Iterable[int] = ()):
        self.dut, self.config, self.r, self.flow, self.busy, self.latency = dut, config, r, flow, busy, latency
        self.ports, self.edge, self.cycle = Ports(dut), RisingEdge(dut.clk), 0
        self.bad, self.bad_inputs = set(bad), set(bad_inputs)
        self.queues: dict[str, deque[tuple[int, Any]]] = {name: deque() for name in INPUTS_READ}
        self.offered: set[str] = set()
        self.held: dict[str, int] = {}
        self.actions: list[tuple[str, dict[str, int]]] = []
        self.wanted: list[Any] = []
        self.got: list[tuple[bool, bool, int]] = []     # beats of samples or of an image
        self.asked: list[tuple[int, int]] = []
        self.writes: list[tuple[int, int]] = []
        self.image: list[int] = []
        self.owed: deque[int] = deque()                 # when requests to write are answered
        self.answered = 0
        self.quiet_at = self.flushed_at = self.idle_at = 0
        self.moved_at: int | None = None
        self.finished = 0
        self.finish_at: list[int] = []
        self.flushes = 0
        self.was_flush = False
        self.noise = 0

    @classmethod
    async def fresh(cls, dut: Any, r: random.Random, **more: Any) -> "Bench":
        for name in ("start", "written", "moved", "idle_lookup", "flushed", "idle",
                     *(f"{name}__valid" for name in INPUTS_READ), *(f"{name}__ready" for name in OUTPUTS_READY)):
            getattr(dut, name).value = 0
        await reset(dut)
        return cls(dut, CONFIGS[os.environ["HOTLINE"]], r, **more)

    def put(self, items: Sequence[dict[str, int]], arguments: Arguments | None = None, *,
            joins: dict[int, int] | None = None, count: int | None = None) -> None:
        """A program; an item may say its words itself."""
        self.words = [item["_words"] if "_words" in item else encode(item) for item in items]
        self.buffers = arguments or Arguments()
        golden = Golden(sizes=sizes_of(self.config), arguments=self.buffers, joins=joins or {})
        self.wanted = list(golden.run(self.words))
        self.count = len(items) if count is None else count
        self.bases = {name: base(name, self.config.beat_bytes) for name in ("program", "inputs", "mailbox")}
        values = {"program_count": self.count, **self.bases, **self.buffers._asdict()}
        self.ports.set("arguments", {argument.name: values.get(argument.name, 0x5A5A5A5A)
                                     for argument in HOTLINE.arguments})

    # -- A cycle.

    def _offer(self) -> None:
        ports, step = self.ports, self.config.beat_bytes
        for name in INPUTS_READ:
            queue = self.queues[name]
            if name not in self.offered and queue and queue[0][0] <= self.cycle and self.r.random() < self.flow:
                self.offered.add(name)
                at = queue[0][1]
                if name == "i":
                    flat = [word for words in self.words for word in words][at * step // 4:(at + 1) * step // 4]
                    data = sum(word << 32 * k for k, word in enumerate(flat)) if flat else 0xA5A5
                    ports.set("i__payload", {"data": data, "error": int(at in self.bad)})
                elif name == "i_inputs":
                    ports.set("i_inputs__payload", {
                        "data": beat_of(at, self.config.words), "error": int(at in self.bad_inputs)})
                else:
                    ports.set("i_image_beats__payload", beat_of(at, self.config.words))
            ports.set(f"{name}__valid", name in self.offered)
        self.ready = {name: self.r.random() < self.flow for name in OUTPUTS_READY}
        for name, ready in self.ready.items():
            ports.set(f"{name}__ready", ready)

    async def step(self, *, start: bool = False) -> None:
        ports = self.ports
        self._offer()
        written = bool(self.owed) and self.owed[0] <= self.cycle
        moved = self.moved_at is not None and self.moved_at <= self.cycle
        if written:
            self.owed.popleft()
        if moved:
            self.moved_at = None
        # Parts are idle now and then while they still have something to do, for as long as that means nothing.
        lookup = self.quiet_at <= self.cycle or self.noise > 0
        self.noise = self.noise - 1 if self.noise else self.r.choice((0, 0, 1, CALM_CYCLES - 1))
        ports.set("start", start)
        ports.set("written", written)
        ports.set("moved", moved)
        ports.set("idle_lookup", lookup)
        ports.set("flushed", self.was_flush and self.flushed_at <= self.cycle)
        ports.set("idle", self.idle_at <= self.cycle or not self.was_flush)
        await self.edge
        self.cycle += 1
        self._outputs()
        self._events()
        for name in INPUTS_READ:
            if name in self.offered and ports.get(f"{name}__ready"):
                self.queues[name].popleft()
                self.offered.discard(name)
                if name == "i_image_beats" and not self.queues[name]:
                    self.moved_at = self.cycle + 1 + self.r.randint(0, self.busy)

    def _events(self) -> None:
        ports, config = self.ports, self.config
        if ports.get("registers") & 1:
            values = ports.fields("registers")
            values.pop("valid")
            self.actions.append(("register", values))
        for name in PULSES:
            if ports.get(name):
                self.actions.append((name.removeprefix("start_"), {}))
                self._busy()
                image = sizes_of(config).image_beats
                if name == "start_save":
                    due = self.cycle + self.latency
                    self.queues["i_image_beats"].extend((due + at, at) for at in range(image))
        flush = bool(ports.get("flush"))
        if flush and not self.was_flush:
            self.flushes += 1
            assert self.quiet_at <= self.cycle, "flushed before all samples are looked up"
            self.flushed_at = self.cycle + self.r.randint(0, self.busy)
            self.idle_at = self.flushed_at + self.r.randint(0, self.busy)
        self.was_flush = flush
        if ports.get("finish"):
            self._judge(self.wanted[self.finished])
            self.finished += 1
            self.finish_at.append(self.cycle)

    def _busy(self) -> None:
        self.quiet_at = self.cycle + self.r.randint(0, self.busy)

    def _outputs(self) -> None:
        ports, step = self.ports, self.config.beat_bytes
        for name in OUTPUTS_READY:
            valid = ports.get(f"{name}__valid")
            payload = ports.get(f"{name}__payload") if valid else None
            before = self.held.pop(name, None)
            if before is not None and payload != before:
                raise StreamRule(f"cycle {self.cycle}: {name} changed before it was taken")
            if valid and not self.ready[name]:
                self.held[name] = payload
            if not (valid and self.ready[name]):
                continue
            if name == "o_image_beats":
                self.got.append((False, False, payload))
                image = sizes_of(self.config).image_beats
                if len(self.got) == image:
                    self.moved_at = self.cycle + self.r.randint(0, self.busy)
                self._busy()
                continue
            item = ports.fields(f"{name}__payload")
            if name == "o_beats":
                words = sum(word << 32 * at for at, word in enumerate(item["words"]))
                self.got.append((bool(item["first"]), bool(item["last"]), words))
                self.job = ports.fields("job")
                self._busy()
            elif name == "o_write_data":
                self.image.append(item["data"])
            elif name == "o_write_requests":
                self.writes.append((item["address"], item["beats"]))
            else:
                buffer = "program" if name == "o_requests" else "inputs"
                at, rest = divmod(item["address"] - self.bases[buffer], step)
                assert not rest and 1 <= item["beats"] <= PIECE
                due = self.cycle + self.latency
                if name == "o_requests":
                    self.queues["i"].extend((due, at + k) for k in range(min(item["beats"], 4096)))
                else:
                    self.asked.append((at, item["beats"]))
                    self.queues["i_inputs"].extend((due, at + k) for k in range(item["beats"]))

        # A request is answered some time after its beats and it have come.
        if self.writes and self.answered < len(self.writes) and (
                len(self.image) >= sum(beats for _, beats in self.writes[:self.answered + 1])):
            self.answered += 1
            self.owed.append(max(self.owed[-1] if self.owed else 0, self.cycle + 5 + self.r.randint(0, 40)))

    def _judge(self, want: tuple[str, dict[str, int]]) -> None:
        """All that an instruction has set going."""
        name, told = want
        config, words = self.config, self.config.words
        assert not self.was_flush or name == "train"
        assert self.quiet_at <= self.cycle, f"{name} ends too early"
        if name == "register":
            assert self.actions == [("register", told)], (self.actions, told)
        else:
            pulses = {"learn": ["begin"], "train": ["begin", "train"]}.get(name, [name])
            assert self.actions == [(pulse, {}) for pulse in pulses], (self.actions, name)
        if "source" in told:
            beats, source = told["beats"], told["source"]
            assert [at + k for at, n in self.asked for k in range(n)] == list(range(source, source + beats))
            assert self.asked == [(at, min(PIECE, source + beats - at)) for at in range(source, source + beats, PIECE)]
            each = told.get("sample_beats", 0)
            assert self.got == [(bool(each) and at % each == 0, bool(each) and at % each == each - 1,
                                 beat_of(source + at, words)) for at in range(beats)]
        else:
            assert not self.asked and not self.got
        if name in ("learn", "train"):
            names = (*JOB, *(TRAINS if name == "train" else ()))
            assert {key: self.job[key] for key in names} == {key: told[key] for key in names}
        assert self.flushes == (name == "train")
        if name == "train":
            assert self.flushed_at <= self.cycle and self.idle_at <= self.cycle
        if name == "save":
            chunk = min(chunk_beats(config), told["beats"])
            assert self.writes == [(self.bases["mailbox"] + at * config.beat_bytes, chunk)
                                   for at in range(told["out"], told["out"] + told["beats"], chunk)]
            assert self.image == [beat_of(at, words) for at in range(told["beats"])] and not self.owed
        else:
            assert not self.writes and not self.image
        self.actions, self.asked, self.got, self.writes, self.image = [], [], [], [], []
        self.flushes = self.answered = 0

    async def run(self, *, cycles: int = 100_000, quiet: int = 20) -> None:
        """The whole program, and some cycles more."""
        self.finished, self.finish_at = 0, []
        await self.step(start=True)
        limit = self.cycle + cycles
        while quiet:
            await self.step()
            error = self.ports.fields("error")
            quiet -= bool(self.ports.get("done") or error["valid"])
            assert self.cycle < limit, f"instruction {self.finished} of {self.count} after {cycles} cycles"
        self.error = Fault(error["code"], error["instruction"], error["detail"]) if error["valid"] else None
        self.last = self.ports.get("number")

    def judge(self) -> None:
        """The program ended as golden says."""
        fault = self.wanted[-1] if self.wanted and isinstance(self.wanted[-1], Fault) else None
        assert self.error == fault, (self.error, fault)
        assert self.finished == len(self.wanted) - (fault is not None), (self.finished, self.wanted)
        assert not self.actions and not self.asked and not self.got and not self.writes
        if fault is not None:
            assert not self.ports.get("done")


def least_pitches(config: HotlineConfig, item: dict[str, int], vectors: int) -> tuple[int, int]:
    """The pitches of the mailbox and of the gradients that are just enough."""
    log2 = item["row_beats_log2"]
    rows = min(item["batch"] * item["indices"], sizes_of(config).slots(log2))
    sent = item["batch"] * vectors if item["pooled"] else rows
    return 1 + item["batch"] * item["sample_beats"] + (sent << log2), rows << log2


def _row_beats_log2(r: random.Random, config: HotlineConfig, joins: dict[int, int]) -> int:
    """Of all TRAIN of a program, whose rows lie one behind the other by their numbers, from BEGIN on."""
    return joins.setdefault(ROW_BEATS_LOG2, r.choice([at for at in range(7) if sizes_of(config).slots(at)]))


def any_item(r: random.Random, config: HotlineConfig, kind: str, joins: dict[int, int], *,
             most: int = 30) -> dict[str, int]:
    """An instruction of at most so many samples that is allowed; fields that it does not use are noise. joins: of the
    program's registers, and its ROW_BEATS_LOG2."""
    item = {field.name: r.getrandbits(field.bits) for field in HOTLINE.fields}
    item["opcode"] = KINDS[kind]
    sizes = sizes_of(config)
    if kind == "S_WR":
        item["pinned"] = r.randrange(2)
        item["position"] = r.randrange(config.positions)
        item["join"] = 0 if item["pinned"] or not item["position"] else r.randrange(3)
        rows = r.choice([1, 2, r.randint(1, 1 << sizes.domain_bits), 1 << sizes.domain_bits])
        item["table_rows"] = min(rows, (1 << 31) - 1)
        first = r.choice([0, (1 << sizes.domain_bits) - rows, r.randint(0, (1 << sizes.domain_bits) - rows)])
        item["first_low"], item["first_high"] = first & TOP, first >> 32
        if not item["pinned"]:
            item["base"] = BEGIN + (first << _row_beats_log2(r, config, joins)) & TOP
    elif kind in ("LEARN", "TRAIN"):
        sample_beats = item["sample_beats"] = r.randint(1, 8)
        log2 = item["row_beats_log2"] = _row_beats_log2(r, config, joins)
        if kind == "LEARN":
            item["row_beats_log2"] = r.getrandbits(4)
        top = min(config.positions, sample_beats * config.words, sizes.slots(log2) if kind == "TRAIN" else 64)
        item["indices"] = r.choice([1, top, r.randint(1, top)])
        item["count"] = r.choice([1, 2, r.randint(1, most)])
        item["source"] = r.getrandbits(r.randrange(1, 30))
        if kind == "TRAIN":
            top = config.frame_beats // sample_beats
            item["batch"] = r.choice([1, top, r.randint(1, top)])
            item["pooled"] = 0 if joins.get(0) else r.randrange(2)
            item["mailbox_slots"] = r.choice([1, 255, r.randint(1, 255)])
            vectors = sum(not joins.get(at, 0) for at in range(item["indices"]))
            least, gradients = least_pitches(config, item, vectors)
            item["mailbox_pitch"] = least + r.choice([0, 1, r.getrandbits(8)])
            item["gradients_pitch"] = gradients + r.choice([0, 1, r.getrandbits(8)])
    elif kind in ("SAVE", "LOAD"):
        item["out" if kind == "SAVE" else "source"] = r.getrandbits(r.randrange(1, 30))
    return item


def any_program(r: random.Random, config: HotlineConfig, count: int, joins: dict[int, int] | None = None,
                kinds: Sequence[str] = tuple(KINDS)) -> list[dict[str, int]]:
    joins = {} if joins is None else joins
    items = []
    for _ in range(count):
        item = any_item(r, config, r.choice(kinds), joins)
        if item["opcode"] == KINDS["S_WR"]:
            joins[item["position"]] = item["join"]
        items.append(item)
    return items


QUICK = ("S_WR", "S_WR", "CLEAR", "LEARN", "TRAIN")
