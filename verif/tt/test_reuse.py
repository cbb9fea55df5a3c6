"""The reuse table against golden.tt.reuse: every output in every cycle, and that no product in use is overwritten."""

import os
from collections import deque
from functools import partial

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from golden.tt.reuse import ReuseTable as Model
from hw.tt.reuse import ReuseTable
from verif.bench import report, rng, start
from verif.bench.runner import one_of, seeds, simulate
from verif.bench.stream import bursty, sometimes

REGRESS = bool(os.environ.get("HOTRAIL_REGRESS"))
SHAPES = {
    "tiny": {"entries": 16, "findable": 8, "lines": 64, "key_bits": 19, "need_bits": 6, "users_log2": 5},
    # Few of everything: what is old is asked for again as it is freed.
    "few": {"entries": 8, "findable": 4, "lines": 8, "key_bits": 4, "need_bits": 3, "users_log2": 3},
    # More entries than one piece of the search for a hit; a line for each.
    "many": {"entries": 64, "findable": 32, "lines": 64, "key_bits": 8, "need_bits": 6, "users_log2": 4},
    "smartssd": {"entries": 128, "findable": 64, "lines": 256, "key_bits": 34, "need_bits": 8, "users_log2": 8},
}


class Bench:
    """Lookups in the way of the TT unit's sequencer: one waits with its key shown, one asks, many are served and
    release their product later. Unit and model are side by side; unused inputs are garbage.

    pause, take: patterns, when a lookup may ask and when it may be served; stay: cycles until a product is released
    """

    def __init__(self, dut, label, *, pause=None, take=None, stay=lambda: 9, poison=0.0):
        self.dut, self.random = dut, rng(label)
        self.sizes = SHAPES[os.environ["REUSE"]]
        self.entries, self.findable, self.lines = (self.sizes[name] for name in ("entries", "findable", "lines"))
        self.model = self._model()
        self.pause, self.take, self.stay, self.poison = pause, take, stay, poison
        self.waiting = deque()      # (key, lines, whether it has a first product)
        self.asking = None
        self.leaving = deque()      # (cycle, entry, lines) of lookups that were served
        self.content = {}           # line -> key of the product that was written there
        self.cycle = 0
        self.served_at, self.hits, self.crowded, self.most, self.marked = [], 0, 0, 0, 0

    def _model(self):
        return Model(entries=self.entries, findable=self.findable, lines=self.lines)

    @classmethod
    async def begin(cls, dut, label, **settings):
        start(dut)
        bench = cls(dut, label, **settings)
        await bench.reset()
        return bench

    async def reset(self, cycles=2):
        """Drops everything, whatever the inputs are."""
        self.dut.rst.value = 1
        flip, known = partial(self.random.getrandbits, 1), [*self.content.values(), 0]
        for _ in range(cycles):
            places = [self.random.randrange(self.entries) if flip() else None for _ in range(3)]
            self._drive((self.random.choice(known), 1, True) if flip() else None, flip(), *places)
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        self.model = self._model()
        self.asking = None
        for queue in (self.waiting, self.leaving, self.content):
            queue.clear()

    def _drive(self, advance, may_take, released, poisoned, asked):
        """advance: the lookup that is shown as the next, or None. Values that nobody looks at are drawn."""
        dut, draw = self.dut, self.random.getrandbits
        key_bits, need_bits, entry_bits = (self.sizes["key_bits"], self.sizes["need_bits"],
                                           (self.entries - 1).bit_length())
        shown = {
            "next_key": advance[0] if advance else draw(key_bits),
            "next_need": advance[1] - 1 if advance else draw(need_bits), "advance": advance is not None,
            "ask": self.asking is not None and self.asking[2],
            "key": self.asking[0] if self.asking else draw(key_bits),
            "need_less_one": self.asking[1] - 1 if self.asking else draw(need_bits), "may_take": may_take,
            "release": released is not None, "released": draw(entry_bits) if released is None else released,
            "poison": poisoned is not None, "poisoned": draw(entry_bits) if poisoned is None else poisoned,
            "asked": draw(entry_bits) if asked is None else asked,
        }
        for name, value in shown.items():
            getattr(dut, name).value = value
        return shown

    def _compare(self, asked):
        """asked: whose mark is compared, or None."""
        dut, model = self.dut, self.model
        wanted = {"grant": model.grant, "hit": model.hit, "entry": model.entry, "base": model.base,
                  "crowded": model.crowded}
        if asked is not None:
            wanted["bad"] = model.products[asked].bad
            self.marked += wanted["bad"]
        for name, want in wanted.items():
            got = int(getattr(dut, name).value)
            assert got == want, f"cycle {self.cycle}: {name} is {got}, not {int(want)}"

    def _serve(self):
        """A lookup that is served writes its product or finds it; nobody in use loses a line."""
        key, need, _ = self.asking
        base, entry = self.model.base, self.model.entry
        if self.model.hit:
            self.hits += 1
            assert self.content[base] == key, f"cycle {self.cycle}: a hit at line {base}, which has another product"
            need = self.model.products[entry].size
        mine = [(base + number) % self.lines for number in range(need)]
        if not self.model.hit:
            used = {line for _, _, lines in self.leaving for line in lines}
            assert not used.intersection(mine), f"cycle {self.cycle}: lines in use are overwritten"
            self.content |= dict.fromkeys(mine, key)
        self.leaving.append((self.cycle + self.stay(), entry, mine))
        self.served_at.append(self.cycle)

    async def step(self):
        """A cycle."""
        advance = None
        if self.asking is None and self.waiting and (self.pause is None or next(self.pause)):
            advance = self.waiting.popleft()
        present = self.asking is not None and self.asking[2]
        goes = self.asking is not None and (self.take is None or next(self.take))
        # Not more under way than the table was made for.
        may_take = present and goes and len(self.leaving) < 1 << self.sizes["users_log2"]
        due = next((lookup for lookup in self.leaving if lookup[0] <= self.cycle), None)
        if due:
            self.leaving.remove(due)
        used = [entry for _, entry, _ in self.leaving]
        poisoned = self.random.choice(used) if used and self.random.random() < self.poison else None
        # A mark says something from the first product on that an entry had.
        made = [entry for entry, product in enumerate(self.model.products) if product.size]
        asked = self.random.choice(made) if made else None
        shown = self._drive(advance, may_take, due and due[1], poisoned, asked)
        await RisingEdge(self.dut.clk)
        self._compare(asked)
        self.crowded += self.model.crowded
        self.most = max(self.most, *(product.users for product in self.model.products))
        served = may_take and self.model.grant
        if served:
            self._serve()
        self.model.step(key=shown["key"], need=shown["need_less_one"] + 1, ask=shown["ask"], may_take=may_take,
                        next_key=shown["next_key"], next_need=shown["next_need"] + 1, advance=shown["advance"],
                        released=due and due[1], poisoned=poisoned)
        if advance is not None:
            self.asking = advance
        elif served or (goes and not present):
            self.asking = None
        self.cycle += 1

    async def run(self, lookups=(), cycles=None, limit=4000):
        """Until all lookups have been served and have left, or for some cycles."""
        self.waiting.extend(lookups)
        for _ in range(limit if cycles is None else cycles):
            if cycles is None and not (self.waiting or self.asking or self.leaving):
                return
            await self.step()
        assert cycles is not None, f"{len(self.waiting)} lookups wait after {limit} cycles"

    def draw(self, count, *, keys, largest=None, absent=0.0):
        """Lookups of `keys` different products of up to `largest` lines, the last ones more often."""
        random, known = self.random, []
        for _ in range(count):
            if len(known) < keys or random.random() < 0.2:
                known.append(random.getrandbits(self.sizes["key_bits"]))
            known = known[-keys:]
            yield random.choice(known), random.randint(1, largest or self.lines), random.random() >= absent


@cocotb.test()
async def smoke(dut):
    """A product is made, found by the next lookup, and by none with another key."""
    bench = await Bench.begin(dut, "smoke")
    await bench.run([(5, 2, True), (5, 2, True), (4, 1, True)])
    assert bench.hits == 1 and len(bench.served_at) == 3


@cocotb.test()
async def random_match_golden(dut):
    """Products of 2 to 40 keys and of one to all lines, that stay for 1 to 60 cycles, some marked, on three shapes:
    every output in every cycle against golden.tt.reuse.ReuseTable, and no line in use is written."""
    for number, keys in enumerate((2, 4, 12, 40)):
        for largest in (1, 3, None):
            bench = await Bench.begin(dut, f"random{number}{largest}", poison=0.1)
            bench.stay = lambda bench=bench: bench.random.choice((1, 2, 12, 60))
            await bench.run(bench.draw(120 if REGRESS else 60, keys=keys, absent=0.1,
                                       largest=largest and min(largest, bench.lines)), limit=40_000)
            assert bench.marked


@cocotb.test()
async def backpressure_both_sides(dut):
    """Lookups that come late and are served late: what one of them found grows old and is the oldest
    meanwhile, and stays."""
    total = 0
    for number, keys in enumerate((1, 2, 3, 5, 9)):
        r = rng(f"patterns{number}")
        bench = await Bench.begin(dut, f"pauses{number}", pause=bursty(r, 20), take=sometimes(0.15, r))
        bench.stay = lambda bench=bench: bench.random.choice((1, 1, 2, 30))
        await bench.run(bench.draw(120, keys=keys, largest=min(4, bench.lines // 2), absent=0.2), limit=40_000)
        total += bench.hits
    assert total > 50, total


@cocotb.test()
async def latency_and_rate_as_documented(dut):
    """A lookup every other cycle, whether it finds its product or makes one."""
    for label, keys in (("hits", 1), ("misses", None)):
        bench = await Bench.begin(dut, label, stay=lambda: 1)
        await bench.run([(number % (keys or 1 << bench.sizes["key_bits"]), 1, True) for number in range(120)])
        span = bench.served_at[-1] - bench.served_at[0]
        report(**{label: span})
        # Of a few entries not enough are free while others leave.
        assert span == 2 * 119 or (label == "misses" and bench.entries < 8), f"{label}: {span} cycles"
        assert bench.hits == (119 if keys else 0)


@cocotb.test()
async def reset_midstream(dut):
    """Resets of one and two cycles in any state, with garbage at the inputs: everything is forgotten, nothing is
    found, all lines are free."""
    bench = await Bench.begin(dut, "reset", poison=0.05)
    for number in range(40 if REGRESS else 10):
        bench.stay = lambda: bench.random.choice((1, 5, 80))
        await bench.run(bench.draw(60, keys=bench.random.choice((2, 6, 20)), largest=bench.random.choice((2, None))),
                        cycles=bench.random.randint(2, 70))
        lost = list(bench.content.values())
        await bench.reset(1 + number % 2)
        # Old keys first: none may be found; then a product that needs every line.
        await bench.run([(key, 1, True) for key in lost[-3:]] + [(bench.random.getrandbits(4), bench.lines, True)]
                        + list(bench.draw(8, keys=3)))


@cocotb.test()
async def corner_values(dut):
    """Every bit of a key, every entry, as many users of one product as there can be, a product of all lines, just
    crowded and just not."""
    bench = await Bench.begin(dut, "corners")
    bits, entries, lines = bench.sizes["key_bits"], bench.entries, bench.lines
    # Each bit of a key counts.
    for bit in range(bits):
        await bench.run([(0, 1, True), (1 << bit, 1, True), (0, 1, True), (1 << bit, 1, True)])
    # Every place is found while it is among the young ones.
    for start_key in range(0, 3 * entries, entries // 4):
        group = [((1 << bits) - 1 - start_key - number) % (1 << bits) for number in range(entries // 4)]
        await bench.run([(key, 1, True) for key in group + group])
    assert bench.hits > entries
    # All users that there can be of one product, and of two in turn; its lines are kept from the first to the last.
    users = 1 << bench.sizes["users_log2"]
    for share in (1, 2):
        bench.stay = lambda: 6 * users
        await bench.run([(number % share, 1, True) for number in range(users)])
        bench.stay = lambda: 1
        await bench.run([(number % (1 << bits), max(1, lines // entries), True) for number in range(2, 2 * entries)])
    assert bench.most == users, bench.most
    # They are counted as users too when their entry is the oldest and old: the next lookup gets none of its lines.
    bench.stay = lambda: 6 * users
    await bench.run([(0, lines // 2, True)] * users + [(1, lines, True)])
    bench.stay = lambda: 1
    # With all in use the next waits for lines; one product has them all; around half of them it becomes crowded.
    for size in (lines, lines - 1, lines // 2, lines // 2 + 1, 1, lines):
        await bench.run([(8, size, True), (9, lines - size or 1, True), (8, size, True)])
    crowded = bench.crowded
    for size in (lines // 4, lines // 4, lines // 4, lines // 2, lines // 2 + 1, lines // 4):
        await bench.run([(bench.random.getrandbits(bits), size, True)])
        await bench.run(cycles=bench.random.choice((1, 8)))
    assert bench.crowded > crowded


@pytest.mark.parametrize("shape", one_of(SHAPES))
@pytest.mark.parametrize("number", seeds())
def test_reuse_table(number, shape):
    simulate(ReuseTable(**SHAPES[shape]), "verif.tt.test_reuse", name=f"tt_reuse_{shape}", tests=6, seed=number,
             env={"REUSE": shape})


def test_illegal_config_wrong():
    """Sizes that cannot be are refused with a sentence."""
    for changed, sentence in (({"entries": 12}, "entries must be a power of two of at least 8, not 12"),
                              ({"entries": 4}, "entries must be a power of two of at least 8, not 4"),
                              ({"findable": 6}, "findable must be a power of two of at least 4, not 6"),
                              ({"findable": 16}, "findable must be at most half of the 16 entries, not 16"),
                              ({"lines": 48}, "lines must be a power of two of at least 2, not 48"),
                              ({"need_bits": 7}, "need_bits must be at most the 6 bits of a line's number, not 7")):
        with pytest.raises(ValueError) as caught:
            ReuseTable(**{**SHAPES["tiny"], **changed})
        assert str(caught.value) == sentence
