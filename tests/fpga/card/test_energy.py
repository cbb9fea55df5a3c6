"""Energy of a card from the commands of its memory: by hand, and on a simulated card."""

import numpy as np
import pytest

from fpga.api.embedding import EmbeddingBags, Table
from fpga.card.energy import Energy, command_j, spent
from gen.model.device import Device
from gen.rtl.config import ConfigError


@pytest.fixture(scope="module")
def device() -> Device:
    return Device.load("smartssd")


def test_commands_take_what_the_data_sheet_says(device):
    """Five parts at 1.2 V: tRAS 39, tRP 17, tRFC 421 and a burst 4 clocks of .833 ns."""
    each, clock = command_j(device), 0.833e-9
    assert each["activates"] == pytest.approx(6e-3 * (80 * 56 - 47 * 39 - 34 * 17) * clock)
    assert each["refreshes"] == pytest.approx(6e-3 * (280 - 47) * 421 * clock)
    assert each["reads"] == pytest.approx((6e-3 * (243 - 47) + 0.7) * 4 * clock)
    assert each["writes"] == pytest.approx((6e-3 * (228 - 47) + 0.7) * 4 * clock)


def test_a_card_at_rest_and_at_work(device):
    rest = spent(device, {}, 2.0)
    assert rest.dram_j == 0 and rest.watts == pytest.approx((0.204 + 7.8 + 2.0, 25.0))
    work = spent(device, {"reads": 10**9, "pages": 10**9}, 2.0)
    assert work.dram_j == pytest.approx(1e9 * command_j(device)["reads"])
    assert work.low_j == pytest.approx(rest.low_j + work.dram_j + 2 * 6.5)      # the drive is busy all the time
    both = rest.plus(work)
    assert both.seconds == 4 and both.high_j == 100 and both.low_j == rest.low_j + work.low_j
    assert Energy().watts == (0, 0)


def test_a_run_counts_its_own_commands(device):
    """Lines that a run moves are its reads and writes; a second run's are not the first's."""
    rows = np.arange(64 * 4, dtype=np.float32).reshape(64, 4)
    with EmbeddingBags([Table.place("t", rows, 0)], preset="tiny", device=device) as bags:
        commands = []
        for many in (1, 16):
            bags("t", np.arange(4 * many), np.arange(0, 4 * many + 1, 4), include_last_offset=True)
            commands.append(bags.commands)
        few, most = commands
        assert most["reads"] >= few["reads"] + 60      # more rows, a line each
        assert most["writes"] >= 16 and most["activates"] >= 1 and not most["pages"]
        assert (few + most)["reads"] <= bags.card.commands()["reads"]


def test_a_device_without_power_is_refused(tmp_path, device):
    path = tmp_path / "bare.toml"
    path.write_text('like = "smartssd"\nabout = "x"\n[power]\nidd0 = -1.0\n', "utf-8")
    with pytest.raises(ConfigError, match=r"bare.toml: idd0 = -1.0: must not be negative"):
        Device.load(path)
