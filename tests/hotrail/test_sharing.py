"""`hotrail scars`: what it says is what the formulas say, and a mistake is one sentence."""

from functools import partial

import numpy as np
import pytest

from gen.data.profile import Heat
from gen.data.scars import Device, Traffic, optimum
from tests.support.command import call as call_hotrail

call = partial(call_hotrail, "scars")


@pytest.fixture
def log(tmp_path):
    random = np.random.default_rng(4)
    users, items = random.integers(0, 50, 3000), random.zipf(1.3, 3000) % 400
    path = tmp_path / "log.npz"
    np.savez(path, idx_user=users.astype(np.int32), idx_item=items.astype(np.int32))
    return path, Traffic.of([Heat.of(np.bincount(users)), Heat.of(np.bincount(items))], 3000)


def test_a_log_is_shared_out(log, tmp_path):
    path, traffic = log
    done = call(path, "--memory", 2, "--memory", 1, "--dim", 2048, "--activations", 500, "--overhead", 900,
                "--smallest", 3, "--largest", 300, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    lines = [line for line in done.output.splitlines() if " MB " in line]
    for megabytes, line in zip((1, 2), lines, strict=True):
        device = Device(megabytes << 18, 2048, 500, 900, 3, 300)
        best, alone = optimum(traffic, device), int(device.batch(0))
        assert line.split() == [f"{megabytes}", "MB", f"{best.cached:,}", f"{best.cached / traffic.touched:.1%}",
                                f"{best.batch:,}", f"{best.words:,.1f}", f"{device.words(traffic, alone, 0):,.1f}",
                                f"{alone:,}", f"{best.gap:.3%}"]
    assert (f"{traffic.touched:,} rows accessed, 2.00 lookups per sample, 4,098 values per sample without cache"
            in done.output)
    assert "Distinct rows of a batch" in (tmp_path / "out" / "index.html").read_text("utf-8")


def test_memory_for_a_single_batch_is_drawn(log, tmp_path):
    done = call(log[0], "--memory", 1, "--activations", 1 << 18, "--out", tmp_path / "one")
    assert done.exit_code == 0 and (tmp_path / "one" / "index.html").exists()


def test_mistakes_are_a_sentence(log, tmp_path):
    done = call(log[0], "--memory", 1, "--activations", 1 << 19, "--out", tmp_path / "out")
    assert done.exit_code == 1 and done.output == (
        "Error: memory of 262,144 words does not hold a batch of 1, 524,288 words of activations a sample\n")
    done = call(log[0], "--smallest", 9, "--largest", 8)
    assert done.exit_code == 1 and done.output == "Error: largest 8 must be 9 or more\n"
    done = call(tmp_path / "none.npz", "--out", tmp_path / "out")
    assert done.exit_code == 1 and done.output.count("\n") == 1 and "none.npz" in done.output
    assert not (tmp_path / "out").exists()
