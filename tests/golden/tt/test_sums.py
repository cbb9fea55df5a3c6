"""Sums of rows by compiled loops against their definition, bit for bit."""

import numpy as np
import pytest

from golden.tt import pooled, sums
from golden.tt.layout import plan


def drawn(random, modes, columns, rank, spread):
    """Cores whose values lie `spread` binades apart, zeros and subnormals among them."""
    ranks = (1, *[rank] * (len(modes) - 1), 1)
    found = []
    for k, (mode, column) in enumerate(zip(modes, columns, strict=True)):
        shape = ranks[k], mode, column, ranks[k + 1]
        values = random.standard_normal(shape) * 2.0 ** random.integers(-spread, spread + 1, shape)
        values[random.random(shape) < 0.05] = 0
        values[random.random(shape) < 0.02] = 1e-40
        found.append(values.astype(np.float32))
    return found


@pytest.mark.turns(2)
@pytest.mark.parametrize(("columns", "rank"), [
    ((4, 16), 4), ((4, 4, 4), 4), ((4, 8, 4), 8), ((2, 4, 8), 6), ((4, 4, 4), 32), ((2, 2, 4, 4), 4)])
@pytest.mark.parametrize("spread", [0, 4, 30])
def test_is_its_definition(columns, rank, spread, monkeypatch):
    """Two to four cores, ranks of one group to several beats, chunks of one to eight rows, values near one another and
    far apart, to overflows, which are left to the definition."""
    random = np.random.default_rng([rank, spread, *columns])
    modes = (5, 6, 7, 3)[:len(columns)]
    cores = drawn(random, modes, columns, rank, spread)
    layout = plan(modes, columns, (1, *[rank] * (len(modes) - 1), 1), grid_log2=2)
    sizes = random.integers(1, 9, 40)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    indices = random.integers(0, layout.rows, offsets[-1])
    fast = sums.pooled(cores, indices, offsets, layout)
    monkeypatch.setattr(sums, "pooled", lambda *_: None)
    slow = pooled(cores, indices, offsets, grouped=True)
    if spread < 30:
        assert fast is not None
    if fast is not None:
        np.testing.assert_array_equal(fast.view(np.uint32), slow.view(np.uint32))


def test_what_is_not_finite_is_left():
    random = np.random.default_rng(1)
    cores = drawn(random, (5, 6, 7), (4, 4, 4), 4, 0)
    layout = plan((5, 6, 7), (4, 4, 4), (1, 4, 4, 1), grid_log2=2)
    cores[1][0, 2, 0, 0] = np.inf
    assert sums.pooled(cores, np.arange(210), np.arange(211), layout) is None
    assert np.isnan(pooled(cores, np.arange(210), np.arange(211), grouped=True)).any()
