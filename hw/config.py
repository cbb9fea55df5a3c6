"""Configuration of units: frozen dataclasses whose fields say what they allow.

A unit's configuration derives from `Config` and declares each key with `whole`, `choice`, `flag` or `part`; what a
field allows is checked when the object is made, `check` adds what concerns several fields. The preset loader
and the reference documentation read the same declarations.
"""

from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["Config", "choice", "flag", "part", "whole"]


def whole(low: int, high: int, about: str, *, power_of_two: bool = False) -> Any:
    """A key that holds a whole number from `low` to `high`."""
    allowed = (
        f"a power of two from {low} to {high}" if power_of_two else f"a whole number from {low} to {high}"
    )

    def fits(value: Any) -> bool:
        return type(value) is int and low <= value <= high and not (power_of_two and value & (value - 1))

    return field(metadata={"about": about, "allowed": allowed, "fits": fits})


def choice(*values: Any, about: str) -> Any:
    """A key that holds one of a few values."""
    allowed = "one of " + ", ".join(map(repr, values))

    def fits(value: Any) -> bool:
        return any(type(value) is type(v) and value == v for v in values)

    return field(metadata={"about": about, "allowed": allowed, "fits": fits})


def flag(about: str) -> Any:
    """A key that holds true or false."""
    return field(
        metadata={"about": about, "allowed": "true or false", "fits": lambda value: type(value) is bool}
    )


def part(about: str) -> Any:
    """A key that holds the configuration of a unit inside this one: a table within the table."""
    return field(metadata={"about": about, "allowed": "a table"})


@dataclass(frozen=True, kw_only=True)
class Config:
    """Base of all configurations.

    Raises      ValueError: names the key, its value and what is allowed
    """

    def __post_init__(self) -> None:
        for item in fields(self):
            if "fits" not in item.metadata:
                continue
            value = getattr(self, item.name)
            if not item.metadata["fits"](value):
                raise ValueError(f"{item.name} must be {item.metadata['allowed']}, not {value!r}")
        self.check()

    def check(self) -> None:
        """Raises ValueError for keys that are each allowed but do not go together."""

    def key(self) -> str:
        """Deterministic text of all keys, for the name of a shared module."""
        return ",".join(f"{item.name}={getattr(self, item.name)!r}" for item in fields(self))
