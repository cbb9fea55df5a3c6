"""The Hotline core on the simulated card: bit for bit as the oracle says.

All of it runs on the sizes of the preset `tiny`; one model serves the whole file. A GPU stands beside the core;
mini-batches are compared as they are taken, mailbox and rows at the end. Every run that ends is checked by the card:
rules of the bus, reads of memory that was never written, guard bytes around each buffer.
"""

from dataclasses import replace

import numpy as np
import pytest

from fpga.api.gpu import GATHERED, POPULAR, Times
from fpga.api.hotline import Hotline
from fpga.card import Faults
from gen.compiler.emb import encode
from gen.compiler.hotline import Layout, Table, Train, indices_of
from golden.hotline.randomizer import permute
from hw.isa import HOTLINE
from tests.support import hotline_logs as make
from tests.support.faulty import UNTOUCHED, count_of
from tests.support.hotline_bench import HALVES, RUNS, Bench, Run, fixtures, run_of, tried
from tests.support.program_mutator import ProgramMutator

UNIT = "hotline/core"

TINY = make.TINY
MUTATOR = ProgramMutator(HOTLINE)
CYCLES_A_SAMPLE = 150   # of the real log, at the most
LATENCY = 62        # cycles, at the most, of a wave through lookup and logger
benches, bench, standing = fixtures()


# Function

def test_standing_runs_use_it_all(bench):
    for run in (*RUNS.values(), *HALVES.values()):
        bench.same(run)
        assert {int(word) & 0xFF for word in run.words[:, 0]} == {item.opcode for item in HOTLINE.instructions} - {
            HOTLINE.instruction("LOAD").opcode}
        assert 0.2 < np.mean(bench.gpu.kinds) < 0.9 and len(bench.gpu.kinds) > 4 * run.how.slots


@pytest.mark.testpoint("latency_and_rate_as_documented")
def test_the_rate_of_learning(bench):
    """Samples are learned as fast as waves pass the logger: a beat of samples is a wave, however many indices it has;
    `waves` of them pass the logger at a time."""
    rates = []
    for bag in (0, 5):
        cycles = []
        for count in (300, 900):
            log = make.log(20, count, rows=(3000,) * 3, bag=bag, none=0, payload=0, pinned=(), exponent=0.6)
            run = run_of(log, Train(1, 1, 0.0), 1.0, saves=False)
            cycles.append(bench.same(run.copy(count=len(log.layout.positions) + 2)))
        rates.append((cycles[1] - cycles[0]) / 600)
    assert max(rates) < LATENCY / TINY.waves and abs(rates[0] - rates[1]) < 0.05, rates


@pytest.mark.testpoint("never_stale")
def test_rows_are_updated_while_they_are_prefetched(bench):
    """Mini-batches of the same few cold rows, a slow GPU: rows of the next are there before their gradients are."""
    log = make.log(22, 120, rows=(9, 12, 5), none=0, pinned=())
    run = run_of(log, Train(4, 4, -0.5), 0, times=Times(3000, 0))
    bench.same(run)
    told, _ = bench.collect(run)
    within = bench.result.cold - bench.result.counters["dma_wr"]
    assert told["shared"] > within, "some are there from the mini-batch before"
    assert told["dma_rd"] < told["dma_wr"]


@pytest.mark.testpoint("corner_values")
def test_all_cold(bench):
    """Nothing is learned: every mini-batch is gathered."""
    log = make.log(23, 90, none=0.05)
    run = run_of(log, Train(5, 2, -0.5), 0)
    bench.same(run)
    assert set(bench.gpu.kinds) == {GATHERED} and bench.result.counters["hits"] == 0


@pytest.mark.testpoint("corner_values")
def test_all_hot(bench):
    """Every row is learned: every mini-batch is popular."""
    log = make.log(24, 150, rows=(60, 70, 20))
    run = run_of(log, Train(10, 3, -0.5), 1.0)
    bench.same(run)
    assert set(bench.gpu.kinds) == {POPULAR}


@pytest.mark.testpoint("corner_values")
def test_samples_without_an_index(bench):
    """Samples whose positions are all NONE are popular."""
    log = make.log(25, 33, none=1.0)
    bench.same(run_of(log, Train(10, 3, -0.5), 0.5))
    assert set(bench.gpu.kinds) == {POPULAR}


@pytest.mark.testpoint("corner_values")
def test_mini_batches_of_a_sample_and_of_a_whole_frame(bench):
    """The smallest mini-batches and the largest."""
    log = make.log(26, 40)
    for batch in (1, TINY.frame_beats // log.layout.sample_beats):
        bench.same(run_of(log, Train(batch, 1, -0.5), 0.4))


@pytest.mark.testpoint("corner_values")
def test_a_frame_whose_rows_do_not_fit_is_dispatched_in_parts(bench):
    """A frame with more cold rows than there are slots becomes several mini-batches."""
    log = make.log(27, 90, rows=(2000, 2000, 20), exponent=0.1, none=0)
    run = run_of(log, Train(16, 3, -0.5), 0)
    bench.same(run)
    assert len(bench.gpu.kinds) > -(-90 // 16)


@pytest.mark.testpoint("corner_values")
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


@pytest.mark.testpoint("reset_midstream")
def test_the_logger_keeps_its_rows_from_run_to_run_and_images_are_loaded(bench):
    """The logger keeps its rows from run to run; an image that is loaded puts those of an earlier run back."""
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


@pytest.mark.testpoint("random_match_golden")
def test_two_logs_in_a_program(bench):
    """Learn, dispatch, learn more, dispatch again: mini-batches are numbered on, rows go on from what they are."""
    log, how = make.log(31, 120), Train(7, 3, -0.25)
    run = run_of(log, how, 0.3, saves=False)
    registers = len(log.layout.positions)
    more = run.words[registers + 1:].copy()
    run.words = np.concatenate([run.words, more])
    bench.same(run)
    assert len(bench.gpu.kinds) > 2 * 120 // 7


@pytest.mark.testpoint("smoke")
def test_programs_that_end_early(bench, standing):
    """The first instructions of a program, as many as one likes, are a program that ends well."""
    run, _ = standing
    for count in range(len(run.words)):
        short = run.copy(count=count)
        bench.same(short)
        assert not bench.seen
        tried["short programs"] += 1
    bench.mend(run)


@pytest.mark.testpoint("random_match_golden")
@pytest.mark.parametrize("gpus", [1, pytest.param(4, marks=pytest.mark.regress)])
def test_the_user_call(gpus):
    """fpga.api.hotline on the simulated card: every row is trained, hot or cold, as plain NumPy would."""
    from tests.fpga.api.test_hotline import RATE, Watched, order_of, plain
    config = replace(TINY, gpus=gpus)
    log = make.log(32, 150, config=config)
    layout = log.layout
    with Hotline(layout.tables, layout.positions, payload=layout.payload, preset=config, memory="ideal",
                 times=Times(200, 2), limit_cycles=2_000_000) as hotline:
        hotline.learn(log.indices[:60])
        for pooled in (False, True):
            tables, watched = [hotline.values(table.name) for table in layout.tables], Watched()
            done = hotline.train(watched, log.indices, log.payload, rate=RATE, batch=8, pooled=pooled)
            order = order_of(log, watched.seen)
            assert sorted(np.concatenate(order).tolist()) == list(range(150)) and 0 < done.popular < 150
            # Samples there and mini-batches back, with the rows of those that were gathered.
            assert min(hotline.link.in_bytes, hotline.link.out_bytes) > 150 * layout.sample_beats * 4 * TINY.words
            stale = list(plain(log, order, tables=tables))
            if not pooled:      # where the core pools, it may read a hot row before the GPU's last step
                for (vectors, _), wanted in zip(watched.seen, stale, strict=True):
                    np.testing.assert_allclose(vectors, wanted, rtol=2e-4, atol=1e-5)
                for table, values in zip(layout.tables, tables, strict=True):
                    np.testing.assert_allclose(hotline.values(table.name), values, rtol=2e-4, atol=1e-5)


@pytest.mark.turns(1, of="flows")
@pytest.mark.testpoint("random_match_golden")
def test_a_real_log_through_learning_and_dealing(bench, monkeypatch, real_log):
    """Users, animes, types and bags of genres; the embedding buffer, the mailbox and the logger are all too small."""
    trace = real_log("anime_420k")
    places = {"user": 1, "anime": 1, "type": 1, "genre": 13}
    indices, positions = indices_of(trace, places)
    chosen = np.random.default_rng(1).permutation(len(indices))[:count_of(2500)]
    random = np.random.default_rng(2)
    tables = [Table(name, random.standard_normal((trace.rows[name], 8), np.float32), name == "type") for name in places]
    layout = Layout(TINY, tables, positions, 1)
    labels = np.asarray(trace.values["label"])[chosen, None].astype(np.float32)
    run = run_of(make.Log(layout, indices[chosen], labels), Train(8, 4, -0.125), 0.5)
    for limit in ("limit", "limit_cycles"):
        monkeypatch.setattr(bench, limit, CYCLES_A_SAMPLE * len(chosen))
    cycles = bench.same(run)
    kinds, image = bench.gpu.kinds, bench.core.image
    popular = bench.result.counters["popular"] / len(chosen)
    print(f"{cycles / len(chosen):.0f} cycles a sample, {popular:.1%} of {len(chosen)} samples popular with "
          f"{np.count_nonzero(image)} hot rows, {len(kinds)} mini-batches, "
          f"{bench.result.counters['dma_wr']} rows updated")
    assert 0.02 < popular < 0.98 and np.count_nonzero(image) > 0.4 * image.size
    assert 0 < sum(kinds) < len(kinds)


@pytest.mark.regress
def test_mini_batches_of_16_k_samples():
    """Two of Criteo Terabyte's shape: 16,384 samples of 26 indices and 14 words of payload are 49,152 beats."""
    batch, places = 16_384, 26
    config = replace(TINY, lanes=16, words=16, positions=32, banks=16, frames=2, frame_beats=65_536, row_slots=8192,
                     embedding_beats=8192)
    log = make.log(29, 2 * batch, rows=(400,) * places, dim=16, payload=14, config=config, none=0, pinned=(), bag=0)
    bench = Bench(tried, config=config)
    try:
        bench.same(run_of(log, Train(batch, 1, -0.5), 0.02, saves=False))
        assert log.layout.sample_beats * batch == 49_152
        assert max(len(words) for words in bench.seen) > 49_152
    finally:
        bench.card.close()


@pytest.mark.regress
@pytest.mark.testpoint("spread_over_gpus")
@pytest.mark.parametrize("gpus", [2, 4])
def test_several_gpus(gpus):
    """Each GPU has its mailbox: rows, vectors, both formats, any log; a slow GPU gets fewer mini-batches, and one that
    has none left waits for the others."""
    config = replace(TINY, gpus=gpus)
    bench = Bench(tried, config=config)
    try:
        for half in (False, True):
            for pooled in (False, True):
                log = make.log(21, 130, rows=(300, 200, 20), dim=11, exponent=0.8, bag=3 * pooled, config=config)
                bench.same(run_of(log, Train(6, 2, -0.25, pooled, half), 0.4))
                assert set(bench.gpu.gpus) == set(range(gpus)) and {POPULAR, GATHERED} == set(bench.gpu.kinds)
        for _ in range(count_of(6)):
            log, how = make.wild(bench.draw, config)
            bench.same(run_of(log, how))
    finally:
        bench.card.close()


@pytest.mark.regress
def test_cards_side_by_side():
    pair = [Bench(tried, process=True, seed=seed) for seed in (1, 2)]
    try:
        for bench in pair:
            log, how = make.wild(bench.draw)
            bench.same(run_of(log, how))
    finally:
        for bench in pair:
            bench.card.close()


# What stalls are counted as

def few(dealt_from=1.0, *, rows=(60, 70, 20), count=90, batch=30, slots=1, gpu=0, **options):
    """A few samples without bags; `batch` 30 are three mini-batches of hot rows, for which there are frames."""
    log = make.log(24, count, rows=rows, bag=0, payload=0, none=0, pinned=(), **options)
    return run_of(log, Train(batch, slots, -0.5), dealt_from, times=Times(gpu, 0), saves=False)


def of_one_bank(alike):
    """Learns from beats full of rows of one bank of the logger, or of any."""
    log = make.log(20, 200, rows=(3000,) * 3, bag=5, payload=0, none=0, pinned=(), exponent=0)
    layout = log.layout
    if alike:
        random = np.random.default_rng(7)
        columns = [np.flatnonzero(permute(layout.first[table] + np.arange(3000), TINY.domain_bits) % TINY.banks == 3)
                   for table in layout.table_of]
        log = replace(log, indices=np.stack([random.choice(column, 200) for column in columns], axis=1))
    run = run_of(log, Train(1, 1, 0.0), 1.0, saves=False)
    return run.copy(count=len(layout.positions) + 2)


SLOW_READS = Faults(seed=1, stalls={"r": 0.9})
QUIET = Faults()
#: What grows from the first run to the second, by at least so many cycles, and what may grow with it.
STALLS = {
    "stall_logger": (lambda: of_one_bank(False), QUIET, lambda: of_one_bank(True), QUIET, 500, ()),
    "stall_frames": (lambda: few(gpu=3000), QUIET, lambda: few(gpu=3000, batch=10), QUIET, 9000, ("stall_mailbox",)),
    "stall_mailbox": (few, QUIET, lambda: few(gpu=3000), QUIET, 5500, ()),
    "stall_gather": (lambda: few(0, rows=(600,) * 3, count=40, batch=10, slots=4), QUIET,
                     lambda: few(0, rows=(600,) * 3, count=40, batch=10, slots=4), SLOW_READS, 1500, ()),
}


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", STALLS)
@pytest.mark.testpoint("stalls_counted")
def test_what_a_stall_is_counted_as(bench, name):
    """Each stall counter grows by what it is there for and the others do not: banks that are asked too often, no free
    frame, a slow GPU, slow reads of cold rows."""
    assert set(STALLS) == {value.name for value in HOTLINE.counters if value.name.startswith("stall_")}
    calm, quiet, hindered, faults, least, others = STALLS[name]
    told = []
    for run, how in ((calm(), quiet), (hindered(), faults)):
        bench.card.set_faults(how)
        bench.start(run)
        block, left = bench.finish(run)
        bench.compare(run, block, left)
        told.append({counter: block[counter] for counter in STALLS})
    bench.sound()
    grown = {counter: told[1][counter] - told[0][counter] for counter in STALLS}
    assert grown.pop(name) >= least, told
    assert all(grown[other] <= 0 for other in grown if other not in others), told


@pytest.mark.testpoint("stalls_counted")
def test_slow_reads_of_hot_rows_are_not_counted_as_gathering(bench):
    """Nothing is gathered: however slow reads are, none of the counters behind the logger moves (but for the first
    cycle of a run, in which no part says yet that it is idle)."""
    run = few(slots=4)
    bench.card.set_faults(SLOW_READS)
    bench.start(run)
    told, left = bench.finish(run)
    bench.sound()
    bench.compare(run, told, left)
    assert (told["stall_frames"], told["stall_mailbox"]) == (0, 0) and told["stall_gather"] <= 1, told
