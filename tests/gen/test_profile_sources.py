"""What `profile_of` opens."""

import json

import numpy as np
import pytest

from gen.profile import Heat, Profile, TableProfile
from gen.profiling.sources import profile_of, statistics_of


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


def test_what_is_broken_is_said(tmp_path):
    path, said = tmp_path / "log.tsv", []
    path.write_text("t_id\tname\n4\tx\n4\n7\ty\n")
    assert profile_of(path, say=said.append).tables["t_id"].ids.tolist() == [4, 7]
    assert said == [f"broken     1 x lines of too few or too many fields; first {path}:3: 1 fields, not 2",
                    "not read   name"]
    assert list(profile_of(path, tables=["name"]).tables) == ["name"]
    with pytest.raises(ValueError, match="log.tsv has no field 'user'; it has t_id, name"):
        profile_of(path, tables=["user"])


def test_statistics_by_name_or_file(tmp_path, monkeypatch):
    monkeypatch.delenv("HOTRAIL_DATA", raising=False)
    with pytest.raises(ValueError, match="^mels2021: its statistics, mels_stats/locality_stats_2021.txt, are looked "
                                         "for in the folder that HOTRAIL_DATA names$"):
        profile_of("mels2021")
    monkeypatch.setenv("HOTRAIL_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=f"names, {tmp_path}, and are not there$"):
        profile_of("mels2021")
    (tmp_path / "c.json").write_text(json.dumps({"n_samples": 100, "tables": {
        "C1": {"rows": 4, "knots_rank": [1, 4], "knots_count": [80, 5]}}}))
    assert profile_of(tmp_path / "c.json").tables["C1"].heat.total == 100
    (tmp_path / "locality_stats_x.txt").write_text("nothing")
    with pytest.raises(ValueError, match="locality_stats_x.txt"):
        profile_of(tmp_path / "locality_stats_x.txt")


def test_what_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="nowhere.npz"):
        profile_of(tmp_path / "nowhere.npz")
