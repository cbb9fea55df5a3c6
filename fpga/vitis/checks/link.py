"""link.cfg read back: one instance of the kernel, each master on a bank that the platform has."""

import re
from collections.abc import Iterator

from fpga.vitis.checks.expected import Expected

__all__ = ["link"]

FILE = "link.cfg"
BANKS = ("bank0", "plram")      # all that the SmartSSD's platform has
SECTIONS = ("connectivity", "vivado", "advanced", "clock", "")


def read(text: str) -> Iterator[tuple[int, str, str, str]]:
    """(line, section, key, value) of each setting; key "" where a line is none."""
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
        elif line:
            key, equals, value = line.partition("=")
            yield number, section, key.strip() if equals else "", value.strip() if equals else line


def link(text: str, expected: Expected) -> Iterator[str]:
    """What a link configuration says that is not so."""
    instance = f"{expected.kernel}_1"
    kernels, banks = [], {}
    for number, section, key, value in read(text):
        place = f"{FILE}: line {number}:"
        if not key:
            yield f"{place} {value!r} is no setting"
        elif section not in SECTIONS:
            yield f"{place} there is no section [{section}]"
        elif section != "connectivity":
            if key in ("nk", "sp", "slr", "sc") or not value:
                yield f"{place} {key}={value} does not belong into [{section}]"
        elif key == "nk":
            kernels.append(value)
        elif key == "sp":
            port, _, bank = value.partition(":")
            if port in banks:
                yield f"{place} sp={value}: {port} has its bank already"
            if bank not in BANKS:
                yield f"{place} sp={value}: the platform has {' and '.join(BANKS)}, no {bank}"
            banks[port] = bank
        else:
            yield f"{place} {key}={value} has nothing to do in [connectivity]: the part has one region, no streams"
    if kernels != [f"{expected.kernel}:1:{instance}"]:
        yield f"{FILE}: nk is {', '.join(kernels) or 'missing'}; it must be {expected.kernel}:1:{instance}"
    ports = [f"{instance}.{name}" for name in expected.masters]
    for port in ports:
        if port not in banks:
            yield f"{FILE}: {port} has no bank: its line sp={port}:bank0 is missing"
    for port in banks:
        if port not in ports:
            yield f"{FILE}: sp={port}:{banks[port]}: there is no such port"
