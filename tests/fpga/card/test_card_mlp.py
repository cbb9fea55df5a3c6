"""The MLP core on the simulated card: bit for bit as the oracle says, and errors of its memories end with their cause.
Faults that every core meets are in test_card_faults.py, programs with mistakes in test_programs.py.

All of it runs on the preset `tiny`; one model serves the whole file but for the memories' errors, which a core with
broken memories makes. Beside what each test compares, every run that ends is checked by the card: rules of the bus,
reads of memory that was never written, guard bytes around each buffer.
"""

import os
from dataclasses import replace

import numpy as np
import pytest

from gen.compiler.mlp import Compiler
from gen.rtl.config import load
from hw.isa import MLP
from tests.support.faulty import UNTOUCHED, benches_of, count_of, side_by_side
from tests.support.mlp_bench import TIMEOUT, Bench, tried
from tests.support.mlp_broken import DOUBLE, SINGLE, BrokenCore, broken
from tests.support.mlp_programs import Mix, Run, any_program
from tests.support.mlp_sizes import NETWORKS, TINY, batch, joined, plain

UNIT = "mlp/core"

benches = benches_of(Bench, tried, "MLP", "HOTRAIL_MLP_FAULTS")


@pytest.fixture
def bench(benches):
    """The card that faults are tried on; nothing else draws from its generator, so its batch is always the same."""
    return benches(seed=5)


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
def test_a_layer_that_waits_too_little(benches, mode):
    """Layers wait for those whose results they read, to the bit; one that waits for one fewer is refused."""
    bench = benches()
    network = plain(40, 2 * bench.config.columns + 3, 9)
    compiler = Compiler(network, bench.config, batch=2 * bench.config.samples)
    program = compiler.compile(2 * bench.config.samples, mode=mode)
    run = Run(program.words, compiler.inputs(batch(network, program.count)[0]), compiler.weights, program.outputs_beats)
    bench.same(Run(compiler.load.words, run.inputs[:0], compiler.weights, 0))
    bench.same(run)
    early = run.copy()
    early.words[-1, MLP.field("wait_layers").word] -= 1
    bench.start(early)
    told, _ = bench.finish(early)
    assert (told["code"], told["instruction"], told["detail"]) == (MLP.code("EARLY"), len(run.words) - 1, 2)
    bench.same(run)


@pytest.mark.testpoint("coincidences")
def test_a_tile_begins_in_the_cycle_behind_another(benches):
    """A tile of one slot to memory takes the last place there, and a layer of more steps follows it at once."""
    bench = benches()
    for _ in range(8):
        mix, samples = Mix(bench.config, bench.draw), bench.config.samples
        first, second = mix.rows(3 * samples + mix.upto(samples), 1), mix.rows(mix.upto(2 * samples), 2)
        mix.to_memory(first, mix.upto(8), steps=1)
        mix.to_memory(second, mix.upto(8), steps=1 + mix.upto(4))
        run = mix.run()
        layers = run.words[:, 0] % 256 == MLP.instruction("LAYER").opcode
        run.words = np.concatenate([run.words[~layers], run.words[layers]])
        run.words[:, MLP.field("wait_layers").word] = 0
        bench.same(run)


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


@pytest.mark.testpoint("smoke", "corner_values")
def test_programs_that_end_early(bench, mixed):
    """The first instructions of a program, as many as one likes or none, are a program: what they bring and write is
    there, and no more."""
    for count in np.unique(np.linspace(0, len(mixed.words) - 1, count_of(9)).astype(int)):
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


# Errors of the bus

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
