"""How a click log is read, in the words of gen.data.logs.open_log, of the commands' options and of a model's [log]."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

#: Of values that are no texts, their type and what it is called.
KINDS = {"missing": (int, "a whole number"), "quotes": (bool, "true or false")}


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What is None or empty is left to the reader.

    format: one of gen.data.logs.FORMATS; missing: the id that a missing one stands for; separator: of a text's fields,
    by name (comma, tab, semicolon, pipe, space) or as it is; fields: their names, of a text without a header line;
    lists: what stands between the ids of a cell, `pipe` for all fields that have one, `tags=pipe` for one, `tags=none`
    for single ids; quotes: whether fields may stand in double quotes [yes]; order_by: the column by which samples are
    put in order.
    """

    format: str | None = None
    missing: int | None = None
    separator: str | None = None
    fields: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    quotes: bool | None = None
    order_by: str | None = None

    def __post_init__(self) -> None:
        names, lists = self.fields, self.lists
        object.__setattr__(self, "fields", tuple(names.split(",") if isinstance(names, str) else names))
        object.__setattr__(self, "lists", (lists,) if isinstance(lists, str) else tuple(lists))

    def given(self) -> dict[str, Any]:
        """Those that are not left to the reader."""
        every = {name: getattr(self, name) for name in _names()}
        return {name: value for name, value in every.items() if value is not None and value != ()}

    def over(self, other: "LogOptions") -> "LogOptions":
        """These, and where one is left to the reader, the other's."""
        return LogOptions(**{**other.given(), **self.given()})

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "LogOptions":
        """Of plain values; one text stands for a list of it.

        Raises      ValueError: a key that is none of these, or a value of another kind
        """
        made: dict[str, Any] = {}
        for key, value in content.items():
            if key not in _names():
                raise ValueError(f"{key}: unknown key; allowed are {', '.join(_names())}")
            if key in ("fields", "lists"):
                several = value if isinstance(value, list | tuple) else ()
                made[key] = (value,) if isinstance(value, str) else tuple(several)
                if not made[key] or not all(isinstance(each, str) for each in made[key]):
                    raise ValueError(f"{key} = {value!r}: must be a text or a list of texts")
            elif type(value) is not KINDS.get(key, (str, ""))[0]:
                raise ValueError(f"{key} = {value!r}: must be {KINDS.get(key, (str, 'a text'))[1]}")
            else:
                made[key] = value
        return cls(**made)


def _names() -> tuple[str, ...]:
    return tuple(each.name for each in fields(LogOptions))
