"""`hotrail size`, as a user calls it."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from bench.page import RESULTS, recorded
from fpga.api import servers
from gen.data.profile import Heat, Profile, TableProfile
from gen.model.network import Model
from gen.model.recommender import Recommender
from tests.support.command import call


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
    return call("size", log, "--cards", "2", *arguments, terminal_width=200)


def test_a_load_becomes_a_number_of_cards(log, tmp_path):
    done = run(log, "--qps", 1e6, "--p99-ms", 1, "--out", tmp_path / "o")
    assert done.exit_code == 0, done.output
    assert re.search(r"^verdict    one core serves this \(0\.\d+ of one, by .*\): no card pays off$", done.output, re.M)
    for said in ("one core ", "Alveo U55C", "HBM        a U55C's memory reads ", "cards, smartssd",
                 "cores of a CPU server", "GPUs, NVIDIA A100", "report ",
                 "assumed    no model was given: 2 tables with the rows that the log has, of 64 values, without a"):
        assert said in done.output
    assert re.search(r"^cards, smartssd .* to [\d.,]+ times \([\d.,]+ to [\d.,]+\)$", done.output, re.M)
    assert re.search(r"^GPUs, NVIDIA A100 .* < 0\.001 .* to [\d.,]+ times$", done.output, re.M)
    page = (tmp_path / "o" / "index.html").read_text("utf-8")
    for said in ("Latency over load", "vectors to the host", "p99", "Assumed", "Verdict: one core serves this",
                 "NVIDIA A100", '"name":"1 card"', "A batch on 1 card<", "Money as the load grows",
                 "USD 517 (--card-price)", "One of each", "XD099"):
        assert said in page
    assert "1 cards" not in page
    assert Profile.load(tmp_path / "o" / "profile.npz").samples == 2000
    more = run(log, "--qps", 1e9, "--p99-ms", 1, "--out", tmp_path / "m", "--json")
    document = json.loads(more.stdout)
    cards, cores, gpus = document["choices"]
    assert [each["limit"] for each in document["compared"]] == ["results", "rows"] + ["results"] * 3 + ["rows"] * 3
    assert document["assumed"][0].startswith("no model was given: 2 tables") and min(gpus["growth"]) >= 1
    assert document["cards"] == cards["number"] == min(each["cards"] for each in document["groups"]) > 50
    assert document["groups"][0]["latency_s"]["p99"] <= document["p99_s"] == 1e-3
    assert document["verdict"] in ("others", "undecided", "cards") and document["sentence"] in more.output
    low, high = document["plan_over_twin"]
    assert cards["number_least"] <= cards["number"] <= cards["number_most"]
    assert cards["number_most"] == pytest.approx(cards["need"] / low, abs=2) and cores["number"] > 50 and gpus["usd"]


def test_prices_that_are_given(log, tmp_path):
    """Cards for nothing that run on nothing cost nothing; cards that cost much do not pay off."""
    told = {}
    for what, given in {"cards": ("--card-price", 0, "--kwh-price", 0), "others": ("--card-price", 1e6)}.items():
        done = run(log, "--qps", 1e9, "--p99-ms", 1, "--years", 5, *given, "--out", tmp_path / what, "--json")
        told[what] = json.loads(done.stdout)
        assert told[what]["verdict"] == what and "over 5 years" in told[what]["sentence"], done.output
    assert told["cards"]["choices"][0]["usd"] == [0, 0]
    assert "a card: USD 0, as given (--card-price)" in (tmp_path / "cards" / "index.html").read_text("utf-8")
    done = run(log, "--qps", 1, "--p99-ms", 1, "--gpu-price", -1, "--out", tmp_path / "n")
    assert done.exit_code == 2 and "--gpu-price" in done.output and not (tmp_path / "n").exists()


def test_help_names_the_prices_of_the_file():
    shown = " ".join(call("size", "--help", terminal_width=200).output.split())
    told = servers.facts()
    for value in (told["cards"]["smartssd"]["usd"], told["server"]["usd"], told["gpu"]["usd"],
                  told["electricity"]["usd_per_kwh"]):
        assert f"[{value:,g}" in shown
    for table in (told["server"], told["gpu"], told["electricity"], told["fbgemm"], told["plan_over_twin"],
                  *told["cards"].values()):
        assert table["source"]


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
    number, said = servers.machines(servers.server(), *many, qps, core_s)
    assert number == servers_ and why in said
    assert servers.machines(servers.gpu(), *many, 1e3, core_s) == (13, "room for its tables")
    assert servers.sample_bytes(*many) == 100 * 256


def test_a_core_is_measured_with_the_logs_rows(many, monkeypatch):
    model, profile = many
    indices, offsets = servers._lookups(profile, tuple(model.tables), 1000, np.random.default_rng(1))
    assert len(indices) == 100 * servers.SAMPLES and (np.diff(offsets) == 1).all() and offsets[0] == 0
    assert len(np.unique(indices)) == len(np.unique(np.arange(100) * servers.SAMPLES * 7919 % 1000))
    results = []
    monkeypatch.setattr(servers, "_seconds", lambda call: results.append(call()) or len(results))
    assert servers.core_seconds(model, profile, by="numpy") == 1 / servers.SAMPLES
    assert [r.shape for r in results] == [(100 * servers.SAMPLES, 64)]
    results.clear()
    network = Model.load("screc_rm3", dim=64)
    outputs = [layer.outputs for _, layer in network.network().layers()]
    parts = range(1, len(outputs) + 2)      # what the rows and each layer took, of a batch
    found = servers.core_seconds(replace(model, network=network), profile, by="numpy")
    assert found == pytest.approx(sum(parts) / servers.SAMPLES)
    assert [r.shape for r in results[1:]] == [(servers.SAMPLES, wide) for wide in outputs]


@pytest.mark.parametrize(("pooling", "dim", "expected"), [
    (1, 64, 1 / 20.7e6), (20, 64, 20 / 62.8e6), (20, 16, 20 / 62.8e6), (20, 128, 20 / 62.8e6 + 20 * (
        1 / 20.7e6 - 20 / 19 * (1 / 20.7e6 - 1 / 62.8e6)))])
def test_a_core_by_recorded_rates(pooling, dim, expected):
    """Twice as wide a row takes twice a row's time, not a bag's; a shorter one no less than was recorded."""
    table = TableProfile("t", 1000, 500, Heat.of([500 * pooling]), np.array([pooling]), np.array([500]))
    of = Recommender.of("m", {"t": 1000}, dim), Profile("log", 500, {"t": table})
    found = servers.core_seconds(*of, by="recorded")
    assert found == pytest.approx(expected)


def test_recorded_rates_are_those_of_the_bench():
    rows, told = recorded(RESULTS), servers.facts()["fbgemm"]
    for pooling in (1, 20):
        assert told[f"rows_per_s_{pooling}"] == 1e6 * rows[f"narrow.fbgemm.fp32.pool{pooling}"].value


def test_the_spread_covers_what_the_bench_has_recorded():
    found = [row.value for id, row in recorded(RESULTS).items() if id.startswith("plan.truth.") and row.unit == "x"]
    if not found:
        pytest.skip("plan_truth is not recorded in bench/results.json")
    told = servers.facts()["plan_over_twin"]
    assert told["low"] <= min(found) and max(found) <= told["high"]


def test_fbgemm_where_it_is_installed(many, monkeypatch):
    """It gets the rows and the ends of all bags, as 32-bit numbers."""
    asked = []
    monkeypatch.setattr(servers, "fbgemm_table", lambda rows, dim: lambda *given: asked.append((rows, dim, given)))
    monkeypatch.setattr(servers, "_seconds", lambda call: call() or 2.0)
    monkeypatch.setattr(servers, "find_spec", lambda name: name in ("fbgemm_gpu", "torch"))
    assert servers.lookups_by() == "fbgemm" and servers.core_seconds(*many) == 2 / servers.SAMPLES
    ((rows, dim, (indices, offsets)),) = asked
    assert (rows, dim) == (servers.TABLE_BYTES // 256, 64) and indices.dtype == offsets.dtype == np.int32
    assert offsets[-1] == len(indices) == 100 * servers.SAMPLES == len(offsets) - 1 and indices.max() < rows
    monkeypatch.setattr(servers, "find_spec", lambda name: name == "fbgemm_gpu" or None)
    assert servers.lookups_by() == "recorded"


def test_the_median_of_a_calls_processor_time(monkeypatch):
    took = iter([0.1, 5, 0.3])      # one of them disturbed
    clock, calls = [0.0], []

    def call():
        calls.append(clock[0])
        clock[0] += next(took) if len(calls) > 1 else 100       # the first one warms up

    monkeypatch.setattr(servers.time, "process_time", lambda: clock[0])
    assert servers._seconds(call) == pytest.approx(0.3) and len(calls) == 4


@pytest.mark.parametrize(("value", "what"), [("nan", "not a finite number"), ("inf", "not a finite number"),
                                             ("1e30", "more than 10^12")])
def test_a_load_that_is_no_number(value, what):
    done = call("size", "clicks.csv", "--qps", value, "--p99-ms", "5")
    assert done.exit_code == 2 and f"'--qps': {value} is {what}" in done.output
