"""Learners: each step lowers the common objective, planted structure is found, seeds decide everything."""

import numpy as np
import pytest

from bench import learn
from gen.compress.post_hoc import decompose
from golden.tt.cores import dense

pytestmark = pytest.mark.regress


def planted(seed=0, users=60, items=24, columns=8, noise=0.1, density=0.6, cores=None):
    """Ratings of a known table: a dense random one or that of `cores`."""
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((items, columns)) if cores is None else learn.table(cores)
    taste = rng.standard_normal((users, columns))
    scores = 3 + taste @ table.T + noise * rng.standard_normal((users, items))
    u, i = np.nonzero(rng.random((users, items)) < density)
    return learn.split(u, i, scores[u, i], held_out=0.2, seed=seed), table


def train(ratings, sweeps, **more):
    return learn.tensor_train(ratings, row_modes=(2, 3, 4), column_modes=(2, 2, 2), rank=2, sweeps=sweeps,
                              **more)


def test_split_is_disjoint_seeded_and_about_the_share():
    ratings, _ = planted()
    learned, held = ratings.part(False)[0].size, ratings.part(True)[0].size
    assert learned + held == ratings.values.size
    assert 0.1 < held / ratings.values.size < 0.3
    again, _ = planted()
    assert np.array_equal(again.held_out, ratings.held_out)


def test_objective_never_rises():
    ratings, _ = planted()
    for learner in (lambda n: learn.dense(ratings, columns=8, sweeps=n), lambda n: train(ratings, n)[0]):
        steps = [learn.objective(learner(n), ratings, 0.1) for n in range(1, 8)]
        assert all(after <= before * (1 + 1e-9) for before, after in zip(steps, steps[1:]))
        assert steps[-1] < 0.9 * steps[0]


def test_dense_finds_a_planted_table():
    # Biases are taken off first, which costs the table one more column than were planted.
    ratings, _ = planted(users=200, columns=4, density=0.9)
    model = learn.dense(ratings, columns=5, penalty=0.01, sweeps=30)
    blank = model.rmse(ratings, np.zeros_like(model.items))
    assert model.rmse(ratings) < 0.2 * blank


def test_train_predicts_better_than_a_dense_table_decomposed():
    rng = np.random.default_rng(1)
    cores = [rng.standard_normal(shape) for shape in ((1, 2, 2, 2), (2, 3, 2, 2), (2, 4, 2, 1))]
    ratings, _ = planted(users=200, cores=cores, density=0.9)
    model, found = train(ratings, 60)
    assert [core.shape for core in found] == [core.shape for core in cores]
    free = learn.dense(ratings, columns=8)
    after = dense(decompose(free.items, (2, 3, 4), (2, 2, 2), 2).cores)
    assert model.rmse(ratings) < 0.8 * free.rmse(ratings, after)
    assert model.rmse(ratings) < 0.6 * model.rmse(ratings, np.zeros_like(model.items))


def test_items_stand_in_the_rows_asked_for():
    ratings, _ = planted(items=20)
    rows = np.random.default_rng(2).permutation(24)[:20]
    model, cores = train(ratings, 3, rows_of=rows)
    assert np.allclose(model.items, learn.table(cores)[rows])


def test_table_follows_the_documented_index():
    rng = np.random.default_rng(3)
    g1, g2, g3 = (rng.standard_normal(shape) for shape in ((1, 2, 2, 3), (3, 3, 1, 2), (2, 2, 3, 1)))
    full = learn.table([g1, g2, g3])
    for i1, i2, i3, j1, j2, j3 in np.ndindex(2, 3, 2, 2, 1, 3):
        wanted = g1[0, i1, j1] @ g2[:, i2, j2] @ g3[:, i3, j3, 0]
        assert full[(i1 * 3 + i2) * 2 + i3, (j1 + j2) * 3 + j3] == pytest.approx(wanted)


def test_seed_decides():
    ratings, _ = planted()
    assert np.array_equal(train(ratings, 2, seed=5)[0].items, train(ratings, 2, seed=5)[0].items)
    assert not np.array_equal(train(ratings, 2, seed=5)[0].items, train(ratings, 2, seed=6)[0].items)


def test_wrong():
    ratings, _ = planted()
    with pytest.raises(ValueError) as caught:
        learn.tensor_train(ratings, row_modes=(2, 3, 3), column_modes=(2, 2, 2), rank=2)
    assert str(caught.value) == "row_modes (2, 3, 3) multiply to 18, fewer than the 24 items"
    with pytest.raises(ValueError, match="must be three factors each"):
        learn.tensor_train(ratings, row_modes=(4, 6), column_modes=(2, 4), rank=2)
    with pytest.raises(ValueError, match="held_out is 1.5; it must lie between 0 and 1"):
        learn.split(np.zeros(3, int), np.zeros(3, int), np.zeros(3), held_out=1.5)
    with pytest.raises(ValueError, match="equally many"):
        learn.split(np.zeros(3, int), np.zeros(2, int), np.zeros(3))
