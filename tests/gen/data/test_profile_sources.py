"""What a profile is made of: logs, and what holds counts already."""

import json

import numpy as np
import pytest

from gen.data.profile import Heat, Profile, TableProfile
from gen.data.profiling import flow
from gen.data.profiling.sources import statistics_of
from gen.model.recommender import Recommender, TableSpec


def profile_of(*logs, tables=None, say=lambda _: None, **given):
    model = tables and Recommender("m", "", {name: TableSpec(name, 9, 4, "modulo") for name in tables})
    return flow.profile_of(flow.Options(logs, model, **given), say=say)


def a_profile():
    one = np.array([1])
    return Profile("made up", 3, {"t": TableProfile("t", 9, 3, Heat.of([2, 1]), one, 3 * one)})


def test_a_saved_profile_is_loaded_and_a_log_counted(tmp_path):
    a_profile().save(tmp_path / "p.npz")
    assert statistics_of(tmp_path / "p.npz").source == "made up"
    np.savez(tmp_path / "log.npz", idx_t=np.array([4, 4, 7], np.int32))
    assert statistics_of(tmp_path / "log.npz") is None
    found = profile_of(tmp_path / "log.npz")
    assert found.tables["t"].ids.tolist() == [4, 7] and found.tables["t"].counts.tolist() == [2, 1]


def test_counted_ones_are_not_sampled_and_cut_to_the_model(tmp_path):
    one, said = np.array([1]), []
    many = {name: TableProfile(name, 2, 3, Heat.of([2, 1]), one, 3 * one) for name in "abc"}
    Profile("made up", 3, many).save(tmp_path / "p.npz")
    found = profile_of(tmp_path / "p.npz", tables=["b"], say=said.append)
    assert list(found.tables) == ["b"] and found.tables["b"].rows == 9 and said == ["not read   a, c"]
    for asked in ({"sample": 0.5}, {"together": True}):
        with pytest.raises(ValueError, match=r"p.npz holds counts already; --together, --sample, --held-back"):
            profile_of(tmp_path / "p.npz", **asked)
    with pytest.raises(ValueError, match="^made up has no table 'd'; it has a, b, c$"):
        profile_of(tmp_path / "p.npz", tables=["d"])


def test_several_files_are_one_log(tmp_path):
    for number, text in enumerate(("t_id\n4\n7\n", "t_id\n7\n9\n")):
        (tmp_path / f"{number}.log").write_text(text, "utf-8")
    found = profile_of(tmp_path / "0.log", tmp_path / "1.log", format="text")
    assert found.samples == 4 and found.tables["t_id"].ids.tolist() == [4, 7, 9]
    assert found.tables["t_id"].counts.tolist() == [1, 2, 1]


def test_what_is_broken_is_said(tmp_path):
    path, said = tmp_path / "log.tsv", []
    path.write_text("t_id\tname\n4\tx\n4\n7\ty\n", "utf-8")
    assert profile_of(path, say=said.append).tables["t_id"].ids.tolist() == [4, 7]
    assert said == ["read as    text, tab-separated, UTF-8, names in line 1", "tables     t_id (whole numbers)",
                    "not read   name (texts)", "sample     t_id 4", "sample     t_id 7",
                    f"broken     1 x lines of too few or too many fields; first {path}:3: 1 fields, not 2"]
    assert list(profile_of(path, tables=["name"]).tables) == ["name"]
    with pytest.raises(ValueError, match="log.tsv has no field 'user'; it has t_id, name"):
        profile_of(path, tables=["user"])


def test_statistics_by_name_or_file(tmp_path, monkeypatch):
    monkeypatch.delenv("HOTRAIL_DATA", raising=False)
    with pytest.raises(ValueError, match="^mels2021: its statistics, mels_stats/locality_stats_2021.txt, are looked "
                                         "for in the folder that HOTRAIL_DATA names; without them, your own log"):
        profile_of("mels2021")
    monkeypatch.setenv("HOTRAIL_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=f"names, {tmp_path}, and are not there$"):
        profile_of("mels2021")
    (tmp_path / "c.json").write_text(json.dumps({"n_samples": 100, "tables": {
        "C1": {"rows": 4, "knots_rank": [1, 4], "knots_count": [80, 5]}}}), "utf-8")
    assert profile_of(tmp_path / "c.json").tables["C1"].heat.total == 100
    (tmp_path / "locality_stats_x.txt").write_text("nothing", "utf-8")
    with pytest.raises(ValueError, match="locality_stats_x.txt"):
        profile_of(tmp_path / "locality_stats_x.txt")


def test_what_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="nowhere.npz"):
        profile_of(tmp_path / "nowhere.npz")


@pytest.mark.parametrize(("name", "content", "told"), [
    ("a.json", b'{"tables": {"C1": {"rows": 1e400, "knots_rank": [1], "knots_count": [3]}}}', "cannot be read"),
    ("a.json", b'{"tables": {"C1": {"rows": 3, "knots_rank": [2], "knots_count": [3]}}}', "C1: the ranks of knots m"),
    ("a.json", b"[" * 100_000, "cannot be read"),
    ("a.json", b'{"n_samples": -1, "tables": {"C1": {"rows": 3, "knots_rank": [1], "knots_count": [3]}}}',
     "has no n_samples of 1 or more"),
    ("a.json", bytes((1 << 24) + 1), "has 16,777,217 bytes; statistics have at most 16,777,216"),
    ("locality_stats_2021.txt", b"fbgemm_t999999999_bs1\nAvg # of indices: 9\nAvg # of unique cols: 9\n(0, 1]: 1.0\n"
     b"(0, 1]: 1.0\n", "has no locality statistics"),
    ("a.npz", b"PK\5\6" + b"\xff" * 18, "cannot be read"),
])
def test_statistics_that_are_none_are_a_sentence(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError) as caught:
        statistics_of(tmp_path / name)
    assert told in str(caught.value) and str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)
