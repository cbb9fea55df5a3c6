"""Layouts of text logs, one sample a record: with a header line that names the fields, Criteo's without one, Avazu's,
MovieLens'."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gen.data.logs import parse
from gen.data.logs.bounds import few, twice
from gen.data.logs.cells import FALSE, LISTED, MISSING, TRUE
from gen.data.logs.dialect import MARKS, NAMES, Dialect, character, dialect, first_lines

#: Endings of files with a header line.
ENDINGS = (".csv", ".tsv", ".inter", ".txt")
CRITEO_DENSE = tuple(f"I{number:02}" for number in range(1, 14))
CRITEO_TABLES = tuple(f"C{number:02}" for number in range(1, 27))
#: The same as others name them, in a header line.
CRITEO_NAMED = tuple(f"C{number}" for number in range(1, 27))
#: Avazu's fields that are hashed to 32 bits, written in hexadecimal digits.
AVAZU_HEX = ("site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category", "device_id",
             "device_ip", "device_model")
AVAZU_TABLES = ("C1", "banner_pos", *AVAZU_HEX, "device_type", "device_conn_type", *(f"C{n}" for n in range(14, 22)))
AVAZU_VALUES = ("click", "hour")
#: MovieLens' ratings without a header line: u.data, and ratings.dat with its two colons.
RATING = re.compile(r"[0-9]+(\t|::)[0-9]+\1[0-5](\.[0-9])?\1[0-9]{8,10}")
RATING_NAMES = ("user_id", "item_id", "rating", "timestamp")
#: Fields that are ids by their names: user_id, user.id, item_id_2, id_user, userId, 用户ID, userid.
ID = re.compile(r".*[_. -][iI][dD]([_. -]?[0-9]+)?|[iI][dD][_. -].+|.*[a-z0-9\x80-\U0010ffff]I[dD]|"
                r"(?i:user|visitor|member|customer|session|item|product|movie|video|song|track|artist|book|news|"
                r"article|author|brand|category|cate|shop|store|ad|app|device)[iI][dD]", re.DOTALL)
#: A writer's row numbers, which pandas and R put first.
ROW_NUMBERS = re.compile(r"|Unnamed: [0-9]+")
HASHED = re.compile(r"[0-9a-f]{8}")
BRACKETS = re.compile(r"\s*(\[.*\]|\(.*\)|\{.*\})\s*", re.DOTALL)
#: Several ids in a cell: 1 2, 1^2, N55189 N42782, N55689-1 N35729-0.
MANY = re.compile(r"[0-9]+( *[,;^/:+&] *[0-9]+)+|{0}( +{0})+".format(CODE := r"[A-Z]?[0-9]+(-[0-9])?"))
#: A program's text for what it holds: array([4, 5]).
PROGRAM = re.compile(r"[a-z.]+\([\[({].*\)", re.DOTALL)
WHOLE = re.compile(r" *[+-]?[0-9]+(\.0*)? *")
NONE = "none"
_CALLED = {sign: name for name, sign in NAMES.items()}
_EMPTY = frozenset(("", *MISSING))


@dataclass(frozen=True)
class Layout:
    """Of records. separator: one character; names, kinds: of the fields, kinds of gen.data.logs.parse; missing: the
    id that an empty field stands for, None where it is a fault; start: bytes before the first sample, lines: line ends
    in them; quotes: fields may stand in double quotes; lists: of BAG fields by name, what stands between the ids of a
    cell, a NUL for brackets alone; form: the file in words; why: fields that are not read, by name; title: the record
    that names the fields, as it is written."""

    separator: str
    names: tuple[str, ...]
    kinds: tuple[int, ...]
    missing: int | None = None
    start: int = 0
    lines: int = 0
    quotes: bool = False
    lists: Mapping[str, str] = field(default_factory=dict)
    form: str = ""
    how: Mapping[str, str] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    title: bytes = b""

    def of_kind(self, *kinds: int) -> tuple[str, ...]:
        return tuple(name for name, kind in zip(self.names, self.kinds) if kind in kinds)

    @property
    def tables(self) -> tuple[str, ...]:
        return self.of_kind(parse.AUTO, parse.PLAIN, parse.HEX, parse.BAG)

    def only(self, tables: Iterable[str] | None, source: str) -> "Layout":
        """With these tables alone."""
        if tables is None:
            return self
        names, there = dict.fromkeys(tables), set(self.tables)
        for name in names:
            if name not in there:
                raise ValueError(f"{source} has no table {name!r}; it has {few(self.tables)}")
        left = {name: "not asked for" for name in self.tables if name not in names}
        kinds = tuple(parse.SKIP if name in left else kind for name, kind in zip(self.names, self.kinds))
        return replace(self, kinds=kinds, why={**self.why, **left})


def together(layouts: Sequence[Layout]) -> list[Layout]:
    """Layouts of a log's files, of the same fields: a list in one is a list in all, a text among values is in all."""
    lists = {name: sign for layout in layouts for name, sign in layout.lists.items()}
    texts = {name: why for layout in layouts for name, why in layout.why.items()}

    def kind(name: str, own: int) -> int:
        if name in lists and own in (parse.AUTO, parse.PLAIN):
            return parse.BAG
        return parse.SKIP if name in texts and own == parse.LOOSE else own

    return [replace(layout, kinds=tuple(map(kind, layout.names, layout.kinds)),
                    lists={name: sign for name, sign in lists.items() if name in layout.names},
                    how={**layout.how, **{name: each.how[name] for each in layouts for name in each.lists}},
                    why={name: why for name, why in texts.items() if name in layout.names}) for layout in layouts]


def criteo(of: Dialect) -> Layout:
    """Of Criteo's lines: a label (test data have none), 13 whole numbers, 26 ids in hexadecimal digits; empty where
    nothing is known, which is the id 0 and no number."""
    fields = 39 if of.rows and len(of.rows[0]) == 39 else 40
    names = ("label",) * (fields - 39) + CRITEO_DENSE + CRITEO_TABLES
    return Layout("\t", names, (parse.NUMBER,) * (fields - 26) + (parse.HEX,) * 26, missing=0, start=of.start,
                  form="Criteo's format", how=dict.fromkeys(CRITEO_TABLES, "hexadecimal"))


def is_criteo(lines: Sequence[str]) -> bool:
    """Whether the first line is one of Criteo's."""
    cells = lines[0].split("\t")[::-1] if lines else []
    return len(cells) in (39, 40) and all(
        not cell or re.fullmatch("[0-9a-fA-F]+" if place < 26 else "[+-]?[0-9]+", cell)
        for place, cell in enumerate(cells))


def is_movielens(lines: Sequence[str]) -> bool:
    """Whether the first lines are MovieLens' ratings."""
    filled = [line for line in lines if line]
    return bool(filled) and all(map(RATING.fullmatch, filled))


def movielens(path: Path) -> Layout:
    """Of MovieLens' ratings without a header line.

    Raises      ValueError: other lines
    """
    lines = first_lines(path)
    if not is_movielens(lines):
        raise ValueError(f"{path} is no file of ratings as MovieLens' u.data or ratings.dat: user, item, rating, time")
    separator = "\t" if "\t" in lines[0] else ":"
    of = dialect(path, separator)
    names, kinds = list(RATING_NAMES), [parse.AUTO, parse.AUTO, parse.NUMBER, parse.NUMBER]
    if separator == ":":    # two colons have a field between them
        names = [each for name in names for each in (name, f"{name}::")][:-1]
        kinds = [each for kind in kinds for each in (kind, parse.SKIP)][:-1]
    return Layout(separator, tuple(names), tuple(kinds), start=of.start, form="MovieLens' ratings",
                  how=dict.fromkeys(RATING_NAMES[:2], "whole numbers"))


@dataclass(frozen=True)
class Header:
    """The fields' names, what RecBole calls their kinds (or nothing)."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        """The fields that are tables where none are named: those marked as tokens, else those whose names are ids'."""
        marked = tuple(name for name, kind in zip(self.names, self.kinds) if kind in ("token", "token_seq"))
        if set(CRITEO_NAMED) <= set(self.names):
            return CRITEO_NAMED
        return marked or tuple(name for name in self.names if is_id(name))

    def chosen(self, fields: Iterable[str] | None, source: str) -> tuple[str, ...]:
        """The fields that are tables: those asked for, else `tables`."""
        chosen = self.tables if fields is None else tuple(fields)
        numbers = any(map(_counts, self.names))
        hint = "; line 1 holds numbers: --fields names the fields of a log without a header line" if numbers else ""
        if not chosen and numbers:
            raise ValueError(_no_names(self.names, source))
        if not chosen:
            raise ValueError(f"{source}: no field has an id's name, as user_id, so name the fields that are indices "
                             f"(--table); there are {few(self.names)}; without a header line --fields names them")
        there = set(self.names)
        for name in chosen:
            if name not in there:
                hint += "; --table is given once for each" if "," in name else ""
                raise ValueError(f"{source} has no field {name!r}; it has {few(self.names)}{hint}")
        return chosen


def header(cells: Sequence[str], source: str, where: str = "line 1") -> Header:
    """Of the fields' names.

    Raises      ValueError: there are none, or one is there twice
    """
    titles = [_mark(cell.strip()) for cell in cells]
    names = tuple(name for name, _ in titles)
    if (double := twice(names)) is not None:
        raise ValueError(_no_names(cells, source) if where == "line 1" and any(map(_counts, cells)) else
                         f"{source}: {where} names the field {double!r} twice; --fields names all {len(names)} fields")
    return Header(names, tuple(kind for _, kind in titles))


def _no_names(cells: Sequence[str], source: str) -> str:
    """Of a first line with numbers in it."""
    return (f"{source}: line 1 holds numbers: {few(cells, 8)}; if it is no header line, --fields names its "
            f"{len(cells)} fields, as --fields user_id,item_id,..; if it is one, --table names those that are tables")


def _mark(cell: str) -> tuple[str, str]:
    """A field's name, and its kind where RecBole marks one."""
    name, _, kind = cell.partition(":")
    return (name, kind) if kind in MARKS else (cell, "")


def with_header(path: Path, of: Dialect, tables: Iterable[str] | None = None, missing: int | None = None,
                lists: Sequence[str] = (), fields: Sequence[str] | None = None, order_by: str | None = None) -> Layout:
    """Of a text whose first line names its fields, or that has none and `fields` names them.

    Tables: see Header.chosen. Lists: those of RecBole, cells in brackets, numbers between bars, and what `lists` says.
    Values: fields marked :float, and others without a mark whose first lines are numbers; text in them is no number.
    """
    if fields is None and not of.rows:
        raise ValueError(f"{path} is empty; its first line must name the fields")
    columns = header(of.rows[0] if fields is None else fields, str(path), "line 1" if fields is None else "--fields")
    chosen = columns.chosen(tables, str(path))
    cells = {name: [] for name in columns.names}      # type: dict[str, list[str]]
    titled = fields is None or _names(of.rows, columns.names)
    for row in of.rows[titled:]:
        again = titled and [row[0].removeprefix("\ufeff"), *row[1:]] == of.rows[0]
        if len(row) == len(columns.names) and not again:
            for name, cell in zip(columns.names, row):
                cells[name].append(cell)
    if fields is None and len(of.rows) > 4 and _headings(of.rows[1:], len(columns.names)) > 1:
        raise ValueError(f"{path}: line 2 has no number where those behind it have: {few(of.rows[1], 8)}; if it "
                         f"belongs to the header, leave it out; if it is a sample, --fields {','.join(columns.names)} "
                         "reads it")
    widths = {len(row) for row in of.rows[titled:]}
    if len(widths) == 1 and min(widths) > len(columns.names):
        raise ValueError(f"{path}: {'line 1' if fields is None else '--fields'} names {len(columns.names)} fields and "
                         f"the lines have {min(widths)}; --fields names all of these")
    ids, why, kinds = set(columns.tables), {}, []
    for name, mark in zip(columns.names, columns.kinds):
        numbers = all(map(is_number, cells[name]))
        kind = parse.SKIP
        if name in chosen:
            kind = parse.AUTO
            if name in CRITEO_NAMED and set(CRITEO_NAMED) <= ids and all(
                    cell in _EMPTY or HASHED.fullmatch(cell) for cell in cells[name]):
                kind, missing = parse.HEX, missing or 0
        elif name == order_by or mark == "float":
            kind = parse.TIME if name == order_by else parse.NUMBER
        elif ROW_NUMBERS.fullmatch(name):
            empty = all(cell in _EMPTY for cell in cells[name])
            why[name] = "nothing in it" if empty else "the writer's row numbers"
        elif mark or name in ids:
            why[name] = "not asked for" if name in ids else f"marked {mark}"
        elif numbers:
            kind = parse.LOOSE
        else:
            why[name] = "lists, which --table reads" if any(map(LISTED.fullmatch, cells[name])) else "texts"
        kinds.append(kind)
    bags = lists_of({name: cells[name] for name in chosen}, lists, str(path), {
        name: " " if mark == "token_seq" else NONE for name, mark in zip(columns.names, columns.kinds)
        if mark in ("token", "token_seq")})
    kinds = [kind if name not in bags or kind != parse.AUTO else parse.PLAIN if bags[name] == NONE else parse.BAG
             for name, kind in zip(columns.names, kinds)]
    bags = {name: sign for name, sign in bags.items() if sign != NONE}
    named = "names in line 1" if fields is None else "other names in line 1" if titled else "no header line"
    return Layout(of.separator, columns.names, tuple(kinds), missing, of.first if titled else of.start,
                  of.lines if titled else 0, of.quotes, bags, f"text, {of.called}, UTF-8, {named}",
                  {name: _how(kind, bags.get(name), cells[name]) for name, kind in zip(columns.names, kinds)}, why,
                  of.record if titled else b"")


def _names(rows: Sequence[Sequence[str]], fields: Sequence[str]) -> bool:
    """Whether the first line of a text whose fields are named otherwise holds names: the same, no number where all
    others have numbers, or pandas' numbers of columns."""
    if rows and [_mark(cell.strip())[0] for cell in rows[0]] == list(fields):
        return True
    if not rows or [*rows[0][1:]] == [str(number) for number in range(len(rows[0]) - 1)] and not rows[0][0]:
        return bool(rows)
    return _headings(rows, len(fields)) > 0


def _headings(rows: Sequence[Sequence[str]], fields: int) -> int:
    """Columns of texts in the first line and numbers in all others; 0 where there is one of numbers in it too."""
    columns = [each for each in zip(*(row for row in rows if len(row) == fields)) if all(map(is_number, each[1:]))]
    first = [each[0] for each in columns if each[0] not in _EMPTY]
    return len(first) if len(rows) > 1 and not any(map(is_number, first)) else 0


def _how(kind: int, sign: str | None, cells: Sequence[str]) -> str:
    """How ids are understood, in words."""
    if kind == parse.HEX:
        return "hexadecimal"
    if sign is not None:
        return "lists in brackets" if sign == "\0" else f"lists, {_CALLED.get(sign, sign)}-separated"
    are_numbers = all(cell in _EMPTY or WHOLE.fullmatch(cell) for cell in cells)
    if not are_numbers:
        return "texts, hashed"
    wide = any(not -1 << 63 <= int(cell.split(".")[0]) < 1 << 64 for cell in cells if cell not in _EMPTY)
    return "whole numbers, hashed beyond 64 bits" if wide else "whole numbers"


def lists_of(cells: Mapping[str, Sequence[str]], given: Sequence[str], source: str,
             marked: Mapping[str, str] | None = None) -> dict[str, str]:
    """What stands between the ids of a cell, by field: a character, a NUL for brackets alone, NONE for single ids.

    Parameters  cells: of the fields that are tables, of the first samples; given: of each `SEPARATOR` for all fields
                that have it, or `FIELD=SEPARATOR`; marked: those known otherwise
    Raises      ValueError: a field that is not there, cells that may be lists or not; names the option --list
    """
    signs = {name: sign for name, sign in (marked or {}).items() if name in cells}
    for each in given:
        name, equals, sign = each.rpartition("=")
        if not equals or not name:
            sign = NONE if each == NONE else character(each, "--list")
            having = [name for name, own in cells.items() if sign == NONE or any(sign in cell for cell in own)]
            signs |= dict.fromkeys(having, sign)
            continue
        if name not in cells:
            raise ValueError(f"--list {each}: {source} has no table {name!r}; it has {few(cells)}")
        signs[name] = NONE if sign == NONE else character(sign, f"--list {name}=")
    for name, own in cells.items():
        texts = [cell for cell in own if cell not in _EMPTY]
        if name in signs or not texts:
            continue
        if all(BRACKETS.fullmatch(cell) for cell in texts) and any(LISTED.fullmatch(cell) or "," in cell or "'" in cell
                                                                   or '"' in cell for cell in texts):
            signs[name] = "\0"
        elif any("|" in cell for cell in texts) and all(LISTED.fullmatch(cell) or WHOLE.fullmatch(cell)
                                                       for cell in texts):
            signs[name] = "|"
        odd = next((cell for cell in texts if "|" in cell or LISTED.fullmatch(cell)), None)
        if odd is None and all(re.fullmatch(CODE, cell) or MANY.fullmatch(cell) or WHOLE.fullmatch(cell)
                               for cell in texts):
            odd = next(filter(MANY.fullmatch, texts), None)
        odd = odd or _recurring(texts)
        if name not in signs and (program := next(filter(PROGRAM.fullmatch, texts), None)):
            raise ValueError(f"{source}: the field {name!r} has {program[:80]!r}, what a program prints for a list; "
                             f"write lists as [4, 5], or --list {name}=none reads single ids")
        if odd is not None and name not in signs:
            sign = "|" if "|" in odd else next((each for each in ",;^/:+& " if each in odd), ",")
            raise ValueError(f"{source}: the field {name!r} has {odd[:80]!r}, which may be a list: "
                             f"--list '{name}={_CALLED.get(sign, sign)}' reads "
                             f"lists, --list {name}=none single ids")
    return signs


def _recurring(cells: Sequence[str]) -> str | None:
    """The first cell with a comma or semicolon, where what stands between them differs less than the cells do: genres
    are combined from a few, titles and names are not."""
    distinct = set(cells)
    for sign in ",;":
        if any(sign in cell for cell in distinct):
            parts = {part.strip() for cell in distinct for part in cell.split(sign)}
            if len(parts) < len(distinct):
                return next(cell for cell in cells if sign in cell)
    return None


def avazu(path: Path, of: Dialect) -> Layout:
    """Of Avazu's CSV: 12 fields of small whole numbers and 9 hashed ones are tables, click and hour values.

    Raises      ValueError: a column that is missing
    """
    columns = header(of.rows[0] if of.rows else (), str(path))
    for name in (*AVAZU_TABLES, "hour"):
        if name not in columns.names:
            raise ValueError(f"{path} has no field {name!r}; it has {few(columns.names)}")
    kinds = tuple(parse.HEX if name in AVAZU_HEX else parse.AUTO if name in AVAZU_TABLES else
                  parse.NUMBER if name in AVAZU_VALUES else parse.SKIP for name in columns.names)
    why = {name: "the sample's own id" if name == "id" else "no field of Avazu's"
           for name, kind in zip(columns.names, kinds) if kind == parse.SKIP}
    return Layout(of.separator, columns.names, kinds, 0, of.first, of.lines, True, {}, f"Avazu's format, {of.called}",
                  {name: "hexadecimal" if name in AVAZU_HEX else "whole numbers" for name in AVAZU_TABLES}, why,
                  of.record)


def is_avazu(of: Dialect) -> bool:
    return bool(of.rows) and {"site_id", "device_ip", "device_model", "hour"} <= {cell.strip() for cell in of.rows[0]}


def is_id(name: str) -> bool:
    """Whether a column of this name holds ids."""
    return ID.fullmatch(name) is not None


def _counts(name: str) -> bool:
    """Whether it is a number, and no name."""
    return name.strip() not in _EMPTY and is_number(name)


def is_number(cell: str) -> bool:
    """Or nothing, or true or false."""
    try:
        return cell in _EMPTY or cell in TRUE or cell in FALSE or (
            "_" not in cell and cell.isascii() and float(cell) is not None)
    except ValueError:
        return False
