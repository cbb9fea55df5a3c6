"""The blocks of a core and what flows between them, read off its elaborated hierarchy."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Signal, Value
from amaranth.hdl._ast import Assign, SignalDict, SignalSet, Switch
from amaranth.hdl._ir import Fragment
from amaranth.lib.wiring import Component, Out

from hw.stream.skid_buffer import SkidBuffer

LEAST_BITS, LEAST_SHARE = 8, 1 / 8      # of a flow that is shown; of the widest flow to or from the same block


@dataclass(frozen=True)
class Block:
    """A submodule, or `count` of them whose names differ in a number. kind: its class, empty for a port of the core.
    about: the first line of what the class says of itself."""

    name: str
    kind: str
    about: str
    count: int


@dataclass(frozen=True)
class Flow:
    """bits: of the ports of one target that depend on outputs of the source."""

    source: str
    target: str
    bits: int


@dataclass(frozen=True)
class Diagram:
    """blocks: the core's submodules in its order, then its ports."""

    name: str
    blocks: tuple[Block, ...]
    flows: tuple[Flow, ...]


def diagram(unit: Component, name: str) -> Diagram:
    """Of a component whose submodules have names. Skid buffers are wires here, and so is what the component computes
    itself; answers (`ready`), single signals at the core's ports and flows of a few bits are left out."""
    top = Fragment.get(unit, None)
    parts = {str(label): part for fragment, label, *_ in top.subfragments
             for part in fragment.origins or () if isinstance(part, Component)}
    drives, owner, wants = _assignments(top), SignalDict(), list[tuple[str, Signal]]()
    for label, part in parts.items():
        for _, signal, leaves in _ports(part):
            if isinstance(part, SkidBuffer):
                if leaves:
                    drives[signal] = SignalSet(other for _, other, out in _ports(part) if not out)
            elif leaves:
                owner[signal] = _family(label)
            else:
                wants.append((_family(label), signal))
    outside = [(path[0], signal, leaves) for path, signal, leaves in _ports(unit) if len(path) > 1]
    for port, signal, leaves in outside:
        if leaves:
            wants.append((port, signal))
        else:
            owner[signal] = port
    bits: Counter[tuple[str, str]] = Counter()
    for target, signal in wants:
        for source in _sources(signal, drives, owner) - {target}:
            bits[source, target] += len(signal)
    families = {_family(label): part for label, part in parts.items() if not isinstance(part, SkidBuffer)}
    counts = Counter(map(_family, parts))
    blocks = [Block(family, type(part).__name__, _about(part), counts[family]) for family, part in families.items()]
    ports = [Block(port, "", "", 1) for port in dict.fromkeys(port for port, *_ in outside)]
    return Diagram(name, (*blocks, *ports), tuple(_wide(bits)))


def _wide(bits: Counter[tuple[str, str]]) -> Iterator[Flow]:
    """Flows that are wide beside others of the same blocks."""
    widest: Counter[str] = Counter()
    for (source, target), count in bits.items():
        for end in (source, target):
            widest[end] = max(widest[end], count)
    for (source, target), count in sorted(bits.items()):
        if count >= max(LEAST_BITS, LEAST_SHARE * min(widest[source], widest[target])):
            yield Flow(source, target, count)


def _family(label: str) -> str:
    return re.sub(r"_\d+$", "", label)


def _about(part: Component) -> str:
    return (type(part).__doc__ or "").strip().partition("\n")[0]


def _ports(part: Component) -> Iterator[tuple[tuple[str, ...], Signal, bool]]:
    """Path, signal and whether it leaves the component, of its ports but for answers."""
    for path, member, value in part.signature.flatten(part):
        if path[-1] != "ready":
            for signal in Value.cast(value)._rhs_signals():
                yield tuple(map(str, path)), signal, member.flow is Out


def _assignments(top: Fragment) -> SignalDict:
    """Of each signal that the component itself drives, those that it depends on."""
    sources: SignalDict = SignalDict()

    def walk(statements: Any) -> None:
        for each in statements:
            if isinstance(each, Assign):
                for signal in each._lhs_signals():
                    sources.setdefault(signal, SignalSet()).update(each.rhs._rhs_signals())
            elif isinstance(each, Switch):
                for _, inside, *_ in each.cases:
                    walk(inside)

    for statements in top.statements.values():
        walk(statements)
    return sources


def _sources(signal: Signal, drives: SignalDict, owner: SignalDict) -> set[str]:
    """Whose outputs a signal depends on."""
    owners, seen, waiting = set(), SignalSet(), [signal]
    while waiting:
        for other in drives.get(waiting.pop(), ()):
            if other not in seen:
                seen.add(other)
                if other in owner:
                    owners.add(owner[other])
                else:
                    waiting.append(other)
    return owners
