"""Cards in this machine, each with the drive on the same board, from what Linux says of its PCIe devices.

A SmartSSD is a PCIe switch with an FPGA and an NVMe drive below it: those two belong together, and pages move between
them without the host. Source: UG1382 (the board), sysfs of the kernel's PCI, NVMe and XRT's xocl drivers (VBNV of
`rom`, lines of `config` of `p2p`).
"""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

SYSFS = Path("/sys")
AMD, NVME_CLASS = "0x10ee", "0x010802"
BDF = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
P2P_ON, P2P_OFF, P2P_UNKNOWN = "on", "off", "unknown"


@dataclass(frozen=True)
class FoundCard:
    """A card. bdf: of the function that hosts use; platform: the shell's name as the driver reads it from the card,
    empty where it does not; p2p: "on", "off" or "unknown"; drive: the NVMe controller's bdf, empty without one;
    namespaces: of the drive, as paths; note: what is odd about it, one sentence."""

    bdf: str
    platform: str
    p2p: str
    drive: str = ""
    namespaces: tuple[str, ...] = ()
    note: str = ""


def cards(root: str | Path = SYSFS) -> list[FoundCard]:
    """All cards that XRT's driver works, by bdf; `root`: where sysfs is mounted."""
    devices = _devices(Path(root))
    users = [path for path in devices if _text(path / "vendor") == AMD and _is_worked(path, "user_pf", "xocl")]
    drives = [path for path in devices if _text(path / "class") == NVME_CLASS]
    return [_card(user, [d for d in drives if _switch(user) and _switch(d) == _switch(user)],
                  [u for u in users if _switch(user) and _switch(u) == _switch(user)]) for user in users]


def loose(root: str | Path = SYSFS) -> list[str]:
    """Functions of AMD's that no driver of XRT works, by bdf."""
    return [path.name for path in _devices(Path(root)) if _text(path / "vendor") == AMD
            and not _is_worked(path, "user_pf", "xocl") and not _is_worked(path, "mgmt_pf", "xclmgmt")
            and not _text(path / "class").startswith("0x0604")]     # the switch itself is a bridge


def drives_of(path: str | Path, root: str | Path = SYSFS) -> tuple[str, ...]:
    """The NVMe controllers, by bdf, of the drive that a file lies on, or that a block device is; none where it lies on
    something else, or on several layers. A drive has several controllers where it has several ways to it."""
    try:
        about = os.stat(path)
    except OSError:
        return ()
    number = about.st_rdev if stat.S_ISBLK(about.st_mode) else about.st_dev
    device = (Path(root) / f"dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    # With the kernel's multipath a namespace belongs to a subsystem, which has links to its controllers.
    above = next((folder for folder in device.parents if folder.name.startswith("nvme-subsys")), None)
    ways = [device] if above is None else [link.resolve() for link in above.glob("nvme*") if link.is_symlink()]
    return tuple(sorted({folder.name for way in ways for folder in way.parents
                         if BDF.fullmatch(folder.name) and _text(folder / "class") == NVME_CLASS}))


def _card(user: Path, drives: list[Path], beside: list[Path]) -> FoundCard:
    note, drive = "", ""
    namespaces: tuple[str, ...] = ()
    if len(beside) > 1 or len(drives) > 1:
        note = (f"{len(beside)} cards and {len(drives)} drives are below one switch, so none is known to be this "
                "card's own")
    elif not drives:
        note = "no NVMe drive is below its switch"
    else:
        drive = drives[0].name
        # With the kernel's multipath a namespace's path is called nvme1c1n1, and its device nvme1n1.
        namespaces = tuple(sorted({f"/dev/{re.sub('c[0-9]+', '', path.name)}"
                                   for path in drives[0].glob("nvme/nvme*/nvme*n*")
                                   if re.fullmatch(r"nvme\d+(c\d+)?n\d+", path.name)}))
        if not namespaces:
            note = f"its drive {drive} has no namespace: the NVMe driver does not work it"
    return FoundCard(user.name, _text(_part(user, "rom") / "VBNV"), _p2p(_part(user, "p2p") / "config"),
                     drive, namespaces, note)


def _is_worked(device: Path, mark: str, driver: str) -> bool:
    """By a driver of XRT, which marks its devices."""
    return (device / mark).exists() or (device / "driver").resolve().name == driver


def _devices(root: Path) -> list[Path]:
    """Every PCIe function, as its place in the tree of bridges."""
    return [path.resolve() for path in sorted((root / "bus/pci/devices").glob("*")) if BDF.fullmatch(path.name)]


def _switch(device: Path) -> Path | None:
    """The upstream port of the switch that the device hangs on: above the switch's downstream port. A device at the
    machine's own root port has none."""
    above = device.parent.parent
    return above if BDF.fullmatch(above.name) and BDF.fullmatch(device.parent.name) else None


def _part(device: Path, name: str) -> Path:
    """The folder of a part of XRT's driver, `name`.u.<number>."""
    return next(iter(sorted(device.glob(f"{name}.u*"))), device / name)


def _p2p(config: Path) -> str:
    """From lines like "bar:4294967296"; on when the window is as large as it should be."""
    sizes = dict(re.findall(r"^(\w+):(-?\d+)", _text(config), re.MULTILINE))
    if not {"bar", "exp_bar"} <= sizes.keys():
        return P2P_UNKNOWN
    whole = sizes["bar"] == sizes["exp_bar"] and sizes.get("remap", "0") in ("-1", "0", sizes["bar"])
    return P2P_ON if whole and int(sizes["bar"]) > 0 else P2P_OFF


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""
