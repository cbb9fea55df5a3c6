"""What the cards of a bundle give for a log, held against the oracle, the dense tables and the plan.

    verified = verify(Bundle("build/bundle"), log, 1024)
    print(summary(verified))
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpga.api.serving import Batch, Cards, serve
from fpga.card import LinkUse
from fpga.card.energy import Energy, spent
from gen.bundle import Bundle
from gen.compiler.oracle import EmbOracle, MlpOracle, first_difference
from gen.data.logs import Chunk
from gen.data.logs.opening import LogLike, opened
from gen.data.pooling import looked_up, pooled
from gen.data.remap import shared, unseen
from gen.model.device import Device
from gen.model.recommender import TableSpec
from gen.model.weights import Weights
from gen.planner.plan import Plan, rate


@dataclass(eq=False)
class Verified:
    """A log that went through the cards.

    cycles: of each card's core; links: what crossed its link; busy: of the slower of both, batch after batch; each: the
    same of every batch; energy: that the card takes in the cycles that it is busy. expected: cycles of each card by the
    plan for the same batches one by one: of an EMB card the slowest memory or direction of the link, the drive's first
    page once in every batch that needs one; of an MLP card both networks. steady: of batches that follow each other
    (EmbeddingBags.batches), the host's time from one run to the next included. rows: of each table, looked up in card
    DRAM, as tensor trains and on the SSD. distance: of each table's pooled vectors from those of its dense rows,
    relative to these (None: the dense rows are not known). different: the first word that is not the oracle's. unseen:
    of each table whose ids are a vocabulary, lookups of ids that have no row of their own.
    """

    device: Device
    samples: int = 0
    batches: int = 0
    vectors: int = 0
    cycles: dict[int, int] = field(default_factory=dict)
    links: dict[int, LinkUse] = field(default_factory=dict)
    busy: dict[int, int] = field(default_factory=dict)
    each: list[dict[int, int]] = field(default_factory=list)
    energy: dict[int, Energy] = field(default_factory=dict)
    expected: dict[int, float] = field(default_factory=dict)
    steady: dict[int, float] = field(default_factory=dict)
    rows: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    distance: dict[str, float] | None = None
    different: str = ""
    unseen: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    predictions: NDArray[np.float32] | None = None

    @property
    def clock_mhz(self) -> float:
        """Of the cards' cores."""
        return float(self.device.kernel_mhz)

    @property
    def rate(self) -> float:
        """Samples per second as measured, one batch at a time: the slowest card's, core or link. 0 where none is
        busy."""
        return self._per_second(self.busy)

    @property
    def planned_rate(self) -> float:
        """The same as planned, a wait for the first page in every batch that needs the drive."""
        return self._per_second(self.expected)

    def _per_second(self, cycles: Mapping[int, float]) -> float:
        slowest = max(cycles.values(), default=0)
        return self.samples * self.clock_mhz * 1e6 / slowest if slowest else 0.0

    def count(self, batch: Batch, plan: Plan, paged: set[int]) -> None:
        """Adds a batch. paged: cards that needed pages of the SSD for it."""
        done = batch.done
        for name, rows in done.rows.items():
            self.rows[name] = rows + self.rows.get(name, 0)
        for number, cycles in done.cycles.items():
            one, steady = card_seconds(plan, number, done.samples, number in paged, self.device)
            self.cycles[number] = self.cycles.get(number, 0) + cycles
            self.links[number] = self.links.get(number, LinkUse()).plus(done.links[number])
            busy = done.busy(number)
            self.busy[number] = self.busy.get(number, 0) + busy
            self.energy[number] = self.energy.get(number, Energy()).plus(
                spent(self.device, done.commands[number], busy / self.clock_mhz / 1e6))
            self.expected[number] = self.expected.get(number, 0) + one * self.clock_mhz * 1e6
            self.steady[number] = self.steady.get(number, 0) + steady * self.clock_mhz * 1e6
        self.each.append({number: done.busy(number) for number in done.cycles})
        self.samples += done.samples
        self.batches += 1
        self.vectors += done.samples * len(done.vectors)


class _Oracles:
    """The oracle of every card."""

    def __init__(self, cards: Cards):
        self.cards = cards
        self.emb = {number: EmbOracle(bags.images, bags.compiler) for number, bags in cards.emb.items()}
        self.mlp = {number: MlpOracle(network.compiler) for number, network in cards.mlp.items()}

    def differences(self, batch: Batch) -> Iterator[tuple[int, str]]:
        """(card, first word that differs or "") of the cards that took part in the last batch."""
        done = batch.done
        for number, vectors in done.shards.items():
            bags = self.cards.emb[number].program
            assert bags is not None
            expected, _ = self.emb[number].run(bags)
            yield number, first_difference(list(vectors.values()), expected)
        if done.predictions is None:
            return
        features = np.stack(list(done.vectors.values()), axis=1)
        for number, part in self.cards.shares(done.samples):
            program = self.cards.mlp[number].program
            assert program is not None and batch.dense is not None
            expected = [self.mlp[number].run(program, batch.dense[part], features[part])]
            yield number, first_difference([done.predictions[part]], expected)

    def paged(self, batch: Batch) -> set[int]:
        """Cards that needed pages of the SSD for the last batch."""
        programs = {number: self.cards.emb[number].program for number in batch.done.shards}
        return {number for number, program in programs.items() if program is not None and len(program.pages)}


class _Unseen:
    """Counts the lookups of ids that have no row of their own in their table's vocabulary."""

    def __init__(self, bundle: Bundle):
        self.model = bundle.plan.model
        vocabularies = {name: bundle.vocabulary(name) for name in bundle.plan.tables}
        self.vocabularies = vocabularies
        self.known = {name: known for name, known in vocabularies.items() if known is not None}
        self.lookups = {name: np.zeros(2, np.int64) for name in self.known}     # unseen, all

    def count(self, chunk: Chunk) -> None:
        for _, name, column in self.model.features:
            if (known := self.known.get(name)) is not None:
                ids = chunk.ids[column]
                self.lookups[name] += unseen(self.model.tables[name], known, ids), len(ids)

    def notes(self) -> Iterator[str]:
        """What was read for such ids."""
        for name, (count, among) in self.lookups.items():
            if count:
                whose = shared(self.model.tables[name], self.known[name]) or "which is kept for such ids"
                yield (f"table {name}: {count:,} of {among:,} lookups are of ids without a row of their own, as its "
                       f"vocabulary has them; they read the last row, {whose}")


def verify(bundle: Bundle, log: LogLike, samples: int, *, batch: int | None = None, weights: Weights | None = None,
           say: Callable[[str], None] | None = None, watch: Callable[[Batch], None] | None = None,
           **options: Any) -> Verified:
    """The first samples of a log through the cards of a bundle, every word held against the oracle.

    log: one that is open, or its paths. batch: samples at once, default the plan's. weights: the bundle's parameters,
    for the distance from the dense rows. watch: gets every batch. options: for Cards.
    Raises      ValueError: a log that does not fit the model; RunError, CardError: the cards'
    """
    say = say or (lambda text: None)
    plan = bundle.plan
    source = opened(log, tables=plan.model.columns, **plan.model.log.given())
    verified = Verified(Device.load(options.get("device", bundle.device)).shared(len(plan.cards)))
    far = {name: np.zeros(2) for name in plan.tables}
    strange = _Unseen(bundle)
    notes: dict[str, None] = dict.fromkeys(bundle.notes)
    predictions = []
    with Cards(bundle, **options) as cards:
        oracles = _Oracles(cards)
        for served in serve(cards, source, samples, batch=batch):
            if served.note:
                notes[served.note] = None
            for number, text in oracles.differences(served):
                if text and not verified.different:
                    verified.different = f"card {number}, samples {verified.samples} on: {text}"
            if served.done.predictions is not None:
                predictions.append(served.done.predictions)
            strange.count(served.chunk)
            if weights is not None:
                for key, name, column in plan.model.features:
                    far[name] += _squares(plan.model.tables[name], served.chunk, column, strange.vocabularies[name],
                                          weights, served.done.vectors[key])
            verified.count(served, plan, oracles.paged(served))
            if watch is not None:
                watch(served)
            say(f"{verified.samples:,} of {samples:,} samples")
    if not verified.samples:
        raise ValueError(f"{source.source} has no samples")
    if weights is not None:
        verified.distance = {name: float(np.sqrt(total[0] / total[1])) if total[1] else 0.0
                          for name, total in far.items()}
    verified.predictions = np.concatenate(predictions) if predictions else None
    verified.unseen = {name: int(count) for name, (count, _) in strange.lookups.items()}
    verified.notes = (*notes, *strange.notes())
    return verified


def card_seconds(plan: Plan, number: int, samples: int, paged: bool, device: Device) -> tuple[float, float]:
    """What a card takes for a batch by the plan: by itself, and from one batch to the next. paged: it needs the
    drive."""
    card, share = plan.cards[number], samples / plan.batch
    if card.kind == "mlp":
        return (max(card.bottom_s + card.top_s, card.in_s, card.out_s) * share,) * 2
    work, link_s = plan.work(number), max(card.in_s, card.out_s) * share
    idle = np.maximum(card.memory_seconds - work, 0.0) * (True, True, paged)
    one = work * share + np.maximum(idle - device.between_s, 0.0)
    return max(float(one.max()), link_s), max(float((work * share + idle).max()), link_s)


def _squares(spec: TableSpec, chunk: Chunk, column: str, vocabulary: NDArray[np.uint64] | None, weights: Weights,
             found: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of pooled vectors: the squared distance from those of the dense rows, and these squared, by way of the rows and
    not of the remapped words."""
    rows, each = looked_up(spec, chunk, column, vocabulary)
    expected = pooled(spec, weights.rows(spec, rows), each, chunk.edges(column))
    return np.array([((found - expected) ** 2).sum(), (expected**2).sum()])


def energy(found: Verified) -> str:
    """What the cards take while they are busy, in a sentence; "" where no command of a memory was counted."""
    each = list(found.energy.values())
    low, high, dram = (sum(getattr(card, name) for card in each) / found.samples * 1e6
                       for name in ("low_j", "high_j", "dram_j"))
    return (f"{min(card.watts[0] for card in each):.1f} W per card at least, {found.device.power.slot_w:g} W at most: "
            f"{low:,.1f} to {high:,.1f} uJ per sample, commands of the DRAM {dram:,.2f} of it") if dram else ""


def rates(found: Verified) -> str:
    """Samples per second as measured and as planned, in a sentence; "" where no card was busy."""
    if not found.rate:
        return ""
    text = f"{rate(found.rate)} samples/s measured, one batch at a time"
    if not found.planned_rate:
        return text
    return f"{text}; {rate(found.planned_rate)} planned, {found.planned_rate / found.rate:.2f} times as many"


def summary(found: Verified) -> str:
    """What was held against the oracle, in a sentence."""
    what = f"{found.vectors:,} pooled vectors"
    if found.predictions is not None:
        what += f" and {len(found.predictions):,} predictions (mean {float(found.predictions.mean()):.4f})"
    return what + (f": DIFFERENT from the oracle: {found.different}" if found.different
                   else ": every bit equal to the oracle's")
