"""The card that kernels are linked for: its part, memories, and its shells: their platforms and what they leave."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["RESOURCES", "Budget", "Card", "budgets", "card", "failfast", "peers", "region", "shell_of"]

RESOURCES = {"lut": "LUT", "ff": "FF", "bram36": "BRAM36", "uram": "URAM", "dsp": "DSP"}
ELEMENTS = 512          # of an SCRec core
_FILE = Path(__file__).parent / "shells.toml"


@dataclass(frozen=True)
class Card:
    """`memories`: sptags, the default first; `masters_max`: AXI masters of all instances; `clocks_mhz`: the default
    first; `vitis`: first and last version."""

    about: str
    part: str
    memories: tuple[str, ...]
    masters_max: int
    clocks_mhz: tuple[int, ...]
    vitis: tuple[str, str]
    source: str


@dataclass(frozen=True)
class Budget:
    """What a shell leaves, by resource; `missing` says why there are no numbers. `platform`: of the shell, none for the
    bare chip."""

    name: str
    about: str
    resources: Mapping[str, int]
    source: str = ""
    missing: str = ""
    platform: str = ""


@cache
def _data() -> dict:
    return tomllib.loads(_FILE.read_text("utf-8"))


@cache
def card() -> Card:
    """The card of this project."""
    known: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value
                             for key, value in _data()["card"].items()}
    return Card(**known)


@cache
def budgets() -> dict[str, Budget]:
    """Standard shell, flat shell, bare chip."""
    found = {}
    for name in ("standard", "flat", "chip"):
        table = _data()[name]
        found[name] = Budget(name, table["about"], {key: table[key] for key in RESOURCES if key in table},
                             table.get("source", ""), table.get("missing", ""), table.get("platform", ""))
    return found


def failfast() -> dict[str, Any]:
    """AMD's guidelines: of each, its name, the guide, the region's sites and the platform's share of them."""
    return {key: line for key, line in _data()["failfast"].items() if key != "source"}


def region() -> dict[str, Any]:
    """The user region as a grid of slices and the columns of larger blocks in it."""
    return _data()["region"]


def shell_of(platform: str = "") -> Budget:
    """The shell of a platform: of its name, or of the path of its .xpfm; the standard one where none is named.

    Raises ValueError: the card has no such platform"""
    known = {budget.platform: budget for budget in budgets().values() if budget.platform}
    name = Path(platform).stem if platform.endswith(".xpfm") else platform or budgets()["standard"].platform
    if name not in known:
        there = " or ".join(f"{platform} ({budget.about})" for platform, budget in known.items())
        raise ValueError(f"platform must be {there} of the {card().about}, not {platform!r}")
    return known[name]


def peers(core: str) -> dict[str, dict[str, int]]:
    """What SCRec's core of the same kind takes, and its processing elements alone, as far as is known; empty where
    there is none."""
    table = _data()["screc"].get(core)
    if table is None:
        return {}
    element = table["element"]
    return {"SCRec's core": {key: table[key] for key in RESOURCES if key in table},
            f"SCRec's {ELEMENTS} processing elements alone":
            {key: ELEMENTS * element[key] for key in RESOURCES if key in element}}
