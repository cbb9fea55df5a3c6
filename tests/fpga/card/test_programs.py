"""Programs that no compiler writes, on each core, its twin and its oracle: what hw.isa allows is right, what it does
not allow is refused, and all say the same.

The preset `tiny`, whose models other tests build anyway; `python -m tests.fuzz.programs` tries the others, for as long
as one likes.
"""

import itertools
import os
from dataclasses import replace

import numpy as np
import pytest

from gen.compiler.emb import encode, load_instruction
from golden.tt.load import TABLE
from hw.isa import EMB
from hw.isa.mlp import ADDEND, TARGET
from tests.fuzz.programs import CORES, trials_of
from tests.support.differential import try_some
from tests.support.emb_programs import Drawn
from tests.support.emb_trials import TINY
from tests.support.killed_hosts import kill
from tests.support.mlp_programs import MUTATOR, Mix

UNIT = ("emb/core", "mlp/core", "hotline/core")

SEED = int(os.environ.get("HOTRAIL_SEED") or os.environ.get("HOTRAIL_FIRST_SEED") or "1")
REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
COUNTS = {"emb": 24, "mlp": 16, "hotline": 6}      # programs of a kind


@pytest.fixture(scope="module")
def opened():
    """Trials of a core by its name, each opened once."""
    trials = {}

    def of(core):
        if core not in trials:
            trials[core] = trials_of(core, "tiny", "ideal", SEED)
        return trials[core]

    yield of
    for each in trials.values():
        each.close()


@pytest.fixture(params=CORES)
def trials(request, opened):
    return request.param, opened(request.param)


@pytest.fixture
def emb(opened):
    return opened("emb")


@pytest.fixture
def mlp(opened):
    return opened("mlp")


@pytest.mark.parametrize("wrong", [False, True], ids=["allowed", "wrong"])
@pytest.mark.testpoint("random_match_golden", "backpressure_both_sides", "corner_values")
@pytest.mark.testpoint("latency_and_rate_as_documented", unit=("emb/core", "mlp/core"))
def test_all_say_the_same(trials, wrong):
    """Code and place, every bit that is written, counters; the cycles where there is a twin. Every other program with
    stalls on all channels."""
    core, made = trials
    try_some(made, wrong, COUNTS[core])


@pytest.mark.turns(1)
@pytest.mark.parametrize("wrong", [False, True], ids=["allowed", "wrong"])
@pytest.mark.parametrize("core", CORES)
@pytest.mark.testpoint("random_match_golden")
def test_all_say_the_same_with_ddr4(core, wrong):
    """With times that vary, and the counters of the memory."""
    made = trials_of(core, "tiny", "ddr4", SEED)
    try_some(made, wrong, COUNTS[core] // 2)
    made.close()


# Hosts that are killed.

MOMENTS = {"call": 24, "register": 40, "cycle": 3000}


@pytest.mark.testpoint("killed_hosts")
def test_hosts_killed_for_real(trials):
    """SIGKILL at any moment of its work: the driver resets the core alone, and what comes then is right."""
    core, made = trials
    draw = np.random.default_rng(SEED)
    kinds = itertools.cycle(MOMENTS)
    for what in itertools.islice(kinds, 70 if REGRESS else 3):
        kill(made.sim, [made.programs.draw() for _ in range(3)], (what, int(draw.integers(1, MOMENTS[what]))))
        made.again()
        # All are as the oracle has them; now and then one is drawn that has an instruction refused.
        assert any(not made.trial() for _ in range(20))


# Programs of the EMB core, by hand.

def bags(indices, **fields):
    """BAGS of one index each over rows of a beat, as Drawn takes it with its inputs."""
    return {"count": len(indices), "lengths": 0, "indices": 16, "indices_count": len(indices), "dram_rows": 8,
            "row_beats": 1, "chunk_rows": 1, "out_stride": 1, **fields}


def by_hand(indices, *items, first=0, pages=0):
    """Bags of the same indices, one of each, in every instruction."""
    inputs = np.zeros((24, TINY.words), np.uint32)
    inputs[:16] = 1
    inputs.reshape(-1)[64:64 + len(indices)] = indices
    words = np.stack([encode("BAGS", bags(indices, **{"out": number * 64, **item}))
                      for number, item in enumerate(items)])
    return Drawn(words, inputs.reshape(-1), 64 * len(items), first, pages)


def test_rows_in_pieces_are_not_taken_for_whole_ones(emb):
    """Nor the other way round, where all else of them is the same."""
    row = {"row_beats": 4, "out_stride": 4}
    pieces = [{**row, "piece_beats": piece} for piece in (0, 1, 2, 0, 1)]
    assert not emb.compare(by_hand([0, 1, 0, 1], *pieces))


def after(free, drawn):
    """The program behind an instruction of one empty bag that releases the ring up to `free`."""
    empty = encode("BAGS", {**bags([]), "count": 1, "lengths": len(drawn.inputs) // TINY.words, "release": free})
    inputs = np.concatenate([drawn.inputs, np.zeros(TINY.words, np.uint32)])
    return replace(drawn, words=np.concatenate([empty[None], drawn.words]), inputs=inputs)


@pytest.mark.parametrize("first", [0, 4096, (1 << 30) - 256])
def test_a_ring_begins_anywhere_and_is_released_ahead(emb, first):
    """Positions that have not landed are released; rows behind them land and are read."""
    behind = (first + 10 * 256) % (1 << 30)
    stretch = {"ring_first": behind, "ring_count": 256, "release": behind}
    drawn = by_hand([2 << 30 | behind, 2 << 30 | behind + 3], stretch, first=first, pages=11)
    assert not emb.compare(after(behind, drawn))


def test_what_is_released_stays_so(emb):
    """Whatever later instructions say, and from the run's first position on."""
    rows = [2 << 30 | 4096 + place for place in (256, 300)]
    stretch = {"ring_first": 4096 + 256, "ring_count": 512}
    assert not emb.compare(after(0, by_hand(rows, stretch, {**stretch, "release": 4096 + 256}, stretch,
                                              {**stretch, "release": 9}, stretch, first=4096, pages=8)))


@pytest.mark.parametrize("first", [0, (1 << 30) - 256])
def test_what_is_released_is_not_read_any_more(emb, first):
    """By no later instruction, whether the release is done or not; nor what lies before the run's first position."""
    free = (first + 300) % (1 << 30)
    at = [2 << 30 | (free + place) % (1 << 30) for place in (-1, 0, 1)]
    stretch = {"ring_first": first, "ring_count": 512}
    assert not emb.compare(after(free, by_hand(at[1:], stretch, first=first, pages=2)))
    assert emb.compare(after(free, by_hand(at, stretch, first=first, pages=2))) == EMB.code("INDEX_RANGE")
    assert not emb.compare(by_hand(at, {**stretch, "release": free}, first=first, pages=2))
    before = {"ring_first": (first - 9) % (1 << 30), "ring_count": 512}
    assert not emb.compare(by_hand([2 << 30 | first], before, first=first, pages=2))
    drawn = by_hand([2 << 30 | first, 2 << 30 | (first - 1) % (1 << 30)], before, first=first, pages=2)
    assert emb.compare(drawn) == EMB.code("INDEX_RANGE")


def test_a_row_that_the_ring_has_no_room_for_never_lands(emb):
    """Before the instruction in front of it has released what lies there."""
    last = emb.ring_beats
    drawn = by_hand([2 << 30 | last], {"ring_first": 256, "ring_count": last, "release": 256}, pages=9)
    assert emb.compare(drawn) == EMB.code("TIMEOUT")
    assert not emb.compare(after(256, drawn))


@pytest.mark.regress
def test_a_damaged_descriptor_ends_a_run(emb):
    """By its signature, or by a header that leads nowhere; and what is loaded anew is right."""
    draw, words, images = np.random.default_rng(SEED), TINY.words, emb.images
    image, blocks = images.load.reshape(-1), -(-16 // TINY.words)
    groups = np.arange(images.load_beats) // 16 * (blocks + 16) * words
    nth = np.arange(images.load_beats) % 16
    parts = (groups + (blocks + nth) * words)[image[groups + nth] >> 16 & 3 == TABLE]
    lookups = [encode("BAGS", {**bags(range(4)), "indices": 0, "lengths": 1, "dram_rows": 0, "tt_table": number,
                               "tt_rows": 2, "row_beats": placed.value_beats, "out_stride": placed.value_beats,
                               "out": 64 * number}) for number, placed in enumerate(images.placed.values())]
    program = np.stack([load_instruction(images.load, images.load_beats, 2), *lookups])
    inputs = np.repeat(np.array([1 << 30, 1], np.uint32), words)
    for _ in range(200):
        damaged = image.copy()
        damaged[draw.choice(parts) + draw.integers(4)] ^= np.uint32(draw.integers(1, 1 << 32))
        run = Drawn(program, np.concatenate([inputs, damaged]), 64 * len(lookups), 0, 0)
        assert emb.compare(run) == EMB.code("SIGNATURE")
        emb.again()
        assert not emb.trial()


# Programs of the MLP core, by hand.

def over_written(mix):
    """Rows that are loaded where the layer before writes its results, and read by the next one."""
    count = mix.config.samples
    results = mix.plain(count, 1)
    mix.layer(mix.rows(count, 1), target=TARGET.ROWS, groups=1, to_line=results[0], to_line_stride=results[1])
    mix.add("LOAD_ROWS", count=count, source=mix.data("inputs", count), stride=1, row_beats=1, features=1,
            line=results[0], line_stride=results[1])
    mix.to_memory(results, 2)


def over_read(mix):
    """A bias that is loaded where the layer before reads its own."""
    mix.to_memory(mix.rows(mix.config.samples, 1), 2, addend=ADDEND.BIAS)
    line = MUTATOR.value_of(mix.words[-1], "addend_line")
    mix.add("LOAD_ADDENDS", count=2, addend_line=line, source=mix.data("weights", 2))


def over_one_another(mix):
    """Features of samples that lie where those of other samples do."""
    config = mix.config
    features = 3 * config.rows
    line = mix.lines("rows", config.rows + 2)
    mix.add("LOAD_ROWS", features_in=1, count=config.samples, stride=1, row_beats=1, features=features, feature=0,
            source=mix.data("inputs", config.samples * features), line=line, line_stride=1)
    mix.to_memory((line, 1, config.samples, 3 * config.words // config.width), 2)


@pytest.mark.parametrize("kind", [over_written, over_read, over_one_another])
def test_lines_that_are_loaded_again(mlp, kind):
    """Behind all that stands before, as the instructions' waits say."""
    for seed in range(2):
        mix = Mix(mlp.config, np.random.default_rng(seed))
        kind(mix)
        assert not mlp.compare(mix.run())
