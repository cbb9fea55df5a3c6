"""The rate of the Hotline core, measured on the smallest one: what limits it is never passed, and all is counted."""

import json

import pytest

from bench import hotline_rate
from bench.framework import LeftOut
from fpga.card.runs import Runs

TABLES = ("C01", "C02", "C03", "C04", "C07", "C11", "C12", "C13", "C16", "C21")
SAMPLES = 60


@pytest.fixture
def data(monkeypatch, tmp_path):
    """A calibration of ten tables, three of them small."""
    tables = {name: {"rows": rows, "knots_rank": [1, rows // 2], "knots_count": [1e4, 1]}
              for name, rows in zip(TABLES, (20, 30, 40, *[3000] * 7), strict=True)}
    (tmp_path / hotline_rate.CALIBRATION).write_text(json.dumps({"tables": tables}), "utf-8")
    monkeypatch.setenv("HOTRAIL_DATA", str(tmp_path))
    monkeypatch.setattr(hotline_rate, "PRESET", "tiny")
    monkeypatch.setattr(hotline_rate, "SAMPLES", SAMPLES)
    monkeypatch.setattr(hotline_rate, "SMALL", 50)


def test_rates_of_the_smallest_core(data, monkeypatch):
    told, run = [], Runs.run

    def kept(self, *args):
        code = run(self, *args)
        told.append(self.last)
        return code

    monkeypatch.setattr(Runs, "run", kept)
    rows = {row.id.removeprefix("hotline.rate."): row for row in hotline_rate.rates()}
    kinds = ("all", "spread", "pinned")
    assert set(rows) == {f"{kind}.{what}" for kind in kinds for what in ("ideal", "ddr4", "bank")} | {"port"}
    assert {id for id, row in rows.items() if row.target} == {
        f"{kind}.{memory}" for kind in kinds[1:] for memory in ("ideal", "ddr4")}
    assert rows["port"].value == 5, "10 indices in 2 beats"
    for kind in kinds:
        for memory in ("ideal", "ddr4"):
            # The queues hold a few samples of either run: what the second half takes is not exactly its own.
            assert 0.5 < rows[f"{kind}.{memory}"].value < 1.1 * min(rows["port"].value, rows[f"{kind}.bank"].value)
    assert rows["pinned.bank"].value > rows["all.bank"].value < rows["spread.bank"].value
    took = [each["cycles"] for each in told]
    assert [row.value for row in rows.values() if row.what.endswith("memory")] == [
        round(10 * SAMPLES / (twice - once), 2) for once, twice in zip(took[::2], took[1::2], strict=True)]
    assert [each["samples"] for each in told] == [SAMPLES, 2 * SAMPLES] * 6
    assert [each["accesses"] for each in told] == [each["samples"] * looked for each, looked in
                                                   zip(told, (10, 10, 10, 10, 7, 7) * 2, strict=True)]
    assert all(twice["hits"] > 2 * once["hits"] > 0 for once, twice in zip(told[::2], told[1::2], strict=True))


def test_without_a_calibration_it_says_so(monkeypatch):
    monkeypatch.delenv("HOTRAIL_DATA", raising=False)
    with pytest.raises(LeftOut, match=f"^needs {hotline_rate.CALIBRATION} in the folder that HOTRAIL_DATA names$"):
        next(hotline_rate.rates())
