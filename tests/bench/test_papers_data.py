"""What the papers' logs show, by formulas: sizes and growth that are known by hand."""

import numpy as np
import pytest

from bench import papers_data
from gen.data.profile import Heat, Profile, TableProfile

pytestmark = pytest.mark.regress


def test_values_of_a_tensor_train():
    assert papers_data.train_values(8, (2, 2, 2), 2) == 1 * 2 * 2 * 2 + 2 * 2 * 2 * 2 + 2 * 2 * 2 * 1


def test_only_large_tables_become_tensor_trains():
    size, times = papers_data.footprint([1000, 2_000_000], (2, 2, 4), 64)
    values = 1000 * 16 + papers_data.train_values(2_000_000, (2, 2, 4), 64)
    assert size == pytest.approx(4e-6 * values) and times == pytest.approx(2_001_000 * 16 / values)


def test_the_heat_of_all_tables():
    tables = {name: TableProfile(name, 9, 10, Heat.of(counts), np.array([1]), np.array([10]))
              for name, counts in (("a", [4, 1, 1]), ("b", [4, 2]))}
    heat = papers_data.together(Profile("p", 10, tables))
    assert heat.accesses.tolist() == [4, 2, 1] and heat.rows.tolist() == [2, 1, 2]


def test_rows_of_even_heat_grow_with_the_batch_and_skewed_ones_hardly(monkeypatch):
    monkeypatch.setattr(papers_data, "RANKED", 20_000)
    monkeypatch.setattr(papers_data, "ZIPF_ROWS", (1_000,))
    even = papers_data.grown(np.ones_like, 20_000, 2048)
    assert even == pytest.approx(5, rel=0.01)
    growth = {row.id.removeprefix("papers.scars.growth."): row.value for row in papers_data.growth()}
    assert growth["normal"] <= growth["exponential"] < 1.5 < growth["zipf"] < even
    # exp(-k^2) and exp(-k), over their sums, fall below 1e-9 behind k = 4 and k = 21.
    assert (growth["normal.rows"], growth["exponential.rows"]) == (4, 21) and growth["zipf.rows"] == 20_000
    assert 4 < growth["zipf.least"] <= growth["zipf"]
    # Five times the indices beside hardly more rows; a law five times as wide has five times the rows.
    assert all(4.9 < growth[f"{name}.indices"] <= 5 and growth[f"{name}.wide"] == pytest.approx(5, rel=0.01)
               for name in ("exponential", "normal"))


def test_terabyte_as_tensor_trains():
    """Five tables of 342^3 rows and one of 146^3; the others, of 1,116,632 rows in all, stay dense."""
    rows = {row.id.removeprefix("papers.elrec.table3."): row.value for row in papers_data.footprints([2_000_000])}
    values = 5 * 342 * (4 * 128 + 4 * 128 * 128 + 4 * 128) + 146 * (4 * 128 + 4 * 128 * 128 + 4 * 128) + 64 * 1_116_632
    assert rows["terabyte.r128"] == pytest.approx(4e-6 * values, rel=0.001)
    assert rows["terabyte.r128.times"] == pytest.approx(204_184_588 * 64 / values, rel=0.001)
