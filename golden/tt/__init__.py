"""The tensor-train unit's oracle: decomposition, layout, rows in the unit's order of operations, cycles."""

from golden.tt.decompose import decompose, dense, relative_error

__all__ = ["decompose", "dense", "relative_error"]
