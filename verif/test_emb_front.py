"""The EMB core's front against the golden deal: every row, lookup, step and copy of random programs, and every
refusal, over read ports that answer late and in pieces."""

import os
import random
from collections import deque
from dataclasses import fields, replace
from functools import partial
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden import emb_front, emb_tokens
from golden.emb import Emb, Memory
from hw.emb.config import EmbConfig
from hw.emb.feeder import Feeder
from hw.emb.front import Front
from hw.emb.outlet import Outlet
from hw.emb.program import Program
from hw.emb.regions import CLIENTS, Regions
from hw.isa import EMB, LONGEST_BAG
from hw.tt.config import TTConfig
from verif.bench import report, reset, rng, start
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.bench.stream import Sink, Source, bursty, sometimes

PROGRAM, INPUTS, ROWS = 0x40_0000_1000, 0x47_1234_0000, 0x40_8000_0000
LOAD, BAGS, FILL = (EMB.instruction(name).opcode for name in ("LOAD", "BAGS", "FILL"))
SUM, MEAN, MAX = range(3)
STREAMS = ("o_dram", "o_ssd", "o_lookups", "o_steps", "o_copies", "o_load")
# All cases at both widths; by default the wide beat is tried where the width matters.
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
WIDTH = ("smoke", "random_match_golden", "latency_and_rate_as_documented", "cycles_as_golden", "loads_that_break")


def config(words: int) -> EmbConfig:
    """Small memories around a front of the beat's width."""
    unit = {"lanes": 1, "lut_products": 0, "x_lines": 256, "y_lines": 512, "t_lines": 128, "t_middle_lines": 128,
            "keep_lines": 2, "mode_bits": 8, "rank_max": 16, "dim_max": 64, "reuse_entries": 32, "in_flight": 16,
            "output_beats": 256, "pool_log2": 3}
    sizes = {4: {"grid_log2": 1, "tables": 8, "index_bits": 20}, 16: {"grid_log2": 2, "tables": 64, "index_bits": 30}}
    return EmbConfig(
        tt=TTConfig(**unit, **sizes[words]), row_beats_max=16 if words == 4 else 64, window_beats=1024,
        window_sets=16, delivery_rows=32, rows_in_flight=16, reads_in_flight=8, writes_in_flight=4, dram_queue=32,
        ssd_queue=128, tt_queue=32, bag_queue=64, partial_beats=128, program_beats=16, input_beats=64,
        output_beats=128)


def encode(item: dict[str, int]) -> list[int]:
    word = sum(item.get(field.name, 0) << field.offset for field in EMB.fields)
    return [word >> 32 * at & 0xFFFFFFFF for at in range(EMB.words)]


class Plan:
    """A program under construction, with its inputs laid out at random places."""

    def __init__(self, unit: EmbConfig, random_: random.Random, *, ring_beats: int = 1 << 16, rows_beats: int = 1 << 20,
                 outputs_beats: int = 1 << 20):
        self.unit, self.rng, self.words = unit, random_, unit.words
        self.ring_beats, self.rows_beats, self.outputs_beats = ring_beats, rows_beats, outputs_beats
        self.inputs: list[int] = []
        self.items: list[dict[str, int]] = []
        self.loaded: set[int] = set()
        self.loads: list[dict[str, int]] = []
        self.timeline: list[tuple[int, set[int]]] = []

    def region(self, values) -> int:
        """Where `values` lie, in beats; what surrounds them is noise that nobody may take."""
        gap = self.rng.randrange(3)
        self.inputs += [self.rng.getrandbits(32) for _ in range(gap * self.words)]
        at = len(self.inputs) // self.words
        self.inputs += [int(v) for v in values]
        self.inputs += [self.rng.getrandbits(32) for _ in range(-len(self.inputs) % self.words)]
        return at

    def add(self, item: dict[str, int]) -> dict[str, int]:
        self.items.append(item)
        self.timeline.append((len(self.items) - 1, set(self.loaded)))
        return item

    def table(self) -> dict[str, int]:
        """Sizes of a table, and a window of the ring."""
        r = self.rng
        b = r.choice([1, 1, 2, 3, self.unit.row_beats_max, r.randint(1, self.unit.row_beats_max)])
        rows = r.choice([1, 7, min(1000, self.rows_beats // b), (self.rows_beats - 100) // b])
        return {"row_beats": b, "dram_rows": rows, "dram_base": r.randrange(self.rows_beats - rows * b + 1),
                "tt_rows": r.choice([1, 50, (1 << self.unit.tt.index_bits) - 1, 1 << self.unit.tt.index_bits]),
                "ring_first": r.choice([0, r.getrandbits(30), (1 << 30) - 3]),
                "ring_count": r.randint(2 * b, self.ring_beats)}

    def word(self, item: dict[str, int], device: int) -> int:
        """An index that is allowed."""
        r = self.rng
        if device == 0:
            row = r.choice([0, item["dram_rows"] - 1, r.randrange(item["dram_rows"])])
        elif device == 1:
            top = min(item["tt_rows"], 1 << self.unit.tt.index_bits)
            row = r.choice([0, top - 1, r.randrange(top)])
        else:
            row = self.position(item)
        return device << 30 | row

    def position(self, item: dict[str, int]) -> int:
        r, b = self.rng, item["row_beats"]
        while True:
            along = r.choice([0, item["ring_count"] - b, r.randrange(item["ring_count"] - b + 1)])
            position = (item["ring_first"] + along) % (1 << 30)
            if position % self.ring_beats + b <= self.ring_beats:
                return position

    def bags(self, lengths, *, devices=(0, 1, 2), mode: int = SUM, weighted: int = 0, chunk: int | None = None,
             words=None, **more: int) -> dict[str, int]:
        r = self.rng
        item = {"opcode": BAGS, "mode": mode, "weighted": weighted, "count": len(lengths), **self.table()}
        item["chunk_rows"] = (1 if weighted or mode == MAX else r.randint(1, 8)) if chunk is None else chunk
        item["tt_table"] = r.choice(sorted(self.loaded)) if self.loaded else 0
        devices = [d for d in devices if d != 1 or self.loaded] or [0]
        item.update(more)
        total = sum(lengths)
        item["lengths"] = self.region(lengths)
        item["indices"] = self.region([self.word(item, r.choice(devices)) for _ in range(total)]
                                      if words is None else words)
        item["indices_count"] = total
        if weighted:
            item["weights"] = self.region([r.getrandbits(32) for _ in range(total)])
        stride = r.choice([item["row_beats"], item["row_beats"] + r.randrange(4)])
        item["out_stride"] = stride
        item["out"] = r.randrange(self.outputs_beats - stride * len(lengths) + 1)
        item["release"] = r.getrandbits(30)
        item.update(more)
        return self.add(item)

    def fill(self, count: int, **more: int) -> dict[str, int]:
        item = {"opcode": FILL, "count": count, **self.table(), "release": self.rng.getrandbits(30)}
        item.update(more)
        pairs = []
        for _ in range(count):
            pairs += [self.position(item), self.rng.randrange(item["dram_rows"])]
        item["indices"] = self.region(pairs)
        return self.add(item)

    def load(self, tables, extra: int = 0) -> dict[str, int]:
        """A load image of random beats, among them the last part of the descriptors of `tables`."""
        r = self.rng
        config_ = self.unit.tt
        limits = (config_.x_lines, config_.y_lines, config_.tables, config_.keep_lines)
        beats = [(2, 3, t) for t in tables]
        for _ in range(extra):
            target = r.randrange(4)
            beats.append((target, r.randrange(3 if target == 2 else 4), r.randrange(limits[target])))
        r.shuffle(beats)
        image: list[int] = []
        for at in range(0, len(beats), 16):
            group = beats[at:at + 16]
            heads = [r.randrange(4) << 20 | part << 18 | target << 16 | address for target, part, address in group]
            image += heads + [0] * (16 - len(heads))
            for head in heads:
                data = [r.getrandbits(32) for _ in range(self.words)]
                image += data
                self.loads.append({"address": head & 0xFFFF, "target": head >> 16 & 3, "part": head >> 18 & 3,
                                   "flip": head >> 20 & 3, "data": sum(w << 32 * i for i, w in enumerate(data))})
        item = self.add({"opcode": LOAD, "count": len(beats), "indices": self.region(image),
                         "release": r.getrandbits(30)})
        self.loaded |= set(tables)
        return item

    def expected(self) -> tuple[dict[str, list[Any]], emb_tokens.Fault | None, int]:
        """All streams, up to the first fault of an index, and where that is."""
        found: dict[str, list[Any]] = {name: [] for name in ("o_dram", "o_ssd", "o_lookups", "o_steps", "o_copies")}
        for number, loaded in self.timeline:
            item = self.items[number]
            if item["opcode"] == LOAD:
                continue
            dealt = emb_tokens.deal(item, self.inputs, words=self.words, number=number, ring_beats=self.ring_beats,
                                    index_bits=self.unit.tt.index_bits, loaded=loaded)
            found["o_dram"] += dealt.dram
            found["o_ssd"] += dealt.ssd
            found["o_lookups"] += dealt.lookups
            found["o_steps"] += dealt.steps
            found["o_copies"] += dealt.copies
            if dealt.fault:
                return found, dealt.fault, number
        return found, None, -1


def _as(kind: type, beat: dict[str, int]):
    return kind(**{item.name: beat[item.name] for item in fields(kind)})


def shown(name: str, beat: dict[str, int], beat_bytes: int):
    """A beat as the golden model says it; a step's factor only where it counts."""
    if name in ("o_dram", "o_ssd"):
        assert beat["ring"] == beat["tier"] == (name == "o_ssd"), beat
        return _as(emb_tokens.Row, beat)
    if name == "o_lookups":
        return _as(emb_tokens.Lookup, beat)
    if name == "o_steps":
        return counted(_as(emb_tokens.Step, beat))
    if name == "o_copies":
        assert beat["address"] >= ROWS and (beat["address"] - ROWS) % beat_bytes == 0
        return emb_tokens.Copy((beat["address"] - ROWS) // beat_bytes, beat["beats"])
    return beat


def counted(step: emb_tokens.Step) -> emb_tokens.Step:
    counts = step.mode == MEAN and (step.tt or step.dram or step.ssd) or step.tt and step.weighted
    return step if counts else replace(step, factor=0)


class Bench:
    """The front with its ports: buffers behind the read ports, sinks, and whoever finishes bags and rows."""

    def __init__(self, dut, unit: EmbConfig, plan: Plan, *, random_: random.Random, gaps: str = "none",
                 latency: int = 20, bad=(), hold_bags: int = 0):
        self.dut, self.unit, self.plan, self.rng = dut, unit, plan, random_
        self.bad = set(bad)         # (client, beat of its buffer) that is answered with an error
        self.latency = latency
        self.program = [word for item in plan.items for word in encode(item)]
        pattern = {"none": lambda: None, "some": lambda: sometimes(0.6, random_), "bursts": lambda: bursty(random_)}
        self.sources = [Source(dut, f"i__{k}", pattern=pattern[gaps]()) for k in range(len(CLIENTS))]
        self.requests = [Sink(dut, f"o_requests__{k}", pattern=pattern[gaps](),
                              on_beat=partial(self._asked, k)) for k in range(len(CLIENTS))]
        self.sinks = {name: Sink(dut, name, pattern=pattern[gaps]()) for name in STREAMS}
        self.sinks["o_steps"]._on_beat = self._step
        self.sinks["o_copies"]._on_beat = self._copy
        self.waiting: list[deque] = [deque() for _ in CLIENTS]
        self.cycle = 0
        self.bags: deque[int] = deque()     # when each is in memory
        self.rows: deque[int] = deque()
        self.hold_bags = hold_bags
        self.released: list[int] = []
        self.flushes: list[str] = []
        self.dealt_at: list[int] = []
        self.stalls: dict[str, int] = {}
        self.tasks = [cocotb.start_soon(self._run())]

    def _asked(self, client: int, beat) -> None:
        name = CLIENTS[client]
        base, words = (PROGRAM, self.program) if name == "program" else (INPUTS, self.plan.inputs)
        size = self.unit.beat_bytes
        first, rest = divmod(beat["address"] - base, size)
        assert rest == 0 and beat["beats"] > 0, f"{name}: {beat}"
        assert 0 <= first and (first + beat["beats"]) * self.unit.words <= len(words), f"{name} reads outside: {beat}"
        assert beat["address"] // 4096 == (beat["address"] + beat["beats"] * size - 1) // 4096
        for at in range(first, first + beat["beats"]):
            data = sum(w << 32 * i for i, w in enumerate(words[at * self.unit.words:(at + 1) * self.unit.words]))
            error = (name, at) in self.bad
            self.waiting[client].append((self.cycle + self.latency, data | error << 8 * size))

    def _step(self, beat) -> None:
        if beat["last"]:
            self.bags.append(self.cycle + self.hold_bags + self.rng.randrange(20))

    def _copy(self, beat) -> None:
        self.rows.append(self.cycle + self.rng.randrange(20))

    async def _run(self) -> None:
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        names = ("dram", "ssd", "tt", "write", "feeder")
        finished = False
        while True:
            await edge
            self.cycle += 1
            for client, waiting in enumerate(self.waiting):
                ready = []
                while waiting and waiting[0][0] <= self.cycle:
                    ready.append(waiting.popleft()[1])
                self.sources[client].put_raw(ready)
            for signal, queue in ((dut.bags_done, self.bags), (dut.row_done, self.rows)):
                due = bool(queue) and queue[0] <= self.cycle
                signal.value = due
                if due:
                    queue.popleft()
            if finished:    # in the cycle before
                self.released.append(int(dut.released.value))
            finished = dut.finish.value == 1
            for name in ("flush_window", "flush_tt"):
                if getattr(dut, name).value == 1:
                    self.flushes.append(name)
            row = int(dut.row.value)
            if row & 0b01000 or row & 0b10000:
                self.dealt_at.append(self.cycle)
            stall = int(dut.stall.value)
            for at, name in enumerate(names):
                self.stalls[name] = self.stalls.get(name, 0) + (stall >> at & 1)

    async def begin(self) -> None:
        self.arguments()
        self.dut.start.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.start.value = 0

    def arguments(self) -> None:
        dut, plan = self.dut, self.plan
        values = {"program": PROGRAM, "program_count": len(plan.items), "inputs": INPUTS,
                  "inputs_beats": len(plan.inputs) // plan.words, "outputs": 0x41 << 32,
                  "outputs_beats": plan.outputs_beats, "rows": ROWS, "rows_beats": plan.rows_beats,
                  "ring": 0x42 << 32, "ring_beats": plan.ring_beats, "result": 0, "timeout": 1000}
        word, at = 0, 0
        for argument in EMB.arguments:
            word |= values[argument.name] << at
            at += argument.bits
        dut.arguments.value = word

    def error(self) -> dict[str, int] | None:
        value, at, found = int(self.dut.error.value), 0, {}
        for name, bits in (("valid", 1), ("code", 8), ("instruction", 32), ("bag", 32), ("index", 32), ("detail", 32)):
            found[name] = value >> at & (1 << bits) - 1
            at += bits
        return found if found.pop("valid") else None

    async def ended(self, cycles: int = 400_000):
        """None when the program is done, or the error; the queues are empty then."""
        edge = RisingEdge(self.dut.clk)
        for _ in range(4):
            await edge
        for _ in range(cycles):
            await edge
            error = self.error()
            if error or self.dut.done.value == 1:
                # What was dealt out before is still in the queues.
                last, quiet = -1, 0
                while quiet < 150:
                    await edge
                    taken = sum(len(sink.beats) for sink in self.sinks.values())
                    quiet, last = (quiet + 1 if taken == last else 0), taken
                return error
        raise AssertionError(f"neither done nor an error after {cycles} cycles; so far "
                             f"{ {name: len(sink.beats) for name, sink in self.sinks.items()} }")

    def got(self, name: str) -> list[Any]:
        return [shown(name, beat, self.unit.beat_bytes) for beat in self.sinks[name].beats]

    def judge(self, *, upto: int | None = None) -> None:
        """All streams against the golden deal; `upto`: the instruction that was refused."""
        plan = self.plan
        if upto is not None:
            plan.items, plan.timeline = plan.items[:upto], plan.timeline[:upto]
        wanted, _, _ = plan.expected()
        for name, beats in wanted.items():
            want = [counted(step) for step in beats] if name == "o_steps" else beats
            compare(name, self.got(name), want)
        if upto is None:
            compare("o_load", self.got("o_load"), plan.loads)

    def stop(self) -> None:
        parts: list[Any] = [*self.sources, *self.requests, *self.sinks.values()]
        for part in parts:
            part.stop()
        for task in self.tasks:
            task.cancel()


def compare(name: str, got, want) -> None:
    for at, (a, b) in enumerate(zip(got, want)):
        assert a == b, f"{name}: beat {at} of {len(want)} is {a}, expected {b}"
    assert len(got) == len(want), f"{name}: {len(got)} beats, expected {len(want)}"


def unit_of(dut) -> EmbConfig:
    return config((len(dut.i__0__payload) - 2) // 32)


async def _start(dut) -> EmbConfig:
    start(dut)
    for name in ("start", "bags_done", "row_done"):
        getattr(dut, name).value = 0
    await reset(dut)
    return unit_of(dut)


async def _carry_out(dut, unit, plan, **how) -> Bench:
    bench = Bench(dut, unit, plan, random_=plan.rng, **how)
    await bench.begin()
    error = await bench.ended()
    assert error is None, f"the front refused: {error}"
    bench.judge()
    assert int(dut.finished.value) == len(plan.items)
    assert bench.released == [item["release"] for item in plan.items]
    assert bench.flushes == [{LOAD: "flush_tt", FILL: "flush_window"}[item["opcode"]]
                             for item in plan.items if item["opcode"] != BAGS]
    bench.stop()
    return bench


def _lengths(r: random.Random, bags: int, most: int) -> list[int]:
    return [r.choice([0, 1, 1, 2, 3, r.randrange(most + 1)]) for _ in range(bags)]


def _any_program(plan: Plan, instructions: int, *, bags: int = 12, most: int = 40) -> None:
    r = plan.rng
    plan.load(r.sample(range(plan.unit.tt.tables), 4), extra=r.randrange(40))
    for _ in range(instructions):
        what = r.random()
        if what < 0.1:
            plan.fill(r.randint(1, 30))
        elif what < 0.15:
            plan.load([r.randrange(plan.unit.tt.tables)], extra=r.randrange(20))
        else:
            weighted = int(r.random() < 0.3)
            plan.bags(_lengths(r, r.randint(1, bags), most), weighted=weighted,
                      mode=SUM if weighted else r.choice([SUM, MEAN, MAX]),
                      devices=r.choice([(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2), (0, 1, 2)]))


@cocotb.test()
async def smoke(dut):
    """One bag over all three memories, in chunks of two rows."""
    unit = await _start(dut)
    plan = Plan(unit, rng("smoke"))
    plan.load([3], extra=2)
    table = {"row_beats": 2, "dram_rows": 10, "dram_base": 100, "tt_rows": 9, "ring_first": 6, "ring_count": 64}
    words = [4, 1 << 30 | 7, 2 << 30 | 8, 1 << 30 | 8, 5, 1 << 30 | 1]
    plan.bags([6], mode=MEAN, chunk=2, words=words, tt_table=3, out=50, out_stride=2, **table)
    bench = await _carry_out(dut, unit, plan)
    rows = [(row.offset, row.first, row.last) for row in bench.got("o_dram")]
    assert rows == [(108, 1, 0), (110, 0, 1)]
    assert [(row.offset, row.first, row.last) for row in bench.got("o_ssd")] == [(8, 1, 1)]
    lookups = [(lookup.index, lookup.begin, lookup.end) for lookup in bench.got("o_lookups")]
    assert lookups == [(7, 1, 0), (8, 0, 1), (1, 1, 1)]
    steps = [(s.tt, s.dram, s.ssd, s.first, s.end, s.factor, s.out) for s in bench.got("o_steps")]
    assert steps == [(1, 0, 0, 1, 0, 6, 50), (1, 1, 1, 0, 1, 6, 50)]


@cocotb.test()
async def random_match_golden(dut):
    unit = await _start(dut)
    for number in range(6):
        plan = Plan(unit, rng(f"random {number}"), ring_beats=1 << rng(f"ring {number}").randint(8, 20))
        _any_program(plan, 25)
        await _carry_out(dut, unit, plan, latency=plan.rng.choice([0, 5, 60]))


@cocotb.test()
async def backpressure_both_sides(dut):
    unit = await _start(dut)
    for gaps in ("some", "bursts", "some", "bursts"):
        plan = Plan(unit, rng(f"pressure {gaps}"))
        _any_program(plan, 15)
        await _carry_out(dut, unit, plan, gaps=gaps, latency=plan.rng.choice([0, 30]))


@cocotb.test()
async def corner_values(dut):
    """Bags of no, one and very many indices; regions that end with a beat, or one word after; all of one memory."""
    unit = await _start(dut)
    words = unit.words
    plan = Plan(unit, rng("corners"))
    plan.load(range(unit.tt.tables))
    plan.bags([0])
    plan.bags([0, 0, 0])
    plan.bags([1])
    plan.bags([words])
    plan.bags([words + 1] * words)
    plan.bags([0] * (words + 1), weighted=1)
    plan.bags([0, words, 0], weighted=1)
    for device in range(3):
        plan.bags([0, 1, 0, 2 * words, 1, 0], devices=(device,), mode=MEAN)
        plan.bags([1] * 40, devices=(device,), mode=MAX)
    plan.bags([1] * 30 + [0] * 7)
    for chunk in range(1, 9):
        plan.bags([chunk - 1, chunk, chunk + 1, 3 * chunk], chunk=chunk, devices=(1,))
        plan.bags([40, 0, 41], chunk=chunk)
    plan.bags([0, LONGEST_BAG if REGRESS else 20_000, 1], chunk=8)
    plan.bags([4_000], devices=(1,), chunk=8, mode=MEAN)
    plan.fill(1)
    plan.fill(words)
    await _carry_out(dut, unit, plan)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """One token a cycle over bags, empty ones among them, and over instructions; the feeder's and tiers' latency."""
    unit = await _start(dut)
    figures = {}
    for name, lengths, count, devices in (
        ("dram", [40] * 20, 4, (0,)), ("tt", [40] * 20, 4, (1,)), ("ssd", [40] * 20, 4, (2,)),
        ("mixed", [7, 0, 33, 1, 1, 90, 0, 0, 12] * 8, 4, (0, 1, 2)), ("ones", [1] * 500, 4, (0, 1, 2)),
        ("empty", [0] * 500, 3, (0,)), ("small", [3, 1, 0, 4] * 6, 30, (0, 1, 2)),
    ):
        plan = Plan(unit, rng(f"rate {name}"))
        plan.load(range(4))
        for _ in range(count):
            plan.bags(lengths, devices=devices, mode=plan.rng.choice([SUM, MEAN]))
        tokens = count * sum(max(1, n) for n in lengths)
        bench = await _carry_out(dut, unit, plan)
        assert len(bench.dealt_at) == tokens
        cycles = bench.dealt_at[-1] - bench.dealt_at[0] + 1
        figures[name] = tokens / cycles
        report(**{f"rate_{name}": tokens / cycles})
    assert min(figures[name] for name in ("dram", "tt", "ssd", "mixed")) == 1.0, figures
    # With no bag longer than an index the lengths cannot get ahead: a cycle an instruction.
    assert min(figures["ones"], figures["empty"]) > 0.997, figures
    # An instruction takes about 20 cycles to check, during those before it: 24 tokens hide most of that.
    assert figures["small"] > 0.6, figures


@cocotb.test()
async def cycles_as_golden(dut):
    """Every registered output, cycle by cycle, and every word taken, under any pattern of data and room."""
    unit = await _start(dut)
    words, edge = unit.words, RisingEdge(dut.clk)
    queues = {"dram": unit.dram_queue, "ssd": unit.ssd_queue, "tt": unit.tt_queue, "steps": unit.bag_queue}
    outputs = {"dram": "o_dram", "ssd": "o_ssd", "lookups": "o_lookups", "steps": "o_steps"}
    layouts = {name: layout_of(f"{port}__payload") for name, port in outputs.items()}
    request = layout_of("o_requests__0__payload")
    cycles = 0
    for number in range(6):
        r = rng(f"cycles {number}")
        plan = Plan(unit, r)
        loader = Plan(unit, r)
        loader.load(range(unit.tt.tables))
        await _carry_out(dut, unit, loader)
        plan.loaded = set(loader.loaded)
        for _ in range(r.choice([3, 30, 80])):
            weighted = r.randrange(2)
            plan.bags(_lengths(r, r.choice([1, 3, 20]), r.choice([2, 40])), weighted=weighted,
                      mode=SUM if weighted else r.choice([SUM, MEAN, MAX]))
        arena = {False: plan.inputs, True: [word for item in plan.items for word in encode(item)]}
        bench = Bench(dut, unit, plan, random_=r)
        bench.stop()    # what follows drives the ports itself
        await reset(dut)
        model = emb_front.Front(
            emb_front.Arguments(PROGRAM // unit.beat_bytes, len(plan.items), INPUTS // unit.beat_bytes),
            words=words, input_beats=unit.input_beats, queues=queues)
        coming: list[deque] = [deque() for _ in CLIENTS]
        latency = r.choice([1, 10, 70])
        room, flow = r.choice([1.0, 0.7, 0.3]), r.choice([1.0, 0.8])
        standing: list[Any] = [None] * len(CLIENTS)
        finishing, cycle, start_at = 0, 0, r.randrange(1, 9)
        bench.arguments()
        while not (model.done and cycle > start_at + 2):
            begin = cycle == start_at
            dut.start.value = begin
            data = []
            for k, waiting in enumerate(coming):
                if standing[k] is None and waiting and waiting[0][0] <= cycle and r.random() < flow:
                    standing[k] = waiting.popleft()[1]
                data.append(standing[k])
                getattr(dut, f"i__{k}__valid").value = standing[k] is not None
                if standing[k] is not None:
                    getattr(dut, f"i__{k}__payload").value = sum(w << 32 * i for i, w in enumerate(standing[k]))
            asked = [r.random() < room for _ in CLIENTS]
            for k, ready in enumerate(asked):
                getattr(dut, f"o_requests__{k}__ready").value = ready
            takes = {name: r.random() < room for name in outputs}
            for name, port in outputs.items():
                getattr(dut, f"{port}__ready").value = takes[name]
            done = finishing > 0 and r.random() < 0.2
            finishing -= done
            dut.bags_done.value = done
            await edge
            where = f"program {number}, cycle {cycle}"
            for k, wanted in enumerate(model.requests):
                valid = getattr(dut, f"o_requests__{k}__valid").value == 1
                assert valid == (wanted is not None), f"{where}: request {CLIENTS[k]}: {valid}, golden {wanted}"
                if wanted is not None:
                    shown_ = request.unpack(int(getattr(dut, f"o_requests__{k}__payload").value))
                    assert (shown_["address"] // unit.beat_bytes, shown_["beats"]) == wanted, where
                    if asked[k]:
                        first = wanted[0] - (PROGRAM if k == 0 else INPUTS) // unit.beat_bytes
                        for at in range(first, first + wanted[1]):
                            coming[k].append((cycle + latency, tuple(arena[k == 0][at * words:(at + 1) * words])))
            for name, port in outputs.items():
                wanted = getattr(model, name)
                valid = getattr(dut, f"{port}__valid").value == 1
                assert valid == (wanted is not None), f"{where}: {port} valid is {valid}, golden {wanted}"
                if wanted is not None:
                    found = shown(port, layouts[name].unpack(int(getattr(dut, f"{port}__payload").value)), 1)
                    golden = counted(wanted) if name == "steps" else wanted
                    assert found == golden, f"{where}: {port}: {found}, {golden}"
                    if name == "steps" and takes[name] and wanted.last:
                        finishing += 1
            assert (int(dut.finished.value), dut.done.value == 1) == (model.finished, model.done), where
            offered = [beat is not None and getattr(dut, f"i__{k}__ready").value == 1
                       for k, beat in enumerate(standing)]
            taken = model.step(
                start=begin, data=data, requests_taken=[a and q is not None for a, q in zip(asked, model.requests)],
                **{f"{name}_taken": take and getattr(model, name) is not None for name, take in takes.items()},
                bags_done=bool(done))
            assert offered == taken, f"{where}: words taken of {offered}, golden {taken}"
            for k, gone in enumerate(taken):
                if gone:
                    standing[k] = None
            cycle += 1
            assert cycle < 100_000
        cycles += cycle
        for name in ("start", "bags_done"):
            getattr(dut, name).value = 0
        await reset(dut)
    report(cycles_compared=cycles)


@cocotb.test()
async def reset_midstream(dut):
    """A reset at any cycle leaves nothing behind: the next program comes out right, with the tables still loaded."""
    unit = await _start(dut)
    for number in range(24 if REGRESS else 6):
        r = rng(f"reset {number}")
        plan = Plan(unit, r)
        _any_program(plan, 12)
        first = plan.items[0]
        bench = Bench(dut, unit, plan, random_=r, gaps="some")
        await bench.begin()
        loaded = False
        for _ in range(r.randrange(60, 900)):
            await RisingEdge(dut.clk)
            loaded |= int(dut.finished.value) >= 1
        now = [item["opcode"] for item in plan.items][int(dut.finished.value):][:1]
        bench.stop()
        await reset(dut, 1)
        if loaded and now != [LOAD]:
            again = Plan(unit, r)
            again.loaded = {t for t in range(unit.tt.tables) if t in plan.timeline[1][1]}
            again.bags([5, 3, 9], devices=(1,))
            await _carry_out(dut, unit, again)
        else:
            again = Plan(unit, r)
            _any_program(again, 3)
            await _carry_out(dut, unit, again)
        assert first["opcode"] == LOAD


async def _refused(dut, unit, plan, **how) -> tuple[Bench, dict[str, int]]:
    bench = Bench(dut, unit, plan, random_=plan.rng, gaps=plan.rng.choice(["none", "some"]), **how)
    await bench.begin()
    error = await bench.ended()
    assert error is not None, f"the program of {plan.items[-1]} ended well"
    bench.stop()
    await reset(dut)
    return bench, error


@cocotb.test()
async def malformed_programs(dut):
    """Every field out of its range, and every buffer passed by one beat: refused as golden.emb says, at its place."""
    unit = await _start(dut)
    r = rng("malformed")
    words, longest = unit.words, unit.row_beats_max
    small = {"rows_beats": 4096, "outputs_beats": 4096, "ring_beats": 256}
    everything = 0xFFFFFFFF
    cases: list[tuple[str, dict[str, int]]] = [
        ("bags", {"opcode": 0}), ("bags", {"opcode": 4}), ("bags", {"opcode": 255}), ("bags", {"mode": 3}),
        ("weighted", {"mode": MEAN, "chunk_rows": 1}), ("weighted", {"mode": MAX, "chunk_rows": 1}),
        ("bags", {"count": 0}), ("bags", {"row_beats": 0}), ("bags", {"row_beats": longest + 1}),
        ("bags", {"row_beats": everything}), ("bags", {"chunk_rows": 0}), ("bags", {"chunk_rows": 9}),
        ("bags", {"chunk_rows": 15}), ("bags", {"mode": MAX, "chunk_rows": 2}),
        ("weighted", {"chunk_rows": 2}), ("bags", {"tt_rows": (1 << unit.tt.index_bits) + 1}),
        ("bags", {"tt_rows": everything}), ("bags", {"ring_first": 1 << 30}), ("bags", {"release": 1 << 30}),
        ("bags", {"release": everything}), ("fill", {"row_beats": 0}), ("fill", {"count": 0}),
        ("fill", {"ring_first": 1 << 31}), ("fill", {"release": 1 << 30}), ("load", {"count": 0}),
        ("load", {"release": 1 << 31}),
        *(("bags", {"_word0": 1 << bit}) for bit in range(11, 32)), *(("load", {"_word9": 1 << b}) for b in (20, 31)),
        ("bags", {"ring_count": 257}), ("bags", {"ring_count": everything}), ("fill", {"ring_count": 257}),
        ("bags", {"lengths": everything}), ("bags", {"lengths": -1}), ("bags", {"indices": -1}),
        ("bags", {"indices": everything}), ("bags", {"indices_count": everything}), ("bags", {"count": everything}),
        ("weighted", {"weights": -1}), ("weighted", {"weights": everything}),
        ("bags", {"dram_rows": everything}), ("bags", {"dram_base": 4096}), ("bags", {"dram_base": everything}),
        ("bags", {"out": everything}), ("bags", {"out": 4096}), ("bags", {"out_stride": everything}),
        ("bags", {"out_stride": 1 << 31, "out": 0}), ("bags", {"out": 4096 - 3}),
        ("fill", {"indices": -1}), ("fill", {"dram_rows": everything}), ("fill", {"count": everything}),
        ("load", {"indices": -1}), ("load", {"indices": everything}), ("load", {"count": everything}),
        ("load", {"_header": 1 << 22}), ("load", {"_header": 1 << 31}),
        *(("load", {"_header": target << 16 | lines}) for target, lines in enumerate(
            (unit.tt.x_lines, unit.tt.y_lines, unit.tt.tables, unit.tt.keep_lines))),
        ("bags", {"ring_beats": 255}), ("fill", {"ring_beats": 3}), ("bags", {"ring_beats": 0}),
        ("ssd", {"ring_beats": 0, "ring_count": 0}), ("ssd", {"ring_beats": 192, "ring_count": 0}),
        ("ssd", {"ring_count": 3}), ("ssd", {"ring_beats": 2, "ring_count": 2}),
    ]
    counts: dict[int, int] = {}
    for number, (kind, change) in enumerate(cases):
        plan = Plan(unit, r, **small)
        for _ in range(r.randrange(3)):
            plan.bags([2, 0, 5], devices=(0,), ring_count=0, ring_first=0)
        good = {"row_beats": 4, "dram_rows": 900, "dram_base": 0, "ring_first": 0, "ring_count": 256, "out": 0,
                "out_stride": 4}
        place = len(plan.items)
        if kind == "fill":
            plan.fill(5, **{k: v for k, v in good.items() if not k.startswith("out")})
        elif kind == "load":
            plan.load([0], extra=18)
        else:
            plan.bags([4, 3], devices=(2,) if kind == "ssd" else (0, 2), weighted=int(kind == "weighted"),
                      tt_rows=5, **good)
        item = plan.items[place]
        plan.ring_beats = change.pop("ring_beats", plan.ring_beats)
        if "_header" in change:
            at = (item["indices"] + (16 + 16 * words) // words) * words + 1     # beat 17
            plan.inputs[at] = change["_header"]
        else:
            for field, value in change.items():
                if value == -1:     # one beat too far: the region's last beat is the buffer's end
                    item[field] = len(plan.inputs) // words
                elif not field.startswith("_"):
                    item[field] = value
        bench = Bench(dut, unit, plan, random_=r, gaps=r.choice(["none", "some"]))
        if field_words := {k: v for k, v in change.items() if k.startswith("_word")}:
            for field, value in field_words.items():
                bench.program[place * EMB.words + int(field[5:])] |= value
        want = _golden_of(unit, plan, bench.program)
        await bench.begin()
        error = await bench.ended()
        assert error == want, f"case {number} ({kind}, {change}): {error}, golden says {want}"
        assert want["instruction"] == place and int(dut.finished.value) == place
        counts[want["code"]] = counts.get(want["code"], 0) + 1
        bench.stop()
        await reset(dut)
    report(malformed=len(cases))
    assert set(counts) == {EMB.code("BAD_INSTRUCTION"), EMB.code("BOUNDS"), EMB.code("INDEX_RANGE")}, counts


def _golden_of(unit: EmbConfig, plan: Plan, program: list[int]) -> dict[str, int]:
    lines = (unit.tt.x_lines, unit.tt.y_lines, unit.tt.tables, unit.tt.keep_lines)
    model = Emb(words=unit.words, row_beats_max=unit.row_beats_max, index_bits=unit.tt.index_bits, lines=lines)
    model.loaded = set(plan.loaded)
    memory = Memory(
        program=np.array(program, np.uint32), inputs=np.array(plan.inputs, np.uint32),
        outputs=np.zeros(plan.outputs_beats * unit.words, np.uint32),
        rows=np.zeros(plan.rows_beats * unit.words, np.uint32), ring_beats=plan.ring_beats,
        landed=np.zeros(max(plan.ring_beats, 256) * unit.words, np.uint32),
        landed_at=plan.items[-1].get("ring_first", 0) % (1 << 30))
    result = model.run(memory)
    return {"code": result.code, "instruction": result.instruction, "bag": result.bag, "index": result.index,
            "detail": result.detail}


@cocotb.test()
async def bad_indices(dut):
    """Each fault that an index, a pair or a length can have, at any place: told as golden.emb and emb_tokens say,
    and nothing of it or behind it is dealt out."""
    unit = await _start(dut)
    r = rng("indices")
    tried = 0
    for number in range(130 if REGRESS else 39):
        plan = Plan(unit, r, ring_beats=1 << r.randint(7, 12))
        plan.load(r.sample(range(1, unit.tt.tables), 3))
        for _ in range(r.randrange(3)):
            plan.bags(_lengths(r, 8, 20), devices=(0, 1, 2))
        kind = number % 13
        if kind < 3:
            item = plan.fill(r.randint(1, 40))
            at = r.randrange(item["count"])
            pair = item["indices"] * unit.words + 2 * at
            b = item["row_beats"]
            if kind == 0:
                plan.inputs[pair + 1] = r.choice([item["dram_rows"], 0xFFFFFFFF, 1 << 30])
            elif kind == 1:
                plan.inputs[pair] = r.choice([1 << 30, 1 << 31, 0xFFFFFFFF]) | plan.inputs[pair]
            else:
                plan.inputs[pair] = (item["ring_first"] + item["ring_count"] - b + 1) % (1 << 30)
        else:
            lengths = [r.randrange(12) for _ in range(r.randint(1, 12))] + [r.randint(1, 12)]
            weighted = r.randrange(2)
            item = plan.bags(lengths, weighted=weighted)
            b = item["row_beats"]
            at = item["indices"] * unit.words + r.randrange(item["indices_count"])
            if kind == 3:
                plan.inputs[at] |= 3 << 30
            elif kind == 4:
                plan.inputs[at] = r.choice([item["dram_rows"], (1 << 30) - 1])
                item["dram_rows"] = min(item["dram_rows"], (1 << 30) - 1)
            elif kind == 5:
                item["tt_rows"] = r.choice([0, 1, 1 << unit.tt.index_bits])
                top = (1 << 30) - 1 if unit.tt.index_bits < 30 else 0
                plan.inputs[at] = 1 << 30 | max(item["tt_rows"] & (1 << 30) - 1, top)
                if item["tt_rows"] == 1 << 30:
                    item["tt_rows"] = (1 << 30) - 1
                    plan.inputs[at] = 1 << 30 | (1 << 30) - 1
            elif kind == 6:
                plan.inputs[at] = 2 << 30 | (item["ring_first"] + item["ring_count"] - b + 1) % (1 << 30)
            elif kind == 7:
                plan.inputs[at] = 2 << 30 | (item["ring_first"] - 1) % (1 << 30)
            elif kind == 8:
                item["tt_table"] = r.choice([0, unit.tt.tables, 0xFFFF])
                plan.inputs[at] = 1 << 30
            elif kind == 9:
                where = item["lengths"] * unit.words + r.randrange(item["count"])
                plan.inputs[where] = r.choice([0xFFFFFFFF, plan.inputs[where] + item["indices_count"] + 1])
            elif kind == 12:
                item["indices_count"] += LONGEST_BAG + 1
                plan.inputs += [0] * (LONGEST_BAG + 1 + 2 * unit.words)
                plan.inputs[item["lengths"] * unit.words + r.randrange(item["count"])] = LONGEST_BAG + 1
            elif kind == 10:
                item["indices_count"] += 1
                plan.inputs += [0] * unit.words
            else:
                item["row_beats"], item["dram_rows"], item["dram_base"] = 4, 5, 0
                item["ring_first"], item["ring_count"], item["out"] = 0, plan.ring_beats, 0
                item["out_stride"] = 4
                plan.inputs[at] = 2 << 30 | plan.ring_beats - r.randint(1, 3)     # wraps
        wanted, fault, place = plan.expected()
        assert fault is not None and place == len(plan.items) - 1, (kind, fault, place)
        bench, error = await _refused(dut, unit, plan)
        assert error == {"code": fault.code, "instruction": place, "bag": fault.bag, "index": fault.index,
                         "detail": fault.detail}, f"case {number}: {error}, golden says {fault}"
        bench.judge()
        # What the token model says of the fault is what golden.emb says of the whole program.
        alone = Plan(unit, r, ring_beats=plan.ring_beats)
        alone.inputs, alone.items, alone.loaded = plan.inputs, [item], plan.loaded
        if item["opcode"] != FILL or kind < 3:
            told = _golden_of(unit, alone, encode(item))
            assert told == error | {"instruction": 0}, f"case {number}: golden.emb says {told}"
        tried += 1
    report(bad_indices=tried)


@cocotb.test()
async def read_errors(dut):
    """A beat of each client answered with an error: READ_ERROR, at the word that needed it, and nothing behind."""
    unit = await _start(dut)
    r = rng("reads")
    words = unit.words
    beats = max(1, 16 // words)
    count = 160 if REGRESS else 24
    for number in range(count):
        plan = Plan(unit, r)
        plan.load([1, 2], extra=25)
        for _ in range(3):
            plan.bags([r.randrange(1, 30) for _ in range(10)], weighted=1, devices=(0, 1, 2))
        plan.fill(20)
        plan.bags([3, 4])
        client = CLIENTS[number % 4]
        place = r.randrange(5) if client == "program" else r.randrange(1, 4)
        if client == "indices" and number % 8 == 2:
            place = r.choice([0, 4])
        item = plan.items[place]
        detail = 1
        bag = index = 0
        if client == "program":
            at, detail = place * beats + r.randrange(beats), 0
        else:
            size = {"lengths": item["count"]}.get(client, item.get("indices_count", 0))
            if item["opcode"] == FILL:
                size = 2 * item["count"]
            if item["opcode"] == LOAD:
                image = item["count"] + -(-item["count"] // 16) * beats
                at = r.randrange(image)
                group, within = divmod(at, 16 + beats)
                index = 16 * group + max(0, within - beats)
                at += item["indices"]
            else:
                at = r.randrange(-(-size // words))
                first = at * words
                at += item[client]
                if item["opcode"] == FILL:
                    bag, index = first // 2, first
                else:
                    lengths = plan.inputs[item["lengths"] * words:][:item["count"]]
                    ends = np.cumsum(lengths)
                    if client == "lengths":
                        bag, index = first, int(ends[first - 1]) if first else 0
                    else:
                        bag, index = int(np.searchsorted(ends, first, side="right")), first
        bench, error = await _refused(dut, unit, plan, bad=[(client, at)])
        assert error == {"code": EMB.code("READ_ERROR"), "instruction": place, "bag": bag, "index": index,
                         "detail": detail}, f"case {number}, {client}: {error}, wanted {place} {bag} {index}"
        steps = [step for step in bench.got("o_steps") if step.instruction == place and step.end]
        assert len(steps) == (bag if item["opcode"] == BAGS and client != "program" else 0)
        assert not any(step.instruction > place for step in bench.got("o_steps"))
    report(read_errors=count)


@cocotb.test()
async def loads_that_break(dut):
    """After a load that an error or a reset broke off no table counts as loaded; after a whole one they do."""
    unit = await _start(dut)
    r = rng("loads")
    table = {"row_beats": 1, "dram_rows": 1, "dram_base": 0, "tt_rows": 9, "ring_first": 0, "ring_count": 2}
    for number in range(6):
        plan = Plan(unit, r)
        plan.load([1, 3])
        await _carry_out(dut, unit, plan)
        broken = Plan(unit, r)
        item = broken.load([5], extra=60)
        if number % 2:
            _, error = await _refused(dut, unit, broken, bad=[("indices", item["indices"] + 30)])
            assert error["code"] == EMB.code("READ_ERROR")
        else:
            bench = Bench(dut, unit, broken, random_=r)
            await bench.begin()
            for _ in range(90 + number):
                await RisingEdge(dut.clk)
            assert int(dut.finished.value) == 0
            bench.stop()
            await reset(dut)
        for asked in (1, 3, 5)[number % 3:][:1 + 2 * REGRESS]:
            after = Plan(unit, r)
            after.bags([1], words=[1 << 30], tt_table=asked, **table)
            _, error = await _refused(dut, unit, after)
            assert error["code"] == EMB.code("TT_TABLE") and error["detail"] == asked
    plan = Plan(unit, r)
    plan.load([1, 5])
    plan.bags([1], words=[1 << 30], tt_table=5, **table)
    await _carry_out(dut, unit, plan)


@cocotb.test()
async def empty_program(dut):
    unit = await _start(dut)
    plan = Plan(unit, rng("empty"))
    plan.region([1])
    await _carry_out(dut, unit, plan)


def test_illegal_config_wrong():
    good = config(4)
    with pytest.raises(ValueError, match="dram_queue must be at least 32, .*, not 16"):
        Front(replace(good, dram_queue=16)).elaborate(None)
    with pytest.raises(ValueError, match="index_bits must be from 1 to 30, not 31"):
        Feeder(beat_bytes=16, row_beats_max=4, tables=8, index_bits=31)
    with pytest.raises(ValueError, match="chunk_rows must be from 1 to 8, not 16"):
        Program(beat_bytes=16, row_beats_max=4, tables=8, index_bits=20, chunk_rows=16)
    with pytest.raises(ValueError, match="piece_beats must be a power of two of at least 2, not 3"):
        Regions(beat_bytes=16, piece_beats=3)
    with pytest.raises(ValueError, match="depth must be a power of two of at least 32, not 48"):
        Outlet(8, depth=48)


@pytest.mark.parametrize("words", [4, 16])
@pytest.mark.parametrize("number", seeds())
def test_emb_front(number, words):
    only = WIDTH if words == 16 and not REGRESS else None
    simulate(Front(config(words)), "verif.test_emb_front", name=f"emb_front_{words}", tests=len(only or range(12)),
             seed=number, only="|".join(only) if only else "")
