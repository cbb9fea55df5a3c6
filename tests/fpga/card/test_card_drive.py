"""The simulated card's drive and its host: pages through a ring, lost pages, a dead host, on a small kernel."""

import numpy as np
import pytest

from fpga.card import CardError, CardHang, CardViolation, Faults, SsdStream
from tests.support.trial_card import BEAT, LINE, content, opened, ring_run


@pytest.mark.turns(1)
@pytest.mark.parametrize("memory", ["ideal", "ddr4"])
@pytest.mark.parametrize("page_bytes", [4096, 16384])
def test_pages_go_through_the_ring(page_bytes, memory):
    with opened(memory) as sim:
        given, target, result, expected = ring_run(sim, 24, 4, page_bytes)
        sim.run(given)
        sim.wait()
        assert (sim.read(target) == expected).all()
        counters = sim.counters()
        assert counters["ssd.pages"] == 24 and counters["ssd.bytes"] == 24 * page_bytes
        assert counters["ssd.credit_waits"] > 0  # the ring is the limit
        words = sim.read(result, np.uint32)
        assert words[768 // 4] == words[832 // 4] == 24 * page_bytes // BEAT
        if memory == "ddr4":  # landing pages use the card's memory too
            assert counters["ddr.writes"] >= 24 * page_bytes // LINE
        # A second run begins again.
        sim.write(target, bytes(target.bytes))
        sim.run(given)
        sim.wait()
        assert (sim.read(target) == expected).all()


def test_pages_from_a_file(tmp_path):
    with opened() as sim:
        given, target, result, expected = ring_run(sim, 4, 4)
        data = content(64 * 4096, 3)
        data.tofile(tmp_path / "drive.bin")
        order = np.random.default_rng(3).integers(0, 64, 4)
        ring = sim._buffers["ring"]
        sim.stream(SsdStream(tmp_path / "drive.bin", 4096, [(int(p), n * 256) for n, p in enumerate(order)], ring,
                             result.address + 768, result.address + 832, BEAT))
        sim.run(given)
        sim.wait()
        assert (sim.read(target) == expected).all()


def test_lost_page_and_dead_host_hang_the_reader():
    for faults, landed in ((Faults(lost=(5,)), 5), (Faults(host_dies_after=3), 3), (Faults(host_dies_after=0), 0)):
        with opened() as sim:
            given, target, result, expected = ring_run(sim, 8, 4)
            sim.set_faults(faults)
            sim.run(given)
            with pytest.raises(CardHang):
                sim.wait(100_000)
            out = sim.read(target).reshape(-1, 4096)
            assert (out[:landed].reshape(-1) == expected[: landed * 4096]).all() and not out[landed:].any()
            assert sim.read(result, np.uint32)[832 // 4] == landed * 256
            # The next run, with a sound host, is right.
            sim.abort()
            sim.wait()
            sim.set_faults(Faults())
            sim.run(given)
            sim.wait()
            assert (sim.read(target) == expected).all()


def test_doorbell_that_runs_ahead_is_a_race():
    """The drive takes its real time here, so the reader comes before the pages that were announced."""
    with opened(device="smartssd") as sim:
        given, target, result, expected = ring_run(sim, 16, 4)
        sim.set_faults(Faults(doorbell_ahead=512, doorbell_after=4))
        sim.run(given)
        with pytest.raises(CardViolation) as error:
            sim.wait()
        assert [(v.rule, v.port) for v in error.value.violations] == [("ring_race", "m00_axi")]


@pytest.mark.parametrize("change, sentence", [
    ({"page_bytes": 512}, "page_bytes must be 4096 or 16384, not 512"),
    ({"transfers": [(64, 0)]}, "page 64 lies past the 262144 bytes of the SSD's data"),
    ({"transfers": [(0, 8)]}, "ring positions must be multiples of a page's 256 beats below 2**30"),
    ({"transfers": [(0, 256), (1, 256)]}, "ring positions must ascend from transfer to transfer by at least a page"),
    ({"progress": 0x1000}, "progress = 0x1000 must be the address of a 32-bit word in a buffer"),
    ({"beat_bytes": 32}, "beat_bytes = 32 is no port's; ports have 16, 64"),
])
def test_streams_that_are_refused(change, sentence):
    with opened() as sim:
        ring, result = sim.allocate(16384, "ring"), sim.allocate(1024, "result", fill=0)
        about = {"data": content(64 * 4096), "page_bytes": 4096, "transfers": [(0, 0)], "ring": ring,
                 "progress": result.address + 768, "doorbell": result.address + 832, "beat_bytes": BEAT}
        with pytest.raises(CardError) as error:
            sim.stream(SsdStream(**about | change))
        assert str(error.value) == sentence
