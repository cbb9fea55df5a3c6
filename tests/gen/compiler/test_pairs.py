"""The order of a bag's indices in which the EMB core takes two in a cycle."""

from itertools import permutations

import numpy as np
import pytest

from gen.compiler.pairs import in_pairs


def pairs(of_tt, offsets):
    """As the core counts them: in the words 2k and 2k + 1 of one bag one index of either kind."""
    return sum(of_tt[at] != of_tt[at + 1] for start, end in zip(offsets, offsets[1:])
               for at in range(start + start % 2, end - 1, 2))


@pytest.mark.parametrize("seed", range(5))
def test_bags_keep_their_indices_and_kinds_their_order(seed):
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 30, 200)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    of_tt = random.random(offsets[-1]) < random.random()
    order = in_pairs(of_tt, offsets)
    assert sorted(order) == list(range(offsets[-1]))
    for start, end in zip(offsets, offsets[1:]):
        mine = order[start:end]
        assert ((mine >= start) & (mine < end)).all()
        for kind in (True, False):
            assert (np.diff(mine[of_tt[mine] == kind]) > 0).all()


def test_as_many_pairs_as_any_order_has():
    for length in range(1, 7):
        for tts in range(length + 1):
            for before in range(2):     # indices of the bag before: the bag begins at a word of either kind
                of_tt = np.array([False] * before + [True] * tts + [False] * (length - tts))
                offsets = np.array([0, before, before + length])
                best = max(pairs([False] * before + list(bag), offsets) for bag in set(permutations(of_tt[before:])))
                assert pairs(of_tt[in_pairs(of_tt, offsets)], offsets) == best, (length, tts, before)


def test_bags_of_one_kind_stay_as_they_are():
    offsets = np.array([0, 3, 3, 8])
    for kind in (True, False):
        assert in_pairs(np.full(8, kind), offsets).tolist() == list(range(8))
