"""The twin of a card with the MLP core beside the card: values bit for bit, cycles, counters and transfers."""

import numpy as np
import pytest

from fpga.api.network import MlpNetwork
from fpga.card import CardError
from gen.compiler.emb import encode
from hw.isa import MLP
from hw.isa.mlp import ADDEND
from tests.support.mlp_bench import Bench
from tests.support.mlp_programs import Mix, Run
from tests.support.mlp_sizes import TINY, batch, joined, plain
from tests.support.twins import told

# Weights that stay and weights that are streamed, layers in parts, both interactions; and samples of batches.
NETWORKS = {"plain": (plain(20, 30, 7), (1, 9, 36)), "parts": (plain(700, 37, 5, last="sigmoid"), (2,)),
            "dot": (joined("dot", 5, 13, bottom=(21, 17), top=(30, 3)), (1, 9, 36)),
            "concat": (joined("concat", 3, 8), (1, 33, 132)),
            "half": (joined("dot", 5, 20, bottom=(21, 17), top=(30, 3)), (1, 36))}
FORMATS = {"half": {"dense": "float16", "features": "float16"}}
DOT, SAMPLES = NETWORKS["dot"][0], 9


def beside(kind, network, memory="ddr4", **formats):
    return MlpNetwork(network, card=kind, preset=TINY, batch=9, memory=memory, **formats)


@pytest.mark.turns(1)
@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
@pytest.mark.parametrize("name", NETWORKS)
def test_is_its_card(name, memory):
    """A load, and batches of several sizes, so that both modes are used: every result, the counters of the run with
    its cycles, the memory's, the link's and the ports'."""
    network, counts = NETWORKS[name]
    formats = FORMATS.get(name, {})
    with beside("sim", network, memory, **formats) as card, beside("twin", network, memory, **formats) as twin:
        assert told(twin) == told(card)
        for count in counts:
            given = batch(network, count)
            assert twin(*given).tobytes() == card(*given).tobytes()
            assert told(twin) == told(card) and twin.last["cycles"] > count


@pytest.mark.parametrize(("missing", "detail"), [("LOAD_ROWS", 0), ("LOAD_WEIGHTS", 1), ("LOAD_ADDENDS", 2)])
def test_operands_that_were_never_loaded(missing, detail):
    """The card finds what no load has written, and its twin and the oracle say the same."""
    mix = Mix(TINY, np.random.default_rng(3))
    mix.to_memory(mix.rows(5, 2), 3, addend=ADDEND.BIAS)
    program = mix.run()
    loads = [MLP.instruction(name).opcode for name in ("LOAD_ROWS", "LOAD_WEIGHTS", "LOAD_ADDENDS")]
    left = [words for words in program.words if words[0] & 0xFF != MLP.instruction(missing).opcode]
    program.words = np.stack(left)
    program.words[:, [MLP.field(f"wait_{name}").word for name in ("rows", "weights", "layers")]] = 0
    for at, opcodes in (("wait_rows", loads[:1]), ("wait_weights", loads[1:])):
        program.words[-1, MLP.field(at).word] = sum(int(words[0]) & 0xFF in opcodes for words in left)
    card, twin = (Bench(kind=kind) for kind in ("sim", "twin"))
    with card.card, twin.card:
        known, _ = card.refused(program, ("code", "instruction", "detail"))
        assert (known["code"], known["instruction"], known["detail"]) == (MLP.code("MEMORY"), 2, detail)
        with pytest.raises(CardError, match="instruction 2 would end the run in MEMORY$"):
            twin.start(program)


def test_goes_on_after_a_reset():
    given = batch(DOT, SAMPLES)
    with beside("twin", DOT, "ideal") as twin:
        wanted, cycles = twin(*given), twin.last["cycles"]
        twin._runs.limit_cycles = 500
        with pytest.raises(CardError, match="not done after"):
            twin(*given)
        twin._runs.limit_cycles = 1 << 30
        assert twin(*given).tobytes() == wanted.tobytes() and twin.last["cycles"] == cycles


def test_a_program_with_a_fault_is_refused():
    """In one sentence, and nothing of it has happened."""
    twin = Bench(kind="twin")
    with twin.card:
        run = twin.network(DOT, SAMPLES)
        wrong = Run(np.concatenate([run.words, [encode("LAYER", {
            "count": 1, "steps": 1, "groups": 1, "last_columns": 1, "target": 3, "out": run.outputs_beats}, MLP)]]),
            run.inputs, run.weights, run.outputs_beats)
        with pytest.raises(CardError) as caught:
            twin.start(wrong)
        assert str(caught.value) == (f"the twin models no faults: instruction {len(run.words)} would end the run in "
                                     "BOUNDS")
        assert (twin.card.read(twin.buffers["outputs"]) == 0xAA).all()
        twin.same(run)
