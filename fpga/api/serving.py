"""The cards of a bundle at work on a click log: ids in, pooled vectors and predictions out.

    from fpga.api.serving import Cards, serve
    with Cards(Bundle("build/bundle")) as cards:                # simulated ones
        for batch in serve(cards, log, 1024):
            print(batch.done.vectors["items"], batch.done.predictions, batch.done.cycles)

fpga.api.verifying holds what comes out against the oracle, the dense tables and the plan.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fpga.api.embedding import EmbeddingBags, Staged
from fpga.api.network import MlpNetwork
from fpga.card import LinkUse
from fpga.card.threads import Turns, exclusive, turns
from gen.bundle import Bundle
from gen.compiler.emb import Bags
from gen.data.logs import Chunk, Log
from gen.data.logs.features import dense_of
from gen.data.remap import DEVICE_SHIFT, Remap
from gen.delta import Delta
from gen.model.device import Device
from gen.planner.plan import Plan, PlanTable, Stored


@dataclass(frozen=True, eq=False)
class Done:
    """A batch. vectors: (samples, dim) of each feature, by its key: the column of the log, which has its table's name
    if the model does not say otherwise. predictions: (samples, outputs), None without a network. shards: of each EMB
    card that had samples, by its number in the plan, the vectors of each feature that it has; of joined tables those
    of their product, by the first one's key. cycles: that each card's core took; links: what crossed its link;
    commands: of its memory and drive. rows: of each table, looked up in DRAM, tensor train and SSD."""

    samples: int
    vectors: dict[str, NDArray[np.float32]]
    predictions: NDArray[np.float32] | None
    shards: dict[int, dict[str, NDArray[np.float32]]]
    cycles: dict[int, int]
    links: dict[int, LinkUse]
    commands: dict[int, Counter[str]]
    rows: dict[str, NDArray[np.int64]]

    def busy(self, number: int) -> int:
        """Cycles of a card from one such batch to the next: transfers go on beside the run of another batch."""
        return max(self.cycles[number], self.links[number].cycles)


@dataclass(frozen=True, eq=False)
class _Next:
    """What a delta leaves."""

    staged: dict[int, Staged]
    plan: Plan
    words: dict[str, NDArray[np.uint32]]
    remaps: dict[str, Remap]
    state: str


class Cards:
    """The cards of a bundle, one core each: EMB cards with their tables, MLP cards with the network.

    card, options: as fpga.card.open takes them. With `process` the EMB cards work at the same time. A card that the
    plan gives no table stays empty.

    Several threads may ask: their batches follow each other, and a thread waits for its own. A thread that holds `lock`
    has the cards for itself.
    Raises      CardError: a card that cannot hold its images
    """

    def __init__(self, bundle: Bundle, *, card: str = "sim", **options: Any):
        self.lock = turns()
        self._at_once = bool(options.get("process"))
        self.bundle, self.plan = bundle, bundle.plan
        self.remaps = {name: bundle.remap(name) for name in self.plan.tables}
        self.words = {name: bundle.words(name) for name in self.plan.tables}
        self._state = bundle.state
        self._next: _Next | None = None     # agreed on, taken before the next batch
        self.emb: dict[int, EmbeddingBags] = {}
        self.mlp: dict[int, MlpNetwork] = {}
        preset = str(bundle.preset)
        device = Device.load(options.pop("device", bundle.device)).shared(len(self.plan.cards))
        try:
            for number in bundle.emb_cards:
                self.emb[number] = EmbeddingBags(bundle.images(number), card=card, preset=preset, device=device,
                                                 ring_bytes=self.plan.ring_bytes, **options)
            network = bundle.network()
            mlp_cards = [each.number for each in self.plan.cards if each.kind == "mlp"]
            for number in mlp_cards if network is not None else ():
                assert network is not None
                self.mlp[number] = MlpNetwork(network, card=card, preset=preset, device=device,
                                              batch=-(-self.plan.batch // len(mlp_cards)),
                                              features=self.plan.model.features_format, **options)
        except BaseException:
            self.close()
            raise

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self         # the cards are what they are

    @exclusive
    def refresh(self, delta: Delta) -> None:
        """Takes a delta between two batches: rows change places on running cards. All batches before are those of the
        old plan, all behind it those of the new one. An error, or Ctrl-C, leaves the one or the other: the old one
        until every card has its rows, and `state` says which. The host holds the images of both meanwhile. What
        `requests` gave before names rows by their old places: ask for it again.

        Raises      ValueError: the delta is of another state; CardError: a card's
        """
        self._take()
        delta.check(self.state)
        plan, tables, words = delta.plan, self.bundle.tables, dict(self.words)
        for name, ids in tables.items():
            rows, new = delta.words(ids["number"])
            if len(rows):
                words[name] = words[name].copy()
                words[name][rows] = new
        remaps = {name: self.remaps[name] if words[name] is self.words[name] else
                  Remap(plan.model.tables[name], words[name], self.bundle.vocabulary(name)) for name in tables}
        staged = {}
        for number in delta.cards:
            change, old = delta.change(number), self.emb[number].images
            images = old.changed(words, {"rows": (change.beats, change.rows), "pages": (change.numbers, change.pages)})
            staged[number] = self.emb[number].stage(images, change.beats, change.numbers)
        self._next = _Next(staged, plan, words, remaps, delta.state)    # from here on it is the new plan
        self._take()

    @property
    def state(self) -> str:
        """Of the bundle, or the delta, by which the next batch is answered."""
        return self._state if self._next is None else self._next.state

    def _take(self) -> None:
        """Puts what was agreed on into place; again, where that was cut short."""
        if (after := self._next) is None:
            return
        for number, each in after.staged.items():
            self.emb[number].adopt(each)
        self.plan, self.words, self.remaps, self._state = after.plan, after.words, after.remaps, after.state
        self._next = None

    @exclusive
    def places(self, table: str) -> NDArray[np.uint32]:
        """Where the rows of a table are, as the next batch finds them."""
        self._take()
        return self.words[table]

    @exclusive
    def requests(self, chunk: Chunk) -> dict[str, Bags]:
        """The bags of every feature of the model, remapped.

        Raises      ValueError: a column that the log does not have, an id past the table's rows
        """
        self._take()
        requests = {}
        for key, table, column in self.plan.model.features:
            if column not in chunk.ids:
                raise ValueError(f"the log has no table {column!r}; it has {', '.join(chunk.ids)}")
            requests[key] = Bags(table, self.remaps[table](chunk.ids[column]), chunk.edges(column),
                              mode=self.plan.model.tables[table].mode, remapped=True)
        return requests

    @exclusive
    def lookup(self, requests: Mapping[str, Bags]) -> Done:
        """Bags by key, remapped, of one number of samples: one run of each card that has a table of them. Without
        predictions.

        Raises      ValueError: of joined tables one without the others, or a bag that has not one index; RunError,
                    CardError: the card's
        """
        shards, cycles, links, commands = {}, {}, {}, {}
        stored = self.plan.stored
        joined, serves = _joined(requests, stored)
        parts = self.parts(joined)
        for (number, mine), part in zip(parts.items(), self._batches(parts), strict=True):
            bags = self.emb[number]
            shards[number] = dict(zip(mine, part, strict=True))
            cycles[number], links[number], commands[number] = bags.last["cycles"], bags.link, bags.commands
        pooled: dict[str, NDArray[np.float32]] = {}
        for key, each in joined.items():
            _, table, names = stored[each.table]
            all_rows = np.concatenate([shards[card][key] for card in table.cards if key in shards.get(card, {})],
                                   axis=1 if table.by == "columns" else 0)
            ends = np.cumsum([self.plan.model.tables[name].dim for name in names])
            pooled.update(zip(serves[key], np.split(all_rows, ends[:-1], axis=1), strict=True))
        vectors, rows = {key: pooled[key] for key in requests}, {name: np.zeros(3, np.int64) for name in self.remaps}
        for each in requests.values():
            rows[each.table] += np.bincount(np.asarray(each.indices) >> DEVICE_SHIFT, minlength=3)
        samples = max((len(each) for each in vectors.values()), default=0)
        return Done(samples, vectors, None, shards, cycles, links, commands, rows)

    def parts(self, asked: Mapping[str, Bags]) -> dict[int, dict[str, Bags]]:
        """What each EMB card gets of bags by key, of tables as cards hold them."""
        stored = self.plan.stored
        return {number: mine for number in self.emb if (mine := {
            key: own for key, each in asked.items() if (own := _part(each, stored[each.table].table, number))})}

    @exclusive
    def infer(self, chunk: Chunk, dense: NDArray[np.float32] | None = None) -> Done:
        """One batch. dense: (samples, inputs) of the network.

        Raises      ValueError: as `requests`; RunError, CardError: the card's
        """
        done = self.lookup(self.requests(chunk))
        if not self.mlp:
            return done
        assert dense is not None
        features = np.stack(list(done.vectors.values()), axis=1)
        parts = []
        for number, part in self.shares(chunk.samples):
            mlp = self.mlp[number]
            parts.append(mlp(dense[part], features[part]))
            done.cycles[number], done.links[number], done.commands[number] = mlp.last["cycles"], mlp.link, mlp.commands
        return replace(done, predictions=np.concatenate(parts))

    def _batches(self, parts: Mapping[int, Mapping[str, Bags]]) -> Iterator[list[NDArray[np.float32]]]:
        """The vectors of each card's bags; of cards in processes of their own all at once."""
        runs = [partial(self.emb[number].batch, list(mine.values())) for number, mine in parts.items()]
        if not self._at_once:
            yield from (run() for run in runs)
        elif runs:
            with ThreadPoolExecutor(len(runs)) as threads:
                yield from [each.result() for each in [threads.submit(run) for run in runs]]

    def shares(self, samples: int) -> Iterator[tuple[int, slice]]:
        """Which samples of a batch each MLP card works on."""
        for at, number in enumerate(self.mlp):
            part = _samples(samples, at, len(self.mlp))
            if part.start < part.stop:
                yield number, part

    @exclusive
    def close(self) -> None:
        """Closes all cards, also where one of them cannot be closed; a second call does nothing."""
        with ExitStack() as every:
            for each in (*self.emb.values(), *self.mlp.values()):
                every.callback(each.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


def _samples(samples: int, at: int, cards: int) -> slice:
    """Of a batch's samples, those of the at-th of so many cards that share them out: as many each, the last fewer."""
    share = -(-samples // cards)
    return slice(min(samples, at * share), min(samples, (at + 1) * share))


def _joined(requests: Mapping[str, Bags], stored: Mapping[str, Stored]) \
        -> tuple[dict[str, Bags], dict[str, tuple[str, ...]]]:
    """Requests of tables as cards hold them, and by the key of each the keys that it serves: of joined tables one
    request of their product, whose words are sums of those of the tables' rows.

    Raises      ValueError: as `Cards.lookup`
    """
    product = {part: name for name, each in stored.items() for part in each.parts if len(each.parts) > 1}
    joined: dict[str, Bags] = {}
    serves: dict[str, tuple[str, ...]] = {}
    for key, each in requests.items():
        if (name := product.get(each.table)) is None:
            joined[key], serves[key] = each, (key,)
            continue
        parts = stored[name].parts
        whose = f"table {each.table} is joined with {', '.join(part for part in parts if part != each.table)}"
        keys = [[key for key, other in requests.items() if other.table == part] for part in parts]
        if any(len(own) != 1 for own in keys):
            raise ValueError(f"{whose}: a batch must look up each of them by one request")
        if each.weights is not None:
            raise ValueError(f"{whose}: its rows take no weights")
        if len(bad := np.flatnonzero((lengths := np.diff(np.asarray(each.offsets))) != 1)):
            raise ValueError(f"{whose}: each sample must look up one row of it; sample {bad[0]} looks up "
                             f"{lengths[bad[0]]}")
        if each.table == parts[0]:
            serves[key] = tuple(own for own, in keys)
            indices = np.sum([np.asarray(requests[own].indices) for own in serves[key]], axis=0)
            joined[key] = replace(each, table=name, indices=indices)
    return joined, serves


def _part(bags: Bags, table: PlanTable, card: int) -> Bags | None:
    """What a card gets of a table's bags; None: it has not the table, or there are fewer samples than cards."""
    if card not in table.cards:
        return None
    if table.by == "columns":
        return bags
    offsets, at = np.asarray(bags.offsets), table.cards.index(card)
    part = _samples(len(offsets) - 1, at, len(table.cards))
    if at and part.start == part.stop:
        return None
    offsets = offsets[part.start:part.stop + 1]
    mine = slice(offsets[0], offsets[-1])
    weights = None if bags.weights is None else np.asarray(bags.weights)[mine]
    return replace(bags, indices=np.asarray(bags.indices)[mine], offsets=offsets - offsets[0], weights=weights)


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch that was served. dense: (samples, inputs) of the network, None without one; note: where they come from,
    if not from the log."""

    chunk: Chunk
    dense: NDArray[np.float32] | None
    note: str
    done: Done


def serve(cards: Cards, log: Log, samples: int, *, batch: int | None = None) -> Turns[Batch]:
    """The first samples of a log through the cards, one batch after the other. batch: samples at once, default the
    plan's. A batch is read and served when it is asked for. Several threads may ask; each batch goes to one of them.

    Raises      ValueError: a log that does not fit the model; RunError, CardError: the cards'
    """
    return Turns(_served(cards, log, samples, batch))


def _served(cards: Cards, log: Log, samples: int, batch: int | None) -> Generator[Batch, None, None]:
    network = cards.plan.model.network
    for chunk in batches(log, samples, batch or cards.plan.batch):
        dense, note = (None, "") if network is None or not cards.mlp else dense_of(chunk, network.bottom[0])
        yield Batch(chunk, dense, note, cards.infer(chunk, dense))


def batches(log: Log, samples: int, batch: int) -> Iterator[Chunk]:
    """The first samples of a log, so many at once."""
    for chunk in log.chunks(batch):
        for start in range(0, chunk.samples, batch):
            if not samples:
                return
            end = min(chunk.samples, start + batch, start + samples)
            yield chunk.part(start, end)
            samples -= end - start
