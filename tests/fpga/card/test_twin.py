"""The twin of a card with the EMB core beside the card: values bit for bit, cycles, counters and transfers."""

import ctypes
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fpga.api.embedding import EmbeddingBags
from fpga.card import CardError, ErrorResponse, Faults
from fpga.card import open as open_card
from gen.compiler.emb import Bags
from gen.compiler.tables import DRAM, SSD, TT, CardImages, Table
from gen.model.recommender import RESULTS, ROW_FORMATS
from gen.rtl.config import load
from golden.tt.clock import OFFERED, ROOM, Clock
from golden.tt.layout import plan
from hw.isa import EMB
from tests.support import emb_tables as make
from tests.support.twins import told

CONFIG = load("tiny").cores["emb"]
MODES = ("sum", "mean", "max", "weights")


def batch(random, tables, instructions, longest):
    requests = []
    for mode in random.choice(MODES, instructions):
        table = tables[int(random.integers(len(tables)))]
        indices, offsets = make.bags(random, table.rows, int(random.integers(1, 20)), longest, zipf=0.6)
        weights = random.standard_normal(len(indices)).astype(np.float32) if mode == "weights" else None
        requests.append(Bags(table.name, indices, offsets, weights, "sum" if mode == "weights" else str(mode)))
    return requests


def rows_of_dram(random):
    return [make.only(random, f"t{dim}", DRAM, 300, dim) for dim in (3, 16, 64)], {}


def every_format(random):
    return [replace(make.only(random, f"{row}{dim}", DRAM, 100, dim), row_format=row, results=result)
            for row, result in zip(ROW_FORMATS, (*RESULTS, *RESULTS), strict=False) for dim in (4, 20, 64)], {}


def tensor_trains(random):
    def placed(name, devices, columns, rank):
        return Table.place(name, random.standard_normal((300, int(np.prod(columns)))).astype(np.float32),
                           random.choice(devices, 300), cores=make.cores(random, (5, 5, 12), columns, rank))

    return [placed("trains", [TT], (2, 2, 4), 4), placed("both", [DRAM, TT], (2, 2, 4), 4),
            placed("wide", [TT], (4, 4, 4), 8)], {}


def every_memory(random):
    return [make.mixed(random, "a"), make.only(random, "s", SSD, 300, 24)], {"ring_bytes": 1 << 15}


def row_cache(random):
    return every_memory(random)[0], {"ring_bytes": 1 << 15, "cache_rows": {"a": 40, "s": 64}}


def beside(kind, tables, memory="ddr4", preset=CONFIG, cache_rows=None, **options):
    if cache_rows:
        tables = CardImages(tables, preset, cache_rows=cache_rows)
    return EmbeddingBags(tables, card=kind, preset=preset, memory=memory, **options)


@pytest.mark.testpoint("latency_and_rate_as_documented", unit="emb/core")
@pytest.mark.turns(1)
@pytest.mark.parametrize(("made", "memory", "preset"), [
    (rows_of_dram, "ideal", CONFIG), (rows_of_dram, "ddr4", CONFIG), (every_format, "ddr4", CONFIG),
    (tensor_trains, "ddr4", CONFIG), (every_memory, "ddr4", CONFIG), (row_cache, "ddr4", CONFIG),
    # Where operands share exponents: loads wait, and vectors come later.
    *(pytest.param(made, "ddr4", "smartssd", marks=pytest.mark.regress) for made in (tensor_trains, every_memory))],
    ids=lambda value: getattr(value, "__name__", value) if value is not CONFIG else "tiny")
def test_is_its_card(made, memory, preset):
    """Loads, single bags and batches one after the other: every vector, the counters of the run with its cycles, the
    memory's, the drive's, the link's and the ports'."""
    random = np.random.default_rng(3)
    tables, options = made(random)
    options |= {"memory": memory, "preset": preset}
    with beside("sim", tables, **options) as card, beside("twin", tables, **options) as twin:
        assert told(twin) == told(card)
        for instructions, longest in ((1, 1), (4, 9), (9, 4)):
            requests = batch(random, tables, instructions, longest)
            for one, other in zip(card.batch(requests), twin.batch(requests), strict=True):
                np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))
            assert told(twin) == told(card)


def test_batches_overlap_as_on_the_card():
    random = np.random.default_rng(5)
    tables, _ = rows_of_dram(random)
    batches = [batch(random, tables, 3, 9) for _ in range(3)]
    with beside("sim", tables) as card, beside("twin", tables) as twin:
        for one, other in zip(card.batches(batches), twin.batches(batches), strict=True):
            assert [vectors.tobytes() for vectors in one] == [vectors.tobytes() for vectors in other]
        assert told(twin) == told(card)
        assert twin.card.counters()["cycles"] == card.card.counters()["cycles"]


def test_stalls_are_those_of_the_card():
    random = np.random.default_rng(6)
    tables, _ = rows_of_dram(random)
    requests = batch(random, tables, 4, 9)
    with beside("sim", tables) as card, beside("twin", tables) as twin:
        for each in card, twin:
            each.card.set_faults(Faults(seed=7, stalls={"r": 0.3, "ar": 0.5, "aw": 0.5, "w": 0.3, "b": 0.4}))
            each.batch(requests)
        assert told(twin) == told(card)


def run(bags, *programs):
    """The vectors of programs run as one, each program's inputs behind those of the one before."""
    words, inputs, at = [], [], 0
    for program in programs:
        moved = program.words.reshape(-1, EMB.words).copy()
        for name in ("lengths", "indices", "weights"):
            field = EMB.field(name)
            moved[np.isin(moved[:, 0] & 0xFF, list(EMB.uses(field))), field.word] += np.uint32(at)
        words.append(moved)
        inputs.append(program.inputs)
        at += len(program.inputs)
    last = programs[-1]
    with bags._runs.transaction():
        bags._run(replace(last, words=np.concatenate(words), inputs=np.concatenate(inputs),
                          origins=sum((each.origins for each in programs), ())))
        return last.vectors(bags._runs.results(bags._runs.fetched))


def test_a_load_between_batches():
    """The unit forgets its first products, each time."""
    random = np.random.default_rng(13)
    tables, _ = tensor_trains(random)
    with beside("sim", tables) as card, beside("twin", tables) as twin:
        few = twin.compiler.compile([twin.request("trains", [0, 12, 24], [0, 1, 2])])    # three first products
        many, load, reused = twin.compiler.compile(batch(random, tables, 4, 9)), twin.compiler.load(), []
        for programs in (few, few), (few, load, few), (many, load, many, load, load, many):
            for one, other in zip(run(card, *programs), run(twin, *programs), strict=True):
                np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32))
            assert told(twin) == told(card)
            reused.append(twin.last["tt_reused"])
        assert reused[:2] == [3, 0]


def test_tables_that_are_no_longer_loaded_are_not_looked_up():
    """New cores, and a load that a reset cuts, leave no table loaded; with a new load the card's answer is given."""
    random = np.random.default_rng(14)
    tables, _ = tensor_trains(random)
    others = [replace(each, cores=[2 * core for core in each.cores]) for each in tables]
    with beside("twin", tables) as twin, beside("sim", others) as card:
        load, ask = twin.compiler.load(), twin.compiler.compile(batch(random, tables, 3, 9))
        assert np.any(run(twin, ask)[0])

        def refuses():
            with pytest.raises(CardError) as caught:
                run(twin, ask)
            assert str(caught.value) == "the twin models no faults: instruction 0 would end the run in TT_TABLE"

        twin.card.tensor_trains([each.cores for each in others])
        refuses()
        run(twin, load)
        for one, other in zip(run(card, ask), run(twin, ask), strict=True):
            assert one.tobytes() == other.tobytes()
        twin._runs.limit_cycles = 100
        with pytest.raises(CardError, match="not done after"):
            run(twin, load)
        twin._runs.limit_cycles = 1 << 30
        refuses()


@pytest.mark.turns(1, of="processes")
def test_in_a_process_of_its_own():
    random = np.random.default_rng(7)
    tables, _ = tensor_trains(random)
    requests = batch(random, tables, 4, 9)
    with beside("twin", tables) as twin, beside("twin", tables, process=True) as alone:
        for one, other in zip(twin.batch(requests), alone.batch(requests), strict=True):
            assert one.tobytes() == other.tobytes()
        assert alone.last == twin.last


def test_goes_on_after_a_reset():
    random = np.random.default_rng(8)
    tables, options = every_memory(random)
    requests = batch(random, tables, 3, 9)
    with beside("twin", tables, **options) as twin:
        wanted, cycles = twin.batch(requests), twin.last["cycles"]
        twin._runs.limit_cycles = 500
        with pytest.raises(CardError, match="not done after"):
            twin.batch(requests)
        twin._runs.limit_cycles = 1 << 30
        for one, other in zip(wanted, twin.batch(requests), strict=True):
            assert one.tobytes() == other.tobytes()
        assert abs(twin.last["cycles"] - cycles) < 0.02 * cycles, "the memory's refresh falls elsewhere"


@pytest.mark.parametrize(("wrong", "sentence"), [
    (partial(open_card, "twin", core="tt"), "there is no twin of core 'tt'; there are those of emb, mlp"),
    (partial(open_card, "twin", preset="tiny", seed=3), "seed=3 means nothing to a card of kind 'twin'"),
    (partial(open_card, "twins"), "there is no kind of card 'twins'; there are \"sim\", \"twin\", \"xrt\" "
                                     "and \"f2\""),
])
def test_open_refuses(wrong, sentence):
    with pytest.raises(CardError) as caught:
        wrong()
    assert str(caught.value) == sentence


def test_a_unit_that_waits_long_goes_on():
    """Vectors of tensor trains that stand longer than any run takes to be seen as stuck."""
    unit = CONFIG.tt
    layout = plan((5, 5, 12), (2, 2, 4), (1, 4, 4, 1), grid_log2=unit.grid_log2)
    clock = Clock([layout], np.zeros(3, np.int64), np.arange(3), np.arange(4), **unit.timing)
    step = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 7, *[ctypes.c_int64] * 3)(int(clock.pointers[0]))
    what = [int(each) for each in clock.pointers[1:8]]
    for cycle in range(120_000):
        step(*what, cycle, True, False)
    says = [step(*what, 120_000 + cycle, False, True) for cycle in range(100)]
    assert sum(bool(each & OFFERED) for each in says) > 3 and not says[-1] & (ROOM | OFFERED)


def test_what_is_not_modelled_is_refused():
    random = np.random.default_rng(9)
    tables, _ = tensor_trains(random)
    with beside("twin", tables) as twin:
        requests = batch(random, tables, 1, 3)
        with pytest.raises(CardError) as caught:
            twin.card.set_faults(Faults(errors=(ErrorResponse("m01_axi", "read", beat=1),)))
        assert str(caught.value) == ("the twin models stalls, and no errors of the bus, the drive or the host: open a "
                                     "card of kind \"sim\"")
        with pytest.raises(CardError) as caught:
            twin.card.abort()
        assert str(caught.value) == ("the twin does not model an abort: reset the card, or open one of kind \"sim\"")
        program = twin.compiler.compile(requests)
        with pytest.raises(CardError, match="the twin models no faults: instruction 0 would end the run in "):
            run(twin, replace(program, inputs=np.full_like(program.inputs, 3 << 30)))
        load = twin.compiler.load()
        twin.card.tensor_trains([])
        for _ in range(2):
            with pytest.raises(CardError) as caught:
                run(twin, load, program)
            assert str(caught.value) == ("the twin models no faults: the cores of the tensor-train table 2, which is "
                                         "loaded, are not known")
