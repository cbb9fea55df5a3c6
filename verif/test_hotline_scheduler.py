"""The scheduler of the logger's banks against its model, cycle by cycle, and against the order that it promises."""
import os
from collections import deque

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.hotline.scheduler import Scheduler as Model
from hw.hotline.scheduler import BankScheduler
from verif.bench import reset, rng, seed, start
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, simulate
from verif.bench.stream import always, bursty, sometimes

TAG, PAYLOAD = 5, 13
SHAPES = {"tiny": (8, 8, 32), "deep": (16, 4, 8), "broad": (4, 16, 16)}    # lanes, banks, queue
LANES, BANKS, QUEUE = SHAPES[os.environ.get("SCHEDULER", "tiny")]


def waves(random, count, *, weights=None, density=1.0):
    """Waves of (tag, accesses); an access is (bank, payload) or None."""
    made = []
    for number in range(count):
        banks = random.choice(BANKS, LANES, p=weights)
        valid = random.random(LANES) < density
        payloads = random.integers(1 << PAYLOAD, size=LANES)
        made.append((number % (1 << TAG), [(int(bank), int(payload)) if there else None
                                           for bank, payload, there in zip(banks, payloads, valid, strict=True)]))
    return made


class Bench:
    """Offers waves; every output is judged in every cycle, and so is the order of what each bank gets."""

    def __init__(self, dut, flow):
        self.dut, self.flow = dut, flow
        self.model = Model(lanes=LANES, banks=BANKS, queue=QUEUE)
        self.i, self.o = layout_of("i__payload"), layout_of("o")
        self.cycle = 0
        self.taken_at, self.released_at = [], []
        self.issues = []                                # (cycle, bank, tag, lane, payload)
        self.due = [deque() for _ in range(BANKS)]      # what each bank has yet to get
        self.open = deque()                             # waves taken and not released: how much of each was issued
        self.waves_due = [deque() for _ in range(BANKS)]
        self.number = self.freed = 0

    @classmethod
    async def begin(cls, dut, flow=always):
        start(dut)
        dut.i__valid.value = 0
        await reset(dut)
        return cls(dut, flow())

    async def run(self, waves, *, until=None, cycles=200_000):
        """Sends the waves and waits until the unit is idle, or for `until` cycles."""
        dut, model = self.dut, self.model
        edge = RisingEdge(dut.clk)
        waiting = deque(waves)
        offer = None
        stop = self.cycle + (cycles if until is None else until)
        random = rng(f"idle lines {self.cycle}")
        while True:
            if self.cycle >= stop:
                assert until is not None, f"not done after {cycles} cycles"
                return
            if offer is None and waiting and next(self.flow):
                offer = waiting.popleft()
            dut.i__valid.value = offer is not None
            dut.i__payload.value = random.getrandbits(self.i.width) if offer is None else self.i.pack({
                "tag": offer[0], "lanes": [
                    {"valid": 0, "bank": random.getrandbits(2), "payload": 5} if access is None
                    else {"valid": 1, "bank": access[0], "payload": access[1]} for access in offer[1]]})
            await edge
            shown = [int(signal.value) for signal in (dut.i__ready, dut.released, dut.idle)]
            assert shown == [int(model.ready), int(model.released), int(model.idle)], (
                f"cycle {self.cycle}: ready, released, idle are {shown}, expected "
                f"{model.ready}, {model.released}, {model.idle}")
            out = self.o.unpack(int(dut.o.value))
            for bank, (got, want) in enumerate(zip(out, model.out, strict=True)):
                issue = (got["tag"], got["lane"], got["payload"]) if got["valid"] else None
                assert issue == want, f"cycle {self.cycle}, bank {bank}: {issue}, expected {want}"
                self._judge(bank, issue)
            if model.released:
                self.released_at.append(self.cycle)
                self.freed += 1
            for bank, due in enumerate(self.due):
                # Whoever issues nothing has nothing left of waves that were released.
                assert model.out[bank] or not due or due[0][0] >= self.freed, f"cycle {self.cycle}, bank {bank}"
            taken = offer if model.ready else None
            model.step(offer)
            assert model.waiting <= QUEUE
            self.cycle += 1
            if taken:
                self.taken_at.append(self.cycle - 1)
                for lane, access in enumerate(taken[1]):
                    if access:
                        self.due[access[0]].append((self.number, taken[0], lane, access[1]))
                self.number += 1
                offer = None
            if not waiting and offer is None and shown[2] and not model.ready < 1 and not any(self.due):
                assert self.freed == self.number
                return

    def _judge(self, bank, issue):
        if issue:
            number, *want = self.due[bank].popleft()
            assert list(issue) == want, f"cycle {self.cycle}, bank {bank}: {issue} out of order, expected {want}"
            self.issues.append((self.cycle, bank, *issue))


@cocotb.test()
async def smoke(dut):
    """One full wave, one without accesses, one with a single access."""
    random = np.random.default_rng(1)
    bench = await Bench.begin(dut)
    await bench.run(waves(random, 1) + waves(random, 1, density=0) + [(3, [None] * (LANES - 1) + [(BANKS - 1, 9)])])
    assert len(bench.issues) == LANES + 1


@cocotb.test()
async def random_match_golden(dut):
    random = np.random.default_rng(seed("waves"))
    bench = await Bench.begin(dut)
    await bench.run(waves(random, 600) + waves(random, 150, density=0.4))


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", SHAPES)
def test_scheduler(name, number):
    lanes, banks, queue = SHAPES[name]
    simulate(BankScheduler(lanes=lanes, banks=banks, queue=queue, payload=PAYLOAD, tag=TAG),
             "verif.test_hotline_scheduler", name=f"hotline_scheduler_{name}", tests=2, seed=number,
             env={"SCHEDULER": name})
