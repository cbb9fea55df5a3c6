"""libcachesim's caches count what they should: against a plain LRU, and lookup by lookup."""

from collections import OrderedDict

import numpy as np
import pytest

from bench import peers

pytestmark = pytest.mark.regress

libcachesim = pytest.importorskip("libcachesim")


def streams():
    random = np.random.default_rng(5)
    return random.zipf(1.3, 3000) % 700, random.zipf(1.3, 4000) % 700


def test_lru_is_lru():
    warm, stream = streams()
    held: OrderedDict[int, None] = OrderedDict()
    missed = 0
    for number, row in enumerate(np.concatenate([warm, stream]).tolist()):
        missed += number >= len(warm) and row not in held
        held[row] = None
        held.move_to_end(row)
        if len(held) > 37:
            held.popitem(last=False)
    assert peers.misses(warm, stream, [37])["LRU", 37] == missed


def test_small_streams_by_hand():
    found = peers.misses(np.array([7, 8, 8]), np.array([8, 9, 7, 8]), [2])
    assert found["LRU", 2] == 3, "9 drives 7 out, 7 drives 8 out"
    assert found["LFU", 2] == 2, "8 stays"
    assert peers.misses(np.empty(0, np.int64), np.array([4, 4, 5]), [2])["LRU", 2] == 2


def test_a_file_in_pieces_is_the_same(monkeypatch):
    whole = peers.misses(*streams(), [100])
    monkeypatch.setattr(peers, "CHUNK", 999)
    assert peers.misses(*streams(), [100]) == whole


def test_every_policy_holds_what_it_can_and_those_without_room_are_left_out():
    warm, stream = streams()
    found = peers.misses(warm, stream, [19, 20, 99, 100, 700])
    assert {policy for policy, rows in found if rows == 19} == {"LRU", "LFU", "Sieve"}
    assert {policy for policy, rows in found if rows == 99} == set(peers.POLICIES) - {"WTinyLFU"}
    cold = len(np.setdiff1d(stream, warm))
    for policy in peers.POLICIES:
        assert cold <= found[policy, 700] < found[policy, 100] < len(stream) / 2
    assert found["LRU", 700] == found["LFU", 700] == cold, "all rows fit"
