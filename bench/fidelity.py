"""The models of memory and drive beside other simulators, and AMD's controller beside measurements."""

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.framework import Row, at_most, bench, figure
from fpga.card.memory import pages, random_rows, rows
from gen.model.device import Device, Span

RECORDED = Path(__file__).parents[1] / "tests" / "bench" / "memory_peers.toml"
LINES = 24_000
MAPS = ("row_bank_column", "row_column_bank")
PEERS = {"dramsim3": "DRAMsim3", "ramulator": "Ramulator 2.1"}
WITHIN = 1.0    # per cent
NEVER = Span(1e9, 0)
# Cycles of 300 MHz until a line of 64 bytes is there, by Shuhai (arXiv 2005.04324; 73.3, 89.9 and 106.6 ns, quoted at
# second hand) on a DDR4 channel of an Alveo U280: its page is open, the bank is closed, another page is open.
MEASURED = {"hit": 22, "closed": 27, "miss": 32}
# GB/s of random bursts of so many bytes from one pseudo-channel, by AMD's tutorial on HBM bandwidth (Vitis tutorials,
# XD099): one master of 512 bits. Shorter bursts than LEAST_JUDGED are limited by what its kernel asks for.
MASTERS = {64: 4.75, 128: 9.60, 256: 12.62, 512: 13.13, 1024: 13.16}
LEAST_JUDGED = 256


def streams(memory: int = 1 << 32) -> dict[str, tuple[int, NDArray[np.int64]]]:
    """Bytes of a row and addresses in so many bytes, by name; no line is in a stream twice, since simulators merge such
    reads."""
    found = {}
    for size in (64, 256, 1024):
        random = np.random.default_rng(size)
        count = LINES * 64 // size
        far = random.permutation(memory // size // 64)[:count] * (size * 64)
        found[f"random_{size}"] = (size, far + random.integers(0, 64, count) * size)
    found["sequential"] = (4096, np.arange(LINES * 64 // 4096) * 4096)
    random = np.random.default_rng(5)
    hot = random.permutation(1 << 12)[:2000] * 256      # of a megabyte
    far = (random.permutation((memory >> 14) - 64)[:4000] + 64) * (1 << 14) + random.integers(0, 64, 4000) * 256
    both = np.concatenate([hot, far])
    random.shuffle(both)
    found["third_hot_256"] = (256, both)
    return found


def equal_policy(address_map: str) -> Device:
    """The card's memory as the simulators were set: 64 reads first ready, first come; pages stay open; no way there."""
    device = Device.load("smartssd_frfcfs").replace(kernel_mhz=300)
    return device.replace("controller", map=address_map).replace(
        "fr_fcfs", read_queue=64, close_page=False, age_limit_clocks=1 << 40).replace(
        "port", bursts=1024, front_cycles=1, back_cycles=0)


def equal_hbm(refresh: str) -> Device:
    """A pseudo-channel as Ramulator has it: no stack IDs, the other pseudo-channel idle, 64 bursts first ready, first
    come; refresh of "all" banks, in 350 ns, or of one "bank" after the other."""
    device = Device.load("u55c").replace(kernel_mhz=450)
    span = Span(350.0, 0) if refresh == "all" else Span(0.0, 144)
    calm = Device(**{**vars(device), "dram": replace(device.dram, stacks=1, groups=4, row_bits=15, row_bus=1,
                                                     refresh=refresh, trfc=span),
                     "controller": replace(device.controller, maps={
                         "row_bank_column": ("row15", "group1", "bank2", "column5", "group1")})})
    return calm.replace("fr_fcfs", age_limit_clocks=1 << 40).replace("port", bursts=1024, front_cycles=1, back_cycles=0)


def u280() -> Device:
    """AMD's controller with a channel of an Alveo U280 at its port: DDR4-2400 registered modules of x4 parts
    (MTA18ASF2G72PZ-2G3), whose four groups have a machine each and whose pages are smaller. Nothing lies between."""
    device = Device.load("smartssd").replace(kernel_mhz=300)
    real = device.controller
    wide = Device(**{**vars(device), "name": "u280",
                     "memory": type(device.memory)("Alveo U280", 1, 0, 1 << 34, 0, 1 << 34),
                     "port": type(device.port)("none", 100, 0, 0, 256),
                     "dram": type(device.dram)(**{**vars(device.dram), "groups": 4, "row_bits": 17,
                                                  "trrd_s": Span(3.3, 4), "trrd_l": Span(4.9, 4),
                                                  "tfaw": Span(13.0, 16)}),
                     "controller": type(real)(**{**vars(real), "maps": {
                         "row_column_bank": ("row17", "column7", "bank2", "group2"),
                         "row_bank_column": ("row17", "bank2", "group2", "column7")}})})
    wide.check()
    return wide


@bench("fidelity_dram")
def dram() -> Iterator[Row]:
    """The DDR4 model's clocks for streams against those recorded of DRAMsim3 and Ramulator, at equal policy."""
    recorded = tomllib.loads(RECORDED.read_text("utf-8"))
    ours = {}
    for name, (size, at) in streams().items():
        for address_map in MAPS:
            device = equal_policy(address_map)
            ours[name, address_map] = rows(device, at, size, ahead=1024).cycles * device.dram.mhz / device.kernel_mhz
    for peer, title in PEERS.items():
        error = {}
        for (name, address_map), clocks in ours.items():
            theirs = recorded[peer][address_map][name]
            error[name, address_map] = 100 * (clocks / theirs - 1)
            yield figure(f"fidelity.dram.{peer}.{address_map}.{name}",
                         f"{name.replace('_', ' ')}, {address_map}: {clocks:,.0f} clocks, {title} {theirs:,}",
                         round(error[name, address_map], 2), "%")
        yield at_most(f"fidelity.dram.{peer}", f"largest difference from {title} over {len(error)} streams",
                      round(max(map(abs, error.values())), 2), "%", WITHIN)


def latencies(device: Device) -> dict[str, int]:
    """Cycles until a line is there whose page is open, whose bank is closed, in whose bank another page is open."""
    calm = device.replace("dram", trefi=NEVER)
    low = {kind: 64 << at for kind, at, _, first in calm.fields() if not first}    # of the lowest bit of each kind
    row, column = low[0], low[3]

    def taken(*at: int) -> int:
        return rows(calm, np.array(at), 64, bursts=1).cycles

    alone = taken(0)
    return {"hit": taken(0, column) - alone, "closed": alone, "miss": taken(0, row) - alone}


def master(refresh: str) -> Device:
    """A 512-bit master at 300 MHz on a pseudo-channel of the card, the other half of the channel idle."""
    device, span = Device.load("u55c").replace(kernel_mhz=300), equal_hbm(refresh).dram.trfc
    return device.replace("dram", refresh=refresh, trfc=span, row_bus=1)


@bench("fidelity_hbm")
def hbm() -> Iterator[Row]:
    """The HBM2 model's clocks for streams against those recorded of Ramulator, and its rates against AMD's masters."""
    theirs, error = tomllib.loads(RECORDED.read_text("utf-8"))["ramulator"]["hbm2"], {}
    device = equal_hbm("all")
    for name, (size, at) in streams(device.memory.bytes).items():
        clocks = rows(device, at, size, ahead=1024).cycles * device.dram.mhz / device.kernel_mhz
        error[name] = 100 * (clocks / theirs[name] - 1)
        yield figure(f"fidelity.hbm.ramulator.{name}", f"{name.replace('_', ' ')}: {clocks:,.0f} clocks, "
                     f"{PEERS['ramulator']} {theirs[name]:,}", round(error[name], 2), "%")
    yield at_most("fidelity.hbm.ramulator", f"largest difference from {PEERS['ramulator']} over {len(error)} streams",
                  round(max(map(abs, error.values())), 2), "%", WITHIN)
    for size, measured in MASTERS.items():
        rate = {refresh: random_rows(master(refresh), size, count=3_000_000 // size).rows_per_s * size / 1e9
                for refresh in ("all", "bank")}
        what = (f"random rows of {size} B: {rate['all']:.2f} GB/s with refresh of all banks, {rate['bank']:.2f} of "
                f"single ones; AMD's master {measured}")
        off = round(100 * (rate["all"] / measured - 1), 1)
        if size < LEAST_JUDGED:
            yield figure(f"fidelity.hbm.master.{size}", what, off, "%")
        else:
            yield at_most(f"fidelity.hbm.master.{size}", what, abs(off), "%", 10)


@bench("fidelity_controller")
def controller() -> Iterator[Row]:
    """AMD's controller as modelled against latencies measured on an Alveo U280, and what it gives for strides."""
    device = u280()
    for name, cycles in latencies(device).items():
        measured = MEASURED[name]
        yield at_most(f"fidelity.controller.{name}", f"latency of a page {name}: {cycles} cycles of 300 MHz, measured "
                      f"{measured}", round(abs(100 * (cycles / measured - 1)), 1), "%", 10)
    for address_map in device.controller.maps:
        mapped = device.replace("controller", map=address_map)
        for stride in (64, 128, 256, 1024, 4096, 65_536):
            done = rows(mapped, np.arange(8000) * stride % mapped.memory.bytes, 64, ahead=1024)
            yield figure(f"fidelity.controller.stride.{address_map}.{stride}", f"bursts of 64 B every {stride} B, "
                         f"{address_map}, as modelled (19.2 at most)", round(done.rows_per_s * 64 / 1e9, 2), "GB/s")


def equal_drive() -> Device:
    """The drive as MQSim has it. A read's command takes t_CS + 6 t_WC + t_WB + t_RR of a channel, what goes before its
    data t_RPRE + t_DQSRE; two bytes at 600 MT/s take whole nanoseconds, so 2; of a packet of 156 bytes on the link 128
    are data. NVMe's messages are all that the host takes: doorbell, the command and who asks for it, the completion."""
    device = Device.load("smartssd").replace("host", submit_us=0.04, complete_us=0.011, poll_us=0.01, doorbell_us=0.0)
    return device.replace("ssd", bus_gb_s=1.0, command_us=0.29, setup_us=0.03).replace(
        "link", gb_s=4 * 0.96, efficiency=128 / 156)


@bench("fidelity_ssd")
def ssd() -> Iterator[Row]:
    """The drive model's time for a request against that recorded of MQSim, with its delays."""
    recorded = tomllib.loads(RECORDED.read_text("utf-8"))["mqsim"]["ns"]
    device = equal_drive()
    draw, error = np.random.default_rng(1), {}
    for name, theirs in recorded.items():
        order, size, depth = name.rsplit("_", 2)
        numbers = np.arange(16_000) if order == "in_order" else draw.integers(0, (1 << 32) // int(size), 16_000)
        # The second half of them: how long it takes to fill the queues and to empty them is in neither.
        half, whole = (pages(device.replace("ssd", queue_depth=int(depth)), numbers[:count], int(size), ring_pages=512)
                       for count in (8000, 16_000))
        ours = 1e9 * (whole - half) / 8000 * int(depth)
        error[name] = 100 * (ours / theirs - 1)
        yield figure(f"fidelity.ssd.mqsim.{name}", f"reads of {size} B, {order.replace('_', ' ')}, {depth} at a time: "
                     f"{ours:,.0f} ns for one, MQSim {theirs:,}", round(error[name], 2), "%")
    yield at_most("fidelity.ssd.mqsim", f"largest difference from MQSim over {len(error)} kinds of reads",
                  round(max(map(abs, error.values())), 2), "%", WITHIN)
