"""A disk that fills up is a sentence that names the file: no signal, nothing half-written."""

import errno
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from gen.base import members
from gen.base.members import Folder, Writer
from gen.data.profile import Heat, Profile, TableProfile
from gen.planner.plan import Plan
from gen.rtl.verilator import ROOT

# A file system of 1 MiB for this process alone: it is gone with it.
OWN_DISK = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-m", "sh", "-c",
            'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"']
ROOM = """
import sys, numpy as np
from pathlib import Path
from gen.base.members import Writer
try:
    with Writer(Path(sys.argv[1]) / "big", "thing", 1) as writer:
        writer.room("small.npy", (1000,))[:] = 1
        room = writer.room("card0/rows.npy", (1 << 20,))
        for start in range(0, len(room), 4096):
            room[start:start + 4096] = 1
        writer.finish({})
except ValueError as error:
    print(error)
print([path.name for path in Path(sys.argv[1]).iterdir()])
"""


def small_disk(folder, code):
    """What a program prints, whose folder is a disk of 1 MiB."""
    if shutil.which("unshare") is None or subprocess.run([*OWN_DISK, folder, "true"], capture_output=True).returncode:
        pytest.skip("no file system of its own can be mounted here")
    done = subprocess.run([*OWN_DISK, folder, sys.executable, "-c", code, folder], cwd=ROOT, capture_output=True,
                          text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.splitlines()


def test_a_mapped_member_that_the_disk_has_no_room_for(tmp_path):
    said, left = small_disk(str(tmp_path), ROOM)
    assert said == f"{tmp_path}/big/card0/rows.npy cannot be written: No space left on device"
    assert left == "[]"


@pytest.mark.parametrize("what", [
    'writer.array("a.npy", np.ones(1 << 20, np.uint32))', 'writer.file("a.npy", bytes(1 << 22))',
    'writer.file("b.toml", bytes(1 << 19)); writer.finish({"much": "x" * (1 << 20)})'])
def test_other_members_likewise(tmp_path, what):
    said, left = small_disk(str(tmp_path), ROOM.replace('writer.room("small.npy", (1000,))[:] = 1', what))
    name = "manifest.json" if "finish" in what else "a.npy"
    assert (said, left) == (f"{tmp_path}/big/{name} cannot be written: No space left on device", "[]")


def test_the_room_is_asked_for_before_anything_is_mapped(tmp_path, monkeypatch):
    asked = []

    def full(descriptor, start, length):
        asked.append((start, length))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(members.os, "posix_fallocate", full)
    with pytest.raises(ValueError, match="x/a.npy cannot be written: No space left on device"):
        with Writer(tmp_path / "x", "thing", 1) as writer:
            writer.room("a.npy", (1 << 40, 4))
    assert asked == [(128, 1 << 44)] and not list(tmp_path.iterdir())


def test_profile_and_plan(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder", "utf-8")
    table = TableProfile("t", 1, 1, Heat(np.ones(1, np.int64), np.ones(1, np.int64)), np.ones(1, np.int64),
                         np.ones(1, np.int64))
    with pytest.raises(ValueError, match="file/p.npz cannot be written: Not a directory"):
        Profile("log", 1, {"t": table}).save(tmp_path / "file" / "p.npz")
    monkeypatch.setattr(Plan, "data", lambda self: b"")
    with pytest.raises(ValueError, match="file/plan.json cannot be written: "):
        Plan.save(object.__new__(Plan), tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_files_of_a_folder_that_is_written_together(tmp_path):
    said, left = small_disk(str(tmp_path), """
import sys
from pathlib import Path
from gen.base.staging import together
try:
    with together(Path(sys.argv[1]) / "hls") as folder:
        (folder / "vectors").write_bytes(bytes(1 << 21))
except OSError as error:
    print(error)
print([path.name for path in Path(sys.argv[1]).iterdir()])
""")
    assert (said, left) == (f"[Errno 28] No space left on device: '{tmp_path}/hls'", "[]")


@pytest.mark.parametrize("cut", [0, 100, 1000])
def test_a_member_that_is_cut_while_the_folder_is_open(tmp_path, cut):
    with Writer(tmp_path / "x", "thing", 1) as writer:
        writer.array("a.npy", np.arange(1000, dtype=np.uint32))
        writer.finish({})
    folder = Folder(tmp_path / "x", "thing", 1)
    assert folder.array("a.npy")[-1] == 999
    os.truncate(tmp_path / "x" / "a.npy", cut)
    with pytest.raises(ValueError, match="a.npy (is damaged: it has changed since|is no array)"):
        folder.array("a.npy")
    (tmp_path / "x" / "a.npy").unlink()
    with pytest.raises(ValueError, match="a.npy is damaged: it has changed since"):
        folder.array("a.npy")


def test_what_a_card_has_no_room_for_is_refused_before_the_disk_is_asked(tmp_path):
    from types import SimpleNamespace as Some

    from gen.bundle import _room
    asked = []
    room = _room(Some(room=lambda *what: asked.append(what)), 0, Some(ring_bytes=4096, device="small"),
                 Some(memory=Some(bytes=8192), ssd=Some(bytes=8192)))
    with pytest.raises(ValueError, match="its rows take 4,100 bytes of DRAM and the ring 4,096; small has"):
        room("rows", (1025, 1))
    with pytest.raises(ValueError, match="its rows take 8,196 bytes of the SSD in whole pages; small has 8,192"):
        room("pages", (2049, 1))
    assert not asked
    room("rows", (1024, 1)), room("pages", (2048, 1))
    assert asked == [("card0/rows.npy", (1024, 1)), ("card0/pages.npy", (2048, 1))]
