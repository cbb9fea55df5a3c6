"""The rate of the Hotline core, measured on the smallest one: what limits it is never passed, and all is counted."""

import pytest

from bench import hotline_rate
from bench.framework import LeftOut

pytestmark = pytest.mark.regress

SAMPLES = 60


@pytest.fixture
def data(monkeypatch, calibration):
    calibration(3000)
    monkeypatch.setattr(hotline_rate, "PRESET", "tiny")
    monkeypatch.setattr(hotline_rate, "SAMPLES", SAMPLES)
    monkeypatch.setattr(hotline_rate, "SMALL", 50)


def test_rates_of_the_smallest_core(data, counters):
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
    took = [each["cycles"] for each in counters]
    assert [row.value for row in rows.values() if row.what.endswith("memory")] == [
        round(10 * SAMPLES / (twice - once), 2) for once, twice in zip(took[::2], took[1::2], strict=True)]
    assert [each["samples"] for each in counters] == [SAMPLES, 2 * SAMPLES] * 6
    assert [each["accesses"] for each in counters] == [each["samples"] * looked for each, looked in
                                                   zip(counters, (10, 10, 10, 10, 7, 7) * 2, strict=True)]
    assert all(twice["hits"] > 2 * once["hits"] > 0 for once, twice in zip(counters[::2], counters[1::2], strict=True))


def test_without_a_calibration_it_says_so(monkeypatch):
    monkeypatch.delenv("HOTRAIL_DATA", raising=False)
    with pytest.raises(LeftOut, match=f"^needs {hotline_rate.CALIBRATION} in the folder that HOTRAIL_DATA names$"):
        next(hotline_rate.rates())
