"""A recommendation model as a whole: its embedding tables, and the networks around them.

A TOML file of it:

    about = "26 features of Criteo Kaggle, RM3 of SCRec around them"
    network = "screc_rm3"           # name in gen/model/networks, or a path; left out: embedding tables alone
    dim = 64                        # words of a row, where a table does not say
    batch = 2048                    # samples that are inferred at once

    [log]                           # how the log is read, see gen.model.log_options; left out: as it seems to be
    separator = "semicolon"

    [tables.C03]                    # the log's name of it
    rows = 10131227
    ids = "vocabulary"              # how the log's ids become rows, see IDS
    mode = "sum"                    # of its bags
    results = "float16"             # format in which pooled vectors leave a card, see RESULTS; left out: float32
    row_format = "int8"             # in which rows are stored, see ROW_FORMATS; left out: float32
    tt_format = "block16"           # in which the cores of its tensor train are, see TT_FORMATS; left out: float32
    error_budget = 0.01             # in the place of both formats: what its pooled vectors may lose by them
    columns = ["C03", "C04"]        # of the log that look it up, one bag each; left out: that of its name

Source: SCRec Fig. 9a, table I.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gen.model.log_options import LogOptions
from gen.model.network import Model
from gen.rtl import config
from gen.rtl.config import ConfigError
from hw.isa.emb import FORMAT, ROW_FORMAT

#: How an id of the log becomes a row. index: it is one, and less than the table's rows. modulo: its remainder by the
#: rows. vocabulary: its place among the ids that the model's parameters name, else that the profile has counted,
#: ascending; others share the last row, which is their own where the table has one row more than there are such ids.
IDS = ("index", "modulo", "vocabulary")
FOLDER = Path(__file__).parent / "recommenders"
MODES = ("sum", "mean", "max")
#: Formats in which pooled vectors leave a card.
RESULTS = tuple(form.name.lower() for form in FORMAT)
#: Formats of rows in DRAM and on the SSD.
ROW_FORMATS = tuple(form.name.lower() for form in ROW_FORMAT)
#: Formats of the cores of a tensor train: golden.tt.block16 takes half the memory.
TT_FORMATS = ("float32", "block16")
#: Keys and what is allowed, the default first.
WORDS = {"ids": IDS, "mode": MODES, "results": RESULTS, "row_format": ROW_FORMATS, "tt_format": TT_FORMATS}
SHARES = ("hot_share", "tt_share")
#: Formats that the planner chooses within an error budget.
CHOSEN = ("row_format", "tt_format")
ROWS_MOST, DIM_MOST = 1 << 32, 1 << 16     # rows of three memories by 30 bits each; words of a row


def whole_bytes(row_format: str, dim: int) -> bool:
    """Whether the values of a row fill whole bytes."""
    return dim * ROW_FORMAT[row_format.upper()].bits % 8 == 0


@dataclass(frozen=True)
class TableSpec:
    """One embedding table: rows of dim values. hot_share: of its accesses, how many may go to DRAM and
    tensor train together (hot_thr of SCRec eq. 22). tt_share: how many may read
    rows of the TT, which are approximations: at a tenth, models trained so keep their accuracy (docs/compress.md);
    1 is the program as SCRec has it. results: the format of its pooled vectors on the link. row_format: of its rows in
    DRAM and on the SSD. tt_format: of its tensor train's cores. error_budget: None, or the largest error of its pooled
    vectors, root mean square over their size, with which the planner may choose both formats (gen.planner.widths).
    columns: of the log that look it up, () for the one of its name; a sample has a bag of each."""

    name: str
    rows: int
    dim: int
    ids: str = "index"
    mode: str = "sum"
    hot_share: float = 1.0
    tt_share: float = 0.1
    results: str = RESULTS[0]
    row_format: str = ROW_FORMATS[0]
    tt_format: str = TT_FORMATS[0]
    error_budget: float | None = None
    columns: tuple[str, ...] = ()

    @property
    def looked_up_by(self) -> tuple[str, ...]:
        """The log's columns."""
        return self.columns or (self.name,)

    @property
    def bytes(self) -> int:
        return 4 * self.rows * self.dim

    def check(self) -> None:
        """Raises ValueError: one sentence with the key, its value and what is allowed."""
        for key, most in (("rows", ROWS_MOST), ("dim", DIM_MOST)):
            if not 1 <= getattr(self, key) <= most:
                raise ValueError(f"{key} = {getattr(self, key)}: must be a whole number of 1 to {most}")
        for key, words in WORDS.items():
            if getattr(self, key) not in words:
                raise ValueError(f"{key} = {getattr(self, key)!r}: must be one of {', '.join(words)}")
        for key in SHARES:
            if not 0 <= getattr(self, key) <= 1:
                raise ValueError(f"{key} = {getattr(self, key)!r}: must be a number from 0 to 1")
        if self.error_budget is not None:
            if not 0 <= self.error_budget < math.inf:
                raise ValueError(f"error_budget = {self.error_budget!r}: must be a number of 0 or more, 0.01 for 1 %")
            for key in CHOSEN:
                if (form := getattr(self, key)) != WORDS[key][0]:
                    raise ValueError(f"error_budget = {self.error_budget!r} lets the planner choose {key}; leave out "
                                     f"{key} = {form!r}")
        if not whole_bytes(self.row_format, self.dim):
            raise ValueError(f"row_format = {self.row_format!r}: two values share a byte, so dim = {self.dim} must be "
                             "even")
        if len(set(self.columns)) < len(self.columns) or "" in self.columns:
            raise ValueError(f"columns = {list(self.columns)}: must be names, each once")


class Feature(NamedTuple):
    """A pooled vector of a sample: of a table, by a column of the log. key: the column, and where several tables are
    looked up by it column@table, as TorchRec has it."""

    key: str
    table: str
    column: str


@dataclass(frozen=True)
class Recommender:
    """tables: by name, in the file's order. network: of the MLP cards, None for embedding tables alone. batch: samples
    that are inferred at once (BS of SCRec). log: how its log is read."""

    name: str
    about: str
    tables: Mapping[str, TableSpec]
    network: Model | None = None
    batch: int = 2048
    log: LogOptions = LogOptions()

    @property
    def features(self) -> tuple[Feature, ...]:
        """The pooled vectors of a sample, in the tables' order."""
        pairs = [(name, column) for name, spec in self.tables.items() for column in spec.looked_up_by]
        count = Counter(column for _, column in pairs)
        return tuple(Feature(column if count[column] == 1 else f"{column}@{name}", name, column)
                     for name, column in pairs)

    @property
    def features_format(self) -> str:
        """Of the features on their way to the MLP cards: float16 where all pooled vectors come so, which loses nothing
        more; else float32."""
        half = all(spec.results == "float16" for spec in self.tables.values())
        return "float16" if half else "float32"

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the log, each once."""
        return tuple(dict.fromkeys(feature.column for feature in self.features))

    @classmethod
    def load(cls, path: str | Path) -> "Recommender":
        """By its name in gen/model/recommenders, or from a path that ends in .toml.

        Raises ConfigError: one sentence with the file, key and value that is missing, unknown or impossible."""
        path, content = config.read("model", path, FOLDER)
        where = f"{path.name}:"
        for key in content:
            if key not in ("about", "network", "dim", "batch", "log", "tables"):
                raise ConfigError(f"{where} {key}: unknown key; allowed are about, network, dim, batch, [log], "
                                  "[tables.NAME]")
        dim, batch = content.get("dim"), content.get("batch", 2048)
        for key, value in (("dim", dim), ("batch", batch)):
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(f"{where} {key} = {value!r}: must be a whole number of 1 or more")
        if not isinstance(content.get("tables"), dict) or not content["tables"]:
            raise ConfigError(f"{where} tables: there must be a [tables.NAME] at least")
        if "network" in content and dim is None:
            raise ConfigError(f"{where} dim: a network needs one width of all features")
        tables = {name: _table(where, name, each, dim) for name, each in content["tables"].items()}
        network = None
        if "network" in content and dim is not None:
            try:
                network = _network(content["network"], path.parent, dim)
            except ValueError as error:
                raise ConfigError(f"{where} network: {error}") from None
            looked_up = sum(len(spec.looked_up_by) for spec in tables.values())
            if network.features and network.features != looked_up:
                raise ConfigError(f"{where} network = {content['network']!r} has {network.features} features, there "
                                  f"are {looked_up} columns of tables")
            for name, spec in tables.items():
                if network.features and spec.dim != network.dim:
                    raise ConfigError(f"{where} [tables.{name}] dim = {spec.dim}: the network's features have "
                                      f"{network.dim} words")
        log = _log(where, content.get("log", {}))
        return cls(path.stem, str(content.get("about", "")), tables, network, batch, log)

    @classmethod
    def of(cls, name: str, rows: Mapping[str, int], dim: int, *, batch: int = 2048) -> "Recommender":
        """One of tables alone, all of them `dim` words wide."""
        return cls(name, "", {table: TableSpec(table, count, dim) for table, count in rows.items()}, None, batch)


def _network(name: Any, folder: Path, dim: int) -> Model:
    """By its name in gen/model/networks; a path counts from the file that names it."""
    if type(name) is not str:
        raise ValueError(f"{name!r} is no name of a model")
    where = folder / name if str(name).endswith(".toml") else name
    try:
        return Model.load(where)
    except ValueError as error:
        if "say dim" not in str(error):
            raise
        return Model.load(where, dim=dim)


def _log(where: str, content: Any) -> LogOptions:
    if not isinstance(content, dict):
        raise ConfigError(f"{where} [log] must be a table of keys, not {content!r}")
    try:
        return LogOptions.of(content)
    except ValueError as error:
        raise ConfigError(f"{where} [log] {error}") from None


def _table(where: str, name: str, content: Any, dim: int | None) -> TableSpec:
    where = f"{where} [tables.{name}]"
    if not isinstance(content, dict):
        raise ConfigError(f"{where} must be a table of keys, not {content!r}")
    allowed = ("rows", "dim", *WORDS, *SHARES, "error_budget", "columns")
    for key in content:
        if key not in allowed:
            raise ConfigError(f"{where} {key}: unknown key; allowed are {', '.join(allowed)}")
    spec = {"dim": dim, **content}
    for key in ("rows", "dim"):
        if type(spec.get(key)) is not int or spec[key] < 1:
            raise ConfigError(f"{where} {key} = {spec.get(key)!r}: must be a whole number of 1 or more")
    for key, words in WORDS.items():
        if spec.get(key, words[0]) not in words:
            raise ConfigError(f"{where} {key} = {spec[key]!r}: must be one of {', '.join(words)}")
    for key in SHARES:
        if key in spec:
            share = spec[key]
            if type(share) not in (int, float) or not 0 <= share <= 1:
                raise ConfigError(f"{where} {key} = {share!r}: must be a number from 0 to 1")
            spec[key] = float(share)
    if "error_budget" in spec:
        if type(spec["error_budget"]) not in (int, float):
            raise ConfigError(f"{where} error_budget = {spec['error_budget']!r}: must be a number of 0 or more")
        spec["error_budget"] = float(spec["error_budget"])
        for key in CHOSEN:
            if key in spec:
                raise ConfigError(f"{where} {key} = {spec[key]!r}: error_budget lets the planner choose it; leave out "
                                  "one of them")
    columns = spec.get("columns", [])
    if not isinstance(columns, list) or not all(type(each) is str for each in columns):
        raise ConfigError(f"{where} columns = {columns!r}: must be a list of names")
    found = TableSpec(name, **{**spec, "columns": tuple(columns)})
    try:
        found.check()
    except ValueError as error:
        raise ConfigError(f"{where} {error}") from None
    return found
