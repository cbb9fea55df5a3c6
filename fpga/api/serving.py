"""The cards of a bundle at work on a click log: ids in, pooled vectors and predictions out.

    from fpga.api.serving import Cards
    with Cards(Bundle("build/bundle")) as cards:                # simulated ones
        done = cards.infer(chunk)                               # of a gen.data.logs.Log
        print(done.vectors["items"], done.predictions, done.cycles)

`serve` goes through a log so, holds every word against the oracle, and says how far the pooled vectors are from those
of the dense tables and how long the cards took beside what the plan expected.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fpga.api.embedding import EmbeddingBags
from fpga.api.network import MlpNetwork
from gen.bundle import Bundle
from gen.compiler.emb import Bags
from gen.compiler.oracle import EmbOracle, MlpOracle, first_difference
from gen.data.logs import Chunk, Log
from gen.data.logs.features import dense_features
from gen.data.remap import DEVICE_SHIFT, rows_of, shared, unseen
from gen.model.device import Device
from gen.model.recommender import TableSpec
from gen.model.weights import Weights
from gen.planner.plan import Plan

__all__ = ["Cards", "Done", "Served", "batches", "serve", "summary"]


@dataclass(frozen=True, eq=False)
class Done:
    """A batch. vectors: (samples, dim) of each table. predictions: (samples, outputs), None without a network. cycles:
    that each card took, by its number in the plan. rows: of each table, looked up in card memory, train and SSD."""

    samples: int
    vectors: dict[str, NDArray[np.float32]]
    predictions: NDArray[np.float32] | None
    cycles: dict[int, int]
    rows: dict[str, NDArray[np.int64]]


class Cards:
    """The cards of a bundle, one core each: EMB cards with their tables, MLP cards with the network.

    card, options: as fpga.card.open takes them. A card that the plan gives no table stays empty.
    Raises      CardError: a card that cannot hold its images
    """

    def __init__(self, bundle: Bundle, *, card: str = "sim", **options: Any):
        self.bundle, self.plan = bundle, bundle.plan
        self.remaps = {name: bundle.remap(name) for name in self.plan.tables}
        self.emb: dict[int, EmbeddingBags] = {}
        self.mlp: dict[int, MlpNetwork] = {}
        preset, device = str(bundle.preset), options.pop("device", bundle.device)
        try:
            for number in bundle.emb_cards:
                self.emb[number] = EmbeddingBags(bundle.images(number), card=card, preset=preset, device=device,
                                                 ring_bytes=self.plan.ring_bytes, **options)
            network = bundle.network()
            mlp_cards = [each.number for each in self.plan.cards if each.kind == "mlp"]
            for number in mlp_cards if network is not None else ():
                assert network is not None
                self.mlp[number] = MlpNetwork(network, card=card, preset=preset, device=device,
                                              batch=-(-self.plan.batch // len(mlp_cards)), **options)
        except BaseException:
            self.close()
            raise

    def requests(self, chunk: Chunk) -> dict[str, Bags]:
        """The bags of every table of the plan, remapped.

        Raises      ValueError: a table that the log does not have, an id past its rows
        """
        found = {}
        for name, remap in self.remaps.items():
            if name not in chunk.ids:
                raise ValueError(f"the log has no table {name!r}; it has {', '.join(chunk.ids)}")
            found[name] = Bags(name, remap(chunk.ids[name]), chunk.edges(name), mode=self.plan.model.tables[name].mode,
                               remapped=True)
        return found

    def infer(self, chunk: Chunk, dense: NDArray[np.float32] | None = None) -> Done:
        """One batch. dense: (samples, inputs) of the network.

        Raises      ValueError: as `requests`; RunError, CardError: the card's
        """
        requests = self.requests(chunk)
        vectors: dict[str, NDArray[np.float32]] = {}
        cycles = {}
        for number, bags in self.emb.items():
            mine = [each for name, each in requests.items() if self.plan.tables[name].card == number]
            vectors |= zip((each.table for each in mine), bags.batch(mine), strict=True)
            cycles[number] = bags.last["cycles"]
        vectors = {name: vectors[name] for name in requests}
        predictions = None
        if self.mlp:
            assert dense is not None
            features = np.stack(list(vectors.values()), axis=1)
            parts = []
            for number, part in self.shares(chunk.samples):
                parts.append(self.mlp[number](dense[part], features[part]))
                cycles[number] = self.mlp[number].last["cycles"]
            predictions = np.concatenate(parts)
        rows = {name: np.bincount(np.asarray(each.indices) >> DEVICE_SHIFT, minlength=3)
                for name, each in requests.items()}
        return Done(chunk.samples, vectors, predictions, cycles, rows)

    def shares(self, samples: int) -> Iterator[tuple[int, slice]]:
        """Which samples of a batch each MLP card works on."""
        share = -(-samples // max(len(self.mlp), 1))
        for at, number in enumerate(self.mlp):
            part = slice(at * share, min(samples, (at + 1) * share))
            if part.start < samples:
                yield number, part

    def close(self) -> None:
        """Closes the cards; a second call does nothing."""
        for each in (*self.emb.values(), *self.mlp.values()):
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()


@dataclass(eq=False)
class Served:
    """A log that went through the cards.

    expected: cycles of each card by the plan for the same batches one by one: of an EMB card the slowest memory, the
    drive's first page once in every batch that needs one; of an MLP card both networks. steady: of batches that follow
    each other without a gap, where the first page of one comes during the one before. rows: of each table, looked up
    in card memory, tensor train and SSD. distance: of each table's pooled vectors from those of its dense rows, over
    the size of these (None: the dense rows are not known). different: the first word that is not the oracle's.
    unseen: of each table whose ids are a vocabulary, lookups of ids that have no row of their own.
    """

    samples: int = 0
    batches: int = 0
    vectors: int = 0
    cycles: dict[int, int] = field(default_factory=dict)
    expected: dict[int, float] = field(default_factory=dict)
    steady: dict[int, float] = field(default_factory=dict)
    rows: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    distance: dict[str, float] | None = None
    different: str = ""
    unseen: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    clock_mhz: float = 0.0
    predictions: NDArray[np.float32] | None = None


def serve(bundle: Bundle, log: Log, samples: int, *, batch: int | None = None, weights: Weights | None = None,
          say: Callable[[str], None] | None = None, **options: Any) -> Served:
    """The first samples of a log through the cards of a bundle, every word held against the oracle.

    batch: samples at once, default the plan's. weights: the bundle's parameters, for the distance from the dense rows.
    options: for Cards.
    Raises      ValueError: a log that does not fit the model; RunError, CardError: the cards'
    """
    say = say or (lambda text: None)
    plan = bundle.plan
    done = Served(distance=None if weights is None else {},
                  clock_mhz=float(Device.load(options.get("device", bundle.device)).kernel_mhz))
    far = {name: np.zeros(2) for name in plan.tables}
    vocabularies = {name: bundle.vocabulary(name) for name in plan.tables}
    notes: dict[str, None] = dict.fromkeys(bundle.notes)
    predictions = []
    strange = {name: np.zeros(2, np.int64) for name, known in vocabularies.items() if known is not None}
    with Cards(bundle, **options) as cards:
        oracles = {number: EmbOracle(bags.images, bags.compiler) for number, bags in cards.emb.items()}
        networks = {number: MlpOracle(net.compiler) for number, net in cards.mlp.items()}
        for chunk in batches(log, samples, batch or plan.batch):
            dense = None
            if cards.mlp:
                assert plan.model.network is not None
                dense, note = dense_of(chunk, plan.model.network.bottom[0])
                if note:
                    notes[note] = None
            found = cards.infer(chunk, dense)
            paged = {}      # cards that need pages of the SSD
            for number, bags in cards.emb.items():
                assert bags.program is not None
                paged[number] = len(bags.program.pages) > 0
                wanted, _ = oracles[number].run(bags.program)
                mine = [found.vectors[output.table] for output in bags.program.outputs]
                done.different = done.different or _where(done.samples, number, first_difference(mine, wanted))
            if found.predictions is not None:
                predictions.append(found.predictions)
                features = np.stack(list(found.vectors.values()), axis=1)
                for number, part in cards.shares(chunk.samples):
                    assert dense is not None
                    program = cards.mlp[number].program
                    assert program is not None
                    wanted = [networks[number].run(program, dense[part], features[part])]
                    done.different = done.different or _where(
                        done.samples, number, first_difference([found.predictions[part]], wanted))
            for name, known in vocabularies.items():
                if known is not None:
                    strange[name] += unseen(plan.model.tables[name], known, chunk.ids[name]), len(chunk.ids[name])
            for name, rows in found.rows.items():
                done.rows[name] = rows + done.rows.get(name, 0)
            if weights is not None:
                for name, spec in plan.model.tables.items():
                    far[name] += _squares(spec, chunk, vocabularies[name], weights, found.vectors[name])
            for number, cycles in found.cycles.items():
                done.cycles[number] = done.cycles.get(number, 0) + cycles
                one, steady = _seconds(plan, number, chunk.samples, paged.get(number, False))
                done.expected[number] = done.expected.get(number, 0) + one * done.clock_mhz * 1e6
                done.steady[number] = done.steady.get(number, 0) + steady * done.clock_mhz * 1e6
            done.samples += chunk.samples
            done.batches += 1
            done.vectors += chunk.samples * len(plan.tables)
            say(f"{done.samples:,} of {samples:,} samples")
    if not done.samples:
        raise ValueError(f"{log.source} has no samples")
    if weights is not None:
        done.distance = {name: float(np.sqrt(total[0] / total[1])) if total[1] else 0.0 for name, total in far.items()}
    done.predictions = np.concatenate(predictions) if predictions else None
    done.unseen = {name: int(count) for name, (count, _) in strange.items()}
    done.notes = (*notes, *_strange(plan, vocabularies, strange))
    return done


def _strange(plan: Plan, vocabularies: Mapping[str, NDArray[np.uint64] | None],
             strange: Mapping[str, NDArray[np.int64]]) -> Iterator[str]:
    """What was read for ids that have no row of their own."""
    for name, (count, among) in strange.items():
        known = vocabularies[name]
        if count and known is not None:
            whose = shared(plan.model.tables[name], known) or "which is kept for such ids"
            yield (f"table {name}: {count:,} of {among:,} lookups are of ids without a row of their own, as its "
                   f"vocabulary has them; they read the last row, {whose}")


def _seconds(plan: Plan, number: int, samples: int, paged: bool) -> tuple[float, float]:
    """What a card takes for a batch by the plan: alone, and between others of its like. paged: it needs the drive."""
    card, share = plan.cards[number], samples / plan.batch
    if card.kind == "mlp":
        return ((card.bottom_s + card.top_s) * share,) * 2
    pages = sum(table.ssd.seconds for table in plan.tables.values() if table.card == number)
    first = max(card.ssd.seconds - pages, 0) if paged else 0
    others = max(card.dram.seconds, card.tt.seconds) * share
    return max(others, pages * share + first), max(others, pages * share)


def batches(log: Log, samples: int, batch: int) -> Iterator[Chunk]:
    """The first samples of a log, so many at once."""
    for chunk in log.chunks(batch):
        for start in range(0, chunk.samples, batch):
            if not samples:
                return
            end = min(chunk.samples, start + batch, start + samples)
            yield chunk.part(start, end)
            samples -= end - start


def dense_of(chunk: Chunk, inputs: int) -> tuple[NDArray[np.float32], str]:
    """The dense features of a chunk, zeros where it has none, and a note that says so.

    Raises      ValueError: another number than the network's inputs
    """
    found = dense_features(chunk.values)
    if found is None:
        return (np.zeros((chunk.samples, inputs), np.float32),
                f"the log has no dense features: the network's {inputs} are zeros")
    if found.shape[1] != inputs:
        raise ValueError(f"the log has {found.shape[1]} dense features, the network takes {inputs}")
    return found, ""


def _squares(spec: TableSpec, chunk: Chunk, vocabulary: NDArray[np.uint64] | None, weights: Weights,
             found: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of pooled vectors: the squared distance from those of the dense rows, and these squared, by way of the rows and
    not of the remapped words."""
    rows = rows_of(spec, chunk.ids[spec.name], vocabulary)
    unique, back = np.unique(rows, return_inverse=True)
    dense = weights.rows(spec, unique).astype(np.float64)[back.reshape(-1)]
    offsets = chunk.edges(spec.name)
    wanted = np.zeros(found.shape)
    full = np.flatnonzero(np.diff(offsets) > 0)
    if len(full):
        combine = np.maximum if spec.mode == "max" else np.add
        wanted[full] = combine.reduceat(dense, offsets[full], axis=0)
        if spec.mode == "mean":
            wanted[full] /= np.diff(offsets)[full, None]
    return np.array([((found - wanted) ** 2).sum(), (wanted**2).sum()])


def _where(samples: int, card: int, text: str) -> str:
    return f"card {card}, samples {samples} on: {text}" if text else ""


def summary(done: Served) -> str:
    """What was held against the oracle, in a sentence."""
    what = f"{done.vectors:,} pooled vectors"
    if done.predictions is not None:
        what += f" and {len(done.predictions):,} predictions (mean {float(done.predictions.mean()):.4f})"
    return what + (f": DIFFERENT from the oracle: {done.different}" if done.different
                   else ": every bit equal to the oracle's")
