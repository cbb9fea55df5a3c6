"""The Hotline core on the simulated card: bit for bit as the oracle says, and every fault ends with its cause.

All of it runs on the sizes of the preset `tiny`; one model serves the whole file but for the logger's errors. A GPU
stands beside the core; mini-batches are compared as they are taken, mailbox and rows at the end. Every run that ends
is checked by the card: rules of the bus, reads of memory that was never written, guard bytes around each buffer.
"""

import os
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fpga.card import CardViolation, Faults
from fpga.gpu import GATHERED, POPULAR, Times
from fpga.hotline import Hotline
from gen.compile import encode
from gen.hotline import Layout, Table, Train, indices_of
from gen.trace import read
from golden.hotline.randomizer import permute
from hw.isa import HOTLINE
from tests import hotline_logs as make
from tests.faulty import CHANNELS, UNTOUCHED, benches_of, count_of
from tests.hotline_bench import PORTS, Bench, Run, run_of
from tests.hotline_broken import BrokenCore, broken

TINY = make.TINY
LATENCY = 62        # cycles, at the most, of a wave through lookup and logger
tried: Counter = Counter()      # faults by kind
benches = benches_of(lambda memory="ideal", **options: Bench(tried, memory, **options), tried, "Hotline",
                     "HOTRAIL_HOTLINE_FAULTS")


@pytest.fixture
def bench(benches):
    return benches(seed=5)


def mixed(pooled, **options):
    """Learns, saves, deals: popular and gathered mini-batches, rows that several of them share."""
    log = make.log(21, 130, rows=(300, 200, 20), dim=11, exponent=0.8, **options)
    return run_of(log, Train(6, 3, -0.25, pooled), 0.4)


RUNS = {"rows": mixed(False), "pooled": mixed(True, bag=3)}


@pytest.fixture(scope="module", params=RUNS)
def standing(benches, request):
    """What faults are tried on, and its cycles."""
    bench = benches(seed=5)
    run = RUNS[request.param]
    return run, bench.same(run)


# Function

def test_standing_runs_use_it_all(bench):
    for run in RUNS.values():
        bench.same(run)
        assert {int(word) & 0xFF for word in run.words[:, 0]} == {item.opcode for item in HOTLINE.instructions} - {
            HOTLINE.instruction("LOAD").opcode}
        assert 0.2 < np.mean(bench.gpu.kinds) < 0.9 and len(bench.gpu.kinds) > 4 * run.how.slots


@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
def test_random_logs(benches, memory):
    """Tables, positions, bags, payloads, mini-batches and GPUs of all kinds; pooled and not."""
    bench = benches(memory)
    for _ in range(count_of(12)):
        log, how = make.wild(bench.draw)
        times = Times(int(bench.draw.integers(1, 2000)), int(bench.draw.integers(0, 20)))
        bench.same(run_of(log, how, float(bench.draw.choice([0, 0.2, 1])), times=times))
    assert not bench.card.violations()


def test_the_same_twice(bench, standing):
    run, cycles = standing
    assert bench.same(run) == bench.same(run) == cycles


def test_the_rate_of_learning(bench):
    """A beat of samples is a wave, however many indices it has; `waves` of them pass the logger at a time."""
    rates = []
    for bag in (0, 5):
        cycles = []
        for count in (300, 900):
            log = make.log(20, count, rows=(3000,) * 3, bag=bag, none=0, payload=0, pinned=(), exponent=0.6)
            run = run_of(log, Train(1, 1, 0.0), 1.0, saves=False)
            cycles.append(bench.same(run.copy(count=len(log.layout.positions) + 2)))
        rates.append((cycles[1] - cycles[0]) / 600)
    assert max(rates) < LATENCY / TINY.waves and abs(rates[0] - rates[1]) < 0.05, rates


def test_rows_are_updated_while_they_are_prefetched(bench):
    """Mini-batches of the same few cold rows, a slow GPU: rows of the next are there before their gradients are."""
    log = make.log(22, 120, rows=(9, 12, 5), none=0, pinned=())
    run = run_of(log, Train(4, 4, -0.5), 0, times=Times(3000, 0))
    bench.same(run)
    told, _ = bench.collect(run)
    within = bench.result.cold - bench.result.counters["dma_wr"]
    assert told["shared"] > within, "some are there from the mini-batch before"
    assert told["dma_rd"] < told["dma_wr"]


def test_all_cold(bench):
    log = make.log(23, 90, none=0.05)
    run = run_of(log, Train(5, 2, -0.5), 0)
    bench.same(run)
    assert set(bench.gpu.kinds) == {GATHERED} and bench.result.counters["hits"] == 0


def test_all_hot(bench):
    log = make.log(24, 150, rows=(60, 70, 20))
    run = run_of(log, Train(10, 3, -0.5), 1.0)
    bench.same(run)
    assert set(bench.gpu.kinds) == {POPULAR}


def test_samples_without_an_index(bench):
    log = make.log(25, 33, none=1.0)
    bench.same(run_of(log, Train(10, 3, -0.5), 0.5))
    assert set(bench.gpu.kinds) == {POPULAR}


def test_mini_batches_of_a_sample_and_of_a_whole_frame(bench):
    log = make.log(26, 40)
    for batch in (1, TINY.frame_beats // log.layout.sample_beats):
        bench.same(run_of(log, Train(batch, 1, -0.5), 0.4))


def test_a_frame_whose_rows_do_not_fit_is_dealt_in_parts(bench):
    log = make.log(27, 90, rows=(2000, 2000, 20), exponent=0.1, none=0)
    run = run_of(log, Train(16, 3, -0.5), 0)
    bench.same(run)
    assert len(bench.gpu.kinds) > -(-90 // 16)


def test_learning_that_stops_early(bench):
    """Learned from a few samples, from none, and aborted while it learns: what is hot is then whatever the logger
    holds, and dealing is right with it."""
    log = make.log(28, 200)
    how = Train(8, 3, -0.25)
    for learned in (0.01, 0.1, 0):
        bench.same(run_of(log, how, learned))
    whole = run_of(log, how, 1.0)
    at = bench.same(whole) // 8
    bench.start(whole)
    bench.card.step(at)
    bench.card.abort()
    bench.card.wait()
    bench.collect(whole)
    image, rest = image_of(bench, log), np.concatenate([log.layout.registers(), log.layout.train(how, 200, 0, 0)[1:]])
    bench.core.image[:] = image
    run = run_of(log, how)
    run.words = rest
    bench.same(run)
    assert 0 < np.count_nonzero(image) and GATHERED in bench.gpu.kinds


def saving(log, config=TINY):
    return Run(log, Train(1, 1, 0.0), encode("SAVE", {"out": 1}, HOTLINE)[None], np.zeros((0, config.words), np.uint32),
               np.zeros((0, config.words), np.uint32), np.zeros((0, config.words), np.uint32),
               log.layout.image_beats + 2, 0)


def image_of(bench, log):
    """What the core's logger holds, as (banks, sets, ways)."""
    run, config = saving(log), bench.config
    bench.start(run)
    told, left = bench.finish(run)
    assert told["code"] == 0
    image = left.mailbox.reshape(-1, config.words)
    assert (image[[0, -1]] == UNTOUCHED).all()
    return image[1:-1].reshape(config.sets, config.banks, 4).swapaxes(0, 1)


def test_the_logger_keeps_its_rows_from_run_to_run_and_images_are_loaded(bench):
    log, other = make.log(29, 300), make.log(30, 300)
    layout, how = log.layout, Train(8, 3, -0.25)
    bench.same(run_of(log, how, 1.0))
    image = bench.core.image.copy()
    assert (image_of(bench, log) == image).all()
    bench.same(run_of(other, how, 1.0))
    assert (bench.core.image != image).any()
    run = run_of(log, how)
    flat = image.swapaxes(0, 1).reshape(-1, TINY.words)
    run.inputs = np.concatenate([flat, run.inputs])
    run.words = np.concatenate([layout.registers(), layout.train(how, 300, len(flat), 0)])
    bench.same(run)
    assert (bench.core.image == image).all() and POPULAR in bench.gpu.kinds


def test_two_logs_in_a_program(bench):
    """Learn, deal, learn more, deal again: mini-batches are numbered on, rows go on from what they are."""
    log, how = make.log(31, 120), Train(7, 3, -0.25)
    run = run_of(log, how, 0.3, saves=False)
    registers = len(log.layout.positions)
    more = run.words[registers + 1:].copy()
    run.words = np.concatenate([run.words, more])
    bench.same(run)
    assert len(bench.gpu.kinds) > 2 * 120 // 7


def test_programs_that_end_early(bench, standing):
    run, _ = standing
    for count in range(len(run.words)):
        short = run.copy(count=count)
        bench.same(short)
        assert not bench.seen
        tried["short programs"] += 1
    bench.mend(run)


def test_the_user_call():
    """fpga.hotline on the simulated card: every row is trained, hot or cold, as plain NumPy would."""
    from tests.fpga.test_hotline import RATE, Watched, orders, plain
    log = make.log(32, 150)
    layout = log.layout
    with Hotline(layout.tables, layout.positions, payload=layout.payload, preset=TINY, memory="ideal",
                 times=Times(200, 2), limit_cycles=2_000_000) as hotline:
        hotline.learn(log.indices[:60])
        for pooled in (False, True):
            tables, watched = [hotline.values(table.name) for table in layout.tables], Watched()
            done = hotline.train(watched, log.indices, log.payload, rate=RATE, batch=8, pooled=pooled)
            order = orders(hotline, log, None)(watched.seen)
            assert sorted(np.concatenate(order).tolist()) == list(range(150)) and 0 < done.popular < 150
            stale = list(plain(log, order, tables=tables))
            if not pooled:      # where the core pools, it may read a hot row before the GPU's last step
                for (vectors, _), wanted in zip(watched.seen, stale, strict=True):
                    np.testing.assert_allclose(vectors, wanted, rtol=2e-4, atol=1e-5)
                for table, values in zip(layout.tables, tables, strict=True):
                    np.testing.assert_allclose(hotline.values(table.name), values, rtol=2e-4, atol=1e-5)


def test_a_real_log_through_learning_and_dealing(bench):
    """Users, animes, types and bags of genres; the embedding buffer, the mailbox and the logger are all too small."""
    folder = os.environ.get("HOTRAIL_DATA")
    if not folder or not os.path.exists(os.path.join(folder, "anime_420k.npz")):
        pytest.skip("needs anime_420k.npz in the folder that HOTRAIL_DATA names")
    trace = read(os.path.join(folder, "anime_420k.npz"))
    places = {"user": 1, "anime": 1, "type": 1, "genre": 13}
    indices, positions = indices_of(trace, places)
    chosen = np.random.default_rng(1).permutation(len(indices))[:count_of(2500)]
    random = np.random.default_rng(2)
    tables = [Table(name, random.standard_normal((trace.rows[name], 8), np.float32), name == "type") for name in places]
    layout = Layout(TINY, tables, positions, 1)
    labels = np.asarray(trace.values["label"])[chosen, None].astype(np.float32)
    run = run_of(make.Log(layout, indices[chosen], labels), Train(8, 4, -0.125), 0.5)
    bench.same(run)
    kinds, image = bench.gpu.kinds, bench.core.image
    popular = bench.result.counters["popular"] / len(chosen)
    print(f"{popular:.1%} of {len(chosen)} samples popular with {np.count_nonzero(image)} hot rows, {len(kinds)} "
          f"mini-batches, {bench.result.counters['dma_wr']} rows updated")
    assert 0.02 < popular < 0.98 and np.count_nonzero(image) > 0.4 * image.size
    assert 0 < sum(kinds) < len(kinds)


def test_cards_side_by_side():
    pair = [Bench(tried, process=True, seed=seed) for seed in (1, 2)]
    try:
        for bench in pair:
            log, how = make.wild(bench.draw)
            bench.same(run_of(log, how))
    finally:
        for bench in pair:
            bench.card.close()


# Stalls

@pytest.mark.parametrize("channel", [*CHANNELS, "all"])
@pytest.mark.parametrize("share", [0.3, 0.8])
def test_stalls(bench, standing, channel, share):
    bench.stalls(standing[0], channel, share)


def test_random_logs_with_stalls(benches):
    bench = benches(seed=6)
    for seed in range(count_of(6)):
        bench.card.set_faults(Faults(seed=seed, stalls=dict.fromkeys(CHANNELS, 0.6)))
        log, how = make.wild(bench.draw)
        bench.same(run_of(log, how))
        tried["stalls"] += 1


# Programs and arguments that are wrong

def last_of(run, name):
    return [n for n, words in enumerate(run.words) if words[0] & 0xFF == HOTLINE.instruction(name).opcode][-1]


def put(name, field, value):
    """Gives a field of the last such instruction a value, or one made of what it has."""
    def change(run):
        item, words = HOTLINE.field(field), run.words[last_of(run, name)]
        mask = (1 << item.bits) - 1
        old = int(words[item.word]) >> item.low & mask
        new = value(old) if callable(value) else value
        words[item.word] = int(words[item.word]) & ~(mask << item.low) & 0xFFFFFFFF | new << item.low
    return change


def bit(name, word, number):
    def change(run):
        run.words[last_of(run, name), word] |= np.uint32(1 << number)
    return change


def every(*changes):
    def change(run):
        for one in changes:
            one(run)
    return change


def shorter(arena, beats=1):
    """The buffer ends before what the program uses of it."""
    def change(run):
        if arena in ("mailbox", "gradients"):
            setattr(run, f"{arena}_beats", getattr(run, f"{arena}_beats") - beats)
        else:
            setattr(run, arena, getattr(run, arena)[:-beats])
    return change


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
       for name, number in (("S_WR", 12), ("CLEAR", 15), ("LEARN", 24), ("TRAIN", 31), ("SAVE", 30))},
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


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs(bench, name):
    """Code and place are those of the oracle."""
    run = RUNS["rows"].copy()
    WRONG[name](run)
    where = ("code", "instruction", "detail")
    if name in ("an index too large", "a register that was not written"):
        where += ("sample", "position")
    bench.refused(run, where)
    tried["wrong programs"] += 1
    bench.mend(RUNS["rows"])


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


def test_pooled_programs_that_are_wrong(bench):
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


def test_rows_outside_their_buffer(bench):
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


def test_garbage(bench):
    """Instructions of random bits end as the oracle says."""
    for _ in range(count_of(20)):
        run = RUNS["rows"].copy()
        at = int(bench.draw.integers(len(run.words)))
        run.words[at] = bench.draw.integers(0, 1 << 32, 16)
        if bench.draw.integers(2):
            run.words[at, 0] &= 0xFFF
        bench.refused(run)
        tried["garbage"] += 1
    bench.mend(RUNS["rows"])


# The GPU

@pytest.mark.parametrize("taken", [0, 1, 5])
def test_a_gpu_that_stops(bench, standing, taken):
    """TIMEOUT, with how many it had finished."""
    run = standing[0].copy(most=taken, timeout=2000)
    bench.start(run)
    told, left = bench.finish(run)
    assert (told["code"], told["detail"]) == (bench.codes["TIMEOUT"], taken), told
    bench.partly(run, told, left)
    tried["dead GPUs"] += 1
    bench.mend(standing[0])


@pytest.mark.parametrize("ahead", [1, 2, HUGE])
@pytest.mark.parametrize("taken", [0, 4])
def test_a_gpu_that_claims_too_much(bench, standing, taken, ahead):
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

@pytest.mark.parametrize("port, way", PORTS)
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


@pytest.mark.parametrize("arena, detail", [("inputs", 1), ("rows", 4), ("gradients", 3), ("hot", 5)])
@pytest.mark.parametrize("share", [0, 0.5])
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
    with pytest.raises(CardViolation) as error:
        bench.card.wait(bench.limit)
    bench.busy = False
    assert {v.rule for v in error.value.violations} == {"never_written"}
    block = bench.card.read(bench.buffers["result"], np.uint32)
    told = [int(block[HOTLINE.value(name).word]) for name in ("code", "detail")]
    assert told == [bench.codes["READ_ERROR"], detail]
    bench.card.free(bench.buffers.pop(arena))
    if arena == "gradients":
        bench.card.free(unwritten)
    tried["never written"] += 1
    bench.mend(run)


# Abort and reset

def test_abort_at_any_cycle(bench, standing):
    """While it learns, deals, gathers, updates and waits for the GPU."""
    bench.aborts(*standing, 16)


def test_abort_with_stalls(bench, standing):
    run, cycles = standing
    for seed in range(count_of(8)):
        bench.card.set_faults(Faults(seed=seed, stalls=dict.fromkeys(CHANNELS, 0.7)))
        bench.abort(run, bench.draw.integers(1, 2 * cycles))


def test_reset_at_any_cycle(bench, standing):
    """In either phase; the next run is right."""
    bench.resets(*standing, 16)


def test_faults_with_the_ddr4_memory(benches):
    benches("ddr4", seed=5).some_of_each(RUNS["rows"])


def test_a_hang_is_told(bench):
    """The card, not the core: too few cycles are an error of their own."""
    bench.hang(RUNS["rows"])


# Errors of the memories on chip

@pytest.fixture(scope="module")
def worn():
    """A card with a core whose logger has a set with wrong parity in every bank."""
    with broken():
        bench = Bench(tried, core=BrokenCore(TINY))
    yield bench
    bench.card.close()


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


@pytest.mark.parametrize("values, sentence", [
    ({"lanes": 4}, "lanes must be at least 8, the words of a beat, not 4"),
    ({"words": 16, "lanes": 16, "positions": 8}, "positions must be at least 16, the words of a beat, not 8"),
    ({"sets": 65536, "banks": 64, "queue": 1024}, None),
    ({"banks": 4, "sets": 8}, "sets must be a power of two from 16 to 65536, not 8"),
    ({"embedding_beats": 16}, "embedding_beats must be at least 32, the row slots, not 16"),
    ({"batches": 3}, "batches must be one of 2, 4, not 3"),
    ({"policy": "lru"}, "policy must be one of 'srrip', 'sampled', 'steady', not 'lru'"),
    ({"policy": "srrip"}, "insert_log2 must be 0 with the policy srrip, by which every miss comes in, not 2"),
    ({"frames": 1}, "frames must be a whole number from 2 to 16, not 1"),
])
def test_illegal_config_wrong(values, sentence):
    if sentence is None:
        assert replace(TINY, **values).domain_bits == 36
        return
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        replace(TINY, **values)
