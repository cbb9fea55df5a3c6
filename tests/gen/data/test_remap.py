"""gen.data.remap against dictionaries and loops in Python."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gen.data.profile import Heat, TableProfile
from gen.data.remap import DRAM, SSD, TT, Remap, by_heat, numbered, row_counts, rows_of, shared, unseen
from gen.model.recommender import TableSpec

NONE = np.zeros(0, np.int64)


def spec(ids, rows):
    return TableSpec("items", rows, 8, ids)


def profile(ids, counts, rows=10):
    return TableProfile("items", rows, 1, Heat.of(counts), NONE, NONE, np.asarray(ids, np.uint64), np.asarray(counts))


def words(random, rows):
    return numbered(random.integers(0, 3, rows), random.permutation(rows))


@pytest.mark.parametrize("rows", [1, 2, 7, 1000])
def test_numbers_are_bijective_in_each_memory_and_go_by_the_order(rows):
    random = np.random.default_rng(rows)
    device, order = random.integers(0, 3, rows), random.permutation(rows)
    found = numbered(device, order)
    assert (found >> 30 == device).all()
    for place in (DRAM, TT, SSD):
        mine = [int(found[row]) & (1 << 30) - 1 for row in order if device[row] == place]
        assert mine == list(range(len(mine)))


def test_rows_of_the_train_may_be_given():
    found = numbered([0, 1, 1, 2], [3, 2, 1, 0], tt_row=[9, 5, 7, 9])
    for wrong in (-1, 1 << 30, 1 << 32, (1 << 40) + 5):
        with pytest.raises(ValueError, match=rf"^row 1 is row {wrong} of its memory: a word has room for 0 to"):
            numbered([0, 1, 1, 2], [3, 2, 1, 0], tt_row=[9, wrong, 7, 9])
    assert found.tolist() == [0, 1 << 30 | 5, 1 << 30 | 7, 2 << 30]


def by_hand(ids, rows, policy, vocabulary):
    place = {int(key): at for at, key in enumerate(sorted(set(int(k) for k in vocabulary)))}
    if policy == "modulo":
        return [int(key) % rows for key in ids]
    return [min(place.get(int(key), rows - 1), rows - 1) for key in ids]


@pytest.mark.parametrize("policy", ["modulo", "vocabulary"])
@pytest.mark.parametrize("bits", [5, 12, 31, 32, 33, 64])
@pytest.mark.parametrize("rows", [1, 13, 300])
def test_policies_against_dictionaries(policy, bits, rows):
    random = np.random.default_rng([bits, rows])
    ids = random.integers(0, 1 << bits, 2000, np.uint64, endpoint=False) if bits < 64 else random.integers(
        0, (1 << 64) - 1, 2000, np.uint64, endpoint=True)
    ids[:3] = [0, (1 << bits) - 1, (1 << bits) - 2]
    known = np.unique(np.concatenate([ids[:200], ids[:3]]))
    wanted = by_hand(ids, rows, policy, known)
    table = words(random, rows)
    assert rows_of(spec(policy, rows), ids, known).tolist() == wanted
    found = Remap(spec(policy, rows), table, known)(ids)
    assert found.dtype == np.uint32 and found.tolist() == table[wanted].tolist()


@pytest.mark.parametrize("known", [[], [5], [(1 << 64) - 1], [0], [0xFFFFFFFF]])
def test_small_vocabularies(known):
    table = np.array([7, 1 << 30 | 7, 2 << 30 | 3], np.uint32)
    ids = np.array([0, 5, 6, 0xFFFFFFFF, (1 << 64) - 1], np.uint64)
    wanted = [7 if key in known else 2 << 30 | 3 for key in ids.tolist()]
    assert Remap(spec("vocabulary", 3), table, np.array(known, np.uint64))(ids).tolist() == wanted


def test_ids_that_are_rows_and_all_kinds_of_integers():
    random = np.random.default_rng(0)
    table = words(random, 200)
    mapped = Remap(spec("index", 200), table)
    for kind in (np.uint8, np.int16, np.int32, np.int64, np.uint64):
        ids = random.integers(0, 100, (3, 4)).astype(kind)
        assert (mapped(ids) == table[ids]).all()
    assert mapped([]).shape == (0,)


@pytest.mark.parametrize("ids, told", [
    ([3, 200, 5, 900], "table items: the id 200 (number 1) is past the table's 200 rows; ids that are no rows need "
                       "ids = 'modulo' or 'vocabulary'"),
    ([3, -1], "table items: the id -1 (number 1) is past the table's 200 rows; ids that are no rows need ids = "
              "'modulo' or 'vocabulary'"),
    ([0.5], "ids must be whole numbers, not float64"),
])
def test_ids_that_are_refused(ids, told):
    mapped = Remap(spec("index", 200), words(np.random.default_rng(0), 200))
    for call in (mapped, lambda ids: rows_of(spec("index", 200), ids)):
        with pytest.raises(ValueError) as error:
            call(np.asarray(ids))
        assert str(error.value) == told


def test_accesses_of_rows_under_each_policy():
    heat = profile([2, 5, 12, 15], [1, 10, 100, 1000])
    assert row_counts(spec("modulo", 10), heat).tolist() == [0, 0, 101, 0, 0, 1010, 0, 0, 0, 0]
    assert row_counts(spec("vocabulary", 10), heat).tolist() == [1, 10, 100, 1000, 0, 0, 0, 0, 0, 0]
    assert row_counts(spec("vocabulary", 3), heat).tolist() == [1, 10, 1100]
    assert row_counts(spec("index", 16), heat).tolist()[12:] == [100, 0, 0, 1000]
    with pytest.raises(ValueError, match="the id 15 .* is past the table's 15 rows"):
        row_counts(spec("index", 15), heat)
    with pytest.raises(ValueError, match="knows how hot rows are, not which"):
        row_counts(spec("index", 16), TableProfile("items", 9, 1, Heat.of([3]), NONE, NONE))
    assert by_heat([3, 9, 0, 9]).tolist() == [1, 3, 0, 2]


def test_what_cannot_be_a_map():
    with pytest.raises(ValueError, match="table items: ids = 'vocabulary' needs the ids that a profile has counted"):
        Remap(spec("vocabulary", 3), np.zeros(3, np.uint32))
    with pytest.raises(ValueError, match=r"table items: 3 rows need as many words, not \(2,\)"):
        Remap(spec("index", 3), np.zeros(2, np.uint32))


def test_several_threads_at_once():
    random = np.random.default_rng(5)
    table = words(random, 50)
    mapped, ids = Remap(spec("modulo", 50), table), random.integers(0, 1 << 40, (6, 1000))
    with ThreadPoolExecutor(3) as pool:
        assert all((found == table[part % 50]).all() for part, found in zip(ids, pool.map(mapped, ids), strict=True))


def test_ids_without_a_row_of_their_own_are_counted():
    known = np.array([3, 7, (1 << 64) - 1], np.uint64)
    asked = np.array([3, 7, 7, (1 << 64) - 1, 4, 1 << 63], np.uint64)
    for rows, count, whose in ((4, 2, ""), (9, 2, ""), (3, 2, "that of the id -1"),
                               (2, 5, "that of 2 of its 3 ids, from 7 on"),
                               (1, 6, "that of 3 of its 3 ids, from 3 on")):
        table = spec("vocabulary", rows)
        assert unseen(table, known, asked) == count and shared(table, known) == whose
    assert unseen(spec("vocabulary", 3), [], asked) == 6 and shared(spec("vocabulary", 3), []) == ""
