"""Turns a component into Verilog: one file a distinct module, the same bytes in every process.

`emit` converts the top and, once each, every distinct part that was put in with `hw.place.place`. The text
that Yosys writes carries no source locations, no machine paths and no counters that depend on what ran
before.
"""

import gc
import hashlib
import json
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

from amaranth import ClockDomain, ClockSignal, Fragment, Instance, ResetSignal, Shape, Signal
from amaranth.back import rtlil
from amaranth.hdl import Elaboratable, UnusedElaboratable, Value, ValueCastable
from amaranth.hdl._ir import PortDirection
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In

from gen.base.staging import together
from gen.base.tools import build_folder, yosys
from gen.rtl import config, conversions
from gen.rtl.cores import CORES
from gen.rtl.delivery import core_file, delivered, described, filelist
from gen.rtl.texts import renumbered, without_aliases, without_zero_contents

TOP = "dut"

# A Verilog identifier may be long, but file names and the tools' reports are read by people.
NAME_LIMIT = 56
# Of equal parts one is elaborated; Amaranth would remind of all that the others hold when they are collected.
warnings.filterwarnings("ignore", category=UnusedElaboratable)
NO_INLINE = "/* verilator no_inline_module */"
OBJECTS = 1_000_000     # between looks for garbage
# Of the names that Yosys makes up.
FIRST_NUMBER = 10_000_000
# What Yosys does to Amaranth's RTLIL; the same passes as amaranth.back.verilog, plus a clean of dead wires.
PASSES = ("proc -nomux -norom", "memory_collect")
ATTRIBUTES = (
    "generator",
    "top",
    "src",
    "amaranth.hierarchy",
    "amaranth.decoding",
    "enum_base_type",
    "enum_value_*",
)


@dataclass(frozen=True)
class Build:
    """What `emit` wrote. `files` lists the Verilog, `top` is the top module, `metadata` is also on disk."""

    files: tuple[Path, ...]
    top: str
    metadata: dict[str, Any] = field(repr=False)

    @property
    def folder(self) -> Path:
        return self.files[0].parent


def module_name(key: str) -> str:
    """A Verilog identifier for a component's key: readable, and with a digest when something had to be
    dropped.

    >>> module_name("FusedDot(width=4, subs=4)")
    'FusedDot_width4_subs4'
    """
    name = re.sub(r"[^A-Za-z0-9]+", "_", re.sub(r"[=\s]", "", key)).strip("_")
    if not name or not name[0].isalpha():
        name = "m" + name
    if len(name) <= NAME_LIMIT:
        return name
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return f"{name[: NAME_LIMIT - 9]}_{digest}"


def describe(shape: Any) -> dict[str, Any]:
    """The layout of a payload as plain data: what the benches pack and unpack by.

    A struct is {"width", "fields": [{"name", "offset", ...}]}, an array {"width", "length", "element"},
    anything else {"width", "signed"}.
    """
    if isinstance(shape, type) and issubclass(shape, data.Struct | data.Union):
        shape = data.Layout.cast(shape)
    width = Shape.cast(shape).width
    if isinstance(shape, data.ArrayLayout):
        return {"width": width, "length": shape.length, "element": describe(shape.elem_shape)}
    if isinstance(shape, data.Layout):
        return {
            "width": width,
            "fields": [
                {"name": str(name), "offset": part.offset, **describe(part.shape)} for name, part in shape
            ],
        }
    if isinstance(shape, enum.EnumType):
        return {
            "width": width,
            "signed": Shape.cast(shape).signed,
            "names": {member.name: int(member.value) for member in shape},
        }
    return {"width": width, "signed": Shape.cast(shape).signed}


def _ports(component: Any) -> dict[str, tuple[Value, PortDirection, Any]]:
    """The component's ports in the order of its signature, flat, as name -> (signal, direction, shape)."""
    ports: dict[str, tuple[Value, PortDirection, Any]] = {}
    for path, member, value in component.signature.flatten(component):
        raw = value.as_value() if isinstance(value, ValueCastable) else value
        if not isinstance(
            raw, Signal
        ):  # a stream that is always valid or always ready holds a constant there
            continue
        direction = PortDirection.Input if member.flow == In else PortDirection.Output
        ports["__".join(map(str, path))] = (raw, direction, member.shape)
    return ports


def _streams(component: Any) -> list[dict[str, Any]]:
    """Every stream of a component with its prefix, direction and payload layout, nested ones included."""
    directions = {
        n: "in" if d is PortDirection.Input else "out" for n, (_, d, _) in _ports(component).items()
    }
    streams: list[dict[str, Any]] = []

    def walk(signature: Any, prefix: tuple[str, ...]) -> None:
        for name, member in signature.members.items():
            if not member.is_signature:
                continue
            inner = member.signature
            while isinstance(inner, wiring.FlippedSignature):
                inner = inner.flip()
            for path in _dimensions(name, member.dimensions):
                full = "__".join((*prefix, *path))
                if isinstance(inner, stream.Signature):
                    streams.append(
                        {
                            "name": full,
                            "direction": directions[f"{full}__payload"],
                            "payload": describe(inner.members["payload"].shape),
                            "always_valid": inner.always_valid,
                            "always_ready": inner.always_ready,
                        }
                    )
                else:
                    walk(inner, (*prefix, *path))

    walk(component.signature, ())
    return streams


def _dimensions(name: str, dimensions: tuple[int, ...]) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = [(name,)]
    for length in dimensions:
        paths = [(*path, str(i)) for path in paths for i in range(length)]
    return paths


class _Placer:
    """The platform that components are elaborated with: hands out instances, remembers what to convert."""

    def __init__(self, names: bool, added: str = "") -> None:
        self.names = names  # keep the wires that only name something, for waveforms
        self.added = added  # stands for what is elaborated besides, see `convert`
        self.parts: dict[str, Any] = {}  # module name -> first component seen with that key
        self.keys: dict[str, str] = {}  # module name -> key
        self.uses: dict[str, dict[str, int]] = {}
        self.current = ""

    def known(self, name: str, key: str) -> None:
        """There is a part with this module name and key."""
        if (first := self.keys.setdefault(name, key)) != key:
            raise ValueError(f"two different parts would share the module name {name}: {first} and {key}")

    def instance(self, component: Any, reset: Any = None, *, alone: bool = False) -> Elaboratable:
        key = component.key()
        name = module_name(key)
        ports = _ports(component)
        self.known(name, key)
        if name not in self.parts:
            self.parts[name] = component
        else:
            first = {n: (len(s), d) for n, (s, d, _) in _ports(self.parts[name]).items()}
            if first != {n: (len(s), d) for n, (s, d, _) in ports.items()}:
                raise ValueError(
                    f"two parts with the key {key} have different ports; its key() leaves out a parameter"
                )
            component._MustUse__used = True  # its equal is elaborated in its stead
        uses = self.uses.setdefault(self.current, {})
        uses[name] = uses.get(name, 0) + 1
        connections = {("i_" if d is PortDirection.Input else "o_") + n: s for n, (s, d, _) in ports.items()}
        own = ResetSignal(allow_reset_less=True)
        resets = own if reset is None else reset if alone else own | reset
        return Instance(name, i_clk=ClockSignal(), i_rst=resets, **connections)


def _clocking(component: Any) -> tuple[str, str]:
    """Names of the ports for clock and reset; a top that takes its reset by a port of its own has none."""
    return getattr(component, "verilog_clock", "clk"), getattr(component, "verilog_reset", "rst")


def _rtlil(component: Any, name: str, placer: _Placer) -> str:
    """Converts one module; its placed parts stay instances and are noted in the placer."""
    placer.current = name
    clock, reset = _clocking(component)
    domain = ClockDomain("sync", reset_less=not reset)
    # They are always there, so that a parent can connect them without looking inside.
    ports = {clock: (domain.clk, PortDirection.Input)}
    if reset:
        ports[reset] = (domain.rst, PortDirection.Input)
    ports.update({n: (s, d) for n, (s, d, _) in _ports(component).items()})
    fragment = Fragment.get(component, placer)
    fragment.add_domains(domain)
    with _short_zero_contents():
        text, _ = rtlil.convert_fragment(fragment, ports, name, emit_src=False)
    text = without_zero_contents(text)
    return text if placer.names else without_aliases(text)


@contextmanager
def _short_zero_contents() -> Iterator[None]:
    """Amaranth writes a memory's contents bit by bit, zeros too: minutes and gigabytes for the largest memories.

    Of contents that are all zero the first word stands for all of them, in a cell of the same place and number, until
    `without_zero_contents` drops it.
    """
    written = rtlil.ModuleEmitter.emit_memory

    def emit_memory(emitter: Any, number: int, cell: Any) -> None:
        contents = cell.init
        if not any(contents):
            cell.init = contents[:1]
        try:
            written(emitter, number, cell)
        finally:
            cell.init = contents

    rtlil.ModuleEmitter.emit_memory = emit_memory
    try:
        yield
    finally:
        rtlil.ModuleEmitter.emit_memory = written


def _verilog(rtlils: Mapping[str, str], shared: set[str]) -> dict[str, str]:
    """Verilog text by module name."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        script = []
        for name, text in rtlils.items():
            (work / f"{name}.il").write_text(f"autoidx {FIRST_NUMBER}\n{text}", "utf-8")
            remove = " ".join(f"-remove {a}" for a in ATTRIBUTES)
            script += [
                "design -reset",
                f"read_rtlil {name}.il",
                *PASSES,
                f"attrmap {remove}",
                f"attrmap -modattr {remove}",
                f"write_verilog -norename {name}.v",
            ]
        yosys(script, cwd=work)
        out = {}
        for name in rtlils:
            # The banner names the tool's build; the bytes should depend on the design alone.
            text = re.sub(r"\A/\*.*?\*/\n*", "", (work / f"{name}.v").read_text("utf-8"))
            text = renumbered(re.sub(r"\\\$auto\$verilog_backend\S*", "_start_", text))
            text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
            if name in shared:
                text, count = re.subn(rf"(?m)^(module {name}\([^;]*\);)", rf"\1 {NO_INLINE}", text)
                if count != 1:
                    raise RuntimeError(f"module {name} was not found in the Verilog that Yosys wrote")
            out[name] = text
        return out


def children(text: str, modules: Iterable[str]) -> set[str]:
    """The modules among `modules` that the Verilog of a file instantiates."""
    known = set(modules)
    return {word for word in re.findall(r"(?m)^  (\w+) (?:#|\S+ +)\($", text) if word in known}


def interface(text: str) -> str:
    """A file's first module without its body, which is all that a black box needs."""
    head = re.match(r"(?s)(?://[^\n]*\n)*(module [^;]*;)", text)
    if head is None:
        raise ValueError("the text does not begin with a module")
    body = text[: text.index("\nendmodule")]
    ports = re.findall(r"(?m)^  (?:input|output) [^;]*;", body)
    return "\n".join([head[1], *ports, "endmodule", ""])


def plain(value: Any) -> Any:
    """A configuration as JSON can hold it: dataclasses become dicts, tuples lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Amaranth makes millions of objects, and most live until a module is written: to look for cycles among them after
    every few hundred takes as long as all the rest."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_seldom_collected()
def _modules(top: Any, name: str, placer: _Placer) -> dict[str, dict[str, Any]]:
    """The records (gen.rtl.conversions) of a component and of all that it places, by module: those that are kept, and
    the others converted. Nothing is kept of what a top that is not the project's own may have changed."""
    own = conversions.label(top, name, part=False, names=placer.names, added=placer.added) is not None

    def label(component: Any, module: str) -> conversions.Label | None:
        return conversions.label(component, module, part=module != name, names=placer.names,
                                 added=placer.added) if own else None

    records: dict[str, dict[str, Any]] = {}
    labels: dict[str, conversions.Label | None] = {}
    rtlils: dict[str, str] = {}
    todo = {name: top}
    while todo:
        for module, component in todo.items():
            labels[module] = label(component, module)
            kept = conversions.closure(labels[module])
            if kept is None:
                rtlils[module] = _rtlil(component, module, placer)
                continue
            component._MustUse__used = True
            records |= kept
            for part in kept.keys() - {name}:
                placer.known(part, kept[part]["key"])
        if name in placer.keys:
            raise ValueError(f"the top module may not have the name of one of its parts: {name}")
        todo = {module: part for module, part in placer.parts.items() if module not in rtlils | records}
    texts = _verilog(rtlils, set(placer.parts)) if rtlils else {}
    for module, text in texts.items():
        uses = placer.uses.get(module, {})
        records[module] = {"name": module, "key": placer.keys.get(module, ""), "text": text, "uses": uses,
                           "parts": {part: label(placer.parts[part], part) for part in uses}}
        conversions.keep(labels[module], records[module])
    return records


def convert(component: Any, name: str = TOP, *, names: bool = False,
            added: str = "") -> tuple[dict[str, str], dict[str, Any]]:
    """Verilog texts by file name, and the metadata, without touching the disk outside a temporary folder.

    names: keep the wires that only name a struct's field or an alias, for waveforms and coverage; added: stands for
    what the caller adds to units as they are elaborated, as a test its assertions; modules that were converted without
    it, or with another, are not taken for these
    """
    placer = _Placer(names, added)
    metadata_ports = {
        n: {"direction": "in" if d is PortDirection.Input else "out", **describe(shape)}
        for n, (s, d, shape) in _ports(component).items()
    }
    streams = _streams(component)
    records = _modules(component, name, placer)
    clock, reset = _clocking(component)
    metadata = {
        "top": name,
        "clock": clock,
        "reset": reset,
        "ports": metadata_ports,
        "streams": streams,
        "config": plain(getattr(component, "config", None)),
        "modules": {
            n: {"key": record["key"], "instances": dict(sorted(record["uses"].items()))}
            for n, record in sorted(records.items())
        },
        "files": [f"{n}.v" for n in sorted(records)],
    }
    return {f"{n}.v": records[n]["text"] for n in sorted(records)}, metadata


def emit(component: Any, name: str, out_dir: Path | str, *, preset: str = "") -> Build:
    """Writes `component` as Verilog with `name` as its top module.

    Parameters  component: a `wiring.Component`; name: the top module's name; out_dir: created if missing; preset: of a
                core that is handed to others (gen.rtl.delivery), with <name>.f and <name>.core
    Returns     Build; beside the Verilog lies `<name>.json` with ports, streams, payload layouts and config
    Raises      ValueError: the name is no Verilog identifier, or two parts contradict each other
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name must be a Verilog identifier (letters, digits, underscores), not {name!r}")
    out = Path(out_dir)
    texts, metadata = convert(component, name)
    beside = {}
    if preset:
        about = f"Core {name} of the preset {preset}"
        texts, metadata = delivered(texts, name, about), described(metadata)
        beside = {f"{name}.f": filelist(metadata, about), f"{name}.core": core_file(metadata, preset, about)}
    note = out / f"{name}.json"
    before = json.loads(note.read_text("utf-8")).get("files", []) if note.exists() else []
    with together(out) as half:
        for file, text in (texts | beside).items():
            (half / file).write_text(text, "utf-8")
        (half / note.name).write_text(json.dumps(metadata, indent=1) + "\n", "utf-8")
    for file in before:     # modules that an earlier configuration had and this one has not
        if file not in texts and Path(file).name == file:
            (out / file).unlink(missing_ok=True)
    return Build(tuple(out / f for f in texts), name, metadata)


def verilog(preset: str | Path | config.Preset, out: str | Path | None = None) -> list[Build]:
    """Writes the Verilog of a preset's cores into <out>/<preset>, each with its metadata in hotrail_<core>.json, its
    list of files hotrail_<core>.f and its FuseSoC core hotrail_<core>.core. No two cores share a module's name.

    preset: its name, a path that ends in .toml, or one that is loaded. out: a folder, default build/ or HOTRAIL_BUILD.
    The bytes depend on the preset alone. A core takes seconds; one whose source is unchanged comes from build/.
    Raises      ConfigError: the preset's key, its value and what is allowed; RuntimeError: Yosys' own words
    """
    chosen = config.load(preset) if isinstance(preset, str | Path) else preset
    folder = Path(out or build_folder()) / chosen.name
    return [emit(CORES[name].unit(core), f"hotrail_{name}", folder, preset=chosen.name)
            for name, core in chosen.cores.items()]
