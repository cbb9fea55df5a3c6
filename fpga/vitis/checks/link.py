"""link.cfg read back: instances of the kernel, each master on a bank that the platform has."""

import re
from collections.abc import Iterator

from fpga.vitis.checks.expected import Expected

__all__ = ["link"]

FILE = "link.cfg"
BANKS = ("bank0", "plram")      # all that the SmartSSD's platform has
MOST_PORTS = 15                 # of the platform's memory
# Of Vivado's implementation (UG904), so that 300 MHz is met: optimised, moved and routed with effort.
_STEP = "run.impl_1.STEPS."
PROPERTIES = (f"{_STEP}OPT_DESIGN.ARGS.DIRECTIVE=Explore", f"{_STEP}PHYS_OPT_DESIGN.IS_ENABLED=true",
              f"{_STEP}PHYS_OPT_DESIGN.ARGS.DIRECTIVE=AggressiveExplore",
              f"{_STEP}ROUTE_DESIGN.ARGS.DIRECTIVE=AggressiveExplore")


def _settings(text: str) -> Iterator[tuple[int, str, str, str]]:
    """(line, section, key, value) of each setting; key "" where a line is none."""
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
        elif line:
            key, equals, value = line.partition("=")
            yield number, section, key.strip() if equals else "", value.strip() if equals else line


def link(text: str, expected: Expected, instances: int) -> Iterator[str]:
    """What a link configuration of so many instances says that is not so."""
    kernels, banks, properties = [], {}, []
    for number, section, key, value in _settings(text):
        place = f"{FILE}: line {number}: {key}={value}"
        if (section, key) == ("connectivity", "nk"):
            kernels.append(value)
        elif (section, key) == ("connectivity", "sp"):
            port, _, bank = value.partition(":")
            if port in banks:
                yield f"{place}: {port} has its bank already"
            if bank not in BANKS:
                yield f"{place}: the platform has {' and '.join(BANKS)}, no {bank!r}"
            banks[port] = bank
        elif (section, key) == ("vivado", "prop"):
            properties.append(value)
        else:
            yield f"{place}: it does not belong into [{section}]"
    names = [f"{expected.kernel}_{number + 1}" for number in range(instances)]
    wanted = f"{expected.kernel}:{len(names)}:{'.'.join(names)}"
    if kernels != [wanted]:
        yield f"{FILE}: nk is {', '.join(kernels) or 'missing'}; it must be {wanted}"
    ports = [f"{name}.{bus}" for name in names for bus in expected.masters]
    if len(ports) > MOST_PORTS:
        yield f"{FILE}: nk={wanted} has {len(ports)} masters; the platform has {MOST_PORTS} ports"
    for name in names:
        tags = {banks[port] for port in ports if port in banks and port.startswith(f"{name}.")}
        if len(tags) > 1:
            yield f"{FILE}: {name} has its masters on {', '.join(sorted(tags))}; a buffer of one is the other's too"
    for port in ports:
        if port not in banks:
            yield f"{FILE}: {port} has no bank: its line sp={port}:bank0 is missing"
    for port in banks:
        if port not in ports:
            yield f"{FILE}: sp={port}:{banks[port]}: there is no such port"
    for value in sorted({*PROPERTIES, *properties}):
        if (found := properties.count(value)) != (wanted_lines := PROPERTIES.count(value)):
            yield f"{FILE}: prop={value} is there {found} times; it must be {wanted_lines}"
