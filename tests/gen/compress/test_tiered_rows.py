"""Tables trained in NumPy: gradients beside differences, steps beside Adagrad's formula, the form of a bundle."""

import numpy as np
import pytest

from gen.compress.tiered_rows import TINY, TieredRows
from golden.tt import dense

MODES, COLUMNS, RANKS = (2, 3, 2), (2, 2, 1), (3, 2)
WARM = np.array([9, 3, 4, 0, 7, 11, 2, 5, 1, 13])       # rows of the tensor train, as it has them


def a_table(seed=0, dtype=np.float64, dim=4, **rates):
    random = np.random.default_rng(seed)
    return TieredRows(random.standard_normal((14, dim)).astype(dtype), **{"rate": 0.1, "core_rate": 0.2} | rates)


def tiered(**options):
    table = a_table(**options)
    table.decompose(WARM, MODES, COLUMNS, RANKS)
    return table


@pytest.mark.parametrize("dim", [4, 3])
def test_gradients_are_those_of_differences(dim):
    """With rows that are asked for more than once; of three columns, where the modes have four."""
    table, random = tiered(dim=dim), np.random.default_rng(1)
    numbers = np.array([3, 9, 3, 6, 10, 6, 0, 13, 4])
    slopes = random.standard_normal((len(numbers), dim))
    parts = [table._dense, *(core.swapaxes(0, 1) for core in table.cores)]
    found = table.gradients(numbers, slopes)
    assert len(found) == len(parts) == 4 and found[0][0].tolist() == [6, 10]
    for part, (at, slope) in zip(parts, found, strict=True):
        whole = np.zeros(part.shape)
        whole[at] = slope
        for place in np.ndindex(part.shape):
            value, ends = part[place], []
            for part[place] in (value + 1e-6, value - 1e-6):
                ends.append((table[numbers] * slopes).sum())
            part[place] = value
            assert whole[place] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7), place


def test_a_step_is_adagrads():
    table, numbers = a_table(), np.array([5, 2, 5])
    before = table.values()
    slopes = np.arange(1.0, 13).reshape(3, 4)
    total = np.stack([slopes[1], slopes[0] + slopes[2]])
    wanted, squares = before[[2, 5]], np.zeros((2, 4))
    for scale in (1.0, 0.5):
        table.step(numbers, slopes, scale)
        squares += total**2
        wanted = wanted - 0.1 * scale * total / (np.sqrt(squares) + TINY)
    assert np.allclose(table[np.array([2, 5])], wanted, rtol=1e-14)
    others = np.delete(np.arange(14), [2, 5])
    assert np.array_equal(table[others], before[others])


def test_cores_have_a_rate_of_their_own():
    table, numbers = tiered(core_rate=0.3), np.array([3, 9, 6])
    slopes = np.random.default_rng(2).standard_normal((3, 4))
    before = [core.swapaxes(0, 1).copy() for core in table.cores]
    found = table.gradients(numbers, slopes)[1:]
    table.step(numbers, slopes)
    for core, old, (at, slope) in zip(table.cores, before, found, strict=True):
        old[at] -= 0.3 * slope / (np.abs(slope) + TINY)
        assert np.allclose(core.swapaxes(0, 1), old, rtol=1e-12)


def test_cores_learn_rows():
    """Towards rows of a tensor train of these ranks; the dense rows stand still."""
    target, table = tiered(seed=3).values(), tiered(core_rate=0.1)
    before, warm = table.values(), np.sort(WARM)
    for _ in range(300):
        table.step(warm, table[warm] - target[warm])
    after = table.values()
    assert np.linalg.norm(after[warm] - target[warm]) < 0.1 * np.linalg.norm(before[warm] - target[warm])
    cold = np.setdiff1d(np.arange(14), WARM)
    assert np.array_equal(after[cold], before[cold])


def test_decomposition_keeps_what_its_ranks_hold():
    table = a_table()
    before = table.values()
    table.decompose(WARM, MODES, COLUMNS, (4, 2))       # the largest there are
    assert table.error < 1e-6 and np.allclose(table.values(), before, atol=1e-6)
    again = tiered()
    far = again.values() - before
    sizes = [np.sqrt(np.mean(core**2)) for core in again.cores]
    assert sizes == pytest.approx([sizes[0]] * 3, rel=1e-5), "a step of one rate moves each alike"
    assert again.error == pytest.approx(np.linalg.norm(far) / np.linalg.norm(before[WARM]), rel=1e-5) and far.any()


def test_arrays_are_those_of_a_bundle():
    table = tiered(dtype=np.float32)
    found = table.arrays("t")
    assert set(found) == {"table_t", "tt_row_t", "core1_t", "core2_t", "core3_t"}
    assert found["tt_row_t"][WARM].tolist() == list(range(10)) and (found["tt_row_t"] >= 0).sum() == 10
    rows = dense([found[f"core{k}_t"] for k in (1, 2, 3)])
    assert np.allclose(found["table_t"][WARM], rows[:10], atol=1e-6)
    assert all(each.dtype == np.float32 for name, each in found.items() if name != "tt_row_t")
    assert set(a_table().arrays("t")) == {"table_t"}


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"row_modes \(2, 2, 2\) multiply to 8, fewer than the table's 10 rows"):
        a_table().decompose(WARM, (2, 2, 2), COLUMNS, RANKS)
