"""Which core a card holds, and whether it is the one that a caller means."""

from typing import Any, NamedTuple

from fpga.card.interface import CardError
from gen.rtl.headers import IDENTITY, KERNELS, identity


class Identity(NamedTuple):
    """What the registers of a core's identity hold: its name, hotrail's version, the digest of its configuration."""

    core: str
    version: tuple[int, int, int]
    configuration: int

    @classmethod
    def read(cls, values: "dict[str, int]") -> "Identity":
        """values: of the registers, by name."""
        name = values["core"].to_bytes(4, "little").rstrip(b"\0").decode("ascii", "replace")
        known = [core for core in KERNELS if core.startswith(name)] if name else []
        version = values["version"]
        return cls(known[0] if known else name, (version >> 16, version >> 8 & 255, version & 255),
                   values["configuration_low"] | values["configuration_high"] << 32)


def of(core: str, config: Any) -> Identity:
    """That of a core with this configuration."""
    return Identity.read(dict(identity(KERNELS[core], config)))


def offsets(kernel: Any) -> dict[str, int]:
    """The registers of a kernel's identity; none where it is not one of hotrail's cores."""
    if kernel not in KERNELS.values():
        return {}
    return {name: kernel.register(name).offset for name in IDENTITY}


def check(found: Identity | None, core: str, config: Any = None, *, where: str = "the card") -> None:
    """found: what a card holds, None where that cannot be known. config: of `core`, None where any will do.

    Raises CardError: another core, one of another version of hotrail, or another configuration"""
    if found is None:
        return
    wanted = of(core, config) if config is not None else found._replace(core=core)
    if found.core != core:
        raise CardError(f"{where} holds {f'the core {found.core}' if found.core else 'no core of hotrail'}, "
                        f"not the core {core}")
    if config is not None and found.version[:2] != wanted.version[:2]:
        raise CardError(f"the {core} core of {where} was made by hotrail {_dotted(found.version)}, and this is hotrail "
                        f"{_dotted(wanted.version)}: make and link it anew")
    if found.configuration != wanted.configuration:
        raise CardError(f"the {core} core of {where} has another configuration: its digest is "
                        f"{found.configuration:016x}, and that of the preset wanted here is "
                        f"{wanted.configuration:016x}; open a card of that preset, or compile for the card's")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
