"""Tables and the card's images of them: where rows lie, and that they can be read back from there."""

from dataclasses import replace

import numpy as np
import pytest

import gen.compiler.tables
from gen.compiler.tables import CardImages, Table, stripes
from gen.model.weights import Rows
from tests.support import emb_tables as make

PAGE = 256


@pytest.mark.parametrize("beats, piece", [
    (1, 0), (2, 0), (3, 0), (4, 2), (8, 4), (11, 0), (12, 4), (16, 4), (20, 4), (32, 4)])
def test_the_pieces_of_rows(beats, piece):
    """Those that are the fastest on the simulated card; an odd number of beats is not cut."""
    assert stripes(beats, 8) == (beats, piece, 8)
    assert stripes(beats, 8, row_in_page=True) == (beats, 0, 8)


def test_tables_in_pieces_begin_with_a_stripe_and_end_with_a_block():
    random, config = np.random.default_rng(3), make.config()
    sizes = {"one": (3, 5), "four": (16, 7), "odd": (44, 3), "wide": (64, 1), "none": (32, 0)}
    tables = [make.only(random, name, make.DRAM, rows, dim) for name, (dim, rows) in sizes.items()]
    images = CardImages(tables, config, PAGE)
    found = {name: (placed.dram_base, placed.dram_end, placed.lies.piece_beats)
             for name, placed in images.placed.items()}
    # 5 rows of a beat; two blocks of 4 rows of four; 3 rows of eleven; a block of 2 rows of sixteen.
    assert found == {"one": (0, 5, 0), "four": (8, 40, 2), "odd": (40, 73, 0), "wide": (80, 112, 4),
                     "none": (112, 112, 4)}
    assert images.rows.shape == (112, 4)
    for name, placed in images.placed.items():
        held = placed.read(images.rows, np.arange(sizes[name][1]))[:, :sizes[name][0]]
        assert np.array_equal(held.view(np.float32), placed.table.dram)


def test_chunks_are_longer_than_one_row_where_the_train_allows():
    random = np.random.default_rng(1)
    table = make.mixed(random, rank=2)
    assert CardImages([table], make.config(), PAGE).placed["items"].chunk_rows > 1


def test_slices_of_columns():
    """Of rows that are there and of those that are made when asked for; images are those of the slice alone."""
    random = np.random.default_rng(8)
    whole = make.only(random, "items", make.SSD, 40, 12)
    whole = replace(whole, dram=random.standard_normal((9, 12)).astype(np.float32))
    lazy = replace(whole, **{name: Rows(len(values), 12, lambda k, v=values: v[k])
                             for name, values in (("dram", whole.dram), ("ssd", whole.ssd))})
    part = slice(4, 10)
    wanted = CardImages([replace(whole, dim=6, dram=whole.dram[:, part], ssd=whole.ssd[:, part])], make.config(), PAGE)
    for table in (whole, lazy):
        assert table.columns(part).dim == 6 and table.columns(part).placement is table.placement
        found = CardImages([table.columns(part)], make.config(), PAGE)
        assert np.array_equal(found.rows, wanted.rows) and np.array_equal(found.pages, wanted.pages)
    with pytest.raises(ValueError, match="^table t: a tensor train cannot be cut into slices of columns$"):
        make.mixed(random, "t").columns(part)
    with pytest.raises(ValueError, match="^table items: rows of int8 cannot be cut into slices of columns$"):
        replace(whole, row_format="int8").columns(part)


def test_images_of_rows_that_are_made_when_asked_for(monkeypatch):
    random = np.random.default_rng(9)
    tables = [make.mixed(random, "one", 300), make.mixed(random, "two", 100, columns=(2, 2, 2)),
              make.only(random, "three", make.SSD, 7, 9)]
    whole = CardImages(tables, make.config(), 192, {"one": 20, "three": 9})     # pages end behind their rows
    monkeypatch.setattr(gen.compiler.tables, "BLOCK", 16)
    lazy = [replace(table, **{name: Rows(len(values), table.dim, lambda k, v=values: v[k])
                              for name, values in (("dram", table.dram), ("ssd", table.ssd))}) for table in tables]
    made = {}

    def room(name, shape):
        made[name] = np.zeros(shape, np.uint32)
        return made[name]

    found = CardImages(lazy, make.config(), 192, {"one": 20, "three": 9}, room)
    assert found.rows is made["rows"] and found.pages is made["pages"]
    counted = [replace(table, dram=Rows(len(table.dram), table.dim), ssd=Rows(len(table.ssd), table.dim))
               for table in tables]
    stored = CardImages(counted, make.config(), 192, {"one": 20, "three": 9}, stored=made)
    for images in (found, stored):
        assert np.array_equal(images.rows, whole.rows) and np.array_equal(images.pages, whole.pages)
        assert np.array_equal(images.load, whole.load)
    with pytest.raises(ValueError, match=r"the image rows must have the shape \(\d+, 4\), not \(\d+, 4\)"):
        CardImages(counted[:1], make.config(), 192, stored=made)
    with pytest.raises(ValueError, match="of these rows only the number is known"):
        CardImages(counted, make.config(), 192)


def test_images_wrong():
    random = np.random.default_rng(0)
    config = make.config()
    wide = make.only(random, "wide", make.DRAM, 3, 65)
    ssd = make.only(random, "ssd", make.SSD, 3, 24)
    for build, sentence in (
        (lambda: CardImages([wide], config), "table wide: rows of 65 words take 17 beats, this core takes 16"),
        (lambda: CardImages([ssd, ssd], config), "two tables are called ssd"),
        (lambda: CardImages([ssd], config, 64), "table ssd: a row of 96 bytes does not fit a page of 64"),
        (lambda: CardImages([ssd], config, 100), "page_bytes must be a multiple of the beat's 16 bytes, not 100"),
        (lambda: CardImages([ssd], config, cache_rows={"s": 1}), "cache_rows names 's'; there are ssd"),
        (lambda: Table.place("t", np.zeros((2, 4)), 1), "table t, row 0: is row 0 of the tensor train, which has 0"),
        (lambda: Table.place("t", np.zeros((2, 4)), [0, 3]), "table t: device must be 0, 1 or 2, not 0 .. 3"),
        (lambda: Table.place("t", np.zeros((2, 9)), 0, cores=make.cores(random, (2, 2), (2, 4), 2)),
         "table t: the cores' rows have 8 words, the table's 9"),
        (lambda: CardImages([Table.place("t", np.zeros((2, 4)), 0, cores=make.cores(random, (2, 2), (2, 4), 2))],
                            config),
         "table t: rows of the tensor train have 8 words, which are not as many beats as the 4 of the table's"),
        (lambda: CardImages([make.mixed(random, "deep", rank=17)], config), "table deep: rank R_1 is 17"),
        (lambda: Table.place("t", np.zeros((2, 4)), 0, row_format="int2"),
         "table t: row_format must be one of float32, float16, bfloat16, int8, int4, not 'int2'"),
        (lambda: Table.place("t", np.zeros((2, 5)), 0, row_format="int4"),
         "table t: dim must be even for rows of int4, not 5"),
        (lambda: Table("t", 4, np.zeros(2, np.uint32), np.zeros((2, 5), np.uint8), np.zeros((0, 4), np.float32),
                       row_format="int8"),
         r"table t: dram must be \(rows, 4\), or uint8 \(rows, 12\), not uint8 \(2, 5\)"),
        (lambda: CardImages([Table.place("t", [[1, 2], [3, 4], [5, 7e4]], [2, 0, 0], row_format="float16")], config),
         "table t, row 2: its value 70000.0 is past the largest float16"),
        (lambda: CardImages([Table.place("t", [[1, 2], [3, np.nan], [5, 7]], [2, 2, 0], rank=[1, 0, 2],
                                         row_format="int8")], config),
         "table t, row 1: its scale, a float32, is nan"),
    ):
        with pytest.raises(ValueError, match=sentence):
            build()
