"""The order of instructions that wait for different memories."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga.api.embedding import EmbeddingBags, Table
from gen.compiler.emb import Bags
from gen.compiler.turns import ahead, held, in_turns, kind, part_sizes, parts
from gen.data.remap import DEVICE_SHIFT, DRAM, SSD, TT
from gen.rtl import config

CORE = config.load("smartssd").cores["emb"]


@given(st.lists(st.integers(0, 60), max_size=30), st.floats(1, 40), st.data())
def test_parts_are_bags_of_enough_lookups(lengths, size, data):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    start = data.draw(st.integers(0, len(lengths)))
    end = data.draw(st.integers(start, len(lengths)))
    found = parts(offsets, start, end, size)
    if start == end:
        assert found == [(start, end)]
        return
    assert [first for first, _ in found[1:]] == [last for _, last in found[:-1]]
    assert (found[0][0], found[-1][1]) == (start, end) and all(first < last for first, last in found)
    full = [(int(offsets[bag]) - int(offsets[start])) // size for bag in range(start, end)]
    assert [last for _, last in found[:-1]] == [
        bag for bag in range(start + 1, end) if full[bag - start] > full[bag - start - 1]]
    for first, last in found:
        assert offsets[last - 1] - offsets[first] < size, "a bag more than it needs"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 100_000)), max_size=20))
def test_all_kinds_have_as_many_parts(requests):
    kinds, lookups = [of for of, _ in requests], [count for _, count in requests]
    sizes, most = part_sizes(kinds, lookups, CORE), held(CORE)
    total = {of: sum(count for each, count in requests if each == of) for of in kinds}
    if len(total) < 2:
        assert sizes == {}
        return
    assert all(1 <= sizes[of] <= most[of] for of in total)
    turns = {round(count / sizes[of]) for of, count in total.items() if sizes[of] > 1}
    assert len(turns) <= 1, "one memory has more parts than another"
    for fewest in turns:
        assert fewest == 1 or any(count > most[of] * (fewest - 1) for of, count in total.items())


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1000)), max_size=40))
def test_kinds_go_on_alike(items):
    """Each in its own order; at any time they have the same share behind them, but for an item of each."""
    kinds, work = [of for of, _ in items], [count for _, count in items]
    order = in_turns(kinds, work)
    assert sorted(order) == list(range(len(items)))
    total = {of: sum(count for each, count in items if each == of) for of in kinds}
    largest = {of: max(count for each, count in items if each == of) for of in kinds}
    done = dict.fromkeys((of for of, count in total.items() if count), 0)
    for at in order:
        if work[at]:
            done[kinds[at]] += work[at]
        for one in done:
            for other in done:
                apart = abs(done[one] / total[one] - done[other] / total[other])
                assert apart <= largest[one] / total[one] + largest[other] / total[other] + 1e-9
    for of in total:
        assert [at for at in order if kinds[at] == of] == [at for at, each in enumerate(kinds) if each == of]


def test_parts_of_two_kinds_alternate():
    """The parts are bags of 20, so that their lookups differ."""
    bags = {DRAM: np.arange(0, 12_001, 20), TT: np.arange(0, 96_001, 20)}
    sizes = part_sizes([DRAM, TT], [12_000, 96_000], CORE)
    made = [(of, int(offsets[end] - offsets[start])) for of, offsets in bags.items()
            for start, end in parts(offsets, 0, len(offsets) - 1, sizes[of])]
    order = in_turns([of for of, _ in made], [count for _, count in made])
    assert [made[at][0] for at in order] == [DRAM, TT] * (len(made) // 2)


def test_what_cores_hold():
    assert held(CORE) == {DRAM: 128, TT: 640, SSD: 128}
    assert held(config.load("tiny").cores["emb"]) == {DRAM: 64, TT: 48, SSD: 64}


def test_what_a_request_waits_for():
    def rows(*counts):
        return np.repeat(np.array([DRAM, TT, SSD], np.uint32) << DEVICE_SHIFT, counts)

    assert kind(rows(10, 0, 0), 4) == DRAM and kind(rows(0, 10, 0), 4) == TT
    assert kind(rows(10, 40, 0), 4) == DRAM and kind(rows(10, 41, 0), 4) == TT
    assert kind(rows(10, 41, 1), 4) == SSD and kind(rows(0, 0, 0), 4) == DRAM


def test_bags_without_pages_come_while_the_first_page_does():
    """As many of them as take the wait, in their order; what reads pages keeps its order, and nothing is lost."""
    reads = [True, False, False, True, False, False]
    cycles = [50, 10, 10, 50, 10, 10]
    assert ahead(reads, cycles, 0) == [0, 1, 2, 3, 4, 5]
    assert ahead(reads, cycles, 1) == [1, 0, 2, 3, 4, 5]
    assert ahead(reads, cycles, 20) == [1, 2, 0, 3, 4, 5]
    assert ahead(reads, cycles, 21) == [1, 2, 4, 0, 3, 5]
    assert ahead(reads, cycles, 10**9) == [1, 2, 4, 5, 0, 3]
    assert ahead([True] * 3, [1] * 3, 99) == ahead([False] * 3, [1] * 3, 2) == [0, 1, 2] and ahead([], [], 5) == []


def drawn(random: np.random.Generator) -> tuple[list[Table], list[Bags]]:
    """One or two tables in DRAM and on the SSD, and a batch of bags, empty ones too."""
    tables, batch = [], []
    for name in "ab"[:random.integers(1, 3)]:
        rows, dim = int(random.integers(200, 5000)), int(random.choice([16, 64, 128]))
        device = np.where(np.arange(rows) < random.uniform(0.3, 1.0) * rows, DRAM, SSD)
        tables.append(Table.place(name, np.zeros((rows, dim), np.float32), device, rank=np.arange(rows)))
        lengths = random.integers(0, int(random.integers(2, 20)), int(random.integers(50, 1000)))
        heat = np.arange(1, rows + 1) ** -random.uniform(0, 1.3)
        offsets = np.append(0, np.cumsum(lengths))
        batch.append(Bags(name, random.choice(rows, offsets[-1], p=heat / heat.sum()), offsets))
    return tables, batch


def with_and_without(tables: list[Table], batch: list[Bags]) -> tuple[int, int]:
    """Cycles of the twin, whose drive brings the first page as late as the device's."""
    cycles = []
    with EmbeddingBags(tables, card="twin", ring_bytes=1 << 20) as card:
        for wait in (card.compiler.wait, 0):
            card.compiler.wait = wait
            card.batch(batch)
            cycles.append(card.last["cycles"])
    return cycles[0], cycles[1]


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.regress) for seed in range(20, 50))])
def test_no_batch_is_slower_for_what_comes_first(seed):
    first, given = with_and_without(*drawn(np.random.default_rng(seed)))
    assert first <= 1.01 * given


def test_bags_are_pooled_as_their_pages_come():
    """Of 600 bags the first and the middle one read a page that comes late: they are pooled last, so that the batch
    takes little longer than without them."""
    device = np.where(np.arange(300) < 200, DRAM, SSD)
    table = Table.place("a", np.zeros((300, 64), np.float32), device, rank=np.arange(300))
    indices = np.arange(4800) % 200
    late = indices.copy()
    late[[0, 2400]] = 250, 290
    cycles = []
    with EmbeddingBags([table], card="twin", ring_bytes=1 << 20) as card:
        for asked in (indices, late):
            card.batch([Bags("a", asked, np.arange(0, 4801, 8))])
            cycles.append(card.last["cycles"])
    assert cycles[1] - cycles[0] < 0.05 * card.compiler.wait
