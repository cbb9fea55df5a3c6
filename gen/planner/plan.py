"""A plan: which card holds which rows of which table in which memory, and how long a batch takes.

It is a JSON file that carries all that `hotrail compile` needs but the profile, which lies beside it and whose digest
it names: the model, the device, the split of every table.                      Source: SCRec §III.C, eq. 3 to 37
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gen.base.sealed import made, seal, understood, unseal, writing
from gen.base.staging import staged
from gen.data import joins
from gen.data.remap import DRAM, SSD, TT
from gen.model.recommender import Recommender, TableSpec
from gen.model.row_formats import fused_bytes

KIND, VERSION = "plan", 11
FILE = "plan.json"
#: Of a card, as the fields of PlanTable and PlanCard are called.
MEMORIES = ("dram", "tt", "ssd")
#: What a reader calls them, and how many of them a plan may use.
NAMES = {"dram": "DRAM", "tt": "TT", "ssd": "SSD"}
#: What the parts of a table on several cards are parts of.
SHARDS = ("whole", "samples", "columns")
LEVELS = {1: "SSD only", 2: "DRAM and SSD", 3: "DRAM, TT and SSD"}


@dataclass(frozen=True)
class Tier:
    """One memory's share of a table or a card. accesses, seconds: of a batch. bytes: taken there; of a tensor train
    the share of the unit's memories that the planner charges, of capacity["tt"]: the scarcest of them counts."""

    rows: int = 0
    bytes: int = 0
    accesses: float = 0.0
    seconds: float = 0.0

    @classmethod
    def sum(cls, tiers: "Sequence[Tier]") -> "Tier":
        return cls(*(sum(getattr(tier, each.name) for tier in tiers) for each in fields(cls)))


@dataclass(frozen=True)
class DriveUse:
    """What all tables together ask of a card's drive, by which the seconds of each are estimated; 0: not known.
    die_reads: flash pages that each die reads for a batch; pages: different pages, of page_bytes, that are asked for at
    all."""

    die_reads: float = 0.0
    pages: float = 0.0


@dataclass(frozen=True)
class PlanTable:
    """One table. cards: the numbers of those on which it lies; by: what its shards there are parts of, "whole" on one
    card; "samples": each card holds the table and serves its part of every batch, the first card the first samples;
    "columns": each card holds a slice of every row, the first card the first columns, and serves all samples.
    By the accesses that are expected, the hottest dram.rows - spare rows lie in DRAM, the next tt.rows in the tensor
    train, the next `spare` in DRAM too, as there was room, all others on the SSD, on each card alike. Bytes and seconds
    are those of all cards together. unseen: accesses of a batch to rows or ids that the log does not have.
    row_modes, column_modes, ranks (inner ones): of the tensor train, empty without.
    joined: the tables whose rows lie there as one, itself among them (gen.data.joins), the first varies slowest; ()
    without. All of them name the same ones and the same cards, lie in DRAM, and take equal parts of its bytes and time.
    """

    name: str
    cards: tuple[int, ...]
    dram: Tier
    tt: Tier
    ssd: Tier
    row_modes: tuple[int, ...] = ()
    column_modes: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    spare: int = 0
    unseen: float = 0.0
    by: str = SHARDS[0]
    joined: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Its cards, by what it is split among them, and what it is joined with, in words."""
        cards = ", ".join(map(str, self.cards))
        if len(self.cards) > 2 and self.cards[-1] - self.cards[0] == len(self.cards) - 1:
            cards = f"{self.cards[0]} - {self.cards[-1]}"
        cards = cards if self.by == SHARDS[0] else f"{cards}, by {self.by}"
        others = ", ".join(name for name in self.joined if name != self.name)
        return f"{cards}, joined with {others}" if others else cards

    def on_card(self, memory: str) -> Tier:
        """The load of each of its cards in a memory."""
        whole: Tier = getattr(self, memory)
        count = len(self.cards)
        return Tier(whole.rows, whole.bytes // count, whole.accesses / (1 if self.by == "columns" else count),
                    whole.seconds / count)

    def columns(self, dim: int, card: int) -> slice:
        """Of rows of `dim` columns those that lie on a card."""
        if self.by != "columns":
            return slice(0, dim)
        each = dim // len(self.cards)
        return slice(self.cards.index(card) * each, (self.cards.index(card) + 1) * each)

    def devices(self, order: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(rows,) the device of each row (gen.data.remap). order: all rows, those first of which most accesses are
        expected."""
        found = np.empty(len(order), np.uint8)
        for device, part in zip((DRAM, TT, DRAM, SSD), np.split(order, self.ends), strict=True):
            found[part] = device
        return found

    def places(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of rows by rank, where they lie: in DRAM its rows first, behind them those on the SSD; -1 in TT."""
        hot, warm, _ = self.ends
        return np.where(ranks < hot, ranks, np.where(ranks < warm, -1, ranks - self.tt.rows))

    @property
    def dram_rows(self) -> int:
        return self.dram.rows

    @property
    def tt_rows(self) -> int:
        return self.tt.rows

    @property
    def ssd_rows(self) -> int:
        return self.ssd.rows

    @property
    def ends(self) -> tuple[int, int, int]:
        """Of the rows, hottest first, where those in DRAM end, those of the tensor train, and the spare ones."""
        return self.dram.rows - self.spare, self.dram.rows - self.spare + self.tt.rows, self.dram.rows + self.tt.rows


class Stored(NamedTuple):
    """A table as cards hold it: one of the model's, or the product of those that are joined. spec, table: as of one of
    the model's; parts: names of the model's, in order."""

    spec: TableSpec
    table: PlanTable
    parts: tuple[str, ...]


@dataclass(frozen=True)
class PlanCard:
    """kind: emb or mlp. Of an EMB card, what its tables take in each memory, indices and pooled vectors included; of
    an MLP card, seconds of the bottom and the top network. in_s, out_s: of its link, to the card (indices and pages, or
    features) and to the host (pooled vectors, or predictions). binds: what it waits for: a memory, a network, "in" or
    "out" of the link, or nothing.
    full: memories of which 99 % and more are taken, spare rows not counted."""

    number: int
    kind: str
    dram: Tier = Tier()
    tt: Tier = Tier()
    ssd: Tier = Tier()
    in_s: float = 0.0
    out_s: float = 0.0
    bottom_s: float = 0.0
    top_s: float = 0.0
    binds: str = ""
    full: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Until a batch's pooled vectors and bottom network are there: memories and link work at the same time."""
        return max(self.dram.seconds, self.tt.seconds, self.ssd.seconds, self.in_s, self.bottom_s,
                   self.out_s if self.kind == "emb" else 0.0)

    @property
    def memory_seconds(self) -> NDArray[np.float64]:
        """(3,) of each memory, idle time included (gen.planner.problem.Idle)."""
        return np.array([getattr(self, name).seconds for name in MEMORIES])

    @property
    def after_s(self) -> float:
        """Of an MLP card, what follows: the top network, or its predictions on their way to the host."""
        return max(self.top_s, self.out_s) if self.kind == "mlp" else 0.0


@dataclass(frozen=True)
class Held:
    """The end of the log, served as planned. samples: there. seconds: of a batch. unseen: share of its accesses to rows
    that the planned part does not have. shares: of each table, of its accesses those to DRAM, TT and SSD, and of
    all accesses under the empty name."""

    samples: int
    seconds: float
    unseen: float
    shares: Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Refresh:
    """If the plan is refreshed whenever so many samples were served: share of their accesses to the SSD, seconds of a
    batch."""

    samples: int
    ssd_share: float
    seconds: float


@dataclass(frozen=True)
class Horizon:
    """What is expected of the next `samples`, for which the plan is made: low, high: range of the share of accesses to
    the SSD; every: what refreshing sooner or later comes to, the soonest first."""

    samples: int
    low: float
    high: float
    every: tuple[Refresh, ...] = ()


@dataclass(frozen=True)
class Width:
    """What the formats of a table bring that were chosen within its error budget. budget, row_error, tt_error: root
    mean square over the size; errors: of rows, by each format that holds them; of: what these are of. bytes: of DRAM
    and SSD that rows of float32 would take more in the same places; seconds: of DRAM, of a batch, that they would."""

    budget: float
    row_error: float
    tt_error: float
    errors: Mapping[str, float]
    of: str
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Accuracy:
    """Of samples with labels: the network's logarithmic loss and AUC from rows of float32, and in the chosen formats
    (narrow_*). tables: by name, what the loss grows by that table's format alone."""

    samples: int
    log_loss: float
    narrow_log_loss: float
    auc: float
    narrow_auc: float
    tables: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Plan:
    """A placement with all that explains it. Seconds are of a batch of `model.batch` samples.

    preset: of the cores. page_bytes, ring_bytes: of the SSD and the ring in DRAM where its pages land, as the
    seconds were reckoned with. capacity: bytes of each memory of a card. tables: by name, in the model's order.
    cards: EMB cards first. bound: no placement of this model on these cards is faster; seconds / bound - 1 is the
    gap. levels: memories that were used (3: all). ablation: seconds and bound on fewer memories, by their number.
    what_if: change of the cards -> seconds and bound with it. assumed: sentences, what was not given. source: what
    was profiled; held: the log's end against the plan, where it was counted apart; horizon: what is expected until the
    next refresh, where the log says so; profile_sha256: of the profile's
    file beside the plan, empty where there is none. widths: of the tables whose formats were chosen within an error
    budget; accuracy: with them, where labels and parameters of the network were given. drive_use: of a card.
    """

    model: Recommender
    device: str
    preset: str
    page_bytes: int
    ring_bytes: int
    capacity: Mapping[str, float]
    tables: Mapping[str, PlanTable]
    cards: tuple[PlanCard, ...]
    bottom_s: float
    top_s: float
    seconds: float
    bound: float
    levels: int = 3
    ablation: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    what_if: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    source: str = ""
    profile_sha256: str = ""
    held: Held | None = None
    horizon: Horizon | None = None
    widths: Mapping[str, Width] = field(default_factory=dict)
    accuracy: Accuracy | None = None
    drive_use: DriveUse = DriveUse()

    @property
    def batch(self) -> int:
        return self.model.batch

    def work(self, card: int) -> NDArray[np.float64]:
        """(3,) seconds of a batch in which each memory of a card works for its tables; the rest of the card's is idle
        time."""
        mine = [table for table in self.tables.values() if card in table.cards]
        return np.array([sum(table.on_card(name).seconds for table in mine) for name in MEMORIES])

    @property
    def stored(self) -> dict[str, Stored]:
        """By name, the tables as cards hold them, in the model's order of the first of each."""
        found = {}
        for name, table in self.tables.items():
            parts = table.joined or (name,)
            if parts[0] == name:
                spec = joins.joined([self.model.tables[part] for part in parts])
                if len(parts) > 1:
                    table = replace(table, name=spec.name, dram=replace(table.dram, rows=spec.rows))
                found[spec.name] = Stored(spec, table, parts)
        return found

    @property
    def gap(self) -> float:
        return self.seconds / self.bound - 1 if self.bound else float("inf") if self.seconds else 0.0

    @property
    def samples_per_s(self) -> float:
        """With one batch after the other."""
        return self.model.batch / self.seconds if self.seconds else 0.0

    @property
    def approximated(self) -> float:
        """The share of all accesses that read rows of a tensor train."""
        return self._share(table.tt.accesses for table in self.tables.values())

    @property
    def from_ssd(self) -> float:
        """The share of all accesses that is expected to read the SSD."""
        return self._share(table.ssd.accesses for table in self.tables.values())

    @property
    def unseen(self) -> float:
        """The share of all accesses that is expected to read rows which the log does not have."""
        return self._share(table.unseen for table in self.tables.values())

    def _share(self, accesses: Iterable[float]) -> float:
        whole = sum(getattr(table, name).accesses for table in self.tables.values() for name in MEMORIES)
        return sum(accesses) / whole if whole else 0.0

    def data(self) -> bytes:
        """Of plan.json."""
        return seal(KIND, VERSION, _plain(asdict(self)))

    def save(self, folder: "str | Path") -> Path:
        """Writes plan.json into a folder, whole or not at all; returns its path. Raises ValueError: it cannot be"""
        path = Path(folder) / FILE
        with writing(path), staged(path) as half:
            half.write_bytes(self.data())
        return path

    @classmethod
    def load(cls, path: "str | Path") -> "Plan":
        """A plan from its folder or its file.

        Raises      ValueError: it is not there, no plan, of another version, or a byte of it has changed
        """
        path = Path(path)
        if path.is_dir():
            path = path / FILE
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        content = unseal(KIND, VERSION, data, str(path))
        with understood(KIND, path):
            found: Plan = made(cls, content)
            found._check()
            return found

    def _check(self) -> None:
        """Raises ValueError: parts that do not belong together."""
        emb = {card.number for card in self.cards if card.kind == "emb"}
        for name, table in self.tables.items():
            if name not in self.model.tables or table.name != name or self.model.tables[name].name != name:
                raise ValueError(f"its model has no table {name!r}")
            if min(table.ends[0], table.spare, table.tt.rows, table.ssd.rows) < 0:
                raise ValueError(f"table {name!r} has less than no rows in a memory")
            if table.by not in SHARDS or not table.cards or len(set(table.cards)) < len(table.cards) \
                    or not set(table.cards) <= emb or table.by == SHARDS[0] and len(table.cards) > 1:
                raise ValueError(f"table {name!r} lies on the cards {list(table.cards)} by {table.by!r}")
            dim, form = self.model.tables[name].dim, self.model.tables[name].row_format
            if table.by == "columns" and (dim % len(table.cards) or table.tt.rows or fused_bytes(form, dim)):
                raise ValueError(f"table {name!r} of {dim} columns of {form} and {table.tt.rows} TT rows lies on "
                                 f"{len(table.cards)} cards by columns")
            if table.joined:
                self._check_joined(table)
        for spec in self.model.tables.values():
            spec.check()
        if self.model.batch < 1:
            raise ValueError(f"the batch is of {self.model.batch} samples")


    def _check_joined(self, table: PlanTable) -> None:
        """Raises ValueError: as `_check`, of a table that is joined."""
        names, what = table.joined, f"table {table.name!r} is joined as {list(table.joined)}"
        if table.name not in names or len(set(names)) < max(len(names), 2) or not set(names) <= set(self.tables):
            raise ValueError(what)
        others = [self.tables[name] for name in names]
        if any((other.joined, other.cards, other.by) != (names, table.cards, table.by) for other in others):
            raise ValueError(f"{what}, and another of these tables on other cards or in another way")
        if table.by == "columns" or table.dram_rows != self.model.tables[table.name].rows or table.spare:
            raise ValueError(f"{what}, and does not lie in DRAM whole")
        if reason := joins.unfit([self.model.tables[name] for name in names]):
            raise ValueError(f"{what}, but {reason}")
        if joins.name_of(names) in self.tables:
            raise ValueError(f"{what}, which is also the name of a table")


def _plain(value: Any) -> Any:
    """As JSON has it: NumPy's scalars become Python's, mappings and tuples plain ones."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.item() if hasattr(value, "item") else value


def duration(seconds: float) -> str:
    """As a reader takes it in: three digits and a unit."""
    unit, scale = time_unit(seconds)
    return f"{seconds * scale:,.3g} {unit}"


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit in which `duration` says so many seconds, and how many of it a second has."""
    return next(((unit, scale) for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)) if seconds * scale >= 1),
                ("ns", 1e9))


def many(number: int, noun: str) -> str:
    """1 card, 2 cards."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def rate(per_second: float) -> str:
    """With three significant digits: 12.3, 4,190, 117,000, 1.45 M."""
    unit, scale = next(((unit, scale) for unit, scale in (("G", 1e9), ("M", 1e6)) if per_second >= 0.9995 * scale),
                       ("", 1.0))
    value = float(f"{per_second / scale:.2e}")
    places = max(2 - math.floor(math.log10(value)), 0) if value else 0
    return f"{value:,.{places}f} {unit}".rstrip()
