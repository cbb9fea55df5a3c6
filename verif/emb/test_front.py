"""The EMB core's front against the golden deal: every row, lookup, step and copy of random programs, and every
refusal, over read ports that answer late and in pieces."""

import os
from collections import deque
from dataclasses import replace
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from golden.emb import row_decoder
from golden.emb.stripes import Stripes
from hw.emb.front import Front
from hw.emb.index_decoder import IndexDecoder
from hw.emb.program import Program
from hw.emb.regions import CLIENTS
from hw.isa import EMB, LONGEST_BAG
from hw.isa.emb import ROW_FORMAT
from verif.bench import report, reset, rng
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, shapes, simulate
from verif.emb import cycles as cycle_model
from verif.emb.front import (
    LOAD,
    MAX,
    MEAN,
    MOST,
    SUM,
    Bench,
    Plan,
    any_lengths,
    any_program,
    carry_out,
    config,
    counted,
    encode,
    fresh,
    shown,
)

# All cases at both widths; by default the wide beat is tried where the width matters.
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
WIDTH = ("smoke", "random_match_golden", "latency_and_rate_as_documented", "cycles_as_modelled")


@cocotb.test()
async def smoke(dut):
    """One bag over all three memories, in chunks of two rows, comes out row by row as written down by hand."""
    unit = await fresh(dut)
    plan = Plan(unit, rng("smoke"))
    plan.load([3], extra=2, release=0, beats=2, rows=9)
    table = {"row_beats": 2, "row_format": 0, "piece_beats": 0, "dram_rows": 10, "dram_base": 100, "tt_rows": 9,
             "ring_first": 6, "ring_count": 64}
    words = [4, 1 << 30 | 7, 2 << 30 | 8, 1 << 30 | 8, 5, 1 << 30 | 1]
    plan.bags([6], mode=MEAN, chunk=2, words=words, tt_table=3, out=50, out_stride=2, **table)
    bench = await carry_out(dut, unit, plan)
    rows = [(row.offset, row.piece, row.first, row.last) for row in bench.got("o_dram")]
    assert rows == [(108, 1, 1, 0), (110, 1, 0, 1)]
    assert [(row.offset, row.first, row.last) for row in bench.got("o_ssd")] == [(8, 1, 1)]
    lookups = [(lookup.index, lookup.begin, lookup.end) for lookup in bench.got("o_lookups")]
    assert lookups == [(7, 1, 0), (8, 0, 1), (1, 1, 1)]
    steps = [(s.tt, s.dram, s.ssd, s.first, s.end, s.factor, s.out) for s in bench.got("o_steps")]
    assert steps == [(1, 0, 0, 1, 0, 6, 50), (1, 1, 1, 0, 1, 6, 50)]


@cocotb.test()
async def random_match_golden(dut):
    """Random programs of loads, fills and bags of every mode: each row, lookup, step, copy and load beat as golden."""
    unit = await fresh(dut)
    for number in range(6 if REGRESS else 3):
        ring = rng(f"ring {number}")
        plan = Plan(unit, rng(f"random {number}"), ring_beats=1 << (ring.randint(8, 20), 24)[number % 2],
                    rows_beats=(1 << 20, MOST)[number % 2], outputs_beats=(1 << 20, MOST)[number % 2],
                    ring_first=ring.choice([0, (1 << 30) - 3, ring.getrandbits(30)]))
        any_program(plan, 25)
        await carry_out(dut, unit, plan, latency=plan.rng.choice([0, 5, 60]), begins_after=ring.choice([0, 40, 300]))


@cocotb.test()
async def backpressure_both_sides(dut):
    """The same with pauses of every port on both sides; streams keep their rules and nothing is lost."""
    unit = await fresh(dut)
    for gaps in ("some", "bursts", "some", "bursts"):
        plan = Plan(unit, rng(f"pressure {gaps}"))
        any_program(plan, 15)
        await carry_out(dut, unit, plan, gaps=gaps, latency=plan.rng.choice([0, 30]))


@cocotb.test()
async def corner_values(dut):
    """Bags of none, one and the most indices there may be; regions that end with a beat, or one word after;
    all of one memory."""
    unit = await fresh(dut)
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
    plan.bags([0, LONGEST_BAG if REGRESS else 5_000, 1], chunk=8)
    plan.bags([4_000 if REGRESS else 1_000], devices=(1,), chunk=8, mode=MEAN)
    plan.fill(1)
    plan.fill(words)
    await carry_out(dut, unit, plan)


@cocotb.test()
async def top_values(dut):
    """Counts, strides and regions up to the most that their fields hold: of what a reset ends, the first bags and the
    first request of each region are at their places."""
    unit = await fresh(dut)
    for number in range(6):
        r = rng(f"top {number}")
        plan = Plan(unit, r, outputs_beats=MOST, rows_beats=MOST, inputs_beats=MOST)
        count = r.randint(1 << 31, MOST) if number % 2 else 3
        at = {name: r.getrandbits(30) | 1 << 30 + number % 2 for name in ("lengths", "indices", "weights")}
        item = plan.bags([0], weighted=1, row_beats=1, row_format=0, piece_beats=0, count=count, out=0, tt_rows=0,
                         out_stride=1 if number % 2 else r.randint(1 << 30, MOST // 2 - 1))
        item.update(at, indices_count=r.randint(1 << 31, MOST))
        bench = Bench(dut, unit, plan, random_=r, latency=2)
        await bench.begin()
        for _ in range(400):
            await RisingEdge(dut.clk)
        # Its lengths are zeros, and few end soon: there are fewer indices than it says.
        error = bench.error()
        assert (error and (error["code"], error["bag"])) == (None if number % 2 else (EMB.code("LENGTHS"), 2)), error
        assert [step.out for step in bench.got("o_steps")[:2]] == [0, item["out_stride"]]
        for name, place in at.items():
            request = bench.requests[CLIENTS.index(name)].beats[0]
            assert request["address"] == bench.bases["inputs"] + place * unit.beat_bytes, name
        bench.stop()
        await reset(dut)


@cocotb.test()
@pytest.mark.testpoint("rows_in_pieces")
async def rows_in_pieces(dut):
    """Rows of four beats in pieces of two, in stripes of 8 and 64, lie where it is written down by hand; rows of every
    length and piece, in bags and in fills, up to the last beat of the buffer."""
    unit = await fresh(dut)
    rows, copies = {8: ((100, 102, 106, 116, 134, 136), (206, 214, 236, 244)),
                    64: ((100, 102, 106, 108, 118, 120), (206, 270, 220, 284))}[unit.stripe_beats]
    ring = {"ring_first": 0, "ring_count": 64, "release": 0}
    plan = Plan(unit, rng("by hand"))
    table = {"row_beats": 4, "row_format": 0, "piece_beats": 2, "dram_rows": 11, **ring}
    plan.bags([6], words=[0, 1, 3, 4, 9, 10], dram_base=100, tt_rows=0, **table)
    plan.fill(2, pairs=[5, 3, 8, 10], dram_base=200, **table)
    bench = await carry_out(dut, unit, plan)
    assert [(row.offset, row.beats, row.piece) for row in bench.got("o_dram")] == [(at, 3, 1) for at in rows]
    assert [(row.offset, row.piece) for row in bench.got("o_ssd")] == [(5, 3), (8, 3)]
    assert [(copy.offset, copy.beats) for copy in bench.got("o_copies")] == [(at, 2) for at in copies]
    tried = 0
    for beats in range(1, unit.row_beats_max + 1):
        form = plan.rng.choice(list(ROW_FORMAT))
        for lies in (Stripes(row_decoder.beats(beats, form), piece, unit.stripe_beats) for piece in (0, 1, 2, 4)):
            if not lies.allowed:
                continue
            rows, base = plan.rng.randint(1, 40), plan.rng.randrange(20)
            plan = Plan(unit, plan.rng)
            table = {"row_beats": beats, "row_format": int(form), "piece_beats": lies.piece_beats, "dram_base": base,
                     "dram_rows": rows}
            plan.bags([rows], words=plan.rng.sample(range(rows), rows), tt_rows=0, **table, **ring)
            plan.fill(rows, **table, **ring)
            plan.rows_beats = base + lies.beats(rows)
            await carry_out(dut, unit, plan, gaps=plan.rng.choice(["none", "some"]))
            tried += 1
    report(layouts=tried)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """One token a cycle over bags, empty ones among them, and over instructions, but for a cycle an instruction where
    no bag is longer than an index; a pair of a tensor-train row and a row of another memory is one token."""
    unit = await fresh(dut)
    for name, lengths, count, devices in (
        ("dram", [40] * 20, 4, (0,)), ("tt", [40] * 20, 4, (1,)), ("ssd", [40] * 20, 4, (2,)),
        ("mixed", [7, 0, 33, 1, 1, 90, 0, 0, 12] * 8, 4, (0, 1, 2)), ("ones", [1] * 500, 4, (0, 1, 2)),
        ("empty", [0] * 500, 3, (0,)), ("small", [3, 1, 0, 4] * 6, 30, (0, 2)),
        ("pairs", [40] * 20, 4, ((1, 0), (2, 1))), ("unaligned", [41, 39] * 10, 4, ((1, 0), (1, 2))),
    ):
        plan = Plan(unit, rng(f"rate {name}"))
        plan.load(range(4))
        count = count if REGRESS else 2
        for _ in range(count):
            item = plan.bags(lengths, devices=(0, 1, 2), mode=plan.rng.choice([SUM, MEAN]))
            words = plan.words_of(item)
            for at in range(len(words)):
                device = devices[at // 2 % 2][at % 2] if name in ("pairs", "unaligned") else plan.rng.choice(devices)
                words[at] = plan.word(item, device)
            plan.set_words(item, words)
        tokens = sum(max(1, n) for n in lengths)
        bench = await carry_out(dut, unit, plan)
        pairs = sum(plan.pairs(item, lengths) for item in plan.items[1:])
        assert len(bench.dealt_at) == count * tokens - pairs
        assert bench.dealt == count * sum(lengths)
        if name in ("pairs", "unaligned"):
            # Behind a bag of odd length pairs are those of the words' places, not of the bag's.
            assert pairs == count * (sum(lengths) // 2 if name == "pairs" else 10 * (20 + 19)), pairs
        report(**{f"rate_{name}": len(bench.dealt_at) / (bench.dealt_at[-1] - bench.dealt_at[0] + 1)})
        steps = zip(bench.dealt_at, bench.dealt_at[1:])
        idle = {at: b - a - 1 for at, (a, b) in enumerate(steps, start=1) if b > a + 1}
        # Where bags have an index or none, the lengths cannot get ahead. Else an instruction takes about 20 cycles to
        # check, during those before it: 54 tokens hide all of that. (Pairs would leave too few of them, by chance.)
        expected = {tokens * n: 1 for n in range(1, count)} if name in ("ones", "empty") else {}
        assert idle == expected, f"{name} waits: {idle}"


@cocotb.test()
@pytest.mark.testpoint("stalls")
async def stalls_name_who_holds_up_the_bags(dut):
    """An output that nobody takes, each by itself: soon its stall is shown in every cycle, and no other's is; but for
    the feeder's, before the first index has come."""
    unit = await fresh(dut)
    for output, name in (("o_dram", "dram"), ("o_ssd", "ssd"), ("o_lookups", "tt"), ("o_steps", "write"),
                         ("o_copies", "ssd")):
        plan = Plan(unit, rng(output))
        plan.load([1])
        if output == "o_copies":
            plan.fill(300)
        else:
            plan.bags([1] * 300, devices=(("dram", "tt", "ssd").index(name) if name != "write" else 0,), tt_table=1)
        bench = Bench(dut, unit, plan, random_=plan.rng)
        bench.sinks[output].stop()
        getattr(dut, f"{output}__ready").value = 0
        await bench.begin()
        await ClockCycles(dut.clk, 1000)
        early = dict(bench.stalls)
        await ClockCycles(dut.clk, 100)
        assert {key: count - early[key] for key, count in bench.stalls.items() if count > early[key]} == {name: 100}
        assert not any(early[key] for key in early if key not in (name, "feeder")), early
        bench.stop()
        await reset(dut)


@cocotb.test()
@pytest.mark.testpoint("latency_and_rate_as_documented")
async def cycles_as_modelled(dut):
    """When each request, row, lookup and step stands there and each word is taken, under any pattern of data and room:
    cycle by cycle as in the cycle model; what stands there is as golden."""
    unit = await fresh(dut)
    words, edge = unit.words, RisingEdge(dut.clk)
    queues = {"dram": unit.dram_queue, "ssd": unit.ssd_queue, "tt": unit.tt_queue, "steps": unit.bag_queue}
    outputs = {"dram": "o_dram", "ssd": "o_ssd", "lookups": "o_lookups", "steps": "o_steps"}
    layouts = {name: layout_of(f"{port}__payload") for name, port in outputs.items()}
    request = layout_of("o_requests__0__payload")
    cycles = 0
    for number in range(6 if REGRESS else 2):
        r = rng(f"cycles {number}")
        plan = Plan(unit, r)
        loader = Plan(unit, r)
        loader.load(range(unit.tt.tables))
        await carry_out(dut, unit, loader)
        plan.loaded = dict(loader.loaded)
        for _ in range(r.choice([3, 30, 80])):
            weighted = r.randrange(2)
            plan.bags(any_lengths(r, r.choice([1, 3, 20, words + 1]), r.choice([2, 40])), weighted=weighted,
                      mode=SUM if weighted else r.choice([SUM, MEAN, MAX]))
        arena = {False: plan.inputs, True: [word for item in plan.items for word in encode(item)]}
        bench = Bench(dut, unit, plan, random_=r)
        bench.stop()    # what follows drives the ports itself
        await reset(dut)
        program = np.array([encode(item) for item in plan.items], np.uint32)
        code, inputs = (bench.bases[name] // unit.beat_bytes for name in ("program", "inputs"))
        model = cycle_model.Front(program, code=code, inputs=inputs,
                                  beat_words=words, stripe_beats=unit.stripe_beats, queues=queues)
        dealt = {name: deque(plan.expected()[port]) for name, port in outputs.items()}
        coming: list[deque] = [deque() for _ in CLIENTS]
        latency = r.choice([1, 10, 70])
        room, flow = r.choice([1.0, 0.7, 0.3]), [r.choice([1.0, 0.8])] * len(CLIENTS)
        flow[CLIENTS.index("lengths")] = r.choice([flow[0], 0.02])     # all else may wait for them
        standing: list[Any] = [None] * len(CLIENTS)
        finishing, cycle, start_at = 0, 0, r.randrange(1, 9)
        bench.arguments()
        while not (model.done and cycle > start_at + 2):
            begin = cycle == start_at
            dut.start.value = begin
            dut.ring_begins.value = cycle == start_at + 1   # before anything could wait for it
            dut.ring_begin.value = 0
            data = []
            for k, waiting in enumerate(coming):
                if standing[k] is None and waiting and waiting[0][0] <= cycle and r.random() < flow[k]:
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
                assert valid == (wanted is not None), f"{where}: request {CLIENTS[k]}: {valid}, modelled {wanted}"
                if wanted is not None:
                    shown_ = request.unpack(int(getattr(dut, f"o_requests__{k}__payload").value))
                    assert (shown_["address"] // unit.beat_bytes, shown_["beats"]) == wanted, where
                    if asked[k]:
                        first = wanted[0] - (inputs if k else code)
                        for beat in range(first, first + wanted[1]):
                            coming[k].append((cycle + latency, tuple(arena[k == 0][beat * words:(beat + 1) * words])))
            for name, port in outputs.items():
                valid = getattr(dut, f"{port}__valid").value == 1
                assert valid == getattr(model, name), f"{where}: {port} valid is {valid}, modelled {not valid}"
                if valid:
                    wanted = dealt[name][0]
                    found = shown(port, layouts[name].unpack(int(getattr(dut, f"{port}__payload").value)), 1, 0)
                    golden = counted(wanted) if name == "steps" else wanted
                    assert found == golden, f"{where}: {port}: {found}, {golden}"
                    if name == "steps" and takes[name] and wanted.last:
                        finishing += 1
            assert (int(dut.finished.value), dut.done.value == 1) == (model.finished, model.done), where
            offered = [beat is not None and getattr(dut, f"i__{k}__ready").value == 1
                       for k, beat in enumerate(standing)]
            gone_from = {name: take and getattr(model, name) for name, take in takes.items()}
            for name, gone in gone_from.items():
                if gone:
                    dealt[name].popleft()
            taken = model.step(
                start=begin, data=data, requests_taken=[a and q is not None for a, q in zip(asked, model.requests)],
                taken=gone_from, bags_done=bool(done))
            assert offered == taken, f"{where}: words taken of {offered}, modelled {taken}"
            for k, gone in enumerate(taken):
                if gone:
                    standing[k] = None
            cycle += 1
            assert cycle < 100_000
        assert not dealt["steps"]
        cycles += cycle
        for name in ("start", "bags_done"):
            getattr(dut, name).value = 0
        await reset(dut)
    report(cycles_compared=cycles)


@cocotb.test()
async def reset_midstream(dut):
    """A reset at any cycle leaves nothing behind: the next program comes out right, with the tables still loaded."""
    unit = await fresh(dut)
    for number in range(24 if REGRESS else 4):
        r = rng(f"reset {number}")
        plan = Plan(unit, r)
        any_program(plan, 12)
        first = plan.items[0]
        bench = Bench(dut, unit, plan, random_=r, gaps="some")
        await bench.begin()
        for _ in range(r.randrange(60, 900)):
            await RisingEdge(dut.clk)
        done = int(dut.finished.value)
        bench.stop()
        # What is written in the cycle of the reset is not counted.
        dut.bags_done.value = dut.copy_done.value = number % 2
        await reset(dut, 1)
        dut.bags_done.value = dut.copy_done.value = 0
        # The cycle of the reset may have ended an instruction and begun the next.
        if done and LOAD not in [item["opcode"] for item in plan.items[done:done + 2]]:
            again = Plan(unit, r)
            again.loaded = dict([*plan.known, plan.loaded][done])
            again.bags([5, 3, 9], devices=(1,))
            await carry_out(dut, unit, again)
        else:
            again = Plan(unit, r)
            any_program(again, 3)
            await carry_out(dut, unit, again)
        assert first["opcode"] == LOAD


@cocotb.test()
@pytest.mark.testpoint("corner_values")
async def empty_program(dut):
    """A program without an instruction is carried out."""
    unit = await fresh(dut)
    plan = Plan(unit, rng("empty"))
    plan.region([1])
    await carry_out(dut, unit, plan)


def test_illegal_config_wrong():
    """Depths and sizes that cannot be are refused with a sentence."""
    good = config(4)
    with pytest.raises(ValueError, match="dram_queue must be at least 32, .*, not 16"):
        Front(replace(good, dram_queue=16)).elaborate(None)
    with pytest.raises(ValueError, match="index_bits must be from 1 to 30, not 31"):
        IndexDecoder(beat_bytes=16, row_beats_max=4, stripe_beats=8, tables=8, index_bits=31)
    with pytest.raises(ValueError, match="chunk_rows must be from 1 to 8, not 16"):
        Program(beat_bytes=16, row_beats_max=4, stripe_beats=8, tables=8, index_bits=20, chunk_rows=16)


@pytest.mark.parametrize("words", shapes([4, 16], 1))
@pytest.mark.parametrize("number", seeds())
def test_emb_front(number, words):
    only = WIDTH if words == 16 and not REGRESS else None
    simulate(Front(config(words)), "verif.emb.test_front", name=f"emb_front_{words}", tests=len(only or range(11)),
             seed=number, only="|".join(only) if only else "")
