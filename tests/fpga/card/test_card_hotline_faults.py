"""The Hotline core on the simulated card: every fault ends with its cause, and the next run is right.

All of it runs on the sizes of the preset `tiny`, as tests/fpga/card/test_card_hotline.py does; one model serves
the whole
file but for the logger's errors.
"""

import numpy as np
import pytest

from fpga.api.gpu import Times
from fpga.card import Faults
from gen.compiler.hotline import Train
from golden.hotline.randomizer import permute
from hw.isa import HOTLINE
from tests.support import hotline_logs as make
from tests.support.faulty import CHANNELS, count_of
from tests.support.hotline_bench import HALVES, PORTS, RUNS, Bench, fixtures, run_of, tried
from tests.support.hotline_broken import BrokenCore, broken
from tests.support.program_mutator import ProgramMutator, every, shorter

UNIT = "hotline/core"

TINY = make.TINY
benches, bench, standing = fixtures()


# Programs and arguments that are wrong

spoil = ProgramMutator(HOTLINE)
put, bit = spoil.put, spoil.bit


def foreign(run):
    """An index that its table does not have."""
    run.inputs.reshape(len(run.log.indices), -1)[len(run.log.indices) * 3 // 4, 1] = 200


def twice(run):
    """One register is written twice, another one not at all."""
    run.words[1] = run.words[0]


HUGE = (1 << 32) - 1
WRONG = {
    "opcode 0": put("TRAIN", "opcode", 0), "opcode 7": put("LEARN", "opcode", 7),
    "opcode 255": put("S_WR", "opcode", 255),
    **{f"reserved bit {number} of {name}": bit(name, 0, number)
       for name, number in (("S_WR", 13), ("CLEAR", 15), ("LEARN", 24), ("TRAIN", 31), ("SAVE", 30))},
    "reserved bit of word 9": bit("S_WR", 9, 8), "reserved bit of word 9 of TRAIN": bit("TRAIN", 9, 31),
    "more positions than registers": put("S_WR", "position", TINY.positions),
    "position 255": put("S_WR", "position", 255), "join 3": put("S_WR", "join", 3),
    "a pinned row that joins": every(put("S_WR", "pinned", 1), put("S_WR", "join", 1)),
    "a table without rows": put("S_WR", "table_rows", 0), "2^31 rows": put("S_WR", "table_rows", 1 << 31),
    "rows past the domain": put("S_WR", "first_low", (1 << TINY.domain_bits) - 1),
    "rows far past the domain": put("S_WR", "first_high", 255),
    **{f"no {field} of {name}": put(name, field, 0) for name, fields in (
        ("LEARN", ("count", "sample_beats", "indices")),
        ("TRAIN", ("count", "sample_beats", "indices", "batch", "mailbox_slots", "mailbox_pitch", "gradients_pitch")))
       for field in fields},
    "too long samples": put("LEARN", "sample_beats", 9), "the longest samples": put("TRAIN", "sample_beats", 255),
    "more indices than registers": every(put("TRAIN", "indices", TINY.positions + 1), put("TRAIN", "sample_beats", 3)),
    "more indices than words": put("LEARN", "indices", TINY.words + 1),
    "indices 255": put("TRAIN", "indices", 255),
    "rows of 2^7 beats": put("TRAIN", "row_beats_log2", 7),
    "rows that do not fit the buffer": put("TRAIN", "row_beats_log2", 6),
    "a mini-batch of more than a frame": put("TRAIN", "batch", TINY.frame_beats + 1),
    "the largest mini-batch": put("TRAIN", "batch", 65535),
    "samples past the inputs": put("TRAIN", "source", 1), "samples that wrap": put("LEARN", "source", HUGE),
    "too many samples": put("TRAIN", "count", HUGE), "too many to learn": put("LEARN", "count", 1 << 20),
    "inputs a beat short": shorter("inputs"), "mailbox short": shorter("mailbox", TINY.sets * TINY.banks * 4 // 8 + 1),
    "no room for the image": shorter("mailbox"), "gradients a beat short": shorter("gradients"),
    "a mailbox pitch too small": put("TRAIN", "mailbox_pitch", lambda pitch: pitch - 1),
    "too many slots": put("TRAIN", "mailbox_slots", 255), "slots that wrap": put("TRAIN", "mailbox_pitch", HUGE),
    "a gradients' pitch too small": put("TRAIN", "gradients_pitch", lambda pitch: pitch - 1),
    "gradients that wrap": put("TRAIN", "gradients_pitch", HUGE),
    "an image past the mailbox": put("SAVE", "out", lambda out: out + 1),
    "an image that wraps": put("SAVE", "out", HUGE), "an index too large": foreign,
    "a register that was not written": twice,
}


@pytest.mark.turns(11)
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.testpoint("corner_values")
def test_wrong_programs(bench, name):
    """Every field wrong, at its end or past it: code and place are those of the oracle."""
    run = RUNS["rows"].copy()
    WRONG[name](run)
    where = ("code", "instruction", "detail")
    if name in ("an index too large", "a register that was not written"):
        where += ("sample", "position")
    bench.refused(run, where)
    tried["wrong programs"] += 1
    bench.mend(RUNS["rows"])


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

@pytest.mark.turns(2)
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


@pytest.mark.turns(4, of="faults")
@pytest.mark.parametrize("ahead", [1, 2, HUGE])
@pytest.mark.parametrize("taken", [0, 4])
@pytest.mark.testpoint("errors")
def test_a_gpu_that_claims_too_much(bench, standing, taken, ahead):
    """OVERRUN, with what it claimed to have finished."""
    run = standing[0].copy(most=taken)
    bench.start(run)
    bench.serve(run)
    dealt = taken
    while True:     # all that there is room for has been dealt
        bench.card.step(3000)
        now = int(bench.card.read(bench.buffers["result"], np.uint32, 1, 4 * HOTLINE.value("dealt").word)[0])
        if now == dealt:
            break
        dealt = now
    claimed = (dealt + ahead) & HUGE
    bench.card.write(bench.buffers["result"], np.array([claimed], np.uint32), 4 * HOTLINE.value("finished").word)
    bench.card.wait(bench.limit)
    told, _ = bench.collect(run)
    if ahead == HUGE:       # one less than dealt: a claim, but no lie, where the GPU stops thereafter
        assert told["code"] in (bench.codes["TIMEOUT"], bench.codes["OVERRUN"])
    else:
        assert (told["code"], told["detail"]) == (bench.codes["OVERRUN"], claimed), told
    tried["lying GPUs"] += 1
    bench.mend(standing[0])


@pytest.mark.turns(4, of="faults")
@pytest.mark.testpoint("backpressure_both_sides")
def test_a_gpu_of_any_speed(bench, standing):
    """What is dealt does not depend on it, only the order of the classes."""
    run, _ = standing
    cycles = {}
    for times in (Times(0, 0), Times(1, 1), Times(400, 0), Times(5000, 0)):
        cycles[times.batch] = bench.same(run.copy(times=times))
        tried["GPUs"] += 1
    assert cycles[5000] > cycles[0]
    bench.mend(run)


# Errors of the bus

@pytest.mark.turns(4, of="faults")
@pytest.mark.parametrize("port, way", PORTS)
@pytest.mark.testpoint("errors")
def test_error_responses(bench, standing, port, way):
    """On any beat; a read's is told with what was read, a write's with what was written."""
    run, _ = standing
    of = {("m00_axi", "read"): {0, 1, 2, 3, 5}, ("m01_axi", "read"): {4}, ("m00_axi", "write"): {0, 1},
          ("m01_axi", "write"): {2}}[port, way]
    seen = set()
    for told in bench.error_responses(run, port, way, 12, progress=4):
        if told["code"]:
            assert told["detail"] in of, told
            seen.add(told["detail"])
    assert seen


@pytest.mark.turns(3)
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


@pytest.mark.turns(4, of="faults")
@pytest.mark.parametrize("name", HALVES)
@pytest.mark.testpoint("errors")
def test_faults_in_half_precision(bench, name):
    """Aborts, errors and a GPU that stops, while beats wait for their other half."""
    run = HALVES[name]
    bench.some_of_each(run)
    bench.resets(run, bench.same(run), 3)
    stopped(bench, run, 2)


# Abort and reset

@pytest.mark.turns(1)
@pytest.mark.testpoint("errors")
def test_abort_at_any_cycle(bench, standing):
    """While it learns, deals, gathers, updates and waits for the GPU."""
    bench.aborts(*standing, 16)


@pytest.mark.turns(1)
@pytest.mark.testpoint("killed_hosts")
def test_a_host_killed_at_any_cycle(bench, standing):
    """Its driver resets the core alone: nothing is written from then on, and the next run is right."""
    bench.kills(*standing, 20)


@pytest.mark.turns(4, of="faults")
@pytest.mark.testpoint("watchdog")
def test_a_memory_that_never_answers(bench, standing):
    """The watchdog ends the run with what owed an answer, and runs are right again when it has come."""
    bench.silences(standing[0].copy(timeout=6000))


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


@pytest.mark.turns(1)
@pytest.mark.testpoint("errors")
def test_abort_with_stalls(bench, standing):
    """An abort while every channel stalls."""
    run, cycles = standing
    for seed in range(count_of(8)):
        bench.card.set_faults(Faults(seed=seed, stalls=dict.fromkeys(CHANNELS, 0.7)))
        bench.abort(run, bench.draw.integers(1, 2 * cycles))


@pytest.mark.turns(1)
@pytest.mark.testpoint("reset_midstream")
def test_reset_at_any_cycle(bench, standing):
    """Reset at any cycle of either phase: the next run is right."""
    bench.resets(*standing, 16)


@pytest.mark.turns(4, of="faults")
@pytest.mark.testpoint("errors")
def test_faults_with_the_ddr4_memory(benches):
    """A few faults of each kind with the times of DDR4 memory."""
    benches("ddr4", seed=5).some_of_each(RUNS["rows"])


def test_a_hang_is_told(bench):
    """The card, not the core: too few cycles are an error of their own."""
    bench.hang(RUNS["rows"])


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
