"""`hotrail size`, as a user calls it."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from fpga.api import servers
from gen.data.profile import Heat, Profile, TableProfile
from gen.model.network import Model
from gen.model.recommender import Recommender
from hotrail.__main__ import main


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    random = np.random.default_rng(2)
    path = tmp_path_factory.mktemp("size") / "log.npz"
    np.savez(path, idx_user=random.zipf(1.4, 2000) % 300, idx_item=random.integers(0, 900, 2000),
             label=np.ones(2000, np.int8))
    return path


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(servers, "SECONDS", 0.01)
    monkeypatch.setattr(servers, "TABLE_BYTES", 1 << 20)


def run(log, *arguments):
    return CliRunner().invoke(main, ["size", str(log), "--cards", "2", *map(str, arguments)], terminal_width=200)


def test_a_load_becomes_a_number_of_cards(log, tmp_path):
    done = run(log, "--qps", 1e6, "--p99-ms", 1, "--out", tmp_path / "o")
    assert done.exit_code == 0, done.output
    assert re.search(r"^cards      1, 1 group of 1: 10 to 25 W", done.output, re.M), done.output
    for said in ("one core ", "at least   1 x CPU server", "at least   1 x GPU", "report "):
        assert said in done.output
    page = (tmp_path / "o" / "index.html").read_text("utf-8")
    for said in ("Latency over load", "vectors to the host", "p99", "Assumed", "Cards: 1, 1 group of 1: 10 to 25 W",
                 "NVIDIA A100"):
        assert said in page
    assert Profile.load(tmp_path / "o" / "profile.npz").samples == 2000
    more = run(log, "--qps", 1e9, "--p99-ms", 1, "--out", tmp_path / "m", "--json")
    cards, number, group = map(int, re.search(r"^cards      (\d+), (\d+) groups of (\d+):", more.output, re.M).groups())
    assert cards == number * group > 50
    document = json.loads(more.stdout)
    assert document["cards"] == cards and document["groups"][0]["latency_s"]["p99"] <= document["p99_s"] == 1e-3


def test_a_limit_that_nothing_meets(log, tmp_path):
    done = run(log, "--qps", 1000, "--p99-ms", 0.001, "--out", tmp_path / "o")
    assert done.exit_code == 0 and "cards      none: a lone sample takes" in done.output, done.output


def test_a_load_of_nothing_is_refused(log, tmp_path):
    done = run(log, "--qps", 0, "--p99-ms", 1, "--out", tmp_path / "o")
    assert done.exit_code and "--qps" in done.output and not (tmp_path / "o").exists()


@pytest.fixture(scope="module")
def many():
    """A model and the log's profile: 100 tables of 10 GB, one lookup of 256 bytes each, all to one row."""
    names = [f"t{k}" for k in range(100)]
    table = TableProfile("t", 10**10 // 256, 500, Heat.of([500]), np.array([1]), np.array([500]))
    return (Recommender.of("m", dict.fromkeys(names, table.rows), 64),
            Profile("log", 500, {name: replace(table, name=name) for name in names}))


@pytest.mark.parametrize(("qps", "core_s", "servers_", "why"), [
    (1e3, 1e-6, 2, "room"), (1e7, 1e-6, 2, "room"), (5e7, 1e-6, 7, "bandwidth"), (5e7, 1e-4, 79, "cores")])
def test_machines_by_room_bandwidth_and_cores(many, qps, core_s, servers_, why):
    number, said = servers.machines(servers.SERVER, *many, qps, core_s)
    assert number == servers_ and why in said
    assert servers.machines(servers.GPU, *many, 1e3, core_s) == (13, "room for its tables")
    assert servers.sample_bytes(*many) == 100 * 256


def test_a_core_is_measured_with_the_logs_rows(many, monkeypatch):
    model, profile = many
    indices, offsets = servers._lookups(profile, tuple(model.tables), 1000, np.random.default_rng(1))
    assert len(indices) == 100 * servers.SAMPLES and (np.diff(offsets) == 1).all() and offsets[0] == 0
    assert len(np.unique(indices)) == len(np.unique(np.arange(100) * servers.SAMPLES * 7919 % 1000))
    results = []
    monkeypatch.setattr(servers, "_seconds", lambda call: results.append(call()) or len(results))
    assert servers.core_seconds(model, profile) == 1 / servers.SAMPLES
    assert [r.shape for r in results] == [(100 * servers.SAMPLES, 64)]
    results.clear()
    network = Model.load("screc_rm3", dim=64)
    outputs = [layer.outputs for _, layer in network.network().layers()]
    parts = range(1, len(outputs) + 2)      # what the rows and each layer took, of a batch
    assert servers.core_seconds(replace(model, network=network), profile) == pytest.approx(sum(parts) / servers.SAMPLES)
    assert [r.shape for r in results[1:]] == [(servers.SAMPLES, wide) for wide in outputs]


def test_the_median_of_a_calls_processor_time(monkeypatch):
    took = iter([0.1, 5, 0.3])      # one of them disturbed
    clock, calls = [0.0], []

    def call():
        calls.append(clock[0])
        clock[0] += next(took) if len(calls) > 1 else 100       # the first one warms up

    monkeypatch.setattr(servers.time, "process_time", lambda: clock[0])
    assert servers._seconds(call) == pytest.approx(0.3) and len(calls) == 4
