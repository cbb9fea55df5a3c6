"""The rate of TRAIN, measured on the smallest core: what limits it is never passed, and all is counted."""

import pytest

from bench import hotline_train
from bench.framework import LeftOut

pytestmark = pytest.mark.regress


def test_rates_of_the_smallest_core(monkeypatch, calibration, counters):
    calibration(300, n_samples=2000)
    for name, value in {"PRESET": "tiny", "BATCHES": 4, "HEAD": 50, "SHORT": 4, "SHORT_BATCHES": 4}.items():
        monkeypatch.setattr(hotline_train, name, value)
    rows = {row.id.removeprefix("hotline.train."): row for row in hotline_train.rows()}
    places = [f"{place}.{memory}" for place in ("dram", "host") for memory in ("ideal", "ddr4")]
    assert set(rows) == {"popular", "bridge", *(f"{what}.{id}" for what in ("rate", "port") for id in places),
                         "gpu.dram.ddr4", "gpu.host.ddr4"}
    # 24 words are three beats of the frame's 32: ten samples.
    assert [each["samples"] for each in counters] == [10, 40, 80, 10, 40, 80, 16] * 2
    pairs = [pair for at in (0, 7) for pair in (counters[at + 1:at + 3], counters[at + 4:at + 6])]
    for (once, twice), id in zip(pairs, places, strict=True):
        cycles = twice["cycles"] - once["cycles"]
        assert rows[f"rate.{id}"].value == round(40 / cycles * 250, 1)
        # Three beats a sample, two a row, and headers.
        assert 3 * 40 / cycles < rows[f"port.{id}"].value < 1
        assert once["dma_wr"] >= once["dma_rd"] > 0
    assert 0 < rows["popular"].value < 100
    assert rows["port.host.ideal"].value < rows["bridge"].value
    assert rows["rate.host.ideal"].value < rows["rate.dram.ideal"].value
    assert all(90 < rows[f"gpu.{place}.ddr4"].value <= 100 for place in ("dram", "host"))


def test_without_a_calibration_it_says_so(monkeypatch):
    monkeypatch.delenv("HOTRAIL_DATA", raising=False)
    with pytest.raises(LeftOut, match=f"^needs {hotline_train.CALIBRATION} in the folder that HOTRAIL_DATA names$"):
        next(hotline_train.rows())
