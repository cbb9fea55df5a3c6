"""Trained tables with the ids of their rows."""

import numpy as np
import pytest

from gen.data.remap import Remap, rows_of
from gen.data.trained import TrainedTable, TrainedWeights, placed
from gen.model.row_formats import quantise, values

RANDOM = np.random.default_rng(1)
ROWS = RANDOM.standard_normal((6, 4)).astype(np.float32)
COUNTED = np.array([3, 10, 77, 1 << 63], np.uint64)


def table(**options):
    return TrainedTable("items", ROWS, 4, **options)


def vectors(made, ids):
    """Of ids of the log, as a bundle finds them."""
    weights = TrainedWeights([made], "m.pt")
    rows = rows_of(made.spec, np.asarray(ids, np.uint64), weights.vocabulary(made.spec))
    return weights.rows(made.spec, rows)


@pytest.mark.parametrize("ids, asked, wanted", [
    (None, [0, 5], [0, 5]),
    ("modulo", [7, 66], [1, 0]),
    ([40, 10, 99, 3], [3, 10, 40, 99, 4], [3, 1, 0, 2, 5]),
    ({77: 2, 3: 0, 10: 2}, [77, 3, 10, 0], [2, 0, 2, 5]),
    (lambda ids: ids % 3, [3, 10, 77, 1 << 63, 5], [0, 1, 2, 2, 5]),
])
def test_an_id_reads_the_row_that_it_was_trained_with(ids, asked, wanted):
    assert np.array_equal(vectors(placed(table(ids=ids), COUNTED), asked), ROWS[wanted])


def test_ids_that_are_texts_are_those_of_a_log():
    from gen.data.logs.cells import as_id

    made = placed(table(ids={"red": 4, "-3": 1, "12": 2}), COUNTED)
    red = as_id(np.frombuffer(b"red\0", np.uint8), 0, 3)
    assert np.array_equal(vectors(made, [red, (1 << 64) - 3, 12]), ROWS[[4, 1, 2]])


def test_unknown_ids_have_a_row_of_their_own():
    made = placed(table(ids=[4, 9], unknown=3), COUNTED)
    assert np.array_equal(vectors(made, [4, 9, 5]), ROWS[[0, 1, 3]])
    assert made.order.tolist() == [0, 1, 2, 4, 5, 3]


@pytest.mark.parametrize("ids", [None, [8, 2, 5, 1], {1: 5, 2: 5, 9: 0}])
def test_a_row_of_the_model_is_found_again(ids):
    """numbers: of the array's rows; what compile's modules look up."""
    made = placed(table(ids=ids), COUNTED)
    assert np.array_equal(TrainedWeights([made], "").rows(made.spec, made.numbers()), ROWS)


def test_as_the_cards_remap_them():
    made = placed(table(ids={77: 2, 3: 0}), COUNTED)
    words = np.arange(made.spec.rows, dtype=np.uint32)
    assert Remap(made.spec, words, made.vocabulary)([3, 77, 5]).tolist() == [0, 1, made.spec.rows - 1]


@pytest.mark.parametrize("form, dim", [("int8", 4), ("int4", 4), ("int4", 8)])
def test_quantised_rows_stay_as_they_are(form, dim):
    """Rows of int4 of eight values have eight bytes, too."""
    fused = quantise(np.tile(ROWS, dim // 4), form)
    made = placed(TrainedTable("items", fused, dim, row_format=form, ids=[9, 3]), COUNTED)
    weights = TrainedWeights([made], "m.pt")
    assert np.array_equal(weights.fused(made.spec), fused[made.order])
    assert np.array_equal(weights.rows(made.spec, np.arange(6)), values(fused[made.order], form))


def test_parameters_have_a_digest_of_their_rows():
    one, other = (TrainedWeights([placed(TrainedTable("items", rows, 4), COUNTED)], "m.pt").about
                  for rows in (ROWS, ROWS + 1))
    assert one["model"] == "m.pt" and len(one["sha256"]) == 64 and one["sha256"] != other["sha256"]


@pytest.mark.parametrize("changes, sentence", [
    ({"array": np.zeros((6, 3), np.float32)}, "its rows must be (rows, 4), one at least, not float32 of shape (6, 3)"),
    ({"array": np.zeros((6, 4), int)}, "its rows must be floats, not int64"),
    ({"array": np.zeros((0, 4), np.float32)}, "its rows must be (rows, 4), one at least, not float32 of shape (0, 4)"),
    ({"unknown": 6}, "unknown = 6: must be a row from 0 to 5"),
    ({"ids": [1.5]}, "ids must be whole numbers or texts in one dimension, not float64 of shape (1,)"),
    ({"ids": [4, 4]}, "the id 4 has more than one row"),
    ({"ids": {5: 6}}, "the id 5 has row 6; the table has 6 rows"),
    ({"ids": {5: 1.0}}, "the rows of 1 ids must be as many whole numbers, not float64 of shape (1,)"),
    ({"ids": lambda ids: ids[:1]}, "the rows of 4 ids must be as many whole numbers, not uint64 of shape (1,)"),
    ({"ids": range(9)}, "the id 6 has row 6; the table has 6 rows"),
])
def test_mistakes_are_a_sentence(changes, sentence):
    with pytest.raises(ValueError) as error:
        placed(TrainedTable("items", **{"array": ROWS, "dim": 4, **changes}), COUNTED)
    assert str(error.value) == f"table items: {sentence}"


def test_rows_are_finite():
    rows = ROWS.copy()
    rows[2, 1] = np.inf
    made = placed(TrainedTable("items", rows, 4), COUNTED)
    with pytest.raises(ValueError, match="table items: row 2 has inf; rows must be finite float32 numbers"):
        TrainedWeights([made], "").rows(made.spec, np.arange(6))
