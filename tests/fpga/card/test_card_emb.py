"""The EMB core on the simulated card: bit for bit as the oracle says, and every fault ends with its cause.

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
from tests.support.faulty import (
    CHANNELS,
    PORTS,
    UNTOUCHED,
    benches_of,
    count_of,
    side_by_side,
)

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
    for _ in range(20):
        run = bench.batch(8)
        cycles = bench.same(run)
        if (run.words[:, 0] & 0xFF == 3).any():
            return run, cycles
    raise AssertionError("no batch filled the row cache")


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
def test_the_same_twice(bench, standing):
    """The same run twice takes the same cycles, but for the host's clock."""
    run, _ = standing
    first, again = bench.same(run), bench.same(run)
    # The ring's pages lie where the last run left them, so nothing but the host's clock may differ.
    assert abs(first - again) <= QUICK.cycles(QUICK.host.poll_us)


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


def test_cards_side_by_side():
    """Two cards in processes of their own, at work at the same time on tables of their own."""
    side_by_side([Bench("ideal", process=True, seed=seed) for seed in (1, 2)], lambda bench: bench.batch(8))


# Stalls

@pytest.mark.turns(3)
@pytest.mark.parametrize("channel", [*CHANNELS, "all"])
@pytest.mark.parametrize("share", [0.3, 0.8])
@pytest.mark.testpoint("backpressure_both_sides")
def test_stalls(bench, standing, channel, share):
    """Random stalls on every channel of both ports."""
    bench.stalls(standing[0], channel, share)


# Programs, inputs and arguments that are wrong

def bags_at(run, weighted=None, mode=None):
    """The number of the last BAGS instruction of that kind."""
    found = [n for n, w in enumerate(run.words) if w[0] & 0xFF == 2 and w[5]
             and (weighted is None or w[0] >> 10 & 1 == weighted) and (mode is None or w[0] >> 8 & 3 == mode)]
    return found[-1]


def word(at, value, **which):
    """Puts a value in a word of an instruction of BAGS."""
    def change(run, bench):
        run.words[bags_at(run, **which), at] = value(int(run.words[bags_at(run, **which), at])) & 0xFFFFFFFF
    return change


def index(value, device=None):
    """Changes one index word of the last instruction that has one of that device."""
    def change(run, bench):
        words = bench.config.words
        flat = run.inputs.reshape(-1)
        for n in reversed(range(len(run.words))):
            w = run.words[n]
            if w[0] & 0xFF != 2 or not w[5]:
                continue
            part = flat[int(w[3]) * words:][:int(w[5])]
            hit = np.flatnonzero(part >> 30 == device) if device is not None else np.arange(len(part))
            if len(hit):
                at = hit[len(hit) // 2]
                part[at] = value(int(part[at]), w) & 0xFFFFFFFF
                return
        raise AssertionError("no such index")
    return change


def pair(at, value):
    """Changes a pair of a FILL."""
    def change(run, bench):
        n = int(np.flatnonzero(run.words[:, 0] & 0xFF == 3)[-1])
        flat = run.inputs.reshape(-1)[int(run.words[n, 3]) * bench.config.words:]
        flat[at] = value(int(flat[at]), run.words[n]) & 0xFFFFFFFF
    return change


def fill(at, value):
    def change(run, bench):
        n = int(np.flatnonzero(run.words[:, 0] & 0xFF == 3)[-1])
        run.words[n, at] = value(int(run.words[n, at])) & 0xFFFFFFFF
    return change


def longer(run, bench):
    """The program says one more instruction than was written: zeros follow."""
    run.words = np.concatenate([run.words, np.zeros((1, 16), np.uint32)])


def not_loaded(run, bench):
    for n in np.flatnonzero(run.words[:, 0] & 0xFF == 2):
        run.words[n, 9] = run.words[n, 9] & 0xFFFF0000 | 7


WRONG = {
    "opcode 0": word(0, lambda w: w & ~0xFF), "opcode 4": word(0, lambda w: w & ~0xFF | 4),
    "opcode 255": word(0, lambda w: w | 0xFF), "reserved bit 16": word(0, lambda w: w | 1 << 16),
    "row format 5": word(0, lambda w: w & ~(7 << 13) | 5 << 13),
    "format 3": word(0, lambda w: w | 3 << 11),
    "reserved bit 31": word(0, lambda w: w | 1 << 31), "reserved bit of word 9": word(9, lambda w: w | 1 << 26),
    "pieces of 3 beats": word(9, lambda w: w & 0xFFFFF | 3 << 20),
    "pieces of a stripe": word(9, lambda w: w & 0xFFFFF | 8 << 20),
    "mode 3": word(0, lambda w: w | 3 << 8), "weighted mean": word(0, lambda w: w | 1 << 8, weighted=1),
    "weighted max": word(0, lambda w: w | 2 << 8, weighted=1), "no bags": word(1, lambda w: 0),
    "rows of 0 beats": word(8, lambda w: 0), "rows too long": word(8, lambda w: 17),
    "rows far too long": word(8, lambda w: 1 << 31), "chunks of 0": word(9, lambda w: w & 0xFFFF),
    "chunks of 9": word(9, lambda w: w & 0xFFFF | 9 << 16),
    "weighted chunks": word(9, lambda w: w & 0xFFFF | 2 << 16, weighted=1),
    "chunks of max": word(9, lambda w: w & 0xFFFF | 2 << 16, mode=2), "tt_rows": word(10, lambda w: (1 << 20) + 1),
    "release": word(15, lambda w: 1 << 30), "ring_first": word(13, lambda w: 1 << 30),
    "ring_count": word(14, lambda w: 1 << 20), "lengths past the end": word(2, lambda w: 1 << 20),
    "lengths wrap": word(2, lambda w: -1), "indices past the end": word(3, lambda w: 1 << 24),
    "indices wrap": word(3, lambda w: -1), "weights past the end": word(4, lambda w: 1 << 24, weighted=1),
    "DRAM past the end": word(6, lambda w: 1 << 24), "DRAM wraps": word(6, lambda w: -1),
    "too many rows": word(7, lambda w: -1), "outputs past the end": word(11, lambda w: 1 << 24),
    "outputs wrap": word(11, lambda w: -1), "stride past the end": word(12, lambda w: -1),
    "an index too many": word(5, lambda w: w - 1), "an index too few": word(5, lambda w: w + 1),
    "no index": word(5, lambda w: 0), "bags past the lengths": word(1, lambda w: 1 << 30),
    "device 3": index(lambda i, w: i | 3 << 30), "row past DRAM": index(lambda i, w: int(w[7]), 0),
    "last row of 30 bits": index(lambda i, w: (1 << 30) - 1, 0),
    "row past the tensor train": index(lambda i, w: 1 << 30 | int(w[10]), 1),
    "train not loaded": not_loaded,
    "position before the stretch": index(lambda i, w: 2 << 30 | (int(w[13]) - 16) & 0x3FFFFFFF, 2),
    "position behind the stretch": index(lambda i, w: 2 << 30 | (int(w[13]) + int(w[14])) & 0x3FFFFFFF, 2),
    "filled row past the table": pair(1, lambda r, w: int(w[7])),
    "filled position": pair(0, lambda p, w: p + (1 << 29)),
    "fill of no rows": fill(1, lambda w: 0), "fill with a reserved bit": fill(0, lambda w: w | 1 << 16),
    "fill of row format 7": fill(0, lambda w: w | 7 << 13),
    "fill of long rows": fill(8, lambda w: 17),
    "fill in pieces of 5 beats": fill(9, lambda w: 5 << 20), "fill past the inputs": fill(3, lambda w: 1 << 24),
    "fill past the rows": fill(6, lambda w: 1 << 24), "fill of a stretch too long": fill(14, lambda w: 1 << 20),
    "program too short": longer,
}


@pytest.mark.turns(12)
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.testpoint("corner_values")
def test_wrong_programs(bench, standing, name):
    """Every field wrong: code and place are those of the oracle, and what is before the place is right or
    untouched."""
    good, _ = standing
    run = Run(good.words.copy(), good.inputs.copy(), good.outputs_beats, good.pages, good.transfers)
    WRONG[name](run, bench)
    bench.refused(run, ("code", "instruction", "bag", "index", "detail"))
    tried["wrong programs"] += 1
    bench.mend(good)


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

@pytest.mark.turns(4, of="faults")
@pytest.mark.parametrize("port, way", PORTS)
@pytest.mark.testpoint("errors")
def test_error_responses(bench, standing, port, way):
    """An error response on any beat of either port ends the run with cause and place."""
    for _ in bench.error_responses(standing[0], port, way, 24, progress=1):
        pass


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

@pytest.mark.testpoint("errors")
def test_abort_at_any_cycle(bench, standing):
    """An abort at any cycle ends the run with that cause."""
    bench.aborts(*standing, 40)


@pytest.mark.testpoint("killed_hosts")
def test_a_host_killed_at_any_cycle(bench, standing):
    """Its driver resets the core alone: nothing is written from then on, and the next run is right."""
    bench.kills(*standing, 20)


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


@pytest.mark.testpoint("reset_midstream")
def test_reset_at_any_cycle(bench, standing):
    """A reset at any cycle; the next run is right."""
    bench.resets(*standing, 40)


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


def test_faults_with_the_ddr4_memory(benches):
    """The same kinds of faults with times that vary: a few of each."""
    bench = benches("ddr4", seed=5)
    bench.some_of_each(bench.batch(8))


def test_a_hang_is_told(bench, standing):
    """The card, not the core: too few cycles are an error of their own."""
    bench.hang(standing[0])


@pytest.mark.testpoint("watchdog")
def test_a_memory_that_never_answers(bench, standing):
    """The watchdog ends the run with what owed an answer, and runs are right again when it has come."""
    bench.silences(standing[0])


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
