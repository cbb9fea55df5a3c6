"""What benches of the Hotline core are tried on."""

import json

import pytest

from bench.data import CALIBRATION
from fpga.card.runs import Runs

TABLES = ("C01", "C02", "C03", "C04", "C07", "C11", "C12", "C13", "C16", "C21")


@pytest.fixture
def calibration(monkeypatch, tmp_path):
    """Writes a calibration of ten tables, three of them small, where benches look for it. rows: of the other seven;
    more: of the file."""
    def write(rows, **more):
        tables = {name: {"rows": count, "knots_rank": [1, count // 2], "knots_count": [1e4, 1]}
                  for name, count in zip(TABLES, (20, 30, 40, *[rows] * 7), strict=True)}
        (tmp_path / CALIBRATION).write_text(json.dumps({"tables": tables, **more}), "utf-8")
        monkeypatch.setenv("HOTRAIL_DATA", str(tmp_path))
    return write


@pytest.fixture
def counters(monkeypatch):
    """The counters of each run of a card, as they come."""
    counted, run = [], Runs.run

    def kept(self, *args):
        code = run(self, *args)
        counted.append(self.last)
        return code

    monkeypatch.setattr(Runs, "run", kept)
    return counted
