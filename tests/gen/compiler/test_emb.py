"""Compiled batches: carried out by the oracle, and their ring of SSD pages checked against a host's credit."""

from dataclasses import replace

import numpy as np
import pytest

from gen.compiler.emb import Bags, Compiler, encode
from gen.compiler.tables import SSD, CardImages, Table
from gen.model.device import Device
from gen.model.recommender import ROW_FORMATS
from gen.model.row_formats import quantise
from golden import tt
from golden.emb import row_decoder
from golden.emb.core import Emb, Memory
from golden.fp import fp32
from golden.fp.narrow import narrow, widen
from hw.isa import EMB
from tests.support import emb_tables as make

PAGE = 256


def core_for(images, config):
    return Emb.of(config, images.cores)


def run(core, compiler, program):
    """Carries out a program on the oracle; the card's rows stay with the images, as on a card."""
    images = compiler.images
    outputs = np.full(program.outputs_beats * images.words, 0xDEAD, np.uint32)
    memory = Memory(program.words.reshape(-1), program.inputs.reshape(-1), outputs, images.rows.reshape(-1),
                    images.pages[program.pages].reshape(-1), 0, compiler.ring_beats)
    result = core.run(memory)
    assert result.code == 0, result
    return program.vectors(outputs), result


def plainly(table, chunk, bags, grid_log2, slots=None):
    """The vectors of a request, bag after bag, from the table as it was given; `slots` says which ranks of the
    SSD are cached: they pool with the rows of DRAM.
    """
    dram, placement = table.dram, table.placement.copy()
    if slots is not None:
        at = np.flatnonzero(placement >> 30 == 2)
        at = at[slots[placement[at] & 0x3FFFFFFF] >= 0]
        placement[at] = len(dram) + (placement[at] & 0x3FFFFFFF)
        dram = np.concatenate([dram, table.ssd])
    out = np.zeros((len(bags.offsets) - 1, table.dim), np.float32)
    for at, (start, end) in enumerate(zip(bags.offsets[:-1], bags.offsets[1:], strict=True)):
        address = placement[np.asarray(bags.indices)[start:end]]
        weight = np.ones(end - start, np.float32) if bags.weights is None else bags.weights[start:end]
        device, number = address >> 30, address & 0x3FFFFFFF
        if bags.weights is not None or bags.mode == "max":
            chunk = 1
        partial, factor = [], []
        train = number[device == 1]
        for first in range(0, len(train), chunk):
            part = train[first:first + chunk]
            partial.append(tt.pooled(table.cores, part, [0, len(part)], grid_log2=grid_log2)[0])
            factor.append(weight[device == 1][first])
        for place, rows in ((0, dram), (2, table.ssd)):
            mine = device == place
            if mine.any():
                rows = rows[number[mine]]
                partial.append(largest(rows) if bags.mode == "max" else fp32.dot(rows.T, weight[mine], 1))
                factor.append(np.float32(1))
        if partial and bags.mode == "max":
            out[at] = largest(partial)
        elif partial:
            if bags.mode == "mean":
                factor = [fp32.div(np.float32(1), np.float32(end - start))] * len(partial)
            out[at] = fp32.dot(np.stack(partial).T, np.array(factor, np.float32), 1)
    return out


def largest(rows):
    best = fp32.flush(rows[0])
    for row in rows[1:]:
        best = fp32.maximum(best, row)
    return best


def follow_the_ring(compiler, program):
    """The host fills as far as the released position lets it: every instruction must find its stretch."""
    ring, released = compiler.ring_beats, 0
    total = len(program.pages) * program.page_beats
    for words in program.words.astype(np.int64):
        first, count, release = words[13:16]
        filled = min(total, released + ring)
        if count:
            assert count <= ring and first + count <= filled, "waits for a page that the host may not bring yet"
            assert first >= released and first >= filled - ring, "reads what the host may have overwritten"
        assert released <= release <= total
        released = release
    assert released == total


@pytest.mark.turns(1, of="flows")
@pytest.mark.parametrize("cache", [0, 10, 200])
@pytest.mark.parametrize("mode", ["sum", "mean", "max", "weights"])
def test_vectors_are_those_of_the_table(mode, cache):
    random = np.random.default_rng([cache, len(mode)])
    config = make.config()
    tables = [make.mixed(random), make.only(random, "dram", make.DRAM, 40, 7),
              make.only(random, "ssd", make.SSD, 90, 24), make.mixed(random, "again", 90, (2, 2, 2), (4, 4, 2), 3)]
    images = CardImages(tables, config, PAGE, {"items": cache, "ssd": cache} if cache else {})
    compiler = Compiler(images, ring_beats=256)
    core = core_for(images, config)
    run(core, compiler, compiler.load())
    for _ in range(4):
        batch = []
        for table in tables:
            indices, offsets = make.bags(random, table.rows, 25, 9, zipf=0.8)
            weights = random.standard_normal(len(indices)).astype(np.float32) if mode == "weights" else None
            batch.append(Bags(table.name, indices, offsets, weights, "sum" if weights is not None else mode))
        program = compiler.compile(batch)
        compiler.commit(program)
        follow_the_ring(compiler, program)
        found, result = run(core, compiler, program)
        for table, bags, vectors in zip(tables, batch, found, strict=True):
            cached = compiler.caches[table.name].slots if table.name in compiler.caches else None
            want = plainly(table, images.placed[table.name].chunk_rows, bags, config.tt.grid_log2, cached)
            assert np.array_equal(vectors.view(np.uint32), want.view(np.uint32)), table.name
        assert result.counters["bags"] == 100 and result.counters["cache_fills"] == program.filled
        assert result.counters["indices"] == sum(len(bags.indices) for bags in batch)


def test_results_in_the_format_of_their_table():
    """Each request's vectors are those of FP32 rounded, in as many beats as that takes, whatever the others have."""
    random = np.random.default_rng(4)
    tables = [make.mixed(random, name) for name in ("float32", "float16", "bfloat16")]
    batch = []
    for table in tables:
        indices, offsets = make.bags(random, table.rows, 20, 6)
        batch.append(Bags(table.name, indices, offsets))
    found = {}
    for name in ("float32", "own"):
        placed = [replace(table, results=table.name if name == "own" else name) for table in tables]
        images = CardImages(placed, make.config(), PAGE, {})
        compiler = Compiler(images, ring_beats=1 << 10)
        core = core_for(images, make.config())
        run(core, compiler, compiler.load())
        program = compiler.compile(batch)
        found[name] = run(core, compiler, program)[0]
        beats = images.placed["float32"].row_beats
        assert [item.beats for item in program.outputs] == (
            [beats] * 3 if name == "float32" else [beats, -(-beats // 2), -(-beats // 2)])
        assert program.outputs_beats == 20 * sum(item.beats for item in program.outputs)
    for form, plain, own in zip(("float32", "float16", "bfloat16"), found["float32"], found["own"], strict=True):
        want = plain if form == "float32" else widen(narrow(plain, form), form)
        np.testing.assert_array_equal(own, want)
        assert own.dtype == np.float32
    with pytest.raises(ValueError, match="^table float32: results must be one of float32, float16, bfloat16, not"):
        replace(tables[0], results="half")


@pytest.mark.parametrize("mode", ["sum", "mean", "max", "weights"])
@pytest.mark.parametrize("form", ROW_FORMATS)
def test_vectors_of_rows_in_every_format(form, mode):
    """Are those of FP32 rows that have the format's values, from DRAM, SSD and row cache; FBGEMM's rows give the same
    as the rows that they were made of. Rows of one beat to the longest."""
    random = np.random.default_rng([len(form), len(mode)])
    config, made = make.config(), []
    for dim in (2, 20, 64):
        values = random.standard_normal((150, dim)).astype(np.float32)
        device = random.permutation(np.resize([0, 2], 150))
        given = {form: values, "float32": make.as_stored(values, form)}
        if form in ("int8", "int4"):
            given["fused"] = quantise(values, form)
        made.append({name: Table.place(f"t{dim}", rows, device, row_format=form if name == "fused" else name)
                     for name, rows in given.items()})
    batch = []
    for each in made:
        indices, offsets = make.bags(random, 150, 30, 9, zipf=0.8)
        weights = random.standard_normal(len(indices)).astype(np.float32) if mode == "weights" else None
        batch.append(Bags(each["float32"].name, indices, offsets, weights, "sum" if weights is not None else mode))
    found = {}
    for name in made[0]:
        images = CardImages([each[name] for each in made], config, PAGE, {"t20": 30})
        compiler = Compiler(images, ring_beats=1 << 11)
        program = compiler.compile(batch)
        found[name], result = run(core_for(images, config), compiler, program)
        assert program.filled > 0
        if name != "float32":
            stored = [row_decoder.beats(beats, ROW_FORMATS.index(form)) for beats in (1, 5, 16)]
            assert [placed.row_beats for placed in images.placed.values()] == stored
            moved = result.counters["dram_bytes"] + result.counters["ssd_bytes"]
            lookups = [len(bags.indices) for bags in batch]
            assert moved == 16 * (np.dot(lookups, stored) + program.filled * stored[1])
    for name, vectors in found.items():
        for own, plain in zip(vectors, found["float32"], strict=True):
            assert np.array_equal(own.view(np.uint32), plain.view(np.uint32)), name


def test_indices_of_two_memories_go_in_pairs_and_errors_name_those_of_the_request():
    random = np.random.default_rng(3)
    config = make.config()
    table = make.mixed(random)
    images = CardImages([table], config, PAGE)
    indices, offsets = make.bags(random, table.rows, 40, 9)
    weights = random.standard_normal(len(indices)).astype(np.float32)
    program = Compiler(images, ring_beats=256).compile([Bags(table.name, indices, offsets, weights)])
    seen, in_pairs = [], False
    for words, origin in zip(program.words, program.origins, strict=True):
        item = EMB.decode(words.tolist())
        start = item.indices * images.words
        asked = program.inputs.reshape(-1)[start:start + item.indices_count]
        factors = program.inputs.reshape(-1)[item.weights * images.words:][:item.indices_count]
        mine = origin.indices
        kept = asked >> 30 != SSD
        assert np.array_equal(asked[kept], table.placement[indices[mine]][kept])
        assert np.array_equal(factors, weights[mine].view(np.uint32))
        lengths = program.inputs.reshape(-1)[item.lengths * images.words:][:item.count]
        for bag, own in zip(origin.bags, np.split(mine, np.cumsum(lengths)[:-1]), strict=True):
            assert sorted(own) == list(range(offsets[bag], offsets[bag + 1]))
        assert origin.place(1, 2) == (origin.bags[1], mine[2])
        seen.extend(mine)
        in_pairs |= bool((np.diff(mine) < 0).any())
    assert sorted(seen) == list(range(len(indices))) and in_pairs


@pytest.mark.parametrize("pages", [1, 2, 4, 16])
@pytest.mark.parametrize("drive", [None, replace(Device.load("smartssd").ssd, channels=3, dies=1,
                                                 flash_page_bytes=2 * PAGE)])
def test_a_small_ring_cuts_requests_into_instructions(pages, drive):
    random = np.random.default_rng(pages)
    config = make.config()
    table = make.only(random, "ssd", make.SSD, 400, 8)
    images = CardImages([table], config, PAGE)
    compiler = Compiler(images, ring_beats=pages * images.page_beats, drive=drive)
    core = core_for(images, config)
    indices, offsets = make.bags(random, 400, 120, 1 if pages == 1 else 2, zipf=0.5)
    program = compiler.compile([Bags("ssd", indices, offsets)])
    follow_the_ring(compiler, program)
    (vectors,), _ = run(core, compiler, program)
    want = plainly(table, 1, Bags("ssd", indices, offsets), 1)
    assert np.array_equal(vectors.view(np.uint32), want.view(np.uint32))
    assert program.count > 1


@pytest.mark.turns(1)
@pytest.mark.parametrize("pages, drive", [(2, None), (8, Device.load("smartssd").ssd)])
def test_requests_that_wait_for_different_memories_take_turns(pages, drive):
    """Parts of each, in the request's order; the ring is released as the SSD's parts alone allow."""
    random = np.random.default_rng(pages)
    config = make.config()
    tables = [make.only(random, "dram", make.DRAM, 300, 8), make.mixed(random, "tt"),
              make.only(random, "ssd", make.SSD, 400, 8)]
    images = CardImages(tables, config, PAGE)
    compiler = Compiler(images, ring_beats=pages * images.page_beats, drive=drive)
    core = core_for(images, config)
    run(core, compiler, compiler.load())
    trains = np.flatnonzero(tables[1].placement >> 30 == make.TT)
    batch = []
    for table, longest in zip(tables, (6, 30, 2), strict=True):
        indices, offsets = make.bags(random, table.rows, 200, longest)
        batch.append(Bags(table.name, trains[indices % len(trains)] if table.name == "tt" else indices, offsets))
    program = compiler.compile(batch)
    follow_the_ring(compiler, program)
    found, result = run(core, compiler, program)
    for table, bags, vectors in zip(tables, batch, found, strict=True):
        want = plainly(table, images.placed[table.name].chunk_rows, bags, config.tt.grid_log2)
        assert np.array_equal(vectors.view(np.uint32), want.view(np.uint32)), table.name
    assert result.counters["bags"] == 600
    order = np.array([origin.request for origin in program.origins])
    for request in range(3):
        mine = [origin.bags for origin in program.origins if origin.request == request]
        bags = np.concatenate(mine)
        assert len(mine) > 1 and np.array_equal(np.sort(bags), np.arange(200))
        assert request == 2 or np.array_equal(bags, np.arange(200)), "in their order where they wait for no page"
        assert np.ptp(np.flatnonzero(order == request)) > len(order) // 2, "from the beginning to the end"
    (alone,) = {origin.request for origin in compiler.compile(batch[:1]).origins}
    assert alone == 0 and compiler.compile(batch[:1]).count == 1, "nothing to take turns with"


@pytest.mark.turns(3)
def test_bags_are_pooled_in_the_order_of_their_last_pages():
    """No bag waits for a page behind that of a later one."""
    random = np.random.default_rng(8)
    table = make.mixed(random)
    images = CardImages([table], make.config(), PAGE)
    indices, offsets = make.bags(random, table.rows, 200, 5, zipf=0.8)
    program = Compiler(images, ring_beats=1 << 12).compile([Bags(table.name, indices, offsets)])
    assert len(program.pages) > 4
    last, asked = [], []
    for words, origin in zip(program.words, program.origins, strict=True):
        item = EMB.decode(words.tolist())
        lengths, read = (program.inputs.reshape(-1)[at * images.words:][:count].astype(np.int64)
                         for at, count in ((item.lengths, item.count), (item.indices, item.indices_count)))
        for own in np.split(read, np.cumsum(lengths)[:-1]):
            last.append(max([-1, *((own[own >> 30 == SSD] & 0x3FFFFFFF) // images.page_beats)]))
        asked.extend(origin.bags)
    assert last == sorted(last) and sorted(asked) == list(range(200)) != asked


def test_a_page_is_brought_once_while_it_is_in_the_ring():
    random = np.random.default_rng(2)
    table = make.only(random, "ssd", make.SSD, 64, 8)
    images = CardImages([table], make.config(), PAGE)       # 8 rows a page
    compiler = Compiler(images, ring_beats=1024)
    program = compiler.compile([Bags("ssd", [60, 1, 2, 60], [0, 2, 4]), Bags("ssd", [3, 61, 20], [0, 3], None, "max")])
    assert list(program.pages) == [7, 0, 2], "as many rows of each: in the order of first use"
    assert program.transfers.tolist() == [[7, 0], [0, 16], [2, 32]]
    assert program.asked == 7 * 32 and program.brought == 3 * PAGE
    assert program.count == 2 and list(program.words[:, 15]) == [0, 48], "pages that are needed again are kept"


def test_a_bag_may_take_the_whole_ring_but_no_more():
    table = make.only(np.random.default_rng(3), "ssd", make.SSD, 64, 8)
    compiler = Compiler(CardImages([table], make.config(), PAGE), ring_beats=64)    # 4 of the 8 pages
    follow_the_ring(compiler, compiler.compile([Bags("ssd", [0, 8, 0, 8, 16, 24], [0, 2, 6])]))
    with pytest.raises(ValueError, match="table ssd, bag 1: its rows lie on 5 pages of the SSD, the ring holds 4"):
        compiler.compile([Bags("ssd", [0, 1, 8, 16, 24, 32], [0, 1, 6])])


def test_a_refused_batch_leaves_the_cache_as_it_was():
    table = make.only(np.random.default_rng(4), "ssd", make.SSD, 64, 8)
    compiler = Compiler(CardImages([table], make.config(), PAGE, {"ssd": 1}), ring_beats=16)
    before = compiler.caches["ssd"].slots.copy()
    with pytest.raises(ValueError, match="bag 0: its rows lie on 2 pages"):
        compiler.compile([Bags("ssd", [60, 20, 40], [0, 3])])
    assert np.array_equal(compiler.caches["ssd"].slots, before)


def test_the_cache_changes_when_a_program_has_run():
    table = make.only(np.random.default_rng(4), "ssd", make.SSD, 64, 8)
    compiler = Compiler(CardImages([table], make.config(), PAGE, {"ssd": 4}), ring_beats=64)
    before = compiler.caches["ssd"].slots.copy()
    first, again = (compiler.compile([Bags("ssd", [60, 20], [0, 2])]) for _ in range(2))
    assert first.filled == 2 and np.array_equal(first.words, again.words), "nobody has said that the first has run"
    assert np.array_equal(compiler.caches["ssd"].slots, before)
    compiler.commit(first)
    assert compiler.compile([Bags("ssd", [60, 20], [0, 2])]).filled == 0
    with pytest.raises(ValueError, match="the step was prepared after 1 steps, the cache has taken 2"):
        compiler.commit(again)


def test_cached_rows_need_no_page():
    table = make.only(np.random.default_rng(5), "ssd", make.SSD, 64, 8)
    compiler = Compiler(CardImages([table], make.config(), PAGE, {"ssd": 8}), ring_beats=64)
    program = compiler.compile([Bags("ssd", [0, 7, 3], [0, 3])])
    assert len(program.pages) == 0 and program.cached == 3 and program.filled == 0
    compiler.commit(program)
    program = compiler.compile([Bags("ssd", [9, 9, 3], [0, 3])])
    assert list(program.pages) == [1] and program.filled == 1 and program.cached == 3
    assert list(program.words[:, 0] & 0xFF) == [3, 2], "the row is copied, then the bag reads the cache"


def test_words_in_place_of_rows():
    random = np.random.default_rng(8)
    table = make.mixed(random)
    indices, offsets = make.bags(random, 300, 40, 6)
    one, other = (Compiler(CardImages([table], make.config(), PAGE, {"items": 20}), ring_beats=128).compile([bags])
                  for bags in (Bags("items", indices, offsets),
                               Bags("items", table.placement[indices], offsets, remapped=True)))
    assert np.array_equal(one.words, other.words) and np.array_equal(one.inputs, other.inputs)
    compiler = Compiler(CardImages([table], make.config(), PAGE), ring_beats=128)
    for word in (100, 1 << 30 | 100, 2 << 30 | 100, 3 << 30, 1 << 32, -1):
        with pytest.raises(ValueError, match=f"table items, bag 1, index 0: {word} is none of the table's remapped w"):
            compiler.compile([Bags("items", np.array([0, word]), [0, 1, 2], remapped=True)])


def test_the_same_batches_give_the_same_bytes():
    def programs():
        random = np.random.default_rng(6)
        compiler = Compiler(CardImages([make.mixed(random)], make.config(), PAGE, {"items": 20}), ring_beats=128)
        for _ in range(3):
            program = compiler.compile([Bags("items", *make.bags(random, 300, 50, 6))])
            compiler.commit(program)
            yield program

    for one, other in zip(programs(), programs(), strict=True):
        assert np.array_equal(one.words, other.words) and np.array_equal(one.inputs, other.inputs)
        assert np.array_equal(one.pages, other.pages)


def test_empty_batches_and_bags():
    config = make.config()
    table = make.only(np.random.default_rng(7), "dram", make.DRAM, 5, 4)
    images = CardImages([table], config)
    compiler = Compiler(images)
    assert compiler.compile([]).count == 0 and compiler.load().count == 0
    program = compiler.compile([Bags("dram", [], [0]), Bags("dram", [], [0, 0, 0])])
    found, _ = run(core_for(images, config), compiler, program)
    assert found[0].shape == (0, 4) and np.array_equal(found[1], np.zeros((2, 4), np.float32))


@pytest.mark.parametrize(("bags", "sentence"), [
    (Bags("genre", [0], [0, 1]), "there is no table 'genre'; there are items"),
    (Bags("items", [0, 300], [0, 1, 2]), "table items, bag 1, index 0: 300 is none of the table's 300 rows"),
    (Bags("items", [0, 1, -1], [0, 0, 3]), "table items, bag 1, index 2: -1 is none of the table's 300 rows"),
    (Bags("items", [0, 1], [0, 2, 1, 2]), "table items, bag 1: its offset 2 is larger than the next, 1"),
    (Bags("items", np.zeros(65540, int), [0, 3, 65540]), "table items, bag 1: it has 65537 indices; a bag has at most"),
    (Bags("items", [0, 1], [0, 1]), "table items: offsets must begin with 0 and end with the 2 indices"),
    (Bags("items", [0, 1], [1, 2]), "table items: offsets must begin with 0 and end with the 2 indices"),
    (Bags("items", [0.5], [0, 1]), r"table items: indices must be whole numbers with 1 axis, not float64 of shape"),
    (Bags("items", [0], [0, 1], None, "median"), "table items: mode must be one of sum, mean, max, not 'median'"),
    (Bags("items", [0], [0, 1], [1.0], "mean"), "table items: weights go with mode sum alone, not with mean"),
    (Bags("items", [0], [0, 1], [1.0, 2.0]), r"table items: 1 indices need as many weights, not \(2,\)"),
])
def test_batch_wrong(bags, sentence):
    compiler = Compiler(CardImages([make.mixed(np.random.default_rng(0))], make.config()), ring_beats=1024)
    with pytest.raises(ValueError, match=sentence):
        compiler.compile([bags])


def test_compiler_wrong():
    images = CardImages([make.only(np.random.default_rng(0), "ssd", make.SSD, 3, 24)], make.config())
    for build, sentence in (
        (lambda: Compiler(images), "ring_beats must be at least a page's 256, not 0"),
        (lambda: Compiler(images, ring_beats=300), "ring_beats must be 0 or a power of two"),
        (lambda: encode("LOAD", {"mode": 1}), "LOAD has no field mode"),
        (lambda: encode("BAGS", {"mode": 3}), "BAGS: mode must be 0 to 2, not 3"),
    ):
        with pytest.raises(ValueError, match=sentence):
            build()
