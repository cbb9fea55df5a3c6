"""The sorter of waves against sorting in Python: order, ends of the banks' runs, heavy waves."""
import os
from collections import deque

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.hotline.scheduler import order
from hw.hotline.sorter import BankSorter, network
from verif.bench import reset, seed, start
from verif.bench.pack import layout_of
from verif.bench.runner import one_of, seeds, simulate

WAIVED = {
    "backpressure_both_sides":
        "A wave is taken in every cycle and nothing holds it up; gaps are in latency_and_rate_as_documented.",
}

TAG, PAYLOAD = 3, 11
SHAPES = {"tiny": (8, 8, 4), "wide": (32, 4, 8), "few": (4, 32, 4)}     # lanes, banks, columns
LANES, BANKS, COLUMNS = SHAPES[os.environ.get("SORTER", "tiny")]


def wave(random, *, density=1.0, banks=None):
    """(tag, [(valid, bank, payload)])."""
    return int(random.integers(1 << TAG)), [
        (bool(random.random() < density), int(random.integers(BANKS) if banks is None else banks[lane]),
         int(random.integers(1 << PAYLOAD))) for lane in range(LANES)]


class Bench:
    """Drives a wave or none in each cycle, and judges what comes out a fixed time later."""

    def __init__(self, dut):
        self.dut = dut
        self.i, self.o, self.runs = layout_of("i"), layout_of("o"), layout_of("runs")
        self.latency, self.runs_latency = int(os.environ["SORTER_LATENCY"]), int(os.environ["SORTER_RUNS"])

    @classmethod
    async def begin(cls, dut):
        start(dut)
        dut.i_valid.value = 0
        await reset(dut)
        return cls(dut)

    async def run(self, waves, *, drain=True):
        """waves: one for each cycle, or None. Returns how many came out heavy."""
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        late, later = deque([None] * self.latency), deque([None] * self.runs_latency)
        heavy = 0
        for now in [*waves, *[None] * (self.runs_latency + 1 if drain else 0)]:
            dut.i_valid.value = now is not None
            if now is not None:
                dut.i.value = self.i.pack({"tag": now[0], "lanes": [
                    {"valid": valid, "bank": bank, "payload": payload} for valid, bank, payload in now[1]]})
            await edge
            late.append(now)
            later.append(now)
            there = late.popleft()
            assert dut.o_valid.value == (there is not None)
            if there is not None:
                by_bank = order([bank if valid else None for valid, bank, _ in there[1]])
                got = self.o.unpack(int(dut.o.value))[:len(by_bank)]
                assert got == [{"lane": lane, "payload": there[1][lane][2]} for lane in by_bank]
            there = later.popleft()
            assert dut.runs_valid.value == (there is not None)
            if there is not None:
                counts = np.bincount([bank for valid, bank, _ in there[1] if valid], minlength=BANKS)
                got = self.runs.unpack(int(dut.runs.value))
                assert got == {"tag": there[0], "heavy": int(counts.max() > COLUMNS),
                               "ends": np.cumsum(counts).tolist()}
                heavy += got["heavy"]
        return heavy


@cocotb.test()
async def smoke(dut):
    """Two waves with a gap between them."""
    random = np.random.default_rng(1)
    bench = await Bench.begin(dut)
    await bench.run([wave(random), None, wave(random)])


@cocotb.test()
async def random_match_golden(dut):
    """A thousand waves of any density: order, ends of the banks' runs, heavy ones."""
    random = np.random.default_rng(seed("waves"))
    bench = await Bench.begin(dut)
    await bench.run([wave(random, density=random.random()) for _ in range(1000)])


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A wave in every cycle and waves with gaps: each comes out exactly `latency` and `runs_latency` cycles later."""
    random = np.random.default_rng(seed("gaps"))
    bench = await Bench.begin(dut)
    await bench.run([wave(random) if random.random() < 0.5 else None for _ in range(300)])
    await bench.run([wave(random) for _ in range(100)])


@cocotb.test()
async def reset_midstream(dut):
    """After a reset with waves in every stage none comes out."""
    random = np.random.default_rng(seed("reset"))
    bench = await Bench.begin(dut)
    await bench.run([wave(random) for _ in range(20)], drain=False)
    bench = await Bench.begin(dut)
    await bench.run([None] * 40 + [wave(random)])


@cocotb.test()
async def corner_values(dut):
    """All lanes at one bank, none valid, one valid, banks falling and rising, runs as long as there are columns, and
    one longer."""
    random = np.random.default_rng(seed("corners"))
    bench = await Bench.begin(dut)
    waves = [wave(random, density=0)]
    for bank in range(BANKS):
        waves.append(wave(random, banks=[bank] * LANES))
        for lane in (0, LANES - 1):
            alone = wave(random, density=0, banks=[bank] * LANES)
            alone[1][lane] = (True, *alone[1][lane][1:])
            waves.append(alone)
    waves.append(wave(random, banks=[(LANES - 1 - lane) % BANKS for lane in range(LANES)]))
    waves.append(wave(random, banks=[lane % BANKS for lane in range(LANES)]))
    for run in {min(COLUMNS, LANES), min(COLUMNS + 1, LANES)}:
        for _ in range(5):
            each = [BANKS - 1] * run + [int(random.integers(BANKS - 1)) for _ in range(LANES - run)]
            waves.append(wave(random, banks=[each[k] for k in random.permutation(LANES)]))
    heavy = await bench.run(waves)
    assert heavy > 0 or LANES <= COLUMNS


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", one_of(SHAPES))
def test_sorter(name, number):
    lanes, banks, columns = SHAPES[name]
    unit = BankSorter(lanes=lanes, banks=banks, payload=PAYLOAD, tag=TAG, columns=columns)
    simulate(unit, "verif.hotline.test_sorter", name=f"hotline_sorter_{name}", tests=5, seed=number,
             env={"SORTER": name, "SORTER_LATENCY": unit.latency, "SORTER_RUNS": unit.runs_latency})


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.testpoint("network")
def test_network_sorts_all_zeros_and_ones(lanes):
    """The 0-1 principle: a network that sorts every word of bits sorts everything."""
    words = np.arange(1 << lanes, dtype=np.int64)
    bits = [(words >> lane & 1).astype(bool) for lane in range(lanes)]
    for stage in network(lanes):
        assert len({place for pair in stage for place in pair}) == 2 * len(stage), "a place is in two pairs"
        for low, high in stage:
            bits[low], bits[high] = bits[low] & bits[high], bits[low] | bits[high]
    assert all((~a | b).all() for a, b in zip(bits, bits[1:]))
