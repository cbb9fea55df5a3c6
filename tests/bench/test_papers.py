"""Bounds of SCRec's figures 10 and 11 that need no plan, by numbers that are known by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from bench import papers

pytestmark = pytest.mark.regress


def test_all_vectors_but_a_gpus_own_reach_it():
    of = SimpleNamespace(tables={"a": SimpleNamespace(dim=4), "b": SimpleNamespace(dim=12)})
    assert papers.exchange_s(of, 4, 16.0) == 64 * 3 / 4 / 16
    assert papers.exchange_s(of, 1, 16.0) == 0


def test_drives_read_a_hundredth_of_the_accesses_of_large_tables(monkeypatch):
    share = np.array([0.0, 0.5, 0.98, 0.99, 1.0])

    def item(rows, reads):
        return SimpleNamespace(total_rows=rows, share=share, drive_s=0.5 * np.array(reads))

    items = [item(1_000_000, [9.0, 8.0, 7.0, 4.0, 0.0]), item(101, [9.0, 8.0, 7.0, 2.0, 0.0]),
             item(100, [9.0, 8.0, 7.0, 5.0, 0.0])]      # not above a ten-thousandth of the largest
    monkeypatch.setattr(papers, "build", lambda *_, **__: SimpleNamespace(problem=SimpleNamespace(items=items)))
    assert papers.drives(None, SimpleNamespace(batch=30), None) == pytest.approx(30 * papers.CARDS / (0.5 * (4 + 2)))
