"""fpga.api.dispatching on a card whose core is the oracle: what it dispatches of a log, reports and draws."""

from dataclasses import replace

import numpy as np
import pytest

from fpga.api import dispatching
from fpga.api.dispatching import Options
from fpga.api.dlrm import payload_of
from fpga.api.gpu import GATHERED, POPULAR
from gen.data.logs import Trace, open_log, text
from hotrail.report import hotline as report
from tests.support import hotline_logs as make
from tests.support import log_files
from tests.support.hotline_card import OracleCard

COUNT = 600


def a_log(folder, **changes):
    """Two tables of which few rows are asked for often, a bag, labels and dense features."""
    random = np.random.default_rng(4)
    lengths = random.integers(0, 7, COUNT)
    arrays = {"idx_user": make.zipf(random, 300, COUNT, 1.4), "idx_item": make.zipf(random, 500, COUNT, 1.4),
              "ind_tag": make.zipf(random, 40, int(lengths.sum()), 1.2),
              "off_tag": np.concatenate([[0], np.cumsum(lengths)]),
              "label": random.integers(0, 2, COUNT).astype(np.int8),
              "dense": random.standard_normal((COUNT, 3)).astype(np.float32), **changes}
    path = folder / "small.npz"
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def run(path, config=make.TINY, **changes):
    said = []
    options = Options(**{"logs": [path], "learn": 0.5, "samples": 200} | changes)
    found = dispatching.run(options, config=config, card=lambda: OracleCard(make.core(config)), say=said.append)
    return found, said


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dispatching")
    return *run(a_log(folder)), folder


def test_deals_every_sample_twice(small):
    found, _, _ = small
    assert (found.learned, found.samples, found.batch, list(found.tables)) == (300, 200, 16, ["user", "item", "tag"])
    with_hot, without = found.runs
    assert [each.counters["samples"] for each in found.runs] == [200, 200]
    assert without.count(POPULAR) == 0 and without.counters["popular"] == without.counters["hits"] == 0
    assert with_hot.count(POPULAR) > 0 and with_hot.count(GATHERED) > 0
    assert 0 < found.popular == with_hot.counters["popular"] < 200
    assert with_hot.count(GATHERED) < without.count(GATHERED)
    for each in found.runs:
        assert len(each.kinds) == len(each.started) == len(each.finished)
        assert 0 <= each.idle < 1 and list(each.finished) == sorted(each.finished)
    assert found.speedup == without.finished[-1] / with_hot.finished[-1]


def test_shares_are_those_of_the_log(small):
    found, _, folder = small
    assert 0 < found.share <= found.best <= 1 and 0 < found.hot <= found.capacity == 8 * 64 * 4
    with np.load(folder / "small.npz") as log:
        tags = log["ind_tag"][log["off_tag"][300]:]
        assert found.accesses.sum() == 2 * (COUNT - 300) + len(tags)
    assert (np.diff(found.accesses) <= 0).all()
    assert found.best == found.accesses[:found.hot].sum() / found.accesses.sum()


def test_tells_how_far_it_is(small):
    found, said, _ = small
    assert said[0].endswith("600 samples, 8 indices each")
    assert f"learned    300 samples: {found.hot:,} hot rows" in said
    assert [line for line in said if line.endswith("200 of 200 samples trained")] == [
        f"training   {each.name}: 200 of 200 samples trained" for each in found.runs]
    text = "\n".join(dispatching.lines(found))
    assert f"{found.hot:,} found" in text and f"{found.share:.1%}" in text and "GPU idle" in text


def test_draws_what_it_found(small, tmp_path):
    found, _, _ = small
    page = report.write(replace(found, source="a <log> & more"), tmp_path / "new")
    text = page.read_text("utf-8")
    assert "a &lt;log&gt; &amp; more" in text and "What the GPU does" in text
    assert f"{found.speedup:.2f} times as long" in text
    # Nothing hot, nothing popular: the page stands.
    report.write(replace(found, hot=0, share=0.0, best=0.0, runs=(found.runs[1], found.runs[1])), tmp_path / "none")


def test_cuts_bags_that_are_too_long(tmp_path):
    lengths = np.full(COUNT, 20)
    path = a_log(tmp_path, ind_tag=np.arange(20 * COUNT) % 40, off_tag=np.concatenate([[0], np.cumsum(lengths)]))
    found, said = run(path, samples=20, batch=2)
    assert found.cut == 6 * COUNT and "3,600 indices of long bags left out" in said[0]
    assert found.accesses.sum() == 16 * (COUNT - 300)


@pytest.mark.parametrize("name", log_files.NAMES)
def test_deals_every_table_of_every_format(tmp_path, name):
    """Tables, what is learned, dense features, and what is said of the rest."""
    path = log_files.written(tmp_path, name)
    if name == "a.pt":
        with pytest.raises(ValueError, match="has none of label, .*; its columns are none: --label says"):
            run(path)
        return
    found, said = run(path, replace(make.TINY, positions=64), samples=20, batch=4)
    kind = name.removesuffix(".gz").removesuffix(".zst")
    tables = {"train.txt": text.CRITEO_TABLES, "train.csv": text.AVAZU_TABLES}.get(kind, ("user_id", "item_id"))
    bags = ("tag",) if kind in ("a.npz", "a.parquet") else ()
    assert tuple(found.tables) == (*tables, *bags) and found.samples == 20
    indices = len(tables) + len(bags) * int(np.diff(log_files.OFFSETS).max())
    assert said[0] == f"log        {path}: 60 samples, {indices} indices each"
    assert [line for line in said if line.startswith("not ")] == ["not used   hour"] * (kind == "train.csv")


def test_some_tables_of_a_log(tmp_path):
    found, said = run(a_log(tmp_path), tables=("tag", "user"), samples=20, batch=2)
    assert list(found.tables) == ["user", "tag"] and "not read   item (not asked for)" in said


def test_dense_features_of_criteo(tmp_path):
    payload, unused = payload_of(Trace.of(open_log(log_files.written(tmp_path, "train.txt"))), None)
    wanted = np.concatenate([np.repeat(np.log1p(np.arange(log_files.COUNT))[:, None], 13, 1),
                             log_files.LABEL[:, None]], axis=1)
    assert not unused and np.array_equal(payload.view(np.float32), wanted.astype(np.float32))


def test_cuts_a_rating_at_its_mean(tmp_path):
    rating = np.arange(COUNT) % 5 + 1.0
    columns = dict(label=None, dense=None, ind_tag=None, off_tag=None)
    path = a_log(tmp_path, rating=rating, score=1 - rating / 5, **columns)
    trace = Trace.of(open_log(path))
    for label, wanted in ((None, rating > 3), ("score", rating < 3)):
        payload, unused = payload_of(trace, label)
        assert unused == ["score" if label is None else "rating"]
        payload = payload.view(np.float32)
        assert (payload == np.stack([np.ones(COUNT), wanted], axis=1)).all()


@pytest.mark.parametrize("changes, log, sentence", [
    (dict(learn=0.0), {}, "learn must be more than 0 and less than 1, not 0"),
    (dict(learn=1.0), {}, "learn must be more than 0 and less than 1, not 1"),
    (dict(samples=0), {}, "samples must be at least 1, not 0"),
    (dict(gpu_cycles=0), {}, "gpu_cycles must be at least 1, not 0"),
    (dict(batch=40), {}, "batch must be 1 to 16 samples of 2 beats, not 40"),
    (dict(label="liked"), {}, "has no column 'liked'; its columns are label: --label says which one is learned"),
    ({}, dict(label=None), "has none of label, click, clicked, is_click, clk, target, rating; its columns are none: "
     "--label says which one is learned"),
    (dict(learn=0.9999), {}, "has 600 samples: none is left behind those to learn from"),
    ({}, {f"idx_t{number}": np.zeros(COUNT, int) for number in range(14)},
     "has 16 tables of one index and 1 of bags: the core has 16 positions for them: --table takes some of them, "
     "--preset a larger core"),
])
def test_mistakes_are_sentences(tmp_path, changes, log, sentence):
    path = a_log(tmp_path, **log)
    with pytest.raises(ValueError) as caught:
        run(path, **changes)
    assert str(caught.value).endswith(sentence)
