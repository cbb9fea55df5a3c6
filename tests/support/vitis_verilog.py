"""A kernel's ports and files as Yosys reads them, against the rules of a Vitis kernel (UG1393, requirements of an RTL
kernel). Latches, open pins and what nothing drives are `make lint`'s.
"""

import json
import re
import tempfile
from pathlib import Path

from gen.base.tools import yosys
from gen.rtl import primitives

# The channels' signals and their bits: a master has all of AXI4 but the user's, the control slave is AXI4-Lite.
_ADDRESS = {"ADDR": 64, "ID": 1, "LEN": 8, "SIZE": 3, "BURST": 2, "LOCK": 1, "CACHE": 4, "PROT": 3, "QOS": 4,
            "REGION": 4}
_WIDTHS = {"master": (32, 64, 128, 256, 512), "slave": (32,)}
_REQUESTS = ("AW", "W", "AR")       # what goes from a master to a slave; B and R come back


def modules(texts, top=""):
    """The modules of Verilog texts by name, processes made registers; with `top` they must be what it consists of.

    Raises ValueError: Yosys cannot read a text by itself (Vivado leaves such a file out of an .xo without a word), a
    part or its port is not there, a connection has another width, or a module belongs to nothing"""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        library = primitives.models(texts)
        for name, text in {**texts, **library}.items():
            (work / name).write_text(text, "utf-8")
        linked = [*(f"read_verilog -lib {name}" for name in library), "hierarchy -check"] if top else []
        try:
            log = yosys([*(f"read_verilog -noautowire {name}" for name in texts), *linked, "proc -norom",
                         "write_json made.json"], cwd=work)
        except RuntimeError as error:
            raise ValueError(str(error).splitlines()[-1]) from None
        made = {name: module for name, module in json.loads((work / "made.json").read_text("utf-8"))["modules"].items()
                if f"{name}.v" not in library}
    if resized := re.search(r"Resizing cell port .*", log):
        raise ValueError(resized[0])
    reached, todo = set(), [top] if top else list(made)
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += [cell["type"] for cell in made[name]["cells"].values() if cell["type"] in made]
    if unused := sorted(set(made) - reached):
        raise ValueError(f"module {unused[0]} is no part of {top}")
    return made


def faults(kernel, texts):
    """What is wrong with a kernel's Verilog (texts by file name), a sentence each."""
    try:
        made = modules(texts, kernel.name)
    except ValueError as error:
        return [str(error)]
    return list(ports(kernel, made[kernel.name]))


def ports(kernel, top):
    """The ports of a description and of the Verilog's top against each other and what AXI and Vitis ask for."""
    wanted = {"ap_clk": ("in", 1), "ap_rst_n": ("in", 1), "interrupt": ("out", 1)}
    slaves = [bus.name for bus in kernel.buses if bus.mode == "slave"]
    if slaves != ["s_axi_control"]:
        yield f"a kernel has one slave, s_axi_control, not {slaves}"
    for bus in kernel.buses:
        if bus.data_bits not in _WIDTHS[bus.mode]:
            yield f"{bus.name}: {bus.data_bits} data bits; a {bus.mode} has {', '.join(map(str, _WIDTHS[bus.mode]))}"
        wanted |= _signals(bus)
    described = {pin.name: (pin.direction, pin.bits) for pin in kernel.pins}
    declared = {name: (port["direction"].removesuffix("put"), len(port["bits"])) for name, port in top["ports"].items()}
    for what, found in (("description", described), ("Verilog", declared)):
        for name in sorted(found.keys() | wanted.keys()):
            if found.get(name) != wanted.get(name):
                yield f"{what}: port {name} is {_port(found.get(name))}; it must be {_port(wanted.get(name))}"


def _signals(bus):
    """Direction and bits of every port that the bus must have."""
    channels = {"AW": {}, "W": {"DATA": bus.data_bits, "STRB": bus.data_bits // 8}, "B": {"RESP": 2}, "AR": {},
                "R": {"DATA": bus.data_bits, "RESP": 2}}
    if bus.mode == "master":
        more = {"AW": _ADDRESS, "W": {"LAST": 1}, "B": {"ID": 1}, "AR": _ADDRESS, "R": {"ID": 1, "LAST": 1}}
    else:
        more = dict.fromkeys(("AW", "AR"), {"ADDR": 12})    # of 4 KB
    made = {}
    for channel, fields in channels.items():
        there, back = ("out", "in") if (channel in _REQUESTS) == (bus.mode == "master") else ("in", "out")
        made |= {f"{channel}VALID": (there, 1), f"{channel}READY": (back, 1)}
        made |= {channel + name: (there, bits) for name, bits in (fields | more.get(channel, {})).items()}
    return {f"{bus.name}_{signal.lower()}": what for signal, what in made.items()}


def _port(what):
    return f"{what[0]}, {what[1]} bits" if what else "not there"
