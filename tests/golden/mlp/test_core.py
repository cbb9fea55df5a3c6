"""The MLP core's oracle: every refusal, and where loads go. Results are compared with plain products in
tests/gen/compiler/test_mlp.py, programs of all kinds with the core in tests/fpga/card/test_card_mlp.py."""

import numpy as np
import pytest

from gen.compiler.emb import encode
from golden.fp import fp32
from golden.mlp import core as mlp
from golden.mlp import program
from golden.mlp.core import Memory, Mlp
from golden.mlp.order import triangle
from hw.isa import MLP
from hw.isa.mlp import ACTIVATION, ADDEND, TARGET, WINDOW

TINY = dict(units=2, rows=2, width=2, words=8, row_lines=64, weight_lines=64, addend_lines=64)
SCREC = dict(units=2, rows=4, width=1, words=8, row_lines=64, weight_lines=128, addend_lines=128)
WIDE = dict(units=4, rows=4, width=4, words=16, row_lines=64, weight_lines=64, addend_lines=128)
SHAPES = {"tiny": TINY, "screc": SCREC, "wide": WIDE, "grouped": WIDE | {"grouped": True}}


def test_names_are_those_of_the_isa():
    assert MLP.field("addend").highest == ADDEND.PARTIAL and MLP.field("activation").highest == ACTIVATION.SIGMOID
    assert MLP.field("target").highest == TARGET.MEMORY
    assert set(mlp.COUNTERS) <= {value.name for value in MLP.counters}


def filled(name, seed):
    """A core whose memories hold random numbers."""
    random = np.random.default_rng(seed)
    core = Mlp(**SHAPES[name])
    for memory in (core.row_memory, core.weight_memory, core.addend_memory):
        memory[:] = random.standard_normal(memory.shape).astype(np.float32).view(np.uint32)
    for known in core.known:
        known[:] = True
    return core, random


def run(core, *instructions, inputs=(), weights=(), outputs=0):
    memory = Memory(np.concatenate(instructions), np.asarray(inputs, np.uint32), np.asarray(weights, np.uint32),
                    np.full(outputs * core.words, 0xDEAD, np.uint32))
    return core.run(memory), memory


@pytest.mark.parametrize("name", SHAPES)
def test_a_triangle_has_every_pair_once(name):
    core = Mlp(**SHAPES[name])
    for features in (2, 3, 9, 22, 27, 40):
        pairs = triangle(core, features)
        real = [tuple(pair) for pair in pairs if pair[1] >= 0]
        assert sorted(real) == [(f, g) for f in range(features) for g in range(f)]
        assert len(pairs) % core.piece == 0


@pytest.mark.parametrize("name", SHAPES)
def test_plain_rows_lie_where_they_belong(name):
    core, random = filled(name, 1)
    before = core.row_memory.copy()
    inputs = random.integers(0, 1 << 32, 200 * core.words, np.uint32)
    values = {"count": 37, "source": 5, "stride": 4, "row_beats": 3, "features": 1, "line": 60, "line_stride": 11}
    result, _ = run(core, encode("LOAD_ROWS", values, MLP), inputs=inputs)
    assert result.code == mlp.OK and result.counters["rows_beats"] == 111
    beats = inputs.reshape(-1, core.words)
    for i in range(37):
        for q in range(3):
            unit, row, s = i // core.rows % core.units, i % core.rows, i // core.rows // core.units
            before[unit, row, (60 + q * 11 + s) % 64] = beats[5 + 4 * i + q]
    np.testing.assert_array_equal(core.row_memory, before)


@pytest.mark.parametrize("name", SHAPES)
def test_features_lie_where_they_belong_and_are_turned(name):
    core, random = filled(name, 2)
    before = core.row_memory.copy()
    inputs = random.integers(0, 1 << 32, 400 * core.words, np.uint32)
    count, beats, groups = 9, 2, -(-10 // core.rows)
    values = {"features_in": 1, "count": count, "source": 7, "stride": 3, "row_beats": beats, "features": 7,
              "feature": 3, "line": 40, "line_stride": groups * beats}
    result, _ = run(core, encode("LOAD_ROWS", values, MLP), inputs=inputs)
    assert result.code == mlp.OK and result.counters["rows_beats"] == count * 7 * beats
    rows = inputs.reshape(-1, core.words)
    for i in range(count):
        unit, j = i // core.rows % core.units, i // core.rows // core.units * core.rows + i % core.rows
        for f in range(3, 10):
            for q in range(beats):
                piece = rows[7 + 3 * (i * 7 + f - 3) + q].reshape(core.pieces, core.piece)
                line = (40 + j * groups * beats + f // core.rows * beats + q) % 64
                for k in range(core.pieces):
                    before[unit, f % core.rows, line].reshape(core.pieces, -1)[k] = piece[
                        (k - f // core.rows) % core.pieces]
    np.testing.assert_array_equal(core.row_memory, before)


@pytest.mark.parametrize("features_in", [0, 1])
@pytest.mark.parametrize("beats", [1, 2, 3])
def test_half_rows_are_the_same_rows_widened(features_in, beats):
    """Every binary16 word but NaNs, whose arithmetic is one, in half the beats: as if the host had widened them."""
    (core, random), (other, _) = filled("tiny", 6), filled("tiny", 6)
    codes = random.permutation(np.arange(1 << 16).astype(np.uint16))
    codes[codes & 0x7FFF > 0x7C00] = 0x7E00
    count, words = 9, beats * core.words
    rows = codes[:count * words].reshape(count, words)
    stored = np.zeros((count, -(-beats // 2) * 2 * core.words), np.uint16)
    stored[:, :words] = rows
    values = {"features_in": features_in, "features": 1, "count": count, "source": 0, "row_beats": beats, "line": 40,
              "line_stride": 2 * beats}
    half, _ = run(core, encode("LOAD_ROWS", values | {"half": 1, "stride": -(-beats // 2)}, MLP),
                  inputs=stored.view(np.uint32).reshape(-1))
    full, _ = run(other, encode("LOAD_ROWS", values | {"stride": beats}, MLP),
                  inputs=rows.view(np.float16).astype(np.float32).view(np.uint32).reshape(-1))
    np.testing.assert_array_equal(core.row_memory, other.row_memory)
    assert (half.counters["rows_beats"], full.counters["rows_beats"]) == (count * -(-beats // 2), count * beats)


@pytest.mark.parametrize("name", SHAPES)
def test_weights_and_addends_lie_where_they_belong(name):
    core, random = filled(name, 3)
    w, a = core.weight_memory.copy(), core.addend_memory.copy()
    image = random.integers(0, 1 << 32, 300 * core.words, np.uint32)
    result, _ = run(core, encode("LOAD_WEIGHTS", {"count": 7, "source": 3, "steps": 9, "weight_line": 50}, MLP),
                    encode("LOAD_ADDENDS", {"count": 5, "source": 2, "addend_line": 61}, MLP), weights=image)
    lines = image[3 * core.words:][:7 * 9 * w.shape[2]].reshape(7, 9, -1)
    for g in range(7):
        for k in range(9):
            w[g % core.units, (50 + g // core.units * 9 + k) % w.shape[1]] = lines[g, k]
    for n in range(5):
        a[:, (61 + n) % a.shape[1]] = image[2 * core.words + n * core.columns:][:core.columns]
    np.testing.assert_array_equal(core.weight_memory, w)
    np.testing.assert_array_equal(core.addend_memory, a)
    assert result.counters["weights_beats"] == 63 * core.line_beats + -(-5 // core.groups_per_beat)


def test_nan_and_infinity_pass_through_a_layer():
    core, _ = filled("tiny", 4)
    core.row_memory[0, 0, 0, :2] = [0x7F800000, 0x3F800000]
    core.weight_memory[0, 0] = fp32.bits(np.float32([1, 0, -1, 0, 0, 0, np.nan, 0]))
    result, memory = run(core, encode("LAYER", {
        "count": 1, "steps": 1, "groups": 1, "last_columns": 4, "target": 3, "activation": 1}, MLP), outputs=1)
    assert result.code == mlp.OK
    assert memory.outputs[:4].tolist() == [fp32.INFINITY, 0, fp32.NAN, fp32.NAN]


LOAD = {"count": 4, "source": 1, "stride": 2, "row_beats": 2, "features": 1, "line_stride": 2}
WEIGHTS = {"count": 3, "source": 2, "steps": 2}
ADDENDS = {"count": 5, "source": 1}
DENSE = {"count": 5, "steps": 2, "groups": 3, "last_columns": 4, "target": 3, "out": 1, "out_stride": 2}
ALL = {"wait_rows": 1, "wait_weights": 2, "wait_layers": 1}
DOTS = {"count": 5, "row_beats": 1, "features": 3, "line_stride": 2, "to_line": 20}
TO_ROWS = {"count": 5, "steps": 2, "groups": 3, "last_columns": 4, "line_stride": 2, "to_line": 2, "to_line_stride": 2}
TO_PARTIALS = {**TO_ROWS, "addend": 1, "target": 2, "to_line": 3}
BAD_WORDS = [   # name, fields, (word, value) with each of which it is no instruction
    ("LOAD_ROWS", LOAD, [(0, 0), (0, 6), (0, 1 | 1 << 17), (1, 0), (1, 1 << 20), (4, 1 << 16), (4, 1 << 12 | 1 << 16),
                         (4, 2), (4, 2 | 2 << 16)]),
    ("LOAD_WEIGHTS", WEIGHTS, [(1, 0), (6, 0), (6, 1 << 12)]),
    ("LOAD_ADDENDS", ADDENDS, [(1, 0)]),
    ("LAYER", DENSE, [(0, 4 | 3 << 9 | 3 << 11), (0, 4 | 3 << 11 | 3 << 13), (0, 4 | 0 << 11 | 2 << 13),
                      (0, 4 | 2 << 11 | 1 << 13), (6, 0 | 3 << 16), (6, 2), (6, 2 | 1 << 28), (7, 0), (7, 5 << 16),
                      (11, 1)]),
    ("INTERACT", DOTS, [(4, 1 | 1 << 16), (4, 3 << 16)]),
    # Read are lines 0 and 1, biases 0 to 2, features 0 to 5; written are two beats of two groups of samples, twelve
    # lines of partials.
    ("LAYER", TO_ROWS, [(9, 1 | 2 << 16), (9, 2 | 1 << 16)]),
    ("LAYER", TO_PARTIALS, [(9, 2 | 2 << 16)]),
    ("INTERACT", DOTS, [(9, 5)]),
]
REFUSALS = [    # name, fields, (word, value) or None, code, detail (None: word 0)
    *((name, fields, change, program.BAD_INSTRUCTION, None) for name, fields, words in BAD_WORDS for change in words),
    ("LAYER", {**DENSE, "wait_rows": 2, "wait_weights": 9}, None, program.BAD_ORDER, mlp.ROWS),
    ("LAYER", {**DENSE, "wait_weights": 3}, None, program.BAD_ORDER, mlp.WEIGHTS),
    ("LAYER", {**DENSE, "wait_layers": 2}, None, program.BAD_ORDER, program.ENGINES[program.LAYER]),
    ("LOAD_ROWS", {**LOAD, "wait_layers": 1 << 31}, None, program.BAD_ORDER, program.ENGINES[program.LAYER]),
    ("LOAD_ROWS", {**LOAD, "source": 13}, None, program.BOUNDS, program.INPUTS),
    ("LOAD_ROWS", {**LOAD, "half": 1, "row_beats": 3, "source": 12}, None, program.BOUNDS, program.INPUTS),
    ("LOAD_ROWS", {**LOAD, "stride": 6}, None, program.BOUNDS, program.INPUTS),
    ("LOAD_ROWS", {**LOAD, "stride": 0xFFFFFFFF}, None, program.BOUNDS, program.INPUTS),
    ("LOAD_ROWS", {**LOAD, "features_in": 1, "features": 3}, None, program.BOUNDS, program.INPUTS),
    ("LOAD_WEIGHTS", {**WEIGHTS, "source": 15}, None, program.BOUNDS, program.WEIGHT_IMAGE),
    ("LOAD_WEIGHTS", {**WEIGHTS, "steps": 7}, None, program.BOUNDS, program.WEIGHT_IMAGE),
    ("LOAD_ADDENDS", {**ADDENDS, "source": 18}, None, program.BOUNDS, program.WEIGHT_IMAGE),
    ("LOAD_ADDENDS", {**ADDENDS, "source": 0xFFFFFFFF}, None, program.BOUNDS, program.WEIGHT_IMAGE),
    ("LAYER", {**DENSE, "out": 3}, None, program.BOUNDS, program.OUTPUTS),
    ("LAYER", {**DENSE, "out_stride": 3}, None, program.BOUNDS, program.OUTPUTS),
    ("LAYER", {**DENSE, "groups": 7, "out_stride": 4}, None, program.BOUNDS, program.OUTPUTS),
    ("LAYER", {**DENSE, "out": 0xFFFFFFFF, "out_stride": 0xFFFFFFFF}, None, program.BOUNDS, program.OUTPUTS),
]


@pytest.mark.parametrize(("name", "fields", "change", "code", "detail"), REFUSALS)
def test_refusals_name_their_instruction_and_write_nothing(name, fields, change, code, detail):
    core, _ = filled("tiny", 5)
    lead = [encode("LOAD_ROWS", LOAD, MLP), encode("LOAD_WEIGHTS", WEIGHTS, MLP),
            encode("LOAD_ADDENDS", ADDENDS, MLP), encode("LAYER", {**DENSE, **ALL, "wait_layers": 0}, MLP)]
    words = encode(name, ALL | fields, MLP)
    if change:
        words[change[0]] = change[1]
    buffers = {"inputs": np.zeros(18 * 8), "weights": np.zeros(20 * 8), "outputs": 12}
    good, _ = run(core, *lead, encode(name, fields | ALL, MLP), **buffers)
    assert code == program.BOUNDS or good.code == mlp.OK, "sound but for what the case changes"
    result, memory = run(core, *lead, words, lead[0], **buffers)
    assert (result.code, result.detail) == (code, int(words[0]) if detail is None else detail)
    assert (result.instruction, result.instructions_done) == (4, 4)
    written = np.ones((12, 8), bool)
    written[1:11] = False
    assert (memory.outputs.reshape(12, 8)[written] == 0xDEAD).all()


@pytest.mark.parametrize(("missing", "detail"), [("LOAD_ROWS", 0), ("LOAD_WEIGHTS", 1), ("LOAD_ADDENDS", 2)])
@pytest.mark.parametrize("dry", [False, True])
def test_operands_that_were_never_loaded(missing, detail, dry):
    """A layer that needs them ends in MEMORY, and nothing else does: what a layer writes is known."""
    core = Mlp(**SHAPES["tiny"])
    every = {"LOAD_ROWS": {**LOAD, "count": 5}, "LOAD_WEIGHTS": WEIGHTS, "LOAD_ADDENDS": ADDENDS}

    def program_of(*names):
        rows = "LOAD_ROWS" in names
        layer = {**DENSE, "addend": 1, "wait_rows": int(rows), "wait_weights": len(names) - rows}
        return np.concatenate([*(encode(name, every[name], MLP) for name in names), encode("LAYER", layer, MLP)])

    memory = Memory(program_of(*(name for name in every if name != missing)), np.zeros(18 * 8, np.uint32),
                    np.zeros(20 * 8, np.uint32), np.zeros(12 * 8, np.uint32))
    result = core.run(memory, dry=dry)
    assert (result.code, result.instruction, result.detail) == (mlp.MEMORY, 2, detail)
    assert any(known.any() for known in core.known) != dry
    if not dry:
        memory.program = program_of(missing)
        assert core.run(memory).code == mlp.OK


FEATURE = {**TO_ROWS, "groups": 2, "target": 1, "to_line_stride": 4, "to_line": 40, "line": 10, "addend_line": 40}
OTHERS = {**LOAD, "features_in": 1, "features": 2, "feature": 1, "line": 40, "line_stride": 4}
PAIRS = [       # the instruction before, an instruction that waits for nothing; the detail of EARLY, None: it may
    (("LOAD_ROWS", LOAD), ("LAYER", DENSE), 0),
    (("LOAD_ROWS", {**LOAD, "line": 1, "count": 1, "line_stride": 0}), ("LAYER", {**DENSE, "line_stride": 0}), 0),
    (("LOAD_ROWS", {**LOAD, "line": 2}), ("LAYER", DENSE), None),
    (("LOAD_ROWS", {**LOAD, "line": 62}), ("LAYER", DENSE), 0),     # around the end
    (("LOAD_ROWS", {**LOAD, "line": 60}), ("LAYER", DENSE), None),
    (("LOAD_ROWS", {**LOAD, "line": 2}), ("LAYER", {**TO_ROWS, "line": 30}), 0),
    (("LOAD_ROWS", {**LOAD, "line": 20}), ("INTERACT", DOTS), 0),
    (("LOAD_WEIGHTS", WEIGHTS), ("LAYER", DENSE), 1),
    (("LOAD_WEIGHTS", {**WEIGHTS, "weight_line": 4}), ("LAYER", DENSE), None),
    (("LOAD_ADDENDS", ADDENDS), ("LAYER", DENSE), None),
    (("LOAD_ADDENDS", ADDENDS), ("LAYER", {**DENSE, "addend": 1}), 1),
    (("LOAD_ADDENDS", {**ADDENDS, "addend_line": 14}), ("LAYER", TO_PARTIALS), 1),
    (("LAYER", DENSE), ("LOAD_ROWS", LOAD), 2),
    (("LAYER", DENSE), ("LOAD_ROWS", {**LOAD, "line": 2}), None),
    (("LAYER", {**TO_ROWS, "line": 30}), ("LOAD_ROWS", {**LOAD, "line": 4}), 2),
    (("LAYER", DENSE), ("LOAD_WEIGHTS", {**WEIGHTS, "weight_line": 3}), 2),
    (("LAYER", {**DENSE, "addend": 1}), ("LOAD_ADDENDS", {**ADDENDS, "addend_line": 2}), 2),
    (("LAYER", TO_PARTIALS), ("LOAD_ADDENDS", {**ADDENDS, "addend_line": 14}), 2),
    (("LOAD_ROWS", OTHERS), ("LAYER", FEATURE), None),
    (("LAYER", FEATURE), ("LOAD_ROWS", OTHERS), None),
    (("LAYER", FEATURE), ("LOAD_ROWS", {**OTHERS, "feature": 0}), 2),
    (("LAYER", FEATURE), ("LOAD_ROWS", {**OTHERS, "line": 41}), 2),
    (("LAYER", FEATURE), ("LOAD_ROWS", {**OTHERS, "line_stride": 5}), 2),
    (("LAYER", {**FEATURE, "groups": 6}), ("LOAD_ROWS", OTHERS), 2),
    (("LAYER", FEATURE), ("LOAD_ROWS", {**OTHERS, "line_stride": 3}), 2),
    (("LAYER", {**FEATURE, "feature": 3, "to_line": 42}), ("LOAD_ROWS", OTHERS), 2),
]


@pytest.mark.parametrize(("before", "after", "detail"), PAIRS)
def test_lines_that_are_shared_are_waited_for(before, after, detail):
    """Without a wait it is refused; with one, or behind one of its engine that waits, it is not."""
    core, _ = filled("tiny", 8)
    buffers = {"inputs": np.zeros(40 * 8), "weights": np.zeros(40 * 8), "outputs": 12}
    known = [("LOAD_ADDENDS", ADDENDS), ("LOAD_WEIGHTS", WEIGHTS)]
    assert run(core, *(encode(*item, MLP) for item in known), **buffers)[0].code == mlp.OK
    first, second = encode(*before, MLP), encode(*after, MLP)
    result, _ = run(core, first, second, **buffers)
    assert (result.code, result.instruction, result.detail) == (
        (mlp.OK, 0, 0) if detail is None else (program.EARLY, 1, detail))
    waits = {("wait_rows", "wait_weights", "wait_layers")[detail or 0]: int(detail is not None)}
    assert run(core, first, encode(after[0], after[1] | waits, MLP), **buffers)[0].code == mlp.OK
    assert run(core, first, encode(after[0], after[1] | waits, MLP), second, **buffers)[0].code == mlp.OK


def test_more_than_the_last_ones_are_waited_for():
    core, _ = filled("tiny", 9)
    layer, load = encode("LAYER", DENSE, MLP), {**LOAD, "line": 30}
    for layers, wait, code in ((WINDOW, 0, mlp.OK), (WINDOW + 1, 0, program.EARLY), (WINDOW + 1, 1, mlp.OK)):
        result, _ = run(core, *[layer] * layers, encode("LOAD_ROWS", load | {"wait_layers": wait}, MLP),
                        inputs=np.zeros(18 * 8), outputs=12)
        assert (result.code, result.detail) == (code, 2 if code else 0)


def test_edges_that_just_fit():
    core, _ = filled("tiny", 6)
    for name, fields in (("LOAD_ROWS", {**LOAD, "source": 10}), ("LOAD_WEIGHTS", {**WEIGHTS, "source": 14}),
                         ("LOAD_ADDENDS", {**ADDENDS, "source": 17}), ("LAYER", {**DENSE, "out": 2})):
        assert run(core, encode(name, fields, MLP), inputs=np.zeros(18 * 8), weights=np.zeros(20 * 8),
                   outputs=12)[0].code == mlp.OK, name


def test_a_program_may_wait_for_all_that_comes_before_it():
    core, _ = filled("tiny", 7)
    layer = {**DENSE, "wait_rows": 1, "wait_weights": 2}
    result, _ = run(core, encode("LOAD_ROWS", LOAD, MLP), encode("LOAD_WEIGHTS", WEIGHTS, MLP),
                    encode("LOAD_ADDENDS", {**ADDENDS, "wait_weights": 1, "wait_rows": 1}, MLP),
                    encode("LAYER", layer, MLP), encode("INTERACT", {**DOTS, "wait_layers": 1}, MLP),
                    inputs=np.zeros(18 * 8), weights=np.zeros(20 * 8), outputs=12)
    assert result.code == mlp.OK and result.counters["instructions"] == 5
