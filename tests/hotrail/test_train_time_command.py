"""`hotrail train-time`: what it prints is what the model estimates, and a mistake is one sentence."""

import json
import re
from functools import partial

import numpy as np
import pytest

import hotrail
from gen.data.profiling import flow
from tests.support.command import call as call_hotrail

call = partial(call_hotrail, "train-time")


@pytest.fixture
def log(tmp_path):
    random = np.random.default_rng(4)
    path = tmp_path / "log.npz"
    np.savez(path, idx_user=random.integers(0, 50, 3000), idx_item=random.zipf(1.3, 3000) % 400)
    return path


def test_the_table_and_the_document(log, tmp_path):
    arguments = (log, "--gpus", 4, "--batch", 512, "--dim", 16, "--out", tmp_path / "out")
    of, systems = hotrail.train_time(flow.profile_of(flow.Options((log,))), gpus=4, batch=512, dim=16)
    done, document = call(*arguments), json.loads(call(*arguments, "--json").stdout)
    assert done.exit_code == 0, done.output
    lines = {line.split()[0]: line for line in done.output.splitlines() if line}
    own = systems[0].step.seconds
    for each in systems:
        if each.step is None:
            assert each.lacks in lines[each.system] and document["systems"][each.system] == {"lacks": each.lacks}
            continue
        assert f"{512 / each.step.seconds:,.0f}" in lines[each.system].split()
        assert f"{own / each.step.seconds:.2f}" in lines[each.system].split() and each.step.binds in lines[each.system]
        assert document["systems"][each.system]["step_s"] == pytest.approx(each.step.seconds)
    assert "popular    100.0% of samples, " in done.output and of.popular == document["popular_share"] == 1
    assert "A step of each system" in (tmp_path / "out" / "index.html").read_text("utf-8")


def test_a_measured_baseline(log, tmp_path):
    out = tmp_path / "out"
    document = json.loads(call(log, "--baseline", "scars", "--baseline-ms", 100, "--json", "--out", out).stdout)
    hybrid = document["systems"]["hybrid"]
    assert document["baseline_s"] == 0.1 and hybrid["speedup"] == pytest.approx(0.1 / hybrid["step_s"])
    done = call(log, "--baseline", "hotline", "--baseline-ms", 1e4, "--gpus", 2, "--out", out)
    assert re.search(r"^baseline   hotline, 10 s per step, as measured; the model takes it to be .* ms, [\d,]+ times "
                     "less than you measured; speedups include that$", done.output, re.M), done.output
    assert "as measured" not in call(log, "--out", out).output


def test_what_was_assumed_is_said(log, tmp_path):
    out = tmp_path / "out"
    done, document = call(log, "--out", out), json.loads(call(log, "--out", out, "--json").stdout)
    assert document["dim"] == 64 and document["dense"] == 287_500
    assert ("model      rows of 64 values (--dim), networks of 287,500 parameters as in Meta's DLRM for Criteo Kaggle "
            "(--dense)\n") in done.output
    page = (out / "index.html").read_text("utf-8")
    assert "Model: rows of 64 values (--dim), networks of 287,500 parameters" in page and "Popular: 100.0%" in page
    given = call(log, "--dense", 7, "--dim", 16, "--gpu", "titan_rtx", "--gpus", 4, "--out", out).output
    assert "model      rows of 16 values (--dim), networks of 7 parameters (--dense)\n" in given
    (note,) = [line for line in given.splitlines() if line.startswith("note")]
    assert "Hotline" not in note and "speedup of Hotline on four" in call(log, "--gpus", 4, "--out", out).output


def test_mistakes_are_a_sentence(log, tmp_path):
    out = tmp_path / "out"
    for arguments, sentence in (
            (("--baseline", "scars"), "--baseline scars has no step time, no published step times on v100 to fit its "
             "constants to: name another one or --baseline-ms"),
            (("--batch", 2, "--gpus", 4), "batch 2 must be at least gpus 4, a sample for each")):
        done = call(log, *arguments, "--out", out)
        assert done.exit_code == 1 and done.stderr == f"Error: {sentence}\n"
    for option in ("--dense", "--batch", "--dim", "--gpus", "--hot-mb"):
        done = call(log, option, "9" * 300, "--out", out)
        assert done.exit_code == 2 and f"'{option}': {'9' * 300} is not in the range 1<=x<=10000" in done.stderr
    assert call(log, "--gpu", "h100").exit_code == 2 and not out.exists()
