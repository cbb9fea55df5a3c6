"""The tensor-train unit's oracle: decomposition, layout, rows in the unit's order of operations, cycles."""

from golden.tt.cycles import cycles, cycles_per_row
from golden.tt.decompose import decompose, dense, relative_error
from golden.tt.layout import plan
from golden.tt.load import Limits, Loader
from golden.tt.rows import rows

__all__ = ["Limits", "Loader", "cycles", "cycles_per_row", "decompose", "dense", "plan", "relative_error", "rows"]
