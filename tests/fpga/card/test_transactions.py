"""What the host believes of a card, after calls that were cut short at every boundary to it: the next answer is right,
bit for bit that of objects that nothing has happened to. On cards whose cores are oracles."""

from contextlib import suppress

import numpy as np
import pytest

from fpga.api.embedding import EmbeddingBags, RunError
from fpga.api.hotline import Hotline, Table
from fpga.api.network import MlpNetwork, Runner
from fpga.card import CardError, CardHang, CardViolation
from fpga.card.runs import Runs
from gen.compiler.emb import Bags
from gen.compiler.tables import CardImages
from golden.emb.core import Emb
from tests.support import emb_tables, hotline_logs, mlp_sizes
from tests.support.cutting import Cut
from tests.support.emb_card import OracleCard
from tests.support.hotline_card import OracleCard as HotlineCard
from tests.support.mlp_card import OracleCard as MlpCard


def tables(seed=1):
    random = np.random.default_rng(seed)
    return [emb_tables.mixed(random), emb_tables.only(random, "users", emb_tables.SSD, 200, 20)]


def bags_on(card_of=lambda card: card, held=None):
    config, held = emb_tables.config(), held or tables()
    images = CardImages(held, config, cache_rows={"items": 20, "users": 30})
    return EmbeddingBags(images, card=card_of(OracleCard(Emb.of(config, images.cores))), preset=config,
                         ring_bytes=1 << 15)


def batches(seed=2, count=6):
    random = np.random.default_rng(seed)
    return [[Bags("items", *emb_tables.bags(random, 300, 12, 5)), Bags("users", *emb_tables.bags(random, 200, 9, 5))]
            for _ in range(count)]


def same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


def calls_of(work, card):
    """How many calls of the card a piece of work makes."""
    card.cut(None)
    work()
    return card.count


@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_bags_cut_short_at_every_call(is_behind):
    warm, cut, after, *_ = batches()
    with bags_on() as fresh:
        wanted = fresh.batch(after)
        assert fresh.program.filled, "rows enter the cache"
    bags = bags_on(Cut)
    bags.batch(warm)
    for at in range(calls_of(lambda: bags.batch(cut), bags.card)):
        bags.batch(warm)
        bags.card.cut(at, is_behind)
        with pytest.raises(KeyboardInterrupt):
            bags.batch(cut)
        bags.card.cut(None)
        same(bags.batch(after), wanted)
        assert bags.program.filled
    bags.close()
    assert not bags.card.inner.memory


@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_building_anew_cut_short_at_every_call(is_behind):
    """An interrupt while an interrupt is mended."""
    cut, after, *_ = batches()
    with bags_on() as fresh:
        wanted = fresh.batch(after)
    bags = bags_on(Cut)

    def broken():
        bags.card.inner.spoil = lambda program: program.__setitem__((-1, 0), 77)
        with pytest.raises(RunError, match="BAD_INSTRUCTION"):
            bags.batch(cut)
        bags.card.inner.spoil = None

    broken()
    for at in range(calls_of(lambda: bags.batch(after), bags.card)):
        broken()
        bags.card.cut(at, is_behind)
        with pytest.raises(KeyboardInterrupt):
            bags.batch(after)
        bags.card.cut(None)
        same(bags.batch(after), wanted)
    bags.close()


@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_opening_and_closing_cut_short_leave_nothing(is_behind):
    bags = bags_on(Cut)
    card = bags.card
    with pytest.raises(CardError, match="the card has a buffer 'rows' already, which is not of these runs"):
        EmbeddingBags(tables(), card=card, preset=emb_tables.config())
    assert {"rows", "ring"} < {buffer.name for buffer in card.inner.buffers()}, "nobody else's buffer is given back"
    bags.close()
    assert not card.inner.memory

    held = []

    def open_and_close():
        held[:] = []
        held.append(EmbeddingBags(tables(), card=card, preset=emb_tables.config(), ring_bytes=1 << 15))
        held[0].close()

    for at in range(calls_of(open_and_close, card)):
        card.cut(at, is_behind)
        with pytest.raises(KeyboardInterrupt):
            open_and_close()
        card.cut(None)
        for bags in held:       # it was closing
            bags.close()
        assert not card.inner.memory


def test_a_program_s_error_leaves_everything_as_it_was():
    """A request that is refused is no run, so nothing is built anew."""
    with bags_on() as bags:
        bags.batch(batches()[0])
        runs = bags.card.runs
        with pytest.raises(ValueError, match="table items, bag 0, index 0: 300 is none of the table's 300 rows"):
            bags("items", [300], [0])
        bags.batch(batches()[1])
        assert bags.card.runs == runs + 1


def test_a_run_that_hangs_is_ended():
    with bags_on() as bags:
        card, ended = bags.card, []

        def hanging(timeout_cycles, timeout_s=None):
            raise CardHang("the core was not done")

        card.wait, card.abort, card.reset = hanging, lambda: None, lambda cycles=4: ended.append(cycles)
        with pytest.raises(CardHang):
            bags.batch(batches()[0])
        assert ended and not bags.last, "the block of the run before is not this one's"
        del card.wait
        with bags_on() as fresh:
            same(bags.batch(batches()[1]), fresh.batch(batches()[1]))


def test_a_broken_rule_ends_one_run_and_not_all_that_follow():
    """A card reports violations until it is cleared."""
    with bags_on() as bags:
        card, seen = bags.card, ["never_written"]

        def wait(timeout_cycles, timeout_s=None):
            if seen:
                raise CardViolation(seen[0])
            return 0

        card.wait, card.clear = wait, seen.clear
        with pytest.raises(CardViolation, match="never_written"):
            bags.batch(batches()[0])
        with bags_on() as fresh:
            same(bags.batch(batches()[1]), fresh.batch(batches()[1]))


def test_closed_is_closed():
    bags = bags_on()
    bags.close()
    with pytest.raises(CardError, match="it is closed: its buffers were given back"):
        bags.batch(batches()[0])
    bags.card.spoil = None
    assert not bags.card.memory


@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_a_network_cut_short_at_every_call(is_behind):
    network = mlp_sizes.plain(13, 20, 5)
    dense = mlp_sizes.batch(network, 8)[0]
    card = Cut(MlpCard(mlp_sizes.core(mlp_sizes.TINY)))
    with MlpNetwork(network, card=card, preset=mlp_sizes.TINY, batch=8) as net:
        wanted = net(dense)
        for at in range(calls_of(lambda: net(dense), card)):
            card.cut(at, is_behind)
            with pytest.raises(KeyboardInterrupt):
                net(dense)
            card.cut(None)
            card.inner.core.weight_memory[:] = 0x7FC00000       # whatever is left in the core
            np.testing.assert_array_equal(net(dense), wanted)
    assert not card.inner.memory


def test_the_weights_of_the_layer_below_are_brought_anew():
    random = np.random.default_rng(1)
    from gen.compiler.mlp import gemms
    pairs = [(random.standard_normal((9, 7), np.float32), random.standard_normal((7, 5), np.float32))]
    made = gemms(pairs, mlp_sizes.TINY)
    card = Cut(MlpCard(mlp_sizes.core(mlp_sizes.TINY)))
    runner = Runner(card, mlp_sizes.TINY.words)
    runner.weights(made.weights)

    def run():
        return made.results(runner.run(made.program.words, made.inputs, made.program.outputs_beats))

    wanted = run()
    for at in range(calls_of(run, card)):
        card.cut(at)
        with pytest.raises(KeyboardInterrupt):
            run()
        card.cut(None)
        same(run(), wanted)


@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_training_cut_short(is_behind):
    """The card's rows are those that `values` tells, whatever was cut short: what follows is what follows from them."""
    made, config = hotline_logs.log(3, 60, rows=(70, 90, 20)), hotline_logs.TINY
    layout = made.layout

    def opened(held, card_of=lambda card: card):
        return Hotline(held, layout.positions, payload=layout.payload, preset=config,
                       card=card_of(HotlineCard(hotline_logs.core(config))))

    def train(hotline, part=slice(0, 60)):
        hotline.train(hotline_logs.model, made.indices[part], made.payload[part], rate=-0.125, batch=9, slots=3)

    hotline = opened(layout.tables, Cut)
    hotline.learn(made.indices[:40])
    count = calls_of(lambda: train(hotline), hotline.card)
    for at in sorted({*range(14), *range(14, count - 14, 17), *range(count - 14, count)}):
        hotline.card.cut(at, is_behind)
        try:
            train(hotline)
        except KeyboardInterrupt:
            pass
        hotline.card.cut(None)
        now = [Table(table.name, hotline.values(table.name), table.pinned) for table in layout.tables]
        assert all(np.isfinite(table.array).all() for table in now)
        with opened(now) as fresh:
            fresh.learn(made.indices[:40])
            train(fresh, slice(10, 40))
            train(hotline, slice(10, 40))
            for table in layout.tables:
                np.testing.assert_array_equal(hotline.values(table.name), fresh.values(table.name))
    hotline.close()
    assert not hotline.card.inner.memory


def test_a_transaction_that_fails_is_unknown():
    runs = Runs(OracleCard(Emb.of(emb_tables.config())), "emb", 4)
    runs.ensure_buffer("rows", 64)
    with pytest.raises(ZeroDivisionError), runs.transaction():
        _ = 1 / 0
    assert not runs.is_known
    runs.reset()
    assert not runs.card.memory and not runs.buffers


@pytest.mark.parametrize("fails", ["inner", "outer", "none"])
def test_a_transaction_within_another_leaves_the_card_unknown(fails):
    """As a program's own function does that is called during a run and asks the same card."""
    runs = Runs(OracleCard(Emb.of(emb_tables.config())), "emb", 4)
    with suppress(ZeroDivisionError), runs.transaction():
        with suppress(ZeroDivisionError), runs.transaction():
            1 / (fails != "inner")
        1 / (fails != "outer")
    assert not runs.is_known
    with runs.transaction():
        pass
    assert runs.is_known
