"""What can go wrong in package.json, the .xo and the folder as a whole."""

from tests.mutations.changes import (
    HEADER,
    KERNEL,
    LINK,
    MANIFEST,
    SCRIPT,
    XO,
    copied,
    drop,
    edit,
    entry,
    told,
    write,
    zipped,
)
from tests.mutations.changes import Mutation as M

PACKAGE_JSON = [
    M("package.json: an entry removed", MANIFEST, told(lambda t: t["files"].pop("link.cfg")), False),
    M(
        "package.json: an entry of no file",
        "src/Old.v",
        told(lambda t: t["files"].update({"src/Old.v": "0" * 64})),
        False,
    ),
    M("package.json: a digest changed", KERNEL, told(lambda t: t["files"].update({KERNEL: "0" * 64})), False),
    M("package.json: kernel renamed", MANIFEST, told(lambda t: t.update(kernel="hotrail_mlp"))),
    M("package.json: version in vlnv", KERNEL, told(lambda t: t.update(vlnv=t["vlnv"].replace("0.1", "0.2")))),
    M("package.json: another core", "kernel.xml|hotrail_mlp.h|package.json", told(lambda t: t.update(core="mlp"))),
    M("package.json: an unknown core", MANIFEST, told(lambda t: t.update(core="gru"))),
    M("package.json: the masters' depth", SCRIPT, told(lambda t: t["config"].update(reads_in_flight=16))),
    M("package.json: a clock that the card has not", MANIFEST, told(lambda t: t.update(clock_mhz=400))),
    M("package.json: another platform", MANIFEST, told(lambda t: t.update(platform="xilinx_u200"))),
    M("package.json: another number of instances", LINK, told(lambda t: t.update(instances=2))),
    M("package.json: no JSON", MANIFEST, write(MANIFEST, "{"), False),
    M("package.json: dropped", MANIFEST, drop(MANIFEST), False),
]
XO_FILE = [
    M(".xo: xo.xml names another kernel", XO, entry("xo.xml", 'Name="hotrail_emb"', 'Name="hotrail_mlp"')),
    M(".xo: xo.xml names another folder", XO, entry("xo.xml", "hotrail_emb_0_1", "hotrail_emb_0_2")),
    M(".xo: xo.xml says it is from HLS", XO, entry("xo.xml", 'Hls="no"', 'Hls="yes"')),
    M(
        ".xo: written for Vivado 2023.1",
        XO,
        entry("xo.xml", 'SoftwareVersionMajor="2021"', 'SoftwareVersionMajor="2023"'),
    ),
    M(
        ".xo: offset of `inputs` moved by 4 in its kernel.xml alone",
        XO,
        entry("/kernel.xml", 'offset="0x24"', 'offset="0x28"'),
    ),
    M(".xo: another component.xml than beside it", XO, entry("component.xml", "ACTIVE_LOW", "ACTIVE_HIGH")),
    M(".xo: a file dropped", XO, zipped(lambda e: e.pop(next(name for name in e if "/src/Divider" in name)))),
    M(".xo: xo.xml dropped", XO, zipped(lambda e: e.pop("xo.xml"))),
    M(".xo: a file more", XO, zipped(lambda e: e.update({"ip_repo/old.v": b""}))),
    M(".xo: cut off", XO, lambda folder: (folder / XO).write_bytes((folder / XO).read_bytes()[:-100])),
]
FOLDER = [
    M("folder: a file that nobody listed", "notes.txt", write("notes.txt", "x"), False),
    M("folder: a stranger, listed", "notes.txt", write("notes.txt", "x")),
    M("folder: another core's header", "hotrail_mlp.h", copied(HEADER, "hotrail_mlp.h")),
    M("folder: the form dropped", "xgui/*", drop("xgui/*.tcl")),
    M("folder: the form does something", "xgui/*", edit("xgui/*.tcl", ("Page 0", "Page 1"))),
    M("folder: no text", SCRIPT, lambda folder: (folder / SCRIPT).write_bytes(b"\xff\xfe")),
]
