"""Configuration of units: frozen dataclasses whose fields say what they allow.

A unit's configuration derives from `Config` and declares each key with `whole`, `choice`, `flag` or `part`; what a
field allows is checked when the object is made, `check` adds what concerns several fields. The preset loader
and the reference documentation read the same declarations.
"""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from typing import Any


def whole(low: int, high: int, about: str, *, power_of_two: bool = False) -> Any:
    """A key that holds a whole number from `low` to `high`."""
    allowed = (
        f"a power of two from {low} to {high}" if power_of_two else f"a whole number from {low} to {high}"
    )

    def fits(value: Any) -> bool:
        return type(value) is int and low <= value <= high and not (power_of_two and value & (value - 1))

    return field(metadata={"about": about, "allowed": allowed, "fits": fits})


def choice(*values: Any, about: str, default: Any = MISSING) -> Any:
    """A key that holds one of a few values; outside presets it may be left at its `default`, if it has one."""
    allowed = "one of " + ", ".join(map(repr, values))

    def fits(value: Any) -> bool:
        return any(type(value) is type(v) and value == v for v in values)

    return field(default=default, metadata={"about": about, "allowed": allowed, "fits": fits})


def family() -> Any:
    """The key that says which parts a unit is for, and so which of their own blocks it may have."""
    return choice("any", "ultrascale_plus", default="any",
                  about="parts that it is for: any, or AMD UltraScale+, whose UltraRAM corrects errors by itself")


def grouped() -> Any:
    """The key that says which dot products a unit has."""
    return choice(False, True, default=False,
                  about="four operands of a dot product share one exponent: less logic, and operands far below the "
                        "largest of their group lose bits")


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
        """Deterministic text of all keys that are not at their default, for the name of a shared module."""
        return ",".join(self._given())

    def _given(self) -> Iterator[str]:
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Config):
                yield f"{item.name}={type(value).__name__}({', '.join(value._given())})"
            elif item.default is MISSING or value != item.default:
                yield f"{item.name}={value!r}"
