"""The bound for random rows against the memory model by itself: never below what rows reach as the core asks."""

import numpy as np
import pytest

from bench.card import DIMS, bound
from fpga.card.memory import rows
from gen.model.device import Device
from gen.planner.costs import requests

pytestmark = pytest.mark.regress

DEVICE = Device.load("smartssd")
DEVICES = {
    "smartssd": DEVICE,
    "many_bursts": DEVICE.replace("port", bursts=64),
    "few_bursts": DEVICE.replace("port", bursts=4),
    "deep": DEVICE.replace("group_machines", depth=16),
    "near": DEVICE.replace("port", front_cycles=0, back_cycles=0),
    "tuned": Device.load("smartssd_tuned"),
    "frfcfs": Device.load("smartssd_frfcfs"),
}


def share(device, dim, count=3000):
    """Of the bound, that random rows reach which are asked for bank after bank."""
    numbers = np.random.default_rng(dim).integers(0, device.memory.bytes // (4 * dim), min(count, 200_000 // dim))
    places, piece_bytes = requests("smartssd", 4 * dim, numbers, row_in_page=device.row_in_page)
    rate = rows(device, places, piece_bytes).rows_per_s * len(numbers) / len(places)
    return rate / bound(device, 4 * dim, piece_bytes)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("name", DEVICES)
def test_no_order_of_rows_is_above_the_bound(name, dim):
    """On the card and on others: fewer and more bursts under way, deeper machines, no path, another map and policy."""
    assert share(DEVICES[name], dim) <= 1


@pytest.mark.parametrize("dim", DIMS)
def test_rows_of_the_card_come_near_the_bound(dim):
    """Memory and bound differ by what rows of one bank, the order of the machines and the bus between groups cost."""
    assert share(DEVICE, dim) > 0.92
