"""The EMB core on the simulated card: bit for bit as the oracle says, and faults that it alone meets end with their
cause. Those that every core meets are in test_card_faults.py, programs with mistakes in test_programs.py.

All of it runs on the preset `tiny`; one model serves the whole file. Beside what each test compares, every run that
ends is checked by the card: rules of the bus, reads of memory that was never written, guard bytes around each buffer.
"""

from dataclasses import replace

import numpy as np
import pytest

from fpga.card import CardViolation, Faults
from gen.compiler.emb import encode
from gen.rtl.config import load
from hw.isa import EMB
from tests.support.emb_bench import CODES, QUICK, Bench, Run, tried
from tests.support.faulty import UNTOUCHED, benches_of, count_of, side_by_side

UNIT = "emb/core"

benches = benches_of(Bench, tried, "EMB", "HOTRAIL_FAULTS")


@pytest.fixture
def bench(benches):
    """The card that faults are tried on; nothing else draws from its generator, so its batch is always the same."""
    return benches(seed=5)


@pytest.fixture(scope="module")
def standing(benches):
    """One batch with all modes, all memories and a fill, which the faults are tried on, and its cycles."""
    bench = benches(seed=5)
    run = bench.with_a_fill()
    return run, bench.same(run)


# Function

@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
@pytest.mark.testpoint("smoke", "random_match_golden")
def test_random_batches(benches, memory):
    """Random batches of all modes over all memories, with the row cache, bit for bit with the oracle."""
    bench = benches(memory)
    fills = 0
    for _ in range(count_of(8)):
        run = bench.batch(int(bench.draw.integers(1, 12)), longest=int(bench.draw.integers(1, 24)))
        bench.same(run)
        fills += int((run.words[:, 0] & 0xFF == 3).sum())
    assert fills and not bench.card.violations()


@pytest.mark.testpoint("corner_values")
def test_pages_that_land_at_once(bench):
    """The host may fill the ring from the start on, before the core has looked at it for the first time."""
    run = bench.batch(3, longest=3)
    beats = len(run.pages) * bench.images.page_beats
    assert 0 < beats <= bench.ring_beats
    bench.start(replace(run, pages=run.pages[:0], transfers=run.transfers[:0]))
    bench.card.write(bench.buffers["ring"], bench.images.pages[run.pages])
    bench.card.write(bench.buffers["result"], np.uint32([beats]), 4 * EMB.value("filled").word)
    bench.compare(run, *bench.finish(run))


@pytest.mark.testpoint("corner_values")
def test_nothing_to_do(bench, standing):
    """A program of no instruction at all ends well and writes nothing."""
    run, _ = standing
    bench.start(Run(run.words, run.inputs, run.outputs_beats, run.pages[:0], run.transfers[:0], count=0))
    told, outputs = bench.finish(run)
    assert told["code"] == 0 and (outputs == UNTOUCHED).all()
    bench.mend(run)


@pytest.mark.turns(1)
@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
def test_long_fill(benches, memory):
    """Rows into the row cache, many times more than the core keeps on their way; then again what they were."""
    bench, draw = benches(memory, seed=5), np.random.default_rng(3)
    before = bench.rows.copy()
    placed = bench.images.placed["items"]
    count, b = 100, placed.row_beats
    pairs = np.zeros((count, 2), np.uint32)
    pairs[:, 0] = draw.integers(0, bench.images.page_beats // b, count) * b
    pairs[:, 1] = placed.own_rows + draw.integers(0, placed.cache_rows, count)
    words = encode("FILL", {"count": count, "indices": 0, "ring_first": 0, "ring_count": bench.images.page_beats,
                            "release": bench.images.page_beats, **placed.dram_fields})
    bench.same(Run(np.stack([words]), pairs.reshape(-1, bench.config.words), 0,
                   np.array([placed.first_page]), np.array([[placed.first_page, 0]])))
    assert (bench.rows != before).any()
    bench.rows[:] = before
    bench.card.write(bench.buffers["rows"], before)


@pytest.mark.regress
def test_cards_side_by_side():
    """Two cards in processes of their own, at work at the same time on tables of their own."""
    side_by_side([Bench("ideal", process=True, seed=seed) for seed in (1, 2)], lambda bench: bench.batch(8))


# Loads that are wrong

def test_wrong_load(bench, standing):
    """A broken load ends with its place, and its tables count as not loaded."""
    good, _ = standing
    for at, change in ((3, lambda h: h | 1 << 22), (3, lambda h: h | 0xFFFF), (0, lambda h: h | 1 << 31)):
        run = Run(bench.loading.words.copy(), bench.loading.inputs.copy(), 0, good.pages[:0], good.transfers[:0])
        flat = run.inputs.reshape(-1)
        flat[at] = change(int(flat[at])) & 0xFFFFFFFF
        bench.start(run)
        told, _ = bench.finish(run)
        result, _ = bench.expected(run)
        assert (told["code"], told["index"], told["detail"]) == (CODES["BAD_INSTRUCTION"], result.index, result.detail)
        bench.start(good)
        told, outputs = bench.finish(good)
        assert told["code"] == CODES["TT_TABLE"]
        bench.mend(good, loading=True)
        tried["wrong loads"] += 1
    run = Run(bench.loading.words.copy(), bench.loading.inputs[:-1], 0, good.pages[:0], good.transfers[:0])
    bench.start(run)
    told, _ = bench.finish(run)
    assert (told["code"], told["detail"]) == (CODES["BOUNDS"], 0)
    bench.mend(good, loading=True)


# Errors of the bus

@pytest.mark.testpoint("corner_values")
def test_rows_that_were_never_written(bench, standing):
    """ECC answers with an error, which the core tells, and the card names the address."""
    run, _ = standing
    rows = bench.buffers.pop("rows")
    bench.card.free(rows)
    bench.buffers["rows"] = bench.card.allocate(rows.bytes, "rows")
    bench.start(run)
    violations, _ = bench.never_written()
    assert {v.port for v in violations} == {"m01_axi"}
    bench.card.write(bench.buffers["rows"], bench.rows)
    bench.mend(run)


# The drive and the host

@pytest.mark.testpoint("errors")
def test_lost_pages(bench, standing):
    """A page that never lands ends the run with TIMEOUT; the place named lies on that page."""
    run, _ = standing
    for lost in range(min(len(run.pages), count_of(6))):
        bench.card.set_faults(Faults(lost=(lost,)))
        bench.start(run)
        told, outputs = bench.finish(run)
        assert told["code"] == CODES["TIMEOUT"], told
        # The row that was waited for lies on the page that did not come.
        assert told["detail"] // bench.images.page_beats == lost
        bench.whole(run, outputs)
        bench.mend(run)
        tried["lost pages"] += 1


@pytest.mark.testpoint("errors")
def test_dead_host(bench, standing):
    """A host that stops filling the ring ends the run with TIMEOUT."""
    run, _ = standing
    for landed in range(min(len(run.pages), count_of(6))):
        bench.card.set_faults(Faults(host_dies_after=landed))
        bench.start(run)
        told, outputs = bench.finish(run)
        assert told["code"] == CODES["TIMEOUT"], told
        bench.whole(run, outputs)
        bench.mend(run)
        tried["dead hosts"] += 1


@pytest.mark.testpoint("errors")
def test_overflow(bench, standing):
    """A doorbell that claims more than the ring holds ends the run with RING_OVERFLOW."""
    run, _ = standing
    for after in range(1, min(len(run.pages), count_of(4))):
        bench.card.set_faults(Faults(doorbell_ahead=bench.ring_beats + 16, doorbell_after=after))
        bench.start(run)
        try:
            told, outputs = bench.finish(run)
        except CardViolation as error:
            # What lay there was read before the overflow could be seen.
            assert {v.rule for v in error.violations} == {"ring_race"}
            told = {"code": int(bench.card.read(bench.buffers["result"], np.uint32)[0])}
        assert told["code"] == CODES["RING_OVERFLOW"], told
        bench.mend(run)
        tried["overflows"] += 1


# Abort and reset

def test_abort_while_waiting_for_the_drive(bench, standing):
    run, _ = standing
    bench.card.set_faults(Faults(host_dies_after=0))
    bench.start(run)
    bench.card.step(3000)
    bench.card.abort()
    told, outputs = bench.finish(run)
    assert told["code"] == CODES["ABORTED"]
    bench.mend(run)
    tried["aborts"] += 1


def test_reset_and_abort_while_loading(bench, standing):
    run, _ = standing
    cycles = bench.same(bench.loading)
    for number, at in enumerate(np.linspace(1, cycles + 40, count_of(12)).astype(int)):
        bench.start(bench.loading)
        bench.card.step(int(at))
        if number & 1:
            bench.card.reset()
        else:
            bench.card.abort()
            told, _ = bench.finish(bench.loading)
            assert told["code"] in (0, CODES["ABORTED"])
        bench.mend(run, loading=True)
        tried["broken loads"] += 1


@pytest.mark.parametrize("policy", ["fr_fcfs", "group_machines"])
def test_bursts_under_way_are_limited_over_all_masters(policy):
    """The core's masters share the bursts that the memory takes; all of them come to their end."""
    bench = Bench("ddr4", QUICK.replace("port", bursts=3).replace("controller", policy=policy))
    run, most = bench.batch(), 0
    bench.start(run)
    while not bench.card.step(1):
        most = max(most, sum(bench.card._call("under_way", port) for port in range(len(bench.card.beat_bytes))))
    bench.compare(run, *bench.finish(run))
    assert 3 <= most <= 6       # three of reads and three of writes
    bench.card.close()


@pytest.mark.parametrize("changes, message", [
    ({"row_beats_max": 12}, "row_beats_max must be a power of two from 1 to 64, not 12"),
    ({"partial_beats": 16}, "partial_beats must be at least 2 times row_beats_max = 16, not 16"),
    ({"output_beats": 16}, "output_beats must be at least 2 times row_beats_max = 16, not 16"),
    ({"lut_products": 5}, "lut_products must be at most the 4 words of a beat, not 5"),
    ({"window_beats": 128}, "window_beats must be at least 16 times row_beats_max = 16, not 128"),
    ({"ssd_queue": 16}, "ssd_queue must be at least 32, .*, not 16"),
    ({"writes_in_flight": 0}, "writes_in_flight must be a power of two from 2 to .*, not 0"),
])
def test_illegal_config_wrong(changes, message):
    """Sizes that do not go together are refused with a sentence."""
    with pytest.raises(ValueError, match=message):
        replace(load("tiny").cores["emb"], **changes)
