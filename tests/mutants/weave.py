"""Writes mutants into a unit's source side by side, to be selected by a number when the unit is simulated.

An assignment with mutants becomes a switch with a case for each, a condition a chain of choices, and a declaration a
call that notes the signal: one model then has all of them (`tests.mutants.selected`).
"""

import re
from collections.abc import Mapping

from tests.mutants.operators import Change

IMPORT = "from tests.mutants import selected as _mutants\n"
_ASSIGNS = re.compile(r"( *)(m\.d\S+ \+= )")


def _value(text: str, outer: tuple[int, int], mutants: Mapping[int, str]) -> tuple[int, str] | None:
    """Where the statement begins and what stands there instead; None for one that shares its line."""
    begin = text.rfind("\n", 0, outer[0]) + 1
    head = _ASSIGNS.fullmatch(text, begin, outer[0])
    if head is None:
        return None
    indent, target = head.groups()
    lines = [f"{indent}with m.Switch(_mutants.SELECTED):"]
    for number, changed in mutants.items():
        lines += [f"{indent}    with m.Case({number}):",
                  f"{indent}        {target}_mutants.value({number}, lambda: {changed})"]
    lines += [f"{indent}    with m.Default():", f"{indent}        {target}{text[slice(*outer)]}"]
    return begin, "\n".join(lines)


def woven(text: str, mutants: Mapping[int, Change]) -> tuple[str, list[int]]:
    """The text with the mutants, by number, and the numbers of those that have no place in it."""
    places: dict[tuple[int, int], dict[int, Change]] = {}
    for number, change in mutants.items():
        places.setdefault(change.outer, {})[number] = change
    lost: list[int] = []
    for outer, here in sorted(places.items(), reverse=True):
        begin, sound = outer[0], text[slice(*outer)]
        changed = {number: text[outer[0]:change.begin] + change.new + text[change.end:outer[1]]
                   for number, change in here.items()}
        kind = next(iter(here.values())).kind
        if kind == "value":
            found = _value(text, outer, changed)
            if found is None:
                lost += here
                continue
            begin, new = found
        elif kind == "condition":
            made = ", ".join(f"{number}: lambda: ({part})" for number, part in changed.items())
            new = f"_mutants.condition({{{made}}}, {sound})"
        else:
            new = f"_mutants.declared({next(iter(here))}, {sound})"
        text = text[:begin] + new + text[outer[1]:]
    # Behind the docstring and above the first import.
    first = re.search(r"(?m)^(?:from|import) ", text)
    assert first is not None
    return text[:first.start()] + IMPORT + text[first.start():], lost
