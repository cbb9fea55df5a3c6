"""The logger's banks against their rules spelled out, and what they hold against the oracle."""
import numpy as np
import pytest

from golden.hotline.bank import ID_BITS, RRPV, VALID, WAYS, Bank, hot_rows, oracle, run


class Spelled:
    """A set as a list of [id, rrpv], None where a way is empty."""

    def __init__(self, policy):
        self.ways = [None] * WAYS
        self.policy = policy

    def access(self, id, bank, learn):
        known = [way for way, entry in enumerate(self.ways) if entry and entry[0] == id]
        if not learn:
            return known
        if known:
            entry = self.ways[known[0]]
            entry[1] = max(0, entry[1] - 1) if self.policy == "steady" else 0
        elif None in self.ways:
            self.ways[self.ways.index(None)] = [id, 3 if self.policy == "steady" else 2]
        elif self.policy == "steady":
            self.steady(id, bank)
        elif self.policy == "srrip" or self.due(bank):
            while not self.stale():
                self.age()
            self.ways[self.stale()[0]] = [id, 2]
        return known

    def steady(self, id, bank):
        if self.stale():
            self.ways[self.stale()[0]] = [id, 3]
        elif self.due(bank):
            self.age()

    def stale(self):
        return [way for way, entry in enumerate(self.ways) if entry[1] == 3]

    def age(self):
        for entry in self.ways:
            entry[1] += 1

    def due(self, bank):
        bank["misses"] = (bank["misses"] + 1) % bank["period"]
        return not bank["misses"]

    def image(self):
        return [entry[0] | entry[1] * RRPV | VALID if entry else 0 for entry in self.ways]


@pytest.mark.parametrize("policy, insert_log2", [("srrip", 0), *(
    (policy, number) for policy in ("sampled", "steady") for number in (0, 2, 5))])
@pytest.mark.testpoint("random_match_golden", unit="hotline/bank")
def test_against_the_rules_spelled_out(policy, insert_log2):
    """A log with looks between, through `run` in pieces and through `Bank` one by one."""
    random = np.random.default_rng(insert_log2)
    banks, sets, count = 2, 4, 6000
    bank, at = random.integers(banks, size=count), random.integers(sets, size=count)
    ids = np.minimum(random.geometric(0.07, size=count), (1 << ID_BITS) - 1)
    image, counts = np.zeros((banks, sets, WAYS), np.uint32), np.zeros(banks, np.uint32)
    single = [Bank(sets, insert_log2, policy) for _ in range(banks)]
    spelled = [[Spelled(policy) for _ in range(sets)] for _ in range(banks)]
    misses = [{"misses": 0, "period": 1 << insert_log2} for _ in range(banks)]
    aged = 0
    for start in range(0, count, 500):
        part = slice(start, start + 500)
        learn = start % 2000 != 500
        hit, way = run(image, counts, bank[part], at[part], ids[part], insert_log2, learn, policy)
        for b, s, id, h, w in zip(bank[part], at[part], ids[part], hit, way):
            before = misses[b]["misses"]
            known = spelled[b][s].access(int(id), misses[b], learn)
            aged += misses[b]["misses"] < before or (insert_log2 == 0 and not known)
            assert (bool(known), known[0] if known else 0) == (h, w)
            assert single[b].access(int(s), int(id), learn) == (h, w, False)
        for b in range(banks):
            want = [spelled[b][s].image() for s in range(sets)]
            assert image[b].tolist() == want and single[b].image.tolist() == want
            assert int(counts[b]) == misses[b]["misses"] == single[b].count
    assert aged > 10 and hit.any() and not hit.all()


def states(policy, insert_log2, *accesses):
    """(id, rrpv) of a set's ways after each part of the accesses."""
    image, counts = np.zeros((1, 1, WAYS), np.uint32), np.zeros(1, np.uint32)
    for ids in accesses:
        nothing = np.zeros(len(ids), np.int64)
        run(image, counts, nothing, nothing, np.array(ids), insert_log2, True, policy)
        assert (image & VALID).all()
        yield [(int(entry) & (1 << ID_BITS) - 1, int(entry) // RRPV & 3) for entry in image[0, 0]]


def test_srrip_by_hand():
    """As the thesis has it; sampled is the same where every miss is the last of one, whatever insert_log2 srrip has."""
    want = [[(1, 2), (2, 2), (3, 2), (4, 2)], [(5, 2), (2, 1), (3, 3), (4, 3)], [(7, 2), (2, 2), (6, 3), (4, 1)]]
    for policy, insert_log2 in (("srrip", 0), ("srrip", 5), ("sampled", 0)):
        assert list(states(policy, insert_log2, [1, 2, 3, 4], [2, 5], [6, 4, 7])) == want


def test_sampled_by_hand():
    """The fourth miss comes in, the three before leave no trace; hits do not count."""
    filled = [(1, 2), (2, 0), (3, 2), (4, 2)]
    assert list(states("sampled", 2, [1, 2, 3, 4, 2], [5, 6, 5], [3], [5], [6, 6, 6], [6])) == [
        filled, filled, [(1, 2), (2, 0), (3, 0), (4, 2)], *[[(5, 2), (2, 1), (3, 1), (4, 3)]] * 2,
        [(5, 2), (2, 1), (3, 1), (6, 2)]]


def test_a_policy_that_there_is_not():
    with pytest.raises(ValueError, match="policy must be one of 'srrip', 'sampled', 'steady', not 'lru'"):
        Bank(4, 0, "lru")


def test_a_row_twice_and_a_wrong_way():
    bank = Bank(4, 0)
    bank.load(1, np.array([7 | VALID | RRPV, 8 | VALID, 7 | VALID | 2 * RRPV, 0], np.uint32))
    assert bank.access(1, 7, True) == (True, 0, False)
    assert bank.read(1) == [7 | VALID, 8 | VALID, 7 | VALID | RRPV, 0]
    bank.spoil(1, 0)
    assert bank.access(1, 7, False) == (True, 2, True)
    assert bank.read(1)[0] == 7
    assert bank.access(1, 9, True) == (False, 0, True)
    assert bank.read(1) == [9 | VALID | 3 * RRPV, 8 | VALID, 7 | VALID | RRPV, 0]
    assert bank.access(1, 9, False) == (True, 0, False)


def test_oracle_and_hot_rows():
    assert [oracle(np.array([5, 1, 9, 3]), k) for k in (0, 1, 2, 4, 9)] == [0, 9, 14, 18, 18]
    image, counts = np.zeros((2, 4, WAYS), np.uint32), np.zeros(2, np.uint32)
    run(image, counts, np.array([1, 0, 1]), np.array([3, 2, 3]), np.array([5, 0, 6]), 2, True)
    assert [column.tolist() for column in hot_rows(image)] == [[0, 1, 1], [2, 3, 3], [0, 5, 6]]


def test_a_row_twice_is_met_twice():
    bank = Bank(4, 0, "srrip")
    bank.load(1, np.array([7 | VALID | RRPV, 8 | VALID | RRPV, 7 | VALID | 2 * RRPV, 7 | RRPV], np.uint32))
    assert bank.access(1, 7, True) == (True, 0, False)
    assert bank.read(1) == [7 | VALID, 8 | VALID | RRPV, 7 | VALID, 7 | RRPV]


@pytest.mark.parametrize("policy, least, most", [("srrip", 0.8, 0.93), ("sampled", 0.8, 0.96), ("steady", 0.95, 1)])
def test_holds_what_is_hot(policy, least, most):
    """A small logger on a skewed log: steady is close to the oracle, the others farther."""
    random = np.random.default_rng(5)
    rows, banks, sets = 20_000, 4, 64
    entries = banks * sets * WAYS
    weight = np.arange(1, rows + 1) ** -1.05
    row = random.permutation(rows)[random.choice(rows, 400_000, p=weight / weight.sum())]
    image, counts = np.zeros((banks, sets, WAYS), np.uint32), np.zeros(banks, np.uint32)
    place = random.permutation(banks * sets << 7)[:rows]
    bank, at, id = place % banks, place // banks % sets, place // (banks * sets)
    run(image, counts, bank[row], at[row], id[row], 5, True, policy)
    accesses = np.bincount(row, minlength=rows)
    bank, at, id = hot_rows(image)
    where = np.full(banks * sets << 7, -1)
    where[place] = np.arange(rows)
    held = accesses[where[id * banks * sets + at * banks + bank]].sum()
    assert least < held / oracle(accesses, entries) <= most
