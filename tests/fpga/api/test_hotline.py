"""fpga.api.hotline on a card whose core is the oracle: training is that of one GPU with all rows, whatever is hot."""

import numpy as np
import pytest

import fpga.card.runs
from fpga.api.gpu import Batch, Embeddings, Gpu
from fpga.api.hotline import GATHERED, Hotline, Layout, Position, RunError, Table, Times, Train, indices_of
from gen.data.logs import Trace
from tests.support import hotline_logs as make
from tests.support.hotline_card import OracleCard

RATE = -0.125


def opened(log, config=make.TINY, **options):
    layout = log.layout
    return Hotline(layout.tables, layout.positions, payload=layout.payload, head=log.head,
                   card=OracleCard(make.core(config)), preset=config, **options)


class Watched:
    """A model that remembers what it saw."""

    def __init__(self, model=make.model):
        self.model, self.seen = model, []

    def __call__(self, vectors, payload):
        self.seen.append((vectors.copy(), payload.copy()))
        return self.model(vectors, payload)


def plain(log, order, model=make.model, rate=RATE, tables=None):
    """Trains on the same samples with all rows in one place; order: numbers of the samples of every mini-batch.
    Yields the vectors of each; `tables` are changed in place."""
    layout = log.layout
    for part in order:
        index, payload = log.indices[part], log.payload[part].view(np.uint32)
        terms = np.stack([np.where(index[:, k, None] >= 0, tables[table][index[:, k]], 0)
                          for k, table in enumerate(layout.table_of)], axis=1)
        vectors = []
        for k, position in enumerate(layout.positions):
            if position.join == "begin":
                vectors.append(terms[:, k].copy())
            elif position.join == "add":
                vectors[-1] += terms[:, k]
            else:
                vectors[-1] *= np.where(index[:, k, None] >= 0, terms[:, k], 1)
        vectors = np.stack(vectors, axis=1)
        yield vectors
        slopes = model(vectors, payload)
        which = np.cumsum([position.join == "begin" for position in layout.positions]) - 1
        steps = [np.zeros_like(table) for table in tables]
        for k, table in enumerate(layout.table_of):
            slope = slopes[:, which[k]].copy()
            for other, position in enumerate(layout.positions):
                if which[other] == which[k] and position.join == "multiply":
                    if other > k:
                        slope *= np.where(index[:, other, None] >= 0, terms[:, other], 1)
                    elif other == k:
                        slope *= terms[:, k - 1]
            mine = index[:, k] >= 0
            np.add.at(steps[table], index[mine, k], slope[mine])
        for table, step in zip(tables, steps, strict=True):
            table += np.float32(rate) * step


def order_of(log, seen):
    """The samples of the mini-batches as they were dispatched, found by their payload."""
    words = {tuple(row): number for number, row in enumerate(log.payload.view(np.uint32).tolist())}
    return [np.array([words[tuple(row)] for row in payload.tolist()]) for _, payload in seen]


@pytest.mark.parametrize(("pooled", "options"), [
    (False, {}), (True, {}), (False, {"join": "begin"}), (False, {"join": "multiply", "bag": 2}),
    (False, {"pinned": ()}), (True, {"pinned": (), "dim": 7, "bag": 3}), (False, {"dim": 30}), (False, {"head": 50}),
], ids=["rows", "pooled", "apart", "products", "nothing pinned", "pooled short", "long rows", "numbered by samples"])
def test_training_is_that_of_one_place(pooled, options):
    log = make.log(2, 260, **options)
    with opened(log) as hotline:
        hot = hotline.learn(log.indices[:80])
        assert 0 < len(hot) < log.layout.first[-1]
        tables = [table.array.copy() for table in log.layout.tables]
        for count, learned in ((260, None), (100, None), (180, slice(150, 260))):
            if learned is not None:     # other rows are hot now: those that were are cold, as they have been trained
                before, hot = hot, hotline.learn(log.indices[learned])
                assert set(before.numbers) != set(hot.numbers)
            watched = Watched()
            part = slice(0, count)
            done = hotline.train(watched, log.indices[part], log.payload[part], rate=RATE, batch=9, slots=3,
                                 pooled=pooled)
            assert done.samples == count and 0 < done.popular < count
            assert len(done.kinds) == len(watched.seen) and 0 < sum(done.kinds) < len(done.kinds)
            assert list(done.kinds) == hotline.card.kinds
            order = order_of(log, watched.seen)
            assert sorted(np.concatenate(order).tolist()) == list(range(count))
            for (vectors, _), wanted in zip(watched.seen, plain(log, order, tables=tables), strict=True):
                np.testing.assert_allclose(vectors, wanted, rtol=2e-4, atol=1e-5)
        for table, values in zip(log.layout.tables, tables, strict=True):
            np.testing.assert_allclose(hotline.values(table.name), values, rtol=2e-4, atol=1e-5)
            assert (hotline.values(table.name) != table.array).any()
        assert hotline.last["code"] == 0 and hotline.gpu.busy > 0


def test_cold_rows_in_half_precision():
    """They are rounded on their way; rows in memory, which get the same gradients, do not notice."""
    log, seen, values = make.log(2, 120, pinned=()), {}, {}
    gradients = np.random.default_rng(1).standard_normal((1000, log.layout.dim)).astype(np.float32)
    for half in (False, True):
        with opened(log) as hotline:
            hotline.learn(log.indices[:40])
            batches = seen[half] = []

            def compute(batch, batches=batches):
                batches.append(batch)
                return gradients[:batch.cold]

            hotline.dispatch(compute, log.indices, log.payload, Train(7, 2, RATE, half=half))
            values[half] = [hotline.values(table.name) for table in log.layout.tables]
    assert sum(batch.cold for batch in seen[True]) > 50
    for batch, wide in zip(seen[True], seen[False], strict=True):
        assert batch.indices.tobytes() == wide.indices.tobytes()
        np.testing.assert_array_equal(batch.rows, wide.rows.astype(np.float16).astype(np.float32))
    for table, wide in zip(values[True], values[False], strict=True):
        np.testing.assert_array_equal(table, wide)
    with opened(log) as hotline, pytest.raises(ValueError, match="^rows must be float32 or float16, not 'int8'$"):
        hotline.train(make.model, log.indices, log.payload, rate=RATE, batch=7, rows="int8")


def test_nothing_learned_and_everything():
    log = make.log(4, 60, rows=(70, 80, 9))
    with opened(log) as hotline:
        assert set(hotline.train(make.model, log.indices, log.payload, rate=RATE, batch=6).kinds) == {GATHERED}
        hotline.learn(log.indices)
        done = hotline.train(make.model, log.indices, log.payload, rate=RATE, batch=6)
        assert GATHERED not in done.kinds and done.popular == 60


@pytest.mark.parametrize("head", [0, 60])
def test_hot_rows_are_named_by_table_and_index(head):
    log = make.log(5, 200, head=head)
    with opened(log) as hotline:
        hot = hotline.learn(log.indices)
        assert (np.diff(hot.numbers) > 0).all() and hot.numbers.max() < log.layout.hot_numbers
        counts = [np.bincount(log.indices[:, np.array(log.layout.table_of) == table].ravel().clip(-1) + 1,
                              minlength=len(log.layout.tables[table].array) + 1)[1:] for table in range(3)]
        assert 2 not in hot.tables, "a pinned table is not learned"
        assert all(counts[table][index] for table, index in zip(hot.tables, hot.indices, strict=True))


def test_buffers_are_given_back_and_a_card_by_name_is_closed(monkeypatch):
    log = make.log(6, 40)
    hotline = opened(log)
    hotline.learn(log.indices)
    hotline.train(make.model, log.indices, log.payload, rate=RATE, batch=4)
    card = hotline.card
    hotline.close()
    hotline.close()
    assert not card.memory and not card.closed
    asked = []
    monkeypatch.setattr(fpga.card.runs, "open_card", lambda kind, **options: asked.append((kind, options)) or card)
    with Hotline(log.layout.tables, log.layout.positions, preset=make.TINY, memory="ideal"):
        assert asked == [("sim", {"core": "hotline", "preset": make.TINY, "memory": "ideal"})] and not card.closed
    assert card.closed


def test_errors_of_the_core_name_the_table_and_the_next_run_is_sound():
    log = make.log(7, 90)
    with opened(log) as hotline:
        hotline.learn(log.indices[:30])

        def spoil(program):
            program[1, 10] = 5

        hotline.card.spoil = spoil
        with pytest.raises(RunError, match=r"instruction 6, sample \d+, position 1, table t1: INDEX: ") as error:
            hotline.train(make.model, log.indices, log.payload, rate=RATE, batch=8)
        assert error.value.table == "t1" and error.value.detail == log.indices[error.value.sample, 1]
        with pytest.raises(RunError, match="instruction 6.*: INDEX: "):
            hotline.learn(log.indices)
        hotline.card.spoil = None
        assert hotline.train(make.model, log.indices, log.payload, rate=RATE, batch=8).samples == 90


def test_a_model_that_fails_ends_the_run():
    log = make.log(8, 60)
    with opened(log) as hotline:
        def broken(vectors, payload):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            hotline.train(broken, log.indices, log.payload, rate=RATE, batch=8)
        with pytest.raises(ValueError, match=r"slopes of the shape \(8, 4, 11\), not \(8, 4\)"):
            hotline.train(lambda v, p: v[..., 0], log.indices, log.payload, rate=RATE, batch=8)
        assert hotline.train(make.model, log.indices, log.payload, rate=RATE, batch=8).samples == 60


def test_only_hot_rows_that_changed_are_written():
    """Where the core pools it reads hot rows from a mirror, which the GPU keeps."""
    log = make.log(2, 160)
    with opened(log) as hotline:
        hotline.learn(log.indices[:80])
        written, write = [], hotline.card.write

        def watched(buffer, data, offset=0):
            if buffer.name == "hot":
                written.append(np.asarray(data).nbytes)
            write(buffer, data, offset)

        hotline.card.write = watched
        done = hotline.train(make.model, log.indices, log.payload, rate=RATE, batch=8, pooled=True)
        mirror = hotline._runs.buffers["hot"]
        found = hotline.card.read(mirror, np.float32).reshape(-1, log.layout.row_words)
        for table, values in enumerate(map(hotline.values, (item.name for item in log.layout.tables))):
            mine = hotline.hot.tables == table
            assert (found[hotline.hot.numbers[mine], :log.layout.dim] == values[hotline.hot.indices[mine]]).all()
    row = 4 * log.layout.row_words
    assert written[0] == log.layout.hot_numbers * row and set(written[1:]) == {row}
    assert 0 < len(written) - 1 < len(done.kinds) * len(hotline.hot) / 4


def test_where_the_core_pools_factors_cannot_be_trained():
    log = make.log(8, 60, join="multiply")
    with opened(log) as hotline, pytest.raises(ValueError, match="a row that multiplies cannot be trained"):
        hotline.train(make.model, log.indices, log.payload, rate=RATE, batch=8, pooled=True)


def test_the_layer_below_takes_any_function():
    log = make.log(9, 80)
    seen = []

    def compute(batch: Batch):
        seen.append(batch)
        return np.ones((batch.cold, log.layout.dim), np.float32)

    with opened(log, times=Times(5, 1)) as hotline:
        done = hotline.dispatch(compute, log.indices, log.payload, Train(10, 2, 1.0))
        moved = [hotline.values(table.name) for table in log.layout.tables]
        assert done.busy == sum(5 + len(batch.indices) for batch in seen)
    for table, values in zip(log.layout.tables, moved, strict=True):
        delta = values - table.array
        met = np.unique(log.indices[:, [t.name == table.name for t in [log.layout.tables[k] for k in
                                                                       log.layout.table_of]]])
        if not table.pinned:
            assert (delta[met[met >= 0]] > 0.9).all() and (np.delete(delta, met[met >= 0], axis=0) == 0).all()
    with opened(log) as hotline, pytest.raises(ValueError, match="hot rows must be given where the core pools"):
        hotline.dispatch(compute, log.indices, log.payload, Train(10, 2, 1.0, True))


def test_slopes_of_joined_rows_are_those_of_differences():
    """Every position's row moved a little moves the loss as its gradient says."""
    log = make.log(10, 1, rows=(5, 6, 4), dim=3, pinned=(), bag=3, join="multiply", none=0)
    layout = Layout(make.TINY, log.layout.tables, [Position("t0"), Position("t1", "add"), Position("t1", "multiply"),
                                                   Position("t2", "add"), Position("t0", "multiply")], 0)
    random = np.random.default_rng(1)
    rows = random.standard_normal((5, 3)).astype(np.float32)
    taught = []

    def model(vectors, payload):
        taught.append((vectors.astype(float) ** 2).sum() / 2)
        return vectors

    index = np.arange(5, dtype=np.uint32)[None]
    compute = Embeddings(layout, layout.hot(np.zeros((layout.image_beats, 8), np.uint32)),
                         [table.array for table in layout.tables], 0.0, model)

    def loss(rows):
        compute(Batch(0, GATHERED, index, np.zeros((1, 0), np.uint32), 5, rows.astype(np.float32)))
        return taught[-1]

    gradients = compute(Batch(0, GATHERED, index, np.zeros((1, 0), np.uint32), 5, rows))
    for place in np.ndindex(rows.shape):
        step = np.zeros_like(rows)
        step[place] = 1e-2
        assert abs((loss(rows + step) - loss(rows - step)) / 2e-2 - gradients[place]) < 2e-2 * max(1, abs(
            gradients[place]))


def test_logs_become_indices():
    trace = Trace("somewhere", {"user": np.array([4, 5, 6]), "genre": np.array([1, 2, 0])}, {"user": 7, "genre": 3},
                  {"genre": np.array([0, 2, 2, 3])})
    indices, positions = indices_of(trace, {"user": 1, "genre": 2})
    assert indices.tolist() == [[4, 1, 2], [5, -1, -1], [6, 0, -1]]
    assert positions == [Position("user"), Position("genre"), Position("genre", "add")]
    with pytest.raises(ValueError, match="somewhere: sample 0 has 2 indices of genre, there is room for 1"):
        indices_of(trace, {"genre": 1})


ROWS = np.zeros((4, 3), np.float32)
A, B = Table("a", ROWS), Table("b", ROWS, True)


@pytest.mark.parametrize(("make_it", "sentence"), [
    (lambda: Table("a", np.zeros(3)), r"table a: values must have the shape \(rows, dim\), not \(3,\)"),
    (lambda: Layout(make.TINY, [A, A], [Position("a")]), "tables must have names that differ, and be some, not a, a"),
    (lambda: Layout(make.TINY, [], []), "tables must have names that differ, and be some, not none"),
    (lambda: Layout(make.TINY, [A, Table("c", np.zeros((2, 4)))], [Position("a")]),
     "table c has rows of 4 words, table a of 3: all tables must have the same"),
    (lambda: Layout(make.TINY, [A], []), "a sample must have 1 to 16 indices, not 0"),
    (lambda: Layout(make.TINY, [A], [Position("a")] * 17), "a sample must have 1 to 16 indices, not 17"),
    (lambda: Layout(make.TINY, [A], [Position("x")]), "position 0: there is no table 'x'; there are a"),
    (lambda: Layout(make.TINY, [A], [Position("a", "sum")]),
     "position 0: join must be begin, add, multiply, not 'sum'"),
    (lambda: Layout(make.TINY, [A], [Position("a", "add")]), "position 0: join must be begin, as nothing is before it"),
    (lambda: Layout(make.TINY, [A, B], [Position("a"), Position("b", "add")]),
     "position 1: join must be begin, as its table is pinned"),
    (lambda: Layout(make.TINY, [A], [Position("a")], 64),
     "a sample of 1 indices and 64 words must fit 8 beats of 8 words"),
    (lambda: Layout(make.TINY, [Table("a", np.zeros((2, 120)))], [Position("a")] * 5),
     "the embedding buffer holds 4 rows of 120 words, a sample has 5"),
    (lambda: Layout(make.TINY, [Table("a", np.zeros((2, 600)))], [Position("a")]), "rows of 600 words are too long"),
    (lambda: Layout(make.TINY, [A], [Position("a")]).samples(np.zeros((2, 2), int)),
     r"indices must have the shape \(samples, 1\), not \(2, 2\)"),
    (lambda: Layout(make.TINY, [A], [Position("a")]).samples(np.zeros((2, 1))),
     "indices must be whole numbers, not float64"),
    (lambda: Layout(make.TINY, [A], [Position("a")]).samples(np.array([[3], [4]])),
     "sample 1, position 0: table a has no row 4, but 4 rows"),
    (lambda: Layout(make.TINY, [A], [Position("a")], 2).samples(np.zeros((2, 1), int)),
     r"payload must be 32-bit words of the shape \(2, 2\), not object of \(\)"),
    (lambda: Layout(make.TINY, [A], [Position("a")]).check(Train(33, 1, 0.0)),
     "batch must be 1 to 32 samples of 1 beats, not 33"),
    (lambda: Layout(make.TINY, [A], [Position("a")]).check(Train(3, 256, 0.0)),
     "slots must be 1 to 255 mini-batches in flight, not 256"),
    (lambda: Hotline([A], [Position("a")], preset="screc"), "preset screc describes no hotline core"),
    (lambda: opened(make.log(1, 9)).values("x"), "there is no table 'x'; there are t0, t1, t2"),
])
def test_wrong(make_it, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        make_it()


def test_the_gpu_takes_mini_batches_in_order_and_rests_between():
    """started and finished: each begins when the one before it has ended, and takes its time."""
    log = make.log(12, 100)
    with opened(log, times=Times(100, 7)) as hotline:
        hotline.learn(log.indices[:20])
        hotline.train(make.model, log.indices, log.payload, rate=RATE, batch=8)
        gpu: Gpu = hotline.gpu
        assert len(gpu.started) == len(gpu.finished) == len(gpu.kinds)
        assert all(end - begin in (156, 100 + 7 * (100 % 8)) or 100 < end - begin < 156
                   for begin, end in zip(gpu.started, gpu.finished, strict=True))
        assert all(begin >= end for begin, end in zip(gpu.started[1:], gpu.finished, strict=False))
