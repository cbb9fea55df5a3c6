"""The tensor-train unit's oracle: cores, layout, rows in the unit's order of operations, cycles."""

from golden.tt.cores import dense
from golden.tt.cycles import cycles, cycles_per_row
from golden.tt.layout import plan
from golden.tt.load import Limits, Loader
from golden.tt.rows import chunk_rows, pooled, rows

__all__ = ["Limits", "Loader", "chunk_rows", "cycles", "cycles_per_row", "dense", "plan", "pooled", "rows"]
