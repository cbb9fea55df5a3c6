"""Trees of PCIe devices as Linux shows them."""

import os

SHELL = "xilinx_u2_gen3x4_xdma_gc_base_2"


class Sysfs:
    """A tree of devices below `root`, linked from bus/pci/devices."""

    def __init__(self, root):
        self.root = root
        (root / "bus/pci/devices").mkdir(parents=True)

    def device(self, place, vendor, kind, **files):
        folder = self.root / "devices" / place
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {"vendor": vendor, "class": kind, **files}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{text}\n", "utf-8")
        for at in (folder, *folder.parents):
            link = self.root / "bus/pci/devices" / at.name
            if at.name.count(":") == 2 and not link.exists():
                link.symlink_to(at)
        return folder

    def fpga(self, place, p2p="bar:4294967296\nrbar:4294967296\nremap:0\nexp_bar:4294967296", driver=True):
        stem, function = place.rsplit(".", 1)
        assert function == "1"
        self.device(f"{stem}.0", "0x10ee", "0x120000", **({"mgmt_pf": "", "rom.m.7/VBNV": "other"} if driver else {}))
        self.device(place, "0x10ee", "0x120000",
                    **({"user_pf": "", "rom.u.25165824/VBNV": SHELL, "ready": "0x1"} if driver else {}),
                    **({"p2p.u.25165824/config": p2p} if p2p and driver else {}))

    def drive(self, place, number, namespaces=1):
        self.device(place, "0x144d", "0x010802",
                    **{f"nvme/nvme{number}/nvme{number}n{n + 1}/size": "7501476528" for n in range(namespaces)},
                    **{f"nvme/nvme{number}/model": "SmartSSD"})

    def block(self, path, place):
        """Makes `place` below the root the device that a file lies on."""
        number = os.stat(path).st_dev
        link = self.root / f"dev/block/{os.major(number)}:{os.minor(number)}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.root / place)

    def board(self, number, drive=True, **options):
        """A SmartSSD on root port `number`: a switch, the FPGA and the drive each below a port of it."""
        bus = 16 * number
        top = f"pci0000:00/0000:00:{number:02x}.0/0000:{bus:02x}:00.0"
        self.device(top, "0x10ee", "0x060400")
        self.device(f"{top}/0000:{bus + 1:02x}:00.0", "0x10ee", "0x060400")
        self.fpga(f"{top}/0000:{bus + 1:02x}:00.0/0000:{bus + 2:02x}:00.1", **options)
        if drive:
            self.drive(f"{top}/0000:{bus + 1:02x}:01.0/0000:{bus + 3:02x}:00.0", number)
        return f"0000:{bus + 2:02x}:00.1"
