"""What the signature of a load image tells apart."""

import numpy as np

from golden.emb.signature import signature


def written_out(beats):
    """As the reference says it, word by word."""
    c = 0
    for beat in beats.tolist():
        c = (c << 1) & 0xFFFFFFFF ^ (0x04C11DB7 if c >> 31 else 0)
        for k, word in enumerate(beat):
            by = 2 * k % 32
            c ^= (word << by | word >> (32 - by)) & 0xFFFFFFFF
    return c


def test_signatures_are_as_the_reference_says():
    draw = np.random.default_rng(5)
    for words in (4, 16):
        for count in (1, 17, 70):
            beats = draw.integers(1 << 32, size=(count, words), dtype=np.uint32)
            assert signature(beats) == written_out(beats)
    assert signature(np.zeros((9, 16), np.uint32)) == 0


def test_no_word_and_no_two_beats_change_unseen():
    draw = np.random.default_rng(6)
    beats = draw.integers(1 << 32, size=(40, 16), dtype=np.uint32)
    right = signature(beats)
    for at in range(beats.size):
        other = beats.copy()
        other.reshape(-1)[at] ^= np.uint32(1 << draw.integers(32))
        assert signature(other) != right
    for first, second in draw.choice(40, (200, 2)):
        other = beats.copy()
        other[[first, second]] = other[[second, first]]
        assert (signature(other) == right) == (first == second)
