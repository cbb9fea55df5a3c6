"""Compiled networks: carried out by the oracle, their waits checked against every order in which engines could go and
as short as the core takes them, their slots counted."""

import os
from dataclasses import replace

import numpy as np
import pytest

from gen.compiler.mlp import Compiler, gemms
from gen.model.network import Network, models
from golden.fp import fp32
from golden.mlp.order import LATENCY
from golden.mlp.program import EARLY, Rules, Waits
from golden.systolic import matrix
from hw.isa import MLP
from tests.support import mlp_sizes as make
from tests.support.mlp_replay import Race, Replay

NETWORKS = {
    "one layer": make.plain(9, 5),
    "gemm": make.plain(40, 24, bias=False),
    "layers": make.plain(13, 40, 21, 7, last="relu"),
    "to a sigmoid": make.plain(16, 32, 1, last="sigmoid"),
    "wide, in chunks": make.plain(1500, 70, 3),
    "streamed": make.plain(30, 200, 180, 9),
    "dot": make.joined("dot", 5, 6),
    "dot, many features": make.joined("dot", 26, 16, bottom=(13, 30), top=(33, 20, 1)),
    "dot, one feature": make.joined("dot", 1, 3, last="none"),
    "concat": make.joined("concat", 4, 10),
    "concat in chunks": make.joined("concat", 26, 32, bottom=(13, 30, 20), top=(33, 2)),
}


def by_the_plan(compiler, dense, embeddings):
    """The network's results bit for bit, a layer at a time: terms in the order of the plan, chunk after chunk."""
    network, kind = compiler.network, {"beat": compiler.config.width, "grouped": compiler.config.grouped}

    def layer(plan, x):
        total = None
        for chunk in plan.chunks:
            real = chunk.order >= 0
            terms = np.zeros((len(x), len(chunk.order)), np.float32)
            terms[:, real] = x[:, chunk.order[real]]
            weights = np.zeros((plan.layer.outputs, len(chunk.order)), np.float32)
            weights[:, real] = plan.layer.weights[chunk.order[real]].T
            y = matrix.products(terms, weights, **kind)
            if total is not None:
                y = fp32.add(y, total)
            elif plan.layer.bias is not None:
                y = fp32.add(y, plan.layer.bias)
            total = y
        if plan.layer.activation == "relu":
            total = fp32.maximum(total, np.float32(0))
        return fp32.sigmoid(total) if plan.layer.activation == "sigmoid" else total

    x = dense
    for plan in compiler.plan.layers[:len(network.bottom)]:
        x = layer(plan, x)
    if network.interaction == "concat":
        x = np.concatenate([x, embeddings.reshape(len(x), -1)], axis=1)
    if network.interaction == "dot":
        vectors = np.concatenate([x[:, None], embeddings], axis=1)
        row, column = np.tril_indices(network.features + 1, -1)
        x = np.concatenate([x, fp32.dot(vectors[:, row], vectors[:, column], **kind)], axis=1)
    for plan in compiler.plan.layers[len(network.bottom):]:
        x = layer(plan, x)
    return x


@pytest.mark.turns(2)
@pytest.mark.parametrize("shape", make.SHAPES)
@pytest.mark.parametrize("name", NETWORKS)
def test_results_are_the_networks_and_nothing_can_race(name, shape):
    network, config = NETWORKS[name], make.SHAPES[shape]
    for batch, others in ((1, ()), (19, ((19, True), (40, True))), (48 if shape == "tiny" else 130, ((3, False),))):
        compiler = Compiler(network, config, batch=batch)
        for count, cold in ((batch, False), *others):
            dense, embeddings = make.batch(network, count, seed=count)
            program, core = compiler.compile(count, cold=cold), make.core(config)
            if not cold:
                loaded = make.carry_out(core, compiler.load, compiler.weights, np.zeros(0, np.uint32))[1]
                assert loaded.code == 0
            inputs = compiler.inputs(dense, embeddings)
            assert inputs.shape == (program.inputs_beats, config.words)
            outputs, result = make.carry_out(core, program, compiler.weights, inputs)
            assert result.code == 0, program.steps[result.instruction]
            got = compiler.results(outputs, count)
            exact = network(dense, embeddings)
            np.testing.assert_allclose(got, exact, rtol=1e-4, atol=2e-5 * np.abs(exact).max())
            want = by_the_plan(compiler, dense, embeddings)
            np.testing.assert_array_equal(fp32.bits(got), fp32.bits(want))
            Replay(make.core(config), () if cold else [compiler.load.words]).run(program.words)
            assert result.counters["slots"] <= program.slots


SEEDS = 200 if os.environ.get("HOTRAIL_REGRESS") else 16


@pytest.mark.turns(4)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_network_on_any_core(seed):
    """Networks and cores by chance, small memories among them; what does not fit is refused in a sentence."""
    random = np.random.default_rng([seed, 7])

    def one_of(*values):
        return values[random.integers(len(values))]

    config = None
    while config is None:
        try:
            config = replace(make.TINY, units=one_of(2, 4), rows=one_of(2, 4, 8), width=one_of(1, 2, 4),
                             words=one_of(8, 16), row_lines=one_of(128, 256, 1024), addend_lines=one_of(64, 256, 1024),
                             weight_lines=one_of(128, 512, 2048))
        except ValueError:
            pass
    widths = [one_of(1, 3, 13, 40, 200, 700), *random.integers(1, 60, random.integers(1, 4)).tolist()]
    interaction = one_of("none", "concat", "dot")
    if interaction == "none":
        network = make.plain(*widths, last=one_of("none", "relu", "sigmoid"))
    else:
        network = make.joined(interaction, int(random.integers(1, 28)), one_of(1, 4, 6, 8, 16, 33), widths,
                              random.integers(1, 60, 2).tolist(), "none")
    batch, mode = one_of(1, 7, 16, 33), one_of(None, None, "throughput", "latency")
    formats = {name: one_of("float32", "float16") for name in ("dense", "features")}
    try:
        compiler = Compiler(network, config, batch=batch, **formats)
    except ValueError as error:
        assert "memory has" in str(error) or "addends' memory, which has" in str(error)
        return
    program, core = compiler.compile(2 * batch + 1, cold=True, mode=mode), make.core(config)
    given = make.batch(network, 2 * batch + 1, seed)
    outputs, result = make.carry_out(core, program, compiler.weights, compiler.inputs(*given))
    assert result.code == 0
    dense, embeddings = (each if each is None else each.astype(form).astype(np.float32)
                         for each, form in zip(given, formats.values(), strict=True))
    got = compiler.results(outputs, 2 * batch + 1)
    np.testing.assert_array_equal(fp32.bits(got), fp32.bits(by_the_plan(compiler, dense, embeddings)))
    if result.counters["tiles"] < 3000:
        Replay(make.core(config)).run(program.words)


@pytest.mark.turns(1)
@pytest.mark.parametrize(("name", "beats"), [("dot", (1 + 5, 1 + 5)), ("concat", (1 + 5, 1 + 3)),
                                             ("concat in chunks", (2 + 104, 2 + 52))])
def test_features_in_half_the_beats(name, beats):
    """Of a core of 8 words a beat: 5 or 13 dense values, and 5 x 6, 4 x 10 or 26 x 32 values of features; a vector of
    6 has a beat either way. What float16 holds arrives as it was."""
    network = NETWORKS[name]
    full, half = (Compiler(network, make.TINY, batch=9, features=form) for form in ("float32", "float16"))
    dense, embeddings = make.batch(network, 9)
    rounded = embeddings.astype(np.float16)
    for compiler, given, beats_each in ((full, rounded, beats[0]), (half, rounded, beats[1]),
                                        (half, embeddings, beats[1])):
        inputs, program = compiler.inputs(dense, given), compiler.compile(9, cold=True)
        outputs, result = make.carry_out(make.core(make.TINY), program, compiler.weights, inputs)
        assert len(inputs) == program.inputs_beats == result.counters["rows_beats"] == 9 * beats_each
        want = by_the_plan(compiler, dense, rounded.astype(np.float32))
        np.testing.assert_array_equal(fp32.bits(compiler.results(outputs, 9)), fp32.bits(want))


def test_what_float16_does_not_hold():
    """To nearest even, infinity past the largest number; other formats are refused in a sentence."""
    compiler = Compiler(make.plain(5, 3), make.TINY, batch=1, dense="float16")
    inputs = compiler.inputs(np.float32([[1 + 2**-11, 1 + 3 * 2**-11, 65519, -65520, 2**-25]]))
    assert inputs.view(np.uint16)[0, :5].tolist() == [0x3C00, 0x3C02, 0x7BFF, 0xFC00, 0]
    for name in ("dense", "features"):
        with pytest.raises(ValueError, match=f"^{name} must be float32 or float16, not 'bfloat16'$"):
            Compiler(make.plain(5, 3), make.TINY, **{name: "bfloat16"})


def test_a_mode_for_all_layers():
    compiler = Compiler(NETWORKS["layers"], make.SMARTSSD, batch=20)
    for number, mode in enumerate(MLP.modes):
        steps = compiler.compile(20, mode=mode).steps
        assert {step.values["mode"] for step in steps if step.name == "LAYER"} == {number}
    with pytest.raises(ValueError, match="mode must be one of throughput, latency, not 'fast'"):
        compiler.compile(20, mode="fast")


def weakened(program):
    """Copies of a program in each of which one wait is a little too short."""
    words, waited = program.words, {}
    for number, line in enumerate(words):
        item = MLP.decode(line)
        for name in ("wait_rows", "wait_weights", "wait_layers"):
            engine = min(item.opcode, 4), name
            if getattr(item, name) > waited.get(engine, 0):     # not only what one before it waited for
                waited[engine] = getattr(item, name)
                changed = words.copy()
                changed[number, MLP.field(name).word] -= 1
                yield f"{name} of instruction {number}", changed


@pytest.mark.turns(1)
@pytest.mark.parametrize(("name", "shape"), [
    ("layers", "smartssd"), ("layers", "tiny"), ("dot", "screc"), ("dot", "smartssd"), ("streamed", "tiny"),
    ("concat in chunks", "tiny")])
def test_waits_are_as_short_as_they_can_be(name, shape):
    """With any that is one shorter the program is refused, and most often the replay sees a race."""
    config = make.SHAPES[shape]
    program = Compiler(NETWORKS[name], config, batch=40).compile(40, cold=True)
    cases = list(weakened(program))
    cases, missed = cases[::-(-len(cases) // 24)], []
    for what, words in cases:
        waits = Waits(Rules(config))
        for item in map(MLP.decode, words):
            refusal = waits.refusal(item, [1 << 32] * 3)
            if refusal:
                break
            waits.add(item)
        assert refusal and refusal[0] == EARLY, what
        try:
            Replay(make.core(config)).run(words)
            missed.append(what)
        except Race:
            pass
    # Lines of which only some are used in common, and loads of addends, which wait with those of weights.
    assert len(cases) > 5 and len(missed) < len(cases) / 2, missed


# Rates.


@pytest.mark.turns(1)
@pytest.mark.parametrize(("name", "dim", "least"), [
    ("screc_rm0", 16, 0.97), ("screc_rm0", 256, 0.99), ("screc_rm1", 64, 0.99), ("screc_rm2", 16, 0.99),
    ("screc_rm2", 64, 0.99), ("screc_rm2", 256, 0.99), ("screc_rm3", 16, 0.99), ("screc_rm3", 64, 0.99),
    ("screc_rm3", 256, 0.99), ("hotline_rm2", None, 0.94), ("hotline_rm3", None, 0.92), ("hotline_rm4", None, 0.93),
])
def test_whole_networks_keep_the_array_busy(name, dim, least):
    """Batches of 128 in a row. Hotline's interactions cost more than the pairs that count: half of a block on the
    diagonal is not used, nor are the words that pad the triangle, and the bottom's last layer is computed twice. The
    shortest layers do not hide all of their wait for those before."""
    network = Network.model(name, dim=dim)
    compiler = Compiler(network, make.SMARTSSD, batch=128)
    one, two = (compiler.compile(128 * batches) for batches in (2, 4))
    assert 2 * 128 * network.macs / make.SMARTSSD.macs / (two.predicted - one.predicted) >= least
    assert one.slots < one.issued < 1.02 * one.slots + 5000


@pytest.mark.turns(1)
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 64), (16, 512), (512, 16), (256, 8), (512, 512), (1024, 1024)])
def test_layers_of_whole_steps_take_every_slot(inputs, outputs):
    """Slots against useful multiplications, K a multiple of 4 and N of 8."""
    program = Compiler(make.plain(inputs, outputs), make.SMARTSSD, batch=128).compile(128)
    assert program.slots * make.SMARTSSD.macs == program.macs


def test_back_to_back_products_keep_the_array_busy():
    random = np.random.default_rng(1)
    pairs = [(random.standard_normal((64, 64), np.float32), random.standard_normal((64, 64), np.float32))
             for _ in range(24)]
    made = gemms(pairs, make.SMARTSSD)
    assert made.program.slots == 24 * 512 and made.program.predicted < 24 * 512 + 600
    outputs, result = make.carry_out(make.core(make.SMARTSSD), made.program, made.weights, made.inputs)
    assert result.code == 0
    for got, (x, w) in zip(made.results(outputs), pairs, strict=True):
        np.testing.assert_array_equal(fp32.bits(got), fp32.bits(matrix.products(x, w.T, 4, grouped=True)))
    Replay(make.core(make.SMARTSSD)).run(made.program.words)


def test_products_of_any_shapes():
    random = np.random.default_rng(2)
    shapes = [(5, 3, 7), (130, 40, 9), (1, 600, 50), (33, 8, 700), (2, 1, 1), (64, 64, 64)]
    for config in make.SHAPES.values():
        pairs = [(random.standard_normal((m, k), np.float32), random.standard_normal((k, n), np.float32))
                 for m, k, n in shapes]
        made = gemms(pairs, config)
        outputs, result = make.carry_out(make.core(config), made.program, made.weights, made.inputs)
        assert result.code == 0
        for got, (x, w) in zip(made.results(outputs), pairs, strict=True):
            exact = x.astype(np.float64) @ w
            np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())
        Replay(make.core(config)).run(made.program.words)


def test_a_single_sample_is_computed_by_all_units():
    program = Compiler(make.plain(64, 256, 256, 64), make.SMARTSSD, batch=1).compile(1)
    modes = {step.values["mode"] for step in program.steps if step.name == "LAYER"}
    assert modes == {LATENCY}
    # 32 columns of every slot, one row of four units' sixteen.
    assert program.slots == (64 * 256 + 256 * 256 + 256 * 64) // 128


def test_small_mini_batches_go_in_pairs_where_that_hides_waits():
    config = make.SMARTSSD
    network = make.plain(1024, 32, 32, 32, 32)
    compiler = Compiler(network, config, batch=32)
    alone = compiler.compile(16).predicted
    assert compiler.compile(32).predicted < 2 * alone


def test_weights_stay_where_they_fit():
    compiler = Compiler(make.plain(64, 64, 8), make.SMARTSSD, batch=64)
    assert {step.name for step in compiler.load.steps} == {"LOAD_WEIGHTS", "LOAD_ADDENDS"}
    assert "LOAD_WEIGHTS" not in {step.name for step in compiler.compile(64).steps}
    large = Compiler(Network.model("screc_rm3", dim=256), make.SMARTSSD)
    streamed = [step for step in large.compile(128).steps if step.name == "LOAD_WEIGHTS"]
    kept = [step.about for step in large.load.steps if step.name == "LOAD_WEIGHTS"]
    assert len(streamed) > 60 and kept and not any("top 1" in about for about in kept)


def test_steps_say_what_they_are_about():
    compiler = Compiler(NETWORKS["dot"], make.SMARTSSD, batch=20)
    told = [step.about for step in compiler.compile(20, cold=True).steps]
    assert "layer bottom 1, samples 0 to 19" in told and "dot products, samples 0 to 19" in told
    assert "weights of layer top 2" in told and "features, samples 0 to 19" in told


# What is refused.


@pytest.mark.parametrize("batch", [0, -3, 1.5, None, True])
def test_batches_wrong(batch):
    with pytest.raises(ValueError, match="a batch has 1 sample or more, not"):
        Compiler(NETWORKS["dot"], make.TINY, batch=batch)
    with pytest.raises(ValueError, match="a batch has 1 sample or more, not"):
        Compiler(NETWORKS["dot"], make.TINY).compile(batch)


@pytest.mark.parametrize(("change", "sentence"), [
    (dict(dense=np.zeros((4, 6))), r"dense must have the shape \(samples, 5\), not \(4, 6\)"),
    (dict(dense=np.zeros((0, 5))), r"dense must have the shape \(samples, 5\), not \(0, 5\)"),
    (dict(dense=np.zeros(5)), r"dense must have the shape \(samples, 5\), not \(5,\)"),
    (dict(dense=np.full((4, 5), "a")), "dense must be numbers"),
    (dict(embeddings=None), "the network has 5 sparse features: embeddings are missing"),
    (dict(embeddings=np.zeros((4, 5, 7))), r"embeddings must have the shape \(4, 5, 6\), not \(4, 5, 7\)"),
    (dict(embeddings=np.zeros((3, 5, 6))), r"embeddings must have the shape \(4, 5, 6\), not \(3, 5, 6\)"),
])
def test_inputs_wrong(change, sentence):
    compiler = Compiler(NETWORKS["dot"], make.TINY, batch=4)
    given = {"dense": np.zeros((4, 5)), "embeddings": np.zeros((4, 5, 6)), **change}
    with pytest.raises(ValueError, match=sentence):
        compiler.inputs(**given)


def test_embeddings_without_features_wrong():
    with pytest.raises(ValueError, match="the network has no sparse features, so embeddings must be None"):
        Compiler(NETWORKS["layers"], make.TINY, batch=4).inputs(np.zeros((4, 13)), np.zeros((4, 1)))


def test_features_may_be_flat():
    compiler = Compiler(NETWORKS["dot"], make.TINY, batch=4)
    dense, embeddings = make.batch(NETWORKS["dot"], 4)
    np.testing.assert_array_equal(compiler.inputs(dense, embeddings), compiler.inputs(dense, embeddings.reshape(4, 30)))


@pytest.mark.parametrize(("network", "sentence"), [
    (make.plain(8, 3000, 300), "the network does not fit: the weights' memory has no 1500 lines left"),
    (make.plain(8, 9000, 3), r"layer bottom 2 has 9000 inputs; at most 8190 are possible behind another layer"),
    (make.plain(8, 20000), r"layer bottom 1 has 20000 outputs; at most 16376"),
    (make.plain(8, 700, 700), "the biases take 350 lines of the addends' memory, which has 256"),
    (make.joined("dot", 20, 100, bottom=(5,), top=(1,)), "the network does not fit: the rows' memory has no 286 lines"),
])
def test_networks_too_large_wrong(network, sentence):
    if "not fit" in sentence:
        network = replace(network, bottom=[replace(layer, bias=None) for layer in network.bottom])
    with pytest.raises(ValueError, match=sentence):
        Compiler(network, make.TINY, batch=8)


def test_products_wrong():
    ones = np.ones((4, 4))
    with pytest.raises(ValueError, match=r"product 1: dense must have the shape \(samples, 4\), not \(4, 3\)"):
        gemms([(ones, ones), (ones[:, :3], ones)], make.TINY)
    with pytest.raises(ValueError, match="product 0: weights must be finite"):
        gemms([(ones, ones * np.nan)], make.TINY)
    with pytest.raises(ValueError, match="product 0: a batch has 1 sample or more"):
        gemms([(ones[:0], ones)], make.TINY)


def test_every_model_compiles():
    for name in models():
        dim = 32 if name.startswith("screc") else None
        for config in (make.SMARTSSD, make.SCREC):
            program = Compiler(Network.model(name, dim=dim), config, batch=16).compile(16)
            assert program.predicted >= program.slots
