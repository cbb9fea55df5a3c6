"""The MLP core on the simulated card: bit for bit as the oracle says, and every fault ends with its cause.

All of it runs on the preset `tiny`; one model serves the whole file but for the memories' errors, which a core with
broken memories makes. Beside what each test compares, every run that ends is checked by the card: rules of the bus,
reads of memory that was never written, guard bytes around each buffer.
"""

import os
import re
from dataclasses import replace

import numpy as np
import pytest

from fpga.card import Faults
from gen.compiler.mlp import Compiler
from gen.rtl.config import load
from hw.isa import MLP
from hw.isa.mlp import TARGET
from tests.support.faulty import CHANNELS, PORTS, UNTOUCHED, benches_of, count_of, side_by_side
from tests.support.mlp_bench import TIMEOUT, Bench, tried
from tests.support.mlp_broken import DOUBLE, SINGLE, BrokenCore, broken
from tests.support.mlp_programs import Mix, Run, any_program
from tests.support.mlp_sizes import TINY, batch, joined, plain
from tests.support.mlp_timed import freed, two_layers
from tests.support.program_mutator import ProgramMutator, every, longer, shorter

UNIT = "mlp/core"

PLACE = ("code", "instruction", "detail")
benches = benches_of(Bench, tried, "MLP", "HOTRAIL_MLP_FAULTS")


@pytest.fixture
def bench(benches):
    """The card that faults are tried on; nothing else draws from its generator, so its batch is always the same."""
    return benches(seed=5)


# A network with an interaction, whose features and biases are all loaded anew, and one whose first layer is computed
# in parts; both use both modes.
NETWORKS = {"dot": (joined("dot", 5, 13, bottom=(21, 17), top=(30, 3)), 9),
            "parts": (plain(700, 37, 5, last="sigmoid"), 6)}


@pytest.fixture(scope="module", params=NETWORKS)
def standing(benches, request):
    """A batch that the faults are tried on, and its cycles."""
    bench = benches(seed=5)
    run = bench.network(*NETWORKS[request.param])
    bench.same(run)
    return run, bench.same(run)


@pytest.fixture(scope="module")
def mixed(benches):
    """A batch with every instruction."""
    bench = benches(seed=5)
    run = bench.network(*NETWORKS["dot"])
    assert set((run.words[:, 0] & 0xFF).tolist()) == {item.opcode for item in MLP.instructions}
    return run


# Function

def test_standing_batches_use_it_all():
    """What the faults are tried on loads rows, weights and addends and writes to all four targets."""
    assert load("tiny").cores["mlp"] == TINY
    bench = Bench.__new__(Bench)
    bench.config, bench.draw = TINY, np.random.default_rng(5)
    seen = set()
    for network, count in NETWORKS.values():
        for words in bench.network(network, count).words:
            opcode = int(words[0]) & 0xFF
            seen.add(opcode)
            if opcode == MLP.instruction("LAYER").opcode:
                seen |= {("mode", int(words[0]) >> 8 & 1), ("target", int(words[0]) >> 11 & 3),
                         ("addend", int(words[0]) >> 9 & 3), ("activation", int(words[0]) >> 13 & 3)}
    wanted = {item.opcode for item in MLP.instructions} | {("target", k) for k in range(4)}
    assert seen >= wanted | {("addend", k) for k in (1, 2)} | {("activation", k) for k in range(3)}, seen


@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
@pytest.mark.testpoint("random_match_golden")
def test_random_networks(benches, memory):
    """Networks as compiled, bit for bit with the oracle."""
    bench = benches(memory)
    for number in range(count_of(3)):
        draw = bench.draw
        widths = [int(draw.integers(1, 60)) for _ in range(int(draw.integers(2, 5)))]
        last = ("none", "relu", "sigmoid")[int(draw.integers(3))]
        kind = ("none", "concat", "dot")[number % 3]
        if kind == "none":
            network = plain(*widths, last=last, bias=bool(draw.integers(2)), seed=number)
        else:
            network = joined(kind, int(draw.integers(1, 8)), int(draw.integers(1, 30)), tuple(widths[:2]),
                             (*widths[2:], 1), last)
        count = int(draw.integers(1, 20))
        compiler = Compiler(network, bench.config, batch=count)
        if len(compiler.load.words):
            bench.same(Run(compiler.load.words, np.zeros((0, bench.config.words), np.uint32), compiler.weights, 0))
        bench.same(bench.network(network, count, cold=False))
        bench.same(bench.network(network, count))


@pytest.mark.parametrize("mode", MLP.modes)
def test_a_layer_that_begins_in_time(benches, mode):
    """What a step reads is written in the very cycle before, as the compiler has it; a program that lets the step come
    a cycle sooner reads what was there before."""
    bench = benches()
    for steps_less in 0, 1:
        compiler, program = two_layers("tiny", mode, steps_less)
        runs = [Run(program.words, compiler.inputs(batch(compiler.network, program.count, seed)[0]), compiler.weights,
                    program.outputs_beats) for seed in range(3)]
        bench.same(Run(compiler.load.words, runs[0].inputs[:0], compiler.weights, 0))
        for run in runs[:2]:
            bench.same(run)
    early = replace(runs[2], words=freed(program.words))
    bench.start(early)
    told, outputs = bench.finish(early)
    assert told["code"] == 0 and (outputs != bench.expected(early)[1]).any()
    bench.same(runs[2])


@pytest.mark.skipif("HOTRAIL_REGRESS" not in os.environ, reason="builds models of other shapes: make regress")
@pytest.mark.parametrize("shape", [
    {"rows": 4, "width": 1},                                # two beats of the array a piece, one column group a beat
    {"units": 4, "words": 16, "width": 4},                  # four column groups a beat
    {"units": 4, "rows": 4, "words": 16, "width": 4},       # as shipped, with less memory
], ids=["narrow", "groups_per_beat", "shipped"])
def test_random_programs_of_other_shapes(shape):
    """Bit for bit with the oracle, and as long as on the twin."""
    bench, twin = (Bench(config=replace(TINY, **shape), kind=kind) for kind in ("sim", "twin"))
    with bench.card, twin.card:
        for _ in range(150):
            program = any_program(bench.config, bench.draw)
            assert bench.same(program) == twin.same(program)


@pytest.mark.testpoint("latency_and_rate_as_documented")
def test_the_same_twice(bench, standing):
    """The cycles are the same every time."""
    run, cycles = standing
    assert bench.same(run) == bench.same(run) == cycles


@pytest.mark.testpoint("corner_values")
def test_nothing_to_do(bench, mixed):
    """A program of no instruction at all ends well and writes nothing."""
    bench.start(Run(mixed.words, mixed.inputs, mixed.weights, mixed.outputs_beats, count=0))
    told, outputs = bench.finish(mixed)
    assert told["code"] == told["instructions"] == told["instructions_done"] == 0 and (outputs == UNTOUCHED).all()
    bench.mend(mixed)


@pytest.mark.testpoint("smoke")
def test_programs_that_end_early(bench, mixed):
    """The first instructions of a program, as many as one likes, are a program: what they bring and write is there,
    and no more."""
    for count in np.unique(np.linspace(1, len(mixed.words) - 1, count_of(8)).astype(int)):
        run = mixed.copy()
        run.count = int(count)
        bench.same(run)
        tried["short programs"] += 1
    bench.mend(mixed)


@pytest.mark.regress
def test_cards_side_by_side():
    """Two cards in processes of their own, at work at the same time."""
    side_by_side([Bench(process=True, seed=seed) for seed in (1, 2)],
                 lambda bench: any_program(bench.config, bench.draw))


# Stalls

@pytest.mark.turns(5)
@pytest.mark.parametrize("channel", [*CHANNELS, "all"])
@pytest.mark.parametrize("share", [0.3, 0.8])
@pytest.mark.testpoint("backpressure_both_sides")
def test_stalls(bench, standing, channel, share):
    """Random stalls on every channel of both ports."""
    bench.stalls(standing[0], channel, share)


# Programs and arguments that are wrong

spoil = ProgramMutator(MLP)
put, bit = spoil.put, spoil.bit
ROWS, WEIGHTS, ADDENDS, LAYER, INTERACT = "LOAD_ROWS", "LOAD_WEIGHTS", "LOAD_ADDENDS", "LAYER", "INTERACT"
STORE = {"target": TARGET.MEMORY}
HUGE = (1 << 32) - 1
WRONG = {
    "opcode 0": put(LAYER, "opcode", 0), "opcode 6": put(ROWS, "opcode", 6), "opcode 255": put(WEIGHTS, "opcode", 255),
    "reserved bit 17": bit(LAYER, 0, 17), "reserved bit 31": bit(ROWS, 0, 31),
    "reserved bit of weights": bit(WEIGHTS, 0, 20),
    "reserved bit of addends": bit(ADDENDS, 0, 24),
    "reserved bit of an interaction": bit(INTERACT, 0, 17),
    "addend 3": put(LAYER, "addend", 3), "activation 3": put(LAYER, "activation", 3, **STORE),
    "sigmoid on chip": put(LAYER, "activation", 2, target=0), "ReLU of partials": put(LAYER, "target", 2, activation=1),
    "sigmoid of partials": put(LAYER, "target", 2, activation=2),
    **{f"no {field} of {name}": put(name, field, 0) for name, fields in (
        (ROWS, ("count", "row_beats", "features")), (WEIGHTS, ("count", "steps")), (ADDENDS, ("count",)),
        (LAYER, ("count", "steps", "groups", "last_columns")), (INTERACT, ("count", "row_beats", "features")))
       for field in fields},
    **{f"too many {field} of {name}": put(name, field, most) for name, field, most in (
        (ROWS, "count", 1 << 20), (ROWS, "row_beats", 1 << 12), (WEIGHTS, "count", HUGE), (WEIGHTS, "steps", 1 << 15),
        (ADDENDS, "count", 1 << 31), (LAYER, "count", 1 << 20), (LAYER, "steps", 1 << 12),
        (LAYER, "groups", (1 << 16) - 1), (INTERACT, "count", 1 << 24), (INTERACT, "row_beats", 1 << 13))},
    "a tail past the group": put(LAYER, "last_columns", TINY.columns + 1), "the longest tail": put(LAYER,
                                                                                                   "last_columns", 255),
    "features of plain rows": put(ROWS, "features", 2, features_in=0), "one feature": put(INTERACT, "features", 1),
    **{f"{name} waits for {what} to come": put(name, f"wait_{what}", HUGE)
       for name in (ROWS, WEIGHTS, ADDENDS, LAYER, INTERACT) for what in ("rows", "weights", "layers")},
    "a layer waits for itself": lambda run: put(LAYER, "wait_layers", int(np.isin(
        run.words[:spoil.last_of(run, LAYER) + 1, 0] & 0xFF, (4, 5)).sum()))(run),
    "a load waits for itself": lambda run: put(ROWS, "wait_rows", int(
        (run.words[:spoil.last_of(run, ROWS) + 1, 0] & 0xFF == 1).sum()))(run),
    "rows past the end": put(ROWS, "source", lambda v: v + 1000), "rows wrap": put(ROWS, "source", HUGE),
    "rows far apart": put(ROWS, "stride", HUGE), "too many rows": put(ROWS, "count", (1 << 20) - 1),
    "all of it too large": every(*(put(ROWS, field, most) for field, most in (
        ("count", (1 << 20) - 1), ("stride", HUGE), ("row_beats", (1 << 12) - 1), ("source", HUGE)))),
    "features past the end": put(ROWS, "features", 255, features_in=1),
    "weights past the end": put(WEIGHTS, "source", lambda v: v + 100_000), "weights wrap": put(WEIGHTS, "source", HUGE),
    "too many weights": put(WEIGHTS, "count", (1 << 20) - 1),
    "the longest weights": put(WEIGHTS, "steps", (1 << 12) - 1),
    "addends past the end": put(ADDENDS, "source", lambda v: v + 100_000), "addends wrap": put(ADDENDS, "source", HUGE),
    "too many addends": put(ADDENDS, "count", (1 << 20) - 1),
    "outputs past the end": put(LAYER, "out", 1 << 24, **STORE), "outputs wrap": put(LAYER, "out", HUGE, **STORE),
    "outputs far apart": put(LAYER, "out_stride", HUGE, **STORE),
    "too many outputs": put(LAYER, "count", (1 << 20) - 1, **STORE),
    "too wide outputs": put(LAYER, "groups", (1 << 12) - 1, **STORE),
    "inputs a beat short": shorter("inputs"), "outputs a beat short": shorter("outputs"),
    "weights a beat short": shorter("weights"), "no outputs": lambda run: setattr(run, "outputs_beats", 0),
    "program too short": longer,
}


@pytest.mark.turns(16)
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.testpoint("corner_values")
def test_wrong_programs(bench, mixed, name):
    """Every field wrong, at its end or past it: code and place are those of the oracle, and what is written is right
    or untouched."""
    run = mixed.copy()
    WRONG[name](run)
    told, result = bench.refused(run, PLACE)
    assert told["instructions_done"] <= result.instructions_done
    tried["wrong programs"] += 1
    bench.mend(mixed)


# Errors of the bus

@pytest.mark.turns(4, of="faults")
@pytest.mark.parametrize("port, way", PORTS)
@pytest.mark.testpoint("errors")
def test_error_responses(bench, standing, port, way):
    """On any beat; a read's is told with what was read."""
    run, _ = standing
    for told in bench.error_responses(run, port, way, 16, progress=2):
        if told["code"] and way == "read":
            item = int(run.words[told["instruction"], 0]) & 0xFF if told["detail"] else None
            assert (port, told["detail"], item) in {
                ("m00_axi", 0, None), ("m00_axi", 1, 1), ("m01_axi", 2, 2), ("m01_axi", 2, 3)}, told


@pytest.mark.parametrize("arena, detail", [("inputs", 1), ("weights", 2)])
@pytest.mark.testpoint("corner_values")
def test_memory_that_was_never_written(bench, mixed, arena, detail):
    """ECC answers with an error, which the core tells with its place, and the card names the address."""
    bench.same(mixed)
    buffer = bench.buffers.pop(arena)
    bench.card.free(buffer)
    data = getattr(mixed, arena)
    for hole in range(0, len(data), max(1, len(data) // count_of(3))):
        bench.buffers[arena] = bench.card.allocate(data.nbytes, arena)
        beats = np.delete(np.arange(len(data)), hole)
        for first in (0, hole + 1):
            part = data[first:hole] if first == 0 else data[first:]
            if len(part):
                bench.card.write(bench.buffers[arena], part, first * bench.config.beat_bytes)
        assert len(beats) == len(data) - 1
        bench.busy = True
        outputs = np.full((mixed.outputs_beats, bench.config.words), UNTOUCHED, np.uint32)
        bench.card.run({
            "program": bench.buffers["program"], "program_count": len(mixed.words),
            "inputs": bench.buffers["inputs"], "inputs_beats": len(mixed.inputs),
            "outputs": bench.place("outputs", outputs), "outputs_beats": mixed.outputs_beats,
            "weights": bench.buffers["weights"], "weights_beats": len(mixed.weights), "timeout": TIMEOUT,
            "result": bench.place("result", bench.block("instructions_done"))})
        assert bench.never_written()[1] == detail
        bench.card.free(bench.buffers.pop(arena))
    bench.mend(mixed)


# Abort and reset

@pytest.mark.turns(1)
@pytest.mark.testpoint("errors")
def test_abort_at_any_cycle(bench, standing):
    """An abort at any cycle ends the run with that cause."""
    bench.aborts(*standing, 30)


@pytest.mark.turns(1)
@pytest.mark.testpoint("killed_hosts")
def test_a_host_killed_at_any_cycle(bench, standing):
    """Its driver resets the core alone: nothing is written from then on, and the next run is right."""
    bench.kills(*standing, 20)


@pytest.mark.turns(4, of="faults")
@pytest.mark.testpoint("watchdog")
def test_a_memory_that_never_answers(bench, standing):
    """The watchdog ends the run with what owed an answer, and runs are right again when it has come."""
    bench.silences(standing[0])


@pytest.mark.turns(1)
@pytest.mark.testpoint("errors")
def test_abort_with_stalls(bench, standing):
    """Transfers that take long are waited for, and end whole."""
    run, cycles = standing
    for seed in range(count_of(10)):
        bench.card.set_faults(Faults(seed=seed, stalls=dict.fromkeys(CHANNELS, 0.7)))
        bench.abort(run, bench.draw.integers(1, 2 * cycles))


@pytest.mark.turns(1)
@pytest.mark.testpoint("reset_midstream")
def test_reset_at_any_cycle(bench, standing):
    """Reset at any cycle: the next run is right."""
    bench.resets(*standing, 30)


@pytest.mark.testpoint("errors")
def test_faults_with_the_ddr4_memory(benches):
    """The same kinds of faults with times that vary: a few of each."""
    bench = benches("ddr4", seed=5)
    bench.some_of_each(bench.network(*NETWORKS["dot"]))


def test_a_hang_is_told(bench, mixed):
    """The card, not the core: too few cycles are an error of their own."""
    bench.hang(mixed)


# Errors of the memories on chip

@pytest.fixture(scope="module")
def worn():
    """A card with a core whose memories read wrong bits in their last two lines."""
    with broken():
        bench = Bench(core=BrokenCore(TINY), opt="-O0")
    yield bench
    bench.card.close()


def on_line(config, draw, which, line):
    """A program with one layer that reads a line of that memory, the `line`th from its end; and how many codewords
    it reads there."""
    starts = {"rows": 0, "weights": 0, "addends": 0}
    starts[which] = {"rows": config.row_lines, "weights": config.weight_lines, "addends": config.addend_lines
                     }[which] - line
    mix = Mix(config, draw, **{f"{name}_from": at for name, at in starts.items()})
    mode = int(draw.integers(2))
    count, groups = mix.upto(config.samples), mix.upto(config.units)
    line_stride = 1       # one sample group
    at = mix.lines("rows", 1)
    steps = config.words // config.width if which == "rows" else 1
    mix.add("LOAD_ROWS", count=count, source=mix.data("inputs", count), stride=1, row_beats=1, features=1, line=at,
            line_stride=line_stride)
    groups = 1 if which == "addends" else groups
    mix.to_memory((at, line_stride, count, steps), groups, steps=steps, mode=mode, addend=1)
    rows_of = [min(config.rows, max(0, count - unit * config.rows)) for unit in range(config.units)]
    # In latency mode a unit's rows go to all units with a group at once, a tile for each unit that has any.
    tiles = sum(live > 0 for live in rows_of) if mode else groups
    read = {"rows": (1 if mode else groups) * count * steps * config.piece // 2,
            "weights": (groups * tiles if mode else tiles) * config.line_words // 2,
            "addends": count * config.columns // 2}[which]
    return mix.run(), read


@pytest.mark.regress
@pytest.mark.parametrize("which", ["rows", "weights", "addends"])
@pytest.mark.testpoint("errors")
def test_single_errors_are_corrected(worn, which):
    """The results are right and every codeword that was put right is counted."""
    for _ in range(count_of(6)):
        run, read = on_line(worn.config, worn.draw, which, SINGLE)
        worn.start(run)
        worn.compare(run, *worn.finish(run), corrected=read)
        tried["corrected errors"] += 1


@pytest.mark.regress
@pytest.mark.parametrize("detail, which", [(0, "rows"), (1, "weights"), (2, "addends")])
@pytest.mark.testpoint("errors")
def test_double_errors_end_the_run(worn, detail, which):
    """The run ends with the memory and the instruction that read it; the next one is right."""
    for _ in range(count_of(6)):
        run, _ = on_line(worn.config, worn.draw, which, DOUBLE)
        worn.start(run)
        told, _ = worn.finish(run)
        assert (told["code"], told["detail"]) == (worn.codes["MEMORY"], detail), told
        assert told["instruction"] == len(run.words) - 1 and told["uncorrectable"] >= 1
        tried["uncorrectable errors"] += 1
        good, _ = on_line(worn.config, worn.draw, which, DOUBLE + worn.config.units)
        worn.same(good)


@pytest.mark.parametrize("values, sentence", [
    ({"rows": 8}, "rows must be at most 4, half the words of a beat, not 8"),
    ({"width": 1}, "width must be at least 2, so that a line of weights is a beat or more, not 1"),
    ({"words": 16, "width": 4}, "units must be at least 4, the column groups of a beat, not 2"),
    ({"units": 3}, "units must be one of 2, 4, not 3"),
    ({"row_lines": 100}, "row_lines must be a power of two from 64 to 4096, not 100"),
])
def test_illegal_config_wrong(values, sentence):
    """Sizes that do not go together are refused with a sentence."""
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        replace(TINY, **values)
