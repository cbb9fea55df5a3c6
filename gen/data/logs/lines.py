"""Text logs: stretches of whole lines that are read by a layout, and what is broken in them counted and named."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gen.data.logs import bounds, parse, stream
from gen.data.logs.bounds import COLUMNS, samples_at_once
from gen.data.logs.cells import FALSE, LISTED, MISSING, TRUE
from gen.data.logs.dialect import not_utf8
from gen.data.logs.log import PIECE_BYTES, Chunk, Piece, Problems, endure
from gen.data.logs.reading import Form
from gen.data.logs.text import Layout

#: What gen.data.logs.parse takes for a number, and for an id in hexadecimal digits.
NUMBER = re.compile(r" *([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)? *")
HEX = re.compile(r"[0-9a-fA-F]{0,16}")
NESTED = re.compile(r".[\[({:]|\.\.\.", re.DOTALL)
REPEATS = "lines that repeat the fields' names"
FAULTS = 1024       # broken lines that are collected at once
PAD = 72            # words between columns: a power of two would put all of them into one set of the CPU's caches


def pieces(path: Path, layout: Layout, broken: float) -> list[Piece]:
    """A plain text in stretches, a compressed one whole."""
    form = Form(layout.form, {name: layout.how.get(name, "") for name in layout.tables}, layout.why)
    whole = TextPiece(str(path), layout.tables, path=path, layout=layout, broken=broken, bytes=path.stat().st_size,
                      unread=tuple(name for name in layout.of_kind(parse.SKIP) if name in layout.why), form=form)
    if stream.compressed(path):
        return [whole]
    edges = stream.cuts(path, layout.start, PIECE_BYTES, layout.separator if layout.quotes else None)
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
        return not stream.compressed(self.path)     # of which much is read at once

    def _chunks(self, samples: int) -> Iterator[Chunk]:
        layout, self.problems, self.done = self.layout, Problems(), 0
        columns = _Columns(layout, samples)
        rules, kinds = _rules(layout), np.array(layout.kinds, np.int8)
        faults, odd = np.zeros((FAULTS, 2), np.int64), np.zeros((len(kinds), 2), np.int64)
        first, good, bad, lines, texts = self.first, 0, 0, 0, bool({parse.AUTO, parse.PLAIN, parse.BAG} & {*kinds})
        skipped = 0 if self.start else layout.start
        before_all = cache(partial(stream.lines_before, self.path, self.start))     # read once, for the first fault
        separator = layout.separator if layout.quotes else None
        try:
            for block, done in stream.blocks(self.path, self.start, self.stop, separator):
                at, skipped = skipped, 0
                if texts and block.max() > 127:
                    self._check_text(block, at, lines, before_all)
                while at < len(block):
                    begin, before = at, columns.rows
                    columns.room(len(block) - at)
                    at, columns.rows, wrong, count = parse.parse(block, at, len(block), rules, columns.filled, before,
                                                                 columns.most, faults, odd)
                    good, bad = good + columns.rows - before, bad + wrong
                    if wrong or odd.any():
                        bad -= self._note(block, begin, lines, faults[:wrong], odd, before_all)
                        endure(str(self.path), "lines", self.problems, good, bad, self.broken)
                    lines += int(np.count_nonzero(block[begin:at] == 10)) if layout.quotes else count
                    if columns.full:
                        self.done = done
                        yield columns.chunk(first, self.source)
                        first += columns.rows
                        columns.clear()
                self.done = done
        except stream.OpenQuote as error:
            place = self._place(lines, before_all)
            raise ValueError(f"{place}: a quoted field that begins here or further on {error}; --no-quotes takes "
                             "quotes for text") from None
        if bad and not good:
            endure(str(self.path), "lines", self.problems, good, bad, 0)
        if columns.rows:
            yield columns.chunk(first, self.source)

    def _place(self, lines: int, before_all: Callable[[], int]) -> str:
        """The file and the line behind so many of the piece's."""
        before = before_all() if self.start else self.layout.lines
        return f"{self.path}:{1 + before + lines}"

    def _check_text(self, block: NDArray[np.uint8], at: int, lines: int, before_all: Callable[[], int]) -> None:
        """Raises ValueError: it is no UTF-8"""
        data = block.tobytes()
        try:
            data.decode()
        except UnicodeDecodeError as error:
            place = self._place(lines + data.count(b"\n", at, error.start), before_all)
            raise ValueError(f"{place}: {not_utf8(data, error)}") from None

    def _note(self, block: NDArray[np.uint8], at: int, lines: int, faults: NDArray[np.int64],
              odd: NDArray[np.int64], before_all: Callable[[], int]) -> int:
        """Names lines of a block behind its byte `at`, which `lines` others of the piece are before, and the piece's
        those that `before_all` counts. Returns how many of them are no fault, as they repeat the names."""

        def place(begin: int) -> str:
            return self._place(lines + int(np.count_nonzero(block[at:begin] == 10)), before_all)

        repeats = 0
        for begin, end in faults.tolist():
            kind, what = self._fault(block[begin:end].tobytes().decode(errors="replace").rstrip("\r"))
            self.problems.add(kind, "" if kind in self.problems.counts else f"{place(begin)}: {what}")
            repeats += kind == REPEATS
        kind = "values that are no number, read as NaN"
        for column in np.flatnonzero(odd[:, 0]).tolist():
            count, begin = odd[column].tolist()
            where = "" if kind in self.problems.counts else f"{place(begin)}: the field {self.layout.names[column]!r}"
            self.problems.add(kind, where, count)
        odd[:] = 0
        return repeats

    def _fault(self, line: str) -> tuple[str, str]:
        """The kind of fault of a broken line, and what it is."""
        layout = self.layout
        if layout.title and line.removeprefix("\ufeff").encode() == layout.title:
            return REPEATS, f"the line is {line[:80]!r}"
        if line.count(layout.separator) > COLUMNS + len(layout.names):
            return "lines of too few or too many fields", f"more than {COLUMNS:,} fields, not {len(layout.names)}"
        fields = _split(line, layout.separator) if layout.quotes else line.split(layout.separator)
        if len(fields) != len(layout.names):
            return "lines of too few or too many fields", f"{len(fields)} fields, not {len(layout.names)}"
        for name, kind, cell in zip(layout.names, layout.kinds, fields):
            said = f"the field {name!r} is {cell[:80]!r}"
            empty = not cell or cell in MISSING
            if kind in (parse.AUTO, parse.PLAIN, parse.HEX) and empty and layout.missing is None:
                return "lines with an empty id (--missing is an id for it)", f"the field {name!r} is empty"
            if kind == parse.AUTO and LISTED.fullmatch(cell):
                return "lines with a list where the first lines have single ids (--list reads lists)", said
            if kind == parse.BAG and not empty and layout.missing is None and _gaps(cell, layout.lists[name]):
                return "lines with an empty id in a list (--missing is an id for it)", said
            if kind == parse.BAG and NESTED.search(cell):
                return "lines with a list of lists, or of keys and values, or one that is cut", said
            if kind == parse.HEX and not empty and not HEX.fullmatch(cell):
                return "lines with an id that is not hexadecimal", said
            if kind == parse.NUMBER and not NUMBER.fullmatch(cell) and cell not in (*MISSING, *TRUE, *FALSE):
                return "lines with a value that is no number", said
            if kind == parse.TIME and not NUMBER.fullmatch(cell) and not empty:
                return "lines with a value that is neither a number nor a time, as 2024-01-31 23:59:58", said
        return "lines whose fields do not end where they should", f"the line is {line[:80]!r}"


def _split(line: str, separator: str) -> list[str]:
    """The fields of a record that may be quoted."""
    try:
        return next(csv.reader(io.StringIO(line, newline=""), delimiter=separator), [])
    except csv.Error:
        return line.split(separator)


def _gaps(cell: str, separator: str) -> bool:
    """Whether an id of a list is missing."""
    cell = cell.strip()
    inner = cell[1:-1] if cell[:1] == "[" and cell[-1:] == "]" else cell
    items = inner.split("," if inner != cell else separator)
    return any(not item.strip(" '\"\n") or item.strip(" '\"\n") in MISSING for item in items)


def _rules(layout: Layout) -> parse.Rules:
    lists = np.array([ord(layout.lists.get(name, "\0")) for name in layout.names], np.uint8)
    missing = np.array([layout.missing is not None, layout.missing or 0], np.uint64)
    return parse.Rules(parse.ends_of(layout.separator), layout.quotes, np.array(layout.kinds, np.int8), lists, missing,
                       parse.DIGITS, parse.POWERS, np.frombuffer(bytearray(layout.title), np.uint8))


class _Columns:
    """The columns of a chunk while they are filled. most: rows that there are at the most."""

    def __init__(self, layout: Layout, samples: int):
        self.tables, self.bags = layout.tables, layout.of_kind(parse.BAG)
        self.singles = layout.of_kind(parse.AUTO, parse.PLAIN, parse.HEX)
        self.values = layout.of_kind(parse.NUMBER, parse.LOOSE, parse.TIME)
        self.most = samples_at_once(samples, len(self.tables) + len(self.values))
        self.ids_most = bounds.WORDS // max(len(self.tables) + len(self.values), 1)
        self.clear()

    def clear(self) -> None:
        self.rows, wide = 0, self.most + PAD
        self.filled = parse.Columns(np.empty((len(self.singles), wide), np.uint64), np.empty((len(self.values), wide)),
                                    np.empty((len(self.bags), 0), np.uint64), np.zeros(len(self.bags), np.int64),
                                    np.zeros((len(self.bags), self.most + 1), np.int64))

    def room(self, bytes: int) -> None:
        """Makes room for the ids of lists that so many bytes may have."""
        used = int(self.filled.used.max(initial=0))
        if len(self.bags) and self.filled.bags.shape[1] < used + bytes + 1:
            wider = np.empty((len(self.bags), 2 * used + bytes + 1), np.uint64)
            wider[:, :used] = self.filled.bags[:, :used]
            self.filled = self.filled._replace(bags=wider)

    @property
    def full(self) -> bool:
        return self.rows == self.most or bool(self.rows) and int(self.filled.used.max(initial=0)) >= self.ids_most

    def chunk(self, first: int, source: str) -> Chunk:
        """Samples `first` and on. Raises ValueError: a list of more than BAG ids"""
        rows, filled = self.rows, self.filled
        offsets = {name: edges[:rows + 1] for name, edges in zip(self.bags, filled.edges)}
        bounds.together(source, offsets, rows)
        ids = {name: column[:rows] for name, column in zip(self.singles, filled.ids)}
        ids |= {name: column[:offsets[name][-1]] for name, column in zip(self.bags, filled.bags)}
        return Chunk(first, rows, {name: ids[name] for name in self.tables}, offsets,
                     {name: column[:rows] for name, column in zip(self.values, filled.values)})
