"""Click logs as they come: readers that stream, in constant memory."""

from gen.logs.arrays import of_arrays, of_trace
from gen.logs.log import PIECE, Chunk, Log, Pieces, Problems
from gen.logs.opening import FORMATS, open_log

__all__ = ["FORMATS", "PIECE", "Chunk", "Log", "Pieces", "Problems", "of_arrays", "of_trace", "open_log"]
