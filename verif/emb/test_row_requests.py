"""Row requests against their model, every output in every cycle: banks, pieces, pauses of the port."""

import os
from collections import deque

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from hw.emb.row_requests import CLOSE_AT, RowRequests
from verif.bench import report, reset, rng, start
from verif.bench.pack import layout_of
from verif.bench.runner import one_of, seeds, simulate
from verif.bench.stream import bursty, sometimes
from verif.emb.cycles import Fetched
from verif.emb.cycles import RowRequests as Model

SIZES = {
    "narrow": {"words": 4, "row_beats_max": 8, "position_bits": 8, "stripe_beats": 8, "banks": 4, "rows": 64},
    "one": {"words": 4, "row_beats_max": 4, "position_bits": 6, "stripe_beats": 1, "banks": 1, "rows": 32},
    "shipped": {"words": 16, "row_beats_max": 32, "position_bits": 10, "stripe_beats": 8, "banks": 8, "rows": 256},
}
ROWS_AT, RING_AT = 0x5A3C_6940_1234_5000, 0xA5C3_96BF_EDCB_A000     # each bit is another


class Bench:
    """Drives the unit and its model, and compares all outputs in every cycle; plays the memory, in order."""

    def __init__(self, dut):
        self.dut, self.size = dut, SIZES[os.environ["ROW_REQUESTS"]]
        self.model = Model(**{name: self.size[name] for name in ("stripe_beats", "banks", "rows")})
        # Rows that have not been asked for, by bank; requests that the one under way still takes; of rows whose beats
        # come back: bank, beats left and place.
        self.waiting = [deque() for _ in range(self.size["banks"])]
        self.pieces, self.order = deque(), deque()
        self.random = rng("rows")
        self.pack, self.request = layout_of("i").pack, layout_of("o__payload").unpack
        self.entered, self.asked, self.coming = 0, [], 0
        dut.rows.value, dut.ring.value = ROWS_AT, RING_AT
        dut.valid.value = dut.beat.value = dut.o__ready.value = 0

    @property
    def under_way(self) -> int:
        """Rows inside or coming back."""
        return sum(map(len, self.waiting)) + len(self.order)

    def bank_of(self, offset: int) -> int:
        return offset % self.size["stripe_beats"] * self.size["banks"] // self.size["stripe_beats"]

    def row(self, bank=None) -> Fetched:
        """A row with pieces of any length, in a bank or anywhere."""
        size, draw = self.size, self.random.randrange
        beats = draw(1, size["row_beats_max"] + 1)
        pieces = [beats, *(1 << k for k in range((size["stripe_beats"] - 1).bit_length()) if beats % (1 << k) == 0)]
        offset = draw(1 << 31)
        if bank is not None:
            offset += (bank - self.bank_of(offset)) * (size["stripe_beats"] // size["banks"])
        return Fetched(offset, beats - 1, self.random.choice(pieces) - 1, bool(draw(2)))

    async def cycle(self, row: Fetched | None = None, *, ready=True, beat=True) -> bool:
        """One clock edge: a row enters if there is room, the port takes a request, a beat comes back where one is
        due. Whether the row entered."""
        dut, model, size = self.dut, self.model, self.size
        enters = row is not None and not model.full and self.under_way < size["rows"]
        position = self.random.randrange(1 << size["position_bits"])
        dut.valid.value = enters
        if enters:
            dut.i.value = self.pack({"offset": row.offset, "ring": row.ring, "beats": row.beats, "piece": row.piece,
                                     "position": position})
        beat = beat and self.coming > 0
        dut.beat.value, dut.o__ready.value = beat, ready
        await RisingEdge(dut.clk)
        shown = {"full": bool(dut.full.value), "request": None}
        expected = {"full": model.full, "request": None}
        if dut.o__valid.value:
            shown["request"] = self.request(int(dut.o__payload.value))
        if model.request is not None:
            offset, beats = model.request
            expected["request"] = {"address": (RING_AT if model.ring else ROWS_AT) + offset * 4 * size["words"]
                                   & (1 << 64) - 1, "beats": beats}
        assert shown == expected, f"{shown}, expected {expected}"
        taken = ready and model.request is not None
        if taken:
            self.asked.append(expected["request"]["address"])
            self.coming += expected["request"]["beats"]
        self.coming -= beat
        landing = int(dut.bank.value), int(dut.place.value)
        stands = model.request is not None and not taken
        bank = model.step(row if enters else None, taken, beat)
        if beat:
            first = self.order[0]
            assert landing == (first[0], first[2] % (1 << size["position_bits"])) and bank == first[0]
            first[1:] = first[1] - 1, first[2] + 1
            if not first[1]:
                self.order.popleft()
        if enters:
            self.waiting[self.bank_of(row.offset)].append((row, position))
        if model.request is not None and not stands:
            self.follow(*model.request, model.ring)
        self.entered += enters
        return enters

    def follow(self, offset: int, beats: int, ring: bool) -> None:
        """A request comes: of the row under way, or of the first that waits in its bank."""
        if not self.pieces:
            bank, stripe = self.bank_of(offset), self.size["stripe_beats"]
            row, position = self.waiting[bank].popleft()
            self.order.append([bank, row.beats + 1, position])
            self.pieces.extend((row.offset + at * stripe, row.piece + 1, row.ring)
                               for at in range((row.beats + 1) // (row.piece + 1)))
        assert (offset, beats, ring) == self.pieces.popleft()

    async def drain(self) -> None:
        """Until all that was asked for has come back."""
        while self.under_way or self.model.request:
            await self.cycle()
        await self.cycle()


async def fresh(dut) -> Bench:
    start(dut)
    bench = Bench(dut)
    await reset(dut)
    return bench


@cocotb.test()
async def smoke(dut):
    """One row of two pieces, or of one: its requests, a stripe apart, and where its beats go."""
    bench = await fresh(dut)
    stripe, beat_bytes = bench.size["stripe_beats"], 4 * bench.size["words"]
    piece = 1 if stripe > 1 else 2
    await bench.cycle(Fetched(64, 1, piece - 1, False))
    await bench.drain()
    assert bench.asked == [ROWS_AT + (64 + k * stripe) * beat_bytes for k in range(2 // piece)]


@cocotb.test()
async def random_match_golden(dut):
    """Rows of all kinds in all banks, with pauses on every side: every output as the model's."""
    bench = await fresh(dut)
    for came, taken, back in ((0.3, 0.9, 0.9), (0.9, 0.5, 0.7), (0.9, 0.9, 0.9), (0.5, 0.2, 0.9)):
        rows, ready, beat = (sometimes(share, rng(f"{came} {k}")) for k, share in enumerate((came, taken, back)))
        for _ in range(500):
            await bench.cycle(bench.row() if next(rows) else None, ready=next(ready), beat=next(beat))
    await bench.drain()
    assert bench.entered > 100


@cocotb.test()
async def backpressure_both_sides(dut):
    """Pauses in bursts; a bank's queue closes the unit at its level and no later, and takes three rows more."""
    bench = await fresh(dut)
    ready, beat = bursty(rng("o"), 90), bursty(rng("beat"), 60)
    most = 0
    for number in range(1600):      # in the last ones the port takes nothing
        await bench.cycle(bench.row(bank=0), ready=number < 1500 and next(ready), beat=next(beat))
        most = max(most, len(bench.waiting[0]))
    assert most == CLOSE_AT + 2     # one is chosen, and one next at the port
    await bench.drain()


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A request four cycles after its row; then one per cycle, bank after bank where all have rows."""
    bench = await fresh(dut)
    banks, share = bench.size["banks"], bench.size["stripe_beats"] // bench.size["banks"]
    for number in range(40):
        await bench.cycle(Fetched(number * bench.size["stripe_beats"], 0, 0, False))
        assert len(bench.asked) == max(0, number - 3)
    await bench.drain()
    for number in range(3 * banks):     # a row in each bank, thrice, while the port takes none
        await bench.cycle(Fetched(number // 3 * share, 0, 0, False), ready=False)
    for _ in range(8):
        await bench.cycle(ready=False)
    before = len(bench.asked)
    for _ in range(3 * banks):
        await bench.cycle()
    got = [(at - ROWS_AT) // (4 * bench.size["words"]) // share for at in bench.asked[before:]]
    assert len(got) == 3 * banks, "a request per cycle"
    changes = sum(a != b for a, b in zip(got, got[1:]))
    assert changes >= 3 * banks - 4 or banks == 1, f"banks in turns: {got}"
    await bench.drain()


@cocotb.test()
async def reset_midstream(dut):
    """A reset of one cycle with rows in every queue, under way and coming back: none is asked for afterwards."""
    bench = await fresh(dut)
    for count in (3, 40, 150):
        pauses = sometimes(0.4, rng(f"reset {count}"))
        for _ in range(count):
            await bench.cycle(bench.row(), ready=next(pauses), beat=next(pauses))
        dut.valid.value = dut.beat.value = dut.o__ready.value = 0
        await reset(dut, cycles=1)
        bench = Bench(dut)
        for _ in range(5):
            await bench.cycle()
        assert not bench.asked
        for _ in range(60):
            await bench.cycle(bench.row())
        await bench.drain()


@cocotb.test()
async def corner_values(dut):
    """The longest row in the most pieces and in one, the last offset, the end of the ring, one bank alone."""
    bench = await fresh(dut)
    longest, top = bench.size["row_beats_max"], (1 << 32) - 1
    for row in (Fetched(0, longest - 1, 0, False), Fetched(5, longest - 1, longest - 1, True),
                Fetched(top, 0, 0, True), Fetched(top, 0, 0, False), Fetched(0, 0, 0, False)):
        if bench.size["stripe_beats"] == 1:
            row = row._replace(piece=row.beats)
        await bench.cycle(row)
    await bench.drain()
    for _ in range(60):
        await bench.cycle(bench.row(bank=bench.size["banks"] - 1))
    await bench.drain()
    report(rows=bench.entered)


@pytest.mark.parametrize("name", [*one_of(["narrow", "one"]), pytest.param("shipped", marks=pytest.mark.regress)])
@pytest.mark.parametrize("number", seeds())
def test_row_requests(number, name):
    simulate(RowRequests(**SIZES[name]), "verif.emb.test_row_requests", name=f"row_requests_{name}", tests=6,
             seed=number, env={"ROW_REQUESTS": name})


def test_illegal_config_wrong():
    """Stripes and banks that cannot be are refused with a sentence."""
    for change, sentence in (
        ({"stripe_beats": 6}, "stripe_beats must be a power of two from 1 to 256, not 6"),
        ({"stripe_beats": 512}, "stripe_beats must be a power of two from 1 to 256, not 512"),
        ({"banks": 16}, "banks must be a power of two from 1 to 8, not 16"),
        ({"banks": 0}, "banks must be a power of two from 1 to 8, not 0"),
    ):
        with pytest.raises(ValueError, match=sentence):
            RowRequests(**(SIZES["narrow"] | change))
