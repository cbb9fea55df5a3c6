"""A session on the RTL of the smallest unit: what comes back is what the models say."""

import numpy as np
import pytest

from gen.rtl import session
from gen.rtl.config import load
from golden import tt

CONFIG = load("tiny").cores["tt"]


def cores(seed, modes, columns, rank):
    rng = np.random.default_rng(seed)
    ranks = (1, *(rank,) * (len(modes) - 1), 1)
    return [rng.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
            for k in range(len(modes))]


@pytest.mark.turns(1, of="syntheses")
def test_two_tables_of_different_width():
    tables = [cores(1, (3, 2, 2), (2, 2, 2), 2), cores(2, (4, 3), (2, 2), 3)]
    ids = np.array([0, 1, 1, 0, 0, 1] * 4)
    indices = np.arange(ids.size) % 12
    offsets = np.flatnonzero(np.diff(ids, prepend=-1, append=-1))
    done = session.run(CONFIG, tables, ids, indices, offsets, rows=[12, 11], name="tt_tiny")
    outside = (ids == 1) & (indices == 11)
    assert np.array_equal(done.errors, np.logical_or.reduceat(outside, offsets[:-1]))
    for m, (first, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        wanted = tt.pooled(tables[ids[first]], indices[first:end], [0, end - first], grid_log2=CONFIG.grid_log2)
        if not done.errors[m]:
            assert np.array_equal(done.vectors[m].view(np.uint32), wanted[0].view(np.uint32)), m
    assert done.counters["lookups"] == ids.size and done.counters["outside"] == outside.sum() > 0
    assert (done.last_at > done.taken_at[offsets[1:] - 1]).all()


@pytest.mark.turns(1, of="syntheses")
def test_vectors_of_one_width_are_a_matrix():
    table = cores(3, (3, 2, 2), (2, 2, 2), 2)
    indices = np.array([11, 0, 5])
    done = session.run(CONFIG, [table], np.zeros(3, int), indices, np.arange(4), name="tt_tiny")
    assert done.vectors.shape == (3, 8) and done.vectors.dtype == np.float32
    assert np.array_equal(done.vectors.view(np.uint32),
                          tt.rows(table, indices, grid_log2=CONFIG.grid_log2).view(np.uint32))


def test_a_table_that_does_not_fit_is_refused_before_anything_is_built():
    table = cores(4, (4, 4, 4), (8, 8, 2), 2)
    with pytest.raises(ValueError, match="this unit takes at most 64"):
        session.run(CONFIG, [table], np.zeros(1, int), np.zeros(1, int), [0, 1], name="tt_tiny")
