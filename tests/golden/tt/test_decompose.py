"""Decomposition: exact where it can be, TT-SVD's bound where they do not, sentences for what cannot be."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden.tt.decompose import decompose, dense, largest_ranks, relative_error


def random_cores(rng, row_modes, column_modes, ranks):
    ranks = (1, *ranks, 1)
    return [rng.standard_normal((ranks[k], row_modes[k], column_modes[k], ranks[k + 1])).astype(np.float32)
            for k in range(len(row_modes))]


def test_dense_follows_the_documented_index():
    rng = np.random.default_rng(1)
    g1, g2, g3 = random_cores(rng, (2, 3, 2), (2, 1, 3), (3, 2))
    table = dense([g1, g2, g3])
    assert table.shape == (12, 6)
    for i1, i2, i3, j1, j2, j3 in np.ndindex(2, 3, 2, 2, 1, 3):
        wanted = (g1[0, i1, j1].astype(float) @ g2[:, i2, j2].astype(float) @ g3[:, i3, j3, 0].astype(float))
        assert table[(i1 * 3 + i2) * 2 + i3, (j1 * 1 + j2) * 3 + j3] == pytest.approx(wanted, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_exact_at_the_largest_ranks(data):
    cores = data.draw(st.integers(2, 4))
    row_modes = tuple(data.draw(st.integers(1, 4)) for _ in range(cores))
    column_modes = tuple(data.draw(st.integers(1, 4)) for _ in range(cores))
    rows = data.draw(st.integers(1, int(np.prod(row_modes))))
    table = np.random.default_rng(rows).standard_normal((rows, int(np.prod(column_modes))))
    found = decompose(table, row_modes, column_modes, largest_ranks(row_modes, column_modes))
    assert all(core.dtype == np.float32 for core in found)
    assert relative_error(table, found) < 1e-6
    assert np.abs(dense(found)[rows:]).max(initial=0) < 1e-5  # padding


def test_a_train_is_found_again_at_its_own_ranks():
    rng = np.random.default_rng(2)
    table = dense(random_cores(rng, (5, 7, 3), (2, 4, 4), (3, 4)))
    assert relative_error(table, decompose(table, (5, 7, 3), (2, 4, 4), (3, 4))) < 1e-6
    assert relative_error(table, decompose(table, (5, 7, 3), (2, 4, 4), (2, 4))) > 1e-2


def test_error_is_within_the_bound_of_tt_svd():
    """Squared error is at most the sum of what the two unfoldings' SVDs drop (Oseledets, theorem 2.2)."""
    table = np.random.default_rng(3).standard_normal((60, 16))
    row_modes, column_modes, ranks = (4, 5, 3), (2, 4, 2), (5, 4)
    tensor = table.reshape(*row_modes, *column_modes).transpose(0, 3, 1, 4, 2, 5)
    dropped = 0.0
    for k, rank in enumerate(ranks, start=1):
        left = int(np.prod(row_modes[:k]) * np.prod(column_modes[:k]))
        dropped += np.sum(np.linalg.svd(tensor.reshape(left, -1), compute_uv=False)[rank:] ** 2)
    error = relative_error(table, decompose(table, row_modes, column_modes, ranks))
    assert 0 < error ** 2 <= dropped / np.sum(table ** 2) * (1 + 1e-6)


def test_same_cores_every_time():
    table = np.random.default_rng(4).standard_normal((60, 16))
    first, second = (decompose(table, (4, 5, 3), (2, 4, 2), 4) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second))


@pytest.mark.parametrize(("table", "arguments", "message"), [
    (np.ones((24, 8)), ((2, 3, 3), (2, 2, 2), 2),
     "row_modes (2, 3, 3) multiply to 18, fewer than the table's 24 rows"),
    (np.ones((24, 8)), ((2, 3, 4), (2, 2, 3), 2),
     "column_modes (2, 2, 3) multiply to 12, not to the table's 8 columns"),
    (np.ones((24, 8)), ((2, 3, 4), (2, 2, 2), (5, 2)),
     "rank 1 is 5; with row_modes (2, 3, 4) and column_modes (2, 2, 2) it must be 1 to 4"),
    (np.ones((24, 8)), ((2, 3, 4), (2, 2, 2), (1, 7)), "rank 2 is 7; after rank 1 = 1 it must be 1 to 6"),
    (np.ones((24, 8)), ((2, 3, 4), (2, 2, 2), (2, 2, 2)),
     "ranks (2, 2, 2) must be 2, one between each two of 3 cores"),
    (np.ones((24, 8)), ((24, 1), (2, 2, 2), 2),
     "row_modes (24, 1) and column_modes (2, 2, 2) must be equally many"),
    (np.ones((24, 8)), ((24,), (8,), 1),
     "row_modes (24,) must be 2 or more factors: one core is the table itself"),
    (np.ones((24, 8)), ((2, 0, 12), (2, 2, 2), 2), "row_modes (2, 0, 12) must be whole numbers of 1 or more"),
    (np.ones(24), ((2, 3, 4), (2, 2, 2), 2), "table must be a matrix (rows, D), not an array of shape (24,)"),
    (np.array([[1.0, 2.0], [3.0, np.inf]]), ((2, 1), (2, 1), 1),
     "table[1, 1] is inf: only finite values have a decomposition"),
])
def test_decompose_wrong(table, arguments, message):
    with pytest.raises(ValueError) as caught:
        decompose(table, *arguments)
    assert str(caught.value) == message


def test_cores_wrong():
    a, b = np.zeros((1, 2, 2, 3)), np.zeros((3, 2, 2, 1))
    for cores, words in (([a, a], "core 2 "), ([b], "core 1 "), ([a], "rank"), ([], "core"),
                         ([a, np.zeros((3, 2))], "core 2 ")):
        with pytest.raises(ValueError, match=words):
            dense(cores)
    with pytest.raises(ValueError) as caught:
        relative_error(np.ones((5, 4)), [a, b])
    assert str(caught.value) == ("cores stand for a table of shape (4, 4), "
                                 "which does not hold one of shape (5, 4)")
