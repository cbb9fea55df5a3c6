"""Plays beats into the streams of a unit's Verilated model and records what leaves it: simulation at the speed of C++.

What is played is known beforehand, phase after phase; nothing answers the unit but sinks that are always ready. Where
something has to, the unit is wrapped with it in Amaranth.
"""

import struct
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gen.base.tools import call
from gen.rtl import verilator, verilog
from gen.rtl.pack import Layout

SOURCE = Path(__file__).with_suffix(".cpp")


@dataclass(frozen=True)
class Phase:
    """put: beats by input stream, as integers or rows of bytes; hold: values of inputs that belong to no stream, from
    here on; until: by output stream, how many beats must have come since the reset; rest: cycles after all of it."""

    put: Mapping[str, Sequence[int] | np.ndarray] = field(default_factory=dict)
    hold: Mapping[str, int] = field(default_factory=dict)
    until: Mapping[str, int] = field(default_factory=dict)
    rest: int = 0


@dataclass(frozen=True)
class Played:
    """What the unit did. Cycles count from 1 after the reset; beats and samples are rows of bytes, the lowest first.

    taken: by input stream, the cycle in which each beat was taken; beats, at: by output stream, what came and when;
    samples: by port, what it showed in every cycle; ended: of each phase, its last cycle and the processor's seconds by
    then; shown: by output that belongs to no stream, its value at the end.
    """

    taken: dict[str, np.ndarray]
    beats: dict[str, np.ndarray]
    at: dict[str, np.ndarray]
    samples: dict[str, np.ndarray]
    ended: np.ndarray
    shown: dict[str, int]


@dataclass(frozen=True)
class Player:
    """A built model with its metadata."""

    binary: Path
    metadata: dict[str, Any]

    def packed(self, stream: str, beats: Iterable[Any]) -> list[int]:
        """Beats of a stream as integers."""
        pack = Layout(self.metadata["ports"][_Ports(self.metadata).payload(stream)]).pack
        return [pack(beat) for beat in beats]

    def unpacked(self, port: str, value: int) -> Any:
        return Layout(self.metadata["ports"][port]).unpack(value)

    def play(self, phases: Sequence[Phase], *, cycles: int = 1_000_000, samples: Sequence[str] = (),
             seed: int = 1) -> Played:
        """Runs the phases behind a reset. samples: outputs of no stream that are recorded; seed: of what registers and
        memories hold before the reset.

        Raises AssertionError: the phases have not ended after so many cycles; ValueError: a value is not a port's."""
        ports = _Ports(self.metadata)
        request = [struct.pack("<QQ", seed, cycles), _numbers([ports.shown.index(name) for name in samples])]
        request.append(struct.pack("<Q", len(phases)))
        for phase in phases:
            request.append(struct.pack("<Q", len(phase.hold)))
            request += [struct.pack("<Q", ports.plain.index(name)) + ports.bytes_of(name, [value])
                      for name, value in phase.hold.items()]
            request.append(struct.pack("<Q", len(phase.put)))
            for name, words in phase.put.items():
                data = ports.bytes_of(ports.payload(name), words)
                request += [struct.pack("<QQ", ports.inputs.index(name), len(data)), data]
            request.append(struct.pack("<Q", len(phase.until)))
            request += [struct.pack("<QQ", ports.outputs.index(name), count) for name, count in phase.until.items()]
            request.append(struct.pack("<Q", phase.rest))
        with tempfile.TemporaryDirectory(prefix="hotrail-play-") as folder:
            request_file, results = Path(folder) / "request", Path(folder) / "results"
            request_file.write_bytes(b"".join(request))
            run = call([str(self.binary), str(request_file), str(results)], stderr=subprocess.PIPE)
            if run.returncode:
                raise AssertionError(f"{self.binary.parent.parent.name}: {run.stderr.strip() or run.returncode}")
            parts = iter(_parts(results.read_bytes()))
        taken = {name: next(parts).view("<u8").astype(np.int64) for name in ports.inputs}
        beats, at = {}, {}
        for name in ports.outputs:
            beats[name] = next(parts).reshape(-1, ports.storage(ports.payload(name)))
            at[name] = next(parts).view("<u8").astype(np.int64)
        sizes = np.cumsum([0] + [ports.storage(name) for name in samples])
        every = next(parts).reshape(-1, sizes[-1]) if samples else next(parts)
        sampled = {name: every[:, first:end] for name, first, end in zip(samples, sizes[:-1], sizes[1:], strict=True)}
        ended = next(parts).view("<f8").reshape(-1, 2)
        shown = {name: int.from_bytes(next(parts).tobytes(), "little") for name in ports.shown}
        return Played(taken, beats, at, sampled, ended, shown)


def build(component: Any, name: str, *, opt: str = "-O1") -> Player:
    """The player of a component, from the cache when the same one was built before.

    Parameters  name: for the folder's name, people read it; opt: the C++ optimisation of the design's own code
    Raises      RuntimeError: with the end of the build's log
    """
    return build_texts(*verilog.convert(component), name, opt=opt)


def build_texts(texts: Mapping[str, str], metadata: dict[str, Any], name: str, *, random: bool = True,
                **options: Any) -> Player:
    """As `build`, from Verilog texts. A stream of the metadata may be a port by itself, which is always valid and
    always ready. random: registers begin at random, not as the Verilog says."""
    sources = {"play.cpp": SOURCE.read_text("utf-8"), "bind.h": _Ports(metadata).binding()}
    built = verilator.build(texts, metadata["top"], name, target="play", arguments=(), sources=sources, random=random,
                            **options)
    return Player(built.target, metadata)


class _Ports:
    """A unit's ports by what the player does with them, in its order, and how Verilator stores them."""

    def __init__(self, metadata: Mapping[str, Any]):
        self._ports: Mapping[str, Any] = metadata["ports"]
        self._clocking = metadata["clock"], metadata["reset"]
        streams = metadata["streams"]
        self.inputs, self.outputs = ([item["name"] for item in streams if item["direction"] == way]
                                     for way in ("in", "out"))
        used = {f"{item['name']}{part}" for item in streams for part in ("", "__payload", "__valid", "__ready")}
        self.plain, self.shown = ([name for name, port in self._ports.items()
                                   if port["direction"] == way and name not in (*used, *self._clocking)]
                                  for way in ("in", "out"))

    def payload(self, stream: str) -> str:
        """The port of a stream's beats."""
        return stream if stream in self._ports else f"{stream}__payload"

    def storage(self, name: str) -> int:
        """Bytes of a port."""
        width = self._ports[name]["width"]
        return next((size for size in (1, 2, 4, 8) if width <= 8 * size), -(-width // 32) * 4)

    def bytes_of(self, name: str, values: Sequence[int] | np.ndarray) -> bytes:
        """Values of a port as Verilator stores them. Raises ValueError: one that the port's bits cannot hold."""
        size, width = self.storage(name), self._ports[name]["width"]
        if isinstance(values, np.ndarray) and values.ndim == 2:
            if values.dtype != np.uint8 or values.shape[1] != size:
                raise ValueError(f"a beat of {name} has {size} bytes, not {values.shape[1]} of {values.dtype}")
            above = np.frombuffer(((1 << 8 * size) - (1 << width)).to_bytes(size, "little"), np.uint8)
            suspects = values[(values & above).any(axis=1)]
            _check(name, width, (int.from_bytes(row.tobytes(), "little") for row in suspects))
            return values.tobytes()
        words = [int(value) for value in values]
        _check(name, width, words)
        return b"".join(word.to_bytes(size, "little") for word in words)

    def binding(self) -> str:
        """bind.h: where the player finds them in the Verilated top."""
        def pin(name: str) -> str:
            return f"{{&{_at(name)}, {self.storage(name)}}}"

        def end(name: str) -> str:
            return f"&{_at(name)}" if name in self._ports else "nullptr"

        lines = [f"static CData& {role}(Vtop& top) {{ return {_at(name)}; }}"
                 for role, name in zip(("clock", "reset"), self._clocking, strict=True)]
        for role, names in (("inputs", self.inputs), ("outputs", self.outputs)):
            streams = ",\n        ".join(
                f"{{{pin(self.payload(name))}, {end(f'{name}__valid')}, {end(f'{name}__ready')}}}" for name in names)
            lines.append(f"static std::vector<Stream> {role}(Vtop& top) {{\n    return {{{streams}}};\n}}")
        for role, names in (("plain", self.plain), ("shown", self.shown)):
            pins = ",\n        ".join(pin(name) for name in names)
            lines.append(f"static std::vector<Pin> {role}(Vtop& top) {{\n    return {{{pins}}};\n}}")
        return "\n".join([*lines, ""])


def _at(name: str) -> str:
    return "top." + name.replace("__", "___05F")    # as Verilator writes two underscores


def _check(name: str, width: int, values: Iterable[int]) -> None:
    for value in values:
        if value >> width:
            raise ValueError(f"{name} has {width} bits, which do not hold {value:#x}")


def _numbers(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values) + 1}Q", len(values), *values)


def _parts(data: bytes) -> list[np.ndarray]:
    """What the player wrote: parts with their sizes before them."""
    parts, at = [], 0
    while at < len(data):
        size, = struct.unpack_from("<Q", data, at)
        parts.append(np.frombuffer(data, np.uint8, size, at + 8))
        at += 8 + size
    return parts
