"""The EMB core's oracle: every refusal, and what a run leaves behind.

Vectors are compared with their tables in tests/gen/compiler/test_emb.py.
"""

import numpy as np
import pytest

from gen.compiler.emb import encode
from golden.emb import core as emb
from golden.emb import packer
from golden.emb.core import Emb, Memory
from golden.emb.signature import signature
from golden.tt.load import Bounds
from hw.isa import EMB, LONGEST_BAG
from hw.isa.emb import FORMAT

W = 4
BEATS = 2       # of a row


def test_names_are_those_of_the_isa():
    assert set(emb.COUNTERS) <= {value.name for value in EMB.counters}


class Case:
    """Six bags over ten rows in card memory and ring positions 0 to 15, ready to be spoilt."""

    def __init__(self):
        self.core = Emb(words=W, row_beats_max=4, stripe_beats=4, grid_log2=1, index_bits=8, lines=(256, 512, 8))
        random = np.random.default_rng(1)
        self.memory = Memory(np.zeros(0, np.uint32), np.zeros(24 * W, np.uint32), np.zeros(12 * W, np.uint32),
                             random.standard_normal(20 * W).astype(np.float32).view(np.uint32),
                             random.standard_normal(16 * W).astype(np.float32).view(np.uint32), 0, 16)
        self.lengths, self.indices = self.memory.inputs[:6], self.memory.inputs[2 * W:4 * W]
        self.lengths[:] = [2, 0, 1, 1, 3, 1]
        self.indices[:] = [0, 9, 2 << 30 | 0, 3, 2 << 30 | 14, 2 << 30 | 2, 3, 7]
        self.values = {"count": 6, "indices": 2, "indices_count": 8, "dram_rows": 10, "row_beats": BEATS,
                       "chunk_rows": 1, "out_stride": BEATS, "ring_count": 16, "release": 16}
        self.raw = {}

    def instruction(self, name="BAGS"):
        used = {use.field for use in EMB.instruction(name).uses}
        words = encode(name, {key: value for key, value in self.values.items() if key in used})
        for word, value in self.raw.items():
            words[word] = value
        return words

    def run(self, *names):
        self.memory.program = np.concatenate([self.instruction(name) for name in names or ("BAGS",)])
        return self.core.run(self.memory)


def test_a_run():
    case = Case()
    result = case.run()
    assert (result.code, result.released, result.instructions_done) == (emb.OK, 16, 1)
    rows, ring = (part.view(np.float32).reshape(-1, BEATS * W) for part in (case.memory.rows, case.memory.landed))
    want = [rows[0] + rows[9], 0 * rows[0], ring[0], rows[3], rows[3] + (ring[7] + ring[1]), rows[7]]
    np.testing.assert_allclose(case.memory.outputs.view(np.float32).reshape(6, -1), want, rtol=1e-6, atol=1e-6)
    assert result.counters == {"instructions": 1, "bags": 6, "indices": 8, "dram_rows": 5, "dram_bytes": 160,
                               "tt_rows": 0, "tt_bytes": 0, "ssd_rows": 3, "ssd_bytes": 96, "cache_fills": 0}


def test_what_lies_between_the_vectors_is_left_alone():
    case = Case()
    case.memory.outputs = np.full(40 * W, 7, np.uint32)
    case.values |= {"out": 3, "out_stride": 5}
    assert case.run().code == emb.OK
    beats = case.memory.outputs.reshape(-1, W)
    written = {3 + 5 * bag + beat for bag in range(6) for beat in range(BEATS)}
    assert all((beats[at] == 7).all() for at in range(40) if at not in written)
    assert not any((beats[at] == 7).all() for at in written)


@pytest.mark.parametrize("form", FORMAT)
@pytest.mark.parametrize("beats", [1, 2, 3])
def test_results_in_half_precision(form, beats):
    """Two beats of a vector in one, the rest of the last one 0; a buffer of just as many beats is enough."""
    case = Case()
    case.values |= {"row_beats": beats, "dram_rows": 20 // beats, "indices_count": 6, "ring_count": 0, "format": form}
    case.lengths[:], case.indices[:6] = 1, [5, 0, 2, 1, 4, 3]
    rows = case.memory.rows[:20 // beats * beats * W].reshape(-1, beats * W).view(np.float32)
    stride = beats if form == FORMAT.FLOAT32 else -(-beats // 2)
    case.values["out_stride"] = stride
    case.memory.outputs = np.full(6 * stride * W, 7, np.uint32)
    assert case.run().code == emb.OK
    outputs = case.memory.outputs.reshape(6, -1)
    if form == FORMAT.FLOAT16:
        half = outputs.view(np.float16)
        np.testing.assert_array_equal(half[:, :beats * W], rows[case.indices[:6]].astype(np.float16))
        assert not half[:, beats * W:].any()
    else:
        np.testing.assert_allclose(packer.unpack(outputs, form)[:, :beats * W], rows[case.indices[:6]],
                                   rtol=2**-8 if form else 1e-30)
    case.memory.outputs = case.memory.outputs[W:].copy()
    assert case.run().code == emb.BOUNDS


def test_a_fill_copies_rows_that_later_bags_read():
    case = Case()
    case.values |= {"indices": 6, "count": 2}
    case.memory.inputs[6 * W:7 * W] = [14, 1, 6, 9]
    case.memory.program = np.concatenate([case.instruction("FILL")])
    result = case.core.run(case.memory)
    rows, ring = case.memory.rows.reshape(10, -1), case.memory.landed.reshape(8, -1)
    assert result.code == emb.OK and result.counters["cache_fills"] == 2 and result.counters["ssd_bytes"] == 64
    assert np.array_equal(rows[1], ring[7]) and np.array_equal(rows[9], ring[3])


def test_positions_go_on_past_their_30_bits():
    case = Case()
    case.memory.landed_at = case.values["ring_first"] = (1 << 30) - 8
    case.indices[2] = 2 << 30 | ((1 << 30) - 8)
    case.indices[4], case.indices[5] = 2 << 30 | 6, 2 << 30 | 0
    assert case.run().code == emb.OK
    got = case.memory.outputs.reshape(6, -1)
    assert np.array_equal(got[2], case.memory.landed.reshape(8, -1)[0])


def bad(**raw):
    def spoil(case):
        case.values |= raw
    return spoil


def word(number, value):
    def spoil(case):
        case.raw[number] = value
    return spoil


def index(at, value):
    def spoil(case):
        case.indices[at] = value
    return spoil


def lengths(*values):
    def spoil(case):
        case.lengths[:] = values
    return spoil


TRAIN = 1 << 30
REFUSALS = [
    *((word(0, value), emb.BAD_INSTRUCTION, value, 0, 0) for value in (
        4, 0, 2 | 1 << 16, *(2 | form << 13 for form in (5, 6, 7)), 2 | 3 << 11, 2 | 3 << 8, 2 | 1 << 8 | 1 << 10,
        2 | 2 << 8 | 1 << 10)),
    *((word(number, value), emb.BAD_INSTRUCTION, 2, 0, 0) for number, value in (
        (1, 0), (8, 0), (8, 5), (9, 0), (9, 9 << 16), (9, 1 << 16 | 1 << 26), (13, 1 << 30), (15, 1 << 30))),
    (bad(piece_beats=3), emb.BAD_INSTRUCTION, 2, 0, 0),
    (bad(piece_beats=4), emb.BAD_INSTRUCTION, 2, 0, 0),
    (bad(row_beats=3, piece_beats=2), emb.BAD_INSTRUCTION, 2, 0, 0),
    (bad(row_beats=4, row_format=3, piece_beats=1, dram_rows=21), emb.BOUNDS, emb.ROWS, 0, 0),
    (bad(row_beats=4, row_format=1, piece_beats=2, dram_rows=11), emb.BOUNDS, emb.ROWS, 0, 0),
    (bad(row_beats=2, row_format=1, piece_beats=2), emb.BAD_INSTRUCTION, 2 | 1 << 13, 0, 0),
    (bad(piece_beats=1), emb.BOUNDS, emb.ROWS, 0, 0),       # whole blocks of four rows
    (bad(mode=2, chunk_rows=2), emb.BAD_INSTRUCTION, 2 | 2 << 8, 0, 0),
    (bad(weighted=1, chunk_rows=2), emb.BAD_INSTRUCTION, 2 | 1 << 10, 0, 0),
    (bad(tt_rows=257), emb.BAD_INSTRUCTION, 2, 0, 0),
    (bad(ring_count=17), emb.BOUNDS, emb.RING, 0, 0),
    (bad(lengths=23), emb.BOUNDS, emb.INPUTS, 0, 0),
    (bad(indices=23), emb.BOUNDS, emb.INPUTS, 0, 0),
    (bad(weighted=1, weights=23), emb.BOUNDS, emb.INPUTS, 0, 0),
    (bad(indices_count=(1 << 32) - 1), emb.BOUNDS, emb.INPUTS, 0, 0),
    (bad(dram_base=1), emb.BOUNDS, emb.ROWS, 0, 0),
    (bad(dram_rows=1 << 31), emb.BOUNDS, emb.ROWS, 0, 0),
    (bad(out=1), emb.BOUNDS, emb.OUTPUTS, 0, 0),
    (bad(out_stride=3), emb.BOUNDS, emb.OUTPUTS, 0, 0),
    (bad(out_stride=(1 << 32) - 1), emb.BOUNDS, emb.OUTPUTS, 0, 0),
    (index(3, 3 << 30 | 5), emb.INDEX_DEVICE, 3 << 30 | 5, 3, 3),
    (index(1, 10), emb.INDEX_RANGE, 10, 0, 1),
    (index(5, 2 << 30 | 16), emb.INDEX_RANGE, 2 << 30 | 16, 4, 5),
    (index(5, 2 << 30 | 15), emb.INDEX_RANGE, 2 << 30 | 15, 4, 5),
    (index(7, TRAIN | 3), emb.INDEX_RANGE, TRAIN | 3, 5, 7),
    (lengths(2, 0, 1, 6, 0, 0), emb.LENGTHS, 6, 3, 3),
    (lengths(2, 0, 1, 1, 2, 1), emb.LENGTHS, 1, 5, 6),
    (lengths(0, 0, 0, 0, 0, 9), emb.LENGTHS, 9, 5, 0),
    (lengths(0, 0, 0, 0, 0, 0), emb.LENGTHS, 0, 5, 0),
]


@pytest.mark.parametrize(("spoil", "code", "detail", "bag", "at"), REFUSALS)
def test_refusals_name_their_place_and_write_nothing(spoil, code, detail, bag, at):
    case = Case()
    case.memory.program = case.instruction()
    good = case.memory.program
    spoil(case)
    case.memory.program = np.concatenate([good, case.instruction()])
    if code in (emb.INDEX_DEVICE, emb.INDEX_RANGE, emb.LENGTHS):
        case.memory.program = case.memory.program[EMB.words:]
    before = case.memory.outputs.copy()
    result = case.core.run(case.memory)
    first = len(case.memory.program) // EMB.words - 1
    assert (result.code, result.detail, result.bag, result.index) == (code, detail, bag, at)
    assert (result.instruction, result.instructions_done) == (first, first)
    assert first or np.array_equal(case.memory.outputs, before)


def test_a_table_that_was_never_loaded():
    case = Case()
    case.values |= {"tt_rows": 4, "tt_table": 2}
    case.indices[3] = TRAIN | 3
    result = case.run()
    assert (result.code, result.detail, result.bag, result.index) == (emb.TT_TABLE, 2, 3, 3)


def table(case, **fields):
    """A table of 9 rows in vectors of 2 beats and chunks of 3 rows at most, loaded as number 2; its row 8 is asked."""
    case.core.loaded, case.core.bounds = {2}, {2: Bounds(rows=9, beats=2, chunk_rows=3)}
    case.values |= {"tt_rows": 9, "tt_table": 2, "chunk_rows": 3, **fields}
    case.indices[3] = TRAIN | 8


@pytest.mark.parametrize(("fields", "code"), [
    ({}, None), ({"tt_rows": 12}, None), ({"chunk_rows": 4}, emb.BAD_INSTRUCTION),
    ({"row_beats": 1, "out_stride": 1}, emb.BAD_INSTRUCTION), ({"row_beats": 3, "dram_rows": 6}, emb.BAD_INSTRUCTION),
    ({"tt_rows": 8}, emb.INDEX_RANGE), ({"chunk_rows": 4, "tt_rows": 0}, emb.INDEX_RANGE),
    ({"chunk_rows": 8, "tt_table": 3}, emb.TT_TABLE),
])
def test_the_bounds_of_a_table(fields, code):
    """An instruction that looks a table up is as the table's descriptor says."""
    case = Case()
    table(case, **fields)
    if code is None:        # as far as the cores, which nobody has handed over
        with pytest.raises(ValueError, match="the cores of the tensor-train table 2, which is loaded, are not known"):
            case.run()
        return
    result = case.run()
    place = (2, 0, 0) if code == emb.BAD_INSTRUCTION else (3 if code == emb.TT_TABLE else TRAIN | 8, 3, 3)
    assert (result.code, result.detail, result.bag, result.index) == (code, *place)


def test_rows_past_the_descriptor_are_out_of_range():
    case = Case()
    table(case, tt_rows=200)
    case.indices[3] = TRAIN | 9
    result = case.run()
    assert (result.code, result.detail, result.bag, result.index) == (emb.INDEX_RANGE, TRAIN | 9, 3, 3)


def test_a_load_says_the_bounds():
    """In the low words of the first and the last part of a descriptor."""
    case = Case()
    load_image(case, 2 << 16 | 0 << 18 | 5, 2 << 16 | 3 << 18 | 5)
    blocks = 16 // W
    case.memory.inputs[blocks * W], case.memory.inputs[(blocks + 1) * W] = 7 << 9 | 130, 1 << 13 | 6 << 10 | 2
    sign(case)
    assert case.run("LOAD").code == emb.OK
    assert case.core.bounds == {5: Bounds(rows=130, beats=3, chunk_rows=7)}


def load_image(case, *headers):
    case.memory.inputs = np.zeros(64 * W, np.uint32)
    case.memory.inputs[:len(headers)] = headers
    case.values |= {"indices": 0, "count": len(headers)}
    sign(case)


def sign(case):
    beats = case.values["count"] + 16 // W
    case.values["signature"] = signature(case.memory.inputs[:beats * W].reshape(-1, W))


def test_an_image_that_another_signature_belongs_to_unloads_all():
    case = Case()
    load_image(case, 2 << 16 | 3 << 18 | 5)
    assert case.run("LOAD").code == emb.OK and case.core.loaded == {5}
    case.memory.inputs[2 * W] ^= 1 << 31
    result = case.run("LOAD")
    assert result.code == EMB.code("SIGNATURE") and result.detail != case.values["signature"]
    assert not case.core.loaded and (result.instruction, result.bag, result.index) == (0, 0, 0)


@pytest.mark.parametrize("header", [1 << 22, 256, 512 | 1 << 16, 8 | 2 << 16, 64 | 3 << 16])
def test_a_load_header_that_leads_nowhere_unloads_all(header):
    case = Case()
    load_image(case, 2 << 16 | 3 << 18 | 5)
    assert case.run("LOAD").code == emb.OK and case.core.loaded == {5}
    load_image(case, 0, header)
    result = case.run("LOAD")
    assert (result.code, result.detail, result.index) == (emb.BAD_INSTRUCTION, header, 1)
    assert not case.core.loaded


@pytest.mark.parametrize(("pairs", "code", "detail", "index"), [
    ([0, 1, 0, 10], emb.INDEX_RANGE, 10, 3),
    ([0, 1, 15, 2], emb.INDEX_RANGE, 15, 2),
    ([1 << 30, 1, 0, 2], emb.INDEX_RANGE, 1 << 30, 0),
])
def test_fills_that_lead_nowhere(pairs, code, detail, index):
    case = Case()
    case.memory.inputs[6 * W:7 * W] = pairs
    case.values |= {"indices": 6, "count": 2}
    result = case.run("FILL")
    assert (result.code, result.detail, result.index, result.bag) == (code, detail, index, index // 2)


def test_fills_of_rows_that_no_index_word_names():
    case = Case()
    case.memory.inputs[6 * W:7 * W] = [0, (1 << 30) - 1, 0, 1 << 30]
    beats = (1 << 30) + 8
    case.memory.rows = np.lib.stride_tricks.as_strided(np.zeros(W, np.uint32), (beats * W,), (0,))   # no such memory
    case.values |= {"indices": 6, "count": 2, "dram_base": 0, "dram_rows": beats, "row_beats": 1, "piece_beats": 0}
    result = case.run("FILL")
    assert (result.code, result.detail, result.index) == (emb.INDEX_RANGE, 1 << 30, 3)


def test_a_row_that_never_lands():
    case = Case()
    case.memory.landed = case.memory.landed[:14 * W]
    result = case.run()
    assert (result.code, result.detail, result.bag, result.index) == (emb.TIMEOUT, 14, 0, 0)


def test_the_ring_brings_as_much_as_it_has_room_for():
    """A row a ring behind what was released does not land; a release may be ahead of all that has."""
    case = Case()
    case.memory.landed = np.concatenate([case.memory.landed, case.memory.landed])
    case.values |= {"ring_first": 14, "release": 0}
    case.indices[2], case.indices[4], case.indices[5] = 2 << 30 | 16, 2 << 30 | 14, 2 << 30 | 18
    assert (case.run().code, case.run().detail) == (emb.TIMEOUT, 16)
    for free in (3, 4):
        case.values |= {"release": free}
        first = case.instruction()
        first[[1, 3, 5]] = 1, 0, 0      # an empty bag
        case.memory.inputs[5 * W] = 0
        first[2] = 5
        case.memory.program = np.concatenate([first, case.instruction()])
        result = case.core.run(case.memory)
        assert (result.code, result.instruction) == ((emb.OK, 0) if free == 4 else (emb.TIMEOUT, 1)), free


def test_a_bag_has_a_longest_length():
    case = Case()
    case.memory.inputs = np.concatenate([case.memory.inputs, np.zeros(LONGEST_BAG + 4 * W, np.uint32)])
    case.lengths = case.memory.inputs[:6]
    for extra, code in ((0, emb.OK), (1, emb.LENGTHS)):
        case.lengths[:] = [0, 0, 0, LONGEST_BAG + extra, 0, 0]
        case.values |= {"indices": 24, "indices_count": LONGEST_BAG + extra}
        result = case.run()
        assert (result.code, result.bag, result.detail) == ((code, 3, LONGEST_BAG + 1) if extra else (emb.OK, 0, 0))
