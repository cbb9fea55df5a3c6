"""A session on the RTL of the smallest unit: what comes back is what the models say."""

import numpy as np
import pytest

from bench import session
from gen.rtl.config import load
from golden import tt

CONFIG = load("tiny").cores["tt"]


def cores(seed, modes, columns, rank):
    rng = np.random.default_rng(seed)
    ranks = (1, *(rank,) * (len(modes) - 1), 1)
    return [rng.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
            for k in range(len(modes))]


def test_two_tables_of_different_width():
    tables = [cores(1, (3, 2, 2), (2, 2, 2), 2), cores(2, (4, 3), (2, 2), 3)]
    ids = np.array([0, 1, 1, 0, 0, 1] * 4)
    indices = np.arange(ids.size) % 12
    done = session.run(CONFIG, tables, ids, indices, rows=[12, 11], name="tt_tiny")
    for table in (0, 1):
        wanted = tt.rows(tables[table], indices, grid_log2=CONFIG.grid_log2)
        for n in np.flatnonzero((ids == table) & ~done.errors):
            assert np.array_equal(done.vectors[n].view(np.uint32), wanted[n].view(np.uint32)), n
    assert np.array_equal(done.errors, (ids == 1) & (indices == 11))
    assert done.counters["lookups"] == ids.size and done.counters["outside"] == done.errors.sum()
    assert (done.last_at > done.taken_at).all() and done.build_seconds > 0


def test_vectors_of_one_width_are_a_matrix():
    table = cores(3, (3, 2, 2), (2, 2, 2), 2)
    indices = np.array([11, 0, 5])
    done = session.simulator(CONFIG, "tiny")([table], np.zeros(3, int), indices)
    assert done.vectors.shape == (3, 8) and done.vectors.dtype == np.float32
    assert np.array_equal(done.vectors.view(np.uint32),
                          tt.rows(table, indices, grid_log2=CONFIG.grid_log2).view(np.uint32))


def test_a_table_that_does_not_fit_is_refused_before_anything_is_built():
    table = cores(4, (4, 4, 4), (8, 8, 2), 2)
    with pytest.raises(ValueError, match="this unit takes at most 64"):
        session.run(CONFIG, [table], np.zeros(1, int), np.zeros(1, int), name="tt_tiny")
