"""fpga.card.discover on trees as sysfs has them, and the command that prints what it finds."""

import pytest

from fpga.card.discover import P2P_OFF, P2P_ON, P2P_UNKNOWN, cards, drives_of, loose
from tests.support.command import call
from tests.support.sysfs import SHELL, Sysfs

ROOT_PORT = "pci0000:00/0000:00:01.0"


@pytest.fixture
def sysfs(tmp_path):
    return Sysfs(tmp_path)


def test_one_card_and_a_drive_of_the_machine(sysfs):
    bdf = sysfs.board(1)
    sysfs.drive("pci0000:00/0000:00:1d.0/0000:90:00.0", 0)
    (card,) = cards(sysfs.root)
    assert (card.bdf, card.platform, card.p2p) == (bdf, SHELL, P2P_ON)
    assert (card.drive, card.namespaces, card.note) == ("0000:13:00.0", ("/dev/nvme1n1",), "")
    assert loose(sysfs.root) == []


def test_four_cards_one_without_its_drive(sysfs):
    bdfs = [sysfs.board(number, drive=number != 3) for number in (1, 2, 3, 4)]
    found = cards(sysfs.root)
    assert [card.bdf for card in found] == bdfs
    assert [card.namespaces for card in found] == [("/dev/nvme1n1",), ("/dev/nvme2n1",), (), ("/dev/nvme4n1",)]
    assert [card.note for card in found] == ["", "", "no NVMe drive is below its switch", ""]


def test_boards_below_a_chassis_switch_keep_their_drives(sysfs):
    """A switch above the boards' own: a drive right below it belongs to no board."""
    chassis = f"{ROOT_PORT}/0000:01:00.0"
    for number in (1, 2):
        top = f"{chassis}/0000:02:{number:02x}.0/0000:{16 * number:02x}:00.0"
        sysfs.fpga(f"{top}/0000:{16 * number + 1:02x}:00.0/0000:{16 * number + 2:02x}:00.1")
        sysfs.drive(f"{top}/0000:{16 * number + 1:02x}:01.0/0000:{16 * number + 3:02x}:00.0", number)
    sysfs.drive(f"{chassis}/0000:02:03.0/0000:50:00.0", 7)
    assert [card.drive for card in cards(sysfs.root)] == ["0000:13:00.0", "0000:23:00.0"]


def test_an_fpga_and_a_drive_at_the_root_are_strangers(sysfs):
    sysfs.fpga("pci0000:00/0000:00:02.0/0000:65:00.1")
    sysfs.drive("pci0000:00/0000:00:03.0/0000:66:00.0", 0)
    (card,) = cards(sysfs.root)
    assert card.drive == "" and card.note == "no NVMe drive is below its switch"


def test_two_cards_or_two_drives_below_one_switch(sysfs):
    top = f"{ROOT_PORT}/0000:01:00.0"
    sysfs.fpga(f"{top}/0000:02:00.0/0000:03:00.1")
    for number in (1, 2):
        sysfs.drive(f"{top}/0000:02:0{number}.0/0000:0{3 + number}:00.0", number)
    (card,) = cards(sysfs.root)
    assert card.drive == "" and card.note == ("1 cards and 2 drives are below one switch, so none is known to be this "
                                              "card's own")


def test_namespaces(sysfs):
    sysfs.board(1)
    at = sysfs.root / "bus/pci/devices/0000:13:00.0/nvme/nvme1"
    (at / "nvme1c0n2").mkdir()
    (at / "nvme1n1p1").mkdir()
    assert cards(sysfs.root)[0].namespaces == ("/dev/nvme1n1", "/dev/nvme1n2")
    for name in ("nvme1n1/size", "nvme1n1", "nvme1c0n2", "nvme1n1p1"):
        (at / name).unlink() if name.endswith("size") else (at / name).rmdir()
    (card,) = cards(sysfs.root)
    assert card.namespaces == () and "its drive 0000:13:00.0 has no namespace" in card.note


@pytest.mark.parametrize("config, state", [
    ("bar:4294967296\nexp_bar:4294967296", P2P_ON),
    ("bar:268435456\nrbar:4294967296\nremap:0\nexp_bar:4294967296", P2P_OFF),
    ("bar:4294967296\nremap:268435456\nexp_bar:4294967296", P2P_OFF),
    ("bar:-1\nexp_bar:-1", P2P_OFF),
    ("something else", P2P_UNKNOWN),
    ("", P2P_UNKNOWN)])
def test_p2p(sysfs, config, state):
    sysfs.board(1, p2p=config)
    assert cards(sysfs.root)[0].p2p == state


def test_without_the_driver(sysfs):
    bdf = sysfs.board(1, driver=False)
    assert cards(sysfs.root) == [] and loose(sysfs.root) == [bdf.replace(".1", ".0"), bdf]


def test_the_driver_s_link_is_enough(sysfs):
    bdf = sysfs.board(1, driver=False)
    (sysfs.root / "bus/pci/drivers/xocl").mkdir(parents=True)
    (sysfs.root / "bus/pci/devices" / bdf / "driver").symlink_to(sysfs.root / "bus/pci/drivers/xocl")
    assert [card.bdf for card in cards(sysfs.root)] == [bdf] and loose(sysfs.root) == [bdf.replace(".1", ".0")]


def test_no_sysfs_at_all(tmp_path):
    assert cards(tmp_path / "none") == [] and loose(tmp_path) == []


# The drive of a file

@pytest.mark.parametrize("below", ["", "/nvme1n1p2"])
def test_the_drive_of_a_file(sysfs, tmp_path, below):
    sysfs.board(1)
    at = f"bus/pci/devices/0000:13:00.0/nvme/nvme1/nvme1n1{below}"
    (sysfs.root / at).mkdir(exist_ok=True)
    assert drives_of(tmp_path, sysfs.root) == ()
    sysfs.block(tmp_path, at)
    assert drives_of(tmp_path, sysfs.root) == ("0000:13:00.0",)
    assert drives_of(tmp_path / "none", sysfs.root) == () and drives_of("/dev/null", sysfs.root) == ()


def test_the_drive_of_a_file_with_multipath(sysfs, tmp_path):
    for number in (1, 2):
        sysfs.board(number)
    subsystem = sysfs.root / "devices/virtual/nvme-subsystem/nvme-subsys0"
    (subsystem / "nvme1n1").mkdir(parents=True)
    (subsystem / "nvme1").symlink_to(sysfs.root / "bus/pci/devices/0000:13:00.0/nvme/nvme1")
    sysfs.block(tmp_path, "devices/virtual/nvme-subsystem/nvme-subsys0/nvme1n1")
    assert drives_of(tmp_path, sysfs.root) == ("0000:13:00.0",)
    (subsystem / "nvme2").symlink_to(sysfs.root / "bus/pci/devices/0000:23:00.0/nvme/nvme2")
    assert drives_of(tmp_path, sysfs.root) == ("0000:13:00.0", "0000:23:00.0")


def test_a_file_on_no_drive(sysfs, tmp_path):
    (sysfs.root / "devices/virtual/block/dm-0").mkdir(parents=True)
    sysfs.block(tmp_path, "devices/virtual/block/dm-0")
    assert drives_of(tmp_path, sysfs.root) == ()


# The command

def printed(root):
    done = call("cards", "--sysfs", root, env={"COLUMNS": "200"})
    return done.exit_code, done.output


def test_command(sysfs):
    sysfs.board(1)
    sysfs.board(2, drive=False)
    code, text = printed(sysfs.root)
    rows = [line.split() for line in text.splitlines()]
    assert code == 0
    assert ["0", "0000:12:00.1", SHELL, "on", "/dev/nvme1n1"] in rows
    assert ["1", "0000:22:00.1", SHELL, "on", "-"] in rows
    assert "card 1: no NVMe drive is below its switch" in text


def test_command_without_a_card(sysfs):
    code, text = printed(sysfs.root)
    assert code == 1 and text.strip() == (
        "there is no card: no PCIe device is worked by XRT's driver xocl; docs/real-card.md says what one needs, and "
        "card=\"sim\" simulates one")
    sysfs.board(1, driver=False)
    code, text = printed(sysfs.root)
    assert code == 1 and "0000:12:00.0, 0000:12:00.1 is AMD's, and no driver of XRT works it" in " ".join(text.split())
