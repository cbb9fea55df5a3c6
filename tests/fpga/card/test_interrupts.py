"""Calls of a card that are cut short: by signals, by limits, by the death of who asked."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from fpga import card
from fpga.card import CardError, CardHang, Faults, Silence
from tests.support.kernels import CHUNK, HANG
from tests.support.trial_card import copying, opened

FOREVER = 10**15
SOON_S = 20.0       # of what takes a fraction of a second on an idle machine


@pytest.fixture(scope="module", params=[False, True], ids=["here", "process"])
def sim(request):
    with opened(process=request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def empty(request):
    if "sim" in request.fixturenames:
        it = request.getfixturevalue("sim")
        it.reset()
        it.set_faults(Faults())
        for buffer in it.buffers():
            it.free(buffer)


@pytest.fixture
def soon(monkeypatch):
    """Ctrl-C after so many seconds."""
    before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()    # what is raised in a callback of the collector, such as Hypothesis's, is lost
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    gc.enable()
    signal.signal(signal.SIGALRM, before)
    signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize("call", ["step", "wait", "end_wait"])
def test_an_interrupt_is_answered_at_once(sim, soon, call):
    if call == "end_wait" and not hasattr(sim, "end_wait"):
        pytest.skip("a card in this process has no end_wait")
    source, target, data, given = copying(sim)
    sim.run(given | {"mode": HANG})
    if call == "end_wait":
        sim.begin_wait(FOREVER)
    soon(0.1)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        getattr(sim, call)(*() if call == "end_wait" else (FOREVER,))
    assert time.monotonic() - began < SOON_S
    # Every question gets its own answer, and the run goes on until it is ended.
    assert (sim.read(source) == data).all() and not sim.read(target).any()
    with pytest.raises(CardError, match="a run is under way"):
        sim.run(given)
    sim.reset()
    sim.run(given)
    sim.wait()
    assert (sim.read(target) == data).all()


def test_interrupts_at_random_moments(sim, soon):
    """Whatever call they hit, the card's answers afterwards are those to its questions."""
    draw = np.random.default_rng(1)
    source, target, data, given = copying(sim)
    cut = 0
    for _ in range(25):
        soon(1e-5 + draw.random() * 0.01)
        try:
            end = time.monotonic() + SOON_S
            while time.monotonic() < end:
                sim.write(target, bytes(target.bytes))
                sim.run(given)
                sim.wait()
                sim.read(target, count=64)
        except KeyboardInterrupt:
            cut += 1
        sim.reset()
        assert (sim.read(source) == data).all()
        sim.write(target, bytes(target.bytes))
        sim.run(given)
        sim.wait()
        assert (sim.read(target) == data).all() and len(sim.buffers()) == 2
    assert cut == 25


def test_a_limit_in_seconds(sim):
    _, _, _, given = copying(sim)
    sim.run(given | {"mode": HANG})
    began = time.monotonic()
    with pytest.raises(CardHang, match="the core was not done after .* cycles, its status register is 0x0"):
        sim.wait(FOREVER, 0.1)
    assert time.monotonic() - began < SOON_S


@pytest.mark.parametrize(("call", "arguments", "sentence"), [
    ("step", (-1,), "step takes 0 or more cycles, not -1"), ("step", (1.5,), "step takes 0 or more cycles, not 1.5"),
    ("step", ("many",), "step takes 0 or more cycles, not 'many'"),
    ("wait", (-1,), "wait takes 0 or more cycles, not -1"), ("wait", (None,), "wait takes 0 or more cycles, not None"),
    ("reset", (0,), "reset takes 1 to 10,000 cycles, not 0"),
    ("reset", (10_001,), "reset takes 1 to 10,000 cycles, not 10001"),
])
def test_cycles_that_are_none(sim, call, arguments, sentence):
    with pytest.raises(CardError) as error:
        getattr(sim, call)(*arguments)
    assert str(error.value) == sentence


@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
@pytest.mark.parametrize("way", ["read", "write"])
@pytest.mark.parametrize("beat", [0, 70])
def test_a_memory_that_never_answers(memory, way, beat):
    with opened(memory) as sim:
        source, target, data, given = copying(sim)
        sim.set_faults(Faults(silences=(Silence("m00_axi", way, beat),)))
        sim.run(given)
        with pytest.raises(CardHang, match="not done after 5000 cycles, .*; bursts under way: m00_axi 1"):
            sim.wait(5000)
        moved = sim.counters()[f"m00_axi.beats_{'read' if way == 'read' else 'written'}"]
        assert moved == (beat if way == "read" else (beat // CHUNK + 1) * CHUNK)
        sim.reset()
        sim.set_faults(Faults())
        sim.run(given)
        sim.wait()
        assert (sim.read(target) == data).all()


@pytest.mark.parametrize(("silence", "sentence"), [
    (Silence("m07_axi", "read"), "there is no port 'm07_axi'; there are m00_axi, m01_axi"),
    (Silence("m00_axi", "both"), "a silence is on read or write from a beat on, not on both from beat 0 on"),
    (Silence("m00_axi", "read", -1), "a silence is on read or write from a beat on, not on read from beat -1 on"),
])
def test_silences_that_cannot_be(sim, silence, sentence):
    with pytest.raises(CardError) as error:
        sim.set_faults(Faults(stalls={"r": 0.9}, silences=(silence,)))
    assert str(error.value) == sentence


def test_calls_with_nothing_to_wait_for_leave_the_slices_as_short():
    """Else a limit or an interrupt is heeded seconds late."""
    with opened() as sim:
        before = sim._slice
        for _ in range(20):
            sim.settle()
        assert sim._slice == before
        # Nor does a transfer that takes many slices, while the core stands still.
        large = sim.allocate(1 << 22, "large", fill=0)
        sim.send(large, np.zeros(1 << 22, np.uint8))
        sim.settle()
        assert sim._slice == before


def test_a_buffer_cut_short_can_be_given_back():
    """An exception between a card's note of a buffer and its memory's, or the other way round."""
    with opened() as sim:
        call, cut = sim._call, []

        def cutting(name, *arguments):
            if name in cut:
                cut.remove(name)
                raise KeyboardInterrupt
            return call(name, *arguments)

        sim._call = cutting
        for name in ("add", "remove"):
            cut.append(name)
            with pytest.raises(KeyboardInterrupt):
                sim.free(sim.allocate(100, "a"))
            assert [buffer.name for buffer in sim.buffers()] == ["a"]
            sim.free(sim.buffers()[0])
            assert not sim.buffers()
        sim.write(sim.allocate(100, "a"), bytes(100))
        assert not sim.violations()


def test_ctrl_c_at_a_terminal_reaches_the_card_s_process_too():
    """And leaves it alone, from its first moment on."""
    def soon():
        while not (children := multiprocessing.active_children()):
            time.sleep(0.001)
        for _ in range(20):
            os.kill(children[-1].pid, signal.SIGINT)
            time.sleep(0.02)

    thread = threading.Thread(target=soon)
    thread.start()
    with opened(process=True) as sim:
        thread.join()
        source, target, data, given = copying(sim)
        sim.run(given)
        os.kill(sim._process.pid, signal.SIGINT)
        sim.wait()
        assert (sim.read(target) == data).all()


ORPHAN = """
import os, sys
from fpga import card
from tests.support.trial_card import copying, opened
from tests.support.kernels import HANG

if __name__ == "__main__":
    sim = opened(process=True)
    _, _, _, given = copying(sim)
    sim.run(given | {"mode": HANG})
    print(sim._process.pid, flush=True)
    if sys.argv[1] == "busy":
        sim.step(10**15)
    sys.stdin.read()
"""


@pytest.mark.turns(1, of="processes")
@pytest.mark.parametrize("state", ["busy", "idle"])
def test_a_card_ends_with_its_parent(state, tmp_path):
    """Also with one that was killed, which can say nothing any more."""
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN, "utf-8")
    root = Path(card.__file__).parents[2]
    parent = subprocess.Popen([sys.executable, script, state], cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    time.sleep(0.2)
    parent.kill()
    parent.wait()
    until = time.monotonic() + SOON_S
    while _lives(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _lives(pid)


def _lives(pid):
    """Also a process that has ended, but whose parent has not looked, has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
