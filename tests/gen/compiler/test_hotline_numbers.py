"""Numbers of rows for the Hotline core: every row has its own, and what is asked for most spreads over the banks."""

import numpy as np
import pytest

from gen.compiler.hotline import Layout, Position, Table
from gen.compiler.hotline_numbers import GAP, numbered
from gen.rtl.config import load
from golden.hotline.randomizer import permute

CORE = {"banks": 16, "domain_bits": 31, "most": 1 << 31}
ROWS = (1, 3, 0, 2, 40, 100_000, 5, 9, 4, 700)
TINY = load("tiny").cores["hotline"]


def asked(seed, samples=500):
    """Rows of each table that samples ask for, few of them often."""
    random = np.random.default_rng(seed)
    return [np.minimum(random.zipf(1.5, samples) - 1, max(rows - 1, 0))[:samples if rows else 0] for rows in ROWS]


def busiest(first, drawn):
    """Accesses to the bank that gets most."""
    numbers = np.concatenate([each + start for each, start in zip(drawn, first[:-1], strict=True)])
    return np.bincount(permute(numbers, CORE["domain_bits"]) & CORE["banks"] - 1).max()


def test_without_samples_tables_follow_each_other():
    assert numbered(ROWS, None, **CORE).tolist() == np.concatenate([[0], np.cumsum(ROWS)]).tolist()


@pytest.mark.parametrize("spare", [0, 1, 70, 1 << 20])
def test_every_row_has_a_number_of_its_own(spare):
    most = sum(ROWS) + spare
    first = numbered(ROWS, asked(1), **CORE | {"most": most})
    order = np.argsort(first[:-1], kind="stable")
    ends = first[:-1] + ROWS
    assert (first[order[1:]] - np.maximum.accumulate(ends[order])[:-1] >= 0)[np.array(ROWS)[order[1:]] > 0].all()
    assert max(ends) == first[-1] <= most
    assert first[-1] - sum(ROWS) <= min(spare, GAP * len(ROWS)) and (spare == 0) == (first[-1] == sum(ROWS))


@pytest.mark.parametrize("seed", range(4))
def test_banks_are_asked_alike_by_later_samples(seed):
    """The bank of the row that is asked for most, in every sample, gets hardly more."""
    now, later = asked(seed), asked(seed + 100)
    least = max(np.bincount(each, minlength=1).max() for each in later)
    spread, plain = (busiest(numbered(ROWS, known, **CORE), later) for known in (now, None))
    assert spread < 1.1 * least < plain


def test_a_layout_names_rows_by_their_numbers_and_counts_no_gap():
    random = np.random.default_rng(2)
    tables = [Table(name, np.zeros((rows, 4), np.float32), name == "c") for name, rows in zip("abcd", (30, 5, 9, 600))]
    head = np.stack([random.integers(0, len(table.array), 50) for table in tables], axis=1).astype(np.uint64)
    layout = Layout(TINY, tables, [Position(table.name) for table in tables], head=head)
    image = np.zeros((TINY.sets, TINY.banks, 4), np.uint32)
    for at in permute(np.arange(layout.first[-1] + 100), TINY.domain_bits):
        ways = image[at >> TINY.bank_bits & TINY.sets - 1, at & TINY.banks - 1]
        if (free := np.flatnonzero(ways == 0)).size:
            ways[free[0]] = at >> TINY.bank_bits + TINY.set_bits | 1 << 16
    hot = layout.hot(image)
    wanted = {(table, row) for table in (0, 1, 3) for row in range(len(tables[table].array))}
    assert set(zip(hot.tables.tolist(), hot.indices.tolist(), strict=True)) <= wanted and len(hot) > 100
    place = permute(layout.first[hot.tables] + hot.indices, TINY.domain_bits) & TINY.banks * TINY.sets - 1
    assert (place == hot.numbers & TINY.banks * TINY.sets - 1).all()
    assert layout.first[-1] > 635 and len(layout.rows()) == layout.first[-1] << layout.row_beats_log2
