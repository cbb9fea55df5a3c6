"""What a component's docstring says of its members is what its signature has: names, directions, streams, widths."""

import inspect
import re
from collections import defaultdict
from fnmatch import fnmatchcase
from types import SimpleNamespace

import pytest
from amaranth.hdl import Module, Shape
from amaranth.hdl._ir import Fragment
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gen.rtl.board import board
from gen.rtl.config import load
from gen.rtl.cores import CORES
from hw.tt.serial_config import SerialConfig

SERIAL = SerialConfig(rows=4, columns=8, a_lines=512, b_lines=32, c_lines=2048, tables=16, index_bits=10,
                      mode_bits=6, rank_max=8, dim_max=64, in_flight=4)
BOARD = {"divisor": 8, "gap_cycles": 4096, "memory_bytes": 1024, "lamp_log2": 6}
COLUMN = len("Members     ")
ENTRY = re.compile(r"(?P<names>[\w*]+(?:\[k\])?(?:, [\w*]+(?:\[k\])?)*) {2,}(?P<flow>In|Out)(?:\((?P<kind>[^()]+)\))?"
                   r"(?:  (?P<text>\S.*))?")


def entries(docstring: str) -> list[str]:
    """Of the docstring's members, each on one line."""
    found = []
    lines = inspect.cleandoc(docstring).splitlines()
    begin = next((at for at, line in enumerate(lines) if line.startswith("Members")), None)
    if begin is None:
        return found
    lines[begin] = " " * COLUMN + lines[begin][COLUMN:]
    for line in lines[begin:]:
        depth = len(line) - len(line.lstrip())
        if depth == COLUMN:
            found.append(line.strip())
        elif depth > COLUMN:
            found[-1] += " " + line.strip()
        else:
            break
    return found


def flow_of(member: wiring.Member) -> str:
    return {In: "In", Out: "Out"}[member.flow]


def contradictions(docstring: str, components: list) -> list[str]:
    """Between a docstring and the signatures of a class's instances."""
    members = defaultdict(list)
    for component in components:
        for name, member in component.signature.members.items():
            members[name].append(member)
    wrong, seen = [], set()
    for entry in entries(docstring):
        match = ENTRY.fullmatch(entry)
        if match is None:
            wrong.append(f"{entry!r} is not `name  In(kind)  text`")
            continue
        for name in match["names"].split(", "):
            plain = name.removesuffix("[k]")
            known = [member for key, some in members.items() if fnmatchcase(key, plain) for member in some]
            seen |= {key for key in members if fnmatchcase(key, plain)}
            if not known:
                wrong.append(f"{plain} is no member")
            if "*" in plain:    # the wires of an interface, which run both ways
                continue
            if known and any(member.dimensions for member in known) != (name != plain):
                wrong.append(f"{plain} is {'not ' if name != plain else ''}an array")
            for member in known:
                streams = member.is_signature and isinstance(member.signature, stream.Signature)
                if flow_of(member) != match["flow"]:
                    wrong.append(f"{plain} is {flow_of(member)}, not {match['flow']}")
                if streams != (match["kind"] or "").startswith("stream"):
                    wrong.append(f"{plain} is {'' if streams else 'not '}a stream")
                if (match["kind"] or "").isdigit() and Shape.cast(member.shape).width != int(match["kind"]):
                    wrong.append(f"{plain} has {Shape.cast(member.shape).width} bits, not {match['kind']}")
    wrong += [f"{name} is not documented" for name in members if name not in seen]
    return sorted(set(wrong))


class Once:
    """A platform on which each distinct part is elaborated once: its equals have nothing within."""

    def __init__(self):
        self.keys = set()

    def instance(self, component, reset, *, alone):
        if component.key() in self.keys:
            return Module()
        self.keys.add(component.key())
        return component


@pytest.fixture(scope="module")
def instances():
    """Class -> its instances in all cores of the tiny preset, the serial TT unit and a board."""
    found, once = defaultdict(list), Once()
    init = wiring.Component.__init__

    def recorded(self, *arguments, **keywords):
        init(self, *arguments, **keywords)
        found[type(self)].append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring.Component, "__init__", recorded)
        tops = [(CORES[name], config) for name, config in load("tiny").cores.items()] + [(CORES["serial"], SERIAL)]
        for core, config in tops:
            Fragment.get(core.kernel(config) if core.is_kernel else core.unit(config), once)
        Fragment.get(board(None, None, **BOARD), once)
    return {cls: some for cls, some in found.items() if cls.__module__.startswith("hw.")}


@pytest.mark.turns(1, of="syntheses")
def test_docstrings_name_the_members(instances):
    assert len(instances) > 80
    wrong = [f"{cls.__module__}.{cls.__name__}: {line}" for cls, some in instances.items()
             for line in contradictions(cls.__doc__ or "", some)]
    assert not wrong, "\n".join(wrong)


MEMBERS = {"i": In(stream.Signature(8)), "o": Out(stream.Signature(8)).array(2), "level": Out(4), "stop": In(1),
           "about": Out(data.StructLayout({"valid": 1}))}
RIGHT = """Holds.

Members     i      In(stream)  what comes
            o[k]   Out(stream of bytes)  what leaves,
                of each
            level  Out(4)
            stop, about  In  both
Timing      none
"""


@pytest.mark.parametrize("old, new, wrong", [
    ("stop, about  In  both", "stop   In\n            about  Out", []),
    ("", "", ["about is Out, not In"]),
    ("stop, about", "stop", ["about is not documented"]),
    ("stop, about", "stop, halt", ["about is not documented", "halt is no member"]),
    ("o[k] ", "o", ["o is an array", "about is Out, not In"]),
    ("In(stream)", "In", ["i is a stream", "about is Out, not In"]),
    ("Out(4)", "Out(5)", ["level has 4 bits, not 5", "about is Out, not In"]),
    ("Out(4)", "Out(stream)", ["level is not a stream", "about is Out, not In"]),
    ("level  Out(4)", "level: Out", ["'level: Out' is not `name  In(kind)  text`", "level is not documented",
                                     "about is Out, not In"]),
])
def test_finds_contradictions(old, new, wrong):
    some = SimpleNamespace(signature=wiring.Signature(MEMBERS))
    assert contradictions(RIGHT.replace(old, new), [some]) == sorted(wrong)
