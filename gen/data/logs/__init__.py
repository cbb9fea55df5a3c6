"""Click logs as they come: readers that stream, in constant memory."""

from gen.data.logs.arrays import of_arrays
from gen.data.logs.log import PIECE, Chunk, Log, Pieces, Problems
from gen.data.logs.opening import FORMATS, open_for, open_log
from gen.data.logs.trace import Trace

__all__ = ["FORMATS", "PIECE", "Chunk", "Log", "Pieces", "Problems", "Trace", "of_arrays", "open_for",
           "open_log"]
