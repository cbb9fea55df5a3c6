"""Inputs that cross the link while the batch before is run: the order of calls, what ends a run, what comes in between.
Answers are those of batches by themselves, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest

from fpga.api.embedding import DRAM, SSD, EmbeddingBags, RunError, Table
from fpga.card import CardError, ErrorResponse, Faults
from fpga.card import open as open_card
from gen.compiler.emb import Bags
from gen.compiler.tables import CardImages
from golden.emb.core import Emb
from tests.support import emb_tables
from tests.support.cutting import Cut
from tests.support.emb_bench import QUICK
from tests.support.emb_card import OracleCard


def tables(seed=1):
    random = np.random.default_rng(seed)
    return [emb_tables.mixed(random), emb_tables.only(random, "users", SSD, 200, 20)]


def on_oracle(card_of=lambda card: card, cache_rows=(20, 30), held=None):
    """A row cache whose rows follow from the batches before."""
    held, config = held or tables(), emb_tables.config()
    images = CardImages(held, config, cache_rows=dict(zip(("items", "users"), cache_rows, strict=False)))
    return EmbeddingBags(images, card=card_of(OracleCard(Emb.of(config, images.cores))), preset=config,
                         ring_bytes=1 << 15)


def drawn(count=5, seed=2, bags=12):
    """Batches of ever more bags, so that buffers grow while a run is under way."""
    random = np.random.default_rng(seed)
    return [[Bags("items", *emb_tables.bags(random, 300, bags + 9 * at, 5)),
             Bags("users", *emb_tables.bags(random, 200, bags, 5))] for at in range(count)]


def same(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


def each(asked):
    """By batches one at a time, on a card of their own."""
    with on_oracle() as bags:
        return [bags.batch(requests) for requests in asked]


def test_order_of_calls():
    """Result block, inputs and program of the next batch are sent between `run` and `wait`, where the run does not
    look. A batch's vectors are read behind the run after it."""
    with on_oracle() as bags:
        seen = []

        def watched(name, method):
            def call(*arguments, **named):
                which = arguments[0].name if name in ("read", "write") else ""
                if name == "run":
                    which = arguments[0]["inputs"].name
                seen.append(f"{name} {which}".strip())
                return method(*arguments, **named)
            return call

        for name in ("write", "run", "wait", "read"):
            setattr(bags.card, name, watched(name, getattr(bags.card, name)))
        found = list(bags.batches(asked := drawn(3)))
    here, there = ([f"write {side}{name}" for name in ("result", "inputs", "program")] for side in ("", "other_"))
    assert seen == [*here, "run inputs", *there, "wait", "read result",
                    "run other_inputs", *here, "wait", "read other_result", "read outputs",
                    "run inputs", "wait", "read result", "read other_outputs", "read outputs"]
    same(found, each(asked))


@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_cut_short_at_every_call(is_behind):
    """An interrupt at any call to the card, also while the next batch's inputs are sent."""
    asked, after = drawn(3), drawn(2, seed=7)
    wanted, bags = each(after), on_oracle(Cut)
    list(bags.batches(asked))       # allocates, once
    bags.card.cut(None)
    list(bags.batches(asked))
    for at in range(bags.card.count):
        list(bags.batches(asked))
        bags.card.cut(at, is_behind)
        with pytest.raises(KeyboardInterrupt):
            list(bags.batches(asked))
        bags.card.cut(None)
        same(list(bags.batches(after)) if at % 2 else [bags.batch(one) for one in after], wanted)
    bags.close()
    assert not bags.card.inner.memory


def test_a_wrong_program_among_them():
    """It ends all; the inputs that were sent behind it are nobody's, and the row cache begins as at first."""
    asked, after = drawn(4), drawn(2, seed=7)
    with on_oracle() as bags:
        runs = bags.card.runs

        def spoil(program):
            if bags.card.runs == runs + 1:
                program[-1, 0] = 77

        bags.card.spoil = spoil
        with pytest.raises(RunError, match="BAD_INSTRUCTION"):
            list(bags.batches(asked))
        bags.card.spoil = None
        same(list(bags.batches(after)), each(after))


def test_a_wrong_request_when_its_turn_comes():
    """The batches before it are run, and nothing is built anew."""
    asked = drawn(3)
    wrong = [Bags("items", [300], [0, 1])]
    with on_oracle() as bags:
        runs, found = bags.card.runs, []
        with pytest.raises(ValueError, match="^table items, bag 0, index 0: 300 is none of the table's 300 rows"):
            for vectors in bags.batches([*asked, wrong]):
                found.append(vectors)
        same(found, each(asked)[:2])
        bags.batch(asked[0])
        assert bags.card.runs == runs + 4


@pytest.mark.parametrize("between", ["batch", "other batches", "other images", "staged alone", "a failed run"])
def test_what_comes_in_between(between):
    """Inputs that were sent go with rows and cache as they were then; they are made anew behind another answer, or with
    other images."""
    asked, more = drawn(4), drawn(2, seed=7)
    cached = between not in ("other images", "staged alone")
    other = [replaced(table) for table in tables()]
    with on_oracle(cache_rows=(20, 30) if cached else ()) as bags, \
            on_oracle(cache_rows=() if not cached else (20, 30)) as alone, \
            on_oracle(cache_rows=(), held=other) as changed:
        found, wanted = [], [alone.batch(requests) for requests in asked]
        if between == "other images":
            wanted[2:] = [changed.batch(requests) for requests in asked[2:]]
        for number, vectors in enumerate(bags.batches(asked)):
            found.append(vectors)
            if number:
                continue
            if between == "batch":
                bags.batch(more[0])
            elif between == "other batches":
                list(bags.batches(more))
            elif between == "a failed run":
                bags.card.spoil = lambda program: program.__setitem__((-1, 0), 77)
                with pytest.raises(RunError):
                    bags.batch(more[0])
                bags.card.spoil = None
            else:
                images = changed.images
                staged = bags.stage(images, np.arange(len(images.rows)), np.arange(len(images.pages)))
                if between == "other images":
                    bags.adopt(staged)
        same(found, wanted)


def replaced(table):
    """The same places, with other values in DRAM and SSD."""
    return replace(table, dram=table.dram + 1, ssd=table.ssd + 1)


@pytest.fixture(scope="module")
def bags():
    with EmbeddingBags(tables(), preset=emb_tables.config(), device=QUICK, ring_bytes=1 << 15,
                       timeout_cycles=20_000) as found:
        yield found


@pytest.fixture(scope="module")
def long(bags):
    """Batches of which the second has more inputs than cross the link in a run; and their vectors."""
    asked = drawn(3, bags=60)
    asked[1] = drawn(1, seed=9, bags=900)[0]
    return asked, [bags.batch(requests) for requests in asked]


@pytest.mark.turns(1)
@pytest.mark.parametrize("end", ["dead host", "bus", "interrupt", "reset"])
def test_runs_that_end_while_inputs_are_on_their_way(bags, long, end):
    """On the simulated card, with more inputs behind the run than cross the link before it ends: the same objects go on
    afterwards, and nothing of what was sent arrives later."""
    asked, wanted = long
    card, before = bags.card, bags.card.link().in_bytes

    def interrupted():
        if card.link().in_bytes > before + 5000 and card.counters()["cycles"]:
            card.between = None
            if end == "reset":
                card.reset()
            raise KeyboardInterrupt

    if end == "dead host":
        card.set_faults(Faults(host_dies_after=0))
    elif end == "bus":
        card.set_faults(Faults(errors=(ErrorResponse("m01_axi", "read", beat=40),)))
    else:
        card.between = interrupted
    with pytest.raises(RunError if end in ("dead host", "bus") else KeyboardInterrupt):
        list(bags.batches(asked))
    card.set_faults(Faults())
    same(list(bags.batches(asked)), wanted)


@pytest.mark.turns(1, of="flows")
def test_inputs_that_nobody_took_do_not_arrive_later(bags):
    """Batches that are given up while inputs are on their way: another answer, and what another owner of the card then
    keeps where they would arrive."""
    asked = [drawn(1, bags=20)[0], drawn(1, bags=20)[0], drawn(1, seed=9, bags=900)[0]]
    wanted = [bags.batch(requests) for requests in asked]
    flow = bags.batches(asked)
    next(flow)
    flow.close()
    same([bags.batch(requests) for requests in asked], wanted)


@pytest.mark.turns(1, of="flows")
def test_closing_waits_for_inputs_that_nobody_took():
    """Another owner of the card then has other buffers where they would arrive."""
    config, values = emb_tables.config(), np.random.default_rng(3).standard_normal((3000, 64), dtype=np.float32)
    with open_card("sim", core="emb", preset=config) as card:
        with EmbeddingBags(tables(), card=card, preset=config, ring_bytes=1 << 15) as first:
            flow = first.batches([*drawn(2, bags=20), drawn(1, seed=9, bags=900)[0]])
            next(flow)
        with EmbeddingBags([Table.place("t", values, DRAM)], card=card, preset=config) as second:
            np.testing.assert_array_equal(second("t", np.arange(3000), np.arange(3000)), values)
        assert not card.violations()
        with pytest.raises(CardError, match="^it is closed: its buffers were given back$"):
            next(flow)
