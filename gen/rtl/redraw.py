"""Draws registers anew while a simulation runs, so that a reset finds a unit in any state.

Verilator sets every variable as a model is made, by a function for each class that it writes. `source` makes another of
it: with those lines alone that set registers. Memories, and registers that only configuration sets (gen.rtl.powerup),
outlive a reset, and are given back what they held: in a state that no run comes to anything may be written to them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gen.rtl.powerup import NAME, REGISTER

# extern "C" void (int seed): registers hold anything, and what follows from them; with 0 as seed, behind the edge,
# memories hold again what they did at the call before.
FUNCTION = "hotrail_redraw"
_CLOCKED = re.compile(rf"(?m)^ +({NAME}) ?(?:\[\d+(?::\d+)?\] )?<= ")
_MODULE = re.compile(rf"(?ms)^module ({NAME}) ?\(.*?^endmodule")
_PLACED = re.compile(rf"(?m)^  ({NAME}) ({NAME}) ?\(\n((?:    .*\n)*)")
_PIN = re.compile(rf"(?m)^    \.({NAME}) ?\(({NAME})\),?$")
# Of Verilator: the function, its lines for a variable and for a memory, a class's field, an object of a class, and the
# characters that C++ has no names with.
_SETS = re.compile(r"void Vtop_(\w+)___ctor_var_reset\(.*\{\n((?:    .*\n)*)\}")
_SET = re.compile(r"(?m)^    (?:VL_SCOPED_RAND_RESET_W\(\d+, )?vlSelf->(\w+)(?:,| = VL_SCOPED).*;$")
_MEMORY = re.compile(r"vlSelf->(?!__V)(\w+)\[__Vi0\]")
_FIELD = re.compile(r"(?m)^ +\S+/\*[\d:]+\*/ (\w+);$")
_OBJECT = re.compile(r"(?m)^    Vtop_\w+ +(TOP\w*);")
_CODED = re.compile(r"__0([0-9A-F]{2})")
# Of an UltraRAM (hw.uram): the write that it has taken, and makes a cycle later whatever a reset does.
_TAKEN = "uram__DOT__write"
_KEPT = "keep(&vlSelf->{0}, sizeof vlSelf->{0});"
_TEXT = """#include "Vtop__Syms.h"
static std::vector<std::pair<void*, std::string>> memories;
static void keep(void* memory, size_t bytes) {{
    memories.push_back({{memory, {{static_cast<char*>(memory), bytes}}}});
}}
{classes}
void Vtop___024root___eval_settle(Vtop___024root*);
extern "C" __attribute__((visibility("default"))) void {function}(int seed) {{
    auto* all = static_cast<Vtop__Syms*>(Verilated::scopeFind("TOP")->symsp());
    for (auto& held : memories) std::memcpy(held.first, held.second.data(), held.second.size());
    memories.clear();
    if (seed) {{
        const int own = Verilated::randSeed();
        Verilated::randSeed(seed);
        {objects}
        Verilated::randSeed(own);
    }}
    Vtop___024root___eval_settle(&all->TOP);
}}
"""


def _bare(name: str) -> str:
    return name.strip("\\ ")


class _Hierarchy:
    """Modules by name: their registers, with the wires that show those of parts and may stand for them; those that keep
    an initial value; and their parts' modules."""

    def __init__(self, texts: Iterable[str], top: str):
        self._texts = {_bare(found.group(1)): found.group() for text in texts for found in _MODULE.finditer(text)}
        self._registers: dict[str, set[str]] = {}
        self._kept: dict[str, set[str]] = {}
        self._parts: dict[str, dict[str, str]] = {"$root": {top: top}}
        for module in self._texts:
            self._read(module)
        self._registers["$root"] = self._registers[top]

    def _read(self, module: str) -> set[str]:
        if module not in self._registers:
            text = self._texts.get(module, "")
            kept = self._kept[module] = {_bare(found.group(2)) for found in REGISTER.finditer(text)}
            own = self._registers[module] = {_bare(found.group(1)) for found in _CLOCKED.finditer(text)} - kept
            parts = self._parts[module] = {}
            for part, name, pins in _PLACED.findall(text):
                parts[_bare(name)] = _bare(part)
                shown = self._read(_bare(part))
                own |= {_bare(net) for port, net in _PIN.findall(pins) if _bare(port) in shown}
        return self._registers[module]

    def kind(self, module: str, coded: str) -> str:
        """Of a variable of a module's class: register, kept, or neither."""
        *path, name = _decoded(coded.removeprefix("__PVT__")).split("__DOT__")
        for part in path:
            module = self._parts.get(module, {}).get(part, "")
        return ("kept" if name in self._kept.get(module, ()) else
                "register" if name in self._registers.get(module, ()) else "")


def _decoded(name: str) -> str:
    return _CODED.sub(lambda code: chr(int(code[1], 16)), name)


def source(texts: Mapping[str, str], top: str, objects: Path) -> str:
    """C++ of FUNCTION, of what Verilator has written to `objects` from `texts`."""
    hierarchy = _Hierarchy(texts.values(), top)

    def statements(name: str, body: str) -> Iterator[str]:
        module, fields = _decoded(name), (objects / f"Vtop_{name}.h").read_text("utf-8")
        yield f"static void redraw(Vtop_{name}* vlSelf) {{"
        yield "const uint64_t __VscopeHash = VL_MURMUR64_HASH(vlSelf->vlNamep);"
        yield from (found[0].strip() for found in _SET.finditer(body) if hierarchy.kind(module, found[1]) == "register")
        yield from (_KEPT.format(held) for held in dict.fromkeys(_MEMORY.findall(body)))
        yield from (_KEPT.format(field) for field in _FIELD.findall(fields)
                    if hierarchy.kind(module, field) == "kept" or field.endswith(_TAKEN))
        yield "}"

    classes = [line for file in sorted(objects.glob("*Slow.cpp"))
               for name, body in _SETS.findall(file.read_text("utf-8")) for line in statements(name, body)]
    found = _OBJECT.findall((objects / "Vtop__Syms.h").read_text("utf-8"))
    return _TEXT.format(function=FUNCTION, classes="\n".join(classes),
                        objects="\n        ".join(f"redraw(&all->{name});" for name in found))
