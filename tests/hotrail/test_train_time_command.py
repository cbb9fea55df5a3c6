"""`hotrail train-time`: what it prints is what the model estimates, and a mistake is one sentence."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import hotrail
from gen.data.profiling import flow
from hotrail.__main__ import main


def call(*arguments):
    return CliRunner().invoke(main, ["train-time", *(str(a) for a in arguments)])


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
    assert "100.0% of samples popular" in done.output and of.popular == document["popular_share"] == 1
    assert "A step of each system" in (tmp_path / "out" / "index.html").read_text("utf-8")


def test_a_measured_baseline(log, tmp_path):
    document = json.loads(call(log, "--baseline", "scars", "--baseline-ms", 100, "--json", "--out", tmp_path).stdout)
    hybrid = document["systems"]["hybrid"]
    assert document["baseline_s"] == 0.1 and hybrid["speedup"] == pytest.approx(0.1 / hybrid["step_s"])


def test_mistakes_are_a_sentence(log, tmp_path):
    out = tmp_path / "out"
    for arguments, sentence in (
            (("--baseline", "scars"), "--baseline scars has no step time, no published step times on v100 to fit its "
             "constants to: name another one or --baseline-ms"),
            (("--batch", 2, "--gpus", 4), "batch 2 must be at least gpus 4, a sample for each")):
        done = call(log, *arguments, "--out", out)
        assert done.exit_code == 1 and done.stderr == f"Error: {sentence}\n"
    assert call(log, "--gpu", "h100").exit_code == 2 and not out.exists()
