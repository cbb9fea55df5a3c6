"""The host's memory behind the link, as masters of a core reach it on the simulated card."""

import re

import numpy as np
import pytest

from fpga.api.hotline import Hotline
from fpga.card import CardError, CardViolation
from fpga.card.buffers import BufferObjects
from gen.compiler.hotline import Train
from gen.model.device import Device
from gen.rtl.config import ConfigError
from tests.support import hotline_logs
from tests.support.kernels import SCATTER, WritingKernel
from tests.support.trial_card import BEAT, CHUNK, LINE, QUICK, arguments, copying, opened

pytestmark = pytest.mark.turns(12, of="memories")

HOST = ("m00_axi", "m01_axi")
WIDE = QUICK.replace("link", gb_s=15.75, efficiency=0.76)
BEYOND = 12         # cycles of the kernel beside a burst's time


def latency(device):
    return device.options()["host.latency"]


def cycles_of(device, size, payload=256, header=24):
    """Of the link for a packet with so many bytes of data, where full ones have the link's rate."""
    return device.options()["link.page"] * (size + header) * payload / (payload + header) / 4096


def scattered(device, lines=2000, **bridge):
    """Cycles in which single lines at random are read, 64 bytes each."""
    with opened(device=device.replace("bridge", **bridge), host=HOST) as sim:
        source = sim.allocate(1 << 16, "source", fill=1)
        sim.run(arguments(source=source, mode=SCATTER, beats=lines, mask=1023))
        taken, counters = sim.wait(), sim.counters()
    assert counters["link.in_bytes"] == lines * LINE and counters["ddr.reads"] == 0
    return taken / lines, counters["m01_axi.read_outstanding_most"]


@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
def test_a_copy_in_the_host_s_memory(memory):
    """A burst of 1 KB after the other: two requests and four packets each, with the latency of the first request; the
    card's own memory takes no part."""
    with opened(memory, WIDE, host=HOST) as sim:
        source, target, data, given = copying(sim)
        base = WIDE.bridge.base
        assert base < source.address < source.end < target.address < base + WIDE.bridge.bytes
        sim.run(given)
        taken = sim.wait()
        assert (sim.read(target) == data).all() and (sim.fetch(target) == data).all()
        counters = sim.counters()
        assert counters["ddr.reads"] == counters["ddr.writes"] == 0
        assert (counters["link.in_bytes"], counters["link.out_bytes"]) == (len(data), len(data))
    bursts, packets = len(data) // (CHUNK * BEAT), CHUNK * BEAT / 256
    least = latency(WIDE) + cycles_of(WIDE, 0) + CHUNK + CHUNK + cycles_of(WIDE, 256)
    assert least < taken / bursts < least + packets * cycles_of(WIDE, 256) + BEYOND


@pytest.mark.parametrize("device, reads", [(WIDE, 32), (WIDE, 8), (QUICK, 32), (WIDE, 1000), (QUICK, 1000)])
def test_bytes_under_way_or_the_link_limit_reads(device, reads):
    """So many lines each latency, or a packet behind the other."""
    cycles, most = scattered(device, reads=reads)
    link = cycles_of(device, LINE)
    waits = (latency(device) + cycles_of(device, 0) + link + 1) / reads
    assert max(link, waits, 1) == pytest.approx(cycles, rel=0.16)
    assert most == min(reads, 1000) if waits > max(link, 1) else most <= reads


def test_completions_limit_reads():
    cycles, _ = scattered(WIDE, reads=1000, completion_bytes=1024)
    assert cycles == pytest.approx(latency(WIDE) * LINE / 1024, rel=0.15)


@pytest.mark.parametrize("credits, cycles", [(1000, cycles_of(WIDE, LINE)), (4, latency(WIDE) / 4)])
def test_credits_limit_writes(credits, cycles):
    """A packet for each line, as fast as the link moves them or the host takes them."""
    beats = 2000
    with opened(device=WIDE.replace("bridge", credits=credits), core=WritingKernel, host=HOST[:1]) as sim:
        target = sim.allocate(beats * LINE, "target")
        sim.run(arguments(target=target, beats=beats))
        assert sim.wait() / beats == pytest.approx(max(cycles, 1), rel=0.1)
        assert np.array_equal(sim.read(target, np.uint32).reshape(beats, -1)[:, 0], np.arange(beats))


def test_the_host_s_memory_has_rules_too():
    """What nobody wrote, what no buffer has, and the card's own memory, which such a master does not reach."""
    with opened(host=HOST) as sim:
        source, target = sim.allocate(CHUNK * BEAT, "source"), sim.allocate(CHUNK * BEAT, "target", fill=0)
        for at, rule in ((source.address, "never_written"), (source.end + 8192, "read_outside"),
                         (WIDE.memory.base, "read_outside")):
            sim.run(arguments(source=at, target=target, beats=CHUNK))
            with pytest.raises(CardViolation, match="m00_axi") as error:
                sim.wait()
            assert error.value.violations[0].rule == rule
            sim.reset()
            sim.clear()
        sim.free(source)
        assert sim.allocate(1, "source").address == source.address
        with pytest.raises(CardError, match=f"no room for buffer 'huge' of .* bytes in a memory of {1 << 32} bytes"):
            sim.allocate(1 << 34, "huge")


def test_a_reset_forgets_what_is_under_way():
    with opened(device=WIDE, host=HOST) as sim:
        _, target, data, given = copying(sim)
        sim.run(given)
        first = sim.wait()
        for cycles in (100, 333, 700):
            sim.run(given)
            sim.step(cycles)
            sim.reset()
            sim.write(target, np.zeros(len(data), np.uint8))
            sim.run(given)
            assert sim.wait() == first and (sim.read(target) == data).all()


def test_ports_wrong():
    with pytest.raises(CardError, match="^there is no port 'm02_axi'; there are m00_axi, m01_axi$"):
        opened(host=("m02_axi",))


@pytest.mark.parametrize("values, sentence", [
    ({"payload_bytes": 96}, "payload_bytes = 96: must be a power of two from 64 to 4096"),
    ({"request_bytes": 8192}, "request_bytes = 8192: must be a power of two from 64 to 4096"),
    ({"completion_bytes": 256}, "completion_bytes = 256: must be at least request_bytes = 512"),
    ({"base": 0x40_0000_0000}, "base = 274877906944: must be a multiple of 4096, and the host's 17179869184 bytes from "
                               "there on none of the card's own memory"),
    ({"reads": 0}, "reads = 0: must be above 0")])
def test_bridges_wrong(values, sentence):
    with pytest.raises(ConfigError, match=f"^smartssd.toml: .bridge. {re.escape(sentence)}$"):
        Device.load("smartssd").replace("bridge", **values)


def test_a_real_card_s_buffers_of_the_host_s_memory():
    """XRT is asked for them by a flag of its own; others as ever."""
    asked = {}

    class Xrt:
        def handle(self, name, *arguments, what):
            if name == "xrtBOAlloc":
                asked[arguments[3]] = arguments[2]
                return np.zeros(arguments[1], np.uint8)
            return arguments[0].ctypes.data

        def xrtBOAddress(self, handle):
            return handle.ctypes.data

        def must(self, *arguments, what):
            pass

    sizes = {"program": 1 << 20, "rows": 1 << 20}
    objects = BufferObjects(Xrt(), None, {"program": 0, "rows": 1}, sizes, "off", "card", {1})
    objects.allocate(100, "program", None, False)
    objects.allocate(100, "rows", None, False)
    assert asked == {0: 0, 1: 1 << 29}


def test_hotline_with_rows_in_the_host_s_memory():
    """The same mini-batches and the same rows, which the card's memory never has."""
    log = hotline_logs.log(22, 120, rows=(90, 120, 50), none=0, pinned=())
    runs = []
    for host in ((), ("m01_axi",)):
        with Hotline(log.layout.tables, log.layout.positions, payload=log.layout.payload,
                     preset=hotline_logs.TINY, device=WIDE, host=host) as hotline:
            hotline.learn(log.indices[:40])
            done = hotline.dispatch(lambda batch: batch.rows + 1, log.indices, log.payload, Train(4, 4, -0.5))
            runs.append((sorted(done.kinds), [hotline.values(table.name).tobytes() for table in log.layout.tables]))
            cold = hotline.last["dma_rd"]
            lines, passed = hotline.card.counters()["m01_axi.beats_read"] / 2, hotline.card.counters()["link.in_bytes"]
    assert runs[0] == runs[1] and cold and passed > lines * LINE
