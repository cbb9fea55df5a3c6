"""Text logs: stretches of whole lines that are read by a layout, and what is broken in them counted and named."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gen.data.logs import parse, stream
from gen.data.logs.bounds import COLUMNS, samples_at_once
from gen.data.logs.log import PIECE_BYTES, Chunk, Piece, Problems, endure
from gen.data.logs.text import Layout, split

__all__ = ["TextPiece", "pieces"]

#: What gen.data.logs.parse takes for a number, and for an id in hexadecimal digits.
NUMBER = re.compile(r"([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)?")
HEX = re.compile(r"[0-9a-fA-F]{0,16}")
FAULTS = 1024       # broken lines that are collected at once
PAD = 72            # words between columns: a power of two would put all of them into one set of the CPU's caches


def pieces(path: Path, layout: Layout, broken: float) -> list[Piece]:
    """A plain text in stretches, a compressed one whole."""
    whole = TextPiece(str(path), layout.tables, path=path, layout=layout, broken=broken, bytes=path.stat().st_size,
                      unread=layout.of_kind(parse.SKIP))
    if path.suffix in stream.COMPRESSED:
        return [whole]
    edges = stream.cuts(path, layout.start, PIECE_BYTES)
    return [replace(whole, start=start, stop=stop, bytes=stop - start) for start, stop in zip(edges, edges[1:])]


@dataclass
class TextPiece(Piece):
    """Lines of a file.

    path, layout: of the file; start, stop: its bytes, of a plain text; broken: share of the lines that may be

    Raises      ValueError, while it is read: more broken lines than that, a file that is damaged
    """

    path: Path = field(kw_only=True)
    layout: Layout = field(kw_only=True, repr=False)
    start: int = field(default=0, kw_only=True)
    stop: int | None = field(default=None, kw_only=True)
    broken: float = field(default=0.01, kw_only=True)

    @property
    def steady(self) -> bool:
        return self.path.suffix not in stream.COMPRESSED    # of which much is read at once

    def _chunks(self, samples: int) -> Iterator[Chunk]:
        layout, self.problems, self.done = self.layout, Problems(), 0
        tables, values = layout.tables, layout.of_kind(parse.NUMBER, parse.LOOSE)
        samples = samples_at_once(samples, len(tables) + len(values))
        kinds, ends = np.array(layout.kinds, np.int8), parse.ends_of(layout.separator)
        missing = np.array([layout.missing is not None, layout.missing or 0], np.uint64)
        faults, odd = np.zeros((FAULTS, 2), np.int64), np.zeros((len(kinds), 2), np.int64)
        first, good, bad, lines = self.first, 0, 0, 0
        before_all = cache(partial(stream.lines_before, self.path, self.start))     # read once, for the first fault

        def fresh() -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
            return np.empty((len(tables), samples + PAD), np.uint64), np.empty((len(values), samples + PAD), np.float64)

        def chunk() -> Chunk:
            return Chunk(first, row, {name: column[:row] for name, column in zip(tables, ids)}, {},
                         {name: column[:row] for name, column in zip(values, numbers)})

        row, (ids, numbers) = 0, fresh()
        for block, done in stream.blocks(self.path, self.start, self.stop):
            at = 0 if lines or self.start else layout.start
            while at < len(block):
                begin, before = at, row
                at, row, wrong, count = parse.parse(block, at, len(block), ends, layout.quotes, kinds,
                                                    missing, ids, numbers, row, samples, faults, odd, parse.DIGITS,
                                                    parse.POWERS)
                good, bad = good + row - before, bad + wrong
                if wrong or odd.any():
                    self._note(block, begin, lines, faults[:wrong], odd, before_all)
                    endure(str(self.path), "lines", self.problems, good, bad, self.broken)
                lines += count
                if row == samples:
                    self.done = done
                    yield chunk()
                    first, row = first + row, 0
                    ids, numbers = fresh()
            self.done = done
        if bad and not good:
            endure(str(self.path), "lines", self.problems, good, bad, 0)
        if row:
            yield chunk()

    def _note(self, block: NDArray[np.uint8], at: int, lines: int, faults: NDArray[np.int64],
              odd: NDArray[np.int64], before_all: Callable[[], int]) -> None:
        """Names lines of a block behind its byte `at`, which `lines` others of the piece are before, and the piece's
        those that `before_all` counts."""

        def place(begin: int) -> str:
            before = before_all() if self.start else int(self.layout.start > 0)
            return f"{self.path}:{1 + before + lines + int(np.count_nonzero(block[at:begin] == 10))}"

        for begin, end in faults.tolist():
            kind, what = self._fault(block[begin:end].tobytes().decode(errors="replace").rstrip("\r"))
            self.problems.add(kind, "" if kind in self.problems.counts else f"{place(begin)}: {what}")
        kind = "values that are no number, read as NaN"
        for column in np.flatnonzero(odd[:, 0]).tolist():
            count, begin = odd[column].tolist()
            where = "" if kind in self.problems.counts else f"{place(begin)}: the field {self.layout.names[column]!r}"
            self.problems.add(kind, where, count)
        odd[:] = 0

    def _fault(self, line: str) -> tuple[str, str]:
        """The kind of fault of a broken line, and what it is."""
        layout = self.layout
        if line.count(layout.separator) > COLUMNS + len(layout.names):
            return "lines of too few or too many fields", f"more than {COLUMNS:,} fields, not {len(layout.names)}"
        fields = split(line, layout.separator) if layout.quotes else line.split(layout.separator)
        if len(fields) != len(layout.names):
            return "lines of too few or too many fields", f"{len(fields)} fields, not {len(layout.names)}"
        for name, kind, cell in zip(layout.names, layout.kinds, fields):
            if kind in (parse.AUTO, parse.HEX) and not cell and layout.missing is None:
                return "lines with an empty id", f"the field {name!r} is empty"
            if kind == parse.HEX and not HEX.fullmatch(cell):
                return "lines with an id that is not hexadecimal", f"the field {name!r} is {cell[:80]!r}"
            if kind == parse.NUMBER and not NUMBER.fullmatch(cell):
                return "lines with a value that is no number", f"the field {name!r} is {cell[:80]!r}"
        return "lines whose fields do not end where they should", f"the line is {line[:80]!r}"
