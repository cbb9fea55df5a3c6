"""Training with tables larger than the device's memory; needs the extra `torch` (pip install 'hotrail[torch]')."""

from importlib import import_module
from typing import Any

from gen.base.extras import extra

_WHERE = {"CachedEmbeddingBag": "bag", "ahead": "bag", "load": "store", "save": "store"}

__all__ = ["CachedEmbeddingBag", "ahead", "load", "save"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extra("hotrail.training"):
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
