"""Builds Verilator models: the cache, and the compilers.

What a model is built into is the caller's: a simulator that cocotb drives (verif.bench.runner) or a shared
library with a harness of its own (fpga.card). Models are cached under build/sim by a digest of their Verilog,
the flags (the machine's instructions among them), the C++ sources, the tools and the system; what models have in
common is compiled once (gen.rtl.cpp). What is taken from the cache is checked, and built again where it is not what was
built (gen.base.kept).
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from gen.base import kept
from gen.base.tools import build_folder, versions
from gen.base.tools import verilator as find_verilator
from gen.rtl import cpp, powerup, primitives, redraw, verilog

ROOT = Path(__file__).resolve().parents[2]
CACHE = build_folder() / "sim"
# Warnings are the lint's business (`make lint`); a model is built from what passed there.
QUIET = ("-Wno-fatal", "-Wno-lint", "-Wno-style", "-Wno-UNOPTFLAT")


@dataclass(frozen=True)
class Built:
    """A built model: `target` is what was asked for, `build_seconds` what it cost when it was built."""

    folder: Path
    target: Path
    build_seconds: float
    cached: bool


def build(
    texts: Mapping[str, str],
    top: str,
    name: str,
    *,
    target: str,
    arguments: Sequence[str],
    visible: Sequence[str] = (),
    memories: Sequence[str] = (),
    sources: Mapping[str, str] | None = None,
    common: Mapping[str, str] | None = None,
    ldflags: str = "",
    opt: str = "-O1",
    random: bool = True,
    asserts: bool = False,
    redrawn: bool = False,
    fresh: bool = False,
) -> Built:
    """A model from Verilog texts, from the cache when one with the same content was built before.

    Its registers and memories begin without the initial values of the Verilog (gen.rtl.powerup): at random when a run
    has a seed (+verilator+rand+reset+2, +verilator+seed+n; `randReset(2)` and `randSeed(n)` in C++), else zero.

    Parameters  texts: Verilog by file name; top: the top module; name: for the folder's name, people read it;
                target: file name of what is linked; arguments: for Verilator besides those that every model
                has; visible: ports of the top that something other than the model's own class reaches; memories:
                names, with wildcards, of memories in any part of the design that it writes to;
                sources: C++ texts by file name, compiled and linked with the model (.cpp) or put beside it;
                common: the same of what knows nothing of the model, compiled once for all models;
                ldflags: for the linker; opt: the C++ optimisation of the design's own code; random: as above, else
                it begins as the Verilog says; asserts: assertions of the Verilog end a run; redrawn: the
                program has redraw.FUNCTION; fresh: build again what is in the cache, to measure how long it takes
    Raises      RuntimeError: with the end of the tool's log, or what is missing
    """
    sources = sources or {}
    texts = {**texts, **primitives.models(texts)}
    texts = powerup.random(texts) if random else texts
    inputs = _inputs_of_parts(texts)
    flags = [
        "--cc",
        "--prefix",
        "Vtop",
        "--top-module",
        top,
        "-O3",
        "--assert" if asserts else "--no-assert",
        "--x-assign",
        "unique",
        "--x-initial",
        "unique",
        *QUIET,
        # Of a model that is not optimised it makes more for the compiler than it saves when it runs.
        *(["-fno-dfg"] if inputs or opt == "-O0" else []),
        *(["-fno-table"] if inputs else []),
        *arguments,
    ]
    if redrawn:
        ldflags += f" -Wl,--export-dynamic-symbol={redraw.FUNCTION}"
    options = cpp.Options(target, opt, ldflags, tuple(sorted((common or {}).items())))
    content = [sorted(texts.items()), sorted(sources.items()), flags, sorted(visible), sorted(memories),
               astuple(options), cpp.model_flags(), versions(), Path(redraw.__file__).read_text("utf-8") * redrawn]
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    folder = CACHE / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}-{digest}"
    with kept.locked(CACHE / "locks" / digest):
        # The name is for people: the same content may have been built under another one.
        for held in [] if fresh else [folder, *CACHE.glob(f"*-{digest}")]:
            if stamp := kept.stamped(held):
                return Built(held, held / "obj" / target, stamp["build_seconds"], True)
        start = time.monotonic()
        cpp.BEGUN.info("building   %s, with Verilator: once, for all runs to come", name)
        try:
            _clear(folder)
            _make(folder, texts, sources, top, flags, visible, memories, inputs, options, redrawn)
            seconds = time.monotonic() - start
            _clear(folder / "obj", but=target)      # objects and precompiled headers: ten times what is linked of them
            kept.stamp(folder, [f"obj/{target}"],
                       {"build_seconds": seconds, "flags": flags, "opt": opt, "tools": versions()})
        except OSError as error:
            raise RuntimeError(f"the simulation model {name} cannot be built in {CACHE}: {error}; HOTRAIL_BUILD names "
                               "another folder than build/") from None
        finally:
            if not (folder / kept.STAMP).exists():
                shutil.rmtree(folder / "obj", ignore_errors=True)
        return Built(folder, folder / "obj" / target, seconds, False)


def _clear(folder: Path, but: str = "runs") -> None:
    """Empties a folder, its stamp first, but for one thing: simulations may be running in `runs`."""
    there = list(folder.iterdir()) if folder.exists() else []
    for item in sorted(there, key=lambda item: item.name != kept.STAMP):
        if item.name != but:
            shutil.rmtree(item) if item.is_dir() else item.unlink()


def _make(folder: Path, texts: Mapping[str, str], sources: Mapping[str, str], top: str, flags: list[str],
          visible: Sequence[str], memories: Sequence[str], inputs: list[tuple[str, str]], options: cpp.Options,
          redrawn: bool) -> None:
    """Writes the sources of a model and compiles them."""
    source = folder / "verilog"
    source.mkdir(parents=True)
    for file, text in {**texts, **sources}.items():
        (source / file).write_text(text, "utf-8")
    # Only what is named here can be seen from outside: a model with everything public is up to four times slower.
    (source / "ports.vlt").write_text(
        "`verilator_config\n"
        + "".join(f'public_flat_rw -module "{top}" -var "{port}"\n' for port in visible)
        + "".join(f'public_flat_rw -module "*" -var "{memory}"\n' for memory in memories)
        + "".join(f'public_flat_rd -module "{part}" -var "{port}"\n' for part, port in inputs), "utf-8"
    )
    units = [source / file for file in sorted(sources) if file.endswith(".cpp")]
    _verilate(folder, source, flags, ["ports.vlt", *sorted(texts)])
    if redrawn:
        units.append(source / "redraw.cpp")
        units[-1].write_text(redraw.source(texts, top, folder / "obj"), "utf-8")
    cpp.compile_model(folder / "obj", units, options, cache=CACHE, log=folder / "build.log")


def _inputs_of_parts(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """(module, input) of every part that is placed many times; its clock and reset, `clk` and `rst`, are left out.

    Verilator writes equal code once for all places of a part, but only if the code is equal: it must read
    its own inputs, not whatever neighbour drives them, and share the names of its temporaries. So these
    inputs are declared visible and the two optimisations that number temporaries over the whole design are
    left out; an array of 512 cells then builds and runs five times faster.
    """
    inputs = []
    for file, text in sorted(texts.items()):
        if verilog.NO_INLINE in text:
            part = file.removesuffix(".v")
            inputs += [(part, port) for port in re.findall(r"(?m)^\s*input (?:\[\d+:\d+\] )?(\w+);", text)
                      if port not in ("clk", "rst")]
    return inputs


def _verilate(folder: Path, source: Path, flags: list[str], files: list[str]) -> None:
    binary, _ = find_verilator()
    # Verilator's tree is millions of small pieces: glibc keeps all that are free at hand, a sixth of the time less.
    tunables = ["glibc.malloc.tcache_count=65535", *filter(None, [os.environ.get("GLIBC_TUNABLES")])]
    cpp.run([str(binary), *flags, "--Mdir", str(folder / "obj"), *files], folder / "build.log", cwd=source,
            GLIBC_TUNABLES=":".join(tunables))
