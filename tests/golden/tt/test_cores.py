"""The table that cores stand for, and sentences for modes, ranks and cores that cannot be."""

import numpy as np
import pytest

from golden.tt.cores import dense, fitting


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


@pytest.mark.parametrize(("arguments", "message"), [
    (((2, 3, 3), (2, 2, 2), 2),
     "row_modes (2, 3, 3) multiply to 18, fewer than the table's 24 rows"),
    (((2, 3, 4), (2, 2, 3), 2),
     "column_modes (2, 2, 3) multiply to 12, not to the table's 8 columns"),
    (((2, 3, 4), (2, 2, 2), (5, 2)),
     "rank 1 is 5; with row_modes (2, 3, 4) and column_modes (2, 2, 2) it must be 1 to 4"),
    (((2, 3, 4), (2, 2, 2), (1, 7)), "rank 2 is 7; after rank 1 = 1 it must be 1 to 6"),
    (((2, 3, 4), (2, 2, 2), (2, 2, 2)),
     "ranks (2, 2, 2) must be 2, one between each two of 3 cores"),
    (((24, 1), (2, 2, 2), 2),
     "row_modes (24, 1) and column_modes (2, 2, 2) must be equally many"),
    (((24,), (8,), 1),
     "row_modes (24,) must be 2 or more factors: one core is the table itself"),
    (((2, 0, 12), (2, 2, 2), 2), "row_modes (2, 0, 12) must be whole numbers of 1 or more"),
])
def test_what_does_not_fit_a_table(arguments, message):
    with pytest.raises(ValueError) as caught:
        fitting(24, 8, *arguments)
    assert str(caught.value) == message


def test_cores_wrong():
    a, b = np.zeros((1, 2, 2, 3)), np.zeros((3, 2, 2, 1))
    for cores, words in (([a, a], "core 2 "), ([b], "core 1 "), ([a], "rank"), ([], "core"),
                         ([a, np.zeros((3, 2))], "core 2 ")):
        with pytest.raises(ValueError, match=words):
            dense(cores)
