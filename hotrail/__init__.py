"""hotrail: hardware for recommendation models, from a click log to cards.

    import hotrail

    bundle = hotrail.bundle("model.pt", "clicks.csv", tables={"user_id": "user_embedding"}, cards=2)
    print(hotrail.verify(bundle, "clicks.csv", 1024).different)     # on simulated cards, bit for bit

What stands in `__all__` is the public interface; docs/python.md has it by task, with shapes, units, errors and rates.
Packages beside this one (hw, golden, gen, fpga) may change between versions. A name is imported when it is first used,
so `import hotrail` takes milliseconds.
"""

import _signal  # type: ignore[import-not-found]  # built in: an import of `signal` can be interrupted
import sys

if sys.argv and sys.argv[0].rpartition("/")[2] in ("hotrail", "-m"):
    # As a command: an interrupt ends the process at once, as long as it does no more than import.
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

#: Public names by the module that has them.
_NAMES = {
    "fpga.api.embedding": ("DRAM", "SSD", "TT", "EmbeddingBags", "Table"),
    "fpga.api.hotline": ("Hotline", "Position"),
    "fpga.api.network": ("Layer", "MlpNetwork", "Network"),
    "fpga.api.planning": ("plan",),
    "fpga.api.serving": ("Cards", "serve"),
    "fpga.api.serving_queue": ("QueueFull", "ServingQueue"),
    "fpga.api.torch_modules": ("compile",),
    "fpga.api.trained": ("bundle",),
    "fpga.api.verifying": ("Verified", "verify"),
    "fpga.card": ("CardError",),
    "fpga.card.runs": ("RunError",),
    "gen.bundle": ("Bundle",),
    "gen.data.logs": ("Log", "of_arrays", "open_log"),
    "gen.data.profile": ("Profile",),
    "gen.data.profiling.stream": ("profile",),
    "gen.model.device": ("Device",),
    "gen.model.recommender": ("Recommender", "TableSpec"),
    "gen.planner.plan": ("Plan",),
    "gen.rtl.verilog": ("verilog",),
    "gen.training.systems": ("train_time",),
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "DRAM", "SSD", "TT", "Bundle", "CardError", "Cards", "Device", "EmbeddingBags", "Hotline", "Layer", "Log",
    "MlpNetwork", "Network", "Plan", "Position", "Profile", "QueueFull", "Recommender", "RunError", "ServingQueue",
    "Table", "TableSpec", "Verified", "bundle", "compile", "of_arrays", "open_log", "plan", "profile", "serve",
    "train_time", "verify", "verilog",
]


def _own_packages() -> None:
    """Raises ImportError: another package of a name that hotrail needs comes first on Python's path."""
    beside = Path(__file__).resolve().parents[1]
    for name in ("hw", "golden", "gen", "fpga"):
        found = find_spec(name)
        places = [Path(place).resolve() for place in (found.submodule_search_locations or ())] if found else []
        if beside / name not in places:
            where = (found.origin or places) if found else "nowhere"
            raise ImportError(f"hotrail needs its own package {name!r}, which lies in {beside}, but Python finds "
                              f"{where}: rename that one, or start Python where it is not on the path")


_own_packages()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("hotrail")
    if name not in _WHERE:
        raise AttributeError(f"module 'hotrail' has no attribute {name!r}")
    from gen.base.extras import missing

    try:
        found = globals()[name] = getattr(import_module(_WHERE[name]), name)
    except ModuleNotFoundError as error:
        if sentence := missing(error.name, f"hotrail.{name}"):
            raise ImportError(sentence) from None
        raise
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
