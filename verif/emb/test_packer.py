"""The packer against its golden model: vectors of any length in any format, one behind the other and with pauses."""

import cocotb
import numpy as np
import pytest

from golden.emb import packer
from golden.fp import fp32
from hw.emb.packer import Packer
from hw.isa.emb import FORMAT
from verif.bench import rng, seed
from verif.bench.runner import seeds, simulate
from verif.emb.beats import through

WORDS = 4
WAIVED = {
    "backpressure_both_sides": "The unit takes a beat a cycle and never waits; there is room for what comes out.",
}
SPECIALS = np.array([s | w for s in (0, 1 << 31) for w in (
    0, 1, 0x7FFFFF, 0x800000, 0x33000000, 0x33000001, 0x387FC000, 0x387FE000, 0x477FEFFF, 0x477FF000, 0x7F7FFFFF,
    0x7F800000, 0x7F800001, 0x7FC00000)], np.uint32)


def vectors(random, count, *, draw=None, form=None):
    """(format, words) of vectors of 1 to 9 beats."""
    draw = draw or (lambda size: fp32.bits(random.standard_normal(size).astype(np.float32)))
    return [(int(random.integers(len(FORMAT))) if form is None else form, draw(WORDS * int(random.integers(1, 10))))
            for _ in range(count)]


def beats(form, words):
    """What the unit's ports show for each beat of a vector."""
    rows = words.reshape(-1, WORDS)
    return form, [{"i": int.from_bytes(beat.tobytes(), "little"),
                   "form": form | at % 2 << 2 | (at == len(rows) - 1) << 3} for at, beat in enumerate(rows)]


async def compared(dut, given, pauses=lambda: 0):
    """Sends vectors and compares what comes out with the golden model. Returns the cycles of beats out and in."""
    out, taken = await through(dut, [beats(*each) for each in given], Packer.latency, pauses)
    want = [int.from_bytes(beat.tobytes(), "little") for form, words in given
            for beat in packer.pack(fp32.value(words)[None], form, WORDS).reshape(-1, WORDS)]
    assert [beat for _, beat in out] == want
    return [clock for clock, _ in out], taken


@cocotb.test()
async def smoke(dut):
    """A vector of three beats in each format."""
    out, _ = await compared(dut, [(int(form), fp32.bits(np.arange(3 * WORDS, dtype=np.float32))) for form in FORMAT])
    assert len(out) == 3 + 2 + 2


@cocotb.test()
async def random_match_golden(dut):
    """Hundreds of vectors, with and without pauses between beats."""
    random, pauses = np.random.default_rng(seed("vectors")), rng("pauses")
    for pause in (lambda: 0, lambda: pauses.randrange(4)):
        await compared(dut, vectors(random, 150), pause)


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """FP32 in the same cycle; half precision `latency` cycles behind the second beat of two, and the last of all."""
    random = np.random.default_rng(seed("rate"))
    for form in FORMAT:
        given = vectors(random, 40, form=int(form))
        left, taken = await compared(dut, given)
        late = 0 if form == FORMAT.FLOAT32 else Packer.latency
        ends = np.concatenate([[at % 2 == 1 or at == len(words) // WORDS - 1 or not late
                                for at in range(len(words) // WORDS)] for _, words in given])
        assert left == (np.array(taken)[ends] + late).tolist()
        assert taken == list(range(taken[0], taken[0] + len(taken)))


@cocotb.test()
async def reset_midstream(dut):
    """What is on its way is dropped; a vector behind the reset is whole."""
    random = np.random.default_rng(seed("reset"))
    await through(dut, [beats(*each) for each in vectors(random, 4, form=1)], Packer.latency, stop_after=6)
    await compared(dut, vectors(random, 20))


@cocotb.test()
async def corner_values(dut):
    """Zeros, subnormals of both formats, ties, the largest numbers, infinities and NaNs."""
    random = np.random.default_rng(seed("corners"))
    await compared(dut, vectors(random, 120, draw=lambda size: random.choice(SPECIALS, size)))


@pytest.mark.testpoint("illegal_config_wrong")
@pytest.mark.parametrize("words", [0, 65, 4.0, True])
def test_wrong_parameters(words):
    """Beats of no words or too many."""
    with pytest.raises(ValueError, match=f"^words is {words!r}, must be a whole number from 1 to 64$"):
        Packer(words=words)


@pytest.mark.parametrize("form", FORMAT)
def test_packed_vectors_come_back(form):
    """As the values of their format; what is left of a beat is 0."""
    vectors = np.random.default_rng(1).standard_normal((5, 3 * WORDS)).astype(np.float32)
    outputs = packer.pack(vectors, form, WORDS)
    assert outputs.shape == (5, WORDS * packer.beats(3, form))
    found = packer.unpack(outputs, form)
    np.testing.assert_allclose(found[:, :3 * WORDS], vectors, rtol=(1e-30, 2**-11, 2**-8)[form])
    assert not found[:, 3 * WORDS:].any()


@pytest.mark.parametrize("number", seeds())
def test_packer(number):
    simulate(Packer(words=WORDS), "verif.emb.test_packer", name="emb_packer", tests=5, seed=number)
