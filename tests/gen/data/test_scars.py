"""SCARS' formulas against draws and plain sums, and the best split against every split there is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.data.profile import Heat
from gen.data.scars import Device, Split, Traffic, binary_search, optimum

DEVICE = Device(memory=4000, dim=8, activations=40)


def plain(probabilities, batch, cached=0):
    """Eq. 2 and 6 row by row; probabilities in any order."""
    left = np.sort(probabilities)[::-1][cached:]
    return sum(1 - (1 - p) ** batch for p in left)


def heat(seed, rows=300, exponent=1.1):
    accesses = 4000 * np.arange(1, rows + 1) ** -exponent
    return np.random.default_rng(seed).poisson(accesses)


def every(traffic, device):
    """The fewest words of all whole batches, each with all the cache that it leaves room for."""
    return min(traffic.words(batch, device.dim, min(traffic.touched, device.room(batch))) + device.overhead / batch
               for batch in range(device.smallest, int(device.batch(0)) + 1))


@pytest.mark.parametrize("batch", [1, 7, 500])
@pytest.mark.parametrize("cached", [0, 1, 37, 300, 999])
def test_unique_is_the_sum_over_rows(batch, cached):
    counts = heat(1)
    traffic = Traffic.of([Heat.of(counts)], int(counts.sum()))
    wanted = plain(counts[counts > 0] / counts.sum(), batch, cached)
    assert traffic.unique(batch, cached) == pytest.approx(wanted, rel=1e-12, abs=1e-12)


def test_unique_is_what_is_drawn():
    counts = heat(2)
    traffic = Traffic.of([Heat.of(counts)], int(counts.sum()))
    random, batch = np.random.default_rng(3), 200
    drawn = [np.unique(random.choice(counts.size, batch, p=counts / counts.sum())).size for _ in range(2000)]
    error = np.std(drawn) / len(drawn) ** 0.5
    assert abs(np.mean(drawn) - traffic.unique(batch)) < 4 * error < 1


def test_tables_are_joined_and_bags_are_lookups_of_their_own():
    one, bags = np.array([60, 30, 10, 0]), np.array([250, 150])
    traffic = Traffic.of([Heat.of(one), Heat.of(bags)], 100)
    assert traffic.lookups == 5 and traffic.touched == 5
    chances = [.6, .3, .1, 1 - .375**4, 1 - .625**4]
    assert traffic.chance == pytest.approx(sorted(chances, reverse=True))
    assert traffic.unique(9, 2) == pytest.approx(plain(np.array(chances), 9, 2))


def test_rows_of_the_same_chance_are_one_group():
    traffic = Traffic.of([Heat.of([5, 5, 2]), Heat.of([5, 5, 2])], 12)
    assert traffic.rows.tolist() == [4, 2]
    assert traffic.unique(1, 3) == pytest.approx(5 / 12 + 2 * 2 / 12)


def test_a_row_that_every_sample_asks_for():
    traffic = Traffic.of([Heat.of([10])], 10)
    assert traffic.unique(1) == traffic.unique(1000) == 1 and traffic.unique(5, 1) == 0


def test_rare_rows_do_not_drown_in_rounding():
    traffic = Traffic(np.array([1e-18]), np.array([10**9]), 1.0)
    assert traffic.unique(1000) == pytest.approx(1e-6, rel=1e-9)


def test_words_are_indices_and_rows():
    traffic = Traffic.of([Heat.of([50, 50])], 100)
    assert traffic.words(1, 8) == 1 + 8, "eq. 4 and its indices"
    assert traffic.words(4, 8) == pytest.approx(1 + 8 * 2 * (1 - .5**4) / 4)
    assert traffic.words(4, 8, cached=2) == 1


def test_a_log_drawn_without_order_asks_for_what_the_formula_says():
    random = np.random.default_rng(9)
    log = random.permutation(np.repeat(np.arange(300), heat(4)))
    traffic = Traffic.of([Heat.of(np.bincount(log))], log.size)
    cut = [np.unique(log[start:start + 256]).size for start in range(0, log.size - 255, 256)]
    assert np.mean(cut) == pytest.approx(traffic.unique(256), rel=0.02)


def test_batch_and_room_are_eq_7():
    assert DEVICE.batch(0) == 100 and DEVICE.batch(50) == 90 and DEVICE.batch(1) == pytest.approx(99.8)
    assert DEVICE.room(100) == 0 and DEVICE.room(99) == 5 and DEVICE.room(1) == 495
    assert Device(4000, 8, 40, largest=64).batch(0) == 64


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(60, 6000), st.integers(1, 30), st.integers(1, 60),
       st.sampled_from([0, 50, 3000]), st.sampled_from([(1, None), (1, 40), (3, 3), (30, 90)]), st.booleans())
def test_the_best_split_is_that_of_trying_all(seed, memory, dim, activations, overhead, sizes, clumps):
    random = np.random.default_rng(seed)
    counts = random.choice([1, 3, 40, 5000], 200) if clumps else heat(seed, exponent=random.uniform(0, 2))
    traffic = Traffic.of([Heat.of(counts)], int(counts.sum()))
    smallest, largest = sizes
    memory = max(memory, smallest * activations)
    device = Device(memory, dim, activations, overhead, smallest, largest)
    found, wanted = optimum(traffic, device, tolerance=1e-3), every(traffic, device)
    assert found.words == pytest.approx(traffic.words(found.batch, dim, found.cached) + overhead / found.batch)
    assert found.cached * dim + found.batch * activations <= memory
    assert smallest <= found.batch <= (largest or found.batch)
    assert found.bound <= wanted * (1 + 1e-12) and found.gap <= 1e-3
    assert wanted <= found.words * (1 + 1e-12) <= wanted * 1.0011


def test_where_much_memory_pays_binary_search_is_right():
    counts = heat(5, rows=3000, exponent=0.8)
    traffic = Traffic.of([Heat.of(counts)], int(counts.sum()))
    device = Device(memory=30_000, dim=16, activations=20, overhead=500)
    found = optimum(traffic, device)
    assert 0 <= found.gap <= 1e-4 and 0 < found.cached < traffic.touched
    assert found.words <= every(traffic, device) * (1 + 1e-4)
    assert binary_search(traffic, device).words == pytest.approx(found.words, rel=2e-3)


def test_binary_search_may_stop_too_early_and_the_optimum_does_not():
    """A few rows in the cache cost more than they bring; nearly all of them bring more than large batches."""
    traffic = Traffic(np.array([.02919, .00346, .00258]), np.array([980, 876, 113]), 32)
    device = Device(18_525, dim=20, activations=95)
    early, best = binary_search(traffic, device), optimum(traffic, device)
    assert early.cached == 0 and early.batch == 195 and (best.cached, best.batch) == (921, 1)
    assert early.words > 1.2 * best.words


def test_all_rows_fit():
    traffic = Traffic.of([Heat.of([6, 3, 1])], 10)
    assert optimum(traffic, DEVICE) == Split(cached=3, batch=99, words=1.0, bound=1.0)


def test_no_row_is_asked_for():
    traffic = Traffic.of([Heat.of([0, 0])], 10)
    assert optimum(traffic, DEVICE) == Split(cached=0, batch=100, words=0.0, bound=0.0)


def test_wrong():
    with pytest.raises(ValueError, match="memory of 119 words does not hold a batch of 3, 40 words of activations a"):
        Device(119, 8, 40, smallest=3)
    with pytest.raises(ValueError, match="largest 2 must be 3 or more"):
        Device(1000, 8, 40, smallest=3, largest=2)
    with pytest.raises(ValueError, match="overhead -1 must be 0 or more"):
        Device(1000, 8, 40, overhead=-1)
    with pytest.raises(ValueError, match="dim 0 must be 1 or more"):
        Device(100, 0, 40)
    with pytest.raises(ValueError, match="samples 0 must be 1 or more"):
        Traffic.of([], 0)
    with pytest.raises(ValueError, match="tolerance 0 must be above 0"):
        optimum(Traffic.of([], 1), DEVICE, tolerance=0)
