"""fpga.api.embedding on a card whose core is the oracle: torch's arguments, buffers, errors."""

from dataclasses import replace

import numpy as np
import pytest

import fpga.card.runs
from fpga.api.embedding import EmbeddingBags, RunError
from gen.compiler.tables import TT, CardImages, Table, held_cores
from gen.rtl.config import load
from golden.emb.core import Emb
from tests.support import emb_tables as make
from tests.support.emb_card import OracleCard


def opened(tables, config=None, cache_rows=None, **options):
    config = config or make.config()
    core = Emb.of(config, [t.cores for t in tables if t.cores])
    if cache_rows:
        tables = CardImages(tables, config, cache_rows=cache_rows)
    return EmbeddingBags(tables, card=OracleCard(core), preset=config, **options)


def pooled(rows, indices, offsets, mode, weights=None):
    out = np.zeros((len(offsets) - 1, rows.shape[1]))
    for bag, (start, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        part = rows[indices[start:end]] * (1 if weights is None else weights[start:end, None])
        if end > start:
            out[bag] = {"sum": part.sum, "mean": part.mean, "max": part.max}[mode](axis=0)
    return out


@pytest.mark.parametrize("mode", ["sum", "mean", "max", "weights"])
def test_all_modes_over_three_memories(mode):
    random = np.random.default_rng(len(mode))
    table = make.mixed(random)
    indices, offsets = make.bags(random, table.rows, 60, 12, zipf=0.7)
    weights = random.standard_normal(len(indices)).astype(np.float32) if mode == "weights" else None
    mode = "sum" if weights is not None else mode
    with opened([table], cache_rows={"items": 20}) as bags:
        got = bags("items", indices, offsets, weights, mode, include_last_offset=True)
        assert got.dtype == np.float32
        want = pooled(make.dense(table), indices, offsets, mode, weights)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-4)
        assert bags.last["indices"] == len(indices) and bags.last["code"] == 0
        again = bags("items", indices, offsets[:-1], weights, mode)
        np.testing.assert_allclose(again, got, rtol=1e-5, atol=1e-4)
        assert bags.program.filled == 0, "the second time every row that fits is cached"


@pytest.mark.parametrize("dim, columns", [(10, (3, 2, 2)), (18, (5, 2, 2)), (29, (2, 4, 4))])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_tensor_train_of_whole_beats_stands_for_narrower_rows(dim, columns, mode):
    random = np.random.default_rng(dim)
    table = Table.place("items", random.standard_normal((300, dim)), random.permutation(np.arange(300) % 3),
                        cores=make.cores(random, (5, 5, 4), columns, 4))
    indices, offsets = make.bags(random, 300, 40, 12)
    with opened([table]) as bags:
        got = bags("items", indices, offsets, None, mode, include_last_offset=True)
    assert got.shape == (40, dim) and bags.last["tt_rows"] > 0
    np.testing.assert_allclose(got, pooled(make.dense(table), indices, offsets, mode), rtol=2e-5, atol=2e-4)


def test_cores_in_half_the_bits():
    """Vectors are those of the rounded cores, of tables of either format beside each other."""
    random = np.random.default_rng(8)
    config = load("smartssd").cores["emb"]
    tables = [Table.place(form, np.zeros((120, 64)), TT, cores=make.cores(random, (5, 6, 4), (4, 4, 4), 6),
                          tt_format=form) for form in ("block16", "float32")]
    core = Emb.of(config, CardImages(tables, config).cores)
    with EmbeddingBags(tables, card=OracleCard(core), preset=config) as bags:
        for table in tables:
            held = replace(table, cores=held_cores(table.cores, table.tt_format))
            indices, offsets = make.bags(random, 120, 30, 9)
            got = bags(table.name, indices, offsets, include_last_offset=True)
            np.testing.assert_allclose(got, pooled(make.dense(held), indices, offsets, "sum"), rtol=2e-6, atol=2e-5)
            differs = np.abs(got - pooled(make.dense(table), indices, offsets, "sum")).max()
            assert (differs > 1e-3) == (table.tt_format == "block16")


@pytest.mark.parametrize("device, piece", [("smartssd", 2), ("smartssd_tuned", 0)])
def test_rows_lie_as_the_address_map_of_the_device_wants_them(device, piece):
    """In pieces where neighbouring lines lie in different banks, whole where they lie in one page."""
    random = np.random.default_rng(2)
    table = make.only(random, "items", make.DRAM, 40, 16)
    with EmbeddingBags([table], preset="tiny", device=device) as bags:
        assert bags.images.placed["items"].lies.piece_beats == piece
        found = bags("items", np.arange(40), np.arange(40))
    np.testing.assert_array_equal(found, table.dram)


def test_bags_of_one_length_and_padding():
    random = np.random.default_rng(3)
    table = make.mixed(random)
    indices = random.integers(0, 300, (7, 5))
    rows = make.dense(table)
    with opened([table]) as bags:
        np.testing.assert_allclose(bags("items", indices), rows[indices].sum(1), rtol=2e-5, atol=2e-4)
        indices[2] = indices[3, 1:3] = 9
        offsets = np.arange(0, 36, 5)
        kept = indices.reshape(-1) != 9
        want = pooled(rows, indices.reshape(-1)[kept], np.append(0, np.cumsum(kept))[offsets], "mean")
        np.testing.assert_allclose(bags("items", indices, mode="mean", padding_idx=9), want, rtol=2e-5, atol=2e-4)


def test_several_tables_in_one_run():
    random = np.random.default_rng(4)
    tables = [make.mixed(random), make.only(random, "flat", make.DRAM, 9, 6)]
    with opened(tables) as bags:
        runs = bags.card.runs
        one, two = bags.batch([bags.request("flat", [3, 4], [0, 0, 2]), bags.request("items", [[1, 2]])])
        assert bags.card.runs == runs + 1
        np.testing.assert_array_equal(one, np.stack([0 * tables[1].dram[0], tables[1].dram[3] + tables[1].dram[4],
                                                     0 * tables[1].dram[0]]))
        assert two.shape == (1, 16)


def test_buffers_grow_and_are_given_back():
    table = make.only(np.random.default_rng(5), "flat", make.DRAM, 9, 6)
    bags = opened([table])
    card = bags.card
    for count in (3, 500, 20):
        assert bags("flat", np.zeros(count, int), np.arange(count)).shape == (count, 6)
    bags.close()
    bags.close()
    assert not card.memory and not card.closed, "the card belongs to whoever opened it"


def test_a_card_opened_by_name_is_closed(monkeypatch):
    table = make.only(np.random.default_rng(5), "flat", make.DRAM, 9, 6)
    config = make.config()
    card = OracleCard(Emb.of(config))
    asked = []
    monkeypatch.setattr(fpga.card.runs, "open_card", lambda kind, **options: asked.append((kind, options)) or card)
    with EmbeddingBags([table], preset=config, memory="ideal"):
        assert asked == [("sim", {"core": "emb", "preset": config, "memory": "ideal"})] and not card.closed
    assert card.closed


def test_no_bags_are_no_run():
    table = make.only(np.random.default_rng(5), "flat", make.DRAM, 9, 6)
    with opened([table]) as bags:
        assert bags("flat", [], []).shape == (0, 6) and bags.batch([]) == [] and bags.card.runs == 0
        assert np.array_equal(bags("flat", [], [0, 0]), np.zeros((2, 6)))


def spoil(word, value, instruction=-1):
    def change(program):
        program[instruction, word] = value
    return change


def test_errors_of_the_core_name_table_and_place():
    random = np.random.default_rng(6)
    tables = [make.only(random, "flat", make.DRAM, 9, 6), make.only(random, "ssd", make.SSD, 64, 8)]
    with opened(tables, ring_bytes=8192) as bags:
        bags.card.spoil = spoil(7, 5)
        with pytest.raises(RunError, match="0, table flat, bag 1, index 3 of the request: INDEX_RANGE") as e:
            bags("flat", [1, 2, 3, 7], [0, 2])
        assert (e.value.table, e.value.request_bag, e.value.request_index, e.value.detail) == ("flat", 1, 3, 7)
        bags.card.spoil = spoil(0, 77)
        with pytest.raises(RunError, match=r"instruction 0, table ssd: BAD_INSTRUCTION: .* \(0x4d\)"):
            bags("ssd", [1], [0])
        bags.card.spoil = None
        assert bags("flat", [1], [0]).shape == (1, 6), "the next run is sound"


def test_an_instruction_in_the_middle_of_a_request():
    table = make.only(np.random.default_rng(7), "ssd", make.SSD, 4096, 16)     # 64 rows on each of 64 pages
    with opened([table], ring_bytes=4 * 4096) as bags:
        bags.card.spoil = spoil(14, 0, 1)
        with pytest.raises(RunError, match="instruction 1, table ssd, bag 1, index 2 of the request: INDEX_RANGE"):
            bags("ssd", np.arange(8).reshape(4, 2) * 64)


@pytest.mark.parametrize(("call", "sentence"), [
    (([0, 1],), "table flat: indices of 1 axis need offsets"),
    (([[0, 1]], [0]), "table flat: indices of 2 axes are bags of their own, so offsets must be None"),
    (([[[0]]],), "table flat: indices must have 1 or 2 axes, not 3"),
    (([0, 1], [0, 3]), "table flat: offsets must be whole numbers from 0 to the 2 indices"),
    (([0, 1], [0.5]), "table flat: offsets must be whole numbers from 0 to the 2 indices"),
    (([0, 1], [[0]]), r"table flat: offsets must have 1 axis, not the shape \(1, 1\)"),
    (([0, 1], [], None, "sum", True), "table flat: offsets must have 1 axis and an entry at least"),
    (([0, 1], [0, 1], None, "sum", True), "table flat: offsets must begin with 0 and end with the 2 indices"),
    (([0, 1], [1]), "table flat: offsets must begin with 0"),
    (([0, 1], []), "table flat: offsets must begin with 0"),
    (([0, 1], [0], [1.0]), r"table flat: per_sample_weights has shape \(1,\), the indices \(2,\)"),
    (([0, 1], [0], [1.0, 1.0], "max"), "table flat: weights go with mode sum alone, not with max"),
    (([0, 9], [0]), "table flat, bag 0, index 1: 9 is none of the table's 9 rows"),
    (([0, 1], [0], None, "median"), "table flat: mode must be one of sum, mean, max, not 'median'"),
])
def test_wrong(call, sentence):
    with opened([make.only(np.random.default_rng(8), "flat", make.DRAM, 9, 6)]) as bags:
        with pytest.raises(ValueError, match=sentence):
            bags("flat", *call)
