"""The second pass against plain Python: sets of hot rows, ranks, an LRU cache that is a list; and on Dask."""

from collections import Counter, OrderedDict
from dataclasses import replace

import numpy as np
import pytest

from gen.data.logs import lines, of_arrays, open_log
from gen.data.profiling import profile, spread, together
from gen.data.profiling.co_access import Places, extras, looked
from gen.data.profiling.reuse import POINTS, Thinned, distances, static_misses


def some_log(samples=1500, *, parts=1):
    random = np.random.default_rng(3)
    lengths = random.poisson(1.5, samples)
    common = random.random(samples)
    ids = {"one": (common**3 * 400).astype(int) * 7919,
           "two": (common**2 * 90).astype(int) + random.integers(0, 3, samples),
           "tag": random.zipf(1.6, lengths.sum()).clip(0, 60), "same": np.full(samples, 9)}
    return of_arrays(ids, {"tag": np.concatenate([[0], np.cumsum(lengths)])}, parts=parts)


ROW_BYTES = {"one": 256, "two": 64, "tag": 128, "same": 64}


def bags(log):
    """Of each sample {table: its ids}."""
    for chunk in log.chunks(1):
        yield {name: ids.tolist() for name, ids in chunk.ids.items()}


@pytest.mark.turns(1, of="processes")
def test_popular_samples():
    log = some_log()
    found = together(log, profile(log), row_bytes=ROW_BYTES)
    heat = Counter((list(ROW_BYTES).index(name), row) for bag in bags(log) for name, ids in bag.items() for row in ids)
    order = sorted(heat, key=lambda key: (-heat[key], key))
    edges, shares = found.extras["popular_bytes"], found.extras["popular_share"]
    assert edges[0] == 4096 and len(edges) > 5 and shares[-1] == 1
    sizes = list(ROW_BYTES.values())
    for edge, share in zip(edges, shares):
        room, held = int(edge), set()
        for table, row in order:
            room -= sizes[table]
            if room < 0:
                break
            held.add((table, row))
        popular = sum(all((number, row) in held for number, name in enumerate(ROW_BYTES) for row in bag[name])
                      for bag in bags(log))
        assert share == popular / 1500


def test_correlation_is_spearmans():
    log = some_log()
    found = together(log, profile(log), row_bytes=ROW_BYTES).extras["correlation"]
    samples = list(bags(log))
    columns = {}
    for name in ROW_BYTES:
        heat = Counter(row for bag in samples for row in bag[name])
        total = sum(heat.values())
        rare = {many: (sum(each for each in heat.values() if each > many) + list(heat.values()).count(many) * many / 2)
                / total for many in set(heat.values())}
        columns[name] = [max((rare[heat[row]] for row in bag[name]), default=0) for bag in samples]
    wanted = np.corrcoef([columns[name] for name in ("one", "two", "tag")])
    assert np.abs(found[:3, :3] - wanted).max() < 1e-3 and wanted[0, 1] > 0.8
    assert np.isnan(found[3]).all()


def lru(ids, size):
    cache, misses = OrderedDict(), 0
    for row in ids:
        misses += row not in cache
        cache[row] = None
        cache.move_to_end(row)
        if len(cache) > size:
            cache.popitem(last=False)
    return misses / len(ids)


def test_miss_ratios():
    log = some_log()
    found = profile(log)
    places = Places.of(found, ROW_BYTES)
    curves = extras(found, places, looked(log, found, places, 1.0))
    for number, name in enumerate(ROW_BYTES):
        ids = [row for bag in bags(log) for row in bag[name]]
        hottest = [row for row, _ in Counter(ids).most_common()]
        for at, share in enumerate(POINTS):
            size = int(np.ceil(share * len(hottest)))
            assert curves["lru_misses"][number, at] == pytest.approx(lru(ids, size))
            held = set(hottest[:size])
            assert curves["static_misses"][number, at] == pytest.approx(sum(row not in held for row in ids) / len(ids))
    assert distances(np.array([5, 6, 5, 5, 7, 6], np.uint64)).tolist() == [-1, -1, 1, 0, -1, 2]
    assert distances(np.zeros(0, np.uint64)).tolist() == []


def test_thinned_curves_are_near(monkeypatch):
    """A tenth of the rows gives the curve of all."""
    random = np.random.default_rng(5)
    ids = (random.pareto(0.8, 60_000) * 30).clip(0, 1 << 40).astype(np.uint64)
    table = profile(of_arrays({"t": ids})).tables["t"]
    assert static_misses(table)[-1] == 0
    whole = Thinned.of(table, 1.0)
    monkeypatch.setattr("gen.data.profiling.reuse.STREAM", 6000)
    thin = Thinned.of(table, 1.0)
    assert whole.rate == 1 and thin.rate == 0.1 and Thinned.of(table, 0.9).rate == 0.09
    halves = thin.of_chunk(ids[:20_000]) + thin.of_chunk(ids[20_000:])
    assert halves.seen == 60_000 and np.array_equal(np.concatenate(halves.streams), thin.of_chunk(ids).streams[0])
    assert abs(halves.misses() - whole.of_chunk(ids).misses()).max() < 0.05
    monkeypatch.setattr("gen.data.profiling.reuse.FEWEST", 10**6)
    assert np.isnan(Thinned.of(table, 1.0).of_chunk(ids).misses()).all()


@pytest.mark.parametrize("sample", [1.0, 0.3])
def test_second_pass_in_parts(sample):
    log = some_log(parts=5)
    found = profile(log)
    places = Places.of(found, ROW_BYTES)
    whole = looked(log, found, places, sample)
    parts = [looked(part, found, places, sample) for part in log.parts()]
    added = (parts[0] + parts[1]) + (parts[2] + (parts[3] + parts[4]))
    assert whole.samples == added.samples == (1500 if sample == 1 else whole.samples) > 300
    wanted = extras(found, places, whole)
    for name, array in extras(found, places, added).items():
        assert array.tobytes() == wanted[name].tobytes(), name


def test_second_pass_of_what_it_cannot():
    log = some_log()
    found = profile(log)
    with pytest.raises(ValueError, match="table tag: how many bytes a row has is missing"):
        together(log, found, row_bytes={"one": 64, "two": 64})
    bare = {name: replace(table, ids=None, counts=None) for name, table in found.tables.items()}
    with pytest.raises(ValueError, match="table one is known by statistics alone; popular samples need"):
        together(log, replace(found, tables=bare), row_bytes=ROW_BYTES)
    # Rows that the profile has never seen are in no memory.
    half = profile(of_arrays({"x": [1, 1, 2]}))
    other = together(of_arrays({"x": [1, 3, 3, 3]}), half, row_bytes={"x": 64})
    assert other.extras["popular_share"].tolist() == [0.25]


@pytest.mark.turns(1, of="processes")
def test_dask_gives_the_same_bits(tmp_path, monkeypatch):
    """Two processes, a scheduler by its address, and this one."""
    log = some_log(parts=5)
    alone = [together(log, profile(log, sample=share), row_bytes=ROW_BYTES) for share in (1.0, 0.25)]
    told = []
    with spread.cluster(workers=2) as client, spread.cluster(client.scheduler.address) as other:
        for each, share, wanted in ((client, 1.0, alone[0]), (other, 0.25, alone[1])):
            found = spread.profile(each, log, sample=share, say=lambda done, of: told.append((done, of)))
            found = spread.together(each, log, found, row_bytes=ROW_BYTES)
            mine, theirs = found._arrays(), wanted._arrays()
            assert list(mine) == list(theirs) and found.source == wanted.source
            for name, array in mine.items():
                assert array.tobytes() == theirs[name].tobytes(), name
        with pytest.raises(ValueError, match="arrays has no table 'item'"):
            spread.profile(client, log, rows={"item": 3})
        # Broken lines that workers meet are named as if they had been met here.
        monkeypatch.setattr(lines, "PIECE_BYTES", 60)
        written = "".join(f"{n}\n" if n in (5, 31) else f"{n}\t0\n" for n in range(50))
        (tmp_path / "log.tsv").write_text("t_id\tb\n" + written, "utf-8")
        text = open_log(tmp_path / "log.tsv")
        assert len(text.parts()) > 3
        spread.profile(client, text)
        assert text.problems.lines() == [
            f"2 x lines of too few or too many fields; first {tmp_path / 'log.tsv'}:7: 1 fields, not 2"]
    assert told[-5:] == [(done, 5) for done in range(1, 6)]


def test_no_scheduler():
    with pytest.raises(ValueError, match=r"no Dask scheduler answers at 127.0.0.1:1: "):
        with spread.cluster("127.0.0.1:1", wait_s=0.5):
            raise AssertionError
