"""Columns of a log that share a table."""

import numpy as np
import pytest

from gen.data.logs import of_arrays
from gen.data.logs.columns import by_table
from gen.data.profiling import stream

IDS = {"seen": [5, 6, 7], "bought": [1, 5, 9], "user": [0, 1, 2], "left": [4, 4, 4]}
OFFSETS = {"bought": [0, 2, 2, 3]}


def log(parts=1):
    return of_arrays(IDS, OFFSETS, {"label": [0, 1, 0]}, parts=parts)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_table_of_two_columns(parts):
    found = by_table(log(parts), {"item": ("seen", "bought"), "person": ("user",)})
    assert found.tables == ("item", "person")
    bags = []
    for chunk in found.chunks(2):
        assert set(chunk.ids) == {"item", "person"} and len(chunk.values["label"]) == chunk.samples
        edges = chunk.edges("item")
        bags += [chunk.ids["item"][start:stop].tolist() for start, stop in zip(edges, edges[1:])]
    assert bags == [[5, 1, 5], [6], [7, 9]]
    table = stream.profile(found).tables["item"]
    assert dict(zip(table.ids.tolist(), table.counts.tolist())) == {1: 1, 5: 2, 6: 1, 7: 1, 9: 1}


def test_samples_keep_their_numbers():
    plain, joined = log(3), by_table(log(3), {"item": ("seen", "bought")})
    assert [chunk.first for chunk in plain.chunks()] == [chunk.first for chunk in joined.chunks()]
    assert [piece.first for piece in joined.parts()] == [piece.first for piece in plain.parts()]


def test_the_same_names_are_the_log_itself():
    given = log()
    assert by_table(given, {"user": ("user",), "seen": ("seen",)}) is given


def test_a_column_that_is_not_there():
    with pytest.raises(ValueError, match="table item: arrays has no column 'clicked'; it has seen, bought, user, left"):
        by_table(log(), {"item": ("clicked",)})


def test_columns_of_random_bags():
    random = np.random.default_rng(4)
    edges = {name: np.concatenate([[0], np.cumsum(random.integers(0, 4, 50))]) for name in "abc"}
    given = of_arrays({name: random.integers(0, 99, edge[-1]) for name, edge in edges.items()}, edges)
    (plain,), (joined,) = given.chunks(), by_table(given, {"t": ("c", "a", "b")}).chunks()
    for sample in range(50):
        wanted = [plain.ids[name][edges[name][sample]:edges[name][sample + 1]] for name in "cab"]
        at = joined.offsets["t"]
        assert joined.ids["t"][at[sample]:at[sample + 1]].tolist() == np.concatenate(wanted).tolist()
