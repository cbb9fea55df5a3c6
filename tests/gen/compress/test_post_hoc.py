"""Trains of finished tables in blocks: against TensorLy's decomposition, its error, memory maps, bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorly.decomposition import tensor_train_matrix

from gen.compress import post_hoc
from gen.compress.post_hoc import decompose, within
from gen.rtl.config import load
from golden import tt
from golden.tt.cores import largest_ranks

BIG = load("smartssd").cores["emb"].tt
CASES = [(210, (5, 6, 8), (2, 3, 4), (4, 5)), (240, (5, 6, 8), (2, 3, 4), (10, 32)), (100, (30, 4), (6, 2), (7,)),
         (100, (4, 30), (2, 6), (8,)), (117, (3, 5, 4, 2), (2, 2, 3, 1), (5, 6, 2)),
         (90, (45, 2, 1), (12, 1, 1), (2, 1)), (1, (2, 1, 1), (2, 2, 2), (1, 1))]


def table_of(rows, dim, seed=0):
    """Rows with a spectrum that falls, so that singular vectors are told apart."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, dim)) * 0.8 ** np.arange(dim) + rng.standard_normal(dim)).astype(np.float32)


def by_tensorly(values, modes, columns, ranks):
    """In float64, the rows behind the last zeros."""
    padded = np.zeros((np.prod(modes), np.prod(columns)))
    padded[:len(values)] = values
    return tensor_train_matrix(padded.reshape(*modes, *columns), rank=[1, *ranks, 1])


@pytest.fixture(params=[1 << 22, 300], ids=["whole", "blocks"])
def block_words(request, monkeypatch):
    monkeypatch.setattr(post_hoc, "BLOCK_WORDS", request.param)


@pytest.mark.parametrize("rows, modes, columns, ranks", CASES)
def test_tables_are_those_of_tensorly(block_words, rows, modes, columns, ranks):
    values = table_of(rows, int(np.prod(columns)))
    factors = decompose(values, modes, columns, ranks)
    theirs = by_tensorly(values, modes, columns, ranks)
    assert [core.shape for core in factors.cores] == [core.shape for core in theirs]
    assert all(core.dtype == np.float32 and core.flags.c_contiguous for core in factors.cores)
    found = tt.dense(factors.cores)
    np.testing.assert_allclose(found, tt.dense(theirs), rtol=0, atol=3e-5 * np.abs(values).max())
    error = np.linalg.norm(found[:rows] - values) / np.linalg.norm(values)
    assert factors.error == pytest.approx(error, rel=1e-6, abs=1e-7)
    assert factors.words == sum(core.size for core in theirs)


def test_a_train_is_found_to_rounding(block_words):
    rng = np.random.default_rng(4)
    cores = [rng.standard_normal(shape) for shape in ((1, 6, 2, 3), (3, 7, 4, 4), (4, 5, 2, 1))]
    assert decompose(tt.dense(cores), (6, 7, 5), (2, 4, 2), (3, 4)).error < 1e-6


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_exact_at_the_largest_ranks(data):
    cores = data.draw(st.integers(2, 4))
    modes = tuple(data.draw(st.integers(1, 4)) for _ in range(cores))
    columns = tuple(data.draw(st.integers(1, 4)) for _ in range(cores))
    rows = data.draw(st.integers(1, int(np.prod(modes))))
    table = np.random.default_rng(rows).standard_normal((rows, int(np.prod(columns))))
    found = decompose(table, modes, columns, largest_ranks(modes, columns))
    assert found.error < 1e-6
    assert np.abs(tt.dense(found.cores)[rows:]).max(initial=0) < 1e-5   # padding


def test_error_is_within_the_bound_of_tt_svd():
    """Squared error is at most the sum of what the two unfoldings' SVDs drop (Oseledets, theorem 2.2)."""
    table = np.random.default_rng(3).standard_normal((60, 16))
    modes, columns, ranks = (4, 5, 3), (2, 4, 2), (5, 4)
    tensor = table.reshape(*modes, *columns).transpose(0, 3, 1, 4, 2, 5)
    dropped = 0.0
    for k, rank in enumerate(ranks, start=1):
        left = int(np.prod(modes[:k]) * np.prod(columns[:k]))
        dropped += np.sum(np.linalg.svd(tensor.reshape(left, -1), compute_uv=False)[rank:] ** 2)
    error = decompose(table, modes, columns, ranks).error
    assert 0 < error ** 2 <= dropped / np.sum(table ** 2) * (1 + 1e-6)


def test_memory_maps_and_zeros(tmp_path):
    values = table_of(300, 16)
    path = tmp_path / "table.npy"
    np.save(path, values)
    mapped = np.load(path, mmap_mode="r")
    assert decompose(mapped, (7, 7, 7), (2, 4, 2), 4).error == decompose(values, (7, 7, 7), (2, 4, 2), 4).error
    none = decompose(np.zeros((20, 8), np.float32), (3, 3, 3), (2, 2, 2), 2)
    assert none.error == 0 and not tt.dense(none.cores).any()


def test_what_is_printed():
    text = str(decompose(table_of(210, 24), (5, 6, 8), (2, 3, 4), (4, 5)))
    factors = decompose(table_of(210, 24), (5, 6, 8), (2, 3, 4), (4, 5))
    assert text == f"210 x 24 as 5x6x8 by 2x3x4, ranks 4x5: relative error {factors.error:.3f}, 560 words for 5,040"


def test_within_an_error_the_lowest_rank():
    rng = np.random.default_rng(2)
    cores = [rng.standard_normal(shape) for shape in ((1, 8, 2, 4), (4, 8, 4, 4), (4, 8, 2, 1))]
    values = tt.dense(cores) + 0.01 * rng.standard_normal((512, 16))
    for error in (0.9, 0.3, 0.1):
        shape, factors = within(values, error, config=BIG)
        assert factors.error <= error and max(shape.ranks) in (1, 2, 4, 8, 16, 32, 64)
        lower = [rank for rank in (1, 2, 4, 8, 16, 32) if rank < shape.rank]
        for rank in lower[-1:]:
            other = post_hoc.best(512, 16, config=BIG, rank=rank)
            assert decompose(values, other.modes, other.columns, other.ranks).error > error
        assert [core.shape[1] for core in factors.cores] == list(shape.modes)


def test_bad_input_is_a_sentence():
    values = table_of(30, 8)
    with pytest.raises(ValueError, match=r"^row_modes \(2, 2, 2\) multiply to 8, fewer than the table's 30 rows$"):
        decompose(values, (2, 2, 2), (2, 2, 2), 2)
    with pytest.raises(ValueError, match=r"^rank 1 is 9; with row_modes"):
        decompose(values, (4, 4, 2), (2, 2, 2), (9, 2))
    spoilt = values.copy()
    spoilt[17, 3] = np.nan
    with pytest.raises(ValueError, match=r"^table\[17, 3\] is nan: only finite values have a decomposition$"):
        decompose(spoilt, (4, 4, 2), (2, 2, 2), 2)
    with pytest.raises(ValueError, match=r"^table must be a matrix \(rows, D\), not an array of shape \(8,\)$"):
        decompose(values[0], (4, 4, 2), (2, 2, 2), 2)
    with pytest.raises(ValueError, match=r"^no tensor train within the bounds comes nearer than 0.001 to the table; "
                                         r"the nearest is 300 x 64 as .*: relative error 0\.\d+, "):
        within(table_of(300, 64), 0.001, config=BIG, cycles=1, bytes=50_000)
    with pytest.raises(ValueError, match=r"^no tensor train of 30 rows of 8 words at rank 64 within 10 bytes"):
        within(values, 0.1, config=BIG, bytes=10)
