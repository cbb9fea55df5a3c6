"""fpga.card.costs: what it has at hand is what the memory models give, and what it has not is measured."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from fpga.api.embedding import EmbeddingBags, Table
from fpga.card import costs, memory
from gen.compiler.dies import geometry, over_dies
from gen.model.device import Device
from gen.planner.plan import DriveUse
from gen.rtl import config

PRESETS = [name for name in config.names() if "emb" in config.load(name).cores]
PAIRS = [(device, preset) for device in Device.names() for preset in PRESETS]
AGAIN = "run `python -m fpga.card.costs`"


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)


@pytest.mark.turns(2)
@pytest.mark.parametrize(("device", "preset"), PAIRS)
def test_devices_that_come_with_hotrail_need_no_compiler(device, preset, no_compiler):
    core = config.load(preset).cores["emb"]
    longest = core.row_beats_max * core.words
    found = costs.measure(device, preset, dims=range(core.words, longest + 1, core.words),
                          row_formats=("float32", "float16", "int8"))
    assert max(found.row_s) == 4 * longest // 64 and min(found.row_s.values()) > 0, AGAIN


@pytest.mark.turns(1)
@pytest.mark.parametrize(("device", "preset"), PAIRS)
def test_what_is_at_hand_is_what_the_models_give(device, preset):
    found = Device.load(device)
    kept, given = costs._known(found, preset, (1, 3), costs.PAGE_BYTES), costs.times(found, preset, (1, 3))
    assert given == kept._replace(row_s={lines: kept.row_s[lines] for lines in given.row_s}), AGAIN


@pytest.mark.turns(1)
@pytest.mark.parametrize(("among", "read"), [(512, 400), (4096, 400), (65_536, 1000)])
def test_pages_take_the_drive_as_long_as_is_planned(among, read):
    """As few of many: the dies are uneven; most of few: the link is slower."""
    device, random = Device.load("smartssd"), np.random.default_rng(among)
    found = costs.measure(device, dims={64})
    numbers = random.choice(among, read, replace=False)
    taken = memory.pages(device, numbers[over_dies(numbers, *geometry(device.ssd, costs.PAGE_BYTES))],
                         costs.PAGE_BYTES, ring_pages=1 << 14)
    reads, pages = np.array(float(read)), np.array(float(among))
    own = replace(found, drive_use=DriveUse(float(found.flash_reads(reads, pages)) / found.dies))
    assert found.drive_s + float(own.drive_seconds(reads, pages)) == pytest.approx(taken, rel=0.2)


@pytest.mark.turns(1)
@pytest.mark.parametrize(("among", "skew"), [(140, 0.0), (300, 0.5), (3000, 0.0)])
def test_few_pages_in_a_small_ring_take_as_long_as_is_planned(among, skew):
    """Of few pages those of a flash page often come together."""
    device, random = Device.load("smartssd_small"), np.random.default_rng(among)
    found, ring = costs.measure(device, "tiny", dims={64}), device.memory.ring_bytes // costs.PAGE_BYTES
    share = 1 / np.arange(1, among + 1) ** skew
    parts = [random.choice(among, ring // 2, replace=False, p=share / share.sum()) for _ in range(40)]
    taken = memory.pages(device, np.concatenate(parts), costs.PAGE_BYTES, ring_pages=ring)
    own = replace(found, drive_use=DriveUse(pages=among))
    reads = np.array(40.0 * (ring // 2))
    assert found.drive_s + float(own.drive_seconds(reads, np.array(among))) == pytest.approx(taken, rel=0.15)
    assert float(own.drive_seconds(reads, np.array(among))) < 0.95 * float(reads) * found.page_s


@pytest.mark.parametrize("page_bytes", [4096, 16384])
@pytest.mark.parametrize("device", ["smartssd", "u55c"])
def test_the_first_page_lands_when_the_device_says(device, page_bytes):
    found = Device.load(device)
    cycles = found.kernel_mhz * 1e6 * memory.pages(found, np.zeros(1, np.int64), page_bytes)
    assert found.first_page_cycles(page_bytes) == pytest.approx(cycles, abs=0.1)


def test_short_batches_that_follow_each_other_take_the_time_of_a_run():
    found, device, rows = costs.measure("smartssd", dims={64}), Device.load("smartssd"), np.ones((4, 64), np.float32)
    table, ends = Table("t", 64, np.arange(4, dtype=np.uint32), rows, rows[:0]), []
    with EmbeddingBags([table], card="twin") as bags:
        for _ in bags.batches([[bags.request("t", [[k % 4]])] for k in range(5)]):
            ends.append(bags.card.counters()["cycles"])
    seconds = (ends[-2] - ends[1]) / (len(ends) - 3) / (device.kernel_mhz * 1e6)
    assert found.run_s == pytest.approx(seconds, rel=0.1) and found.run_s > device.between_s


@pytest.mark.regress
def test_all_of_it_is():
    made = json.dumps(costs.table(Device.names(), PRESETS))
    assert json.loads(made) == json.loads(costs.TABLE.read_text("utf-8")), AGAIN


@pytest.mark.turns(1, of="syntheses")
def test_other_devices_are_measured(monkeypatch):
    slow = Device.load("smartssd").replace("ssd", read_us=900.0)
    of = {"preset": "tiny", "dims": {16}}
    assert costs.measure(slow, **of).page_s > 2 * costs.measure("smartssd", **of).page_s
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(RuntimeError, match="is missing, with which the memory of the device smartssd with"):
        costs.measure(slow, **of)
    dearer = Device.load("smartssd").replace("power", slot_w=9.0)
    assert costs.measure(dearer, **of).row_s == costs.measure("smartssd", **of).row_s
