"""golden.hotline.train: orders, gathering, images, pooled vectors, faults. Mini-batches, rows and counters of random
logs are compared with the core in tests/fpga/card/test_card_hotline.py."""

import numpy as np
import pytest

from gen.compiler.emb import encode
from gen.compiler.hotline import JOINS, Train
from golden.fp import fp32
from golden.hotline import order, train
from golden.hotline.dispatch import Scheduler
from golden.hotline.gather import gather
from golden.hotline.train import GATHERED, NONE, POPULAR, Memory
from hw.hotline import records
from hw.isa import HOTLINE
from hw.isa.hotline import JOIN, KIND
from tests.support import hotline_logs as make

HOT = 1 << 31


def memory_of(log, how, words, source_words, hot=0):
    layout = log.layout
    return Memory(words.reshape(-1), source_words.reshape(-1),
                  np.full(layout.mailbox_beats(how) * layout.config.words + 4096, 0xAAAAAAAA, np.uint32),
                  layout.rows().reshape(-1), np.random.default_rng(1).standard_normal(
                      hot * layout.row_words, np.float32).view(np.uint32), layout.gradients_beats(how))


def run(log, how, learned=0.4, kinds=None, gpu=None, config=make.TINY, core=None, gpus=()):
    """Learns from the first samples, then deals all of them. Returns the core, the memory and the result."""
    layout, samples = log.layout, log.samples
    count = max(1, int(learned * len(samples)))
    source = layout.image_beats
    words = np.concatenate([layout.registers(), layout.learn(count, source),
                            layout.train(how, len(samples), source, 0)[1:]])
    memory = memory_of(log, how, words, np.concatenate([np.zeros(source * config.words, np.uint32), samples.ravel()]),
                       layout.hot_numbers if how.pooled else 0)
    memory.mailbox = np.full(max(len(memory.mailbox), source * config.words), 0xAAAAAAAA, np.uint32)
    core = core or make.core(config)
    return core, memory, core.run(memory, kinds, gpu, gpus=gpus)


def test_the_order_of_the_classes_changes_neither_contents_nor_rows():
    log, how = make.log(3, 400), Train(12, 4, -0.5)

    def gpu(batch):
        return np.full(batch.updates.shape, np.float32(len(batch.samples)).view(np.uint32), np.uint32)

    _, first, result = run(log, how, gpu=gpu)
    kinds = [batch.kind for batch in result.batches]
    assert 0.1 < np.mean(kinds) < 0.9
    for other in (sorted(kinds), sorted(kinds, reverse=True), np.random.default_rng(1).permutation(kinds).tolist()):
        _, second, again = run(log, how, kinds=other, gpu=gpu)
        assert [batch.kind for batch in again.batches] == other
        np.testing.assert_array_equal(first.rows, second.rows)
        for kind in (POPULAR, GATHERED):
            mine, theirs = ([b for b in r.batches if b.kind == kind] for r in (result, again))
            assert all((a.samples == b.samples).all() and (a.rows == b.rows).all()
                       for a, b in zip(mine, theirs, strict=True))


def test_each_gpu_has_its_mailbox():
    """Mini-batches of a GPU lie in its slots one behind the other; rows do not depend on where they go."""
    config = make.with_config(gpus=4)
    log, how = make.log(3, 400, config=config), Train(6, 3, -0.5)
    gpus = np.random.default_rng(2).integers(4, size=400).tolist()
    _, memory, result = run(log, how, config=config, gpus=gpus)
    assert [batch.gpu for batch in result.batches] == gpus[:len(result.batches)]
    places = memory.mailbox[:log.layout.mailbox_beats(how) * config.words].reshape(4, how.slots, -1)
    for gpu in range(4):
        mine = [batch for batch in result.batches if batch.gpu == gpu]
        assert len(mine) > how.slots and [batch.own for batch in mine] == list(range(len(mine)))
        for batch in mine[-how.slots:]:
            header = batch.number, batch.kind, len(batch.samples), len(batch.places)
            assert places[gpu, batch.own % how.slots, :4].tolist() == list(header)
    _, one, _ = run(log, how)
    assert (one.rows == memory.rows).all()


def test_the_gpu_with_the_fewest_unfinished_ones_is_next():
    scheduler = Scheduler(slots=2, begun=[3, 4, 1], finished=[1, 4, 0])
    assert scheduler.gpu == 1 and scheduler.pick(popular=True, gathered=True) == GATHERED
    scheduler.finished = [2, 3, 0]
    assert scheduler.gpu == 0
    scheduler.finished = [1, 2, -1]
    assert scheduler.pick(popular=True, gathered=True) is None


def test_the_order_without_any_is_that_in_which_frames_fill():
    popular, gathered = order.dispatch(np.array([[0], [1], [0], [1], [1], [0], [1]], bool), np.arange(7)[:, None], 2,
                                   slots=8, room=1)
    assert [p.samples.tolist() for p in popular] == [[0, 2], [5]]
    assert [p.samples.tolist() for p in gathered] == [[1, 3], [4, 6]]
    assert order.merge(popular, gathered) == [POPULAR, GATHERED, GATHERED, POPULAR]


def test_kinds_that_end_early_end_the_run_and_wrong_ones_are_refused():
    log, how = make.log(3, 400), Train(12, 4, -0.5)
    kinds = [batch.kind for batch in run(log, how)[2].batches]
    _, _, result = run(log, how, kinds=kinds[:5])
    assert (result.code, len(result.batches)) == (HOTLINE.code("ABORTED"), 5)
    assert sum(result.ready) == len(kinds) - 5
    with pytest.raises(ValueError, match="mini-batch .* cannot be of kind 0"):
        run(log, how, kinds=[0] * len(kinds))


@pytest.mark.parametrize("seed", range(4))
def test_gathered_frames_are_those_of_the_gathering(seed):
    """golden.hotline.gather, on its own, cuts and numbers in the same way."""
    log = make.log(seed, 80, rows=(900, 900, 40), exponent=0.3)
    how, layout = Train(16, 2, -1.0), log.layout
    core, _, result = run(log, how, 0.1)
    gathered = [batch for batch in result.batches if batch.kind == GATHERED]
    samples = log.samples
    first = [int(layout.first[table]) for table in layout.table_of]
    pinned = [layout.tables[table].pinned for table in layout.table_of]
    cold = np.zeros(len(samples), bool)
    for sample, row in enumerate(samples):
        for position in range(len(first)):
            if row[position] != NONE and not pinned[position]:
                hit, number = core.look_up(np.array([first[position] + int(row[position])]))
                cold[sample] |= not hit[0]
                if hit[0]:
                    row[position] = HOT | number[0]
    chosen, parts = np.flatnonzero(cold), []
    for start in range(0, len(chosen), how.batch):
        frame = samples[chosen[start:start + how.batch]]
        made = gather(frame, first=first, base=[at << layout.row_beats_log2 for at in first], pinned=pinned,
                      indices=len(first), row_beats=1 << layout.row_beats_log2, slots=layout.slots)
        parts += [(frame[part.start:part.start + part.samples].copy(), part.addresses) for part in made]
    assert len(parts) == len(gathered) and len(parts) > -(-len(chosen) // how.batch), "some are cut"
    for batch, (frame, addresses) in zip(gathered, parts, strict=True):
        np.testing.assert_array_equal(batch.samples, frame)
        assert batch.places.tolist() == addresses


def test_images_are_saved_and_loaded():
    log, how = make.log(5, 300), Train(12, 4, -0.5)
    layout = log.layout
    core, memory, _ = run(log, how, 1.0, kinds=[])
    image = memory.mailbox[:layout.image_beats * 8].copy()
    assert (image.reshape(64, 8, 4).swapaxes(0, 1) == core.image).all()
    hot = layout.hot(image)
    keys = layout.first[hot.tables] + hot.indices
    hits, numbers = core.look_up(keys)
    assert hits.all() and (numbers == hot.numbers).all() and len(hot) == np.count_nonzero(core.image >> 16 & 1)
    other = make.core()
    words = np.stack([encode("LOAD", {"source": 0}, HOTLINE), encode("SAVE", {"out": 1}, HOTLINE)])
    loaded = Memory(words.reshape(-1), image | 0xFFFE0000, np.zeros(len(image) + 8, np.uint32), np.zeros(0, np.uint32))
    assert other.run(loaded).code == 0
    assert (other.image == core.image).all() and (loaded.mailbox[8:] == image).all()


def test_all_hot_and_all_cold():
    log, how = make.log(7, 150, rows=(50, 60, 40), none=0), Train(8, 4, -1.0)
    _, _, warm = run(log, how, 1.0)
    assert warm.counters["batches_gathered"] == 0 and warm.counters["popular"] == 150 and warm.cold == 0
    layout = log.layout
    words = np.concatenate([layout.registers(), layout.train(how, 150, layout.image_beats, 0)])
    inputs = np.concatenate([np.zeros(layout.image_beats * 8, np.uint32), log.samples.reshape(-1)])
    cold = make.core().run(memory_of(log, how, words, inputs))
    assert cold.counters["hits"] == cold.counters["batches_popular"] == cold.counters["popular"] == 0
    assert cold.cold == cold.counters["accesses"] > 0


@pytest.mark.parametrize("join", ["begin", "add", "multiply"])
def test_pooled_vectors(join):
    log = make.log(9, 120, bag=3, join=join, none=0.3)
    how, layout = Train(5, 2, -0.5, True), log.layout
    core, memory, result = run(log, how, 0.5)
    hot, rows = memory.hot.reshape(-1, layout.row_words), layout.rows().reshape(-1, layout.row_words)
    products = sums = reads = 0
    for batch in result.batches:
        if batch.kind == POPULAR:
            assert len(batch.rows) == 0
            continue
        vectors = []
        for words in batch.samples:
            for position, table in enumerate(layout.table_of):
                word, part = int(words[position]), None
                if word != NONE and not layout.tables[table].pinned:
                    part = fp32.value(hot[word - HOT] if word >= HOT else rows[batch.places[word] >> 1])
                    reads += word >= HOT
                kind = JOINS[layout.positions[position].join]
                if kind == 0:
                    vectors.append(np.zeros(layout.row_words, np.float32) if part is None else part)
                elif part is not None:
                    vectors[-1] = (fp32.add if kind == 1 else fp32.mul)(vectors[-1], part)
                    sums, products = sums + 2 * (kind == 1), products + 2 * (kind == 2)
        assert len(vectors) == len(batch.samples) * len(layout.begins)
        np.testing.assert_array_equal(batch.rows, fp32.bits(np.array(vectors)))
    updates = result.counters["dma_wr"] * 2
    assert [result.counters[name] for name in ("gpu_rd", "v_add", "v_mul")] == [reads, sums + updates,
                                                                                products + updates]


# Faults

def fault(change, how=None, log=None, learned=0.4, **kinds):
    """A run whose program, inputs or memory `change` has spoiled."""
    log, how = log or make.log(11, 100), how or Train(8, 3, -0.5)
    layout = log.layout
    source = layout.image_beats
    words = np.concatenate([layout.registers(), layout.learn(40, source), layout.train(how, 100, source, 0)[1:]])
    memory = memory_of(log, how, words, np.concatenate([np.zeros(source * 8, np.uint32), log.samples.reshape(-1)]))
    memory.mailbox = np.zeros(max(len(memory.mailbox), source * 8), np.uint32)
    change(memory, words)
    memory.program = words.reshape(-1)
    return log, make.core().run(memory, **kinds)


def test_an_index_that_the_table_does_not_have():
    def change(memory, words):
        memory.inputs[make.TINY.banks * make.TINY.sets * 4:].reshape(100, -1)[57, 1] = 900

    log, result = fault(change)
    assert (result.code, result.sample, result.position, result.detail) == (HOTLINE.code("INDEX"), 57, 1, 900)
    assert result.instruction == len(log.layout.positions) + 3
    assert all(batch.numbers.max() < 57 and len(batch.samples) == 8 or batch.kind == GATHERED
               for batch in result.batches)
    assert fault(lambda m, w: (change(m, w), w[-3, 1:2].__setitem__(0, 58)))[1].instruction == \
        len(log.layout.positions) + 1, "learning meets it first"


def test_pinned_tables_and_positions_without_a_register():
    def pin(memory, words):
        memory.inputs[make.TINY.banks * make.TINY.sets * 4:].reshape(100, -1)[57, 2] = 1 << 30

    assert fault(pin)[1].code == 0, "indices of a pinned table are nobody's business"

    def forget(memory, words):
        words[1] = words[0]

    _, result = fault(forget)
    assert (result.code, result.position) == (HOTLINE.code("INDEX"), 1)


def test_rows_outside_their_buffer():
    whole = [batch for batch in fault(lambda memory, words: None)[1].batches if batch.kind == GATHERED]
    most = np.maximum.accumulate([batch.places.max() for batch in whole])
    last = int(np.flatnonzero(np.diff(most))[-1])
    beats = int(most[last]) + 2     # what mini-batches up to `last` need

    def change(memory, words):
        memory.rows = memory.rows[:8 * beats]

    log, result = fault(change)
    assert (result.code, result.detail) == (HOTLINE.code("BOUNDS"), 3)
    gathered = [batch for batch in result.batches if batch.kind == GATHERED]
    assert [batch.numbers.tolist() for batch in gathered] == [batch.numbers.tolist() for batch in whole[:last + 1]]
    assert gathered and result.batches[-1].kind == POPULAR, "popular ones go on"


def test_refused_instructions_are_those_of_the_program():
    def change(memory, words):
        words[-1, 3] |= 7 << 16

    _, result = fault(change)
    assert (result.code, result.detail) == (HOTLINE.code("BAD_INSTRUCTION"), 4) and not result.batches


def test_constants_are_those_of_the_interface():
    assert (train.POPULAR, train.GATHERED) == (KIND.POPULAR, KIND.GATHERED)
    assert (train.BEGIN, train.ADD) == (JOIN.BEGIN, JOIN.ADD)
    assert (train.NONE, train.HOT_BIT, train.WORDS) == (records.NONE, records.HOT, HOTLINE.words)
    assert set(train.COUNTERS) <= {value.name for value in HOTLINE.counters}
