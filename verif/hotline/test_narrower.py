"""The rows' way to the mailbox against golden.hotline.dispatch.sent: as they are, and in half precision."""

import random
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.hotline.dispatch import sent
from hw.hotline.narrower import DEPTH, Narrower
from verif.bench import reset, rng, seed, start
from verif.bench.pack import Ports
from verif.bench.runner import seeds, simulate

WORDS = 4
CORNERS = np.array([s | w for s in (0, 1 << 31) for w in (
    0, 1, 0x7FFFFF, 0x33000000, 0x33000001, 0x387FC000, 0x387FE000, 0x477FEFFF, 0x477FF000, 0x7F7FFFFF, 0x7F800000,
    0x7F800001, 0x7FC00000)], np.uint32)


def any_words(draw: np.random.Generator, beats: int) -> np.ndarray:
    return draw.standard_normal((beats, WORDS)).astype(np.float32).view(np.uint32)


class Bench:
    """Mini-batches one behind the other; `at`: the cycles of the last one's beats, in and out."""

    def __init__(self, dut: Any):
        self.ports, self.edge, self.cycle = Ports(dut), RisingEdge(dut.clk), 0
        self.at: tuple[list[int], list[int]] = ([], [])

    @classmethod
    async def fresh(cls, dut: Any) -> "Bench":
        start(dut)
        for name in ("begin", "beats", "half", "i__valid", "o__ready"):
            getattr(dut, name).value = 0
        await reset(dut)
        return cls(dut)

    async def step(self, **pins: int) -> None:
        self.ports.drive(**pins)
        await self.edge
        self.cycle += 1

    async def pass_on(self, words: np.ndarray, half: int, r: random.Random, *, offer: float = 1.0, room: float = 1.0,
                      most: int | None = None) -> None:
        """A mini-batch of these beats, compared; it ends behind `most` of them."""
        want = [int.from_bytes(beat.tobytes(), "little") for beat in sent(words, half)]
        given = [int.from_bytes(beat.tobytes(), "little") for beat in words]
        await self.step(begin=1, beats=len(words), half=half, i__valid=0, o__ready=0)
        self.at = came, left = [], []
        stands, held = False, None
        while len(left) < len(want) and len(came) != most:
            stands = stands or (len(came) < len(given) and r.random() < offer)
            ready = r.random() < room
            shown = {"i__payload": given[len(came)]} if stands else {}
            await self.step(begin=0, i__valid=stands, o__ready=ready, **shown)
            valid, out = self.ports.get("o__valid"), self.ports.get("o__payload")
            assert held is None or (valid and out == held), "a beat changed before it was taken"
            held = out if valid and not ready else None
            if valid and ready:
                assert out == want[len(left)], f"beat {len(left)}: {out:#x}, golden {want[len(left)]:#x}"
                left.append(self.cycle)
            if stands and self.ports.get("i__ready"):
                came.append(self.cycle)
                stands = False
            assert self.cycle < 200_000
        await self.step(i__valid=0, o__ready=1)
        assert most is not None or not self.ports.get("o__valid"), "a beat too many"


@cocotb.test()
async def smoke(dut):
    """Three beats as they are, and in two."""
    bench, words = await Bench.fresh(dut), np.arange(3 * WORDS, dtype=np.float32).view(np.uint32).reshape(-1, WORDS)
    for half in (0, 1):
        await bench.pass_on(words, half, rng("smoke"))
        assert len(bench.at[1]) == (3, 2)[half]


@cocotb.test()
async def random_match_golden(dut):
    """Mini-batches of any number of beats in both formats."""
    bench, draw, r = await Bench.fresh(dut), np.random.default_rng(seed("words")), rng("random")
    for _ in range(60):
        await bench.pass_on(any_words(draw, r.choice([1, 2, 3, r.randint(1, 70)])), r.randrange(2), r)


@cocotb.test()
async def backpressure_both_sides(dut):
    """Pauses of what comes and of what leaves, until the queue is full."""
    bench, draw, r = await Bench.fresh(dut), np.random.default_rng(seed("pressed")), rng("pressed")
    for _ in range(30):
        await bench.pass_on(any_words(draw, r.randint(1, 100)), r.randrange(2), r, offer=r.choice([0.1, 0.6, 1.0]),
                            room=r.choice([0.05, 0.5, 1.0]))


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """As they are in the same cycle; in half precision a beat every other cycle, `latency` cycles behind the
    second of two and the last of all."""
    bench, draw = await Bench.fresh(dut), np.random.default_rng(seed("rate"))
    for beats in (1, 2, 9, 4 * DEPTH):
        for half in (0, 1):
            await bench.pass_on(any_words(draw, beats), half, rng("rate"))
            came, left = bench.at
            assert came == list(range(came[0], came[0] + beats))
            ends = [at for number, at in enumerate(came) if not half or number % 2 or number == beats - 1]
            assert left == [at + half * Narrower.latency for at in ends]


@cocotb.test()
async def reset_midstream(dut):
    """What is on its way is dropped; a mini-batch behind the reset is whole."""
    draw, r = np.random.default_rng(seed("reset")), rng("reset")
    for _ in range(6):
        bench = await Bench.fresh(dut)
        await bench.pass_on(any_words(draw, 40), 1, r, room=0.3, most=r.randint(1, 20))
        bench = await Bench.fresh(dut)
        await bench.pass_on(any_words(draw, r.randint(1, 9)), 1, r)


@cocotb.test()
async def corner_values(dut):
    """Zeros, subnormals of both formats, ties, the largest numbers, infinities and NaNs."""
    bench, draw = await Bench.fresh(dut), np.random.default_rng(seed("corners"))
    for beats in (1, 2, 51):
        await bench.pass_on(draw.choice(CORNERS, (beats, WORDS)), 1, rng("corners"))


def test_illegal_config_wrong():
    """A beat of no words is refused with a sentence."""
    with pytest.raises(ValueError, match="^words is 0, must be a whole number from 1 to 64$"):
        Narrower(words=0)


@pytest.mark.parametrize("number", seeds())
def test_hotline_narrower(number):
    simulate(Narrower(words=WORDS), "verif.hotline.test_narrower", name="hotline_narrower", tests=6, seed=number)
