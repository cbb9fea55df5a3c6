"""card.xrt cut short at every call of XRT's library: what follows is right. The core of the double is the oracle."""

import os
import signal
import time

import numpy as np
import pytest

from fpga.api.embedding import EmbeddingBags
from fpga.card import CardError, CardHang
from gen.compiler.tables import CardImages
from golden.emb.core import Emb, Memory
from hw.isa import EMB
from tests.fpga.card.test_transactions import bags_on, batches, same, tables
from tests.support import emb_tables
from tests.support.xrt_double import BASE, COMPLETED, IDLE, RUNNING, Xrt, arguments

FOREVER = 10**18
HELD = tables()


class OracleXrt(Xrt):
    """The double with the oracle as its core. The call number `at` of the library, counted by `calls`, ends in a
    KeyboardInterrupt, before it or behind it."""

    def __init__(self):
        self.at, self.is_behind, self.count = None, False, 0
        super().__init__(core=OracleXrt.work, ends=None)
        config = emb_tables.config()
        self.emb = Emb.of(config, [table.cores for table in HELD if table.cores])

    def _call(self, name, method):
        inner = super()._call(name, method)
        if name == "xrtRunState":       # how often it is asked depends on time
            return inner

        def call(*arguments):
            mine, self.count = self.count, self.count + 1
            if mine == self.at and not self.is_behind:
                raise KeyboardInterrupt
            answer = inner(*arguments)
            if mine == self.at:
                raise KeyboardInterrupt
            return answer
        return call

    def cut(self, at, is_behind=False):
        self.at, self.is_behind, self.count = at, is_behind, 0

    def work(self):
        """A run: of a program whose pages all fit the ring at once."""
        values = {item.name: self.arguments[number] for number, item in enumerate(EMB.arguments)}
        places = {name: self.buffers[value] for name, value in values.items() if name in (
            "program", "inputs", "outputs", "rows", "ring", "result")}
        memory = {name: self.memory[at - BASE:][:size].view(np.uint32) for name, (at, size, *_) in places.items()}
        words, beats = self.emb.words, {name: values[f"{name}_beats"] for name in ("inputs", "outputs", "rows")}
        program = memory["program"][:values["program_count"] * EMB.words].copy()
        filled, needed = EMB.value("filled").word, int(program.reshape(-1, EMB.words)[-1, 15])
        while memory["result"][filled] < needed:
            if self.state != RUNNING:
                return
            time.sleep(1e-4)
        arena = {name: memory[name][:count * words] for name, count in beats.items()}
        done = self.emb.run(Memory(program, arena["inputs"], arena["outputs"], arena["rows"],
                                   memory["ring"][:needed * words].copy(), 0, values["ring_beats"]))
        for value in EMB.result:
            if value.kind == "status" and hasattr(done, value.name):
                memory["result"][value.word] = getattr(done, value.name)
        for name, value in done.counters.items():
            memory["result"][EMB.value(name).word] = value & 0xFFFFFFFF
        if self.state == RUNNING:
            self.end(COMPLETED)


def bags_of(opened):
    config = emb_tables.config()
    images = CardImages(HELD, config, cache_rows={"items": 20, "users": 30})
    return EmbeddingBags(images, card=opened, preset=config, ring_bytes=1 << 17)


@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_bags_cut_short_at_every_call(machine, is_behind):
    warm, cut, after, *_ = batches()
    with bags_on(held=HELD) as fresh:
        first, second = fresh.batch(warm), fresh.batch(cut)
    with bags_on(held=HELD) as fresh:
        wanted = fresh.batch(after)
    at, count, it = 0, 1, machine()
    while at <= count:
        xrt = OracleXrt()
        with it.open(xrt) as opened:
            bags = bags_of(opened)
            same(bags.batch(warm), first)
            if not at:
                xrt.cut(None)
                same(bags.batch(cut), second)
                count = xrt.count
            else:
                xrt.cut(at - 1, is_behind)
                with pytest.raises(KeyboardInterrupt):
                    bags.batch(cut)
                xrt.cut(None)
                same(bags.batch(after), wanted)
            bags.close()
        lost = is_behind and xrt.calls.count("xrtBOAlloc") - xrt.calls.count("xrtBOFree")
        assert len(xrt.buffers) == lost <= 1, "one that XRT gave in the very moment"
        at += 1
    assert count > 10


@pytest.mark.parametrize("is_behind", [False, True], ids=["not yet started", "started"])
def test_a_start_that_is_cut_short(machine, is_behind):
    xrt = Xrt(ends=COMPLETED, core=lambda _: time.sleep(0.2))
    with machine().open(xrt) as opened:
        given, start = arguments(opened), xrt.xrtRunStart

        def cutting(run):
            if is_behind:
                start(run)
            raise KeyboardInterrupt

        opened._xrt.xrtRunStart = cutting
        with pytest.raises(KeyboardInterrupt):
            opened.run(given)
        opened._xrt.xrtRunStart = start
        with pytest.raises(CardError, match="a run is under way; wait for it, or reset the card"):
            opened.run(given)
        opened.reset()
        assert xrt.status == IDLE
        opened.run(given)
        assert opened.wait(FOREVER) > 0


def test_limits_and_signals(machine):
    with machine().open(Xrt()) as opened:
        opened.run(arguments(opened))
        with pytest.raises(CardHang, match="the core was not done after .* cycles"):
            opened.wait(FOREVER, 0.05)
        for call in (opened.step, opened.wait):
            with pytest.raises(CardError, match="takes 0 or more cycles, not -1"):
                call(-1)
            before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                call(FOREVER)
            signal.signal(signal.SIGALRM, before)
        with pytest.raises(CardError, match="reset takes 1 to 10,000 cycles, not 10001"):
            opened.reset(10_001)
        opened.reset()
        with pytest.raises(CardError, match="nothing is running"):
            opened.wait()
