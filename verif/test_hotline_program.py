"""The Hotline core's program among models of the parts: what each instruction sets going, and every refusal."""

import os
import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from golden.hotline.program import BAD_INSTRUCTION, BOUNDS, READ_ERROR, Arguments, Fault
from golden.hotline.program import Program as Golden
from hw.hotline.config import HotlineConfig
from hw.hotline.program import CALM_CYCLES, Program
from hw.hotline.transfers import chunk_beats
from hw.isa import HOTLINE
from verif.bench import report, reset, rng, start
from verif.bench.runner import seeds, simulate
from verif.bench.stream import StreamRule
from verif.hotline import CONFIGS, Ports, sizes_of

TOP = (1 << 32) - 1
PROGRAM, INPUTS, MAILBOX = 0x40_0000_1000, 0x10_1234_0000, 0x7_FFFF_0000
PIECE = 1 << 15
KINDS = {instruction.name: instruction.opcode for instruction in HOTLINE.instructions}
USED = {instruction.name: {use.field for use in instruction.uses} for instruction in HOTLINE.instructions}
BUFFERS = ("inputs_beats", "mailbox_beats", "gradients_beats", "hot_beats")
PULSES = ("clear", "start_save", "start_load", "begin", "train")
INPUTS_READ = ("i", "i_inputs", "i_image_beats")
OUTPUTS_READY = ("o_requests", "o_input_requests", "o_beats", "o_image_beats", "o_write_requests", "o_write_data")
JOB = ("indices", "sample_beats", "learn", "vectors")
TRAINS = ("row_beats_log2", "batch", "pooled", "mailbox_slots", "mailbox_pitch", "gradients_pitch", "rate")


def encode(item: dict[str, int]) -> list[int]:
    word = sum(item.get(field.name, 0) << field.offset for field in HOTLINE.fields)
    return [word >> 32 * at & TOP for at in range(HOTLINE.words)]


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
        values = {"program": PROGRAM, "program_count": self.count, "inputs": INPUTS, "mailbox": MAILBOX,
                  **self.buffers._asdict()}
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
        # Parts are idle now and then while they still have something to do.
        blink = self.r.random() < 0.3
        lookup = self.quiet_at <= self.cycle or (blink and self.noise < CALM_CYCLES - 2)
        self.noise = self.noise + 1 if lookup and self.quiet_at > self.cycle else 0
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
                base = PROGRAM if name == "o_requests" else INPUTS
                at, rest = divmod(item["address"] - base, step)
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
            assert self.writes == [(MAILBOX + at * config.beat_bytes, chunk)
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


def any_item(r: random.Random, config: HotlineConfig, kind: str, joins: dict[int, int], *,
             most: int = 30) -> dict[str, int]:
    """An instruction of at most so many samples that is allowed; fields that it does not use are noise."""
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
    elif kind in ("LEARN", "TRAIN"):
        sample_beats = item["sample_beats"] = r.randint(1, 8)
        log2 = item["row_beats_log2"] = r.choice([at for at in range(7) if sizes.slots(at)])
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


@cocotb.test()
async def smoke(dut):
    """One instruction of each kind; what they set going, written down by hand."""
    start(dut)
    bench = await Bench.fresh(dut, rng("smoke"))
    words = bench.config.words
    items = [
        {"opcode": KINDS["S_WR"], "position": 2, "first_low": 1000, "table_rows": 50, "base": 7, "join": 1},
        {"opcode": KINDS["CLEAR"]},
        {"opcode": KINDS["LEARN"], "count": 3, "source": 100, "sample_beats": 2, "indices": 4},
        {"opcode": KINDS["TRAIN"], "count": 5, "source": 106, "sample_beats": 2, "indices": 4, "pooled": 1, "batch": 4,
         "mailbox_slots": 2, "mailbox_pitch": 1 + 8 + 4 * 3 * 2, "gradients_pitch": 32, "row_beats_log2": 1,
         "rate": 0x3F800000},
        {"opcode": KINDS["SAVE"], "out": 40}, {"opcode": KINDS["LOAD"], "source": 9},
    ]
    image = sizes_of(bench.config).image_beats
    bench.put(items)
    assert [name for name, _ in bench.wanted] == ["register", "clear", "learn", "train", "save", "load"]
    assert bench.wanted[0][1] == {"position": 2, "first": 1000, "rows": 50, "base": 7, "join": 1, "pinned": 0}
    assert bench.wanted[3][1]["vectors"] == 3 and bench.wanted[3][1]["beats"] == 10
    assert bench.wanted[4][1]["beats"] == image == 4 * bench.config.banks * bench.config.sets // words
    await bench.run()
    bench.judge()
    assert bench.finished == 6 and bench.last == 6


@cocotb.test()
async def random_match_golden(dut):
    """Random programs of allowed instructions; unused fields are noise."""
    start(dut)
    for number in range(4):
        r = rng(f"random {number}")
        bench = await Bench.fresh(dut, r, latency=r.choice([1, 30]), busy=r.choice([0, 7, 40]))
        bench.put(any_program(r, bench.config, 25, kinds=QUICK) + any_program(r, bench.config, 3))
        await bench.run()
        bench.judge()
        assert bench.finished == 28


@cocotb.test()
async def backpressure_both_sides(dut):
    """The same with pauses on every stream."""
    start(dut)
    for number in range(4):
        r = rng(f"pressure {number}")
        bench = await Bench.fresh(dut, r, flow=r.choice([0.15, 0.5, 0.9]), latency=r.choice([1, 20]), busy=20)
        bench.put(any_program(r, bench.config, 10, kinds=QUICK) + any_program(r, bench.config, 2))
        await bench.run(cycles=300_000)
        bench.judge()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Cycles of each kind of instruction; a beat a cycle."""
    start(dut)
    r = rng("rate")
    bench = await Bench.fresh(dut, r, busy=0)
    config, beats = bench.config, 16 // bench.config.words
    sizes = sizes_of(config)
    train = {"opcode": KINDS["TRAIN"], "count": 100, "sample_beats": 1, "indices": 8, "batch": 5, "mailbox_slots": 5,
             "mailbox_pitch": 1000, "gradients_pitch": 500, "row_beats_log2": 1}
    shown = {}
    first = 3 + bench.latency       # cycles to the first beat
    for name, item, sums, more in (
        ("S_WR", {"opcode": KINDS["S_WR"], "table_rows": 1}, [], 0),
        ("CLEAR", {"opcode": KINDS["CLEAR"]}, [], 0),
        ("LEARN", {"opcode": KINDS["LEARN"], "count": 500, "sample_beats": 1, "indices": 4}, [1], first),
        ("LEARN 8", {"opcode": KINDS["LEARN"], "count": 70, "sample_beats": 8, "indices": 4}, [4], first),
        # Multipliers: sample_beats, sample_beats, mailbox_slots, indices, row_beats, mailbox_slots, row_beats.
        ("TRAIN", train, [1, 1, 3, 4, 2, 3, 2], first + CALM_CYCLES + 3),
        # And vectors, and the hot rows' beats; positions are counted.
        ("pooled", train | {"pooled": 1}, [1, 1, 3, 4, 4, 2, 3, 2, 2], first + CALM_CYCLES + 3 + 1 + 8),
        ("LOAD", {"opcode": KINDS["LOAD"]}, [1], first + 1),
    ):
        bench.put([item] * 4)
        await bench.run()
        bench.judge()
        gaps = {b - a for a, b in zip(bench.finish_at, bench.finish_at[1:], strict=False)}
        moved = {"S_WR": 0, "LOAD": sizes.image_beats}.get(name, item.get("count", 0) * item.get("sample_beats", 0))
        shown[name] = beats + 17 + sum(3 + bits for bits in sums) + moved + more
        assert gaps == {shown[name]}, (name, gaps, shown[name])
    report(program=shown)


@cocotb.test()
async def reset_midstream(dut):
    """After a reset at any cycle the next program comes out right, and no register is remembered."""
    start(dut)
    for number in range(10):
        r = rng(f"reset {number}")
        bench = await Bench.fresh(dut, r)
        bench.put(any_program(r, bench.config, 12, kinds=QUICK))
        await bench.step(start=True)
        for _ in range(r.randrange(400)):
            await bench.step()
        bench = await Bench.fresh(dut, r)
        bench.put(any_program(r, bench.config, 4, kinds=("TRAIN", "S_WR", "CLEAR")))
        await bench.run()
        bench.judge()


@cocotb.test()
async def corner_values(dut):
    """Programs of none; the most samples of a beat and of eight; a run of more than one request; all positions
    joined; programs one behind the other without a reset."""
    start(dut)
    r = rng("corners")
    bench = await Bench.fresh(dut, r, busy=0)
    config = bench.config
    for count in (0, 0, 1, 0, 3):
        bench.put(any_program(r, config, count, kinds=("CLEAR", "LEARN")))
        await bench.run()
        bench.judge()
    # A LOAD that says something of samples, which is not its business; the marks of those behind it are right.
    bench.put([{"opcode": KINDS["LOAD"], "sample_beats": 3},
               {"opcode": KINDS["LEARN"], "count": 4, "sample_beats": 2, "indices": 1}])
    await bench.run()
    bench.judge()
    items = [{"opcode": KINDS["S_WR"], "position": at, "join": int(at > 0), "table_rows": 1}
             for at in range(config.positions)]
    top = min(config.positions, 8 * config.words, sizes_of(config).slots(0))
    train = {"opcode": KINDS["TRAIN"], "count": 1, "sample_beats": 8, "indices": top, "batch": 1, "pooled": 1,
             "mailbox_slots": 1, "mailbox_pitch": 1 + 8 + 1, "gradients_pitch": top}
    for position in (1, config.positions - 1):
        items += [train, {"opcode": KINDS["S_WR"], "position": position, "table_rows": 1},
                  train | {"mailbox_pitch": 1 + 8 + 2}, {
                      "opcode": KINDS["S_WR"], "position": position, "join": 2, "table_rows": 1}]
    bench.put(items)
    await bench.run()
    bench.judge()
    # Requests are as long as they may be; nothing is fed, so only they are seen.
    for count in (PIECE - 1, PIECE, PIECE + 1, TOP):
        bench = await Bench.fresh(dut, r)
        bench.put([{"opcode": KINDS["LEARN"], "count": count, "sample_beats": 1, "indices": 1}])
        await bench.step(start=True)
        for _ in range(60):
            await bench.step()
            bench.queues["i_inputs"].clear()
        assert bench.asked[:3] == [(at, min(PIECE, count - at)) for at in range(0, count, PIECE)][:3]


def _refusals(r: random.Random, config: HotlineConfig) -> list[tuple[str, dict[str, int]]]:
    """(kind, what is changed of an allowed instruction) of all that is refused by itself."""
    sizes = sizes_of(config)
    cases: list[tuple[str, dict[str, int]]] = [("CLEAR", {"opcode": at}) for at in (0, 7, 8, 9, 0x83, 0xFF)]
    for word in (0, 9):
        mask = HOTLINE.reserved(word)
        cases += [(r.choice(list(KINDS)), {"_bit": 32 * word + bit}) for bit in range(32) if mask >> bit & 1]
    for field in HOTLINE.fields:
        for kind, used in USED.items():
            if field.name in used:
                values = {0} if field.minimum else set()
                whole = (1 << field.bits) - 1
                if field.highest < whole:
                    values |= {field.highest + 1, whole, r.randint(field.highest + 1, whole)}
                cases += [(kind, {field.name: value}) for value in values]
    bits = sizes.domain_bits
    cases += [
        ("S_WR", {"pinned": 1, "join": join}) for join in (1, 2)]
    cases += [("S_WR", {"first_low": first & TOP, "first_high": first >> 32, "table_rows": rows}) for first, rows in (
        ((1 << bits) - 9, 10), (1 << bits, 1), ((1 << 40) - 1, (1 << 31) - 1), ((1 << bits) - 1, 2),
        (0, min((1 << bits) + 1, (1 << 31) - 1)) if bits < 31 else (1 << 39, 1))]
    if config.positions < 64:
        cases += [("S_WR", {"position": at}) for at in (config.positions, 63)]
    for kind in ("LEARN", "TRAIN"):
        cases += [(kind, {"indices": config.positions + 1, "sample_beats": 8}),
                  (kind, {"indices": config.words + 1, "sample_beats": 1}),
                  (kind, {"indices": 2 * config.words + 1, "sample_beats": 2})]
    for log2 in range(7):
        slots = sizes.slots(log2)
        if slots < min(64, config.positions):
            cases.append(("TRAIN", {"row_beats_log2": log2, "indices": slots + 1, "sample_beats": 8, "batch": 1}))
    cases += [("TRAIN", {"sample_beats": beats, "indices": 1, "batch": batch}) for beats, batch in (
        (1, config.frame_beats + 1), (1, (1 << 16) - 1), (8, config.frame_beats // 8 + 1), (3, config.frame_beats),
        (8, 1 << 15))]
    cases.append(("TRAIN", {"pooled": 1, "_join": 1}))
    return cases


@cocotb.test()
async def malformed_programs(dut):
    """Every value that is not allowed is refused at its place, with everything before it carried out."""
    start(dut)
    r = rng("malformed")
    config = CONFIGS[os.environ["HOTLINE"]]
    cases = _refusals(r, config)
    for kind, change in cases:
        joins: dict[int, int] = {}
        items = any_program(r, config, r.randrange(3), joins, kinds=("S_WR", "CLEAR"))
        if change.get("_join"):
            items.append({"opcode": KINDS["S_WR"], "position": 0, "join": change["_join"], "table_rows": 1})
            joins[0] = 1
        item = any_item(r, config, kind, joins)
        item |= {name: value for name, value in change.items() if not name.startswith("_")}
        words = encode(item)
        if "_bit" in change:
            words[change["_bit"] // 32] |= 1 << change["_bit"] % 32
        place = len(items)
        items += [item | {"_words": words}, *any_program(r, config, 1)]
        bench = await Bench.fresh(dut, r, busy=0)
        bench.put(items)
        await bench.run(quiet=3)
        assert bench.error == Fault(BAD_INSTRUCTION, place, words[0]), (kind, change, bench.error)
        bench.judge()
    report(malformed=len(cases))


@cocotb.test()
async def bounds(dut):
    """Each buffer and pitch kept and passed by a beat, and sums beyond 32 bits that would wrap into it."""
    start(dut)
    config = CONFIGS[os.environ["HOTLINE"]]
    sizes, tried = sizes_of(config), {False: 0, True: 0}
    named: set[int] = set()
    for number in range(160):
        r = rng(f"bounds {number}")
        kind = ("LEARN", "TRAIN", "TRAIN", "TRAIN", "SAVE", "LOAD")[number % 6]
        joins: dict[int, int] = {}
        items = any_program(r, config, r.randrange(3), joins, kinds=("S_WR",))
        item = any_item(r, config, kind, joins, most=12)
        limits = Arguments()._asdict()
        over = r.randrange(2)
        if kind in ("SAVE", "LOAD"):
            name, offset = ("mailbox_beats", "out") if kind == "SAVE" else ("inputs_beats", "source")
            item[offset] = r.choice([0, r.getrandbits(20), TOP - sizes.image_beats + 1, TOP])
            limits[name] = min(TOP, max(0, item[offset] + sizes.image_beats - over))
        else:
            what = r.choice(["inputs", "far"] if kind == "LEARN" else [
                "inputs", "far", "slots", "pitch", "gradients", "gradients pitch", "hot", "wrap"])
            vectors = sum(not joins.get(at, 0) for at in range(item["indices"]))
            if what == "inputs":
                limits["inputs_beats"] = item["source"] + item["count"] * item["sample_beats"] - over
            elif what == "far":
                item["count"] = r.choice([TOP, 1 << 31, min(TOP, (1 << 32) // item["sample_beats"])])
                item["source"] = r.choice([TOP, 1 << 31])
            elif what == "slots":
                limits["mailbox_beats"] = item["mailbox_pitch"] * item["mailbox_slots"] - over
            elif what == "gradients":
                limits["gradients_beats"] = item["gradients_pitch"] * item["mailbox_slots"] - over
            elif what == "pitch":
                item["mailbox_pitch"] = least_pitches(config, item, vectors)[0] - over
            elif what == "gradients pitch":
                item["gradients_pitch"] = max(0, least_pitches(config, item, vectors)[1] - over)
            elif what == "hot":
                item["pooled"] = int(not joins.get(0))
                vectors = sum(not joins.get(at, 0) for at in range(item["indices"]))
                item["mailbox_pitch"] = least_pitches(config, item, vectors)[0]
                limits["hot_beats"] = (sizes.banks * sizes.sets * 4 << item["row_beats_log2"]) - over
            else:
                item["mailbox_slots"] = r.choice([128, 255, 64])
                item[r.choice(["mailbox_pitch", "gradients_pitch"])] = r.choice([1 << 25, (1 << 26) + 3, TOP])
        items.append(item)
        bench = await Bench.fresh(dut, r, busy=0)
        bench.put(items, Arguments(**limits))
        await bench.run(quiet=3)
        bench.judge()
        tried[bench.error is not None] += 1
        if bench.error is not None:
            assert bench.error.code == BOUNDS
            named.add(bench.error.detail)
    assert min(tried.values()) > 30 and named == {0, 1, 2, 4}, (tried, named)
    report(bounds_kept=tried[False], bounds_passed=tried[True])


@cocotb.test()
async def read_errors(dut):
    """An error on any beat of the program or of samples and images: told with its instruction, what came before it is
    handed on and nothing behind it."""
    start(dut)
    config = CONFIGS[os.environ["HOTLINE"]]
    beats = 16 // config.words
    for number in range(20):
        r = rng(f"errors {number}")
        items = any_program(r, config, 6, kinds=QUICK)
        place = r.randrange(len(items) * beats)
        bench = await Bench.fresh(dut, r, bad=[place], flow=r.choice([1.0, 0.5]))
        bench.put(items)
        bench.wanted[place // beats:] = [Fault(READ_ERROR, place // beats, 0)]
        await bench.run()
        bench.judge()
        await bench.step(start=True)    # nothing begins without a reset
        for _ in range(20):
            await bench.step()
        assert not bench.ports.get("done") and not bench.actions
    for number in range(20):
        r = rng(f"inputs {number}")
        kind = ("LEARN", "TRAIN", "LOAD")[number % 3]
        item = any_item(r, config, kind, {})
        length = item["count"] * item["sample_beats"] if kind != "LOAD" else sizes_of(config).image_beats
        place = r.choice([0, length - 1, r.randrange(length)])
        bench = await Bench.fresh(dut, r, bad_inputs=[item["source"] + place], flow=r.choice([1.0, 0.5]))
        bench.put([{"opcode": KINDS["CLEAR"]}, item])
        bench.wanted[1:] = [Fault(READ_ERROR, 1, 1)]
        await bench.run()
        assert len(bench.got) == place
        bench.actions, bench.asked, bench.got = [], [], []
        bench.judge()


NAMES = ("smoke", "random_match_golden", "backpressure_both_sides", "latency_and_rate_as_documented",
         "reset_midstream", "corner_values", "malformed_programs", "bounds", "read_errors")


@pytest.mark.parametrize(("name", "tests"), [
    ("tiny", NAMES), ("wide", ("random_match_golden", "bounds", "malformed_programs"))])
@pytest.mark.parametrize("number", seeds())
def test_hotline_program(number, name, tests):
    simulate(Program(CONFIGS[name]), "verif.test_hotline_program", name=f"hotline_program_{name}", tests=len(tests),
             seed=number, only="|".join(f"{test}$" for test in tests), env={"HOTLINE": name})


@pytest.mark.parametrize(("change", "sentence"), [
    (dict(words=4), "words must be one of 8, 16, not 4"),
    (dict(positions=4), "positions must be a power of two from 8 to 64, not 4"),
    (dict(words=16, lanes=16, positions=8), "positions must be at least 16, the words of a beat, not 8"),
])
def test_illegal_config_wrong(change, sentence):
    """What the program counts on: instructions are whole beats, there is an address register for every word."""
    with pytest.raises(ValueError) as caught:
        replace(CONFIGS["tiny"], **change)
    assert str(caught.value) == sentence
