"""kernel.xml read back: ports and arguments against the Verilog's top and hw.isa."""

from collections.abc import Iterator

from fpga.vitis.checks.expected import CONTROL, CONTROL_BYTES, Expected
from fpga.vitis.checks.facts import Facts, compare, flatten, parse
from fpga.vitis.checks.ports import Top

__all__ = ["kernel_xml"]

FILE = "kernel.xml"


def kernel_xml(data: bytes, expected: Expected, top: Top | None, vlnv: str) -> Iterator[str]:
    """What a kernel.xml says that is not so."""
    root = parse(data)
    if isinstance(root, str):
        yield f"{FILE}: {root}"
        return
    found = flatten(root, {None: ""}, "@name")
    yield from compare(FILE, found, _wanted(expected, top, vlnv, found))
    order = [argument.get("name") for argument in root.iter("arg")]
    if order != [argument.name for argument in expected.arguments]:
        yield f"{FILE}: the arguments stand in the order {', '.join(map(str, order))}; their ids say another"
    for argument in expected.arguments:
        text = found.get(f"root/kernel[{expected.kernel}]/args/arg[{argument.name}]@offset", "")
        if text.lower().startswith("0x") and int(text, 16) + argument.bytes > CONTROL_BYTES:
            yield f"{FILE}: argument {argument.name} at {text} passes the end of {CONTROL}"


def _wanted(expected: Expected, top: Top | None, vlnv: str, found: Facts) -> Facts:
    kernel = f"root/kernel[{expected.kernel}]"
    out = {
        "root@versionMajor": "1", "root@versionMinor": "9", f"{kernel}@name": expected.kernel,
        f"{kernel}@language": "ip_c", f"{kernel}@vlnv": vlnv, f"{kernel}@attributes": "",
        f"{kernel}@preferredWorkGroupSizeMultiple": "0", f"{kernel}@workGroupSize": "1",
        f"{kernel}@interrupt": "true", f"{kernel}@hwControlProtocol": "ap_ctrl_hs",
    }
    for name in (CONTROL, *expected.masters):
        port, slave = f"{kernel}/ports/port[{name}]", name == CONTROL
        width = next((str(i.data_bits) for i in top.interfaces if i.name == name), "") if top else \
            found.get(f"{port}@dataWidth", "")      # without a top there is nothing to compare it with
        out |= {f"{port}@name": name, f"{port}@mode": "slave" if slave else "master",
                f"{port}@range": hex(CONTROL_BYTES) if slave else "0xFFFFFFFFFFFFFFFF", f"{port}@dataWidth": width,
                f"{port}@portType": "addressable", f"{port}@base": "0x0"}
    for argument in expected.arguments:
        node = f"{kernel}/args/arg[{argument.name}]"
        out |= {f"{node}@name": argument.name, f"{node}@addressQualifier": "1" if argument.pointer else "0",
                f"{node}@id": str(argument.id), f"{node}@port": argument.bus, f"{node}@size": hex(argument.bytes),
                f"{node}@offset": hex(argument.offset), f"{node}@hostOffset": "0x0",
                f"{node}@hostSize": hex(argument.bytes), f"{node}@type": "void*" if argument.pointer else "uint"}
    return out
