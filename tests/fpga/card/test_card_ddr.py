"""The models of DDR4 and HBM2 against the standards' rules, one by one, and what these leave; the drive's times."""

import numpy as np
import pytest

from fpga.card import Device
from fpga.card.memory import pages, random_rows, rows
from gen.model.device import Span
from gen.rtl.config import ConfigError

pytestmark = pytest.mark.turns(12, of="memories")

SMARTSSD = Device.load("smartssd")
MAPS = tuple(SMARTSSD.controller.maps)
FIRST_READY = Device.load("smartssd_frfcfs").replace(kernel_mhz=300)
MACHINES = SMARTSSD
# Controllers whose commands must keep the standard's rules.
CONTROLLERS = {
    "close_page": FIRST_READY.replace("fr_fcfs", close_page=True),
    "open_page": FIRST_READY.replace("fr_fcfs", close_page=False),
    "machines_4": MACHINES.replace("group_machines", depth=4),
    "machines_16": MACHINES.replace("group_machines", depth=16, column_slots=2).replace("port", bursts=64),
}
U55C = Device.load("u55c")
HBM = {"all": U55C, "bank": U55C.replace("dram", refresh="bank", trfc=Span(0.0, 144), row_bus=1)}


def traced(device, seed, row_bytes, share, ahead=256, count=1500):
    draw = np.random.default_rng(seed)
    at = draw.integers(0, device.memory.bytes // row_bytes, count) * row_bytes
    at[::3] = at[0] + draw.integers(0, 64, at[::3].size) * row_bytes  # some rows in one place: hits and conflicts
    writes = (draw.random(at.size) < share) * draw.choice([1, 1, 2], at.size)    # a third of those written in part
    return rows(device, at, row_bytes, ahead=ahead, writes=writes, trace=True), int((writes > 1).sum())


def broken(commands, device):
    """Every rule that a list of commands breaks, from the standard's definitions and nothing of the model's."""
    d, found = device.dram, []
    t = {name: d.clocks(name) for name in (
        "trcd", "trp", "tras", "tccd_s", "tccd_l", "trrd_s", "trrd_l", "tfaw", "twr", "twtr_s", "twtr_l", "trtp",
        "trfc", "tccd_r", "trrefd")} | {"trefi": d.refresh_clocks}
    own = d.refresh == "bank"       # of one bank, the others go on
    # Where the memory has a bus for row commands; those of a refresh, made with it, are left out.
    refreshed = set((commands["clock"][commands["kind"] == ord("F")] - t["trp"]).tolist()) if d.row_bus else set()
    row_free = 0
    order = np.argsort(commands["clock"], kind="stable")
    opened, last = {}, {}  # bank -> row; (kind, scope) -> clock
    acts, refreshes = [], []
    burst = d.burst_clocks

    def since(rule, now, key, least):
        if key in last and now - last[key] < least:
            found.append((rule, int(now)))

    for command in commands[order]:
        now, kind = int(command["clock"]), chr(command["kind"])
        group, bank, row = int(command["group"]), int(command["bank"]), int(command["row"])
        if kind != "F":
            since("tRFC", now, ("F", bank) if own else ("F",), t["trfc"])
        if d.row_bus and kind in "AP" and not (kind == "P" and now in refreshed):
            if now < row_free:
                found.append(("row bus", now))
            row_free = now + d.row_bus * (d.activate_clocks if kind == "A" else 1)
        if kind == "A":
            if bank in opened:
                found.append(("activate of an open bank", now))
            since("tRP", now, ("P", bank), t["trp"])
            since("tRC", now, ("A", bank), t["tras"] + t["trp"])
            since("tRRD_S", now, ("A",), t["trrd_s"])
            since("tRRD_L", now, ("A", "group", group), t["trrd_l"])
            if own:
                since("tRREFD", now, ("F",), t["trrefd"])
            acts.append(now)
            if len(acts) > 4 and now - acts[-5] < t["tfaw"]:
                found.append(("tFAW", now))
            opened[bank] = row
        elif kind == "P":
            if bank not in opened:
                found.append(("precharge of a closed bank", now))
            since("tRAS", now, ("A", bank), t["tras"])
            since("tRTP", now, ("R", bank), t["trtp"])
            since("tWR", now, ("W", bank), d.cwl + burst + t["twr"])
            opened.pop(bank, None)
        elif kind in "RW":
            if opened.get(bank) != row:
                found.append(("access to a row that is not open", now))
            since("tRCD", now, ("A", bank), t["trcd"])
            since("tCCD_S", now, ("C",), t["tccd_s"])
            since("tCCD_L", now, ("C", "group", group), t["tccd_l"])
            since("tCCD_R", now, ("C", "stack", 1 - group * d.stacks // d.groups), t["tccd_r"])
            if kind == "R":
                since("tWTR_S", now, ("W",), d.cwl + burst + t["twtr_s"])
                since("tWTR_L", now, ("W", "group", group), d.cwl + burst + t["twtr_l"])
            else:
                since("read to write", now, ("R",), d.cl + burst + 2 - d.cwl)
            last["C",] = last["C", "group", group] = last["C", "stack", group * d.stacks // d.groups] = now
        else:
            if bank in opened if own else opened:
                found.append(("refresh with an open bank", now))
            for other in [bank] if own else range(d.groups * d.banks):
                since("tRP before refresh", now, ("P", other), t["trp"])
            refreshes.append(now)
        last[kind,] = last[kind, bank] = last[kind, "group", group] = now
    for bus in ("A", "RW") if d.row_bus else ("ARWF",):
        alone = commands["clock"][np.isin(commands["kind"], [ord(c) for c in bus])]
        if len(set(alone.tolist())) != len(alone):
            found.append(("two commands in a clock", 0))
    # A refresh may come late by what is under way, but on average every tREFI.
    for n, now in enumerate(refreshes, 1):
        if not n * t["trefi"] <= now <= n * t["trefi"] + 200:
            found.append(("tREFI", now))
    return found


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("row_bytes", [64, 256, 2048])
@pytest.mark.parametrize("map_", MAPS)
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_every_rule_is_kept(map_, row_bytes, share, controller):
    device = CONTROLLERS[controller].replace("controller", map=map_)
    count = min(1500, 12_000 * 64 // row_bytes)     # the time of some refreshes
    done, partial = traced(device, 7, row_bytes, share, count=count)
    kinds = "".join(map(chr, done.commands["kind"]))
    # Under ECC a line of which some bytes are written is read before; the first-ready controller leaves that out.
    read_too = partial if "machines" in controller else 0
    assert kinds.count("R") + kinds.count("W") == (count + read_too) * row_bytes // 64
    assert bool(kinds.count("W")) == (share > 0) and bool(kinds.count("R")) == (share < 1 or read_too > 0)
    assert kinds.count("A") == done.counters["activates"] and kinds.count("F") == done.counters["refreshes"] > 0
    assert broken(done.commands, device) == []
    assert done.counters["row_hits"] + done.counters["row_misses"] + done.counters["row_conflicts"] == (
        count * row_bytes // 64)


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("row_bytes", [64, 1024])
@pytest.mark.parametrize("refresh", HBM)
def test_every_rule_of_hbm_is_kept(refresh, row_bytes, share):
    """A line is two bursts in two bank groups; each rule is also broken by a memory that does not know it."""
    device, count = HBM[refresh], 1500 if row_bytes == 64 else 200
    done, _ = traced(device, 7, row_bytes, share, count=count)
    kinds = "".join(map(chr, done.commands["kind"]))
    assert kinds.count("R") + kinds.count("W") == 2 * count * (row_bytes // 64)
    assert bool(kinds.count("W")) == (share > 0) and kinds.count("F") == done.counters["refreshes"] > 0
    assert broken(done.commands, device) == []


@pytest.mark.parametrize("refresh, change, rule", [
    ("all", {"row_bus": 1}, "row bus"), ("all", {"activate_clocks": 1}, "row bus"),
    ("all", {"tccd_r": Span(0.0, 2)}, "tCCD_R"), ("bank", {"trrefd": Span(0.0, 0)}, "tRREFD"),
    ("bank", {"trfc": Span(0.0, 70)}, "tRFC")])
def test_the_check_sees_each_rule_of_hbm(refresh, change, rule):
    quick = HBM[refresh].replace("dram", **change)
    done, _ = traced(quick, 7, 64, 0.3)
    assert rule in {seen for seen, _ in broken(done.commands, HBM[refresh])}
    assert broken(done.commands, quick) == []


@pytest.mark.parametrize("name, rule", [
    ("trcd", "tRCD"), ("trp", "tRP"), ("tras", "tRC"), ("tccd_l", "tCCD_L"), ("trrd_s", "tRRD_S"),
    ("trrd_l", "tRRD_L"), ("tfaw", "tFAW"), ("twtr_l", "tWTR_L"), ("trtp", "tRTP"), ("trfc", "tRFC"), ("twr", "tWR"),
])
def test_the_check_sees_each_rule(name, rule):
    """A memory that is given a shorter time breaks exactly that rule of the real one."""
    span = getattr(SMARTSSD.dram, name)
    quick = FIRST_READY.replace("dram", **{name: type(span)(span.ns * 0.6, 4 if name != "trtp" else 2)})
    done, _ = traced(quick, 7, 256, 0.3)
    assert rule in {seen for seen, _ in broken(done.commands, FIRST_READY)}
    assert broken(done.commands, quick) == []


def cycles(device, at, **options):
    return rows(device, np.asarray(at, dtype=np.uint64), 64, **options)


def test_what_limits_what():
    """Cases in which one rule alone decides, worked out by hand; refresh is put off."""
    calm = FIRST_READY.replace("dram", trefi=type(SMARTSSD.dram.trefi)(1e9, 0))
    n, page = 2000, 8192
    bank_of = lambda bank, row: (row << 16) + bank * page  # row16 bank2 group1 column7
    # One page: column accesses of one group, 6 clocks apart; of both groups in turn, 4, a line a cycle.
    assert cycles(calm, [64 * (i % 128) for i in range(n)]).cycles == pytest.approx(n * 6 / 4, rel=0.05)
    assert cycles(calm, [64 * (i // 2 % 128) + i % 2 * page for i in range(n)]).cycles == pytest.approx(n, rel=0.05)
    # Another row of one bank each time: tRC = 39 + 17 clocks.
    assert cycles(calm, [bank_of(0, i) for i in range(n)]).cycles == pytest.approx(n * 56 / 4, rel=0.02)
    # Eight banks in turn, a new row each time: four activations in tFAW = 36 clocks.
    assert cycles(calm, [bank_of(i % 8, i) for i in range(n)]).cycles == pytest.approx(n * 36 / 4 / 4, rel=0.02)
    # One line at a time: the way there and back, activation, access, and what the page policy left to do.
    port = calm.port.front_cycles + calm.port.back_cycles
    alone = cycles(calm, [bank_of(i % 8, i) for i in range(n)], ahead=1).cycles / n
    assert alone == pytest.approx(port + (17 + 17 + 4) / 4 + 2, abs=2)


def test_refresh_takes_its_share():
    done = random_rows(FIRST_READY, 64, count=30_000)
    calm = random_rows(FIRST_READY.replace("dram", trefi=type(SMARTSSD.dram.trefi)(1e9, 0)), 64, count=30_000)
    assert calm.cycles / done.cycles == pytest.approx(1 - 421 / 9363, abs=0.01)


@pytest.mark.parametrize("row_bytes, bound", [(64, 127.3), (128, 127.3), (256, 71.6), (512, 35.8), (1024, 17.9),
                                              (2048, 8.95)])
def test_random_rows(row_bytes, bound):
    """Close to, and never above, what tFAW, the bus and refresh leave (millions a second)."""
    rate = random_rows(FIRST_READY, row_bytes, count=4000).rows_per_s / 1e6
    assert 0.85 * bound < rate <= bound
    assert random_rows(SMARTSSD, row_bytes, count=500, seed=2) == random_rows(SMARTSSD, row_bytes, count=500, seed=2)


@pytest.mark.parametrize("page_bytes", [4096, 16384])
def test_one_page_at_a_time(page_bytes):
    """Each way in turn: the host, the flash, its bus, the link, the host."""
    alone = SMARTSSD.replace("ssd", queue_depth=1)
    drive, host, n = alone.ssd, alone.host, 50
    step = (host.submit_us + drive.read_us + host.complete_us
            + page_bytes / 1000 * (1 / drive.bus_gb_s + 1e9 * alone.link.byte_s))
    # Far apart, so that no page lies in a die's register already.
    taken = 1e6 * pages(alone, np.arange(n) * 4 * 37 % 4000, page_bytes)
    assert taken == pytest.approx(n * step + host.doorbell_us, rel=0.01)


def test_many_pages_at_a_time():
    """The link is the limit where requests are many and large, the dies where they are small and at random."""
    drive, n = SMARTSSD.ssd, 2000
    link = 1 / SMARTSSD.link.byte_s
    in_order = n * 16384 / pages(SMARTSSD, np.arange(n), 16384, ring_pages=256)
    assert 0.95 * link < in_order < link
    dies = drive.channels * drive.dies / (drive.read_us * 1e-6) * 4096
    # Four pages of 4 KB share one of the flash: asked for far apart, each costs a read of it.
    at_random = n * 4096 / pages(SMARTSSD, np.random.default_rng(1).integers(0, 40_000, n), 4096, ring_pages=256)
    assert 0.5 * dies < at_random < dies
    assert n * 4096 / pages(SMARTSSD, np.arange(n), 4096, ring_pages=256) > 0.9 * link


def test_a_small_ring_holds_the_drive_back():
    n = 200
    taken = [pages(SMARTSSD, np.arange(n), 16384, ring_pages=ring) for ring in (1, 2, 8, 64)]
    assert taken[0] > 1.8 * taken[1] > 3 * taken[2] > 3 * taken[3]


@pytest.mark.parametrize("change, sentence", [
    (("controller", {"map": "other"}), "map = 'other': there are row_column_bank, row_bank_column"),
    (("controller", {"maps": {"row_column_bank": ["row16", "bank2", "group1", "column6"]}}), "the memory has"),
    (("controller", {"maps": {"row_column_bank": ["line16"]}}), "'line16' is not row, bank, group or column"),
    (("controller", {"policy": "other"}), "policy = 'other': there are fr_fcfs, group_machines"),
    (("controller", {"mhz": 500}), "[controller] mhz = 500: must divide the memory's 1200"),
    (("group_machines", {"depth": 0}), "[group_machines] depth = 0: must be above 0"),
    (("fr_fcfs", {"write_high": 40}), "write_low < write_high <= write_queue must hold"),
    (("ssd", {"queue_depth": 0}), "[ssd] queue_depth = 0: must be above 0"),
    (("memory", {"bytes": 1 << 30}), "addresses 4294967296 bytes, [memory] has 1073741824"),
    (("memory", {"ring_bytes": 3 << 20}), "[memory] ring_bytes = 3145728: must be a power of two, and with rows_bytes"),
    (("memory", {"rows_bytes": 1 << 32}), "rows_bytes = 4294967296 at most bytes = 4294967296"),
])
def test_devices_that_cannot_be(change, sentence):
    with pytest.raises(ConfigError) as error:
        SMARTSSD.replace(change[0], **change[1])
    assert sentence in str(error.value)


def test_unknown_devices_and_keys(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no device 'u50'; there are .*smartssd"):
        Device.load("u50")
    with pytest.raises(ConfigError, match=r"there is no device 'ü{400}'; there are .*smartssd"):    # no file's name
        Device.load("ü" * 400)
    path = tmp_path / "mine.toml"
    path.write_text("about = 'x'\nkernel_mhz = 300\nspeed = 3\n", "utf-8")
    with pytest.raises(ConfigError, match=r"mine.toml: speed = 3: unknown key"):
        Device.load(path)


def test_a_device_that_is_like_another(tmp_path):
    kind = Device.load("smartssd_frfcfs")
    assert (kind.dram, kind.ssd, kind.kernel_mhz) == (SMARTSSD.dram, SMARTSSD.ssd, SMARTSSD.kernel_mhz)
    assert (kind.port.bursts, SMARTSSD.port.bursts) == (512, 16) and kind.controller.maps == SMARTSSD.controller.maps
    path = tmp_path / "mine.toml"
    path.write_text('like = "smartssd"\nkernel_mhz = 300\n[group_machines]\ndepth = 16\n', "utf-8")
    mine = Device.load(path)
    assert mine == SMARTSSD.replace("group_machines", depth=16).replace(name="mine", kernel_mhz=300)
    path.write_text('like = "smartssd"\n[group_machines]\ndeep = 16\n', "utf-8")
    with pytest.raises(ConfigError, match=r"deep = 16: unknown key"):
        Device.load(path)
    path.write_text('like = "u50"\n', "utf-8")
    with pytest.raises(ConfigError, match=r"mine.toml: like = 'u50': there is no such device; there are .*smartssd"):
        Device.load(path)
