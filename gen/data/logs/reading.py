"""How a log was understood: for people on the terminal, and for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gen.data.ids import id_text
from gen.data.logs.bounds import few
from gen.data.logs.chunk import Chunk
from gen.data.logs.features import dense_names, label_among

#: Samples of a log that are shown, and ids of a bag of one.
SHOWN, BAG_SHOWN = 3, 16
LINE = 8            # columns of a sample on a line


@dataclass(frozen=True)
class Form:
    """How a file is read, in words. text: what it is and how it is written; tables: how the ids of each are
    understood; unread: why columns are neither tables nor values."""

    text: str = ""
    tables: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reading:
    """How a log was understood. form: of its files, in words; tables: the columns of ids, and how these are understood;
    dense, label: columns of values that are features and the label; values: others; unread: columns that are not read,
    and why; first: the first samples; notes: on the order of the files."""

    form: str
    tables: Mapping[str, str]
    dense: tuple[str, ...]
    label: str | None
    values: tuple[str, ...]
    unread: Mapping[str, str]
    first: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, form: Form, tables: Sequence[str], unread: Mapping[str, str], first: Chunk | None,
           notes: tuple[str, ...] = ()) -> "Reading":
        """first: samples of the log, None where it has none."""
        values = tuple(first.values) if first else ()
        dense = tuple(dense_names(first.values)) if first else ()
        label = label_among(values)
        return cls(form.text, {name: form.tables.get(name, "") for name in tables}, dense, label,
                   tuple(name for name in values if name not in dense and name != label), unread,
                   () if first is None else _shown(first), notes)

    def lines(self) -> list[str]:
        """For people."""
        def named(each: Mapping[str, str]) -> str:
            return few((f"{name or repr(name)} ({how})" if how else name for name, how in each.items()), 12)

        whole = [("read as", self.form), *(("order", note) for note in self.notes),
                 ("tables", named(self.tables)), ("dense", few(self.dense, 16)),
                 ("label", self.label or ""), ("values", few(self.values, 16)), ("not read", named(self.unread))]
        whole += [("sample", few((f"{name} {_word(value)}" for name, value in self._label_early(sample)), LINE))
                  for sample in self.first]
        return [f"{what:<10} {text}" for what, text in whole if text]


    def _label_early(self, sample: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Of a sample of many columns, the label among those that a line shows."""
        cells = list(sample.items())
        if len(cells) > LINE and self.label is not None:
            cells.remove((self.label, sample[self.label]))
            cells.insert(LINE - 1, (self.label, sample[self.label]))
        return cells


def _word(value: Any) -> str:
    """Of a sample, not longer than a line bears."""
    if isinstance(value, list):
        return f"[{few(map(_word, value), 6)}]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        value = int(value)      # a time is one in seconds, which six digits do not tell from another
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else id_text(value)


def first_of(chunk: Chunk) -> Chunk:
    """A copy of the first samples."""
    part = chunk.part(0, min(SHOWN, chunk.samples))
    return replace(part, ids={name: ids.copy() for name, ids in part.ids.items()},
                   values={name: value.copy() for name, value in part.values.items()})


def _shown(chunk: Chunk) -> tuple[dict[str, Any], ...]:
    """Its samples, one by one, as plain values: ids whole, a list where a sample has a bag; values, None for NaN."""
    found = []
    for row in range(chunk.samples):
        sample: dict[str, Any] = {}
        for name, ids in chunk.ids.items():
            edges = chunk.edges(name)
            bag = ids[edges[row]:edges[row + 1]].tolist()
            sample[name] = bag[:BAG_SHOWN] if name in chunk.offsets else bag[0]
        for name, values in chunk.values.items():
            value = values[row].tolist()
            sample[name] = None if value != value else value[:BAG_SHOWN] if isinstance(value, list) else value
        found.append(sample)
    return tuple(found)
