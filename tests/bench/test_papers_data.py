"""What the papers' logs show, by formulas: sizes and growth that are known by hand."""

import numpy as np
import pytest

from bench import papers_data
from gen.data.profile import Heat, Profile, TableProfile


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


def test_rows_of_even_heat_grow_with_the_batch_and_skewed_ones_hardly():
    even = papers_data.unique(np.ones(5_000_000), 10_240) / papers_data.unique(np.ones(1_000_000), 2048)
    assert even == pytest.approx(5, rel=0.01)
    growth = {row.id.split(".")[-1]: row.value for row in papers_data.growth()}
    assert growth["normal"] <= growth["exponential"] < 1.5 < growth["zipf"] < even
