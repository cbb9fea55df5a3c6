"""What the benches of the EMB core's front share: programs under construction, and the front beside its golden deal."""

import os
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from golden.emb import tokens as emb_tokens
from golden.emb.signature import signature
from golden.emb.stripes import Stripes
from golden.tt.load import Bounds
from hw.emb.config import EmbConfig
from hw.emb.regions import CLIENTS
from hw.isa import EMB
from hw.isa.emb import FORMAT, MODE, ROW_FORMAT
from hw.tt.config import TTConfig
from hw.uram import LINES
from verif.bench import pack, reset, start
from verif.bench.memory import base
from verif.bench.stream import Sink, Source, bursty, sometimes

SOME = 64       # beats that are answered of a request for inputs that are only said to be so long
MOST = (1 << 32) - 1        # that an instruction's field or an argument holds
LOAD, BAGS, FILL = (EMB.instruction(name).opcode for name in ("LOAD", "BAGS", "FILL"))
SUM, MEAN, MAX = MODE
STREAMS = ("o_dram", "o_ssd", "o_lookups", "o_steps", "o_copies", "o_load")
encode = partial(pack.encode, EMB)


def config(words: int, *, block16_only: bool = False) -> EmbConfig:
    """Small memories around a front of the beat's width; block16_only: the TT unit's, with more X lines than a power of
    two."""
    unit = {"lanes": 1, "lut_products": 0, "x_lines": 256, "y_lines": 512, "t_lines": 128, "t_middle_lines": 128,
            "mode_bits": 8, "rank_max": 16, "dim_max": 64, "reuse_entries": 32, "reuse_findable": 16, "in_flight": 16,
            "output_beats": 256}
    sizes: dict[int, dict[str, Any]] = {
        4: {"grid_log2": 1, "tables": 8, "index_bits": 20},
        16: {"grid_log2": 2, "tables": 64, "index_bits": 30, "grouped": True}}
    if block16_only:
        unit |= {"block16_only": True, "x_lines": LINES + 100}
    longest, stripe = {4: (16, 8), 16: (64, 64)}[words]
    return EmbConfig(
        tt=TTConfig(**unit, **sizes[words]), row_beats_max=longest, stripe_beats=stripe, window_beats=1024,
        window_sets=16, delivery_rows=32, banks=4, rows_in_flight=16, reads_in_flight=8, writes_in_flight=4,
        dram_queue=32,
        ssd_queue=128, tt_queue=32, bag_queue=64, partial_beats=128, lut_products=0, program_beats=16, input_beats=64,
        output_beats=128)


class Plan:
    """A program under construction, with its inputs laid out at random places. ring_first: of the run; inputs_beats:
    that the buffer is said to have, zeros behind all that is laid out; by default as many as are laid out."""

    def __init__(self, unit: EmbConfig, random_: random.Random, *, ring_beats: int = 1 << 16, rows_beats: int = 1 << 20,
                 outputs_beats: int = 1 << 20, ring_first: int = 0, inputs_beats: int | None = None):
        self.ring_first = ring_first
        self.unit, self.rng, self.words = unit, random_, unit.words
        self.ring_beats, self.rows_beats, self.outputs_beats = ring_beats, rows_beats, outputs_beats
        self.inputs: list[int] = []
        self._inputs_beats = inputs_beats
        self.items: list[dict[str, int]] = []
        self.loaded: dict[int, Bounds] = {}     # tables, by their numbers
        self.loads: list[dict[str, int]] = []
        self.released = [ring_first]            # before each instruction, and behind the last
        self.known: list[dict[int, Bounds]] = []    # tables that are loaded before it

    @property
    def only_begins(self) -> bool:
        """Whether inputs are only said to be so long: the run has to end within SOME beats of a request."""
        return self._inputs_beats is not None

    @property
    def inputs_beats(self) -> int:
        return len(self.inputs) // self.words if self._inputs_beats is None else self._inputs_beats

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
        self.released.append(further(self.released[-1], item["release"]))
        self.known.append(dict(self.loaded))
        return item

    def beats(self) -> int:
        """Of a row's values."""
        return self.rng.choice([1, 1, 2, 3, 8, self.unit.row_beats_max, self.rng.randint(1, self.unit.row_beats_max)])

    def table(self, beats: int | None = None) -> dict[str, int]:
        """Sizes of a table, and a window of the ring; its rows in any format and pieces. beats: of a row's values."""
        r = self.rng
        row = {"row_beats": self.beats() if beats is None else beats, "row_format": r.choice([0, 0, 0, *ROW_FORMAT])}
        b = emb_tokens.stored(row)
        layouts = [Stripes(b, piece, self.unit.stripe_beats) for piece in (0, 1, 2, 4, 8, 16, 32)]
        lies = r.choice([layout for layout in layouts if layout.allowed])
        most = min(self.rows_beats // lies.beats(1) * lies.block_rows, MOST)
        rows = r.choice([1, 7, min(1000, most), most - r.randrange(min(100, most))])
        count = r.randint(2 * b, self.ring_beats)
        # From what was released before the window begins, more than a row is left.
        ahead = r.choice([0, 3, r.getrandbits(28), -r.randrange(count - 2 * b + 1)])
        return {**row, "piece_beats": lies.piece_beats, "dram_rows": rows,
                "dram_base": r.randrange(self.rows_beats - lies.beats(rows) + 1),
                "tt_rows": r.choice([1, 50, (1 << self.unit.tt.index_bits) - 1, 1 << self.unit.tt.index_bits]),
                "ring_first": (self.released[-1] + ahead) % (1 << 30), "ring_count": count}

    def release(self) -> int:
        """A ring position to release up to; the same, further or before what was released."""
        r = self.rng
        return (self.released[-1] + r.choice([0, r.randrange(1 << 12), -r.getrandbits(20)])) % (1 << 30)

    def word(self, item: dict[str, int], device: int) -> int:
        """An index that is allowed."""
        r = self.rng
        if device == 0:
            top = min(item["dram_rows"], 1 << 30)
            row = r.choice([0, top - 1, r.randrange(top)])
        elif device == 1:
            top = min(item["tt_rows"], self.loaded[item["tt_table"]].rows)
            row = r.choice([0, top - 1, r.randrange(top)])
        else:
            row = self.position(item)
        return device << 30 | row

    def position(self, item: dict[str, int]) -> int:
        r, b, last = self.rng, emb_tokens.stored(item), item["ring_count"] - emb_tokens.stored(item)
        number = next((at for at, known in enumerate(self.items) if known is item), -1)
        least = (self.released[number] - item["ring_first"]) % (1 << 30)
        least = least if least < 1 << 29 else 0
        while True:
            along = r.choice([least, last, r.randint(least, last)])
            position = (item["ring_first"] + along) % (1 << 30)
            if position % self.ring_beats + b <= self.ring_beats:
                return position

    def bags(self, lengths, *, devices=(0, 1, 2), mode: int = SUM, weighted: int = 0, chunk: int | None = None,
             words=None, **more: int) -> dict[str, int]:
        r = self.rng
        # A table whose bounds what is asked for keeps to, or none is looked up.
        fitting = sorted(table for table, bounds in self.loaded.items()
                         if more.get("row_beats", bounds.beats) == bounds.beats and (chunk or 1) <= bounds.chunk_rows)
        number = more.get("tt_table", r.choice(fitting) if fitting else 0)
        bounds = self.loaded.get(number)
        item = {"opcode": BAGS, "mode": mode, "weighted": weighted, "format": r.randrange(len(FORMAT)),
                "count": len(lengths), **self.table(bounds.beats if bounds else None), "tt_table": number}
        most = bounds.chunk_rows if bounds else 8
        item["chunk_rows"] = (1 if weighted or mode == MAX else r.randint(1, most)) if chunk is None else chunk
        if number not in fitting:
            item["tt_rows"] *= bounds is None
            devices = [d for d in devices if d != 1] or [0]
        item.update(more)
        total = sum(lengths)
        item["lengths"] = self.region(lengths)
        item["indices"] = self.region([self.word(item, r.choice(devices)) for _ in range(total)]
                                      if words is None else words)
        item["indices_count"] = total
        if weighted:
            item["weights"] = self.region([r.getrandbits(32) for _ in range(total)])
        stride = item["row_beats"] + r.choice([0, r.randrange(4), self.outputs_beats // (2 * len(lengths))])
        item["out_stride"] = stride
        item["out"] = r.randrange(self.outputs_beats - stride * len(lengths) + 1)
        item["release"] = self.release()
        item.update(more)
        return self.add(item)

    def words_of(self, item: dict[str, int]) -> list[int]:
        start = item["indices"] * self.words
        return self.inputs[start:start + item["indices_count"]]

    def set_words(self, item: dict[str, int], words: Sequence[int]) -> None:
        start = item["indices"] * self.words
        self.inputs[start:start + len(words)] = words

    def pairs(self, item: dict[str, int], lengths: Sequence[int]) -> int:
        """How many tokens have two indices: two in the words 2k and 2k + 1 and one bag, one of them of a TT."""
        of_tt, found, at = [word >> 30 == 1 for word in self.words_of(item)], 0, 0
        for length in lengths:
            found += sum(of_tt[k] != of_tt[k + 1] for k in range(at + at % 2, at + length - 1, 2))
            at += length
        return found

    def fill(self, count: int, pairs: Sequence[int] = (), **more: int) -> dict[str, int]:
        item = {"opcode": FILL, "count": count, **self.table(), "release": self.release()}
        item.update(more)
        item["indices"] = self.region(pairs or [word for _ in range(count) for word in (
            self.position(item), self.rng.randrange(min(item["dram_rows"], 1 << 30)))])
        return self.add(item)

    def load(self, tables, extra: int = 0, release: int | None = None, **bounds: int) -> dict[str, int]:
        """A load image of random beats, among them the first and the last part of the descriptors of `tables`. bounds:
        where they are not to be drawn; chunks of any length go to the first table."""
        r = self.rng
        config_ = self.unit.tt
        limits = (config_.x_lines, config_.y_lines, config_.tables)
        beats = [(0, 2, part, t) for t in tables for part in (0, 3)]
        wanted = {t: Bounds(**{
            "rows": r.choice([1 << config_.index_bits, r.randint(1, 1 << config_.index_bits)]), "beats": self.beats(),
            "chunk_rows": r.randint(1, 8) if at else 8, **bounds}) for at, t in enumerate(tables)}
        for _ in range(extra):
            target = r.randrange(3)
            block = r.randrange(config_.block16_only, 2) if config_.grouped and target < 2 else 0
            part = r.randint(1, 2) if target == 2 else r.randrange(4)
            beats.append((block, target, part, r.randrange(limits[target] << block)))
        r.shuffle(beats)
        image: list[int] = []
        for at in range(0, len(beats), 16):
            group = beats[at:at + 16]
            heads = [block << 22 | r.randrange(4) << 20 | part << 18 | target << 16 | address
                     for block, target, part, address in group]
            image += heads + [0] * (16 - len(heads))
            for head in heads:
                data = [r.getrandbits(32) for _ in range(self.words)]
                data[0] = self._bounding(head, data[0], wanted)
                image += data
                self.loads.append({"address": head & 0xFFFF, "target": head >> 16 & 3, "part": head >> 18 & 3,
                                   "flip": head >> 20 & 3, "block": head >> 22,
                                   "data": sum(w << 32 * i for i, w in enumerate(data))})
        item = self.add({"opcode": LOAD, "count": len(beats), "indices": self.region(image),
                         "signature": signature(np.array(image, np.uint32).reshape(-1, self.words)),
                         "release": self.release() if release is None else release})
        self.loaded |= wanted
        return item

    def _bounding(self, head: int, word: int, wanted: dict[int, Bounds]) -> int:
        """The first word of a load beat, `word` but for what says the bounds of a table."""
        target, part, table = head >> 16 & 3, head >> 18 & 3, head & 0xFFFF
        if target != 2 or part not in (0, 3):
            return word
        bounds, bits = wanted[table], self.unit.tt.index_bits + 1
        if part == 0:
            return word >> bits << bits | bounds.rows
        return word >> 13 << 13 | bounds.chunk_rows - 1 << 10 | bounds.beats - 1

    def expected(self, fault: tuple[int, int] | None = None) -> dict[str, list[Any]]:
        """All streams. fault: bag and index of the last instruction's first, as golden.emb.core finds it."""
        found: dict[str, list[Any]] = {name: [] for name in ("o_dram", "o_ssd", "o_lookups", "o_steps", "o_copies")}
        for number, item in enumerate(self.items):
            if item["opcode"] == LOAD:
                continue
            dealt = emb_tokens.deal(item, self.inputs, words=self.words, stripe_beats=self.unit.stripe_beats,
                                    number=number, fault=fault if number == len(self.items) - 1 else None)
            for name, beats in found.items():
                beats += getattr(dealt, name.removeprefix("o_"))
        return found


def _as(kind: type, beat: dict[str, int]):
    return kind(**{item.name: beat[item.name] for item in fields(kind)})


def shown(name: str, beat: dict[str, int], beat_bytes: int, rows: int):
    """A beat as the golden model says it; a step's factor only where it counts. rows: where these begin."""
    if name in ("o_dram", "o_ssd"):
        assert beat["ring"] == beat["tier"] == (name == "o_ssd"), beat
        return _as(emb_tokens.Row, beat)
    if name == "o_lookups":
        return _as(emb_tokens.Lookup, beat)
    if name == "o_steps":
        return counted(_as(emb_tokens.Step, beat))
    if name == "o_copies":
        assert beat["address"] >= rows and (beat["address"] - rows) % beat_bytes == 0
        return emb_tokens.Copy((beat["address"] - rows) // beat_bytes, beat["beats"])
    return beat


def counted(step: emb_tokens.Step) -> emb_tokens.Step:
    counts = step.mode == MEAN and (step.tt or step.dram or step.ssd) or step.tt and step.weighted
    return step if counts else replace(step, factor=0)


class Bench:
    """The front with its ports: buffers behind the read ports, sinks, and whoever finishes bags and rows."""

    def __init__(self, dut, unit: EmbConfig, plan: Plan, *, random_: random.Random, gaps: str = "none",
                 latency: int = 20, bad=(), hold_bags: int = 0, begins_after: int = 0):
        self.dut, self.unit, self.plan, self.rng = dut, unit, plan, random_
        self.bad = set(bad)         # (client, beat of its buffer) that is answered with an error
        self.latency = latency
        self.bases = {name: base(name, unit.beat_bytes) for name in ("program", "inputs", "outputs", "rows", "ring")}
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
        self.copies: deque[int] = deque()
        self.rows_done = 0
        self.hold_bags, self.begins_after = hold_bags, begins_after
        self.released: list[int] = []
        self.flushes: list[str] = []
        self.dealt_at: list[int] = []       # a bag's end, an index or a pair
        self.dealt = 0                      # indices
        self.rows = dict.fromkeys(("dram", "tt", "ssd"), 0)     # as the counters are told
        self.stalls: dict[str, int] = {}
        self.tasks = [cocotb.start_soon(self._run())]

    def _asked(self, client: int, beat) -> None:
        name = CLIENTS[client]
        at, words, beats = (("program", self.program, len(self.program) // self.unit.words) if name == "program" else
                            ("inputs", self.plan.inputs, self.plan.inputs_beats))
        size = self.unit.beat_bytes
        first, rest = divmod(beat["address"] - self.bases[at], size)
        assert rest == 0 and beat["beats"] > 0, f"{name}: {beat}"
        assert 0 <= first and first + beat["beats"] <= beats, f"{name} reads outside: {beat}"
        answered = min(beat["beats"], SOME) if self.plan.only_begins else beat["beats"]
        for at in range(first, first + answered):
            data = sum(w << 32 * i for i, w in enumerate(words[at * self.unit.words:(at + 1) * self.unit.words]))
            error = (name, at) in self.bad
            self.waiting[client].append((self.cycle + self.latency, data | error << 8 * size))

    def _step(self, beat) -> None:
        if beat["last"]:
            self.bags.append(self.cycle + self.hold_bags + self.rng.randrange(20))

    def _copy(self, beat) -> None:
        self.copies.append(self.cycle + self.rng.randrange(20))

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
            self.rows_done += dut.row_done.value == 1
            for signal, queue in ((dut.bags_done, self.bags), (dut.copy_done, self.copies)):
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
            if row & 0b001000 or row & 0b110000:
                self.dealt_at.append(self.cycle)
                self.dealt += row >> 4 & 3
            for at, name in enumerate(self.rows):
                self.rows[name] += row >> at & 1
            stall = int(dut.stall.value)
            for at, name in enumerate(names):
                self.stalls[name] = self.stalls.get(name, 0) + (stall >> at & 1)

    async def begin(self) -> None:
        self.arguments()
        self.dut.start.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.start.value = 0
        self.tasks.append(cocotb.start_soon(self._ring_begins()))

    async def _ring_begins(self) -> None:
        for _ in range(self.begins_after):
            await RisingEdge(self.dut.clk)
            assert self.dut.finished.value == 0 and self.dut.o_ssd__valid.value == 0
        self.dut.ring_begin.value = self.plan.ring_first
        self.dut.ring_begins.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.ring_begins.value = 0

    def arguments(self) -> None:
        plan = self.plan
        self.dut.arguments.value = pack.layout_of("arguments").pack({
            **self.bases, "program_count": len(plan.items), "inputs_beats": plan.inputs_beats,
            "outputs_beats": plan.outputs_beats, "rows_beats": plan.rows_beats, "ring_beats": plan.ring_beats,
            "timeout": 1000})

    def error(self) -> dict[str, int] | None:
        found = pack.layout_of("error").unpack(int(self.dut.error.value))
        return found if found.pop("valid") else None

    async def ended(self):
        """None when the program is done, or the error; the queues are empty then."""
        edge = RisingEdge(self.dut.clk)
        cycles = 10_000 + 20 * len(self.plan.inputs)
        for _ in range(4):
            await edge
        while cycles:
            cycles -= 1
            await edge
            error = self.error()
            if error or self.dut.done.value == 1:
                # What was dealt out before is still in the queues.
                last, quiet = -1, 0
                while quiet < 150:
                    await edge
                    cycles -= 1
                    assert cycles, "it goes on behind its end"
                    taken = sum(len(sink.beats) for sink in self.sinks.values())
                    quiet, last = (quiet + 1 if taken == last else 0), taken
                return error
        raise AssertionError("neither done nor an error within 20 cycles a word; so far "
                             f"{ {name: len(sink.beats) for name, sink in self.sinks.items()} }")

    def got(self, name: str) -> list[Any]:
        return [shown(name, beat, self.unit.beat_bytes, self.bases["rows"]) for beat in self.sinks[name].beats]

    def judge(self, fault: tuple[int, int] | None = None) -> None:
        """All streams against the golden deal; fault: see Plan.expected."""
        for name, beats in self.plan.expected(fault).items():
            want = [counted(step) for step in beats] if name == "o_steps" else beats
            compare(name, self.got(name), want)
        compare("o_load", self.got("o_load"), self.plan.loads)

    def stop(self) -> None:
        parts: list[Any] = [*self.sources, *self.requests, *self.sinks.values()]
        for part in parts:
            part.stop()
        for task in self.tasks:
            task.cancel()
        # No pulse may be left standing over a reset: it would end a bag of the program after it.
        self.dut.bags_done.value = self.dut.copy_done.value = self.dut.ring_begins.value = 0


def compare(name: str, got, want) -> None:
    for at, (a, b) in enumerate(zip(got, want)):
        assert a == b, f"{name}: beat {at} of {len(want)} is {a}, expected {b}"
    assert len(got) == len(want), f"{name}: {len(got)} beats, expected {len(want)}"


def unit_of(dut) -> EmbConfig:
    return config((len(dut.i__0__payload) - 2) // 32, block16_only="BLOCK16_ONLY" in os.environ)


async def fresh(dut) -> EmbConfig:
    start(dut)
    for name in ("start", "bags_done", "copy_done", "ring_begins"):
        getattr(dut, name).value = 0
    await reset(dut)
    return unit_of(dut)


async def carry_out(dut, unit, plan, **how) -> Bench:
    bench = Bench(dut, unit, plan, random_=plan.rng, **how)
    await bench.begin()
    error = await bench.ended()
    assert error is None, f"the front refused: {error}"
    bench.judge()
    assert int(dut.finished.value) == len(plan.items)
    assert bench.rows_done == sum(item["count"] for item in plan.items if item["opcode"] == FILL)
    assert bench.rows["tt"] == len(bench.got("o_lookups"))
    copied = sum(item["count"] for item in plan.items if item["opcode"] == FILL)
    assert sum(bench.rows.values()) == bench.dealt + copied, (bench.rows, bench.dealt, copied)
    assert bench.released == plan.released[1:]
    assert bench.flushes == [{LOAD: "flush_tt", FILL: "flush_window"}[item["opcode"]]
                             for item in plan.items if item["opcode"] != BAGS]
    bench.stop()
    return bench


def further(released: int, release: int) -> int:
    """Up to where the ring is free once `release` is released as well."""
    return release if (release - released) % (1 << 30) < 1 << 29 else released


def any_lengths(r: random.Random, bags: int, most: int) -> list[int]:
    return [r.choice([0, 1, 1, 2, 3, r.randrange(most + 1)]) for _ in range(bags)]


def any_program(plan: Plan, instructions: int, *, bags: int = 12, most: int = 40) -> None:
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
            plan.bags(any_lengths(r, r.randint(1, bags), most), weighted=weighted,
                      mode=SUM if weighted else r.choice([SUM, MEAN, MAX]),
                      devices=r.choice([(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2), (0, 1, 2)]))
