"""The simulated card: memory, runs, rules, faults and processes, on a small kernel."""

import numpy as np
import pytest

from fpga import card
from fpga.card import (
    CardError,
    CardHang,
    CardViolation,
    ErrorResponse,
    Faults,
)
from gen.rtl import toggles
from gen.rtl.verilog import TOP
from tests.support.kernels import (
    CHUNK,
    HANG,
    KERNEL,
    SCATTER,
    WRONG,
    TrialKernel,
    WritingKernel,
    scattered,
)
from tests.support.trial_card import BASE, BEAT, LINE, QUICK, arguments, content, copying, opened

# Memory

def test_buffers():
    with opened() as sim:
        a, b = sim.allocate(100, "a", fill=7), sim.allocate(5000, "b")
        assert a.address == BASE + 4096 and a.address % 4096 == b.address % 4096 == 0
        assert b.address >= a.end + 2 * 4096  # each has a page of guard bytes on both sides
        assert (sim.read(a) == 7).all() and not sim.read(b).any()
        sim.write(b, np.arange(10, dtype=np.float32), offset=40)
        assert (sim.read(b, np.float32, count=10, offset=40) == np.arange(10)).all()
        sim.write(a, b"abc")
        assert sim.read(a, count=4).tobytes() == b"abc\7"
        sim.free(a)
        assert sim.allocate(4096, "again").address == a.address
        assert not sim.violations()


def test_changes_of_the_last_run(monkeypatch, tmp_path):
    monkeypatch.setenv("HOTRAIL_TOGGLES", str(tmp_path / "toggles"))
    with card.open("sim", device=QUICK, core=TrialKernel(), kernel=KERNEL, memory="ideal") as sim:
        data = content(9 * CHUNK * BEAT)
        source, target = sim.allocate(data.size, "source"), sim.allocate(data.size, "target")
        sim.write(source, data)
        cycles = []
        for beats, first in ((8 * CHUNK, 0), (CHUNK, 8 * CHUNK)):
            sim.run(arguments(source=source.address + first * BEAT, target=target, beats=beats))
            cycles.append(sim.wait())
    changes = toggles.changes([tmp_path / "toggles"])
    # Until the card is closed: the result is read over s_axi_control.
    assert cycles[1] <= changes[TOP, "clk", ""] // 2 < cycles[1] + 50 < cycles[0]
    # An address and its burst per chunk that is read: the handshake goes up and down once.
    assert toggles.counted([tmp_path / "toggles"])[TOP, "m00_axi__arvalid", ""] == (1, 1)
    # Every bit of a wide port has its own count.
    beats = np.unpackbits(data.reshape(-1, BEAT)[-CHUNK - 1:], axis=1, bitorder="little")
    assert ([changes[TOP, "m00_axi__rdata", str(bit)] for bit in range(8 * BEAT)]
            == np.count_nonzero(beats[1:] != beats[:-1], axis=0).tolist())


@pytest.mark.parametrize("call, sentence", [
    (lambda s, b: s.allocate(0, "x"), "buffer 'x' must have at least 1 byte, not 0"),
    (lambda s, b: s.allocate(1, "b"), "there is already a buffer 'b'"),
    (lambda s, b: s.allocate(1 << 32, "x"), "no room for buffer 'x' of 4294967296 bytes in a memory of 4294967296"),
    (lambda s, b: s.allocate(1, "x", fill=256), "fill must be a byte, 0 to 255, not 256"),
    (lambda s, b: s.write(b, bytes(5), offset=60), "5 bytes at offset 60 do not fit the 64 bytes of buffer 'b'"),
    (lambda s, b: s.read(b, np.float32, count=17), "17 items of float32 at offset 0 are not all in the 64 bytes of"),
    (lambda s, b: s.free(card.Buffer("c", 0, 1)), "'c' is no buffer of this card"),
    (lambda s, b: s.run({"sauce": b}), "the kernel has no argument 'sauce'; it has source, beats, target"),
    (lambda s, b: s.run({"source": b}), "the kernel's argument 'beats' is missing"),
    (lambda s, b: s.run(arguments(beats=1 << 32)), "argument beats = 4294967296 does not fit 32 bits"),
    (lambda s, b: s.wait(), "nothing is running"),
    (lambda s, b: s.set_faults(Faults(stalls={"x": 0.1})), "there is no channel 'x'; there are aw, w, b, ar, r"),
    (lambda s, b: s.set_faults(Faults(stalls={"r": 0.99})), "stalls of r must be 0 to 0.95 of the cycles, not 0.99"),
    (lambda s, b: s.set_faults(Faults(errors=(ErrorResponse("m7_axi", "read"),))), "there is no port 'm7_axi'"),
    (lambda s, b: s.reset(0), "reset takes 1 to 10,000 cycles, not 0"),
])
def test_what_is_refused(call, sentence):
    with opened() as sim:
        buffer = sim.allocate(64, "b")
        with pytest.raises(CardError) as error:
            call(sim, buffer)
        assert str(error.value).startswith(sentence)
        # Nothing of it is left behind.
        source, target, data, given = copying(sim)
        sim.run(given)
        sim.wait()
        assert (sim.read(target) == data).all()


def test_opening_wrong():
    with pytest.raises(CardError, match=r'there is no kind of card \'fpga\'; there are "sim", "twin", "xrt" and "f2"'):
        card.open("fpga")
    with pytest.raises(CardError, match='memory must be "ddr4" or "ideal", not \'hbm\''):
        opened(memory="hbm")
    with pytest.raises(CardError, match="seed must be 1 to 2147483647, not 0"):
        opened(seed=0)
    with pytest.raises(CardError, match="port debug belongs to no interface that a card has"):
        card.open("sim", core=TrialKernel(extra=True))
    sim = opened()
    sim.close()
    sim.close()
    with pytest.raises(CardError, match="the card is closed"):
        sim.allocate(1, "a")


# Runs

@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
def test_copy_is_right_and_repeatable(memory):
    """In whatever state the core begins."""
    seen = []
    for seed in (None, 1, 2):
        with opened(memory, seed=seed) as sim:
            source, target, data, given = copying(sim)
            cycles = []
            for _ in range(2):
                sim.run(given)
                cycles.append(sim.wait())
            assert (sim.read(target) == data).all()
            seen.append((cycles, sim.counters()))
    assert seen[0] == seen[1] == seen[2]
    counters = seen[0][1]
    assert counters["m00_axi.beats_read"] == counters["m00_axi.beats_written"] == 2 * 4 * CHUNK
    assert counters["m00_axi.bursts_read"] == counters["m00_axi.bursts_written"] == 2 * 4
    assert counters["violations"] == 0
    lines = 2 * 4 * CHUNK * BEAT // LINE if memory == "ddr4" else 0
    assert counters["ddr.reads"] == counters["ddr.writes"] == lines


def test_ideal_latency():
    """One line read: the latency is what the device says, whatever it says."""
    taken = {}
    for latency in (50, 100):
        with opened(device=QUICK.replace("port", ideal_latency=latency)) as sim:
            source = sim.allocate(1 << 16, "source", fill=1)
            sim.run(arguments(source=source, mode=SCATTER, beats=1))
            taken[latency] = sim.wait()
            assert sim.counters()["m01_axi.read_waits"] == latency
    assert taken[100] - taken[50] == 50


def test_ideal_memory_gives_every_beat():
    with opened() as sim:
        source = sim.allocate(1 << 16, "source", fill=1)
        sim.run(arguments(source=source, mode=SCATTER, beats=20_000, mask=1023))
        assert sim.wait() < 20_000 + 200
        assert 100 <= sim.counters()["m01_axi.read_outstanding_most"] <= 102


@pytest.mark.parametrize("policy", ["fr_fcfs", "group_machines"])
def test_bursts_under_way_are_limited(policy):
    device = QUICK.replace("port", bursts=3).replace("controller", policy=policy)
    with opened("ddr4", device=device) as sim:
        source = sim.allocate(1 << 16, "source", fill=1)
        sim.run(arguments(source=source, mode=SCATTER, beats=500, mask=1023))
        sim.wait()
        assert sim.counters()["m01_axi.read_outstanding_most"] == 3


@pytest.mark.parametrize("memory, bursts, cycles", [("ideal", 16, 1.0), ("ddr4", 64, 1.07), ("ddr4", 16, 26 / 16)])
def test_many_writes_are_under_way(memory, bursts, cycles):
    """No write waits for the answer to the one before: they go at the memory's rate, or as many as may be under way in
    the 26 cycles until an answer."""
    beats = 2000
    with opened(memory, QUICK.replace("port", bursts=bursts), core=WritingKernel) as sim:
        target = sim.allocate(beats * LINE, "target")
        sim.run(arguments(target=target, beats=beats))
        assert cycles * beats * 0.9 < sim.wait() < cycles * beats * 1.1 + 300
        assert np.array_equal(sim.read(target, np.uint32).reshape(beats, -1)[:, 0], np.arange(beats))


def test_two_cards_in_one_process():
    def writes(sim, beats):
        target = sim.allocate(beats * LINE, f"target{beats}")
        sim.run(arguments(target=target, beats=beats))
        sim.wait()
        assert np.array_equal(sim.read(target, np.uint32).reshape(beats, -1)[:, 0], np.arange(beats))

    with opened(core=WritingKernel) as older:
        with opened(core=WritingKernel) as newer:
            for sim in (older, newer):
                writes(sim, 10)
        writes(older, 20)
    with opened(core=WritingKernel) as third:
        writes(third, 10)


def test_without_interrupt():
    with card.open("sim", core=TrialKernel(interrupt=False), memory="ideal") as sim:
        source, target, data, given = copying(sim)
        sim.run(given)
        sim.wait()
        assert (sim.read(target) == data).all()
        sim.run(given | {"mode": HANG})
        with pytest.raises(CardHang):
            sim.wait(2000)


def test_scattered_reads_fetch_what_they_should():
    """The sum over the lines is not kept, so a wrong address shows as one that was never written."""
    with opened("ddr4") as sim:
        source = sim.allocate(1 << 16, "source")
        lines = scattered(300, 1023)
        for line in set(lines) - {lines[200]}:
            sim.write(source, bytes(LINE), offset=line * LINE)
        sim.run(arguments(source=source, mode=SCATTER, beats=300, mask=1023))
        with pytest.raises(CardViolation) as error:
            sim.wait()
        assert [(v.rule, v.port, v.address) for v in error.value.violations] == [
            ("never_written", "m01_axi", source.address + lines[200] * LINE)]
        assert error.value.violations[0].count == lines.count(lines[200])


def test_hang_abort_and_reset():
    with opened() as sim:
        source, target, data, given = copying(sim)
        sim.run(given | {"mode": HANG})
        with pytest.raises(CardError, match="a run is under way; wait for it, or reset the card"):
            sim.run(given)
        with pytest.raises(CardHang) as error:
            sim.wait(timeout_cycles=500)
        assert str(error.value).startswith("the core was not done after 500 cycles, its status register is 0x0; "
                                           "bursts under way: none")
        sim.abort()
        sim.wait()
        sim.run(given)
        assert not sim.step(300)
        sim.reset()
        assert sim.read(target).any() and not (sim.read(target) == data).all()  # stopped half way
        sim.run(given)
        sim.wait()
        assert (sim.read(target) == data).all()


def test_reset_at_any_cycle():
    """Whatever was under way, the next run is right and nothing is outside the buffers."""
    with opened("ddr4") as sim:
        source, target, data, given = copying(sim, beats=CHUNK)
        for cycles in range(1, 420, 11):
            sim.run(given)
            sim.step(cycles)
            sim.reset(1 + cycles % 3)
            sim.write(target, bytes(target.bytes))
            sim.run(given)
            sim.wait()
            assert (sim.read(target) == data).all()


# Rules

@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
@pytest.mark.parametrize("rule", WRONG[1:])
def test_broken_rules_are_seen(rule, memory):
    with opened(memory) as sim:
        source, target, data, given = copying(sim, wrong=WRONG.index(rule))
        # Ready that stays low gives the master the time to change its mind.
        sim.set_faults(Faults(stalls={"ar": 0.9, "w": 0.5}, stall_cycles=8))
        sim.run(given)
        with pytest.raises(CardViolation) as error:
            sim.wait()
        expected = "payload_changed" if rule == "write_payload" else rule
        assert expected in {v.rule for v in error.value.violations}
        assert {v.port for v in error.value.violations} == {"m00_axi"}
        sim.clear()
        sim.set_faults(Faults())
        sim.run(given | {"wrong": 0})
        sim.wait()
        assert (sim.read(target) == data).all()


@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
def test_memory_rules(memory):
    with opened(memory) as sim:
        source, target, data, given = copying(sim, beats=CHUNK)
        fresh = sim.allocate(CHUNK * BEAT, "fresh")
        far = sim._device.memory.base + sim._device.memory.bytes
        for change, rule, at in (
            ({"source": fresh}, "never_written", fresh.address),
            ({"source": source.address - 4096}, "read_outside", source.address - 4096),
            ({"source": far}, "read_outside", far),
            ({"target": target.end}, "write_outside", target.end),
            ({"target": 0x1000}, "write_outside", 0x1000),
        ):
            sim.clear()
            sim.run(given | change)
            with pytest.raises(CardViolation) as error:
                sim.wait()
            first = error.value.violations[0]
            assert (first.rule, first.address) == (rule, at)
            guards = [v for v in error.value.violations if v.rule == "guard"]
            assert len(guards) == (change == {"target": target.end})
            # What lies there is put right, so that the next case begins clean.
            sim.free(target)
            target = sim.allocate(CHUNK * BEAT, "target", fill=0)


def test_never_written_is_per_word():
    """ECC covers 8 bytes: a buffer that was written but for one word fails at its beat."""
    with opened() as sim:
        source, target = sim.allocate(CHUNK * BEAT, "source"), sim.allocate(CHUNK * BEAT, "target")
        data = content(CHUNK * BEAT)
        sim.write(source, data[:504])
        sim.write(source, data[512:], offset=512)
        given = arguments(source=source, target=target, beats=CHUNK)
        sim.run(given)
        at = source.address + 504 // LINE * LINE
        with pytest.raises(CardViolation, match=f"never written, an uncorrectable ECC error at 0x{at:x}"):
            sim.wait()
        sim.clear()
        sim.write(source, data[504:512], offset=504)
        sim.run(given)
        sim.wait()
        assert (sim.read(target) == data).all()


# Faults

@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
def test_stalls_change_the_time_alone(memory):
    times = {}
    with opened(memory) as sim:
        source, target, data, given = copying(sim)
        sim.run(given)
        sound = sim.wait()
        for channel in ("aw", "w", "b", "ar", "r"):
            for seed in (1, 2):
                sim.set_faults(Faults(seed=seed, stalls={channel: 0.7}))
                sim.write(target, bytes(target.bytes))
                sim.run(given)
                times[channel, seed] = sim.wait()
                assert (sim.read(target) == data).all()
            # Four bursts wait for some cycles at the address and the response, for most of their beats on the data.
            assert sum(times[channel, seed] - sound for seed in (1, 2)) > (600 if channel in ("w", "r") else 8)
    assert all(times[c, 1] != times[c, 2] for c in ("w", "r"))


def test_stalls_hold_for_their_share():
    with opened() as sim:
        source = sim.allocate(1 << 16, "source", fill=1)
        for share in (0.25, 0.5, 0.75):
            sim.set_faults(Faults(stalls={"r": share}))
            sim.run(arguments(source=source, mode=SCATTER, beats=20_000, mask=1023))
            assert sim.wait() == pytest.approx(20_000 / (1 - share), rel=0.05)


@pytest.mark.parametrize("response", ["SLVERR", "DECERR"])
def test_error_responses(response):
    """The copy ignores responses, so what it wrote shows which beats were hit."""
    with opened() as sim:
        source, target, data, given = copying(sim)
        beats = data.reshape(-1, BEAT)
        address = target.address + 70 * BEAT
        sim.set_faults(Faults(errors=(
            ErrorResponse("m00_axi", "write", response, first=address, end=address + BEAT),)))
        sim.run(given)
        sim.wait()
        out = sim.read(target).reshape(-1, BEAT)
        assert [i for i in range(len(beats)) if (out[i] != beats[i]).any()] == [70]
        sim.set_faults(Faults(errors=(ErrorResponse("m00_axi", "write", response, beat=5),)))
        sim.write(target, bytes(target.bytes))
        sim.run(given)
        sim.wait()
        out = sim.read(target).reshape(-1, BEAT)
        assert [i for i in range(len(beats)) if (out[i] != beats[i]).any()] == [5]


# Processes

@pytest.mark.turns(1, of="processes")
def test_cards_in_processes():
    cards = [opened(process=True) for _ in range(2)]
    try:
        runs = []
        for seed, sim in enumerate(cards):
            data = content(4 * CHUNK * BEAT, seed)
            source, target = sim.allocate(data.size, "source"), sim.allocate(data.size, "target", fill=0)
            sim.write(source, data)
            runs.append((sim, target, data, arguments(source=source, target=target, beats=4 * CHUNK)))
        for sim, _, _, given in runs:
            sim.run(given)
            sim.begin_wait()
        for sim, target, data, given in runs:
            with pytest.raises(CardError, match="the card is waiting for its run; call end_wait first"):
                sim.counters()
            cycles = sim.end_wait()
            assert (sim.read(target) == data).all()
            # The same as in this process, to the cycle.
            with opened() as here:
                source, target, data, given = copying(here)
                here.run(given)
                assert here.wait() == cycles
            sim.run(given | {"mode": HANG})
            with pytest.raises(CardHang) as error:
                sim.wait(300)
            assert error.value.state == 0 and "not done after 300 cycles" in str(error.value)
            assert sim.cycles_per_s > 0
    finally:
        for sim in cards:
            sim.close()
    with pytest.raises(CardError, match="the card is closed"):
        cards[0].counters()
