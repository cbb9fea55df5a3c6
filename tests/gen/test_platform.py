"""Platforms: those that come with hotrail, and files that are refused."""

from pathlib import Path

import pytest

from gen.model.device import FOLDER, Device
from gen.model.platform import RESOURCES, Platform, find, names
from gen.rtl.config import ConfigError

SMARTSSD = (FOLDER / "smartssd.toml").read_text("utf-8")


def written(folder: Path, *changes: tuple[str, str]) -> str:
    text = SMARTSSD
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    path = folder / "mine.toml"
    path.write_text(text, "utf-8")
    return str(path)


def test_those_that_come_with_hotrail():
    assert names() == ("smartssd", "f2", "u250", "u55c")
    for name in names():
        found, shell = find(name)
        assert (found.name, found.path, found.channels) == (name, None, Device.load(name).memory.channels)
        assert set(found.budgeted.resources) == set(RESOURCES) and (found.source and found.part)
        assert bool(found.vitis) == bool(shell.platform) and list(found.shells)[-1] == "chip"
        assert all(0 <= sites.platform < sites.there for sites in found.sites.values())
    boards = {name: Platform.load(name) for name in names()}
    assert [boards["u55c"].tag(number) for number in (0, 31, 32)] == ["HBM[0]", "HBM[31]", "HBM[0]"]
    assert boards["u250"].tag(3) == "DDR[3]" and boards["smartssd"].tag(7) == "bank0"
    # What a board does not say of itself is not another's.
    assert not boards["u250"].sites and not boards["f2"].region and not boards["u250"].region
    assert find("/there/xilinx_u55c_gen3x16_xdma_3_202210_1.xpfm")[0].name == "u55c"


def test_a_board_of_ones_own(tmp_path):
    found, shell = find(written(tmp_path, ('about = "Samsung SmartSSD"', 'about = "mine"'),
                                ("xilinx_u2_gen3x4_xdma_gc_2_202110_1\"\nlut", "my_platform\"\nlut")))
    assert (found.name, found.about, shell.platform) == ("mine", "mine", "my_platform")
    assert found.path == (tmp_path / "mine.toml").resolve() and found.region["columns"] == 102
    assert Device.load(found.path).kernel_mhz == 250


def test_a_variant_has_its_own_channels(tmp_path):
    path = tmp_path / "half.toml"
    path.write_text('like = "u55c"\n[memory]\nchannels = 16\n', "utf-8")
    found = Platform.load(path)
    assert (found.name, found.channels, found.tag(16)) == ("u55c", Device.load(path).memory.channels, "HBM[0]")
    path.write_text('like = "smartssd"\n[memory]\nchannels = 2\n', "utf-8")
    with pytest.raises(ConfigError, match="half.toml: .platform. memory_tag = 'bank0': must have {}"):
        Platform.load(path)


@pytest.mark.parametrize("changes, sentence", [
    ((("[platform]\n", "[elsewhere]\n"), ), "[platform] about: missing key"),
    ((('part = "xcku15p-ffva1156-2LV-e"\n', ""), ), "part: missing key"),
    ((("masters_max = 15", "masters_max = 0"), ), "masters_max = 0: must be above 0"),
    ((("clocks_mhz = [250, 300, 200]", "clocks_mhz = []"), ), "clocks_mhz = []: must be one or more clocks above 0"),
    ((('vitis = ["2021.1", "2022.2"]', 'vitis = ["2021.1"]'), ), "must be the first and the last version, or empty"),
    ((("channels = 1", "channels = 2"), ), "memory_tag = 'bank0': must have {} for the number of each"),
    ((('memory_tag = "bank0"', 'memory_tag = "{x}"'), ), "memory_tag = '{x}': must have {}"),
    ((('memory_tag = "bank0"', 'memory_tag = "{.x}"'), ), "memory_tag = '{.x}': must have {}"),
    ((('memory_tag = "bank0"', 'memory_tag = "{0[x]}"'), ), "memory_tag = '{0[x]}': must have {}"),
    ((("lut = 310_000\n", ""), ), "shells.standard lut: missing key; a shell has numbers for lut, ff,"),
    ((("lut = 310_000", 'lut = "many"'), ), "shells.standard lut = 'many': must be a whole number"),
    ((("lut = 310_000", "lut = -310_000"), ), "shells.standard lut = -310000: must not be negative"),
    ((("there = 342_496, ", ""), ), "sites.lut there: missing key"),
    ((("lut = { there = 342_496, platform = 38_373 }", "lut = 5"), ), "sites.lut = 5: must be a table"),
])
def test_boards_that_cannot_be(tmp_path, changes, sentence):
    with pytest.raises(ConfigError) as error:
        found = written(tmp_path, *changes)
        Platform.load(found)
        Device.load(found)
    assert sentence in str(error.value) and str(error.value).startswith("mine.toml:")


def test_stacks_divide_the_bank_groups():
    with pytest.raises(ConfigError, match="u55c.toml: .dram. stacks = 3: must divide the 8 groups"):
        Device.load("u55c").replace("dram", stacks=3)


def test_a_device_alone_is_no_platform(tmp_path):
    path = tmp_path / "alone.toml"
    path.write_text(SMARTSSD.split("# What kernels are linked to")[0], "utf-8")
    with pytest.raises(ConfigError, match="alone.toml: has no table .platform., so nothing is linked for it"):
        find(str(path))
    with pytest.raises(ConfigError, match="there is no file /nowhere.toml"):
        find("/nowhere.toml")
