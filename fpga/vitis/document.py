"""XML as AMD's tools write it."""

from lxml import etree

_HEAD = b'<?xml version="1.0" encoding="UTF-8"?>\n'


def text(root: etree._Element) -> bytes:
    """A document: the declaration in double quotes, two spaces a level, a newline at the end."""
    return _HEAD + etree.tostring(root, encoding="UTF-8", xml_declaration=False, pretty_print=True)
