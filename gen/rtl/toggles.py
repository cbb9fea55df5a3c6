"""How often each bit of a model's signals has changed, as Verilator counts it (`--coverage-toggle`)."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

#: (module, signal, bit); a signal of one bit has none.
Bit = tuple[str, str, str]
_CODED = re.compile(r"__0([0-9A-Fa-f]{2})")       # what Verilator writes for characters that C++ has no names with
_SIGNAL = re.compile(r"(.*?)(?:\[(-?\d+)\])?$")
_POINT = re.compile(r"^C '(.*)' (\d+)$", re.M)


def _fields(point: str) -> dict[str, str]:
    return dict(part.split("\2", 1) for part in point.split("\1") if "\2" in part)


def counted(files: Iterable[Path]) -> dict[Bit, tuple[int, int]]:
    """How often each bit went up and down in all runs; a part that is placed many times counts as one."""
    changes: dict[Bit, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for file in files:
        for point, count in _POINT.findall(file.read_text("utf-8", errors="replace")):
            fields = _fields(point)
            page = fields.get("page", "")
            if not page.startswith("v_toggle/"):
                continue
            signal, _, way = fields.get("o", "").rpartition(":")
            for name, bit in _SIGNAL.findall(_CODED.sub(lambda found: chr(int(found[1], 16)), signal))[:1]:
                changes[page.removeprefix("v_toggle/"), name, bit][way] += int(count)
    return {bit: (ways["0->1"], ways["1->0"]) for bit, ways in changes.items()}


def changes(files: Iterable[Path]) -> dict[Bit, int]:
    """How often each bit changed."""
    return {bit: sum(ways) for bit, ways in counted(files).items()}
