"""The baseline of EL-Rec's ablation is the same table and the same step, without what it leaves out."""

import numpy as np
import pytest

from bench import papers_elrec

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.regress

FORM = ((2, 2, 4), 5)


def test_nothing_that_is_left_out_changes_rows_or_step():
    bags = [papers_elrec.bag(1000, *FORM, shares, fused) for shares in (True, False) for fused in (True, False)]
    indices, slope = torch.tensor([[7], [8], [7], [999], [0]]), torch.rand(5, 16)
    rows = [each(indices).detach() for each in bags]
    for each in bags:
        optimiser = None if each.rate else torch.optim.SGD(each.parameters(), lr=papers_elrec.RATE)
        papers_elrec.seconds(each, optimiser, indices, slope)
    for row, each in zip(rows, bags, strict=True):
        torch.testing.assert_close(row, rows[0])
        np.testing.assert_allclose(each.values(), bags[0].values(), rtol=1e-5, atol=1e-7)
    assert not np.array_equal(bags[0].values()[7], rows[0][0])


class Log:
    rows = [4000]

    def ranks(self, samples, start):
        yield np.zeros((samples, 1), np.int64)

    def row(self, table, ranks):
        return ranks + 77


def test_each_is_off_alone_in_the_pass_that_it_is_for(monkeypatch):
    def seconds(of, optimiser, indices, slope):
        lookup = 2.0 * (2 if type(of).__name__ == "PerLookup" else 1) + (1 if indices[0] == 77 else 0)
        return lookup, lookup + 2 + (0 if optimiser is None else 4)

    monkeypatch.setattr(papers_elrec, "seconds", seconds)
    assert papers_elrec.timed(Log(), 0, FORM, rounds=3) == {
        "reuse": (8 / 6, 2, 1), "aggregation": (8 / 6, 1, 1.5), "order": (8 / 6, 1.5, 1.25), "fused": (10 / 6, 1, 2),
        "ttrec": (16 / 6, 2.5, 11 / 4)}
