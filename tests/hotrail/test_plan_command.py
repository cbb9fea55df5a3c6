"""`hotrail plan`, as a user calls it."""

import hashlib
import json
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gen.data.profile import Profile
from gen.model.device import Device
from gen.model.network import Model
from gen.planner.plan import Plan
from tests.support.command import call

DATA = os.environ.get("HOTRAIL_DATA")


run = partial(call, "plan")


@pytest.fixture
def log(tmp_path):
    random = np.random.default_rng(2)
    lengths = random.integers(0, 5, 2000)
    path = tmp_path / "log.npz"
    np.savez(path, idx_user=(random.zipf(1.4, 2000) % 300).astype(np.int32),
             ind_genre=random.integers(0, 40, int(lengths.sum())).astype(np.int32),
             off_genre=np.concatenate([[0], np.cumsum(lengths)]), label=np.ones(2000, np.int8))
    return path


def test_a_log_becomes_a_plan_and_a_page(log, tmp_path):
    out = tmp_path / "out"
    done = run(log, "--cards", 2, "--out", out)
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in out.iterdir()) == ["index.html", "plan.json", "profile.npz"]
    plan, profile = Plan.load(out), Profile.load(out / "profile.npz")
    assert list(plan.tables) == list(profile.tables) == ["user", "genre"] and plan.source == profile.source
    assert len(plan.cards) == 2 and plan.gap <= 0.01 and set(plan.ablation) == {1, 2, 3}
    assert plan.profile_sha256 == hashlib.sha256((out / "profile.npz").read_bytes()).hexdigest()
    page = (out / "index.html").read_text("utf-8")
    for said in ("optimality gap", "genre", "one card more", "SSD only", "Where the rows come from", "Roofline"):
        assert said in page
    for said in ("profile ", "search ", "assumed ", "plan ", "no model was given", "waits for",
                 "1 MB more of DRAM"):
        assert said in done.output, said


def test_tables_on_several_cards_or_whole(log, tmp_path):
    done = run(log, "--cards", 4, "--quick", "--out", tmp_path / "o")
    assert done.exit_code == 0 and "by samples" in done.output, done.output
    assert "by samples" in (tmp_path / "o" / "index.html").read_text("utf-8")
    assert run(log, "--cards", 4, "--quick", "--table-wise", "--out", tmp_path / "w").exit_code == 0
    shared, whole = Plan.load(tmp_path / "o"), Plan.load(tmp_path / "w")
    assert {len(table.cards) for table in whole.tables.values()} == {1} and shared.seconds < whole.seconds


def test_small_tables_joined(tmp_path):
    random = np.random.default_rng(2)
    np.savez(tmp_path / "log.npz", **{f"idx_{name}": random.integers(0, rows, 2000).astype(np.int32)
                                      for name, rows in (("user", 300), ("genre", 40))}, label=np.ones(2000, np.int8))
    done = run(tmp_path / "log.npz", "--cards", 1, "--levels", 2, "--dim", 16, "--results", "float16", "--join",
               "--quick", "--out", tmp_path / "plan")
    assert done.exit_code == 0, done.output
    assert {table.joined for table in Plan.load(tmp_path / "plan").tables.values()} == {("user", "genre")}
    for said in ("joined (--join): user with genre (12,000 rows)", "no tables joined (without --join)"):
        assert said in " ".join(done.output.split()), done.output
    assert "0, joined with genre" in (tmp_path / "plan" / "index.html").read_text("utf-8")


@pytest.mark.turns(1, of="searches")
def test_rows_in_another_format(log, tmp_path):
    """Take fewer bytes of DRAM and less time; the plan keeps the format."""
    plans = {}
    for form in ("float32", "float16", "int8"):
        done = run(log, "--cards", 1, "--levels", 2, "--dim", 256, "--quick", "--row-format", form, "--out",
                   tmp_path / form)
        assert done.exit_code == 0, done.output
        plans[form] = Plan.load(tmp_path / form)
        assert {spec.row_format for spec in plans[form].model.tables.values()} == {form}
    rows = [sum(table.dram.rows for table in plan.tables.values()) for plan in plans.values()]
    assert rows[0] == rows[1] == rows[2] > 300
    used = [sum(table.dram.bytes for table in plan.tables.values()) for plan in plans.values()]
    # 16, 8 and 5 lines a row; tables in pieces begin with a stripe and end with a block of two rows.
    assert used[0] - used[1] == pytest.approx(rows[0] * 8 * 64, abs=2 * 2 * 16 * 64)
    assert used[0] - used[2] == pytest.approx(rows[0] * 11 * 64, abs=2 * 2 * 16 * 64)
    plain, *narrow = (plan.cards[0].dram.seconds for plan in plans.values())
    assert max(narrow) < plain
    done = run(log, "--dim", 15, "--row-format", "int4", "--out", tmp_path / "odd")
    assert done.exit_code == 1 and "two values share a byte, so dim = 15 must be even" in done.output


@pytest.mark.turns(1, of="searches")
def test_formats_within_an_error_budget(log, tmp_path):
    """Measured on the samples that are held back, with the network's log loss; on page, terminal and in JSON."""
    (tmp_path / "n.toml").write_text('about = ""\nbottom = [2, 64]\ninteraction = "dot"\nfeatures = 2\ndim = 64\n'
                                     'top = [4, 1]\nhidden = "relu"\nlast = "sigmoid"\n', "utf-8")
    (tmp_path / "m.toml").write_text('network = "n.toml"\ndim = 64\nbatch = 64\n[tables.user]\nrows = 300\n'
                                     'error_budget = 0.01\n[tables.genre]\nrows = 64\nrow_format = "float16"\n')
    random = np.random.default_rng(1)
    arrays = {"table_user": random.standard_normal((300, 64)), "table_genre": random.standard_normal((64, 64))}
    for name, layer in Model.load(tmp_path / "n.toml").network().layers():
        arrays |= {f"{name.replace(' ', '')}_weights": layer.weights, f"{name.replace(' ', '')}_bias": layer.bias}
    np.savez(tmp_path / "w.npz", **arrays)
    clicks = dict(np.load(log)) | {"label": random.integers(0, 2, 2000)}
    np.savez(tmp_path / "clicks.npz", **clicks)
    given = "--model", tmp_path / "m.toml", "--weights", tmp_path / "w.npz", "--cards", 2, "--quick", "--levels", 1
    done = run(tmp_path / "clicks.npz", *given, "--held-back", 0.25, "--out", tmp_path / "o", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    width = document["error_budgets"]["user"]
    assert document["formats"]["genre"] == {"row_format": "float16", "tt_format": "float32"}
    assert list(document["error_budgets"]) == ["user"] and 0 < width["row_error"] <= width["budget"] == 0.01
    assert width["of"] == "pooled vectors of the log" and width["bytes"] == 300 * 128
    assert document["accuracy"]["samples"] == 500 and set(document["accuracy"]["tables"]) == {"user", "genre"}
    page = (tmp_path / "o" / "index.html").read_text("utf-8")
    for said in ("500 samples of the log: log loss 1.", "float16", "1.000%"):
        assert said in page and said in " ".join(done.stderr.split()), said
    again = run(tmp_path / "o" / "profile.npz", *given, "--error-budget", 0.1, "--out", tmp_path / "p", "--json")
    document = json.loads(again.stdout)
    assert document["error_budgets"]["user"]["of"] == "rows" and document["accuracy"] is None


def test_parameters_without_a_budget_or_of_another_model(log, tmp_path):
    np.savez(tmp_path / "w.npz", table_user=np.zeros((300, 8)))
    for options, sentence in ((["--weights", tmp_path / "w.npz"], "parameters are for the errors of formats, and no"),
                              (["--weights", tmp_path / "w.npz", "--error-budget", 0.1],
                               "w.npz: table_user must be numbers of shape (300, 64), not float64 of shape (300, 8)")):
        done = run(log, "--quick", *options, "--out", tmp_path / "out")
        assert done.exit_code == 1 and sentence in done.output and "Traceback" not in done.output, done.output


def test_a_model_is_written_and_planned_with(log, tmp_path):
    path = tmp_path / "new" / "m.toml"
    done = call("model", log, "--dim", "16", "--batch", "64", "--out", path)
    assert done.exit_code == 0, done.output
    assert "assumed    no model was given: 2 tables" in done.output and "2 tables, " in done.output.splitlines()[-1]
    how = "--cards", 1, "--levels", 2, "--quick"
    assert run(log, *how, "--model", path, "--out", tmp_path / "o").exit_code == 0
    assert run(log, *how, "--dim", 16, "--batch", 64, "--out", tmp_path / "p").exit_code == 0
    one, other = Plan.load(tmp_path / "o"), Plan.load(tmp_path / "p")
    assert one.tables == other.tables and one.cards == other.cards and one.model.tables == other.model.tables


@pytest.mark.parametrize("name, sentence", [("m.txt", "m.txt must end in .toml"), ("m.toml", "m.toml exists already; "
                                                                                          "--out names another file")])
def test_no_model_file_is_written_over(log, tmp_path, name, sentence):
    (tmp_path / "m.toml").write_text("mine", "utf-8")
    done = call("model", log, "--out", tmp_path / name)
    assert done.exit_code != 0 and sentence in " ".join(done.output.split()), done.output
    assert (tmp_path / "m.toml").read_text("utf-8") == "mine" and not (tmp_path / "m.txt").exists()


@pytest.mark.turns(1, of="searches")
def test_levels_and_a_model(log, tmp_path):
    model = tmp_path / "m.toml"
    model.write_text('network = "n.toml"\ndim = 16\nbatch = 64\n[tables.user]\nrows = 300\n[tables.genre]\nrows = 64\n'
                     'mode = "mean"\n', "utf-8")
    (tmp_path / "n.toml").write_text('about = "n"\nbottom = [3, 16]\ninteraction = "dot"\nfeatures = 2\ndim = 16\n'
                                     'top = [8, 1]\nhidden = "relu"\nlast = "sigmoid"\n', "utf-8")
    given = "--model", model, "--cards", 3, "--levels", 2, "--quick", "--preset", "tiny"
    done = run(log, *given, "--out", tmp_path / "o")
    assert done.exit_code == 0, done.output
    plan = Plan.load(tmp_path / "o")
    assert plan.levels == 2 and plan.preset == "tiny" and plan.batch == 64 and set(plan.ablation) == {2}
    assert sum(table.tt_rows for table in plan.tables.values()) == 0
    assert {card.kind for card in plan.cards} == {"emb", "mlp"} and plan.model.tables["genre"].mode == "mean"
    again = run(tmp_path / "o" / "profile.npz", *given, "--out", tmp_path / "p")
    assert again.exit_code == 0 and Plan.load(tmp_path / "p").tables == plan.tables


@pytest.mark.parametrize("arguments, sentence", [
    (["--device", "abacus"], "abacus"), (["--preset", "abacus"], "abacus"),
    (["--preset", "hotline"], "the preset hotline has no [emb], which the plan needs"),
    (["--dim", 4096], "rows of 4096 words take 256 beats"),
    (["--dim", 10**7], "rows of 10000000 words take 625000 beats"),
    (["--model", "nowhere.toml"], "nowhere.toml"),
    (["--format", "wax"], "the format 'wax' is unknown; there are criteo, avazu"),
])
def test_bad_input_is_a_sentence(log, tmp_path, arguments, sentence):
    done = run(log, "--out", tmp_path / "out", "--quick", *arguments)
    assert done.exit_code == 1 and sentence in done.output and "Traceback" not in done.output
    assert done.output.count("\n") <= 2, done.output
    assert not (tmp_path / "out").exists()


def test_rows_too_wide_are_refused_before_anything_is_measured(log, tmp_path, monkeypatch):
    monkeypatch.setattr("fpga.card.memory.rows", lambda *_, **__: pytest.fail("measured"))
    assert run(log, "--dim", 100_000, "--out", tmp_path / "out").exit_code == 1


@pytest.mark.parametrize("option", ["--dim", "--cards", "--rank", "--gap", "--seconds"])
def test_numbers_that_cannot_be(log, option):
    done = run(log, option, -1)
    assert done.exit_code == 2 and f"Invalid value for '{option}': -1" in done.output and "is not in the" in done.output


def test_options_are_checked_before_the_log_is_counted(log, tmp_path, monkeypatch):
    monkeypatch.setattr("gen.data.profiling.flow.open_for", lambda *_, **__: pytest.fail("read"))
    model = tmp_path / "m.toml"
    model.write_text('network = "screc_rm3"\ndim = 64\n' + "".join(f"[tables.t{n}]\nrows = 9\n" for n in range(26)))
    for given, sentence in ((["--device", "abacus"], "abacus"), (["--preset", "hotline"], "has no [emb]"),
                            (["--model", model, "--cards", 1], "cards = 1: a network needs an MLP card"),
                            (["--dim", 4096], "rows of 4096 words"),
                            (["--model", model, "--dim", 32], f"--dim 32 with --model {model}: the model names the"),
                            (["--error-budget", 0.1, "--weights", "nowhere.npz"], "nowhere.npz cannot be read"),
                            (["--error-budget", "nan"], "--error-budget nan: must be a number of 0 or more"),
                            (["--error-budget", 0.1, "--tt-format", "block16"], "lets the planner choose tt_format; "
                                                                                "leave out --tt-format block16")):
        done = run(log, "--out", tmp_path / "out", *given)
        assert done.exit_code == 1 and sentence in done.output, done.output
    assert not (tmp_path / "out").exists()


def test_several_files(tmp_path):
    texts = ["user_id\titem_id\n1\t2\n3\t4\n", "user_id\titem_id\n3\t5\n"]
    paths = [tmp_path / f"day{number}.log" for number in range(2)]
    for path, text in zip(paths, texts):
        path.write_text(text, "utf-8")
    done = run(*paths, "--format", "text", "--cards", 1, "--levels", 1, "--quick", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    found = Profile.load(tmp_path / "out" / "profile.npz")
    assert found.samples == 3 and found.tables["user_id"].counts.tolist() == [1, 2]


def test_a_sample_is_said(log, tmp_path):
    done = run(log, "--sample", 0.3, "--cards", 1, "--levels", 1, "--quick", "--out", tmp_path / "out")
    assert done.exit_code == 0 and "0.3 of its samples were counted; the share of accesses to the" in done.output
    assert "0.3 of its samples were counted; the share" in (tmp_path / "out" / "index.html").read_text("utf-8")
    done = run(tmp_path / "out" / "profile.npz", "--sample", 0.3)
    assert done.exit_code == 1 and "holds counts already" in done.output


@pytest.mark.parametrize("command", [["plan"], ["profile"], ["scars"], ["compile"]])
def test_a_file_is_no_folder(log, tmp_path, command):
    (tmp_path / "f").write_text("mine", "utf-8")
    done = call(*command, log, "--out", tmp_path / "f")
    assert done.exit_code == 2 and "Invalid value for '--out'" in done.output and "is a file" in done.output
    assert (tmp_path / "f").read_text("utf-8") == "mine"


def test_a_log_without_a_table_and_ids_past_the_rows(log, tmp_path):
    model = tmp_path / "m.toml"
    model.write_text("dim = 16\n[tables.ghost]\nrows = 3\n", "utf-8")
    done = run(log, "--model", model, "--out", tmp_path / "out")
    assert done.exit_code == 1 and "has no table 'ghost'; it has " in done.output
    model.write_text("dim = 16\n[tables.user]\nrows = 3\n", "utf-8")
    done = run(log, "--model", model, "--out", tmp_path / "out")
    assert done.exit_code == 1 and "table user" in done.output and "3 rows" in done.output
    assert not (tmp_path / "out").exists()
    done = run(tmp_path / "nothing.npz")
    assert done.exit_code == 1 and "nothing.npz" in done.output


@pytest.mark.turns(1, of="flows")
def test_a_table_larger_than_all_memories(log, tmp_path):
    model = tmp_path / "m.toml"
    text = (Path(__file__).parents[2] / "gen" / "model" / "devices" / "smartssd.toml").read_text("utf-8")
    (tmp_path / "small.toml").write_text(text.replace("bytes = 3_840_000_000_000", "bytes = 10_000"), "utf-8")
    model.write_text("dim = 64\n[tables.user]\nrows = 100_000_000\nids = 'modulo'\n", "utf-8")
    done = run(log, "--model", model, "--device", tmp_path / "small.toml", "--out", tmp_path / "out")
    assert done.exit_code == 1 and "table user: at least " in done.output and "10000 of SSD" in done.output
    # What was counted is kept.
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["profile.npz"]
    assert Profile.load(tmp_path / "out" / "profile.npz").tables["user"].rows == 100_000_000


def test_a_device_of_ones_own_is_found_again(log, tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "gen" / "model" / "devices" / "smartssd.toml").read_text("utf-8")
    (tmp_path / "my card.toml").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    done = run(log, "--device", "my card.toml", "--cards", 1, "--levels", 1, "--quick", "--out", "out")
    assert done.exit_code == 0, done.output
    monkeypatch.chdir("/")
    plan = Plan.load(tmp_path / "out")
    assert Device.load(plan.device).name == "my card" and plan.preset == "smartssd"


@pytest.mark.skipif(not DATA, reason="HOTRAIL_DATA names no folder with real logs")
def test_a_real_log(tmp_path):
    done = run(Path(DATA or "") / "msweb.npz", "--cards", 2, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "plan.json").read_text("utf-8"))["tables"]


@pytest.mark.turns(1, of="searches")
def test_the_range_until_the_next_refresh(tmp_path):
    rows = np.sort(np.random.default_rng(3).integers(0, 3000, 9000)).astype(np.int32)
    np.savez(tmp_path / "log.npz", idx_user=rows)
    given = "--cards", 1, "--levels", 1, "--quick"
    done = run(tmp_path / "log.npz", *given, "--horizon", 4500, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    plan = Plan.load(tmp_path / "out")
    assert plan.horizon.samples == 4500 and plan.horizon.low <= plan.from_ssd <= plan.horizon.high
    for text in (done.output, (tmp_path / "out" / "index.html").read_text("utf-8")):
        assert "over the next 4,500 samples" in " ".join(text.split()) and "refreshed every" in text
    run(tmp_path / "out" / "profile.npz", *given, "--out", tmp_path / "again")
    assert Plan.load(tmp_path / "again").horizon == plan.horizon
    run(tmp_path / "out" / "profile.npz", *given, "--horizon", "2x", "--out", tmp_path / "later")
    assert Plan.load(tmp_path / "later").horizon.samples == 18_000
    np.savez(tmp_path / "short.npz", idx_user=rows[:9])
    short = run(tmp_path / "short.npz", *given, "--horizon", 17, "--out", tmp_path / "short")
    assert Plan.load(tmp_path / "short").horizon is None and "--horizon has no effect" in short.output
    for wrong in ("0.25", "x", "-1x", "nan", "infx", "two"):
        refused = run(tmp_path / "log.npz", *given, "--horizon", wrong, "--out", tmp_path / "wrong")
        assert refused.exit_code and not (tmp_path / "wrong").exists()
        assert f"--horizon {wrong}: must be samples until the next refresh" in " ".join(refused.output.split())
    np.savez(tmp_path / "new.npz", idx_user=np.arange(1, 8001) // 2)
    once = run(tmp_path / "new.npz", *given, "--out", tmp_path / "new")
    assert "are expected to be to new ids, for which its 4,001 rows leave no" in " ".join(once.output.split())
    assert "come and go" not in done.output + once.output
    # Every row is asked for during an eighth of the log.
    turn, place = np.arange(12_000) // 12, np.random.default_rng(8).integers(0, 125, 12_000)
    np.savez(tmp_path / "churn.npz", idx_user=turn // 125 * 125 + place)
    churn = run(tmp_path / "churn.npz", *given, "--out", tmp_path / "churn")
    assert "the rows of user come and go: their accesses count by their age" in " ".join(churn.output.split())


def test_the_end_of_the_log_is_held_against_the_plan(log, tmp_path):
    given = "--cards", 1, "--levels", 2, "--quick"
    done = run(log, *given, "--held-back", 0.2, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    plan = Plan.load(tmp_path / "out")
    assert plan.held.samples == 400 and Profile.load(tmp_path / "out" / "profile.npz").samples == 1600
    assert set(plan.held.shares) == {"", "user", "genre"} and plan.held.seconds > 0
    for text in (done.output, (tmp_path / "out" / "index.html").read_text("utf-8")):
        assert "The last 400 samples, held back and served by this plan: " in text and "SSD: served" in text
    again = run(tmp_path / "out" / "profile.npz", *given, "--out", tmp_path / "again")
    assert again.exit_code == 0 and Plan.load(tmp_path / "again").held == plan.held
    for options, sentence in ((["--held-back", 0.0001], "to hold against them"), (["--held-back", 1], "Invalid value")):
        bad = run(log, *options, "--out", tmp_path / "bad")
        assert bad.exit_code and sentence in bad.output
    bad = run(tmp_path / "out" / "profile.npz", "--held-back", 0.5)
    assert bad.exit_code == 1 and "holds counts already" in bad.output
