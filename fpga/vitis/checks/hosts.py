"""The example host of a package held against its header and the kernel's arguments, as text.

That it compiles against XRT and runs is shown where XRT is installed; here it is read.
"""

import re
from collections.abc import Iterator

from fpga.vitis.checks.expected import Expected

__all__ = ["FILE", "host"]

FILE = "host.cpp"


def host(text: str, header: str, expected: Expected) -> Iterator[str]:
    """What a host.cpp names that its header or the kernel has not. header: the text of hotrail_<core>.h"""
    code = re.sub(r"//.*", "", text)
    upper = f"HOTRAIL_{expected.core.upper()}_"
    if f'#include "{expected.kernel}.h"' not in code:
        yield f"{FILE}: it does not include {expected.kernel}.h"
    if not re.search(rf'xrt::kernel\b[^;]*"{expected.kernel}"\)', code):
        yield f"{FILE}: it opens no kernel {expected.kernel!r}"
    macros = set(re.findall(r"(?m)^#define (\w+)", header))
    used = set(re.findall(rf"\b{upper}\w+", code))
    used |= {f"{upper}{name}_WORD" for name in re.findall(rf"{upper}SET\([^,]+, *(\w+),", code)}
    for name in sorted(used - macros):
        yield f"{FILE}: {name} is not in {expected.kernel}.h"
    made = [int(number) for number in re.findall(r"\(device, kernel, (\d+),", code)]
    pointers = {argument.id: argument.name for argument in expected.arguments if argument.pointer}
    for number in sorted(set(made) | set(pointers)):
        if number not in pointers:
            yield f"{FILE}: a buffer is made for argument {number}, which is no pointer"
        elif made.count(number) != 1:
            yield f"{FILE}: argument {number}, {pointers[number]}, has {made.count(number)} buffers; it must have one"
    calls = [call.count(",") + 1 for call in re.findall(r"= kernel\(((?:[^()]|\([^()]*\))*)\)", code)]
    if calls != [len(expected.arguments)]:
        yield f"{FILE}: the kernel is called with {calls} arguments; it has {len(expected.arguments)}"
