"""The serial unit's oracle: rows against float64, cycles by hand, images read back."""
from math import prod

import numpy as np
import pytest

from golden.tt import serial


def _cores(modes, columns, ranks, seed=3):
    random = np.random.default_rng(seed)
    return [random.standard_normal((ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
            for k in range(len(modes))]


@pytest.mark.parametrize(("modes", "columns", "ranks"), [
    ((5, 3), (4, 8), (1, 6, 1)), ((3, 4, 2), (2, 4, 4), (1, 5, 3, 1)),
    ((2, 3, 2, 2), (2, 2, 2, 4), (1, 4, 2, 3, 1)),
])
def test_rows_against_float64(modes, columns, ranks):
    cores = _cores(modes, columns, ranks)
    indices = np.arange(prod(modes))
    exact = np.empty((len(indices), prod(columns)))
    size = np.empty_like(exact)         # what it would be without cancellation
    for i in indices:
        at = np.unravel_index(i, modes)
        chain, bound = np.ones((1, 1)), np.ones((1, 1))
        for k, core in enumerate(cores):
            slice_ = core[:, at[k]].astype(np.float64)
            flat = slice_.reshape(ranks[k], -1)
            chain = (chain @ flat).reshape(-1, ranks[k + 1])
            bound = (bound @ np.abs(flat)).reshape(-1, ranks[k + 1])
        exact[i], size[i] = chain.ravel(), bound.ravel()
    # One rounding a product and cut-off bits far below it.
    assert (np.abs(serial.rows(cores, indices) - exact) <= size * len(cores) * 2.0**-23).all()


def test_row_past_the_table_is_row_0():
    cores = _cores((3, 2), (2, 2), (1, 2, 1))
    assert (serial.rows(cores, [6, -1, 0]) == serial.rows(cores, [0])).all()


def test_no_rows():
    assert serial.rows(_cores((3, 2), (2, 4), (1, 2, 1)), []).shape == (0, 8)


@pytest.mark.testpoint("latency_and_rate_as_documented", unit="tt/serial")
def test_cycles_by_hand():
    """The cycles of two tables on the paper's array, counted by hand."""
    # SCRec's array, D = 64, R = 4: a 4 x 4 by 4 x 16 product, then a 16 x 4 by 4 x 4 one.
    plan = serial.plan((9, 9, 9), (4, 4, 4), (1, 4, 4, 1))
    assert [(p.m, p.k, p.n) for p in plan.products] == [(4, 4, 16), (16, 4, 4)]
    assert plan.ideal_cycles == (4 + 2 * 4 + 16 - 2) + (4 + 2 * 16 + 4 - 2) == 64
    assert plan.cycles == 64 + 2 * 15
    assert plan.macs == 512
    # R = 32: the first product is 128 wide, four tiles.
    assert serial.plan((9, 9, 9), (4, 4, 4), (1, 32, 32, 1)).ideal_cycles == 4 * 70 + 66


def test_finish_of_equal_lookups_is_a_row_every_so_many_cycles():
    plan = serial.plan((9, 9, 9), (4, 4, 4), (1, 4, 4, 1))
    ends = serial.finish([plan] * 20, index_bits=24, in_flight=8)
    assert np.diff(ends).tolist() == [plan.cycles] * 19
    # Splitting, the queue, the row itself, two beats through the output register.
    assert ends[0] == 3 * 24 + 5 + 1 + plan.cycles + 3


def test_image_holds_every_core_once():
    cores = _cores((3, 4, 5), (2, 4, 8), (1, 6, 7, 1))
    image = serial.image(cores, a_base=10, c_base=100, height=4, width=8)
    words = sorted(np.concatenate([core.ravel() for core in cores]).view(np.uint32).tolist())
    held = np.concatenate([image.a.ravel(), image.c.ravel()])
    assert sorted(held[held != 0].tolist()) == words
    # G2[i2][k, (j, r)] of i2 = 2, k = 3: a line a rank and tile of eight columns, one j each, r padded to 8.
    line = image.where["second"] - 100 + 2 * image.where["second_stride"]
    for j in range(4):
        got = image.c[line + j * 6 + 3].view(np.float32)
        assert got[:7].tolist() == cores[1][3, 2, j].tolist() and got[7] == 0
    assert image.a[1 * 6 + 5, :2].view(np.float32).tolist() == cores[0][0, 1, :, 5].tolist()


@pytest.mark.parametrize(("columns", "ranks", "sentence"), [
    ((4, 6), (1, 4, 1), "J2 is 6; the serial unit's reshaping takes powers of two only"),
    ((4, 4), (1, 33, 1), "rank 33 is above 32, the most that the serial unit takes"),
])
@pytest.mark.testpoint("illegal_config_wrong", unit="tt/serial")
def test_wrong_shapes(columns, ranks, sentence):
    """Shapes that do not chain are refused with a sentence."""
    with pytest.raises(ValueError) as error:
        serial.plan((2, 2), columns, ranks)
    assert str(error.value) == sentence
