"""fpga.api.hotline on the simulated card through faults: tables are trained with the samples that it names, bit
for bit and once each, and training goes on with the same objects."""

import numpy as np
import pytest

from fpga.api.gpu import GATHERED, Times
from fpga.api.hotline import REFUSED_TWICE, Hotline, RunError
from fpga.card import CardError, ErrorResponse, Faults
from tests.fpga.api.test_hotline import RATE, Watched, order_of, plain
from tests.support import hotline_logs as make
from tests.support.faulty import count_of
from tests.support.hotline_bench import PORTS

LOG = make.log(51, 140, rows=(300, 200, 20), dim=11, exponent=0.8)      # rows of two beats
BATCH, SLOTS = 6, 3


@pytest.fixture(scope="module")
def hotline():
    layout = LOG.layout
    with Hotline(layout.tables, layout.positions, payload=layout.payload, preset=make.TINY, memory="ideal",
                 times=Times(150, 4), timeout_cycles=20_000, limit_cycles=2_000_000) as opened:
        opened.learn(LOG.indices[:50])
        yield opened


def tables_of(hotline):
    return [hotline.values(table.name) for table in LOG.layout.tables]


def same_bits(some, others):
    return all(np.array_equal(one.view(np.uint32), other.view(np.uint32))
               for one, other in zip(some, others, strict=True))


def on_card(hotline):
    """The rows as they lie in the card's memory."""
    tables = LOG.layout.values(hotline._runs.read("rows", hotline._rows_beats))
    return [table for table, given in zip(tables, LOG.layout.tables, strict=True) if not given.pinned]


def train(hotline, left, model=None):
    """Trains on these samples of the log, and judges what is left of it: (what was raised, samples not trained)."""
    watched, before, error = Watched(model or make.model), tables_of(hotline), None
    try:
        hotline.train(watched, LOG.indices[left], LOG.payload[left], rate=RATE, batch=BATCH, slots=SLOTS)
    except (CardError, ZeroDivisionError) as raised:
        error = raised
    hotline.card.set_faults(Faults())
    hotline.card.clear()
    after = tables_of(hotline)
    trained = left[hotline.trained]
    if len(trained) == 0:
        assert same_bits(before, after)
        return error, left
    order = order_of(LOG, watched.seen)
    assert sorted(np.concatenate(order).tolist()) == sorted(trained.tolist())
    kept = [table for table, given in zip(after, LOG.layout.tables, strict=True) if not given.pinned]
    assert error is not None or same_bits(on_card(hotline), kept)
    # Cold rows bit for bit, all others as plain NumPy trains them.
    layout, rows, cold = LOG.layout, LOG.layout.rows(before), LOG.layout.cold(LOG.indices, hotline.hot)
    for part, each in zip(order, hotline.gpu.taken, strict=False):
        assert each.samples == len(part) and cold[part].any(axis=1).all() == (each.kind == GATHERED)
        if each.kind == GATHERED:
            layout.update(rows, layout.cold_rows(LOG.indices[part], cold[part]), RATE, each.gradients)
    is_hot = [np.isin(np.arange(len(table)), hotline.hot.indices[hotline.hot.tables == number])
              for number, table in enumerate(after)]
    for table, mine, hot, given in zip(after, layout.values(rows), is_hot, layout.tables, strict=True):
        assert given.pinned or same_bits([table[~hot]], [mine[~hot]])
    for _ in plain(LOG, order, tables=before):
        pass
    for table, values in zip(after, before, strict=True):
        np.testing.assert_allclose(table, values, rtol=2e-4, atol=1e-5)
    return error, left[~hotline.trained]


def finish(hotline, left):
    """Trains on the rest, or on all once more: a sound card does it at once."""
    error, left = train(hotline, left if len(left) else np.arange(len(LOG.indices)))
    assert error is None and len(left) == 0


@pytest.mark.turns(1)
@pytest.mark.parametrize("port, way", PORTS)
def test_training_goes_on_after_an_error_of_the_bus(hotline, port, way):
    draw, errors = np.random.default_rng([7, len(port + way), port == "m01_axi"]), 0
    rounds = count_of(6)
    for _ in range(rounds):
        left = np.arange(len(LOG.indices))
        for _ in range(2):
            if len(left):
                hotline.card.set_faults(Faults(errors=(
                    ErrorResponse(port, way, beat=int(draw.integers(600 if len(left) > 70 else 200))),)))
                error, left = train(hotline, left)
                errors += isinstance(error, RunError)
        finish(hotline, left)
    assert errors >= min(3, rounds / 2)


def test_training_goes_on_after_a_row_that_cannot_be_written(hotline):
    """Once: it is written again. Twice: tables are as before the call, on the card too when it goes on."""
    for twice in (False, True):
        finish(hotline, np.arange(10))
        rows = hotline._runs.buffers["rows"]
        where = {"first": rows.address, "end": rows.address + rows.bytes} if twice else {"beat": 41}
        hotline.card.set_faults(Faults(errors=(ErrorResponse("m01_axi", "write", **where),)))
        error, left = train(hotline, np.arange(len(LOG.indices)))
        assert isinstance(error, RunError) and (hotline.last["detail"] & 0xFF == REFUSED_TWICE) == twice
        assert hotline.trained.any() == (not twice)
        finish(hotline, left)


@pytest.mark.parametrize("number", [0, 1, 7])
def test_training_goes_on_after_a_model_that_fails(hotline, number):
    """The host breaks the run off: nothing of it counts."""
    seen = []

    def model(vectors, payload):
        seen.append(len(vectors))
        if len(seen) > number:
            raise ZeroDivisionError
        return make.model(vectors, payload)

    error, left = train(hotline, np.arange(len(LOG.indices)), model)
    assert isinstance(error, ZeroDivisionError) and len(left) == len(LOG.indices)
    finish(hotline, left)


def test_training_goes_on_after_a_gpu_that_was_too_slow(hotline, monkeypatch):
    made = []

    class Slower(Times):
        def of(self, samples):
            made.append(samples)
            return 30_000 if len(made) == 9 else super().of(samples)

    monkeypatch.setattr(hotline, "times", Slower(150, 4))
    error, left = train(hotline, np.arange(len(LOG.indices)))
    assert isinstance(error, RunError) and "TIMEOUT" in str(error) and 0 < len(left) < len(LOG.indices)
    finish(hotline, left)


def test_a_result_block_that_is_not_whole_counts_as_none(hotline):
    """The beat with the number of mini-batches is refused: an error, and nothing counts."""
    finish(hotline, np.arange(10))
    runs = hotline._runs
    at = runs.buffers["result"].address + 32 * (runs.kernel.value("batches_updated").word // 8)
    hotline.card.set_faults(Faults(errors=(ErrorResponse("m00_axi", "write", first=at, end=at + 32),)))
    error, left = train(hotline, np.arange(len(LOG.indices)))
    assert "result block was not written as a whole" in str(error) and len(left) == len(LOG.indices)
    finish(hotline, left)
