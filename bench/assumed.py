"""How far what is not known of the card moves the figures: each assumption by itself, smaller and larger.

Cycles are those of the EMB core, from its twin. What is assumed stands in gen/model/devices/smartssd.toml.
"""

from collections.abc import Iterator

import numpy as np

from bench.card import DIMS, zipf
from bench.emb import BAG, DEVICE, PRESET, Rig, dense, rows_of
from bench.framework import Row, bench, figure
from bench.link import BAGS, mixed, single, with_train
from fpga.api.embedding import DRAM, TT, EmbeddingBags, Table
from fpga.card.memory import pages
from gen.model.device import Device

MILLION = "million"


def _memories(device: Device) -> dict[str, tuple[str, Device]]:
    port, controller = device.port, device.controller
    both = controller.front_clocks + controller.back_clocks
    return {
        "card": ("as assumed", device),
        "depth.8": ("8 lines in a group machine, not 4", device.replace("group_machines", depth=8)),
        "depth.16": ("16 lines in a group machine", device.replace("group_machines", depth=16)),
        "slots": ("two places for a column command in a controller clock, not 1",
                  device.replace("group_machines", column_slots=2)),
        "near": ("half the path between port and controller", device.replace(
            "port", front_cycles=port.front_cycles // 2, back_cycles=port.back_cycles // 2)),
        "far": ("twice the path", device.replace(
            "port", front_cycles=2 * port.front_cycles, back_cycles=2 * port.back_cycles)),
        "split": ("the controller's own delay all behind the command", device.replace(
            "controller", front_clocks=0, back_clocks=both)),
    }


def _links(device: Device) -> dict[str, tuple[str, Device]]:
    host, link = device.host, device.link
    return {
        "card": ("as assumed", device),
        "host.half": ("half the host's times", device.replace(
            "host", submit_us=host.submit_us / 2, complete_us=host.complete_us / 2)),
        "host.twice": ("twice the host's times", device.replace(
            "host", submit_us=2 * host.submit_us, complete_us=2 * host.complete_us)),
        "latency": ("four times the link's latency", device.replace("link", latency_us=4 * link.latency_us)),
        "efficiency": ("90 % of the link arrive, not 81", device.replace("link", efficiency=0.9)),
    }


def _drives(device: Device) -> dict[str, tuple[str, Device]]:
    drive = device.ssd
    return {
        "card": ("as assumed", device),
        "dies.half": ("half the dies", device.replace("ssd", dies=drive.dies // 2)),
        "dies.twice": ("twice the dies", device.replace("ssd", dies=2 * drive.dies)),
        "channels.half": ("half the channels", device.replace("ssd", channels=drive.channels // 2)),
        "bus": ("half a channel's rate", device.replace("ssd", bus_gb_s=drive.bus_gb_s / 2)),
    }


@bench("assumed")
def assumed() -> Iterator[Row]:
    """Rows of DRAM, vectors on the link and pages of the drive where what is assumed of the card is otherwise."""
    card = Device.load(DEVICE)
    tables = [*map(dense, DIMS), Table.place(MILLION, np.zeros((1 << 20, 64), np.float32), DRAM)]
    for name, (what, device) in _memories(card).items():
        rig = Rig("ddr4", device, tables, card="twin")
        for dim in DIMS:
            count = rows_of(dim)
            taken = rig.steady(f"dense{dim}", rig.distinct(f"dense{dim}", count), BAG)
            yield figure(f"assumed.rows.{name}.d{dim}", f"random rows of {4 * dim} B, bags of {BAG}; {what}",
                         round(count // 2 / taken * device.kernel_mhz, 1), "M rows/s")
        taken = rig.steady(MILLION, zipf(rows_of(16), 1 << 20), BAG)
        yield figure(f"assumed.rows.{name}.zipf", f"a million rows of 256 B, Zipf 1.05; {what}",
                     round(rows_of(16) // 2 / taken * device.kernel_mhz, 1), "M rows/s")
        rig.bags.close()
    random = np.random.default_rng(1)
    half = with_train("half", DRAM, random, results="float16")
    both = with_train("mixed", np.resize([DRAM, TT], half.rows), random)
    for name, (what, device) in _links(card).items():
        yield from _link(name, what, device, half, both)
    for name, (what, device) in _drives(card).items():
        numbers = np.random.default_rng(1).integers(0, 40_000, 4000)
        for size in (4096, 16384):
            rate = 4000 * size / pages(device, numbers, size, ring_pages=512) / 1e9
            yield figure(f"assumed.ssd.{name}.{size}", f"pages of {size} B at random, {device.ssd.queue_depth} at a "
                         f"time; {what}", round(rate, 2), "GB/s")


def _link(name: str, what: str, device: Device, half: Table, both: Table) -> Iterator[Row]:
    random = np.random.default_rng(2)
    with EmbeddingBags([half, both], card="twin", preset=PRESET, device=device) as bags:
        cycles, _ = single(bags, half.name, BAGS, random)
        yield figure(f"assumed.link.{name}.float16", f"vectors in float16 of a row of DRAM each; {what}",
                     round(BAGS * device.kernel_mhz / cycles, 1), "M vectors/s")
        yield figure(f"assumed.link.{name}.mixed", f"bags half DRAM, half TT: from one batch to the next over the "
                     f"core's cycles; {what}", round(mixed(bags, both.name, random), 3), "")
