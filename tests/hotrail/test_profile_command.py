"""`hotrail profile` from a file to its page, and what it says of files that it cannot take."""

import gzip
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gen.compress.ratio import ratios
from gen.data.profile import Profile
from gen.data.profiling import flow
from tests.support.command import call

DATA = Path(os.environ.get("HOTRAIL_DATA", "no folder"))


@pytest.fixture
def log(tmp_path):
    random = np.random.default_rng(1)
    rows = [f"{user}\t{item}" for user, item in zip(random.integers(0, 50, 4000), random.zipf(1.4, 4000).clip(0, 900))]
    path = tmp_path / "clicks.tsv.gz"
    path.write_bytes(gzip.compress("\n".join(["user_id\titem_id", *rows, "broken"]).encode()))
    return path


run = partial(call, "profile")


def test_the_whole_way(log, tmp_path):
    out = tmp_path / "out"
    done = run(log, "--together", "--out", out)
    assert done.exit_code == 0, done.output
    assert "clicks.tsv.gz: 4,000 samples, 2 tables, 8,000 accesses to" in done.output
    assert "broken     1 x " in done.output and "user_id" in done.output
    assert sorted(file.name for file in out.iterdir()) == ["index.html", "profile.npz"]
    assert "Samples of rows in memory alone" in (out / "index.html").read_text("utf-8")
    found = Profile.load(out / "profile.npz")
    assert found.tables["user_id"].rows == 50 and found.extras["popular_share"][-1] == 1
    # What was saved is read again, with the rows of a model, into the same table.
    model = tmp_path / "m.toml"
    model.write_text('dim = 16\n[tables.item_id]\nrows = 1000\n', "utf-8")
    again = run(out / "profile.npz", "--model", model, "--out", out)
    assert again.exit_code == 0 and "1 tables, 4,000 accesses to" in again.output and "of 1,000 rows" in again.output


def test_a_column_that_numbers_the_samples(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("request_id,user_id\n" + "".join(f"{10 ** 18 - row},{row % 7}\n" for row in range(150)), "utf-8")
    done = run(path, "--out", tmp_path / "out")
    assert "note       request_id: no id occurs twice, so no row is worth a faster memory; if it" in done.output
    assert "note       user_id" not in done.output


def test_sampled(log, tmp_path):
    done = run(log, "--sample", "0.2", "--out", tmp_path / "out")
    assert done.exit_code == 0 and "; 0.2 of its samples were counted" in done.output and "error" in done.output


@pytest.mark.parametrize("model, sentence", [
    ('dim = 4\n[tables.item_id]\nrows = 100\n', "table item_id: the id "),
    ('dim = 4\n[tables.shop_id]\nrows = 100\n', "shop_id"),
    ('dim = 4\n', r"m.toml: tables: there must be a [tables.NAME] at least")])
def test_models_that_do_not_fit(log, tmp_path, model, sentence):
    (tmp_path / "m.toml").write_text(model, "utf-8")
    done = run(log, "--model", tmp_path / "m.toml", "--out", tmp_path / "out")
    assert done.exit_code == 1 and sentence in done.output.splitlines()[-1] and "Traceback" not in done.output
    assert not (tmp_path / "out").exists()


def test_ids_past_the_rows_are_taken_where_they_are_no_rows(log, tmp_path):
    (tmp_path / "m.toml").write_text('dim = 4\n[tables.item_id]\nrows = 100\nids = "modulo"\n', "utf-8")
    assert run(log, "--model", tmp_path / "m.toml", "--out", tmp_path / "out").exit_code == 0


def test_statistics_have_no_second_pass(log, tmp_path):
    run(log, "--out", tmp_path / "out")
    done = run(tmp_path / "out" / "profile.npz", "--together", "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert ("holds counts already; --together, --sample, --held-back and options of how a log is read need the log "
            "itself") in done.output


def test_on_a_cluster(log, tmp_path, monkeypatch):
    """The client's calls alone: what a cluster makes of them is tests/gen/test_profile_together's."""
    from contextlib import contextmanager

    class Client:
        def submit(self, work, *arguments, pure):
            return Done(work(*[each.value if isinstance(each, Done) else each for each in arguments]))

        def scatter(self, value, broadcast):
            return value

        def gather(self, futures):
            return [each.value for each in futures]

    class Done:
        def __init__(self, value):
            self.value, self.status = value, "finished"

        def result(self):
            return self.value

    @contextmanager
    def cluster(scheduler, *, workers):
        assert (scheduler, workers) == (None, 3)
        yield Client()

    monkeypatch.setattr("gen.data.profiling.spread.cluster", cluster)
    monkeypatch.setattr("distributed.as_completed", list)
    told = []
    found = flow.run(flow.Options([str(log)], together=True, workers=3), tmp_path / "one",
                     progress=lambda done, of: told.append((done, of)))
    flow.run(flow.Options([str(log)], together=True), tmp_path / "two")
    assert (tmp_path / "one" / "profile.npz").read_bytes() == (tmp_path / "two" / "profile.npz").read_bytes()
    assert told[-1] == (log.stat().st_size, log.stat().st_size) and found.samples == 4000


@pytest.mark.skipif(not (DATA / "mels_stats").exists(), reason="HOTRAIL_DATA does not name the statistics' folder")
def test_mels(tmp_path):
    done = run("mels2021", "--out", tmp_path)
    assert done.exit_code == 0 and "856 tables, 468," in done.output and "2,328,932,896 rows" in done.output


def test_ratios():
    """By the words of the cores, as SCRec has them: 4 x 4 x 4 columns, rank 4."""
    assert ratios([1000, 0], 64)[:, 0].tolist()[0] == 64_000 / (10 * 4 * 4 + 4 * 10 * 4 * 4 + 4 * 10 * 4)
    found = ratios([10, 10**4, 10**7], 64, (2, 4, 8))
    assert (np.diff(found, axis=0) > 0).all() and (np.diff(found, axis=1) < 0).all() and found[0, 2] < 1 < found[0, 0]
    assert np.isnan(ratios([0], 64)[0, 0])
