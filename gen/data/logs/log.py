"""A click log that is read in a stream: chunks of samples, each with the ids of every table."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Protocol

from gen.data.logs.bounds import few, readable
from gen.data.logs.chunk import Chunk
from gen.data.logs.reading import SHOWN, Form, Reading, first_of

__all__ = ["PIECE", "PIECE_BYTES", "Chunk", "Form", "Log", "Piece", "Pieces", "Problems", "Reading", "endure"]

#: Samples of a log's k-th piece are numbered from k * PIECE on: so a sample has one number, however the log is read.
PIECE = 1 << 40
#: About how many bytes of a file make a piece.
PIECE_BYTES = 1 << 26
#: Broken samples that are no reason to stop, however short the log.
SPARED = 10

Progress = Callable[[int, int], None]


@dataclass
class Problems:
    """Lines that were left out: how many, of each kind, and where the first of it was."""

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, where: str, count: int = 1) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + count
        self.first.setdefault(kind, where)

    @classmethod
    def of(cls, parts: "Iterable[Problems]") -> "Problems":
        """Of pieces, in their order."""
        found = cls()
        for part in parts:
            for kind, count in part.counts.items():
                found.add(kind, part.first[kind], count)
        return found

    def take(self, other: "Problems") -> None:
        """Becomes the other: that of a copy which was read elsewhere."""
        self.counts, self.first = dict(other.counts), dict(other.first)

    def lines(self) -> list[str]:
        """A sentence of each kind."""
        return [f"{count:,} x {kind}; first {self.first[kind]}" for kind, count in self.counts.items()]


def endure(where: str, what: str, problems: Problems, good: int, bad: int, share: float) -> None:
    """Raises      ValueError: more than this share is broken, and more than SPARED where any may be"""
    if bad > (SPARED + share * (good + bad) if share else 0):
        allowed = f", more than {share:.0%}" if share else ""
        kinds = "; ".join(problems.lines())
        raise ValueError(f"{where}: {bad:,} of {good + bad:,} {what} are broken{allowed}: {kinds}")


class Log(Protocol):
    """source: what people call it. tables: their names. problems: of the last reading. parts: pieces that can be read
    on their own, in any order, in other processes, as files or stretches of a file; part k of n always has the same
    samples under the same numbers. The numbers of a part have no gaps; those of the whole have, between parts."""

    @property
    def source(self) -> str: ...

    @property
    def tables(self) -> tuple[str, ...]: ...

    @property
    def problems(self) -> Problems: ...

    def chunks(self, samples: int = 65536) -> Iterator[Chunk]:
        """All samples in order, about so many at once."""
        ...

    def parts(self) -> "Sequence[Log]":
        """Itself, or its pieces in order."""
        ...


@dataclass
class Piece(ABC):
    """What the pieces of all formats have: a Log that is one part, and can be sent to another process.

    bytes: its size as stored; done: how many of them have been read; first: the number of its first sample; before,
    whole: bytes of the log before it, and of all of the log; unread: columns that are neither tables nor values; form:
    how it is read.
    """

    source: str
    tables: tuple[str, ...]
    bytes: int = field(default=0, kw_only=True)
    first: int = field(default=0, kw_only=True)
    before: int = field(default=0, kw_only=True)
    whole: int = field(default=0, kw_only=True)
    unread: tuple[str, ...] = field(default=(), kw_only=True)
    form: Form = field(default=Form(), kw_only=True, repr=False)
    done: int = field(default=0, init=False, repr=False)
    problems: Problems = field(default_factory=Problems, init=False, repr=False)

    def chunks(self, samples: int = 65536) -> Iterator[Chunk]:
        """All samples in order, about so many at once, fewer where they are wide.

        Raises      ValueError: the file is damaged, too much of it is broken, or it asks for more than a log may
        """
        begin = self.done = 0
        whole, middle = max(self.whole or self.bytes, 1), self.bytes // 2
        with readable(self.source):
            for chunk in self._chunks(samples):
                ends = (begin, self.done) if self.steady else (middle, middle)
                begin = self.done
                yield replace(chunk, place=((self.before + ends[0]) / whole, (self.before + ends[1]) / whole))

    @property
    def steady(self) -> bool:
        """Whether `done` is about as far as the samples are; if not, all are placed in the piece's middle."""
        return True

    @abstractmethod
    def _chunks(self, samples: int) -> Iterator[Chunk]:
        """As `chunks`, whatever goes wrong."""

    def parts(self) -> "tuple[Piece, ...]":
        return (self,)


class Pieces:
    """A log of pieces, one behind the other.

    Parameters  source: what people call it; pieces: in order; progress: told the bytes read and all of them, after
                every chunk; notes: on their order
    Raises      ValueError: no piece, or pieces whose tables differ
    """

    def __init__(self, source: str, pieces: Sequence[Piece], *, progress: Progress | None = None,
                 notes: Sequence[str] = ()):
        if not pieces:
            raise ValueError(f"{source} is a log of no files")
        for piece in pieces[1:]:
            if piece.tables != pieces[0].tables:
                shared = "; --table names those that all have" if {*piece.tables} & {*pieces[0].tables} else ""
                raise ValueError(f"{piece.source} has the tables {few(piece.tables)}; "
                                 f"{pieces[0].source} has {few(pieces[0].tables)}{shared}")
        self.source = source
        ends = [0, *accumulate(piece.bytes for piece in pieces)]
        self.pieces = tuple(replace(piece, first=number * PIECE, before=ends[number], whole=ends[-1])
                            for number, piece in enumerate(pieces))
        self.progress, self.notes = progress, tuple(notes)
        self._first: Chunk | None = None

    @property
    def tables(self) -> tuple[str, ...]:
        return self.pieces[0].tables

    @property
    def problems(self) -> Problems:
        return Problems.of(piece.problems for piece in self.pieces)

    @property
    def unread(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for piece in self.pieces for name in piece.unread))

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)

    def reading(self) -> Reading:
        """How the log was understood; the first samples are read for it where that has not been done."""
        if self._first is None:
            # Of copies: the pieces keep what their own reading has found, here or in another process.
            copies = (replace(piece) for piece in self.pieces)
            with suppress(ValueError):      # whoever reads on will hear of it
                self._first = next((first_of(chunk) for piece in copies for chunk in piece.chunks(SHOWN)), None)
        unread = {name: self._why(name) for name in self.unread}
        return Reading.of(self.pieces[0].form, self.tables, unread, self._first, self.notes)

    def _why(self, name: str) -> str:
        return next((piece.form.unread[name] for piece in self.pieces if name in piece.form.unread), "")

    def report(self) -> list[str]:
        """What a user should know of the last reading: how the log was understood, and what was broken."""
        return [*self.reading().lines(), *(f"broken     {line}" for line in self.problems.lines())]

    def chunks(self, samples: int = 65536) -> Iterator[Chunk]:
        """Raises ValueError: as the pieces do; there is no sample in all of them"""
        total, before, none = self.bytes, 0, True
        for piece in self.pieces:
            for chunk in piece.chunks(samples):
                if none:
                    self._first, none = first_of(chunk), False
                yield chunk
                if self.progress:
                    self.progress(before + piece.done, total)
            before += piece.bytes
        if none:
            raise ValueError(f"{self.source} has no samples")
        if self.progress:
            self.progress(total, total)

    def parts(self) -> tuple[Piece, ...]:
        return self.pieces
