"""The scheduler of the logger's banks against its model, cycle by cycle, and against the order that it promises."""
import os
from collections import deque

import cocotb
import numpy as np
import pytest
from cocotb.triggers import RisingEdge

from golden.hotline.scheduler import Scheduler as Model
from golden.hotline.scheduler import pool
from hw.hotline.scheduler import BankScheduler
from verif.bench import reset, rng, seed, start
from verif.bench.pack import layout_of
from verif.bench.runner import seeds, shapes, simulate
from verif.bench.stream import always, bursty, sometimes

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
TAG, PAYLOAD = 5, 13
SHAPES = {"tiny": (8, 8, 32), "deep": (16, 4, 8), "long": (8, 16, 128), "broad": (4, 16, 16)}   # lanes, banks, queue
# "deep" has hardly the places that one run needs; in "long", as in the cores that are shipped, more accesses wait than
# a bank's queue of runs holds, so that it is full before a column is.
LANES, BANKS, QUEUE = SHAPES[os.environ.get("SCHEDULER", "tiny")]
ROOMY = QUEUE >= 2 * LANES
CALM = 20       # cycles behind the last access in which nothing more may come


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
        self.full = {"runs": 0, "column": 0, "both": 0}     # cycles in which these alone, or both, were full

    @classmethod
    async def begin(cls, dut, flow=always):
        start(dut)
        dut.i__valid.value = 0
        await reset(dut)
        return cls(dut, flow())

    async def run(self, waves, *, until=None, cycles=200_000):
        """Sends the waves and waits until all of them have left, or for `until` cycles."""
        dut, model = self.dut, self.model
        edge = RisingEdge(dut.clk)
        waiting = deque(waves)
        offer = None
        stop = self.cycle + (cycles if until is None else until)
        random = rng(f"idle lines {self.cycle}")
        calm = 0        # cycles since the last access left
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
            shown = [int(signal.value) for signal in (dut.i__ready, dut.released)]
            assert shown == [int(model.ready), int(model.released)], (
                f"cycle {self.cycle}: ready, released are {shown}, expected {model.ready}, {model.released}")
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
            for name, state in (("runs", (True, False)), ("column", (False, True)), ("both", (True, True))):
                self.full[name] += model.full == state
            assert model.waiting <= QUEUE
            self.cycle += 1
            if taken:
                self.taken_at.append(self.cycle - 1)
                for lane, access in enumerate(taken[1]):
                    if access:
                        self.due[access[0]].append((self.number, taken[0], lane, access[1]))
                self.number += 1
                offer = None
            left = bool(waiting) or offer is not None or self.freed < self.number or any(self.due)
            calm = 0 if left else calm + 1
            if calm == CALM:
                assert model.ready
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
    """Random waves, dense and sparse: every output in every cycle as the model's, each bank in the order of (wave,
    lane), released as promised, never more waiting than there are places."""
    random = np.random.default_rng(seed("waves"))
    bench = await Bench.begin(dut)
    await bench.run(waves(random, 600 if REGRESS else 200) + waves(random, 150 if REGRESS else 60, density=0.4))


@cocotb.test()
async def backpressure_both_sides(dut):
    """Waves that come late; a bank that gets half of all accesses, or all of them, waves of which are cut into parts,
    until its queue is full and all releases stop: it works without gaps and sets the pace."""
    random, pauses = np.random.default_rng(seed("pauses")), rng("pauses")
    for flow in (lambda: sometimes(0.3, pauses), lambda: bursty(pauses)):
        bench = await Bench.begin(dut, flow)
        await bench.run(waves(random, 120) + waves(random, 60, density=0.5))
    for share, count in ((0.5, 200), (1.0, 80), (2 / min(LANES, BANKS), 200)):
        weights = np.full(BANKS, (1 - share) / (BANKS - 1))
        weights[BANKS // 2] = share
        bench = await Bench.begin(dut)
        made = waves(random, count, weights=weights)
        await bench.run(made)
        hot = sum(access is not None and access[0] == BANKS // 2 for wave in made for access in wave[1])
        issued = [issue[0] for issue in bench.issues if issue[1] == BANKS // 2]
        assert len(issued) == hot
        if share == 1:
            assert np.ptp(issued) == hot - 1, "a gap in what the only bank gets"
        # The bank that is asked most sets the pace: it hardly ever waits for the others.
        assert np.ptp(issued) <= hot * (1.05 if ROOMY else 1.25) + 20, (np.ptp(issued), hot)
        assert max(np.diff(bench.taken_at)) > 1, "the waves were never held up"


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """The first access after `latency` cycles; waves without conflicts at full rate; random ones as fast as through an
    ideal queue with as many places."""
    random = np.random.default_rng(seed("rate"))
    bench = await Bench.begin(dut)
    await bench.run([(1, [(BANKS - 1, 3)] + [None] * (LANES - 1))])
    latency = int(os.environ["SCHEDULER_LATENCY"])
    assert bench.issues[0][0] - bench.taken_at[0] == latency, bench.issues[0][0] - bench.taken_at[0]
    assert bench.released_at[0] - bench.taken_at[0] in (latency, latency + 1)
    # As many accesses for each bank as it can take, and no more, in every wave.
    count = 100
    most = min(LANES, BANKS)
    bench = await Bench.begin(dut)
    await bench.run([(k % 32, [(int(bank), k) for bank in random.permutation(BANKS)[:most]] + [None] * (LANES - most))
                     for k in range(count)])
    assert np.ptp(bench.taken_at) == count - 1
    assert len({issue[0] for issue in bench.issues}) == count
    made = waves(random, 700)
    bench = await Bench.begin(dut)
    await bench.run(made, until=700 * LANES // BANKS)
    banks = np.array([access[0] for wave in made for access in wave[1]])
    begin = bench.cycle // 5
    rate = sum(issue[0] >= begin for issue in bench.issues) / (bench.cycle - begin)
    ideal = min(pool(banks, count=BANKS, queue=QUEUE), LANES)
    assert rate >= (0.98 if ROOMY else 0.5) * ideal, (rate, ideal)


@cocotb.test()
async def reset_midstream(dut):
    """A reset with waves in every stage and accesses waiting: nothing is left, all credits are back."""
    random = np.random.default_rng(seed("reset"))
    weights = np.full(BANKS, 0.4 / (BANKS - 1))
    weights[1] = 0.6
    for skew in (None, weights, None):
        bench = await Bench.begin(dut)
        await bench.run(waves(random, 300, weights=skew), until=int(random.integers(20, 150)))
        bench = await Bench.begin(dut)
        await bench.run(waves(random, 60))


@cocotb.test()
async def corner_values(dut):
    """Empty waves in a row and between others; the first and the last lane and bank alone; all lanes at the first and
    at the last bank; runs of exactly as many as there are columns and one more; accesses that all lie in one column;
    payloads of all ones."""
    random = np.random.default_rng(seed("corners"))
    top = (1 << PAYLOAD) - 1
    none = [None] * LANES
    made = [(k, none) for k in range(5)]
    for bank in (0, BANKS - 1):
        for lane in (0, LANES - 1):
            made.append(((1 << TAG) - 1, [*none[:lane], (bank, top), *none[lane + 1:]]))
            made.append((0, none))
        made.append((1, [(bank, top - lane) for lane in range(LANES)]))
    for run in (1, 2, 7, 8, 9, LANES):
        for bank in (0, 1, BANKS - 2, BANKS - 1):
            lanes = [(bank, lane) if lane < run else (int(random.integers(BANKS)), top) for lane in range(LANES)]
            made.append((run, [lanes[k] for k in random.permutation(LANES)]))
    bench = await Bench.begin(dut)
    await bench.run(made)
    # Always the same column: runs of one that replace each other, behind some that fill the bank's queue.
    same = [(7, [(1, k)] + [(0, lane) for lane in range(1, LANES)]) for k in range(30)]
    bench = await Bench.begin(dut)
    await bench.run(same + [(8, [*none[:LANES - 1], (0, k)]) for k in range(100)] + same)


def hot_waves(random, count, bank, most, *, alike=False):
    """Waves with 1 to `most` accesses to a bank, and one of each of some others: all in the same column, or in any."""
    made = []
    for number in range(count):
        others = [] if alike else [(int(other), 3) for other in random.permutation(BANKS)[:LANES - most]
                                   if other != bank and random.random() < 0.6]
        accesses = [(bank, number % (1 << PAYLOAD))] * int(random.integers(1, most + 1)) + others
        lanes = random.permutation(LANES)[:len(accesses)].tolist()
        wave = [None] * LANES
        for lane, access in zip(lanes, accesses, strict=True):
            wave[lane] = access
        made.append((number % (1 << TAG), wave))
    return made


def pairs(random, count, bank):
    """Waves with two accesses to a bank, behind as many of lower banks as brings them into every column in turn."""
    made = []
    for number in range(count):
        lower = random.permutation(bank)[:2 * number % LANES]
        accesses = [(int(other), 3) for other in lower] + [(bank, number % (1 << PAYLOAD))] * 2
        wave = [None] * LANES
        for lane, access in zip(random.permutation(LANES).tolist(), accesses, strict=False):
            wave[lane] = access
        made.append((number % (1 << TAG), wave))
    return made


@cocotb.test(skip=os.environ.get("SCHEDULER") != "long")
@pytest.mark.testpoint("queues_full")
async def queues_full(dut):
    """A bank's queue of runs is full while no column is, and a column while the runs are not; both stop all releases
    in the cycle that the model says, at the first and at the last bank, and nothing is lost. One bank's queue after the
    other is as full as it gets."""
    random = np.random.default_rng(seed("full"))
    bench = await Bench.begin(dut)
    await bench.run([(bank, [(bank, lane) for lane in range(LANES)]) for bank in range(BANKS)
                     for _ in range(QUEUE // LANES + 4)])
    inner = int(random.integers(BANKS // 2, BANKS - 1))
    for bank in (0, inner, BANKS - 1) if REGRESS else (0, BANKS - 1):
        bench = await Bench.begin(dut)
        await bench.run([wave for _ in range(3 if REGRESS else 1) for wave in (
            hot_waves(random, 130, bank, 3) + hot_waves(random, 150, bank, 1) + hot_waves(random, 60, bank, 2))])
        if bank:    # the first bank's accesses come first in their wave, so in few columns
            bench = await Bench.begin(dut)
            await bench.run(pairs(random, 150, bank))
            assert bench.full["runs"] and not bench.full["column"], bench.full
        bench = await Bench.begin(dut)
        same = [(7, [(bank, lane) for lane in range(LANES)]) for _ in range(30)]
        await bench.run(same + hot_waves(random, 100, bank, 1, alike=True) + same)
        assert bench.full["column"], bench.full


@pytest.mark.parametrize("number", seeds())
@pytest.mark.parametrize("name", shapes(sorted(SHAPES, key=("long", "deep", "tiny", "broad").index), 1))
def test_scheduler(name, number):
    lanes, banks, queue = SHAPES[name]
    unit = BankScheduler(lanes=lanes, banks=banks, queue=queue, payload=PAYLOAD, tag=TAG)
    simulate(unit, "verif.hotline.test_scheduler", name=f"hotline_scheduler_{name}", tests=6 + (name == "long"),
             seed=number, env={"SCHEDULER": name, "SCHEDULER_LATENCY": unit.latency})


@pytest.mark.parametrize("change,sentence", [
    (dict(lanes=12), "lanes must be a power of two from 4 to 64, not 12"),
    (dict(lanes=128), "lanes must be a power of two from 4 to 64, not 128"),
    (dict(banks=1), "banks must be a power of two from 2 to 64, not 1"),
    (dict(queue=4), "queue must be a power of two from 8 to 4096, not 4"),
    (dict(payload=0), "payload must be at least 1 bit, not 0"),
    (dict(tag=0), "tag must be at least 1 bit, not 0"),
])
@pytest.mark.testpoint("illegal_config_wrong", unit="hotline/sorter")
def test_illegal_config_wrong(change, sentence):
    """Sizes that are no powers of two or out of range, and fields without bits, are refused with a sentence, for the
    sorter too: the scheduler alone builds it."""
    with pytest.raises(ValueError) as caught:
        BankScheduler(**{**dict(lanes=8, banks=8, queue=32, payload=4, tag=1), **change})
    assert str(caught.value) == sentence
