"""Elements of IP-XACT (IEEE 1685-2009) with Xilinx's extensions."""

from collections.abc import Iterable, Mapping

from lxml import etree

SPIRIT = "http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009"
XILINX = "http://www.xilinx.com"
NAMESPACES = {"xilinx": XILINX, "spirit": SPIRIT, "xsi": "http://www.w3.org/2001/XMLSchema-instance"}


def component() -> etree._Element:
    """The root element."""
    return etree.Element(f"{{{SPIRIT}}}component", nsmap=NAMESPACES)


def spirit(parent: etree._Element, tag: str, text: object = None, **attributes: str) -> etree._Element:
    """A new last child of the standard's namespace; its attributes are of that namespace too."""
    return _child(parent, SPIRIT, tag, text, attributes)


def xilinx(parent: etree._Element, tag: str, text: object = None, **attributes: str) -> etree._Element:
    """A new last child of Xilinx's namespace."""
    return _child(parent, XILINX, tag, text, attributes)


def _child(parent: etree._Element, namespace: str, tag: str, text: object,
           attributes: Mapping[str, str]) -> etree._Element:
    child = etree.SubElement(parent, f"{{{namespace}}}{tag}", {f"{{{namespace}}}{k}": v for k, v in attributes.items()})
    if text is not None:
        child.text = str(text)
    return child


def named(parent: etree._Element, tag: str, name: str) -> etree._Element:
    """A child whose first element is its name."""
    element = spirit(parent, tag)
    spirit(element, "name", name)
    return element


def vlnv(parent: etree._Element, tag: str, name: str) -> None:
    """A reference to one of Xilinx's definitions, "interface:aximm"."""
    library, _, item = name.partition(":")
    spirit(parent, tag, vendor="xilinx.com", library=library, name=item, version="1.0")


def parameter(parent: etree._Element, name: str, text: object, **attributes: str) -> None:
    """A parameter; `attributes` are those of its value."""
    spirit(named(parent, "parameter", name), "value", text, **attributes)


def choices(parent: etree._Element, names: Mapping[str, Iterable[str]]) -> None:
    """What a parameter may be, by the name that its value's `choiceRef` gives."""
    top = spirit(parent, "choices")
    for name, options in names.items():
        choice = named(top, "choice", name)
        for option in options:
            spirit(choice, "enumeration", option)
