"""Bundles: all that the cards of a plan need, in one checked folder (gen.base.members).

    manifest.json                         what is here, card by card, and the digest of every member
    plan.json, PRESET.toml, device.toml   the plan; the preset of the cores; the device, if it is none of ours
    tables/K.words.npy                    (rows,) uint32, the remapped word of each row of the plan's table K; where it
                                          is joined with others, what it adds to the word of a row of their product
    tables/K.ids.npy                      (n,) uint64 ascending, where the table's ids are a vocabulary: the model's
                                          own, or the ids that the profile has counted
    tables/K.core1.npy ..                 its tensor train (R, I, J, R')
    cardN/rows.npy, pages.npy, load.npy   images of EMB card N: DRAM, SSD, tensor-train load
    network/bottom1.weights.npy, .bias.npy ..   layers of the networks that the MLP cards run

`write` makes one from a plan, the profile of its log and a model's parameters.            Source: SCRec §III.D
"""

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gen.base.kept import digest
from gen.base.members import MANIFEST, Folder, Writer
from gen.base.sealed import made, understood
from gen.compiler import tt_order
from gen.compiler.tables import CardImages, Table, held_cores
from gen.compress.post_hoc import decompose, tt_rows
from gen.data import joins
from gen.data.expected import expected_counts
from gen.data.profile import FILE as PROFILE
from gen.data.profile import Profile, TableProfile
from gen.data.remap import DEVICE_SHIFT, DRAM, SSD, TT, Remap, by_heat, numbered, row_counts, rows_of, shared
from gen.model.device import Device
from gen.model.network import Layer, Model, Network
from gen.model.recommender import TableSpec
from gen.model.weights import FileWeights, Rows, SeededWeights, Weights
from gen.planner.plan import FILE, Plan, PlanTable
from gen.rtl import config
from golden.tt.rows import shape_of

KIND, VERSION = "bundle", 1
DEVICE = "device.toml"
FORMS = ("no", "trained", "decomposed")
NOISE = 0.3         # an error above it, relative to the rows, loses more than 9 % of their square
#: What the manifest says of a table without a tensor train.
PLAIN = {"form": FORMS[0], "error": 0.0, "weighted_error": 0.0}
BLOCK = 1 << 14     # rows that are compared at once


class Bundle(Folder):
    """One that has been written. plan: what it was made of. preset: the path of the cores' preset in it. device: its
    name, or its path in the bundle. weights: where its parameters came from. tables: of each, by name, what the
    manifest says: number, row_format, tt_format, cores, form, error, weighted_error. state: digest of what a
    delta (gen.delta) changes.

    Raises      ValueError: no bundle, another version, a member that is missing or has changed
    """

    def __init__(self, folder: str | Path):
        place = Path(folder)
        plan = place.parent if place.name == FILE else place
        if (plan / FILE).is_file() and not (plan / MANIFEST).exists() and not (plan / "tables").exists():
            raise ValueError(f"{folder} is no bundle, it is a plan: hotrail compile {plan} --out FOLDER")
        super().__init__(folder, KIND, VERSION)
        self.plan = Plan.load(self.path(FILE))
        self.device = str(self.path(DEVICE)) if DEVICE in self else self.plan.device
        with self._fits():
            self.preset = self.path(self.content["preset"])
            self.weights: dict[str, Any] = self.content["weights"]
            self.tables: dict[str, dict[str, Any]] = self.content["tables"]
            self.state = made(str, self.content.get("state", digest(self.folder / MANIFEST)), "state")
            config.load(self.preset), Device.load(self.device)
            self._check_weights()
            self._check_tables()

    def _fits(self) -> AbstractContextManager[None]:
        return understood(KIND, self.folder / MANIFEST)

    def _check_weights(self) -> None:
        """Raises an error that `_fits` turns into a sentence: neither a seed, nor a file or a model and its digest."""
        if not isinstance(self.weights, dict):
            raise ValueError(f"weights = {self.weights!r}")
        source = "model" if "model" in self.weights else "file"
        kinds = {"seed": int} if "seed" in self.weights else {source: str, "sha256": str}
        for key, kind in kinds.items():
            if type(self.weights[key]) is not kind:
                raise ValueError(f"weights: {key} = {self.weights[key]!r}")

    def _check_tables(self) -> None:
        """Raises an error that `_fits` turns into a sentence: members that are not what the plan asks for."""
        if list(self.tables) != list(self.plan.tables):
            raise ValueError(f"it has the tables {list(self.tables)}, its plan {list(self.plan.tables)}")
        for name, record in self.tables.items():
            rows = self.plan.model.tables[name].rows
            if self.words(name).dtype != np.uint32 or self.words(name).shape != (rows,):
                raise ValueError(f"table {name!r} has {rows} rows and {self.words(name).shape} words")
            for key, what in (("row_format", "rows"), ("tt_format", "tensor-train cores")):
                planned = getattr(self.plan.model.tables[name], key)
                if record[key] != planned:
                    raise ValueError(f"the {what} of table {name!r} are {record[key]!r}, its plan's {planned!r}")
            ids = self.vocabulary(name)
            if ids is not None and (ids.dtype != np.uint64 or ids.ndim != 1):
                raise ValueError(f"the ids of table {name!r} are {ids.dtype} of shape {ids.shape}")
            if type(record["cores"]) is not int or not 0 <= record["cores"] <= 8 or record["form"] not in FORMS:
                raise ValueError(f"table {name!r} has {record['cores']!r} cores of a {record['form']!r} tensor train")
            for core in self.cores(name):
                if core.dtype != np.float32:
                    raise ValueError(f"a core of table {name!r} is {core.dtype}")
            for key in ("error", "weighted_error"):
                if type(record[key]) not in (int, float):
                    raise ValueError(f"{key} of table {name!r} is {record[key]!r}")

    @property
    def emb_cards(self) -> tuple[int, ...]:
        """Numbers of the EMB cards that have tables."""
        return tuple(sorted({card for table in self.plan.tables.values() for card in table.cards}))

    def words(self, table: str) -> NDArray[np.uint32]:
        return self.array(f"tables/{self.tables[table]['number']}.words.npy")

    def vocabulary(self, table: str) -> NDArray[np.uint64] | None:
        """Ascending ids, of which row k is the k-th, where the table's ids are a vocabulary."""
        name = f"tables/{self.tables[table]['number']}.ids.npy"
        return self.array(name) if name in self else None

    def remap(self, table: str) -> Remap:
        """From the log's ids to words."""
        with self._fits():
            return Remap(self.plan.model.tables[table], self.words(table), self.vocabulary(table))

    def cores(self, table: str) -> tuple[NDArray[np.float32], ...]:
        """Of the table's tensor train, () without one."""
        record = self.tables[table]
        return tuple(self.array(f"tables/{record['number']}.core{k}.npy") for k in range(1, record["cores"] + 1))

    @property
    def notes(self) -> tuple[str, ...]:
        """Trained TT cores of another shape than the plan's: what it says of their seconds is not of them."""
        notes = []
        for name, plan in self.plan.tables.items():
            if self.tables[name]["form"] == "trained":
                with self._fits():
                    modes, columns, ranks = shape_of(self.cores(name))
                if (modes, columns, ranks[1:-1]) != (plan.row_modes, plan.column_modes, plan.ranks):
                    notes.append(f"table {name}: its trained tensor train has row modes {modes}, column modes "
                                 f"{columns} and ranks {ranks[1:-1]}; the plan's seconds and bytes are those of "
                                 f"{plan.row_modes}, {plan.column_modes} and {plan.ranks}")
        return tuple(notes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of trained rows that their decomposition as a tensor train does not keep, and what can be done. Random rows,
        which have no structure to keep, stand for nothing."""
        if "seed" in self.weights:
            return ()
        return tuple(
            f"table {name}: {self.plan.tables[name].tt_rows:,} trained rows are stored as a tensor train whose error "
            f"by accesses is {record['weighted_error']:.2f} of their size, more than {NOISE:g}. Plan again without TT "
            "rows (--tt-share 0) or with a higher --rank, or train these rows as a tensor train"
            for name, record in self.tables.items()
            if record["form"] == "decomposed" and record["weighted_error"] > NOISE)

    def images(self, card: int) -> CardImages:
        """Of an EMB card, those of memory and SSD mapped from the folder."""
        tables = []
        with self._fits():
            for name, (spec, of_plan, parts) in self.plan.stored.items():
                if card in of_plan.cards:
                    own = (_numbers(spec.rows), ()) if len(parts) > 1 else (self.words(name), self.cores(name))
                    whole = Table(name, spec.dim, own[0], Rows(of_plan.dram_rows, spec.dim),
                                  Rows(of_plan.ssd_rows, spec.dim), own[1], spec.results, spec.row_format,
                                  spec.tt_format)
                    tables.append(_shard(whole, of_plan, card))
            return CardImages(tables, config.load(self.preset).cores["emb"], self.plan.page_bytes,
                              row_in_page=Device.load(self.device).row_in_page,
                              stored={name: self.array(f"card{card}/{name}.npy") for name in ("rows", "pages")})

    def parameters(self, given: str | Path | None = None) -> tuple[Weights | None, str]:
        """What the bundle was made of: random parameters by their seed, a file's where it is given; or None and why.
        None of a trained model's tables (gen.data.trained).

        Raises      ValueError: another file than the one that was compiled
        """
        if "seed" in self.weights:
            return SeededWeights(self.weights["seed"]), ""
        if "model" in self.weights:
            if given is not None:
                raise ValueError(f"{self.folder} was made of the tables of {self.weights['model']}, not of an npz file "
                                 f"of parameters: leave out {given}")
            return None, ""
        if given is None:
            return None, (f"the parameters came from {self.weights['file']}; name it to see how far pooled vectors are "
                          "from those of its dense rows")
        weights = FileWeights(given)
        if weights.about["sha256"] != self.weights["sha256"]:
            raise ValueError(f"{given} is not the {self.weights['file']} that {self.folder} was made of")
        return weights, ""

    def network(self) -> Network | None:
        """What the MLP cards run."""
        model = self.plan.model.network
        if model is None:
            return None
        with self._fits():
            return self._layers(model)

    def _layers(self, model: Model) -> Network:
        parts: dict[str, list[Layer]] = {"bottom": [], "top": []}
        for part, count in (("bottom", len(model.bottom) - 1), ("top", len(model.top))):
            for k in range(1, count + 1):
                is_last = k == count and (part == "top" or not model.top)
                bias = f"network/{part}{k}.bias.npy"
                parts[part].append(Layer(self.array(f"network/{part}{k}.weights.npy"),
                                         self.array(bias) if bias in self else None,
                                         model.last if is_last else model.hidden))
        return Network(parts["bottom"], model.interaction, model.features, model.dim, parts["top"])


def load_inputs(plan: str | Path, profile: str | Path | None = None) -> tuple[Plan, Profile]:
    """A plan, from its folder or its file, and the profile beside it or another one.

    Another one is taken as it is: that it has the plan's tables is all that is asked, later; hot rows are then hot by
    it.
    Raises      ValueError: they are not there or damaged, or the profile beside the plan is not the one it was made of
    """
    loaded, path = Plan.load(plan), Path(plan)
    beside = (path if path.is_dir() else path.parent) / PROFILE
    if profile is None and not beside.is_file():
        raise ValueError(f"there is no {beside}: --profile names that of the log")
    if profile is None and loaded.profile_sha256:
        with beside.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != loaded.profile_sha256:
                raise ValueError(f"{beside} is not the profile that the plan beside it was made of")
    return loaded, Profile.load(beside if profile is None else profile)


def write(folder: str | Path, plan: Plan, profile: Profile, weights: Weights, *, preset: str | Path | None = None,
          order: str = tt_order.FREQUENCY, say: Callable[[str], None] | None = None) -> Bundle:
    """Makes the bundle of a plan, whole or not at all.

    profile: of the log that was planned for, with ids: which row is how hot. preset: of the cores, default the plan's.
    order: of the rows of tensor trains that are decomposed here: frequency, or community where that computes fewer
    first products in the half of the profile's samples that it was not learned from.
    say: is told how far every tensor train is from the rows that it stands for.
    Raises      ValueError: one sentence that names the table and what does not fit
    """
    say = say or (lambda text: None)
    if order not in tt_order.ORDERS:
        raise ValueError(f"order is {order!r}; it must be {' or '.join(tt_order.ORDERS)}")
    source = config.read("preset", preset or plan.preset, config.FOLDER)[0]
    cores = config.load(source).cores
    for kind in {card.kind for card in plan.cards}:
        if kind not in cores:
            raise ValueError(f"preset {source.name} describes no {kind} core, which the plan needs")
    device = Device.load(plan.device)
    with Writer(folder, KIND, VERSION) as writer:
        writer.file(FILE, plan.data())
        named = f"{re.sub(r'[^A-Za-z0-9_-]', '_', source.stem)}.toml"
        writer.file(named, source.read_bytes())
        if plan.device.endswith(".toml"):
            writer.file(DEVICE, Path(plan.device).read_bytes())
        tables: dict[str, _Stored] = {}
        communities = partial(_communities, unit=cores["emb"].tt, say=say) if order == tt_order.COMMUNITY else None
        for number, name in enumerate(plan.tables):
            stored = tables[name] = _stored(name, plan, profile, weights, communities)
            for member, array in stored.arrays():
                writer.array(f"tables/{number}.{member}.npy", array)
            if stored.cores:
                say(f"table {name}: {stored.tt['form']} tensor train of {plan.tables[name].tt_rows:,} rows: relative "
                    f"error {stored.tt['error']:.3f}, by accesses {stored.tt['weighted_error']:.3f}")
        if order == tt_order.COMMUNITY and all(stored.tt["form"] != "decomposed" for stored in tables.values()):
            say("note: no rows are decomposed into a tensor train here, so --order community changes nothing")
        counted = [name for name, stored in tables.items() if stored.counted]
        full = [stored.full for stored in tables.values() if stored.full]
        for note in (*_vocabulary(counted, profile, weights), *full):
            say(f"note: {note}")
        for card, those in sorted(_by_card(plan, tables, weights).items()):
            try:
                images = CardImages(those, cores["emb"], plan.page_bytes, row_in_page=device.row_in_page,
                                    room=_room(writer, card, plan, device))
            except ValueError as error:
                raise ValueError(f"card {card}: {error}") from None
            writer.array(f"card{card}/load.npy", images.load)
        if plan.model.network is not None:
            for name, layer in weights.network(plan.model.network).layers():
                part = "network/" + name.replace(" ", "")
                writer.array(f"{part}.weights.npy", layer.weights)
                if layer.bias is not None:
                    writer.array(f"{part}.bias.npy", layer.bias)
        entries = {name: {"number": number, "row_format": plan.model.tables[name].row_format,
                          "tt_format": plan.model.tables[name].tt_format, "cores": len(stored.cores), **stored.tt}
                   for number, (name, stored) in enumerate(tables.items())}
        writer.finish({"preset": named, "weights": weights.about, "tables": entries})
    bundle = Bundle(folder)
    for note in bundle.notes:
        say(f"note: {note}")
    for warning in bundle.warnings:
        say(f"warning: {warning}")
    return bundle


@dataclass(frozen=True)
class _Stored:
    """What a bundle has of a table. words: of its rows; ids: its vocabulary, if it has one, `counted` by the profile;
    table: as cards hold it, None where it is joined with others; tt: what the manifest says of its tensor train; full:
    what there is to say of a vocabulary that leaves no row for other ids."""

    words: NDArray[np.uint32]
    ids: NDArray[np.uint64] | None
    counted: bool
    table: Table | None
    tt: dict[str, Any]
    full: str

    @property
    def cores(self) -> Sequence[NDArray[np.float32]]:
        return () if self.table is None else self.table.cores

    def arrays(self) -> Iterator[tuple[str, NDArray]]:
        """The members of the folder."""
        yield "words", self.words
        if self.ids is not None:
            yield "ids", self.ids
        yield from ((f"core{k}", core) for k, core in enumerate(self.cores, 1))


def _stored(name: str, plan: Plan, profile: Profile, weights: Weights,
            communities: Callable[..., NDArray[np.int64] | None] | None) -> _Stored:
    """communities: numbers rows that are decomposed, where it does (`_communities`)."""
    if name not in profile.tables:
        raise ValueError(f"the profile of {profile.source} has no table {name!r}, which the plan has")
    spec, of_plan, ids, full = plan.model.tables[name], plan.tables[name], None, ""
    own = weights.vocabulary(spec) if spec.ids == "vocabulary" else None
    counts = row_counts(spec, profile.tables[name], own)
    if of_plan.joined:
        table, tt = None, dict(PLAIN)
        words = _words_of_product([plan.model.tables[part] for part in of_plan.joined], name)
    else:
        order, warm = by_heat(expected_counts(spec, counts, profile.tables[name])), None
        if communities is not None and of_plan.tt_rows and not weights.cores(spec):
            warm = communities(spec, of_plan, order, profile.tables[name], own)
        table, tt = _table(spec, of_plan, counts, order, weights, warm)
        words = table.placement
    if spec.ids == "vocabulary":
        ids = np.asarray(profile.tables[name].ids if own is None else own)
        if whose := shared(spec, ids):
            full = f"table {name} has {spec.rows:,} rows: an id that is not in its vocabulary reads the last, {whose}"
    return _Stored(words, ids, ids is not None and own is None, table, tt, full)


def _by_card(plan: Plan, tables: Mapping[str, _Stored], weights: Weights) -> dict[int, list[Table]]:
    """What lies on each EMB card."""
    tables_of: dict[int, list[Table]] = {}
    for name, (_, of_plan, parts) in plan.stored.items():
        table = tables[name].table if name in tables else None
        if table is None:
            table = _product([plan.model.tables[part] for part in parts], weights)
        for card in of_plan.cards:
            tables_of.setdefault(card, []).append(_shard(table, of_plan, card))
    return tables_of


def _vocabulary(tables: Sequence[str], profile: Profile, weights: Weights) -> Iterator[str]:
    """What is to be said of a profile's ids that are taken for a model's."""
    if tables and "file" in weights.about:
        yield (f"{weights.about['file']} has no ids_{tables[0]}" + (" or " if tables[1:] else "")
               + ", ".join(f"ids_{name}" for name in tables[1:])
               + ": row k is taken for the k-th id that the profile has counted")
    if tables and profile.sampled < 1:
        yield (f"the profile has counted {profile.sampled:.3g} of the log's samples; ids that are in none of these "
               f"share the last row of {', '.join(tables)}")


def _communities(spec: TableSpec, plan: PlanTable, order: NDArray[np.int64], profile: TableProfile,
                 vocabulary: NDArray[np.uint64] | None, unit: Any,
                 say: Callable[[str], None]) -> NDArray[np.int64] | None:
    """The warm rows by communities, where that computes fewer first products than by `order`."""
    if profile.excerpt is None or profile.ids is None:
        say(f"note: table {spec.name}: the profile keeps no samples in their order, from which communities are "
            "learned; its tensor train's rows are numbered by frequency")
        return None
    warm = order[plan.devices(order)[order] == TT]
    number = np.full(spec.rows, -1)
    number[warm] = np.arange(len(warm))
    known = rows_of(spec, profile.ids, profile.ids if vocabulary is None else vocabulary)
    accesses = number[known[profile.excerpt.places[profile.excerpt.places < len(known)]]]
    grouped = tt_order.communities(len(warm), accesses[accesses >= 0], plan.row_modes, entries=unit.reuse_entries,
                                 lanes=unit.lanes)
    better = grouped.products < grouped.by_frequency
    say(f"table {spec.name}: tensor train's rows by {tt_order.COMMUNITY if better else tt_order.FREQUENCY}: of "
        f"{grouped.lookups:,} lookups held out, {grouped.products:,} compute a first product by community, "
        f"{grouped.by_frequency:,} by frequency")
    return warm[grouped.order] if better else None


def _table(spec: TableSpec, plan: PlanTable, counts: NDArray[np.int64], order: NDArray[np.int64], weights: Weights,
           warm: NDArray[np.int64] | None = None) -> tuple[Table, dict[str, Any]]:
    """The table with its placement, its rows made when they are asked for; and what there is to say of its TT.
    order: its rows, those first of which most accesses are expected. warm: those of its tensor train, in their order
    there, if that is another one."""
    where = f"table {spec.name}"
    if plan.dram_rows + plan.tt_rows + plan.ssd_rows != spec.rows:
        raise ValueError(f"{where}: the plan places {plan.dram_rows + plan.tt_rows + plan.ssd_rows} rows, the model "
                         f"has {spec.rows}")
    device = plan.devices(order)
    parts = [order[device[order] == place] for place in (DRAM, TT, SSD)]
    cores: Sequence[NDArray[np.float32]] = ()
    tt_row, of_train = None, dict(PLAIN)
    if plan.tt_rows:
        cores, tt_row, form = weights.cores(spec), weights.tt_row(spec), "trained"
        if not cores:
            if warm is not None:
                parts[TT] = warm
            wide = _wider(spec, weights, parts[TT], math.prod(plan.column_modes))
            cores = decompose(wide, plan.row_modes, plan.column_modes, plan.ranks).cores
            tt_row, form = np.full(spec.rows, -1), "decomposed"
            tt_row[parts[TT]] = np.arange(len(parts[TT]))
        try:
            there = math.prod(shape_of(cores)[0])
            cores = held_cores(cores, spec.tt_format)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if form == "trained" and tt_row is not None:
            _trained(spec, parts[TT], tt_row[parts[TT]], there)
    placement = numbered(device, order, tt_row)
    table = Table(spec.name, spec.dim, placement, _rows(spec, weights, parts[DRAM]), _rows(spec, weights, parts[SSD]),
                  tuple(cores), spec.results, spec.row_format, spec.tt_format)
    if cores:
        numbers = placement[parts[TT]] & np.uint32((1 << 30) - 1)
        plain, weighted = _errors(spec, weights, parts[TT], cores, numbers, counts[parts[TT]])
        of_train = {"form": form, "error": plain, "weighted_error": weighted}
    return table, of_train


def _numbers(rows: int) -> NDArray[np.uint32]:
    """The words of rows that lie in DRAM as they are numbered."""
    return np.arange(rows, dtype=np.uint32) | np.uint32(DRAM << DEVICE_SHIFT)


def _words_of_product(specs: Sequence[TableSpec], name: str) -> NDArray[np.uint32]:
    """Of each row of one of joined tables what it adds to the word of a row of their product."""
    at = [spec.name for spec in specs].index(name)
    return np.arange(specs[at].rows, dtype=np.uint32) * np.uint32(joins.strides(specs)[at])


def _product(specs: Sequence[TableSpec], weights: Weights) -> Table:
    """The product of joined tables, its rows made when they are asked for."""
    spec, rows = joins.joined(specs), joins.rows_of_product(specs, weights)
    return Table(spec.name, spec.dim, _numbers(spec.rows), rows, Rows(0, spec.dim), (), spec.results, spec.row_format)


def _shard(table: Table, plan: PlanTable, card: int) -> Table:
    """What of a table lies on one of its cards."""
    return table if plan.by != "columns" else table.columns(plan.columns(table.dim, card))


def _trained(spec: TableSpec, rows: NDArray[np.int64], numbers: NDArray[np.int64], there: int) -> None:
    """Refuses warm rows that have not each their own row of a trained tensor train of so many."""
    says = f"table {spec.name}: tt_row_{spec.name} says that"
    none, past = numbers < 0, numbers >= there
    if none.any():
        raise ValueError(f"table {spec.name}: the plan puts row {rows[np.argmax(none)]} on the tensor train, "
                         f"tt_row_{spec.name} says that it is none of it; train the table with the plan's tiers")
    if past.any():
        raise ValueError(f"{says} row {rows[np.argmax(past)]} is row {numbers[np.argmax(past)]} of the tensor train; "
                         f"its cores have {there} rows")
    order = np.argsort(numbers, kind="stable")
    same = np.flatnonzero(np.diff(numbers[order]) == 0)
    if len(same):
        one, other = rows[order[same[0]:same[0] + 2]]
        raise ValueError(f"{says} rows {one} and {other} are both row {numbers[order[same[0]]]} of the tensor train; "
                         "each must have its own")


def _room(writer: Writer, card: int, plan: Plan,
          device: Device) -> Callable[[str, tuple[int, int]], NDArray[np.uint32]]:
    """Room for a card's images; what the card has not is refused before the disk is asked for it."""

    def room(name: str, shape: tuple[int, int]) -> NDArray[np.uint32]:
        bytes = 4 * math.prod(shape)
        if name == "rows" and bytes + plan.ring_bytes > device.memory.bytes:
            raise ValueError(f"its rows take {bytes:,} bytes of DRAM and the ring {plan.ring_bytes:,}; "
                             f"{plan.device} has {device.memory.bytes:,}")
        if name == "pages" and bytes > device.ssd.bytes:
            raise ValueError(f"its rows take {bytes:,} bytes of the SSD in whole pages; {plan.device} has "
                             f"{device.ssd.bytes:,}")
        return writer.room(f"card{card}/{name}.npy", shape)

    return room


def _rows(spec: TableSpec, weights: Weights, numbers: NDArray[np.int64]) -> Rows:
    """As a table takes them: FBGEMM's own where the parameters are such."""
    fused = weights.fused(spec)
    if fused is not None:
        return Rows(len(numbers), fused.shape[1], lambda part: fused[numbers[part]], np.uint8)
    return Rows(len(numbers), spec.dim, lambda part: weights.rows(spec, numbers[part]))


def _wider(spec: TableSpec, weights: Weights, numbers: NDArray[np.int64], words: int) -> Rows:
    """Rows with zeros behind their words."""
    return Rows(len(numbers), words,
                lambda part: np.pad(weights.rows(spec, numbers[part]), ((0, 0), (0, words - spec.dim))))


def _errors(spec: TableSpec, weights: Weights, rows: NDArray[np.int64], cores: Sequence[NDArray[np.float32]],
            numbers: NDArray[np.uint32], counts: NDArray[np.int64]) -> tuple[float, float]:
    """Distance of a tensor train's rows from those that they stand for, over the size of these: all rows alike, and all
    accesses alike."""
    far, own = np.zeros(2), np.zeros(2)
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        dense = weights.rows(spec, rows[part]).astype(np.float64)
        for total, words in ((far, dense - tt_rows(cores, numbers[part])[:, :spec.dim]), (own, dense)):
            squares = (words**2).sum(axis=1)
            total += squares.sum(), squares @ counts[part]
    plain, weighted = np.sqrt(np.divide(far, own, out=np.zeros(2), where=own > 0))
    return float(plain), float(weighted if own[1] > 0 else plain)
