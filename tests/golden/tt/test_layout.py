"""The TT unit's layout: images that the lane's own addressing turns back into rows, and bad shapes refused."""

from itertools import product

import numpy as np
import pytest

from golden.tt.image import image
from golden.tt.layout import plan
from tests.support import lane

SHAPES = {
    2: [(2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (4, 8, 8), (8, 8, 8), (2, 2, 16), (2, 2, 32), (4, 4, 32),
        (3, 4, 4), (1, 2, 16), (6, 4, 4), (2, 4, 8), (5, 16, 8), (1, 12, 16), (7, 4, 8), (1, 4, 32), (3, 8, 4),
        (8, 8), (3, 4), (16, 4), (5, 32), (30, 16), (7, 8), (4, 4, 4, 4), (2, 4, 4, 4), (3, 4, 4, 8), (2, 8, 4, 16),
        (4, 2, 4, 32), (1, 8, 4, 4)],
    1: [(2, 2, 4), (2, 2, 2), (2, 4, 8), (1, 2, 4), (3, 2, 2), (4, 4, 4), (4, 4), (3, 4), (2, 2, 2, 2), (3, 2, 2, 4)],
}
CASES = [(b, columns, rank) for b, shapes in SHAPES.items()
         for columns, rank in product(shapes, (1, 3, 4, 6, 8, 16, 21))]


def _cores(modes, columns, ranks, rng):
    return [rng.integers(-4, 5, (ranks[k], modes[k], columns[k], ranks[k + 1])).astype(np.float32)
            for k in range(len(modes))]


def _dense_row(cores, index):
    parts = np.unravel_index(index, [core.shape[1] for core in cores])
    chain = np.ones((1, 1))
    for core, part in zip(cores, parts, strict=True):
        chain = np.einsum("ar,rjs->ajs", chain, core[:, part].astype(np.float64)).reshape(-1, core.shape[3])
    return chain.reshape(-1)


@pytest.mark.turns(28)
@pytest.mark.parametrize("grid_log2, columns, rank", CASES)
@pytest.mark.testpoint("random_match_golden", unit="tt/unit")
def test_lane_turns_images_into_rows(grid_log2, columns, rank):
    """The image of a table, as the unit reads it, gives the table's rows."""
    rng = np.random.default_rng(7)
    modes = (3, 2, 4, 2)[: len(columns)]
    ranks = (1, *(max(1, rank - k) for k in range(len(columns) - 1)), 1)
    layout = plan(modes, columns, ranks, grid_log2=grid_log2)
    cores = _cores(modes, columns, ranks, rng)
    packed = image(layout, cores)
    for index in rng.integers(0, layout.rows, 4):
        assert np.array_equal(lane.row(packed, index), _dense_row(cores, index)), (layout, index)


@pytest.mark.testpoint("latency_and_rate_as_documented", unit="tt/unit")
def test_wide_ranks_fill_every_issue_slot():
    """At ranks of 16 and 32 every multiplier works in every slot."""
    for columns in [(2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (4, 8, 8), (8, 8, 8)]:
        for rank in (16, 32):
            layout = plan((9, 9, 9), columns, (1, rank, rank, 1))
            assert layout.macs == layout.slots * 256


@pytest.mark.parametrize("arguments, sentence", [
    (((2,), (4,), (1, 1)), "a tensor train has 2 to 4 cores here, not 1"),
    (((2, 2), (4, 4, 4), (1, 2, 1)), "2 row modes (2, 2) need as many column modes, not (4, 4, 4)"),
    (((2, 2), (4, 4), (1, 2, 2)), "ranks must be 1, R1, .., 1 (3 numbers), not (1, 2, 2)"),
    (((2, 0), (4, 4), (1, 2, 1)), "row mode 0 must be at least 1"),
    (((2, 2, 2), (3, 5, 7), (1, 2, 2, 1)), "column modes (3, 5, 7) and ranks (1, 2, 2, 1) leave holes inside a vector, "
                                           "which this unit cannot close"),
    (((2, 2), (4, 64), (1, 2, 1)), "column modes (4, 64) have no order on this unit: the last may be at most 32"),
])
@pytest.mark.testpoint("illegal_config_wrong", unit="tt/unit")
def test_bad_shape_wrong(arguments, sentence):
    """Shapes that no layout has are refused with a sentence."""
    with pytest.raises(ValueError) as caught:
        plan(*arguments)
    assert str(caught.value) == sentence


@pytest.mark.testpoint("illegal_config_wrong", unit="tt/unit")
def test_wrong_cores_wrong():
    """Cores that do not chain are refused with a sentence that names the core."""
    layout = plan((2, 2), (4, 4), (1, 2, 1))
    cores = [np.zeros((1, 2, 4, 2), np.float32), np.zeros((2, 2, 3, 1), np.float32)]
    with pytest.raises(ValueError) as caught:
        image(layout, cores)
    assert str(caught.value) == "core 2 has shape (2, 2, 3, 1), the chain needs (2, 2, 4, 1)"
