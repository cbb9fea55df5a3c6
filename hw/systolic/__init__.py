"""The output-stationary array of dot-product cells, for tensor trains and layers alike."""

from .array import SystolicArray
from .pe import ProcessingElement

__all__ = ["ProcessingElement", "SystolicArray"]
