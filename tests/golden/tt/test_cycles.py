"""What the cycle model takes and refuses, and that Numba's cache notices every file of it."""

import re
from pathlib import Path

import numpy as np
import pytest

import golden.tt.registers
from golden.tt.cycles import cycles
from golden.tt.layout import plan
from golden.tt.registers import HORIZON
from golden.tt.sequencer import WHOLE_CYCLES

FOLDER = Path(golden.tt.registers.__file__).parent
SIZES = dict(lanes=2, index_bits=12, t_lines=128, t_middle_lines=64, reuse_entries=32, reuse_findable=16,
             in_flight=8, vectors=8)
LAYOUTS = [plan((4, 5, 6), (2, 2, 4), (1, 2, 3, 1), grid_log2=1),
           plan((3, 3, 3, 3), (2, 2, 2, 2), (1, 2, 2, 2, 1), grid_log2=1)]


def test_a_row_is_a_chunk_by_itself():
    tables, indices = np.arange(30) % 2, np.arange(30)
    one, other = (cycles(LAYOUTS, tables, indices, offsets=offsets, **SIZES) for offsets in (None, np.arange(31)))
    assert np.array_equal(one.last_at, other.last_at) and len(one.last_at) == 30


def test_a_grid_past_the_horizon_is_refused():
    """The slowest grid that the model can look past, and one cycle more."""
    tables, indices = np.arange(30) % 2, np.arange(30)
    slow = HORIZON - 1 - WHOLE_CYCLES - 2
    last = [cycles(LAYOUTS, tables, indices, latency=latency, **SIZES).last_at for latency in (slow - 1, slow)]
    assert (np.diff(last, axis=0) > 0).all()
    with pytest.raises(ValueError, match=f"latency {slow + 1}: .*{HORIZON - 1} cycles ahead, where {HORIZON} are"):
        cycles(LAYOUTS, tables, indices, latency=slow + 1, **SIZES)


def test_the_cache_notices_all_files():
    """What is compiled is told apart by the sources of all that it calls."""
    known = set(re.findall(r'"(\w+)\.py"', (FOLDER / "registers.py").read_text("utf-8")))
    called, found = {"unit"}, set()
    while called - found:
        name = (called - found).pop()
        found.add(name)
        called |= set(re.findall(r"^from golden\.tt\.(\w+) import", (FOLDER / f"{name}.py").read_text("utf-8"), re.M))
    assert found == known
