"""Samples that a profile keeps in their order: against lists, whatever the parts; pages and batches counted by hand."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gen.data import excerpt
from gen.data.excerpt import Blocks, Excerpt
from gen.data.logs import of_arrays
from gen.data.order import ordered
from gen.data.profile import Profile
from gen.data.profiling import profile
from gen.data.profiling.stream import count, finished, shares
from gen.model.recommender import TableSpec


def a_log(samples=3000, parts=1):
    random = np.random.default_rng(3)
    lengths = random.poisson(1.5, samples)
    return of_arrays({"one": random.zipf(1.3, samples) % 500, "bag": random.integers(0, 90, lengths.sum()) * 10**12},
                     {"bag": np.concatenate([[0], np.cumsum(lengths)])}, parts=parts)


def looked_up(log, table):
    return [chunk.ids[table][first:last].tolist() for chunk in log.chunks() for first, last in pairwise(
        chunk.edges(table))]


def kept(found):
    """Of each table the ids of each sample, None where they are not counted."""
    ids = [*found.ids.tolist(), None]
    each = [ids[place] for place in found.excerpt.places]
    return [each[first:last] for first, last in pairwise(found.excerpt.edges)]


def test_a_short_log_is_kept_whole(tmp_path):
    log = a_log()
    found = profile(log)
    found.save(tmp_path / "p.npz")
    for each in (found, Profile.load(tmp_path / "p.npz")):
        for name, table in each.tables.items():
            assert kept(table) == looked_up(log, name) and table.excerpt.runs.tolist() == [3000]
    assert found.tables["one"].excerpt.lengths is None
    # A share of the samples is counted, all are kept.
    sampled = profile(log, sample=0.2).tables["one"]
    asked = looked_up(log, "one")
    assert [mine == theirs for mine, theirs in zip(kept(sampled), asked, strict=True)] == [
        each[0] in set(sampled.ids.tolist()) for each in asked]


def test_blocks_of_a_long_log_are_the_same_in_any_parts(monkeypatch):
    monkeypatch.setattr(excerpt, "BLOCK", 64)
    monkeypatch.setattr(excerpt, "MOST", 2000)
    monkeypatch.setattr(Blocks.__init__, "__defaults__", (2000,))
    log = a_log(parts=3)
    whole, parts = profile(log), [count(part, shares(1.0)) for part in log.parts()]
    for order in ((0, 1, 2), (0, 2, 1)):
        one, two, three = (parts[at].blocks for at in order)
        for blocks in (one + two + three, one + (two + three)):
            found = blocks.excerpts({name: table.ids for name, table in whole.tables.items()})
            for name, table in whole.tables.items():
                assert found[name].places.tolist() == table.excerpt.places.tolist()
                assert found[name].runs.tolist() == table.excerpt.runs.tolist()
    assert finished(parts[0] + parts[1] + parts[2], 1.0).tables["one"].excerpt.runs.tolist() == \
        whole.tables["one"].excerpt.runs.tolist()
    runs = whole.tables["one"].excerpt.runs
    sizes = sum(len(table.excerpt.places) for table in whole.tables.values())
    assert len(runs) > 3 and set(runs.tolist()) <= {64, 128, 192, 1000 % 64, 64 + 1000 % 64} and 1500 < sizes <= 2000
    asked = looked_up(log, "one")
    assert all(each in asked for each in kept(whole.tables["one"]))


def test_of_a_block_that_is_too_large_the_first_samples_are_kept(monkeypatch):
    monkeypatch.setattr(Blocks.__init__, "__defaults__", (100,))
    log = a_log()
    table = profile(log).tables["bag"]
    assert 20 < len(kept(table)) < 60 and kept(table) == looked_up(log, "bag")[:len(kept(table))]


@pytest.mark.parametrize("wrong", [([3], [], [0, 1]), ([0, 2], [], [0, 1]), ([2], [], [0, 9]), ([2], [1, 2], [0, 1]),
                                   ([2], [], [-1, 1])])
def test_arrays_that_do_not_fit_wrong(wrong):
    assert Excerpt.of(*(np.array(each, np.int64) for each in ([2], [], [0, 1])), 5) is not None
    with pytest.raises(ValueError, match="^the samples that it keeps are not whole$"):
        Excerpt.of(*(np.array(each, np.int64) for each in wrong), 5)


@pytest.mark.parametrize("size, page_rows", [(100, 8), (256, 3)])
def test_pages_of_a_batch_are_counted(size, page_rows):
    table, spec = profile(a_log()).tables["one"], TableSpec("one", 500, 4)
    order = ordered(spec, table)
    rank = {row: place for place, row in enumerate(sorted(table.ids.tolist(), key=lambda row: (
        -table.counts[np.searchsorted(table.ids, row)], row)))}
    asked = [rank[each[0]] for each in looked_up(a_log(), "one")]
    batches = [asked[at:at + size] for at in range(0, len(asked) - size + 1, size)]
    assert order.batches(size)[1] == len(batches) and order.accesses(size) == size
    cuts = np.arange(0, 300, page_rows)
    wanted = [np.mean([len({each // page_rows for each in batch if each >= cut}) for batch in batches])
              for cut in cuts]
    np.testing.assert_allclose(order.touched(cuts, page_rows, size), wanted)
    # Ranks from 7 on, whose pages begin there.
    np.testing.assert_allclose(order.behind(7).touched(np.zeros(1, np.int64), page_rows, size), np.mean(
        [len({(each - 7) // page_rows for each in batch if each >= 7}) for batch in batches]))
    wide = ordered(TableSpec("t", 900, 4), table)      # of rows that the log lacks as much is expected as of its last
    first, end = wide.lacking
    assert end - first == 900 - len(table.ids) and wide.of_log(np.array([0, first, end, 900])).tolist() == [
        0, first, first, len(table.ids)]
    assert order.behind(10**6) is None and ordered(spec, replace(table, excerpt=None)) is None
