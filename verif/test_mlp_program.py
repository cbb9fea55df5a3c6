"""The MLP core's program against golden.mlp_program, cycle by cycle: every instruction, every refusal."""

import os
import random
from dataclasses import replace
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from golden.mlp_program import Arguments, Fault
from golden.mlp_program import Program as Golden
from hw.isa import MLP
from hw.mlp.config import MlpConfig
from hw.mlp.program import QUEUE, Program
from verif.bench import report, reset, rng, start
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.mlp_front import BASE, CONFIGS, KINDS, Feed, Pins, encode

TOP = (1 << 32) - 1
STREAMS = ("o_rows", "o_parameters", "o_layers")
AFTER = ("after_rows", "after_weights", "after_layers")
ENGINE = {"LOAD_ROWS": 0, "LOAD_WEIGHTS": 1, "LOAD_ADDENDS": 1, "LAYER": 2, "INTERACT": 2}
USED = {instruction.name: {use.field for use in instruction.uses} for instruction in MLP.instructions}


class Bench:
    """The program beside its golden model, fed alike. bad: beats of the program answered with an error."""

    def __init__(self, dut, unit: MlpConfig, items: list[dict[str, int]], *, feed: Feed, arguments: dict[str, int],
                 bad=()):
        self.dut, self.unit, self.feed, self.bad = dut, unit, feed, set(bad)
        self.model = Golden(words=unit.words, rows=unit.rows, columns=unit.columns, width=unit.width)
        self.base = BASE // unit.beat_bytes
        self.pins = Pins(dut)
        self.layouts = {name: layout_of(f"{name}__payload") for name in (*STREAMS, "i", "o_requests")}
        self.error = layout_of("error")
        self.cycle = 0
        self.got: list[list[dict[str, int]]] = [[], [], []]
        self.at: list[int] = []     # when an instruction was handed on
        self.put(items, arguments)

    def put(self, items: list[dict[str, int]], arguments: dict[str, int]) -> None:
        """Another program, in the place of the one before."""
        self.words = [word for item in items for word in (item["_words"] if "_words" in item else encode(item))]
        self.arguments = Arguments(self.base, len(items), **arguments)
        self.pins.set(arguments=_arguments(self.arguments, self.unit))

    def _beat(self, at: int) -> list[int]:
        """The words of the program's beat; what lies behind it is noise."""
        words = self.unit.words
        return self.words[at * words:(at + 1) * words] or [0xA5A5A5A5] * words

    async def step(self, *, start: bool = False, room=(True, True, True)) -> None:
        pins, model, feed, where = self.pins, self.model, self.feed, f"cycle {self.cycle}"
        at, ready = feed.stands, feed.ready
        data = None if at is None else self._beat(at - self.base)
        bad = at is not None and at - self.base in self.bad
        pins.set(start=start, i__valid=data is not None, o_requests__ready=ready,
                 **{f"{name}__ready": room[k] for k, name in enumerate(STREAMS)})
        if data is not None:
            word = sum(word << 32 * k for k, word in enumerate(data))
            pins.set(i__payload=self.layouts["i"].pack({"data": word, "error": bad}))
        await RisingEdge(self.dut.clk)
        request, takes, streams = model.request, model.takes(data), (model.rows, model.parameters, model.layers)
        error = self.error.unpack(pins.get("error"))
        fault = Fault(error["code"], error["instruction"], error["detail"]) if error["valid"] else None
        shown = {
            "i.ready": (pins.get("i__ready"), takes), "request": (pins.get("o_requests__valid"), request is not None),
            "done": (pins.get("done"), model.done), "error": (fault, model.error),
            **({"number": (pins.get("number"), model.number)} if model.state != "IDLE" else {}),
            **{name: (pins.get(f"{name}__valid"), job is not None) for name, job in zip(STREAMS, streams, strict=True)},
        }
        wrong = {name: pair for name, pair in shown.items() if pair[0] != pair[1]}
        assert not wrong, f"{where}: unit and golden differ: {wrong}"
        if request is not None:
            found = self.layouts["o_requests"].unpack(pins.get("o_requests__payload"))
            assert (found["address"], found["beats"]) == (request[0] * self.unit.beat_bytes, request[1]), where
        for k, (name, job) in enumerate(zip(STREAMS, streams, strict=True)):
            if job is not None:
                found = self.layouts[name].unpack(pins.get(f"{name}__payload"))
                known = {field: value & _mask(self.layouts[name], field) for field, value in job.items()}
                if "run" in known:      # `end` is of 32 bits, and of a load that passed its check
                    assert job["end"] <= TOP
                assert found == known, f"{where}: {name} {found}, golden {known}"
                if room[k]:
                    self.got[k].append(found)
                    self.at.append(self.cycle)
        model.step(start=start, arguments=self.arguments, data=data,
                   request_taken=request is not None and ready, bad=bad,
                   taken=[job is not None and bool(room[k]) for k, job in enumerate(streams)])
        feed.step(request, takes)
        self.cycle += 1

    async def carry_out(self, *, room: float = 1.0, quiet: int = 60) -> None:
        """The whole program, and some cycles more."""
        r = self.feed.rng
        await self.step(start=True)
        limit = self.cycle + 100_000
        while quiet:
            await self.step(room=[r.random() < room for _ in STREAMS])
            quiet -= self.model.done
            assert self.cycle < limit, f"not done after {limit} cycles"


def _mask(layout, field: str) -> int:
    return next(inner._mask for name, _, inner in layout._fields if name == field)


def _arguments(arguments: Arguments, unit: MlpConfig) -> int:
    values = {"program": arguments.program * unit.beat_bytes, "program_count": arguments.program_count,
              "inputs_beats": arguments.inputs_beats, "outputs_beats": arguments.outputs_beats,
              "weights_beats": arguments.weights_beats}
    word, at = 0, 0
    for argument in MLP.arguments:
        word |= values.get(argument.name, 0x5A5A5A5A) << at
        at += argument.bits
    return word


def any_item(r: random.Random, unit: MlpConfig, kind: str, before: list[int]) -> dict[str, int]:
    """An instruction that is allowed; fields that it does not use are noise."""
    item = {}
    for field in MLP.fields:
        if field.name == "opcode":
            item[field.name] = KINDS[kind]
        elif field.name not in USED[kind]:
            item[field.name] = r.getrandbits(field.bits)
        else:
            item[field.name] = r.choice([
                field.minimum, field.highest, r.randint(field.minimum, field.highest),
                min(field.highest, field.minimum + r.getrandbits(r.randint(1, field.bits)))])
    for name, most in zip(AFTER, before, strict=True):
        item[name] = r.choice([0, most, r.randint(0, most)])
    if kind == "LAYER":
        item["tail"] = r.choice([1, unit.columns, r.randint(1, unit.columns)])
        item["target"] = 3 if item["activation"] == 2 else r.randrange(4)
        if item["target"] == 2:
            item["activation"] = 0
    elif kind == "LOAD_ROWS" and not item["features_in"]:
        item["features"] = 1
    elif kind == "INTERACT":
        item["features"] = max(item["features"], 2)
    return item


def end_of(unit: MlpConfig, item: dict[str, int]) -> tuple[str, int] | None:
    """The buffer's size and the beat behind the last that an instruction touches there."""
    kind = next(name for name, opcode in KINDS.items() if opcode == item["opcode"])
    if kind == "LOAD_ROWS":
        rows = item["count"] * item["features"]
        return "inputs_beats", item["source"] + (rows - 1) * item["stride"] + item["row_beats"]
    if kind == "LOAD_WEIGHTS":
        return "weights_beats", item["source"] + item["count"] * item["steps"] * unit.line_beats
    if kind == "LOAD_ADDENDS":
        return "weights_beats", item["source"] + -(-item["count"] // unit.halves)
    if kind == "LAYER" and item["target"] == 3:
        beats = -(-item["groups"] // unit.halves)
        return "outputs_beats", item["out"] + (item["count"] - 1) * item["out_stride"] + beats
    return None


def fitting(r: random.Random, unit: MlpConfig, kind: str, before: list[int], sizes: dict[str, int]) -> dict[str, int]:
    """An allowed instruction inside its buffer."""
    while True:
        item = any_item(r, unit, kind, before)
        reach = end_of(unit, item)
        if reach is None or reach[1] <= sizes[reach[0]]:
            return item
        offset = "out" if kind == "LAYER" else "source"
        if item[offset] and reach[1] - item[offset] <= sizes[reach[0]]:
            return item | {offset: sizes[reach[0]] - (reach[1] - item[offset])}


def any_program(r: random.Random, unit: MlpConfig, count: int, sizes: dict[str, int]) -> list[dict[str, int]]:
    before, items = [0, 0, 0], []
    for _ in range(count):
        kind = r.choice(list(KINDS))
        items.append(fitting(r, unit, kind, before, sizes))
        before[ENGINE[kind]] += 1
    return items


def any_sizes(r: random.Random) -> dict[str, int]:
    return {name: r.choice([TOP, TOP - 1, r.randint(1 << 20, TOP), r.randint(1 << 28, TOP)])
            for name in ("inputs_beats", "outputs_beats", "weights_beats")}


async def _start(dut) -> MlpConfig:
    start(dut)
    await _clean(dut)
    return CONFIGS[os.environ["UNIT"]]


async def _clean(dut) -> None:
    for name in ("start", "i__valid", "o_requests__ready", *(f"{name}__ready" for name in STREAMS)):
        getattr(dut, name).value = 0
    await reset(dut)


@cocotb.test()
async def smoke(dut):
    """One instruction of each kind: what the engines are told, written down by hand."""
    unit = await _start(dut)
    items = [
        {"opcode": KINDS["LOAD_ROWS"], "features_in": 1, "count": 3, "source": 100, "stride": 2, "row_beats": 2,
         "features": 4, "feature": 9, "line": 7, "apart": 30},
        {"opcode": KINDS["LOAD_WEIGHTS"], "count": 5, "source": 10, "steps": 6, "weight_line": 77},
        {"opcode": KINDS["LOAD_ADDENDS"], "count": 5, "source": 40, "addend_line": 88},
        {"opcode": KINDS["LAYER"], "count": 3, "steps": 6, "groups": 5, "tail": 1, "target": 3, "out": 4,
         "out_stride": 9, "after_rows": 1, "after_weights": 2},
        {"opcode": KINDS["INTERACT"], "count": 3, "row_beats": 2, "features": 4, "after_layers": 1},
    ]
    bench = Bench(dut, unit, items, feed=Feed(rng("smoke")), arguments={
        "inputs_beats": 124, "weights_beats": 43, "outputs_beats": 25})
    await bench.carry_out()
    assert bench.model.error is None and [len(jobs) for jobs in bench.got] == [1, 2, 2]
    rows, (weights, addends), (layer, interact) = bench.got[0][0], *bench.got[1:]
    assert (rows["run"], rows["less_one"], rows["end"], rows["line"]) == (1, 11, 124, 7 + 4 * 2)
    assert (weights["addends"], weights["end"], weights["line"]) == (0, 40, 77)
    assert (addends["addends"], addends["end"], addends["line"]) == (1, 43, 88)
    assert (layer["interact"], layer["after_rows"], layer["out_stride"], layer["number"]) == (0, 1, 9, 3)
    assert (interact["interact"], interact["features"], interact["number"]) == (1, 4, 4)
    beats = 5 * 16 // unit.words
    assert bench.feed.asked == [(bench.base, beats)]


@cocotb.test()
async def random_match_golden(dut):
    """Random programs of allowed instructions up to the ends of their buffers; every output in every cycle."""
    unit = await _start(dut)
    count = 0
    for number in range(4):
        r = rng(f"random {number}")
        sizes = any_sizes(r)
        items = any_program(r, unit, 50, sizes)
        bench = Bench(dut, unit, items, feed=Feed(r, latency=r.choice([1, 30])), arguments=sizes)
        await bench.carry_out()
        assert bench.model.error is None
        await _clean(dut)
        count += sum(len(jobs) for jobs in bench.got)
    assert count == 200


@cocotb.test()
async def backpressure_both_sides(dut):
    """The same with pauses of requests, data and the engines; queues fill and hold up all."""
    unit = await _start(dut)
    for number in range(4):
        r = rng(f"pressure {number}")
        sizes = any_sizes(r)
        bench = Bench(dut, unit, any_program(r, unit, 40, sizes), arguments=sizes, feed=Feed(
            r, latency=r.choice([1, 20]), flow=r.choice([0.2, 0.9]), room=r.choice([0.1, 0.7])))
        await bench.carry_out(room=r.choice([0.02, 0.5]))
        await _clean(dut)
    # A full queue.
    r = rng("full")
    bench = Bench(dut, unit, [any_item(r, unit, "INTERACT", [0, 0, 0]) for _ in range(QUEUE + 8)], feed=Feed(r),
                  arguments=any_sizes(r))
    await bench.step(start=True)
    for _ in range(6 * (QUEUE + 8) + 40):
        await bench.step(room=(True, True, False))
    assert not bench.model.done and bench.model.number == QUEUE + 1
    for _ in range(400):
        await bench.step()
    assert bench.model.done and len(bench.got[2]) == QUEUE + 8


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """Cycles from an instruction to the next, for every kind."""
    unit = await _start(dut)
    r = rng("rate")
    beats = 16 // unit.words
    rows = {"opcode": KINDS["LOAD_ROWS"], "count": 1000, "features": 1, "row_beats": 3, "stride": 3}
    cases = [
        ({"opcode": KINDS["INTERACT"], "count": 1, "row_beats": 1, "features": 2}, 4),
        ({"opcode": KINDS["LAYER"], "count": 1, "steps": 1, "groups": 1, "tail": 1}, 4),
        ({"opcode": KINDS["LAYER"], "count": 9, "steps": 1, "groups": 1, "tail": 1, "target": 3, "out_stride": 5},
         7 + 3),
        ({"opcode": KINDS["LOAD_ADDENDS"], "count": 9}, 8),
        ({"opcode": KINDS["LOAD_WEIGHTS"], "count": 9, "steps": 100}, 7 + 7),
        (rows, 9 + 1 + 2),
        (rows | {"features_in": 1, "features": 26, "row_beats": 1, "stride": 1}, 9 + 5 + 1),
        (rows | {"features_in": 1, "features": 26, "feature": unit.rows * 5}, 9 + 5 + 2 + 2 + 3),
        (rows | {"features_in": 1, "features": 255, "feature": 255, "stride": 1 << 31, "count": 1},
         9 + 8 + 32 + 2 + (255 // unit.rows).bit_length()),
    ]
    shown = {}
    for number, (item, cycles) in enumerate(cases):
        bench = Bench(dut, unit, [item] * 6, feed=Feed(r), arguments={})
        if number == len(cases) - 1:
            # Past the buffer: how long the check takes is seen all the same, the next program is refused at once.
            assert cycles <= 58
            bench = Bench(dut, unit, [item | {"stride": 1 << 31, "features": 1, "count": 2}] * 3, feed=Feed(r),
                          arguments={})
            cycles -= 7
        await bench.carry_out()
        assert bench.model.error is None, (item, bench.model.error)
        await _clean(dut)
        gaps = {b - a for a, b in zip(bench.at, bench.at[1:], strict=False)}
        assert gaps == {cycles + beats}, (item, gaps, cycles)
        shown[f"case {number}"] = cycles + beats
    report(**shown)


@cocotb.test()
async def reset_midstream(dut):
    unit = await _start(dut)
    for number in range(10):
        r = rng(f"reset {number}")
        sizes = any_sizes(r)
        bench = Bench(dut, unit, any_program(r, unit, 20, sizes), feed=Feed(r), arguments=sizes)
        await bench.step(start=True)
        for _ in range(r.randrange(200)):
            await bench.step(room=[r.random() < 0.3 for _ in STREAMS])
        await _clean(dut)
    await Bench(dut, unit, any_program(r, unit, 20, sizes), feed=Feed(r), arguments=sizes).carry_out()


@cocotb.test()
async def corner_values(dut):
    """Programs of none and of very many instructions; programs one behind the other without a reset."""
    unit = await _start(dut)
    r = rng("corners")
    bench = Bench(dut, unit, [], feed=Feed(r), arguments={})
    for count in (0, 0, 3, 1, 0, 2):
        # Their order is counted from each start.
        sizes = any_sizes(r)
        bench.put(any_program(r, unit, count, sizes), sizes)
        await bench.carry_out()
    bench.put([any_item(r, unit, "LAYER", [1, 0, 0]) | {"after_rows": 1}], sizes)
    await bench.carry_out()
    assert bench.model.error == Fault(MLP.code("BAD_ORDER"), 0, 0)
    beats = 16 // unit.words
    for count in ((1 << 15) // beats, (1 << 15) // beats + 1, TOP):
        await _clean(dut)
        feed = Feed(r, latency=1 << 40)
        bench = Bench(dut, unit, [], feed=feed, arguments={})
        bench.arguments = bench.arguments._replace(program_count=count)
        bench.pins.set(arguments=_arguments(bench.arguments, unit))
        await bench.step(start=True)
        for _ in range(40):
            await bench.step()
        asked = sum(n for _, n in feed.asked)
        pieces = -(-count * beats // (1 << 15))
        assert asked == (count * beats if pieces < 3 else len(feed.asked) << 15) and len(feed.asked) == min(39, pieces)


def _refusals(r: random.Random, unit: MlpConfig) -> list[tuple[str, dict[str, Any], int]]:
    """(kind, what is changed of an allowed instruction, code) of everything that is refused by itself."""
    bad, order = MLP.code("BAD_INSTRUCTION"), MLP.code("BAD_ORDER")
    cases: list[tuple[str, dict[str, Any], int]] = [
        ("LAYER", {"opcode": opcode}, bad) for opcode in (0, 6, 7, 13, 0x81, 0xFF)]
    cases += [(r.choice(list(KINDS)), {"_bit": bit}, bad) for bit in range(16, 32)]
    for field in MLP.fields:
        for kind, used in USED.items():
            if field.name in used:
                if field.minimum:
                    cases.append((kind, {field.name: 0}, bad))
                whole = (1 << field.bits) - 1
                if field.highest < whole:
                    cases += [(kind, {field.name: value}, bad)
                              for value in {field.highest + 1, whole, r.randint(field.highest + 1, whole)}]
                    cases += [(kind, {field.name: 1 << bit}, bad) for bit in range(field.bits)
                              if 1 << bit > field.highest]
    cases += [
        ("LOAD_ROWS", {"features_in": 0, "features": 2}, bad), ("LOAD_ROWS", {"features_in": 0, "features": 0}, bad),
        ("LOAD_ROWS", {"features_in": 0, "features": 255}, bad), ("INTERACT", {"features": 1}, bad),
        *(("LAYER", {"tail": tail}, bad) for tail in (unit.columns + 1, 2 * unit.columns, 255)),
        *(("LAYER", {"activation": 2, "target": target}, bad) for target in range(3)),
        *(("LAYER", {"activation": activation, "target": 2}, bad) for activation in (1, 2)),
    ]
    for kind in KINDS:
        for name in AFTER:
            cases += [(kind, {name: value}, order) for value in (None, TOP, 1 << 31)]     # None: one too many
    cases.append(("LAYER", {"after_rows": TOP, "tail": 0}, bad))
    cases.append(("LOAD_ROWS", {"after_weights": TOP, "after_layers": TOP, "source": TOP}, order))
    return cases


@cocotb.test()
async def malformed_programs(dut):
    """Every value that is not allowed is refused at its place, with everything before it handed on."""
    unit = await _start(dut)
    r = rng("malformed")
    cases = _refusals(r, unit)
    codes: dict[int, int] = {}
    for kind, change, code in cases:
        sizes = any_sizes(r)
        items = any_program(r, unit, r.randrange(4), sizes)
        before = [sum(ENGINE[name] == k for item in items for name, opcode in KINDS.items()
                      if opcode == item["opcode"]) for k in range(3)]
        item = fitting(r, unit, kind, before, sizes)
        for name, value in change.items():
            if name != "_bit":
                item[name] = before[AFTER.index(name)] + 1 if value is None else value
        words = encode(item)
        if "_bit" in change:
            words[0] |= 1 << change["_bit"]
        items += [item | {"_words": words}, *any_program(r, unit, 2, sizes)]
        bench = Bench(dut, unit, items, feed=Feed(r), arguments=sizes)
        await bench.carry_out(quiet=12)
        place = len(items) - 3
        detail = words[0]
        if code == MLP.code("BAD_ORDER"):
            detail = next(k for k, name in enumerate(AFTER) if item[name] > before[k])
        assert bench.model.error == Fault(code, place, detail), (kind, change, bench.model.error)
        assert [len(jobs) for jobs in bench.got] == before
        codes[code] = codes.get(code, 0) + 1
        await _clean(dut)
    report(malformed=codes)


@cocotb.test()
async def bounds(dut):
    """Each buffer passed by one beat and just not, and sums that 32 bits would wrap into it."""
    unit = await _start(dut)
    tried = {False: 0, True: 0}
    for number in range(220):
        r = rng(f"bounds {number}")
        kind = ("LOAD_ROWS", "LOAD_WEIGHTS", "LOAD_ADDENDS", "LAYER")[number % 4]
        sizes = any_sizes(r)
        before = [0, 0, 0]
        items = any_program(r, unit, r.randrange(3), sizes)
        item = any_item(r, unit, kind, before)
        if kind == "LAYER":
            item["target"], item["activation"] = 3, r.randrange(3)
        offset, stride = ("out", "out_stride") if kind == "LAYER" else ("source", "stride")
        how = number // 4 % 5
        if how < 2 and kind != "LOAD_ADDENDS":
            # Products of all sizes, near and beyond 2**32 among them.
            item["count"] = r.choice([item["count"], 1 + r.getrandbits(r.randint(1, 12)), (1 << 20) - 1])
            item[stride] = r.choice([r.getrandbits(r.randint(1, 32)), 1 << r.randrange(32), TOP])
        else:
            item[stride] = r.getrandbits(4)
            item["count"] = 1 + r.getrandbits(10)
        reach = end_of(unit, item)
        assert reach is not None
        size, end = reach
        length = end - item[offset]
        if how in (2, 3):
            # The end at the buffer's, or a beat behind it.
            item[offset] = max(0, sizes[size] - length + (how == 3))
        elif how == 4:
            # 32 bits would hold a sum that is inside.
            item[offset] = min(TOP, max(0, (1 << 32) + r.randrange(1000) - length))
        name, end = end_of(unit, item)      # type: ignore[misc]
        outside = end > sizes[name]
        items.append(item)
        bench = Bench(dut, unit, items, feed=Feed(r), arguments=sizes)
        await bench.carry_out(quiet=8)
        want = Fault(MLP.code("BOUNDS"), len(items) - 1,
                     ("inputs_beats", "outputs_beats", "weights_beats").index(name)) if outside else None
        assert bench.model.error == want, (number, item, sizes)
        tried[outside] += 1
        await _clean(dut)
    assert min(tried.values()) > 40, tried
    report(bounds_kept=tried[False], bounds_passed=tried[True])


@cocotb.test()
async def read_errors(dut):
    """An error on any beat of the program: told with its instruction; what came before is handed on."""
    unit = await _start(dut)
    beats = 16 // unit.words
    for number in range(20):
        r = rng(f"errors {number}")
        sizes = any_sizes(r)
        items = any_program(r, unit, 8, sizes)
        place = r.randrange(len(items) * beats)
        bench = Bench(dut, unit, items, feed=Feed(r, latency=r.choice([1, 20])), arguments=sizes, bad=[place])
        await bench.carry_out(room=r.choice([1.0, 0.3]))
        assert bench.model.error == Fault(MLP.code("READ_ERROR"), place // beats, 0)
        assert sum(len(jobs) for jobs in bench.got) == place // beats
        # A start without a reset does nothing.
        await bench.step(start=True)
        for _ in range(10):
            await bench.step()
        await _clean(dut)


NAMES = ("smoke", "random_match_golden", "backpressure_both_sides", "latency_and_rate_as_documented",
         "reset_midstream", "corner_values", "malformed_programs", "bounds", "read_errors")


@pytest.mark.parametrize(("name", "tests"), [
    ("tiny", NAMES), ("wide", ("random_match_golden", "bounds", "corner_values")), ("flat", ("bounds",)),
    ("low", ("bounds", "malformed_programs"))])
@pytest.mark.parametrize("number", seeds())
def test_mlp_program(number, name, tests):
    simulate(Program(CONFIGS[name]), "verif.test_mlp_program", name=f"mlp_program_{name}", tests=len(tests),
             seed=number, only="|".join(tests), env={"UNIT": name})


def test_illegal_config_wrong():
    """What a program counts on: instructions are whole beats, a beat whole lines of addends."""
    with pytest.raises(ValueError, match="words must be one of 8, 16, not 4"):
        Program(replace(CONFIGS["tiny"], words=4))
    with pytest.raises(ValueError, match="rows must be at most 4, half the words of a beat, not 8"):
        Program(replace(CONFIGS["tiny"], rows=8))
