"""Choice of modes: the table of near-equal factors, and the fastest among all."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.data.shapes import column_modes, factorizations, fastest_column_modes, macs, row_modes


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


def test_fastest_is_the_least_cost_then_the_fewest_macs():
    def cost(j, r):
        if j[2] > 16:
            raise ValueError(f"J3 = {j[2]} is over 16")
        return -(-macs(j, r) // 512)
    # The larger J3, the smaller the first product; at J3 = R both cost the same: 2 D R in all.
    assert fastest_column_modes(64, 16, cost) == (2, 2, 16)
    assert macs((2, 2, 16), 16) == 2 * 64 * 16
    # All shapes cost one cycle: MACs decide.
    chosen = fastest_column_modes(64, 4, lambda j, r: 1)
    assert macs(chosen, 4) == min(macs(modes, 4) for modes in factorizations(64, 3))


def test_fastest_passes_over_what_the_unit_refuses():
    def cost(modes, rank):
        if modes[2] > 4:
            raise ValueError(f"J3 = {modes[2]} is over 4")
        return sum(modes)
    assert fastest_column_modes(64, 4, cost) == (4, 4, 4)
    with pytest.raises(ValueError) as caught:
        fastest_column_modes(7 * 7 * 7 * 7, 4, lambda j, r: cost((0, 0, 9), r))
    assert str(caught.value) == "no 3 factors of 2401 columns at rank 4 fit the unit: J3 = 9 is over 4"


@pytest.mark.parametrize(("call", "message"), [
    (lambda: row_modes(0), "rows is 0; it must be a whole number of 1 or more"),
    (lambda: row_modes(5, 0), "cores is 0; it must be a whole number of 1 or more"),
    (lambda: column_modes(-4), "columns is -4; it must be a whole number of 1 or more"),
    (lambda: fastest_column_modes(64, 0, lambda j, r: 1),
     "rank is 0; it must be a whole number of 1 or more"),
])
def test_wrong(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message
