"""The Hotline core's program among models of the parts: what each instruction sets going, and every refusal."""

import os
import random

import cocotb
import pytest

from golden.hotline.program import BAD_INSTRUCTION, BOUNDS, READ_ERROR, Arguments, Fault
from hw.hotline.config import HotlineConfig
from hw.hotline.program import CALM_CYCLES, Program
from hw.isa import HOTLINE
from verif.bench import report, rng, start
from verif.bench.runner import seeds, shapes, simulate
from verif.hotline.program import (
    BEGIN,
    KINDS,
    PIECE,
    QUICK,
    TOP,
    USED,
    Bench,
    any_item,
    any_program,
    encode,
    least_pitches,
)
from verif.hotline.shapes import CONFIGS, sizes_of

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))


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
    """Random programs of allowed instructions, unused fields noise: registers, jobs, every beat with its
    marks, images both ways and the order of begin, flush and end as golden, with parts that look idle for
    some cycles while they are not."""
    start(dut)
    for number in range(4 if REGRESS else 2):
        r = rng(f"random {number}")
        bench = await Bench.fresh(dut, r, latency=r.choice([1, 30]), busy=r.choice([0, 7, 40]))
        joins: dict[int, int] = {}
        bench.put(any_program(r, bench.config, 25, joins, kinds=QUICK) + any_program(r, bench.config, 3, joins))
        await bench.run()
        bench.judge()
        assert bench.finished == 28


@cocotb.test()
async def backpressure_both_sides(dut):
    """The same with pauses on every stream."""
    start(dut)
    for number in range(4 if REGRESS else 2):
        r = rng(f"pressure {number}")
        bench = await Bench.fresh(dut, r, flow=r.choice([0.15, 0.5, 0.9]), latency=r.choice([1, 20]), busy=20)
        joins: dict[int, int] = {}
        bench.put(any_program(r, bench.config, 10, joins, kinds=QUICK) + any_program(r, bench.config, 2, joins))
        await bench.run(cycles=300_000)
        bench.judge()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """The cycles of each kind of instruction, by the bits of its multipliers; a beat a cycle."""
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
        # Registers are compared one by one.
        # Multipliers: sample_beats, sample_beats, mailbox_slots, indices, row_beats, mailbox_slots, row_beats.
        ("TRAIN", train, [1, 1, 3, 4, 2, 3, 2], first + CALM_CYCLES + 7 + 8),
        # And vectors, and the hot rows' beats; positions are counted.
        ("pooled", train | {"pooled": 1}, [1, 1, 3, 4, 4, 2, 3, 2, 2], first + CALM_CYCLES + 7 + 8 + 1 + 8),
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
    for number in range(10 if REGRESS else 5):
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
    """Programs of none; the most samples of a beat and of eight; inputs of 2**32 - 1 beats and around what a request
    can say; all positions joined and one of them not; programs one behind the other without a reset."""
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
    cases += [("TRAIN", {"indices": indices, "sample_beats": 1, "_place": off})
              for indices, off in ((2, 1), (2, TOP), (2, 1 << 31), (config.words, 1))]
    return cases


@cocotb.test()
@pytest.mark.testpoint("malformed_programs")
async def malformed_programs(dut):
    """Every value that is not allowed and each reserved bit is refused at its place, with all before it carried out
    and nothing set going."""
    start(dut)
    r = rng("malformed")
    config = CONFIGS[os.environ["HOTLINE"]]
    cases = _refusals(r, config)
    for kind, change in cases:
        joins: dict[int, int] = {}
        items = any_program(r, config, r.randrange(3), joins, kinds=("S_WR", "CLEAR"))
        if change.get("_join"):
            items.append({"opcode": KINDS["S_WR"], "position": 0, "join": change["_join"], "table_rows": 1,
                          "base": BEGIN})
            joins[0] = 1
        if off := change.get("_place"):
            items += [{"opcode": KINDS["S_WR"], "position": at, "table_rows": 1, "base": BEGIN + off * at & TOP}
                      for at in range(2)]
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
@pytest.mark.testpoint("malformed_programs")
async def places_far_apart(dut):
    """Two registers whose rows' places are the same or not in all the bits that they can have: equal and a beat apart
    at every size, and apart by every power of two, of which a base holds 32 alone. The register behind the last that is
    looked up has another place, which is nothing to anybody."""
    start(dut)
    r = rng("places")
    bench = await Bench.fresh(dut, r, busy=0)
    bits = sizes_of(bench.config).domain_bits
    ends = {False: 0, True: 0}

    async def try_(log2: int, *registers: tuple[int, int], refused: bool) -> None:
        """registers: base and first row of each that is looked up."""
        nonlocal bench
        train = any_item(r, bench.config, "TRAIN", {-1: log2}) | {
            "indices": len(registers), "count": 1, "sample_beats": 1, "batch": 1, "pooled": 0}
        mailbox, gradients = least_pitches(bench.config, train, 0)
        bench.put([*({"opcode": KINDS["S_WR"], "position": at, "table_rows": 1, "base": base, "first_low": first & TOP,
                      "first_high": first >> 32} for at, (base, first) in enumerate([*registers, (3, 0)])),
                   train | {"mailbox_pitch": mailbox, "gradients_pitch": gradients}])
        await bench.run(quiet=3)
        bench.judge()
        assert (bench.error is not None) == refused, (log2, registers)
        ends[refused] += 1
        if refused:
            bench = await Bench.fresh(dut, r, busy=0)

    last = (1 << bits) - 1
    for log2 in (0, 3, 6) if REGRESS else (6,):
        for by in range(bits):
            first, beats = 1 << by, 1 << by + log2
            if beats < 1 << 32:     # a base that goes with it, and those around
                await try_(log2, (7, 0), (7 + beats, first), refused=False)
                await try_(log2, (7, 0), (8 + beats, first), refused=True)
            await try_(log2, (7, 0), (7, first), refused=True)
            await try_(log2, (7, first), (7, 0), refused=True)
        await try_(log2, (TOP, 0), (0, last), refused=True)
        await try_(log2, (0, last), (0, last), (0, last), refused=False)
        await try_(log2, (0, last - 1), (1 << log2, last), refused=False)
        await try_(log2, (0, last), (0, last), (TOP, last), refused=True)
    assert min(ends.values()) > 20, ends
    report(places_same=ends[False], places_apart=ends[True])


@cocotb.test()
@pytest.mark.testpoint("bounds")
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
@pytest.mark.testpoint("read_errors")
async def read_errors(dut):
    """An error on any beat of the program, of samples and of an image is told with its instruction; what came before
    it is handed on, nothing behind it, and a start without a reset does nothing."""
    start(dut)
    config = CONFIGS[os.environ["HOTLINE"]]
    beats = 16 // config.words
    for number in range(20 if REGRESS else 8):
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
    for number in range(20 if REGRESS else 9):
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


@pytest.mark.parametrize(("name", "tests"), shapes([
    ("tiny", NAMES), ("large", ("places_far_apart",)),
    ("wide", ("random_match_golden", "bounds", "malformed_programs"))], 2))
@pytest.mark.parametrize("number", seeds())
def test_hotline_program(number, name, tests):
    simulate(Program(CONFIGS[name]), "verif.hotline.test_program", name=f"hotline_program_{name}", tests=len(tests),
             seed=number, only="|".join(f"{test}$" for test in tests), env={"HOTLINE": name})
