"""The twin of a card with the Hotline core beside the card: mini-batches and rows bit for bit, cycles and counters."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fpga.api.gpu import Times
from fpga.api.hotline import Hotline
from fpga.card import CardError, Faults
from gen.compiler.emb import encode
from gen.compiler.hotline import Train
from gen.rtl.config import load
from hw.isa import HOTLINE
from tests.support import hotline_logs as make
from tests.support.faulty import CHANNELS, count_of
from tests.support.hotline_bench import HALVES, QUICK, RUNS, Bench, mixed, run_of

FLAT = {"none": 0, "pinned": ()}
CASES = {
    "rows": RUNS["rows"], "half": HALVES["rows"], "pooled": RUNS["pooled"], "pooled half": HALVES["pooled"],
    "learning": run_of(make.log(20, 300, rows=(3000,) * 3, payload=0, exponent=0.6, **FLAT), Train(1, 1, 0.0), 1.0),
    "image alone": replace(RUNS["rows"], words=RUNS["rows"].words[[5, 7]]),
    "cold": run_of(make.log(23, 90, none=0.05), Train(5, 2, -0.5), 0),
    "hot": run_of(make.log(24, 150, rows=(60, 70, 20)), Train(10, 3, -0.5), 1.0),
    "no index": run_of(make.log(25, 33, none=1.0), Train(10, 3, -0.5), 0.5),
    "shared rows, slow GPU": run_of(make.log(22, 24, rows=(9, 12, 5), **FLAT), Train(4, 4, -0.5), 0,
                                    times=Times(3000, 0)),
}


WIDE = replace(load("hotline").cores["hotline"], sets=1024)       # 64 lanes, 64 banks; fewer sets to clear


def pair(memory, config=make.TINY):
    return Bench(Counter(), memory, config=config), Bench(Counter(), memory, config=config, kind="twin")


def told(bench, run):
    """Runs it, compared with the oracle; all that the card says of it."""
    cycles = bench.same(run)
    return cycles, bench.collect(run)[0], {**bench.card.counters(), "cycles": 0}


@pytest.mark.turns(1)
@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
def test_is_its_card(memory):
    """Learning, popular and gathered mini-batches, the image saved: every counter, the cycles, the memory's and the
    ports'. A run after another finds the logger as that left it."""
    card, twin = pair(memory)
    with card.card, twin.card:
        for name, run in CASES.items():
            assert told(twin, run) == told(card, run), name


@pytest.mark.turns(1)
@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
def test_random_logs_with_stalls(memory):
    """Logs, mini-batches and GPUs of all kinds, every other run with stalls on all channels."""
    card, twin = pair(memory)
    with card.card, twin.card:
        for number in range(count_of(8)):
            draw = np.random.default_rng(number)
            log, how = make.wild(draw)
            times = Times(int(draw.integers(1, 2000)), int(draw.integers(0, 20)))
            run = run_of(log, how, float(draw.choice([0, 0.2, 1])), times=times)
            stalls = {channel: draw.uniform(0, 0.7) for channel in CHANNELS} if number % 2 else {}
            for each in card, twin:
                each.card.set_faults(Faults(seed=number, stalls=stalls))
            assert told(twin, run) == told(card, run), number


@pytest.mark.regress
def test_of_64_lanes():
    """All that the tiny core is held to, of the core of the `hotline` preset, which takes minutes to build."""
    learning = make.log(20, 1500, rows=(30_000,) * 6, payload=0, exponent=0.6, config=WIDE, **FLAT)
    runs = {"rows": mixed(False, config=WIDE), "pooled": mixed(True, config=WIDE, bag=3),
            "half": mixed(False, True, config=WIDE), "learning": run_of(learning, Train(4, 3, 0.0), 1.0)}
    card, twin = pair("ddr4", WIDE)
    with card.card, twin.card:
        for name, run in runs.items():
            assert told(twin, run) == told(card, run), name


def trained(kind, pooled):
    log = make.log(31, 160)
    tables, positions = log.layout.tables, log.layout.positions
    with Hotline(tables, positions, payload=3, card=kind, preset=make.TINY, times=QUICK) as hotline:
        hot = hotline.learn(log.indices[:60])
        done = hotline.train(make.model, log.indices, log.payload, rate=-0.05, batch=6, slots=3, pooled=pooled,
                             rows="float16")
        return done, hotline.last, hot.numbers.tolist(), [hotline.values(table.name).tobytes() for table in tables]


@pytest.mark.parametrize("pooled", [False, True])
def test_a_model_is_trained_alike(pooled):
    """Rows as trained, bit for bit, on both; where the core pools, it reads hot rows while the GPU trains them."""
    assert trained("twin", pooled) == trained("sim", pooled)


def test_goes_on_after_a_reset():
    """What the logger holds outlives it."""
    twin = Bench(Counter(), kind="twin")
    with twin.card:
        cycles = twin.same(CASES["rows"])
        twin.start(CASES["rows"])
        twin.card.step(500)
        twin.card.reset()
        assert twin.same(CASES["rows"]) == cycles


def test_what_it_does_not_model_is_refused():
    """In one sentence: a program that would end in an error, whose run then has not begun, and a GPU that is late."""
    run, twin = CASES["rows"], Bench(Counter(), kind="twin")
    with twin.card:
        wrong = run.copy()
        wrong.words = np.concatenate([run.words, encode("SAVE", {"out": run.mailbox_beats}, HOTLINE).reshape(1, -1)])
        image = twin.card._values._core.image.copy()
        with pytest.raises(CardError) as caught:
            twin.start(wrong)
        assert str(caught.value) == (f"the twin models no faults: instruction {len(run.words)} would end the run in "
                                     "BOUNDS")
        assert np.array_equal(twin.card._values._core.image, image)
        twin.start(run.copy(timeout=600, most=0))
        with pytest.raises(CardError, match="^the twin models no faults: the GPU takes longer than the timeout"):
            twin.card.wait(100_000)
        twin.card.reset()
        twin.same(run)
