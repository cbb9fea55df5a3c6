"""Choice of modes: near-equal factors, all factors, and what they multiply."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.data.shapes import column_modes, factorizations, macs, row_modes


@given(st.integers(1, 50_000_000), st.integers(1, 4))
def test_rows_fit_and_no_factor_could_be_smaller(rows, cores):
    modes = row_modes(rows, cores)
    assert len(modes) == cores and prod(modes) >= rows and max(modes) - min(modes) <= 1
    for k in range(cores):
        if modes[k] == max(modes) and modes[k] > 1:
            smaller = modes[:k] + (modes[k] - 1,) + modes[k + 1:]
            assert prod(smaller) < rows


def test_movielens_and_round_numbers():
    assert row_modes(1682) == (12, 12, 12)
    assert row_modes(1_000_000) == (100, 100, 100)
    assert row_modes(1) == (1, 1, 1)


def test_near_equal_columns():
    table = {16: (2, 2, 4), 32: (2, 4, 4), 64: (4, 4, 4), 128: (4, 4, 8), 256: (4, 8, 8), 512: (8, 8, 8)}
    assert {columns: column_modes(columns) for columns in table} == table
    assert column_modes(7) == (1, 1, 7)
    assert column_modes(96, 4) == (2, 3, 4, 4)


def test_factorizations_are_all_and_once():
    found = list(factorizations(12, 3))
    assert len(found) == len(set(found)) == 18
    assert all(prod(modes) == 12 for modes in found)


def test_macs_of_three_cores():
    assert macs((4, 4, 4), 4) == 512
    assert macs((4, 4, 4), 32) == 18_432
    assert macs((2, 4, 8), 4) == 384
    assert macs((8, 8), 4) == 256


@pytest.mark.parametrize(("call", "message"), [
    (lambda: row_modes(0), "rows is 0; it must be a whole number of 1 or more"),
    (lambda: row_modes(5, 0), "cores is 0; it must be a whole number of 1 or more"),
    (lambda: column_modes(-4), "columns is -4; it must be a whole number of 1 or more"),
])
def test_wrong(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message
