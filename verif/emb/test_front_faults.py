"""The EMB core's front refuses what is wrong: programs, indices, reads, loads; told as golden says, at its place."""

import os

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.emb import tokens as emb_tokens
from golden.emb.core import Emb, Memory
from hw.emb.config import EmbConfig
from hw.emb.front import Front
from hw.emb.regions import CLIENTS
from hw.isa import EMB, LONGEST_BAG
from verif.bench import report, reset, rng
from verif.bench.runner import seeds, shapes, simulate
from verif.emb.front import (
    BAGS,
    FILL,
    LOAD,
    MAX,
    MEAN,
    Bench,
    Plan,
    any_lengths,
    carry_out,
    config,
    encode,
    fresh,
    further,
)

UNIT = "emb/front"

# Many more cases of each.
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))


async def _refused(dut, unit, plan, **how) -> tuple[Bench, dict[str, int]]:
    bench = Bench(dut, unit, plan, random_=plan.rng, gaps=plan.rng.choice(["none", "some"]), **how)
    await bench.begin()
    error = await bench.ended()
    assert error is not None, f"the program of {plan.items[-1]} ended well"
    bench.stop()
    await reset(dut)
    return bench, error


@cocotb.test()
@pytest.mark.testpoint("malformed_programs")
async def malformed_programs(dut):
    """Every field out of its range, and every buffer passed by one beat: refused as golden.emb.core says, at its
    place."""
    unit = await fresh(dut)
    r = rng("malformed")
    words, longest = unit.words, unit.row_beats_max
    small = {"rows_beats": 4096, "outputs_beats": 4096, "ring_beats": 256}
    everything = 0xFFFFFFFF
    cases: list[tuple[str, dict[str, int]]] = [
        ("bags", {"opcode": 0}), ("bags", {"opcode": 4}), ("bags", {"opcode": 255}), ("bags", {"mode": 3}),
        ("bags", {"format": 3}), *(("bags", {"row_format": form}) for form in (5, 6, 7)), ("fill", {"row_format": 5}),
        ("weighted", {"mode": MEAN, "chunk_rows": 1}), ("weighted", {"mode": MAX, "chunk_rows": 1}),
        ("bags", {"count": 0}), ("bags", {"row_beats": 0}), ("bags", {"row_beats": longest + 1}),
        ("bags", {"row_beats": everything}), ("bags", {"chunk_rows": 0}), ("bags", {"chunk_rows": 9}),
        ("bags", {"chunk_rows": 15}), ("bags", {"mode": MAX, "chunk_rows": 2}),
        *(("bags", {"piece_beats": piece}) for piece in (3, 5, 6, 7, 8, 16, 32, 63)), ("fill", {"piece_beats": 3}),
        ("bags", {"row_beats": 6, "piece_beats": 4}), ("bags", {"row_beats": 6, "row_format": 1, "piece_beats": 2}),
        ("fill", {"row_beats": 3, "piece_beats": 2}),
        ("weighted", {"chunk_rows": 2}), ("bags", {"tt_rows": (1 << unit.tt.index_bits) + 1}),
        ("bags", {"tt_rows": everything}), ("bags", {"ring_first": 1 << 30}), ("bags", {"release": 1 << 30}),
        ("bags", {"release": everything}), ("fill", {"row_beats": 0}), ("fill", {"count": 0}),
        ("fill", {"ring_first": 1 << 31}), ("fill", {"release": 1 << 30}), ("load", {"count": 0}),
        ("load", {"release": 1 << 31}),
        *(("bags", {"_word0": 1 << bit}) for bit in range(16, 32)), *(("load", {"_word9": 1 << b}) for b in (26, 31)),
        ("bags", {"ring_count": 257}), ("bags", {"ring_count": everything}), ("fill", {"ring_count": 257}),
        ("bags", {"lengths": everything}), ("bags", {"lengths": -1}), ("bags", {"indices": -1}),
        ("bags", {"indices": everything}), ("bags", {"indices_count": everything}), ("bags", {"count": everything}),
        ("weighted", {"weights": -1}), ("weighted", {"weights": everything}),
        ("bags", {"dram_rows": everything}), ("bags", {"dram_base": 4096}), ("bags", {"dram_base": everything}),
        # One block of rows is not whole: 1,021 rows take the room of 1,024.
        ("bags", {"dram_base": 12, "dram_rows": 1021, "piece_beats": 2}),
        ("fill", {"dram_base": 12, "dram_rows": 1021, "piece_beats": 1}),
        ("bags", {"dram_rows": everything, "piece_beats": 1}), ("bags", {"dram_base": everything, "piece_beats": 2}),
        ("bags", {"dram_base": everything - 6, "dram_rows": 1, "piece_beats": 2}),
        ("bags", {"out": everything}), ("bags", {"out": 4096}), ("bags", {"out_stride": everything}),
        ("bags", {"out_stride": 1 << 31, "out": 0}), ("bags", {"format": 0, "out": 4096 - 7}),
        *(("bags", {"format": form, "out": 4096 - 5}) for form in (1, 2)),      # vectors of half the beats
        ("fill", {"indices": -1}), ("fill", {"dram_rows": everything}), ("fill", {"count": everything}),
        ("load", {"signature": 0}), ("load", {"_image": 1}), ("load", {"_image": 18 * 32 * words - 1}),
        ("load", {"indices": -1}), ("load", {"indices": everything}), ("load", {"count": everything}),
        ("load", {"_header": 1 << 23}), ("load", {"_header": 1 << 31}), ("load", {"_header": 1 << 22 | 2 << 16}),
        ("load", {"_header": 0xFC00}), ("load", {"_header": 0x7F00 << 16}),
        ("load", {"_header": 1 << 22 | unit.tt.x_lines << unit.tt.blocks_log2}),
        ("load", {"_header": 1 << 22 | 1 << 16 | unit.tt.y_lines << unit.tt.blocks_log2}),
        *(("load", {"_header": 1 << 22}) for _ in range(not unit.tt.grouped)),
        *(("load", {"_header": target << 16}) for target in range(2 * unit.tt.block16_only)),
        *(("load", {"_header": target << 16 | lines}) for target, lines in enumerate(
            (unit.tt.x_lines, unit.tt.y_lines, unit.tt.tables, 0))),
        ("bags", {"ring_beats": 255}), ("fill", {"ring_beats": 3}), ("bags", {"ring_beats": 0}),
        ("ssd", {"ring_beats": 0, "ring_count": 0}), ("ssd", {"ring_beats": 192, "ring_count": 0}),
        ("ssd", {"ring_count": 3}), ("ssd", {"ring_beats": 2, "ring_count": 2}),
    ]
    counts: dict[int, int] = {}
    for number, (kind, change) in enumerate(cases):
        plan = Plan(unit, r, **small)
        for _ in range(r.randrange(3)):
            plan.bags([2, 0, 5], devices=(0,), ring_count=0, ring_first=0, release=0)
        good = {"row_beats": 4, "row_format": 0, "piece_beats": 0, "dram_rows": 900, "dram_base": 0, "ring_first": 0,
                "ring_count": 256, "out": 0, "out_stride": 4}
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
        if "_image" in change:      # a bit of it
            at, bit = divmod(change["_image"], 32)
            plan.inputs[item["indices"] * words + at] ^= 1 << bit
        elif "_header" in change:
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
    assert set(counts) == {EMB.code("BAD_INSTRUCTION"), EMB.code("BOUNDS"), EMB.code("INDEX_RANGE"),
                           EMB.code("SIGNATURE")}, counts


def _golden_of(unit: EmbConfig, plan: Plan, program: list[int]) -> dict[str, int]:
    model = Emb.of(unit)
    model.bounds = dict(plan.known[0] if plan.known else plan.loaded)       # before the first instruction
    model.loaded = set(model.bounds)
    memory = Memory(
        program=np.array(program, np.uint32), inputs=np.array(plan.inputs, np.uint32),
        outputs=np.zeros(plan.outputs_beats * unit.words, np.uint32),
        rows=np.zeros(plan.rows_beats * unit.words, np.uint32), ring_beats=plan.ring_beats,
        landed=np.zeros(max(plan.ring_beats, 256) * unit.words, np.uint32),
        landed_at=plan.ring_first)
    result = model.run(memory)
    return {"code": result.code, "instruction": result.instruction, "bag": result.bag, "index": result.index,
            "detail": result.detail}


@cocotb.test()
@pytest.mark.testpoint("malformed_programs")
async def bounds_of_tables(dut):
    """What a table's descriptor says is all that an instruction may ask of it: up to it the instruction is carried
    out, past it it is refused, as long as the table is loaded and looked up at all."""
    unit = await fresh(dut)
    r = rng("bounds")
    row = {"row_format": 0, "piece_beats": 0, "dram_rows": 9, "dram_base": 0, "ring_first": 0, "ring_count": 0}
    tried = 0
    refused, outside, absent = (EMB.code(name) for name in ("BAD_INSTRUCTION", "INDEX_RANGE", "TT_TABLE"))
    for number in range(40 if REGRESS else 8):
        beats, chunk, rows = r.randint(2, unit.row_beats_max - 1), 1 + number % 7, r.randint(2, 1000)
        loads = Plan(unit, r)
        loads.load([2, 5], beats=beats, chunk_rows=chunk, rows=rows)
        await carry_out(dut, unit, loads)
        good = {"row_beats": beats, "chunk_rows": chunk, "tt_rows": rows, "word": rows - 1}
        for code, change in ((0, {}), (refused, {"chunk_rows": chunk + 1}), (refused, {"row_beats": beats + 1}),
                             (refused, {"row_beats": beats - 1}), (0, {"tt_rows": rows + 1}),
                             (outside, {"tt_rows": 1 << unit.tt.index_bits, "word": rows}),
                             (0, {"row_beats": beats + 1, "tt_rows": 0}),
                             (absent, {"row_beats": beats + 1, "tt_table": 3})):
            item = {"tt_table": 5, **row, **good, **change}
            plan = Plan(unit, r)
            plan.loaded = dict(loads.loaded)
            word = 1 << 30 | item.pop("word") if item["tt_rows"] else 3
            plan.bags([1, 2], chunk=item.pop("chunk_rows"), words=[7, word, 8], **item)
            if code:
                _, error = await _refused(dut, unit, plan)
                want = _golden_of(unit, plan, encode(plan.items[0]))
                assert error["code"] == code and error == want, f"{change}: {error}, golden says {want}"
            else:
                await carry_out(dut, unit, plan)
            tried += 1
    report(bounds=tried)


@cocotb.test()
@pytest.mark.testpoint("bad_indices")
async def bad_indices(dut):
    """Each fault that an index, a pair or a length can have, at any place: told as golden.emb.core says, and
    nothing of it or behind it is dealt out."""
    unit = await fresh(dut)
    r = rng("indices")
    tried = 0
    for number in range(140 if REGRESS else 14):
        plan = Plan(unit, r, ring_beats=1 << r.randint(7, 12))
        plan.load(r.sample(range(1, unit.tt.tables), 3))
        for _ in range(r.randrange(3)):
            plan.bags(any_lengths(r, 8, 20), devices=(0, 1, 2))
        kind = number % 14
        if kind == 13:
            half = plan.ring_beats // 2       # so that no row there wraps
            plan.bags([1], devices=(0,), release=(plan.released[-1] & -plan.ring_beats) + 4096 + half)
        if kind < 3:
            item = plan.fill(r.randint(1, 40))
            at = r.randrange(item["count"])
            pair = item["indices"] * unit.words + 2 * at
            b = emb_tokens.stored(item)
            if kind == 0:
                plan.inputs[pair + 1] = r.choice([item["dram_rows"], 0xFFFFFFFF, 1 << 30])
            elif kind == 1:
                plan.inputs[pair] = r.choice([1 << 30, 1 << 31, 0xFFFFFFFF]) | plan.inputs[pair]
            else:
                plan.inputs[pair] = (item["ring_first"] + item["ring_count"] - b + 1) % (1 << 30)
        else:
            lengths = [r.randrange(12) for _ in range(r.randint(1, 12))] + [r.randint(1, 12)]
            weighted = r.randrange(2)
            ring = {}
            if kind in (6, 13):     # the region begins before what is released, and ends where it would without that
                ring = {"ring_count": plan.ring_beats, "ring_first": next(first for first in (
                    (plan.released[-1] - back) % (1 << 30) for back in range(1, 1 << 12))
                    if first % plan.ring_beats >= unit.row_beats_max)}
            item = plan.bags(lengths, weighted=weighted, devices=(0, 2) if kind == 11 else (0, 1, 2), **ring)
            b = emb_tokens.stored(item)
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
            elif kind in (7, 13):   # before the region, or in what one before it releases
                plan.inputs[at] = 2 << 30 | (further(plan.released[-2], item["ring_first"]) - 1) % (1 << 30)
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
                item["row_beats"], item["row_format"], item["tt_rows"] = 4, 0, 0
                item["piece_beats"], item["dram_rows"], item["dram_base"] = 0, 5, 0
                item["ring_first"], item["ring_count"], item["out"] = 0, plan.ring_beats, 0
                item["out_stride"] = 4
                plan.inputs[at] = 2 << 30 | plan.ring_beats - r.randint(1, 3)     # wraps
        alone = Plan(unit, r, ring_beats=plan.ring_beats,
                     ring_first=further(plan.released[-2], item["ring_first"]))
        alone.inputs, alone.items, alone.loaded = plan.inputs, [item], plan.loaded
        fault = _golden_of(unit, alone, encode(item)) | {"instruction": len(plan.items) - 1}
        bench, error = await _refused(dut, unit, plan)
        assert error == fault, f"case {number}: {error}, golden says {fault}"
        bench.judge((fault["bag"], fault["index"]))
        tried += 1
    report(bad_indices=tried)


@cocotb.test()
@pytest.mark.testpoint("read_errors")
async def read_errors(dut):
    """An error on any beat of each client: READ_ERROR, at the word that needed it, and nothing behind."""
    unit = await fresh(dut)
    r = rng("reads")
    words = unit.words
    beats = max(1, 16 // words)
    count = 160 if REGRESS else 12
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
            place = 4 if number % 16 == 10 else 0
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
                # The first error of all is one of headers, behind a load that had another one.
                at = 16 + beats if number == 2 else r.randrange(image)
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
@pytest.mark.testpoint("loads_that_break")
async def loads_that_break(dut):
    """After a load that an error or a reset broke off no table counts as loaded; after a whole one they do."""
    unit = await fresh(dut)
    r = rng("loads")
    table = {"row_beats": 1, "row_format": 0, "piece_beats": 0, "dram_rows": 1, "dram_base": 0, "tt_rows": 9,
             "ring_first": 0, "ring_count": 2}
    for number in range(6):
        plan = Plan(unit, r)
        plan.load([1, 3], beats=1)
        await carry_out(dut, unit, plan)
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
    plan.load([1, 5], beats=1)
    plan.bags([1], words=[1 << 30], tt_table=5, **table)
    await carry_out(dut, unit, plan)


@pytest.mark.parametrize("words,half", shapes([(4, False), (16, False), (16, True)], 1))
@pytest.mark.parametrize("number", seeds())
def test_emb_front_faults(number, words, half):
    """At both widths, the wide one also where all cores are block16; by default the wide beat is tried where the width
    matters."""
    only = "loads_that_break" if words == 16 and not REGRESS else ""
    simulate(Front(config(words, block16_only=half)), "verif.emb.test_front_faults",
             name=f"emb_front_{words}{'_half' * half}", tests=1 if only else 5, seed=number, only=only,
             env={"BLOCK16_ONLY": "1"} if half else {})
