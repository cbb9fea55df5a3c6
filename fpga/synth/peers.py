"""What SCRec's own cores take, to stand beside ours."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from gen.model.platform import RESOURCES

ELEMENTS = 512          # of an SCRec core
_FILE = Path(__file__).parent / "peers.toml"


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text("utf-8"))


def peers(core: str) -> dict[str, dict[str, int]]:
    """What SCRec's core of the same kind takes, and its processing elements alone, as far as is known; empty where
    there is none."""
    table = _data().get(core)
    if table is None:
        return {}
    element = table["element"]
    return {"SCRec's core": {key: table[key] for key in RESOURCES if key in table},
            f"SCRec's {ELEMENTS} processing elements alone":
            {key: ELEMENTS * element[key] for key in RESOURCES if key in element}}
