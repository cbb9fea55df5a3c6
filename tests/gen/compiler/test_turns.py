"""The order of instructions that wait for different memories."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gen.compiler.turns import PART, in_turns, kind, parts
from gen.data.remap import DEVICE_SHIFT, DRAM, SSD, TT


@given(st.lists(st.integers(0, 3 * PART), max_size=30), st.data())
def test_parts_are_bags_of_enough_lookups(lengths, data):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    start = data.draw(st.integers(0, len(lengths)))
    end = data.draw(st.integers(start, len(lengths)))
    found = parts(offsets, start, end)
    if start == end:
        assert found == [(start, end)]
        return
    assert [first for first, _ in found[1:]] == [last for _, last in found[:-1]]
    assert (found[0][0], found[-1][1]) == (start, end) and all(first < last for first, last in found)
    full = [(int(offsets[bag]) - int(offsets[start])) // PART for bag in range(start, end)]
    assert [last for _, last in found[:-1]] == [
        bag for bag in range(start + 1, end) if full[bag - start] > full[bag - start - 1]]
    for first, last in found:
        assert offsets[last - 1] - offsets[first] < PART, "a bag more than it needs"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1000)), max_size=40))
def test_kinds_go_on_alike(items):
    """Each in its own order; whenever an item begins, no kind is behind by more than an item of its own."""
    kinds, work = [of for of, _ in items], [count for _, count in items]
    order = in_turns(kinds, work)
    assert sorted(order) == list(range(len(items)))
    totals = {of: max(sum(count for each, count in items if each == of), 1) for of in kinds}
    done = dict.fromkeys(totals, 0.0)
    for number, at in enumerate(order):
        mine = (done[kinds[at]] + work[at] / 2) / totals[kinds[at]]
        for of in totals:
            later = [each for each in order[number:] if kinds[each] == of]
            if later:
                assert mine <= (done[of] + work[later[0]] / 2) / totals[of] + 1e-9
        done[kinds[at]] += work[at]
    for of in totals:
        assert [at for at in order if kinds[at] == of] == [at for at, each in enumerate(kinds) if each == of]


def test_what_a_request_waits_for():
    def rows(*counts):
        return np.repeat(np.array([DRAM, TT, SSD], np.uint32) << DEVICE_SHIFT, counts)

    assert kind(rows(10, 0, 0), 4) == DRAM and kind(rows(0, 10, 0), 4) == TT
    assert kind(rows(10, 40, 0), 4) == DRAM and kind(rows(10, 41, 0), 4) == TT
    assert kind(rows(10, 41, 1), 4) == SSD and kind(rows(0, 0, 0), 4) == DRAM
