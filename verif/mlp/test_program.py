"""The MLP core's program against its cycle model and golden.mlp.program: every instruction, every refusal."""

import random
from typing import Any

import cocotb
import pytest

from golden.mlp.program import ENGINES, OTHERS, Rules, Waits
from hw.isa import MLP
from hw.isa.kernel import Decoded
from hw.isa.mlp import WINDOW
from hw.mlp.config import MlpConfig
from hw.mlp.program import QUEUE, Program
from verif.bench import report, rng
from verif.bench.runner import seeds, shapes, simulate
from verif.mlp.cycles import Fault
from verif.mlp.front import CONFIGS, KINDS, Feed, encode
from verif.mlp.program import (
    AFTER,
    STREAMS,
    TOP,
    USED,
    Bench,
    any_item,
    any_program,
    any_sizes,
    clean,
    end_of,
    fitting,
    fresh,
    near,
    packed_arguments,
    waiting,
)


@cocotb.test()
async def smoke(dut):
    """One instruction of each kind: what the three engines are told, written down by hand."""
    unit = await fresh(dut)
    items = [
        {"opcode": KINDS["LOAD_ROWS"], "features_in": 1, "count": 3, "source": 100, "stride": 2, "row_beats": 2,
         "features": 4, "feature": 9, "line": 7, "line_stride": 30},
        {"opcode": KINDS["LOAD_WEIGHTS"], "count": 5, "source": 10, "steps": 6, "weight_line": 77},
        {"opcode": KINDS["LOAD_ADDENDS"], "count": 5, "source": 40, "addend_line": 88},
        {"opcode": KINDS["LAYER"], "count": 3, "steps": 6, "groups": 5, "last_columns": 1, "target": 3, "out": 4,
         "out_stride": 9, "wait_rows": 1, "wait_weights": 2},
        # Rows of five beats in three, one behind the other.
        {"opcode": KINDS["LOAD_ROWS"], "half": 1, "count": 8, "source": 100, "stride": 3, "row_beats": 5,
         "features": 1, "wait_layers": 1},
        {"opcode": KINDS["INTERACT"], "count": 3, "row_beats": 2, "features": 4, "wait_rows": 2, "wait_layers": 1,
         "to_line": 20, "to_line_stride": 2},
    ]
    bench = Bench(dut, unit, items, feed=Feed(rng("smoke")), arguments={
        "inputs_beats": 124, "weights_beats": 43, "outputs_beats": 25})
    await bench.carry_out()
    assert bench.model.error is None and [len(jobs) for jobs in bench.got] == [2, 2, 2]
    (rows, half), (weights, addends), (layer, interact) = bench.got
    assert (rows["run"], rows["less_one"], rows["end"], rows["line"]) == (1, 11, 124, 7 + 4 * 2)
    assert [half[name] for name in ("half", "run", "less_one", "row_beats", "stored_beats", "end")] == [
        1, 1, 7, 5, 3, 124]
    assert (weights["addends"], weights["end"], weights["line"]) == (0, 40, 77)
    assert (addends["addends"], addends["end"], addends["line"]) == (1, 43, 88)
    assert (layer["interact"], layer["wait_rows"], layer["out_stride"], layer["number"]) == (0, 1, 9, 3)
    assert (interact["interact"], interact["features"], interact["number"]) == (1, 4, 5)
    beats = 6 * 16 // unit.words
    assert bench.feed.asked == [(bench.base, beats)]


@cocotb.test()
async def random_match_golden(dut):
    """Random programs of allowed instructions up to the ends of their buffers, unused fields noise: every output in
    every cycle as golden."""
    unit = await fresh(dut)
    count = 0
    for number in range(4):
        r = rng(f"random {number}")
        sizes = any_sizes(r)
        items = any_program(r, unit, 50, sizes)
        bench = Bench(dut, unit, items, feed=Feed(r, latency=r.choice([1, 30])), arguments=sizes)
        await bench.carry_out()
        assert bench.model.error is None
        await clean(dut)
        count += sum(len(jobs) for jobs in bench.got)
    assert count == 200


@cocotb.test()
async def backpressure_both_sides(dut):
    """The same with pauses of requests, data and engines; a full queue holds up all, and nothing is lost."""
    unit = await fresh(dut)
    for number in range(4):
        r = rng(f"pressure {number}")
        sizes = any_sizes(r)
        bench = Bench(dut, unit, any_program(r, unit, 40, sizes), arguments=sizes, feed=Feed(
            r, latency=r.choice([1, 20]), flow=r.choice([0.2, 0.9]), room=r.choice([0.1, 0.7])))
        await bench.carry_out(room=r.choice([0.02, 0.5]))
        await clean(dut)
    # A full queue of each engine.
    r = rng("full")
    for engine, item in enumerate((
            {"opcode": KINDS["LOAD_ROWS"], "count": 1, "features": 1, "row_beats": 1},
            {"opcode": KINDS["LOAD_ADDENDS"], "count": 1},
            {"opcode": KINDS["INTERACT"], "count": 1, "row_beats": 1, "features": 2, "to_line": 1})):
        await clean(dut)
        items = [item | {"wait_layers": number * (engine == 2)} for number in range(QUEUE + 3)]
        bench = Bench(dut, unit, items, feed=Feed(r), arguments=any_sizes(r))
        await bench.step(start=True)
        for _ in range((12, 10, 6)[engine] * (QUEUE + 3) + 20):
            await bench.step(room=[other != engine for other in range(3)])
        assert not bench.model.done and bench.model.number == QUEUE + 1
        await bench.carry_on()
        assert len(bench.got[engine]) == QUEUE + 3


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """The cycles of each kind of instruction, by the bits of its multipliers."""
    unit = await fresh(dut)
    r = rng("rate")
    beats = 16 // unit.words
    rows = {"opcode": KINDS["LOAD_ROWS"], "count": 1000, "features": 1, "row_beats": 3, "stride": 3}
    cases = [
        ({"opcode": KINDS["INTERACT"], "count": 1, "row_beats": 1, "features": 2, "to_line": 1}, 4),
        ({"opcode": KINDS["LAYER"], "count": 1, "steps": 1, "groups": 1, "last_columns": 1, "to_line": 1}, 4),
        ({"opcode": KINDS["LAYER"], "count": 9, "steps": 1, "groups": 1, "last_columns": 1, "target": 3,
          "out_stride": 5},
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
        layers = ENGINES[item["opcode"]] == 2       # they wait for each other: nothing is left to compare them with
        items = [item | {"wait_layers": place * layers} for place in range(6)]
        bench = Bench(dut, unit, items, feed=Feed(r), arguments={})
        if number == len(cases) - 1:
            # Past the buffer: how long the check takes is seen all the same, the next program is refused at once.
            assert cycles <= 58
            bench = Bench(dut, unit, [item | {"stride": 1 << 31, "features": 1, "count": 2}] * 3, feed=Feed(r),
                          arguments={})
            cycles -= 7
        await bench.carry_out()
        assert bench.model.error is None, (item, bench.model.error)
        await clean(dut)
        gaps = {b - a for a, b in zip(bench.at, bench.at[1:], strict=False)}
        assert gaps == {cycles + beats}, (item, gaps, cycles)
        shown[f"case {number}"] = cycles + beats
    report(**shown)


@cocotb.test()
async def reset_midstream(dut):
    """After a reset at any cycle the next program comes out right."""
    unit = await fresh(dut)
    for number in range(10):
        r = rng(f"reset {number}")
        sizes = any_sizes(r)
        bench = Bench(dut, unit, any_program(r, unit, 20, sizes), feed=Feed(r), arguments=sizes)
        await bench.step(start=True)
        for _ in range(r.randrange(200)):
            await bench.step(room=[r.random() < 0.3 for _ in STREAMS])
        await clean(dut)
    await Bench(dut, unit, any_program(r, unit, 20, sizes), feed=Feed(r), arguments=sizes).carry_out()


@cocotb.test()
async def corner_values(dut):
    """Programs of none, of 2**32 - 1 and around a request's most instructions; programs one behind the other
    without a reset."""
    unit = await fresh(dut)
    r = rng("corners")
    bench = Bench(dut, unit, [], feed=Feed(r), arguments={})
    for count in (0, 0, 3, 1, 0, 2):
        # Their order is counted from each start.
        sizes = any_sizes(r)
        bench.put(any_program(r, unit, count, sizes), sizes)
        await bench.carry_out()
    bench.put([any_item(r, unit, "LAYER", [1, 0, 0]) | {"wait_rows": 1}], sizes)
    await bench.carry_out()
    assert bench.model.error == Fault(MLP.code("BAD_ORDER"), 0, 0)
    beats = 16 // unit.words
    for count in ((1 << 15) // beats - 1, (1 << 15) // beats, (1 << 15) // beats + 1, TOP):
        await clean(dut)
        feed = Feed(r, latency=1 << 40)
        bench = Bench(dut, unit, [], feed=feed, arguments={})
        bench.arguments = bench.arguments._replace(program_count=count)
        bench.pins.drive(arguments=packed_arguments(bench.arguments, unit))
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
    cases += [(r.choice(list(KINDS)), {"_bit": bit}, bad) for bit in range(17, 32)]
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
        *(("LAYER", {"last_columns": last_columns}, bad) for last_columns in (unit.columns + 1, 2 * unit.columns, 255)),
        *(("LAYER", {"activation": 2, "target": target}, bad) for target in range(3)),
        *(("LAYER", {"activation": activation, "target": 2}, bad) for activation in (1, 2)),
        *(("LAYER", {"target": 3, "count": 2, "groups": groups, "out_stride": (groups - 1) // unit.groups_per_beat},
           bad) for groups in (1, unit.groups_per_beat, unit.groups_per_beat + 1, 4095)),
    ]
    for kind in KINDS:
        for name in AFTER:
            cases += [(kind, {name: value}, order) for value in (None, TOP, 1 << 31)]     # None: one too many
    cases.append(("LAYER", {"wait_rows": TOP, "last_columns": 0}, bad))
    cases.append(("LOAD_ROWS", {"wait_weights": TOP, "wait_layers": TOP, "source": TOP}, order))
    return cases


@cocotb.test()
@pytest.mark.testpoint("malformed_programs")
async def malformed_programs(dut):
    """Every value that is not allowed, each reserved bit and every wait for too much is refused at its place, with all
    before it handed on."""
    unit = await fresh(dut)
    r = rng("malformed")
    cases = _refusals(r, unit)
    codes: dict[int, int] = {}
    for kind, change, code in cases:
        sizes = any_sizes(r)
        waits = Waits(Rules(unit))
        items = any_program(r, unit, r.randrange(4), sizes, waits)
        before = list(waits.before)
        item = fitting(r, unit, kind, waits, sizes)
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
        await clean(dut)
    report(malformed=codes)


@cocotb.test()
@pytest.mark.testpoint("overlaps")
async def overlaps(dut):
    """A LAYER or an INTERACT that writes lines twice or lines that it reads is refused, with all before it handed on;
    stretches one behind the other are not."""
    unit = await fresh(dut)
    rules, tried = Rules(unit), {False: 0, True: 0}
    for number in range(160):
        r = rng(f"overlaps {number}")
        sizes = any_sizes(r)
        waits = Waits(rules)
        # With many before it, it is found out while it waits for what is compared.
        items = any_program(r, unit, r.choice([0, 1, 12, 20]), sizes, waits)
        kind = ("LAYER", "LAYER", "INTERACT")[number % 3]
        want = bool(number // 3 % 2)
        while True:
            item = near(r, any_item(r, unit, kind, [0, 0, 0]) | {"line": r.getrandbits(8), "mode": r.randrange(2)})
            if kind == "LAYER":
                item["activation"], item["target"] = 0, r.randrange(3)
                item["addend_line"] = r.choice([item["addend_line"], item["to_line"]])
            whole = Decoded(**item)
            if rules.apart(whole) != want:
                break
        # The least that is refused, or the most that is not, of a field that leads there.
        name = r.choice(["to_line", "to_line_stride", "line_stride", "count", "line"])
        for step in (64, 8, 1):
            while 1 <= item[name] - step and rules.apart(Decoded(**item | {name: item[name] - step})) != want:
                item[name] -= step
        item = waiting(r, item, waits)
        waits.add(Decoded(**item))
        items += [item, *any_program(r, unit, r.randrange(4), sizes, waits)]
        place = len(items) - 1 if item is items[-1] else items.index(item)
        bench = Bench(dut, unit, items, feed=Feed(r, latency=r.choice([1, 5])), arguments=sizes)
        await bench.carry_out(room=r.choice([0.1, 1.0]), quiet=8)
        assert bench.model.error == (Fault(MLP.code("BAD_INSTRUCTION"), place, encode(item)[0]) if want else None), item
        tried[want] += 1
        await clean(dut)
    report(overlaps_refused=tried[True], stretches_apart=tried[False])


def _close(r: random.Random, unit: MlpConfig, waits: Waits) -> dict[str, int]:
    """An allowed instruction of few lines, near those of others, that waits for little."""
    while True:
        item = near(r, any_item(r, unit, r.choice(list(KINDS)), waits.before))
        item |= {"count": 1 + r.getrandbits(4), "feature": r.getrandbits(3), "out_stride": 15,
                 **{name: r.getrandbits(r.choice([5, 8])) for name in (
                     "line", "weight_line", "addend_line", "to_line", "source", "stride", "out")},
                 **dict.fromkeys(AFTER, 0)}
        if r.random() < 0.3:    # features of the same samples
            item |= {"feature": r.getrandbits(2), "features": 1 + r.getrandbits(3), "features_in": 1, "target": 1,
                     "row_beats": 1 + r.getrandbits(1), "groups": 1 + r.getrandbits(1), "activation": 0,
                     **dict.fromkeys(("line", "to_line"), 40 * r.getrandbits(1)),
                     **dict.fromkeys(("line_stride", "to_line_stride"), r.choice([8, 9]))}
        whole = MLP.decode(encode(item))
        if Rules(unit).allowed(whole) and Rules(unit).apart(whole):
            return item


def _apart(r: random.Random, unit: MlpConfig, waits: Waits) -> tuple[dict[str, int], dict[str, int]]:
    """Two instructions of which the last may have to wait for ones of the first's engine, and does not for that one."""
    while True:
        first, last = _close(r, unit, waits), _close(r, unit, waits)
        known, engine = Waits(Rules(unit)), ENGINES[first["opcode"]]
        known.add(Decoded(**first))
        if engine in OTHERS[ENGINES[last["opcode"]]] and not known.needed(Decoded(**last), engine):
            return first, last


@cocotb.test()
@pytest.mark.testpoint("waits")
async def waits(dut):
    """An instruction that does not wait for one that shares lines with it, of its own engine for one that writes lines
    which it reads, or for one that stands more than WINDOW before it, is refused, with all before it handed on; one
    that waits for the last of them is not."""
    unit = await fresh(dut)
    tried: dict[bool | str, int] = {False: 0, True: 0, "far": 0}
    for number in range(60):
        r = rng(f"waits {number}")
        known = Waits(Rules(unit))
        items: list[dict[str, int]] = []
        sizes = {name: TOP for name in ("inputs_beats", "outputs_beats", "weights_beats")}
        early = None
        least = [0, 0, 0]
        far = number % 4 == 3       # one instruction as often as may be, or once more, before one that shares no lines
        most = WINDOW + number // 4 % 2 if far else 39
        first, last = _apart(r, unit, known) if far else ({}, {})
        for place in range(most + 1):
            item = _close(r, unit, known) if not far else dict(first if place < most else last)
            others = OTHERS[ENGINES[item["opcode"]]]
            for other in others:
                least[other] = known.needed(Decoded(**item), other)
                # What is needed, or one less: the last one that shares lines is not waited for.
                fewer = place == most if far else place > WINDOW or place > 4 and r.random() < 0.15
                item[AFTER[other]] = max(0, least[other] - fewer)
            items.append(item)
            refusal = known.refusal(MLP.decode(encode(item)), list(sizes.values()))
            if refusal is not None:
                early = Fault(MLP.code("EARLY"), place, refusal[1])
                assert refusal[0] == early.code
                tried["far"] += least[refusal[1]] == known.before[refusal[1]] - WINDOW
                break
            known.add(Decoded(**item))
        # What comes behind may be refused itself: the first one counts.
        items += [_close(r, unit, known) | {"wait_rows": r.choice([0, TOP])} for _ in range(r.randrange(3))]
        if early is None:
            items = items[:place + 1]
        bench = Bench(dut, unit, items, feed=Feed(r, latency=r.choice([1, 5])), arguments=sizes)
        await bench.carry_out(room=r.choice([0.1, 1.0]), quiet=8)
        assert bench.model.error == early, (number, bench.model.error, early)
        tried[early is not None] += 1
        await clean(dut)
    assert min(tried.values()) > 3, tried
    report(early=tried[True], in_time=tried[False], far=tried["far"])


@cocotb.test()
@pytest.mark.testpoint("bounds")
async def bounds(dut):
    """Each buffer kept and passed by a beat, and sums beyond 32 bits that would wrap into it."""
    unit = await fresh(dut)
    tried = {False: 0, True: 0}
    for number in range(220):
        r = rng(f"bounds {number}")
        kind = ("LOAD_ROWS", "LOAD_WEIGHTS", "LOAD_ADDENDS", "LAYER")[number % 4]
        sizes = any_sizes(r)
        waits = Waits(Rules(unit))
        items = any_program(r, unit, r.randrange(3), sizes, waits)
        item = any_item(r, unit, kind, [0, 0, 0])
        if kind == "LAYER":
            item["target"], item["activation"], item["groups"] = 3, r.randrange(3), 1 + r.getrandbits(4)
        offset, stride = ("out", "out_stride") if kind == "LAYER" else ("source", "stride")
        how = number // 4 % 5
        if how < 2 and kind != "LOAD_ADDENDS":
            # Products of all sizes, near and beyond 2**32 among them.
            item["count"] = r.choice([item["count"], 1 + r.getrandbits(r.randint(1, 12)), (1 << 20) - 1])
            item[stride] = r.choice([r.getrandbits(r.randint(1, 32)), 1 << r.randrange(32), TOP])
        else:
            item[stride] = r.getrandbits(4)
            item["count"] = 1 + r.getrandbits(10)
        if kind == "LAYER" and item["count"] != 1:
            item[stride] = max(item[stride], -(-item["groups"] // unit.groups_per_beat))
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
        item = waiting(r, item, waits)
        items.append(item)
        bench = Bench(dut, unit, items, feed=Feed(r), arguments=sizes)
        await bench.carry_out(quiet=8)
        want = Fault(MLP.code("BOUNDS"), len(items) - 1,
                     ("inputs_beats", "outputs_beats", "weights_beats").index(name)) if outside else None
        assert bench.model.error == want, (number, item, sizes)
        tried[outside] += 1
        await clean(dut)
    assert min(tried.values()) > 40, tried
    report(bounds_kept=tried[False], bounds_passed=tried[True])


@cocotb.test()
@pytest.mark.testpoint("read_errors")
async def read_errors(dut):
    """An error on any beat is told with its instruction; what came before is handed on, and a start without a reset
    does nothing."""
    unit = await fresh(dut)
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
        await clean(dut)


NAMES = ("smoke", "random_match_golden", "backpressure_both_sides", "latency_and_rate_as_documented",
         "reset_midstream", "corner_values", "malformed_programs", "bounds", "overlaps", "waits", "read_errors")


@pytest.mark.parametrize(("name", "tests"), shapes([
    ("tiny", NAMES), ("wide", ("random_match_golden", "bounds", "corner_values")),
    ("flat", ("bounds", "overlaps", "waits")), ("low", ("bounds", "malformed_programs", "overlaps", "waits"))], 1))
@pytest.mark.parametrize("number", seeds())
def test_mlp_program(number, name, tests):
    simulate(Program(CONFIGS[name]), "verif.mlp.test_program", name=f"mlp_program_{name}", tests=len(tests),
             seed=number, only="|".join(tests), env={"UNIT": name})
