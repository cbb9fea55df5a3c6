"""Profiles against plain Python counting, in any pieces and any order; saved ones byte by byte."""

import random as plain
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from gen.data.logs import of_arrays
from gen.data.profile import Heat, Profile, TableProfile
from gen.data.profiling import merge, profile
from gen.data.profiling.count import IdCounter, join, kept
from gen.data.profiling.stream import count, finished, shares, with_rows


def same(one, other):
    """Bit for bit, but for what people call them."""
    mine, theirs = one._arrays(), other._arrays()
    return (list(one.tables) == list(other.tables) and one.sampled == other.sampled and list(mine) == list(theirs)
            and all(mine[name].dtype == theirs[name].dtype and mine[name].tobytes() == theirs[name].tobytes()
                    for name in mine))


def some_log(samples=3000, *, parts=1, seed=1):
    random = np.random.default_rng(seed)
    lengths = random.poisson(2.5, samples)
    ids = {"user": random.zipf(1.3, samples).clip(0, 50_000), "tag": random.integers(0, 300, lengths.sum()),
           "hashed": random.integers(0, 1 << 62, samples // 4).repeat(4)[:samples]}
    return of_arrays(ids, {"tag": np.concatenate([[0], np.cumsum(lengths)])}, parts=parts)


@pytest.mark.parametrize("case", ["dense", "sparse", "both", "huge", "grows", "one"])
def test_ids_are_counted(case):
    random = np.random.default_rng(7)
    ids = {"dense": random.integers(0, 9000, 60_000), "sparse": random.integers(0, 1 << 63, 9000),
           "both": np.concatenate([random.integers(0, 40_000, 80_000), random.integers(0, 1 << 62, 3000)]),
           "huge": np.array([(1 << 64) - 1, 0, (1 << 64) - 1, 1 << 63], np.uint64), "grows": np.arange(100_000)[::-1],
           "one": np.full(5000, 123_456_789)}[case].astype(np.uint64)
    counter = IdCounter()
    for part in np.array_split(ids, 13):
        counter.add(part)
    found = dict(zip(*(array.tolist() for array in counter.counted())))
    assert found == dict(sorted(Counter(ids.tolist()).items())) and list(found) == sorted(found)


def test_dense_ids_leave_the_hash_table():
    counter = IdCounter()
    counter.add(np.arange(1 << 17, dtype=np.uint64))
    assert counter._dense.nbytes + counter._slots.nbytes <= 32 * (1 << 17)


def test_lists_are_joined():
    random = np.random.default_rng(2)
    for one, other in ((0, 0), (5, 0), (0, 5), (40, 60)):
        lists = [np.unique(random.integers(0, 70, size)).astype(np.uint64) for size in (one, other)]
        counts = [random.integers(1, 9, len(ids)) for ids in lists]
        wanted = Counter()
        for ids, many in zip(lists, counts):
            wanted.update(dict(zip(ids.tolist(), many.tolist())))
        ids, many = join(lists[0], counts[0], lists[1], counts[1])
        assert list(zip(ids.tolist(), many.tolist())) == sorted(wanted.items())


def test_profile_of_a_log():
    """Every field against the log's samples, one by one."""
    log = some_log()
    found = profile(log)
    wanted = {name: Counter() for name in log.tables}
    bags = {name: Counter() for name in log.tables}
    for chunk in log.chunks(1):
        for name, ids in chunk.ids.items():
            wanted[name].update(ids.tolist())
            bags[name][len(ids)] += 1
    assert found.samples == 3000 and found.source == log.source and not found.extras and found.sampled == 1
    for name, table in found.tables.items():
        assert dict(zip(table.ids.tolist(), table.counts.tolist())) == wanted[name]
        assert dict(zip(table.bag_lengths.tolist(), table.bag_samples.tolist())) == bags[name]
        assert table.rows == table.heat.touched == len(wanted[name])
        assert table.pooling == sum(wanted[name].values()) / 3000
        hottest = [many for _, many in wanted[name].most_common()]
        assert np.allclose(table.heat.cdf(np.arange(len(hottest) + 1)),
                           np.concatenate([[0], np.cumsum(hottest)]) / sum(hottest))
        steps = np.linspace(0, 1, 101)
        fewest = [int(np.searchsorted(np.cumsum(hottest), step * sum(hottest) - 1e-6)) + 1 if step else 0
                  for step in steps]
        assert table.heat.icdf(steps).tolist() == fewest


def test_rows_of_the_model():
    found = profile(some_log(), rows={"tag": 1000, "user": 60_000})
    assert [(name, table.rows) for name, table in found.tables.items()] == [("user", 60_000), ("tag", 1000)]
    sampled = profile(some_log(), sample=0.1, rows={"tag": 1000})
    assert list(sampled.tables) == ["tag"] and list(sampled.extras) == ["sampling_error"]
    every = profile(some_log(), sample=0.1, rows={"hashed": 3, "tag": 5, "user": 7})
    assert list(every.tables) == ["user", "tag", "hashed"] and every.extras["sampling_error"].shape == (3,)
    assert sampled.extras["sampling_error"].tolist() == every.extras["sampling_error"][1:2].tolist()
    mixed = replace(every, extras={**every.extras, "correlation": np.eye(3)})
    assert list(with_rows(mixed, {"tag": 9}).extras) == ["sampling_error"]
    with pytest.raises(ValueError, match=r"arrays has no table 'item'; it has user, tag, hashed"):
        profile(some_log(), rows={"item": 3})


@pytest.mark.parametrize("sample", [1.0, 0.6, 0.2])
def test_merged_in_any_split(sample):
    """Parts merged from the left, from the right and at random: the whole log's profile, bit for bit."""
    whole = count(some_log(parts=9), shares(sample))
    parts = [count(part, shares(sample)) for part in some_log(parts=9).parts()]
    assert len(whole.profiles) == (7 if sample == 0.2 else 6)
    for stretch, wanted in enumerate(whole.profiles):
        each = [part.profiles[stretch] for part in parts]
        left, right = each[0], each[-1]
        for other in each[1:]:
            left = merge(left, other)
        for other in each[-2::-1]:
            right = merge(other, right)
        shuffled, draw = list(each), plain.Random(4)
        while len(shuffled) > 1:
            draw.shuffle(shuffled)
            shuffled.append(merge(shuffled.pop(), shuffled.pop()))
        assert same(left, wanted) and same(right, wanted) and same(shuffled[0], wanted)
        assert left.source == wanted.source


def test_merges_that_make_no_sense():
    found = profile(some_log())
    with pytest.raises(ValueError, match="arrays has the tables user, tag, hashed; arrays has user"):
        merge(found, profile(of_arrays({"user": [1]})))
    with pytest.raises(ValueError, match=r"arrays was sampled by 1, arrays by 0\.5"):
        merge(found, profile(some_log(), sample=0.5))
    bare = replace(found, tables={name: replace(table, ids=None, counts=None) for name, table in found.tables.items()})
    with pytest.raises(ValueError, match="table user is known by statistics alone: without ids"):
        merge(found, bare)
    rows = [profile(some_log(seed=seed), rows={"tag": rows}) for seed, rows in ((1, 1000), (2, 1000), (3, 900))]
    assert merge(rows[0], rows[1]).tables["tag"].rows == 1000
    with pytest.raises(ValueError, match="table tag has 1000 rows here and 900 there"):
        merge(rows[0], rows[2])


def test_sampling():
    """The share, the samples themselves, and the error against all accesses counted by hand."""
    log = some_log(40_000, parts=3)
    found = profile(log, sample=0.1)
    numbers = np.concatenate([chunk.first + np.arange(chunk.samples) for chunk in log.chunks()])
    hashes = np.concatenate([kept(int(number), 1) for number in numbers])
    assert abs((hashes < 0.1).mean() - 0.1) < 0.005 and found.samples == (hashes < 0.1).sum()
    ids = np.concatenate([chunk.ids["user"] for chunk in log.chunks()])
    here, there = Counter(ids[hashes < 0.1].tolist()), Counter(ids[(hashes >= 0.1) & (hashes < 0.2)].tolist())
    assert dict(zip(found.tables["user"].ids.tolist(), found.tables["user"].counts.tolist())) == here
    worst = 0.0
    for level in set(here.values()):
        hot = [row for row, many in here.items() if many >= level]
        shares_of = [sum(each[row] for row in hot) / sum(each.values()) for each in (here, there)]
        worst = max(worst, abs(shares_of[0] - shares_of[1]))
    assert found.extras["sampling_error"][0] == pytest.approx(worst)
    # Ids that come four times in all are hot by chance alone.
    assert found.extras["sampling_error"][2] > 0.5 > 0.1 > found.extras["sampling_error"][1]
    for share in (0, -0.5, 1.01):
        with pytest.raises(ValueError, match=f"sample is {share:g}; a share of the samples is above 0 and at most 1"):
            profile(log, sample=share)
    assert finished(count(log, (0.0, 0.1)), 0.1).sampled == 0.1
    worst = found.extras["sampling_error"]
    assert worst.argmax() == 2 and found.sampling() == (
        f"0.1 of its samples were counted; the share of accesses to the hottest rows is at most {100 * worst[2]:.1f}% "
        "off in table hashed, and less in others")
    assert found.sampling(["tag"]).endswith(f" at most {100 * worst[1]:.1f}% off")
    assert profile(log, sample=0.6).sampling() == (
        "0.6 of its samples were counted; how far off that is, is not known: it takes as many other samples, so half "
        "the log at most")
    assert profile(log).sampling() == ""


def test_empty_bags_and_tables_without_accesses():
    log = of_arrays({"tag": np.zeros(0, np.int64), "x": [5, 5]}, {"tag": [0, 0, 0]}, parts=2)
    found = profile(log)
    table = found.tables["tag"]
    assert table.rows == table.heat.total == 0 and table.bag_lengths.tolist() == [0] and table.pooling == 0
    assert table.heat.icdf([0.5, 1.0]).tolist() == [0, 0] and table.heat.cdf([3]).tolist() == [0]
    parts = [profile(part) for part in log.parts()]
    assert same(merge(*parts), replace(found, tables={
        name: replace(table, excerpt=None) for name, table in found.tables.items()}))


@pytest.fixture
def saved(tmp_path):
    found = replace(profile(some_log(200), sample=0.4), extras={"popular": np.linspace(0, 1, 5)})
    bare = TableProfile("bare", 10**9, 80, Heat.of([7, 1, 1]), np.array([0, 9]), np.array([79, 1]))
    found = replace(found, tables={**found.tables, "bare": bare})
    found.save(tmp_path / "p.npz")
    return found, tmp_path / "p.npz"


def test_saved_and_loaded(saved, tmp_path):
    found, path = saved
    again = Profile.load(path)
    assert same(found, again) and again.source == found.source and again.samples == found.samples
    assert again.tables["bare"].ids is None and again.tables["user"].ids.dtype == np.uint64
    assert again.extras["popular"].tolist() == [0, 0.25, 0.5, 0.75, 1]
    again.save(tmp_path / "q.npz")
    assert (tmp_path / "q.npz").read_bytes() == path.read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.npz", "q.npz"]
    with np.load(path, allow_pickle=False) as archive:
        assert archive["heat_rows_ends"][-1] == sum(len(table.heat.rows) for table in found.tables.values())


def test_a_flipped_byte_is_refused(saved):
    _, path = saved
    whole = path.read_bytes()
    for at in [*range(0, len(whole), 11), *range(len(whole) - 100, len(whole))]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1:])
        with pytest.raises(ValueError, match=r"p\.npz is no profile of hotrail, or damaged"):
            Profile.load(path)
    for cut in (0, 3, 10, 64, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"p\.npz is no profile of hotrail, or damaged"):
            Profile.load(path)


@pytest.mark.parametrize("sampled", [0, -1.0, 1.5, 10**400, "1", None, True])
def test_shares_that_are_none_are_refused(saved, sampled):
    found, path = saved
    replace(found, sampled=sampled).save(path)
    with pytest.raises(ValueError, match=rf"^{path} is no profile as .* writes them: (source or )?sampled is"):
        Profile.load(path)


def test_other_files_are_refused(saved, tmp_path, monkeypatch):
    found, path = saved
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match=r"other\.npz is no profile of hotrail, or damaged"):
        Profile.load(tmp_path / "other.npz")
    with pytest.raises(ValueError, match=r"none\.npz cannot be read: No such file"):
        Profile.load(tmp_path / "none.npz")
    monkeypatch.setattr("gen.data.profile.VERSION", 6)
    found.save(tmp_path / "next.npz")
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"next\.npz is a profile of version 6; this hotrail reads version 5"):
        Profile.load(tmp_path / "next.npz")
    with pytest.raises(ValueError, match="no folder/p.npz cannot be written: No such file or directory"):
        found.save(tmp_path / "no folder" / "p.npz")
    monkeypatch.setattr("gen.data.profile._sha256", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        found.save(tmp_path / "half.npz")
    assert not list(tmp_path.glob("half*"))
