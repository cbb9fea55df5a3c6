"""The TT unit's layout: slots that are all used, and bad shapes refused. What images hold is tried on the unit itself,
verif/tt/test_unit.py."""

import numpy as np
import pytest

from golden.tt.image import image
from golden.tt.layout import plan


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
