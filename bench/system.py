"""The whole simulated system under load: batches through twins of its cards, then queries that arrive at random.

Twins take batches of several sizes, every card's core, memory and link clock by clock. What a batch takes of each
stage, and how long after it the next may follow, of the slowest of the cards that work side by side, is served by
gen.planner.arrivals: Poisson arrivals, batches of what waits whenever the EMB cards can take one, up to a cap. EMB
cards overlap: inputs of the next batch and vectors of the one before cross the link during a run
(EmbeddingBags.batches).

`anime`: samples of the log, drawn at random, with RM0's network of four features on 8 cards; its tables alone on one
card and on 8. `mels2021`: bags drawn from the statistics, tables alone, as bench.mels_twin has them: every access may
leave the SSD. Batches have at most 256 samples: vectors take the link as long per sample in larger ones.

MLPerf Inference's rules for recommendation (inference_rules.adoc): a sample is 100 to 700 user-item pairs, here samples
of the log. server: the largest Poisson rate of queries of one such sample, 99 % within 30 ms, 270,336 queries; offline:
24,576 of them at once. docs/size.md says what is left out.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.data import needed
from bench.framework import Row, at_most, bench, figure
from bench.link import steady
from bench.mels_twin import drawn, images
from bench.papers import CARDS, MELS_BATCH, MELS_DIM, costs, placed
from bench.plan import STATISTICS
from fpga.api.embedding import EmbeddingBags
from fpga.api.serving import Cards, batches, serve
from fpga.card.runs import OnCard
from gen import bundle
from gen.data.logs import Log, of_arrays, open_log
from gen.data.logs.trace import picked
from gen.data.profile import Profile
from gen.data.profiling import flow
from gen.data.profiling.mels import mels
from gen.model.device import Device
from gen.model.network import Model
from gen.model.weights import SeededWeights
from gen.planner.arrivals import Stages, latency, offline, sustained
from gen.planner.assume import model_of
from gen.planner.planning import make

DEVICE = "smartssd"
ANIME, YEAR = "anime_420k.npz", 2021
DIM, BATCH, GAP, SECONDS = 64, 2048, 0.05, 20.0
SIZES = (1, 4, 16, 64, 256, 1024, 2048)     # samples of a batch
MELS_SIZES = SIZES[:5]
TRIALS, STEADY = 3, 5                       # batches of each size, whose median counts; back to back
LOADS = (10, 20, 30, 40, 50, 60, 70, 80, 90, 95)    # per cent of the largest
LOAD, TIMES = 80, 3.0                       # at which p99 is held against the latency without load
CAPS = tuple(1 << at for at in range(12))   # samples of a batch at most: policies that are compared
PAIRS, SERVER, SERVER_S, OFFLINE = (100, 700), 270_336, 0.030, 24_576
STAGES = ("embedding, from indices to the cards to vectors at the host",
          "networks, features to the cards and predictions included")


def clock(card: OnCard) -> int:
    return int(card.card.counters()["cycles"])


Cycles = tuple[list[float], list[float]]    # of each stage: a batch, and from its begin to the next one's


def answered(cards: Cards, log: Log, samples: int) -> Cycles:
    """Of batches of so many samples: of the slowest EMB card, and MLP card if there are, whose batches do not
    overlap."""
    every: dict[int, OnCard] = {**cards.emb, **cards.mlp}
    found = []
    before = {number: clock(card) for number, card in every.items()}
    for batch in serve(cards, log, samples * TRIALS, batch=samples):
        after = {number: clock(card) for number, card in every.items()}
        took = {number: after[number] - before[number] for number in batch.done.cycles}
        found.append([max(took[number] for number in took if number in kind)
                      for kind in (cards.emb, cards.mlp) if kind])
        before = after
    took = np.median(found, axis=0).tolist()
    asked = [cards.parts(cards.requests(chunk)) for chunk in batches(log, samples * STEADY, samples)]
    period = max(steady(card, each)[0] for number, card in cards.emb.items() if len(each := [
        list(parts[number].values()) for parts in asked if number in parts]) == STEADY)
    return took, [period, *took[1:]]


def as_stages(cycles: Sequence[Cycles], sizes: Sequence[int]) -> Stages:
    """cycles: of each size."""
    at, free = np.array(cycles).transpose(1, 2, 0) / (Device.load(DEVICE).kernel_mhz * 1e6)
    return Stages(STAGES[:len(at)], np.array(sizes), at, np.minimum(at, free))


@cache
def anime() -> tuple[Log, Profile]:
    """The log in another order, as it is sorted by user, and its profile."""
    path = needed(ANIME)
    (chunk,) = open_log(path).chunks(1 << 20)
    order = np.random.default_rng(1).permutation(chunk.samples)
    bags = {name: picked(np.arange(len(ids)), chunk.edges(name), order) for name, ids in chunk.ids.items()}
    log = of_arrays({name: ids[bags[name][0]] for name, ids in chunk.ids.items()},
                    {name: bags[name][1] for name in chunk.offsets},
                    {name: values[order] for name, values in chunk.values.items()}, source=ANIME)
    return log, flow.profile_of(flow.Options([path], dim=DIM))


@contextmanager
def opened(cards: int, network: Model | None = None) -> Iterator[Cards]:
    """Twins of so many cards with the anime log's tables, random parameters in them."""
    profile = anime()[1]
    of = replace(model_of(profile, DIM, BATCH)[0], network=network)
    plan = make(of, profile, costs(DIM), cards=cards, gap=GAP, seconds=SECONDS, explain=False)
    with TemporaryDirectory() as folder, Cards(bundle.write(
            Path(folder) / "bundle", plan, profile, SeededWeights()), card="twin") as twins:
        yield twins


def on_log(twins: Cards) -> Stages:
    return as_stages([answered(twins, anime()[0], size) for size in SIZES], SIZES)


def on_statistics() -> Stages:
    """MELS on 8 cards, each opened alone: they hold gigabytes."""
    profile, random = mels(needed(STATISTICS.format(YEAR))), np.random.default_rng(1)
    plan = placed(profile, model_of(profile, MELS_DIM, MELS_BATCH)[0], costs(MELS_DIM))
    assert plan is not None, "8 cards hold MELS"
    slowest = np.zeros((len(MELS_SIZES), 2, 1))
    for number in range(CARDS):
        tables = [table for table in plan.tables.values() if number in table.cards]
        with TemporaryDirectory() as folder, EmbeddingBags(
                images(plan, tables, random, Path(folder)), card="twin", preset=plan.preset, device=plan.device,
                ring_bytes=plan.ring_bytes) as bags:
            for at, size in enumerate(MELS_SIZES):
                asked = [[drawn(table, profile.tables[table.name], size, random) for table in tables]
                         for _ in range(STEADY)]
                clocks = [clock(bags), *(clock(bags) for each in asked[:TRIALS] if bags.batch(each))]
                found = np.median(np.diff(clocks)), steady(bags, asked)[0]
                slowest[at] = np.maximum(slowest[at], np.array(found)[:, None])
    return as_stages([tuple(each.tolist()) for each in slowest], MELS_SIZES)


def slower(stages: Stages) -> float:
    """p99 at LOAD % of the largest load over a lone sample's latency."""
    return latency(stages, LOAD / 100 * stages.most).p99 / float(stages.seconds(1).sum())


def even(stages: Stages) -> float:
    """At LOAD % of the largest load, over a lone sample's latency: the longest that a sample is under way where samples
    come evenly, in equal batches that follow each other without a gap, the smallest that bear the load."""
    sizes = np.arange(1, stages.batch + 1)
    periods = stages.free(sizes).max(axis=0)
    at = int(np.argmax(sizes / periods >= LOAD / 100 * stages.most))
    return float((periods[at] + stages.seconds(sizes[at]).sum()) / stages.seconds(1).sum())


def loaded(name: str, what: str, stages: Stages) -> Iterator[Row]:
    """What a system's stages take, latency over load and over the cap on a batch, and MLPerf's two scenarios."""
    for size in (1, stages.batch):
        for number, (stage, took, free) in enumerate(zip(stages.names, stages.seconds(size), stages.free(size),
                                                         strict=True), 1):
            id, said = f"system.stage.{name}.{size}.{number}", f"{what}, batches of {size:,}: {stage}"
            yield figure(id, said, round(1e6 * float(took), 1), "us")
            if free < took:
                yield figure(f"{id}.free", f"{said}, until the next begins", round(1e6 * float(free), 1), "us")
    yield figure(f"system.unloaded.{name}", f"{what}: a lone sample", round(1e6 * float(stages.seconds(1).sum()), 1),
                 "us")
    yield figure(f"system.most.{name}", f"{what}: the largest load, full batches back to back", round(stages.most),
                 "samples/s")
    for load in LOADS:
        seen = latency(stages, load / 100 * stages.most)
        for key in ("p50", "p95", "p99"):
            yield figure(f"system.curve.{name}.{load}.{key}", f"{what}, {load} % of the largest load: {key}",
                         round(1e6 * getattr(seen, key), 1), "us")
    times = {}
    for cap in (cap for cap in CAPS if cap <= stages.batch):
        capped, said = stages.upto(cap), f"{what}, batches of at most {cap:,}"
        times[cap] = slower(capped)
        yield figure(f"system.cap.{name}.{cap}.most", f"{said}: the largest load", round(capped.most), "samples/s")
        yield figure(f"system.cap.{name}.{cap}.p99", f"{said}: p99 at {LOAD} % of it over a lone sample's latency",
                     round(times[cap], 2), "times")
    yield at_most(f"system.p99.{name}", f"{what}: p99 at {LOAD} % of the largest load over a lone sample's latency",
                  round(times[stages.batch], 2), "times", TIMES)
    yield figure(f"system.even.{name}", f"{what}: the same where samples come evenly, in equal batches as small as "
                 "bear that load", round(even(stages), 2), "times")
    best = min(times, key=lambda cap: times[cap])
    yield figure(f"system.best.{name}", f"{what}: the cap on a batch whose p99 at {LOAD} % of its own largest load is "
                 "nearest to a lone sample's latency", best, "samples")
    if kept := [cap for cap in times if times[cap] <= TIMES]:
        yield figure(f"system.within.{name}", f"{what}: the largest load of a cap that is within {TIMES:.0f} times, "
                     f"{kept[-1]:,} samples, over the largest of all", round(
                         100 * stages.upto(kept[-1]).most / max(stages.upto(cap).most for cap in times), 1), "%")
    sizes = np.random.default_rng(2).integers(PAIRS[0], PAIRS[1] + 1, SERVER)
    rule = f"MLPerf's samples of {PAIRS[0]} to {PAIRS[1]} of the log's"
    yield figure(f"system.server.{name}.qps", f"{what}, server: {rule}, 99 % within {1e3 * SERVER_S:.0f} ms",
                 round(sustained(stages, SERVER_S, sizes=sizes)), "queries/s")
    yield figure(f"system.offline.{name}.qps", f"{what}, offline: {rule}", round(offline(stages, sizes[:OFFLINE])),
                 "queries/s")


@bench("system")
def rows() -> Iterator[Row]:
    """Latency over load of the simulated system, MLPerf's server and offline scenarios, and 8 cards over one."""
    network = replace(Model.load("screc_rm0", dim=DIM), features=len(anime()[1].tables))
    with opened(CARDS, network) as twins:
        yield from loaded("anime", f"anime, RM0, {CARDS} cards", on_log(twins))
    with opened(CARDS) as twins:
        many = on_log(twins)
    with opened(1) as twins:
        one = on_log(twins)
    yield figure("system.scaling.8", f"anime, tables alone: samples per second of {CARDS} cards over one's, full "
                 f"batches of {BATCH:,}", round(many.most / one.most, 2), "times")
    yield from loaded(f"mels{YEAR}", f"MELS {YEAR}, tables alone, {CARDS} cards", on_statistics())
