"""The Hotline core on the simulated card: faults that it alone meets end with their cause, and the next run is right.
Those that every core meets are in test_card_faults.py, programs with mistakes in test_programs.py.

All of it runs on the sizes of the preset `tiny`, as tests/fpga/card/test_card_hotline.py does; one model serves the
whole file but for the logger's errors.
"""

import numpy as np
import pytest

from fpga.api.gpu import Times
from gen.compiler.hotline import Train
from golden.hotline.randomizer import permute
from hw.isa import HOTLINE
from tests.support import hotline_logs as make
from tests.support.hotline_bench import HALVES, RUNS, Bench, fixtures, run_of, tried
from tests.support.hotline_broken import BrokenCore, broken
from tests.support.program_mutator import ProgramMutator, shorter

UNIT = "hotline/core"

TINY = make.TINY
benches, bench, standing = fixtures()


# Programs and arguments that are wrong

put = ProgramMutator(HOTLINE).put
LAST = (1 << 32) - 1      # of a word


@pytest.mark.testpoint("corner_values")
def test_an_index_too_large_while_dealing(bench):
    """Behind the samples that are learned."""
    for sample in (70, 100, 129):
        run = RUNS["rows"].copy()
        run.inputs.reshape(130, -1)[sample, 3] = 200
        told, _ = bench.refused(run, ("code", "instruction", "sample", "position", "detail"))
        assert [told[name] for name in ("code", "sample", "position", "detail")] == [
            bench.codes["INDEX"], sample, 3, 200]
        tried["wrong indices"] += 1
    bench.mend(RUNS["rows"])


@pytest.mark.testpoint("corner_values")
def test_pooled_programs_that_are_wrong(bench):
    """A pitch too small, hot rows cut short and positions joined wrongly are refused."""
    for change in (put("TRAIN", "mailbox_pitch", lambda pitch: pitch - 1), shorter("hot"),
                   lambda run: put("S_WR", "join", 1)(Shown(run))):
        run = RUNS["pooled"].copy()
        change(run)
        bench.refused(run)
        tried["wrong programs"] += 1
    bench.mend(RUNS["pooled"])


class Shown:
    """Of a run, the first instruction alone."""

    def __init__(self, run):
        self.words = run.words[:1]


@pytest.mark.testpoint("corner_values")
def test_rows_outside_their_buffer(bench):
    """A row that begins or ends behind its buffer ends the run with BOUNDS."""
    run = RUNS["rows"]
    bench.same(run)
    places = np.unique(np.concatenate([batch.places for batch in bench.result.batches]))
    for place in (places[-1], places[len(places) // 2], places[0]):
        cut = run.copy()
        cut.rows = run.rows[:place + 1]     # a row has two beats
        told, _ = bench.refused(cut)
        assert (told["code"], told["detail"]) == (bench.codes["BOUNDS"], 3)
        tried["wrong programs"] += 1
    bench.mend(run)


# The GPU

@pytest.mark.turns(1)
@pytest.mark.parametrize("taken", [0, 1, 5])
@pytest.mark.testpoint("errors")
def test_a_gpu_that_stops(bench, standing, taken):
    """TIMEOUT, with how many it had finished."""
    stopped(bench, standing[0], taken)


def stopped(bench, run, taken):
    """Behind so many mini-batches."""
    cut = run.copy(most=taken, timeout=2000)
    bench.start(cut)
    told, left = bench.finish(cut)
    assert (told["code"], told["detail"]) == (bench.codes["TIMEOUT"], taken), told
    bench.cut(cut, told, left)
    tried["dead GPUs"] += 1
    bench.mend(run)


@pytest.mark.turns(1)
@pytest.mark.parametrize("ahead", [1, 2, LAST])
@pytest.mark.parametrize("taken", [0, 4])
@pytest.mark.testpoint("errors")
def test_a_gpu_that_claims_too_much(bench, standing, taken, ahead):
    """OVERRUN, with what it claimed to have finished."""
    run = standing[0].copy(most=taken)
    bench.start(run)
    bench.serve(run)
    dispatched = taken
    while True:     # all that there is room for has been dispatched
        bench.card.step(3000)
        now = int(bench.card.read(bench.buffers["result"], np.uint32, 1, 4 * HOTLINE.value("dispatched").word)[0])
        if now == dispatched:
            break
        dispatched = now
    claimed = (dispatched + ahead) & LAST
    bench.card.write(bench.buffers["result"], np.array([claimed], np.uint32), 4 * HOTLINE.value("finished").word)
    bench.card.wait(bench.limit)
    told, _ = bench.collect(run)
    if ahead == LAST:       # one less than dispatched: a claim, but no lie, where the GPU stops thereafter
        assert told["code"] in (bench.codes["TIMEOUT"], bench.codes["OVERRUN"])
    else:
        assert (told["code"], told["detail"]) == (bench.codes["OVERRUN"], claimed), told
    tried["lying GPUs"] += 1
    bench.mend(standing[0])


@pytest.mark.turns(1)
@pytest.mark.testpoint("backpressure_both_sides")
def test_a_gpu_of_any_speed(bench, standing):
    """What is dispatched does not depend on it, only the order of the classes."""
    run, _ = standing
    cycles = {}
    for times in (Times(0, 0), Times(1, 1), Times(400, 0), Times(5000, 0)):
        cycles[times.batch] = bench.same(run.copy(times=times))
        tried["GPUs"] += 1
    assert cycles[5000] > cycles[0]
    bench.mend(run)


# Errors of the bus

@pytest.mark.turns(1)
@pytest.mark.parametrize("arena, detail", [("inputs", 1), ("rows", 4), ("gradients", 3), ("hot", 5)])
@pytest.mark.parametrize("share", [0, 0.5])
@pytest.mark.testpoint("errors")
def test_memory_that_was_never_written(bench, arena, detail, share):
    """ECC answers with an error, which the core tells with its place, and the card names the address."""
    run = RUNS["pooled"]
    bench.holes[arena] = int(share * len(getattr(run, arena))) if arena in ("inputs", "rows") else 0
    try:
        bench.start(run)
    finally:
        bench.holes.clear()
    if arena == "gradients":    # the GPU writes them elsewhere
        unwritten = bench.buffers.pop(arena)
        bench.buffers[arena] = bench.card.allocate(unwritten.bytes, "elsewhere")
    bench.serve(run)
    assert bench.never_written()[1] == detail
    bench.card.free(bench.buffers.pop(arena))
    if arena == "gradients":
        bench.card.free(unwritten)
    bench.mend(run)


@pytest.mark.turns(1)
@pytest.mark.parametrize("name", HALVES)
@pytest.mark.testpoint("errors")
def test_faults_in_half_precision(bench, name):
    """Aborts, errors and a GPU that stops, while beats wait for their other half."""
    run = HALVES[name]
    bench.some_of_each(run)
    bench.resets(run, bench.same(run), 3)
    stopped(bench, run, 2)


@pytest.mark.testpoint("watchdog")
def test_a_limit_that_the_memory_does_not_keep(bench, standing):
    """Fewer cycles than a read takes, and the report: the run ends with STALLED in the register alone. With 0 there is
    no limit."""
    run, _ = standing
    bench.start(run.copy(timeout=8))
    bench.finish_stalled(run)
    bench.collect(run)
    assert bench.card.code() == bench.codes["STALLED"]
    bench.rest()
    bench.mend(run.copy(timeout=0))


# Errors of the memories on chip

@pytest.fixture(scope="module")
def worn():
    """A card with a core whose logger has a set with wrong parity in every bank."""
    with broken():
        bench = Bench(tried, core=BrokenCore(TINY), opt="-O0")
    yield bench
    bench.card.close()


@pytest.mark.regress
@pytest.mark.testpoint("errors")
def test_wrong_parity_in_the_logger(worn):
    """The run ends with the bank, in either phase; a log that does not come there is none the worse."""
    log = make.log(41, 160, rows=(300, 200, 20), pinned=())
    layout = log.layout
    places = permute(layout.first[layout.table_of] + np.maximum(log.indices, 0), TINY.domain_bits)
    hurt = (log.indices >= 0) & (places // TINY.banks % TINY.sets == TINY.sets - 1)
    assert hurt.any()
    banks = set((places % TINY.banks)[hurt].tolist())
    sound = np.where(hurt, -1, log.indices)
    good = run_of(make.Log(layout, sound, log.payload), Train(6, 3, -0.25), 0.5, saves=False)
    for learned in (1.0, 0.5):
        # Learned from samples that do not come there, if not from all: then dealing meets it.
        indices = log.indices if learned == 1 else np.concatenate([sound[:80], log.indices[80:]])
        assert learned == 1 or hurt[80:].any()
        run = run_of(make.Log(layout, indices, log.payload), Train(6, 3, -0.25), learned, saves=False)
        worn.start(run)
        told, _ = worn.finish(run)
        assert told["code"] == worn.codes["MEMORY"] and told["detail"] in banks, told
        assert told["instruction"] == len(layout.positions) + (1 if learned == 1 else 2)
        tried["wrong parity"] += 1
        worn.same(good)
