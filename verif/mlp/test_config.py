"""Sizes of the MLP core that do not go together: its configuration, and what its memories are made of, refuse them."""

from dataclasses import replace

import pytest

from hw.mlp.addends import AddendMemory
from hw.mlp.rows import RowMemory
from hw.mlp.store import Store, codewords
from hw.mlp.weights import WeightMemory
from verif.mlp.bench import TINY

UNIT = ("mlp/core", "mlp/loader", "mlp/parameters", "mlp/program", "mlp/result_writer", "mlp/results", "mlp/sequencer")


@pytest.mark.parametrize("change, sentence", [
    ({"units": 3}, "units must be one of 2, 4, not 3"),
    ({"words": 4}, "words must be one of 8, 16, not 4"),
    ({"rows": 8}, "rows must be at most 4, half the words of a beat, not 8"),
    ({"width": 1}, "width must be at least 2, so that a line of weights is a beat or more, not 1"),
    ({"words": 16, "width": 4}, "units must be at least 4, the column groups of a beat, not 2"),
    ({"row_lines": 100}, "row_lines must be a power of two from 64 to 4096, not 100"),
    ({"addend_lines": 48}, "addend_lines must be a power of two from 32 to 4096, not 48"),
    ({"output_beats": 8}, "output_beats must be a power of two from 16 to 1024, not 8"),
    ({"staged_tiles": 2}, "staged_tiles must be a power of two from 4 to 128, not 2"),
])
def test_illegal_config_wrong(change, sentence):
    """Sizes of every part that are not allowed, or do not go together, are refused with a sentence."""
    with pytest.raises(ValueError) as caught:
        replace(TINY, **change)
    assert str(caught.value) == sentence


@pytest.mark.testpoint("illegal_config_wrong", unit=("mlp/rows", "mlp/weights", "mlp/addends"))
def test_wrong_memories():
    """What the memories are made of refuses a style or a width that it cannot have, with a sentence."""
    with pytest.raises(ValueError, match="style must be 'ultra' or 'block', not 'registers'"):
        Store(depth=64, words=1, style="registers")
    for word in (AddendMemory(TINY).addends[0][0], RowMemory(TINY).x[0][0][0], WeightMemory(TINY).w[0][0]):
        with pytest.raises(ValueError, match="codewords takes pairs of 32-bit words, not 32 bits"):
            codewords(word)
