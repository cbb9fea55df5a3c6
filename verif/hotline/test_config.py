"""Sizes of the Hotline core that do not go together: its configuration refuses them for all of its parts."""

from dataclasses import replace

import pytest

from verif.hotline.shapes import TINY

UNIT = ("hotline/core", "hotline/bags", "hotline/classifier", "hotline/dispatch", "hotline/embeddings",
        "hotline/frames", "hotline/gather", "hotline/image", "hotline/logger", "hotline/lookup", "hotline/program",
        "hotline/row_table", "hotline/update")


@pytest.mark.parametrize("change, sentence", [
    ({"words": 4}, "words must be one of 8, 16, not 4"),
    ({"lanes": 4}, "lanes must be at least 8, the words of a beat, not 4"),
    ({"lanes": 12}, "lanes must be a power of two from 4 to 64, not 12"),
    ({"positions": 4}, "positions must be a power of two from 8 to 64, not 4"),
    ({"positions": 24}, "positions must be a power of two from 8 to 64, not 24"),
    ({"words": 16, "lanes": 16, "positions": 8}, "positions must be at least 16, the words of a beat, not 8"),
    ({"banks": 2}, "banks must be a power of two from 4 to 64, not 2"),
    ({"banks": 3}, "banks must be a power of two from 4 to 64, not 3"),
    ({"banks": 4, "sets": 8}, "sets must be a power of two from 16 to 65536, not 8"),
    ({"waves": 2}, "waves must be a power of two from 4 to 64, not 2"),
    ({"policy": "lru"}, "policy must be one of 'srrip', 'sampled', 'steady', not 'lru'"),
    ({"policy": "srrip"}, "insert_log2 must be 0 with the policy srrip, by which every miss comes in, not 2"),
    ({"frames": 1}, "frames must be a whole number from 2 to 16, not 1"),
    ({"frames": 17}, "frames must be a whole number from 2 to 16, not 17"),
    ({"frame_beats": 8}, "frame_beats must be a power of two from 16 to 65536, not 8"),
    ({"frame_beats": 24}, "frame_beats must be a power of two from 16 to 65536, not 24"),
    ({"row_slots": 20}, "row_slots must be a power of two from 16 to 262144, not 20"),
    ({"embedding_beats": 16}, "embedding_beats must be at least 32, the row slots, not 16"),
    ({"batches": 3}, "batches must be one of 2, 4, not 3"),
    ({"output_beats": 8}, "output_beats must be a power of two from 16 to 1024, not 8"),
])
def test_illegal_config_wrong(change, sentence):
    """Sizes of every part that are not allowed, or do not go together, are refused with a sentence."""
    with pytest.raises(ValueError) as caught:
        replace(TINY, **change)
    assert str(caught.value) == sentence


def test_the_largest_logger():
    assert replace(TINY, sets=65536, banks=64, queue=1024).domain_bits == 36
