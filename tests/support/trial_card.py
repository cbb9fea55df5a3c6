"""The small kernel on a card, with a drive and a host whose times are short: what its tests share."""

from functools import cache

import numpy as np

from fpga import card
from fpga.card import Device, SsdStream
from fpga.card.model import build
from tests.support.kernels import CHUNK, COPY, KERNEL, RING, TrialKernel

BASE = 0x40_0000_0000
BEAT, LINE = 16, 64
# A drive and a host whose times are short, so that a test of them is.
QUICK = Device.load("smartssd").replace("ssd", read_us=2.0).replace(
    "host", submit_us=0.5, complete_us=0.5, poll_us=0.2, doorbell_us=0.2)


@cache
def built(component):
    """The model of a kernel, converted once however many cards are opened with it."""
    return build(component(), f"card_{component.__name__}")


def opened(memory="ideal", device=QUICK, core=TrialKernel, **options):
    return card.open("sim", device=device, core=built(core), kernel=KERNEL, memory=memory, **options)


def arguments(**given):
    return {"source": 0, "beats": 0, "target": 0, "mode": COPY, "wrong": 0, "progress": 0, "doorbell": 0,
            "ring_beats": 0, "mask": 0} | given


def content(count, seed=1):
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def copying(sim, beats=4 * CHUNK, **given):
    """Buffers and arguments of a copy."""
    source, target = sim.allocate(beats * BEAT, "source"), sim.allocate(beats * BEAT, "target", fill=0)
    data = content(beats * BEAT)
    sim.write(source, data)
    return source, target, data, arguments(source=source, target=target, beats=beats, **given)


def ring_run(sim, pages, ring_pages, page_bytes=4096):
    """A ring, the pages that go through it, and what the kernel then has written."""
    beats = page_bytes // BEAT
    data = content(64 * page_bytes, 3).reshape(-1, page_bytes)
    order = np.random.default_rng(3).integers(0, 64, pages)
    ring = sim.allocate(ring_pages * page_bytes, "ring")
    target, result = sim.allocate(pages * page_bytes, "target", fill=0), sim.allocate(1024, "result", fill=0)
    transfers = np.stack([order, beats * np.arange(pages)], axis=1)
    sim.stream(SsdStream(data, page_bytes, transfers, ring, result.address + 768, result.address + 832, BEAT))
    given = arguments(source=ring, target=target, beats=pages * beats, mode=RING, progress=result.address + 768,
                      doorbell=result.address + 832, ring_beats=ring.bytes // BEAT)
    return given, target, result, data[order].reshape(-1)
