"""fpga.api.network on a card whose core is the oracle: results, buffers, errors; and on the simulated card."""

import numpy as np
import pytest

import fpga.card.runs
from fpga.api.network import MlpNetwork, Network, RunError, Runner
from gen.compiler.mlp import Compiler, gemms
from gen.rtl.config import load
from golden.fp import fp32
from tests.support import mlp_sizes as make
from tests.support.mlp_card import OracleCard


def opened(network, config=make.TINY, **options):
    return MlpNetwork(network, card=OracleCard(make.core(config)), preset=config, **options)


@pytest.mark.parametrize("network", [
    make.plain(13, 20, 5), make.joined("dot", 5, 6), make.joined("concat", 3, 10)], ids=["plain", "dot", "concat"])
def test_results_of_several_batches(network):
    with opened(network, batch=32) as net:
        for count in (32, 1, 70, 32):
            dense, embeddings = make.batch(network, count, seed=count)
            got = net(dense, embeddings)
            assert got.dtype == np.float32 and got.shape == (count, network.outputs)
            np.testing.assert_allclose(got, network(dense, embeddings), rtol=1e-4, atol=1e-5)
            assert net.last["code"] == 0 and net.last["instructions"] == len(net.program.words)
        assert net.card.runs == 5, "weights that fit are brought once"


def test_batches_may_be_doubles_and_lists():
    network = make.plain(2, 3)
    with opened(network) as net:
        np.testing.assert_array_equal(net([[1, 2], [3, 4]]), net(np.array([[1.0, 2], [3, 4]])))


def test_buffers_grow_and_are_given_back():
    network = make.plain(9, 4)
    net = opened(network, batch=8)
    for count in (3, 500, 20):
        assert net(make.batch(network, count)[0]).shape == (count, 4)
    card = net.card
    net.close()
    net.close()
    assert not card.memory and not card.closed, "the card belongs to whoever opened it"


def test_a_card_opened_by_name_is_closed(monkeypatch):
    card, asked = OracleCard(make.core(make.TINY)), []
    monkeypatch.setattr(fpga.card.runs, "open_card", lambda kind, **options: asked.append((kind, options)) or card)
    with MlpNetwork(make.plain(3, 4), preset=make.TINY, memory="ideal"):
        assert asked == [("sim", {"core": "mlp", "preset": make.TINY, "memory": "ideal"})] and not card.closed
    assert card.closed


def test_errors_of_the_core_name_the_layer_and_the_next_run_is_sound():
    network = make.plain(13, 20, 5)
    with opened(network, batch=8) as net:
        dense = make.batch(network, 8)[0]
        good = net(dense)

        def spoil(program):
            program[-1, 10] = 1 << 20

        net.card.spoil = spoil
        with pytest.raises(RunError, match="layer bottom 2, samples 0 to 7: BOUNDS: .* \\(0x1\\)") as e:
            net(dense)
        assert (e.value.code, e.value.detail, e.value.instruction) == (4, 1, len(net.program.words) - 1)
        net.card.spoil = None
        net.card.core.weight_memory[:] = 0x7FC00000
        np.testing.assert_array_equal(net(dense), good)


def test_the_layer_below_runs_any_program():
    random = np.random.default_rng(1)
    pairs = [(random.standard_normal((9, 7), np.float32), random.standard_normal((7, 5), np.float32))] * 3
    made = gemms(pairs, make.TINY)
    card = OracleCard(make.core(make.TINY))
    runner = Runner(card, make.TINY.words)
    runner.weights(made.weights)
    for got in made.results(runner.run(made.program.words, made.inputs, made.program.outputs_beats)):
        np.testing.assert_allclose(got, pairs[0][0] @ pairs[0][1], rtol=1e-4, atol=1e-5)
    with pytest.raises(RunError, match="^instruction 0: BAD_INSTRUCTION"):
        runner.run(np.zeros((1, 16), np.uint32), made.inputs, 1)
    runner.close()
    assert not card.memory


@pytest.mark.parametrize(("call", "sentence"), [
    ((np.zeros((0, 5)), np.zeros((0, 5, 6))), r"dense must have the shape \(samples, 5\), not \(0, 5\)"),
    ((np.zeros((2, 5)),), "the network has 5 sparse features: embeddings are missing"),
    ((np.zeros((2, 5)), np.zeros((2, 5, 5))), r"embeddings must have the shape \(2, 5, 6\), not \(2, 5, 5\)"),
])
def test_wrong(call, sentence):
    with opened(make.joined("dot", 5, 6)) as net:
        runs = net.card.runs
        with pytest.raises(ValueError, match=sentence):
            net(*call)
        assert net.card.runs == runs


def test_what_cannot_be_opened_wrong():
    with pytest.raises(ValueError, match="network must be a Network"):
        MlpNetwork("hotline_rm2")
    with pytest.raises(ValueError, match="a batch has 1 sample or more, not 0"):
        opened(make.plain(3, 4), batch=0)
    with pytest.raises(ValueError, match="the network does not fit: the weights' memory has no 1500 lines left"):
        opened(Network([make.plain(8, 3000, bias=False).bottom[0], make.plain(3000, 3000, bias=False).bottom[0]]))


# The simulated card, preset tiny.


def both(network, config, card, counts, batch):
    """Results of the core on a card, equal to the oracle's bit for bit."""
    with MlpNetwork(network, card=card, preset=config, batch=batch, limit_cycles=3_000_000) as net, \
            opened(network, config, batch=batch) as twin:
        for count in counts:
            dense, embeddings = make.batch(network, count, seed=count)
            np.testing.assert_array_equal(fp32.bits(net(dense, embeddings)), fp32.bits(twin(dense, embeddings)))
            for name in ("instructions", "rows_beats", "weights_beats", "outputs_beats", "tiles", "slots"):
                assert net.last[name] == twin.last[name], name
        return net.last


@pytest.fixture(scope="module")
def simulated():
    from fpga.card import open as open_card
    with open_card("sim", core="mlp", preset="tiny", memory="ideal") as card:
        yield card


@pytest.mark.turns(1, of="flows")
@pytest.mark.parametrize(("network", "counts"), [
    (make.plain(13, 20, 5), (1, 30)),
    (make.plain(16, 32, 1, last="sigmoid"), (1, 17)),
    (make.plain(900, 30, 3), (13,)),
    (make.plain(30, 120, 70, 9), (26,)),
    (make.joined("dot", 5, 6), (1, 21)),
    (make.joined("dot", 26, 16, bottom=(13, 30), top=(33, 20, 1)), (9,)),
    (make.joined("concat", 26, 20, bottom=(13, 30, 20), top=(33, 1)), (22,)),
], ids=["plain", "sigmoid", "chunks", "streamed", "dot", "dot 27", "concat"])
def test_networks_on_the_simulated_card(simulated, network, counts):
    config = load("tiny").cores["mlp"]
    last = both(network, config, simulated, counts, max(counts))
    assert last["cycles"] > last["slots"]


def test_products_on_the_simulated_card(simulated):
    config = load("tiny").cores["mlp"]
    random = np.random.default_rng(5)
    pairs = [(random.standard_normal((m, k), np.float32), random.standard_normal((k, n), np.float32))
             for m, k, n in [(8, 16, 16)] * 8 + [(5, 3, 7), (1, 100, 9), (20, 9, 40)]]
    made = gemms(pairs, config)
    found = []
    for card in (simulated, OracleCard(make.core(config))):
        runner = Runner(card, config.words, limit_cycles=1_000_000)
        runner.weights(made.weights)
        found.append(runner.run(made.program.words, made.inputs, made.program.outputs_beats))
        runner.close()
    np.testing.assert_array_equal(*found)


def test_sizes_of_the_presets_are_those_of_the_tests():
    for name, config in make.SHAPES.items():
        of_preset = load(name).cores["mlp"]
        for key in ("units", "rows", "width", "words", "row_lines", "weight_lines", "addend_lines"):
            assert getattr(of_preset, key) == getattr(config, key), (name, key)
    assert Compiler(make.plain(3, 4), load("tiny").cores["mlp"]).weights.size
