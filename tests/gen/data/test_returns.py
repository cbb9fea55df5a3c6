"""What parts of a log ask of the rows before them, against counting by hand, and what is expected from it."""

import gzip
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gen.data import returns as counting
from gen.data.expected import PARTS, expected, expected_counts
from gen.data.logs import of_arrays, open_log
from gen.data.profile import Profile
from gen.data.profiling.held import Stretch, parted
from gen.data.profiling.stream import count, finished, merge, profile, shares
from gen.data.remap import by_heat, row_counts
from gen.data.returns import AGEING, ENDS, FEWEST, PLACES, SPLITS, WHOLE, Returns
from gen.model.recommender import TableSpec


def a_log(samples=10_000, parts=1, seed=1):
    """Users who come once, each for some twenty samples; items that stay; bags of tags."""
    random = np.random.default_rng(seed)
    lengths = random.poisson(1.5, samples)
    ids = {"user": np.sort(random.integers(0, samples // 20, samples)), "item": random.zipf(1.4, samples).clip(0, 3000),
           "tag": random.integers(0, 200, lengths.sum())}
    return of_arrays(ids, {"tag": np.concatenate([[0], np.cumsum(lengths)])}, parts=parts)


def by_hand(log, table):
    """Of each split, the accesses behind the cut to the hottest of the rows before it."""
    chunks = list(log.chunks())
    ids = [chunk.ids[table][first:last].tolist() for chunk in chunks for first, last in pairwise(chunk.edges(table))]
    after, whole, once, all_before = np.zeros((len(SPLITS), len(PLACES))), [], [], []
    for split, ends in enumerate((*SPLITS, (0, 16, 16))):
        begin, cut, end = (round(at / 16 * len(ids)) for at in ends)
        before, behind = (Counter(sum(part, [])) for part in (ids[begin:cut], ids[cut:end]))
        once.append(sum(many == 1 for many in before.values()))
        all_before.append(sum(before.values()))
        if split == len(SPLITS):
            break
        alike: dict[int, list[int]] = {}
        for row, many in before.items():
            alike.setdefault(many, []).append(behind[row])
        knots = [(0, 0)]
        for many, asked in sorted(alike.items(), reverse=True):
            place = len(asked) / len(before) / 2 + len(asked) * many / sum(before.values()) / 2
            knots.append((knots[-1][0] + place, knots[-1][1] + sum(asked)))
        known = min(sum(before.values()), sum(behind.values())) >= FEWEST
        after[split] = known * np.rint(np.interp(PLACES, *zip(*knots)))
        whole.append(known * sum(behind.values()))
    return Returns(after.astype(np.int64), *map(np.array, (whole, once, all_before)))


def numbers(found):
    return {name: None if table.returns is None else table.returns.array().tolist()
            for name, table in found.tables.items()}


@pytest.mark.turns(1, of="processes")
def test_they_are_those_counted_by_hand():
    log = a_log()
    wanted = {name: by_hand(log, name).array().tolist() for name in log.tables}
    assert numbers(profile(log)) == wanted
    # Read in chunks, in parts, on a cluster whatever its size; as a stretch of a longer log.
    parts = [count(part, shares(1.0)) for part in a_log(parts=4).parts()]
    while len(parts) > 1:
        parts = [parts[0] + parts[1], *parts[2:]]
    assert numbers(finished(parts[0], 1.0)) == wanted == numbers(profile(a_log(parts=4)))
    assert numbers(profile(parted(a_log(20_000), 0.5)[0])) == {
        name: by_hand(Stretch(a_log(20_000), 0, 10_000), name).array().tolist() for name in log.tables}


@pytest.mark.turns(1, of="processes")
def test_of_a_text_file_by_its_bytes(tmp_path):
    log = a_log()
    ids = next(log.chunks(1 << 20)).ids
    path = tmp_path / "log.csv"
    lines = [f"{user:05},{item:05}\n" for user, item in zip(ids["user"], ids["item"])]
    path.write_text("".join(["user_id,item_id\n", *lines]), "utf-8")
    found = profile(open_log(path))
    for name in ("user", "item"):
        # Lines of one length; the file's first line is no sample.
        mine, wanted = found.tables[f"{name}_id"].returns, by_hand(log, name)
        assert np.abs(mine.after - wanted.after).max() <= 0.01 * wanted.whole.max()


@pytest.mark.parametrize("lines, columns", [(66_000, 2), (131_100, 2), (140_000, 1)])
def test_of_a_text_file_whose_last_block_makes_several_chunks(tmp_path, lines, columns):
    ids = np.random.default_rng(2).integers(0, 1000, (lines, columns))
    path = tmp_path / "log.csv"
    names = ("user_id", "item_id")[:columns]
    path.write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in ids.tolist()), ""]), "utf-8")
    found = profile(open_log(path))
    assert found.samples == lines
    behind = found.tables["user_id"].returns.whole
    assert behind[1] == pytest.approx(0.5 * lines, rel=0.3) and behind[2] == pytest.approx(0.25 * lines, rel=0.3)


def test_of_compressed_files_by_whole_files(tmp_path):
    """Much of one is read before its first sample is there."""
    random, paths = np.random.default_rng(3), []
    for number in range(5):
        ids = np.sort(random.integers(1000 * number, 1000 * number + 1000, 4000))
        paths.append(tmp_path / f"day_{number}.csv.gz")
        paths[-1].write_bytes(gzip.compress("\n".join(["user_id", *map(str, ids), ""]).encode()))
    found = profile(open_log(paths)).tables["user_id"].returns
    assert found.unseen == 1 and not found.after.any() and found.whole[0] == 20_000 - 4000
    assert profile(open_log(paths[0])).tables["user_id"].returns is None


def test_the_last_row_of_a_vocabulary_is_the_same_for_plan_and_order(monkeypatch):
    """2,000 ids with a row each, the first half of which stop coming; the last one's own accesses stop, too. As much is
    expected of all others, which stay in the order of their accesses if these count alike."""
    monkeypatch.setattr(counting, "GAIN", 1.0)
    random = np.random.default_rng(4)
    ids = np.concatenate([random.integers(0, 1000, 36_000), np.full(9000, 1999), random.integers(1000, 1999, 16_000)])
    table, spec = profile(of_arrays({"t": ids})).tables["t"], TableSpec("t", 2000, 4, "vocabulary")
    counts, heat = row_counts(spec, table), expected(spec, table).heat
    order = by_heat(expected_counts(spec, counts, table))
    assert heat.rows.tolist() == [1, 1999] and order[0] == 1999
    assert len(set(counts.tolist())) > 20 and (np.diff(counts[order[1:]]) <= 0).all()


def coming_and_going(samples, seed=6):
    """Of 8,000 rows at any time 1,000, the hottest half of which take two thirds of the accesses; each stays for an
    eighth of the log."""
    random = np.random.default_rng(seed)
    place = random.integers(0, 500, samples) + 500 * (random.random(samples) > 2 / 3)
    turn = np.arange(samples) * 8000 // samples
    return of_arrays({"t": (turn - place) // 1000 * 1000 % 8000 + place})


def test_accesses_count_by_their_age_where_rows_come_and_go(tmp_path, monkeypatch):
    log = coming_and_going(48_000)
    beginning, end = parted(log, 0.25)
    found = profile(beginning)
    table, spec = found.tables["t"], TableSpec("t", 8000, 4)
    half_life, floor = AGEING[table.returns.ageing]
    assert half_life and table.aged is not None
    # By hand: of each row its accesses in each stretch, by the age of the stretch's middle, to seven leading bits.
    ids, ends = next(beginning.chunks(1 << 20)).ids["t"], np.array([0, *ENDS]) * 36_000 // 16
    sums = dict.fromkeys(range(8000), 0)
    for first, last in pairwise(ends.tolist()):
        age = 16 - (first + last) / 2 * 16 / 36_000
        for row in ids[first:last].tolist():
            sums[row] += round(65536 * (floor + (1 - floor) * 0.5 ** (age / half_life)))
    lost = {row: max(many.bit_length() - 7, 0) for row, many in sums.items()}
    by_hand = [sums[row] >> lost[row] << lost[row] for row in table.ids.tolist()]
    assert table.aged.tolist() == by_hand and table.counts.sum() == 36_000
    with monkeypatch.context() as patch:    # some ids at a time
        patch.setattr(counting, "ROWS", 1000)
        stretches = [np.unique(ids[first:last], return_counts=True) for first, last in pairwise(ends.tolist())]
        assert counting.weighted(table.ids, *zip(*stretches), table.returns.ageing).tolist() == by_hand
    # Of the log's rows those that come first by it are asked for far more behind it.
    behind = np.bincount(next(end.chunks(1 << 20)).ids["t"], minlength=8000)
    alike = replace(table, aged=None)
    counts = row_counts(spec, alike)
    aged, counted = (behind[by_heat(np.where(counts > 0, expected_counts(spec, row_counts(spec, each), each), 0))
                            [:1000]].sum() for each in (table, alike))
    assert aged > 3 * counted
    # Where rows share ids all accesses count alike, as nothing says what comes back.
    shared = replace(spec, ids="modulo")
    assert table.ranking("modulo") is table
    assert (row_counts(shared, table) == row_counts(shared, alike)).all() and row_counts(spec, table).max() > 36_000
    found.save(tmp_path / "p.npz")
    assert Profile.load(tmp_path / "p.npz").tables["t"].aged.tolist() == by_hand
    for wrong in (table.aged[1:], 0 * table.aged):
        replace(found, tables={"t": replace(table, aged=wrong)}).save(tmp_path / "p.npz")
        with pytest.raises(ValueError, match="table 't' has accesses by their age that are not those of its ids"):
            Profile.load(tmp_path / "p.npz")


def test_accesses_count_alike_where_rows_stay():
    found = profile(a_log(40_000)).tables
    assert [(table.returns.ageing, table.aged) for table in found.values()] == 3 * [(0, None)]


def test_short_logs_and_joined_profiles_say_nothing():
    assert set(numbers(profile(a_log(FEWEST))).values()) == {None}
    log = a_log(parts=2)
    first, second = (profile(part) for part in log.parts())
    assert set(numbers(merge(first, second)).values()) == {None}


def test_a_profile_keeps_them(tmp_path):
    found = profile(a_log())
    found.save(tmp_path / "p.npz")
    assert numbers(Profile.load(tmp_path / "p.npz")) == numbers(found)
    table = found.tables["user"]
    good = table.returns.array()
    for wrong in ([1, 2], [-1, *good[1:]], [0, *good[1:]], [good[0], *[0] * (len(good) - 1)], good[::-1],
                  [good[0], len(AGEING), *good[2:]], [*good[:2 + len(SPLITS)], 10**9, *good[3 + len(SPLITS):]]):
        with pytest.raises(ValueError, match="^what parts of the log asked of its rows is not whole$"):
            Returns.of(np.array(wrong))
    nothing = replace(table.returns, whole=np.zeros_like(table.returns.whole))
    replace(found, tables={**found.tables, "user": replace(table, returns=nothing)}).save(tmp_path / "odd.npz")
    with pytest.raises(ValueError, match=r"odd\.npz"):
        Profile.load(tmp_path / "odd.npz")


@pytest.mark.parametrize("table", ["user", "item"])
def test_the_next_half_asks_what_is_expected(table):
    """Of rows the log lacks, and of its hottest ones; users who come once, of whom Good and Turing know nothing."""
    log = a_log(40_000)
    first, second = (profile(part).tables[table] for part in parted(log, 0.5))
    first = replace(first, returns=first.returns.expecting(1.0))
    rows = 1 + max(int(each.ids[-1]) for each in (first, second))
    found = expected(TableSpec(table, rows, 4), first)
    unseen = second.counts[~np.isin(second.ids, first.ids)].sum() / second.heat.total
    assert found.unseen == pytest.approx(unseen, abs=0.02)
    bare = expected(TableSpec(table, rows, 4), replace(first, returns=None))
    if table == "user":
        assert unseen > 0.95 and bare.unseen < 0.05
        # Those that the log lacks come first.
        assert found.heat.cdf([rows - first.heat.touched])[0] > 0.95 and found.seen == rows
    else:
        order = first.ids[by_heat(first.counts)]
        for hottest in (10, 100, 500):
            share = second.counts[np.isin(second.ids, order[:hottest])].sum() / second.heat.total
            assert found.heat.cdf([hottest])[0] == pytest.approx(share, rel=0.03)


def test_the_longer_the_horizon_the_more_rows_are_new():
    found = profile(a_log(40_000)).tables["user"].returns
    unseen = [found.expecting(horizon).unseen for horizon in (1 / 15, 0.1, 1 / 7, 1.0, 3.0, 100.0)]
    assert (np.diff(unseen) > -1e-3).all() and unseen[-1] == unseen[-2] > unseen[0]
    alone = found.once / found.before
    assert [each.unseen for each in found.spread] == pytest.approx([
        1 - found.after[split][-1] / found.whole[split] + alone[-1] - alone[split] for split in (1, WHOLE, WHOLE + 1)])


def test_of_many_rows_some_stand_for_the_others(monkeypatch):
    random = np.random.default_rng(5)
    log = of_arrays({"t": random.zipf(1.2, 60_000) % 40_000})
    every = profile(log).tables["t"].returns
    monkeypatch.setattr(counting, "ROWS", 4096)
    some = profile(log).tables["t"].returns
    assert (some.whole == every.whole).all() and (some.after != every.after).any()
    np.testing.assert_allclose(some.after / every.whole[:, None], every.after / every.whole[:, None], atol=0.02)


def test_levels_by_hand():
    """100 rows of ten accesses come back, 500 of one do not, 400 of none are asked for most."""
    counts = np.repeat([10, 1], [100, 500])
    table = profile(of_arrays({"t": np.repeat(np.arange(600), counts)})).tables["t"]
    # Those 100 have a sixth of the rows and two thirds of the accesses.
    curve = np.rint(700 * np.minimum(PLACES * 12 / 5, 1)).astype(np.int64)
    every = np.full(len(SPLITS) + 1, 1000)
    returns = Returns(np.tile(curve, (len(SPLITS), 1)), every[1:], every // 2, every)
    known = replace(table, returns=returns)
    found = expected(TableSpec("t", 1000, 4), known)
    share = 300 / 1000      # of 1,500 accesses: hotter than the 500 of one access
    np.testing.assert_allclose(found.heat.accesses / PARTS, [(1 - share) * 15, share * 1500 / 400, 0], rtol=0.02,
                               atol=0.3)
    assert found.heat.rows.tolist() == [100, 400, 500] and found.unseen == pytest.approx(share) and found.seen == 1000
    order = by_heat(expected_counts(TableSpec("t", 1000, 4), np.r_[table.counts, np.zeros(400, int)], known))
    assert order.tolist() == [*range(100), *range(600, 1000), *range(100, 600)]
    plain = expected(TableSpec("t", 1000, 4), known, unseen=False)
    assert plain.heat.accesses.tolist() == [10, 1] and plain.unseen == 0
    # Where ids are not rows, their rows are not those that come back.
    assert expected(TableSpec("t", 1000, 4, "modulo"), known).unseen == pytest.approx(
        expected(TableSpec("t", 1000, 4, "modulo"), table).unseen)
    spec = TableSpec("t", 601, 4, "vocabulary")
    own = expected(spec, known)
    np.testing.assert_allclose(own.heat.accesses[:2] / PARTS, [share * 1500, (1 - share) * 15], rtol=0.05)
    assert own.unseen == pytest.approx(share)
    assert by_heat(expected_counts(spec, row_counts(spec, known), known))[0] == 600


def test_one_unused_row_takes_nothing():
    """Ids that begin at 1 leave row 0 unused, which all users to come would else be expected to ask for."""
    found = profile(a_log(40_000)).tables["user"]
    assert found.returns.unseen > 0.9
    touched = found.heat.touched
    without, beside = (expected(TableSpec("user", rows, 4), found) for rows in (touched, touched + 1))
    assert without.unseen == 0 and beside.unseen < 0.01
    for rank in (10, 1000):
        assert beside.heat.cdf([rank])[0] == pytest.approx(without.heat.cdf([rank])[0], abs=0.01)
