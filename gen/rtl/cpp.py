"""Compiles and links the C++ that Verilator writes for a model.

Most of the time of a small model goes into what all models have in common, so that is compiled once, checked and kept
in the cache: Verilator's runtime, and its headers, precompiled for each set of flags. The model itself is put together
into a few compile units, as many as there are compiler processes: each costs the reading of the headers.
"""

import hashlib
import json
import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gen.base import kept
from gen.base.tools import call, compiler, environment, needed, versions
from gen.base.tools import verilator as find_verilator

#: What takes a minute and more, as it begins.
BEGUN = logging.getLogger("hotrail.building")
# One runtime serves programs and shared libraries.
RUNTIME_FLAGS = ("-Og", "-fPIC", "-fno-gnu-unique", "-fno-semantic-interposition")
LIBRARY_FLAGS = ("-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-fno-semantic-interposition")
# KB that the compiler takes before it looks for garbage: a sixth of the time of a large model.
COMPILER_FLAGS = ("--param", "ggc-min-heapsize=524288")
# Compile units are no larger than this and, of several, no smaller.
UNIT_BYTES = (1 << 18, 6 << 20)
HEADER = "common.h"
# Verilator's own (5.048) counts what changes in a word of a wide signal in all words above as well.
COVERAGE = """#include <algorithm>
#include "verilated_cov.h"
static inline void count_toggles(const int width, uint32_t* counts, WDataInP now, WDataInP before) {
    for (int i = 0; i < VL_WORDS_I(width); i++)
        if (now[i] != before[i])
            VL_COV_TOGGLE_CHG_ST_I(std::min<int>(width - i * VL_EDATASIZE, VL_EDATASIZE),
                                   counts + 2 * VL_EDATASIZE * i, now[i], before[i]);
}
#define VL_COV_TOGGLE_CHG_ST_W count_toggles
"""
# Parts that this process has made or compared with their digests, as they were then: a header is 75 MB.
_CHECKED: dict[Path, tuple[int, ...]] = {}


@cache
def model_flags() -> tuple[str, ...]:
    """For all that a model is compiled from, so that libraries and programs share precompiled headers: several models
    live in one process and must not see each other's symbols; and instructions of this machine that a model gains from,
    counting and picking bits and wide moves."""
    wanted = {"popcnt": "-mpopcnt", "bmi1": "-mbmi", "bmi2": "-mbmi2", "avx2": "-mavx2"}
    cpu = Path("/proc/cpuinfo")
    listed = re.search(r"(?m)^flags\s*:(.*)$", cpu.read_text("utf-8")) if cpu.exists() else None
    has = set(listed.group(1).split()) if listed and platform.machine() == "x86_64" else set()
    return (*LIBRARY_FLAGS, *(wanted.values() if has >= wanted.keys() else ()))


def library(name: str, source: Path, read: Sequence[Path], flags: Sequence[str], *, cache: Path
            ) -> tuple[Path, float, bool]:
    """A shared library of one C++ file, compiled once for the same texts; the seconds that took, and whether it was
    there. read: what the file includes.

    Raises      RuntimeError: with what the compiler says
    """
    texts = [(file.name, file.read_text("utf-8")) for file in (source, *read)]
    digest = hashlib.sha256(repr((texts, tuple(flags), compiler())).encode()).hexdigest()[:16]
    folder = cache / f"{name}-{digest}"
    path, start = folder / f"{name}.so", time.monotonic()
    with kept.locked(cache / "locks" / folder.name):
        if stamp := kept.stamped(folder):
            return path, stamp["build_seconds"], True
        folder.mkdir(parents=True, exist_ok=True)
        BEGUN.info("building   %s, with g++: once, for all runs to come", name)
        done = call(["g++", *flags, "-shared", "-fPIC", str(source), "-o", str(path)], stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT)
        if done.returncode:
            raise RuntimeError(f"compiling {source.name} failed:\n{done.stdout[-2000:]}")
        seconds = time.monotonic() - start
        kept.stamp(folder, [path.name], {"build_seconds": seconds})
    return path, seconds, False


@dataclass(frozen=True)
class Options:
    """How a model is compiled. target: file name of what is linked; opt: the optimisation of what runs every cycle, the
    rest has none; ldflags: for the linker; common: (file name, text) of C++ that knows nothing
    of the model, compiled once for all with such."""

    target: str
    opt: str = "-O1"
    ldflags: str = ""
    common: tuple[tuple[str, str], ...] = ()


def run(command: Sequence[str], log: Path, cwd: Path, **variables: str) -> None:
    """Runs a tool, with these variables in its environment; RuntimeError names the reason for which it failed and the
    end of its log."""
    with open(log, "a") as out:
        out.write("$ " + shlex.join(command) + "\n")
        out.flush()
        env = environment() | variables
        code = call(list(command), cwd=cwd, env=env, stdout=out, stderr=subprocess.STDOUT).returncode
    if code:
        lines = log.read_text("utf-8", errors="replace").splitlines()
        errors = [line for line in lines if "error" in line.lower() and not line.startswith("$ ")]
        reason = next((line for line in lines if "No space left" in line), errors[0] if errors else f"code {code}")
        end = "\n".join(lines[-40:])
        raise RuntimeError(f"building the simulation model failed ({shlex.join(command[:2])} ...): {reason}\n{end}")


@dataclass(frozen=True)
class _Rule:
    """A file in a folder, and the shell's line that makes it there, of texts (file name, text) put beside it."""

    folder: Path
    file: str
    command: str
    texts: Sequence[tuple[str, str]] = ()


def _jobs() -> int:
    """Compiler processes: the machine's, shared out among pytest's workers."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, (os.cpu_count() or 1) // workers)


def _make(rules: Sequence[_Rule], log: Path) -> None:
    """Makes the files, as many at a time as the machine has processors for."""
    lines = [f".PHONY: all {(names := ' '.join(str(number) for number in range(len(rules))))}", f"all: {names}"]
    for number, rule in enumerate(rules):
        line = f"cd {shlex.quote(str(rule.folder))} && {rule.command}"
        lines += [f"{number}:", "\t" + line.replace("$", "$$")]
    makefile = log.with_name("Makefile")
    makefile.write_text("\n".join([*lines, ""]), "utf-8")
    run(["make", "-f", str(makefile), f"-j{_jobs()}"], log, cwd=log.parent)


def compile_model(objects: Path, sources: Sequence[Path], options: Options, *, cache: Path, log: Path) -> None:
    """Compiles the Vtop*.cpp that Verilator wrote to `objects` and `sources`, and links them there.

    Parameters  cache: the folder that holds what models have in common; log: a file in the model's folder
    Raises      RuntimeError: with the end of the log, or what is missing
    """
    needed("make", "make")
    listed = (objects / "Vtop_classes.mk").read_text("utf-8")
    include = find_verilator()[1] / "include"
    switches = re.findall(r"(?m)^(VM_(?:TIMING|COVERAGE|TRACE\w*)) = (\d)", listed)
    flags = ("-I.", f"-I{include}", f"-I{include / 'vltstd'}", "-DVERILATOR=1", "-DVM_SC=0",
             *(f"-D{name}={value}" for name, value in switches))
    # The runtime is the same whatever is traced.
    plain = tuple(flag for flag in flags if not flag.startswith("-DVM_TRACE"))
    parts = [include / f"{name}.cpp" for name in re.findall(r"(?m)^ +(\w+) \\$", listed)]
    runtime = [_runtime(part, flags if part.stem.endswith("_fst_c") else plain, cache)
               for part in parts if part.exists()]
    # What runs every cycle is optimised, what runs once is not.
    files = [*sources, *sorted(objects.glob("Vtop*.cpp"))]
    once = [file for file in files if file.stem.endswith("__Slow") and options.opt != "-O0"]
    often = [file for file in files if file not in once]
    headers, units = [], []
    for kind, opt, chosen in (("often", options.opt, often), ("once", "-O0", once)):
        settings = (opt, *flags, *model_flags())
        header = _header(settings, cache)
        if chosen:
            headers.append(header)
        for number, group in enumerate(_groups(chosen)):
            unit = f"{kind}{number}"
            (objects / f"{unit}.cc").write_text("".join(f'#include "{file}"\n' for file in group), "utf-8")
            command = ["g++", *settings, *COMPILER_FLAGS, "-include", str(header.folder / HEADER), "-c", f"{unit}.cc"]
            units.append(_Rule(objects, f"{unit}.o", shlex.join(command)))
    common = [_common("common", f"{name}.o", shlex.join(["g++", "-O2", *model_flags(), "-c", name, "-o",
                                                         f"{name}.o"]), cache, options.common)
              for name, _ in options.common if name.endswith(".cpp")]
    _keep([*headers, *runtime, *common], cache, log)
    _make(units, log)
    libraries = ["-llz4", "-lz"] if ("VM_TRACE_FST", "1") in switches else []
    objects_of = [str(part.folder / part.file) for part in common]
    run(["g++", "-o", options.target, *(unit.file for unit in units), *objects_of,
         "-Wl,--start-group", *(str(part.folder / part.file) for part in runtime), "-Wl,--end-group",
         *shlex.split(options.ldflags), *libraries, "-pthread"], log, cwd=objects)


def _groups(files: Sequence[Path]) -> list[list[Path]]:
    """Files of one compile unit each: as many groups of about equal size as compilers run, fewer where it is small."""
    sizes = {file: file.stat().st_size for file in files}
    total = sum(sizes.values())
    least, most = UNIT_BYTES
    groups: list[list[Path]] = [[] for _ in range(max(1, min(_jobs(), total // least), -(-total // most)))]
    for file in sorted(files, key=lambda file: -sizes[file]):
        min(groups, key=lambda group: sum(sizes[held] for held in group)).append(file)
    return [group for group in groups if group]


def _runtime(part: Path, flags: Sequence[str], cache: Path) -> _Rule:
    """A part of Verilator's runtime, compiled; an archive, so that a linker may hide what it brings."""
    library = f"lib{part.stem}.a"
    compiled = shlex.join(["g++", *RUNTIME_FLAGS, *flags, "-c", "-o", "part.o", str(part)])
    return _common("runtime", library, f"{compiled} && ar -rcs {library} part.o && rm part.o", cache)


def _header(settings: Sequence[str], cache: Path) -> _Rule:
    """The header that units with these settings include first, precompiled: g++ takes what lies beside the text."""
    text = "".join(f'#include "verilated{part}.h"\n' for part in ("", "_dpi", "_vpi"))
    if "-DVM_COVERAGE=1" in settings:
        text += COVERAGE
    return _common("header", f"{HEADER}.gch", shlex.join(["g++", *settings, "-x", "c++-header", HEADER]), cache,
                   [(HEADER, text)])


def _common(name: str, file: str, command: str, cache: Path, texts: Sequence[tuple[str, str]] = ()) -> _Rule:
    """What models have in common, in a folder of the cache that the command, the texts and the tools decide about."""
    digest = hashlib.sha256(json.dumps([versions(), command, *texts]).encode()).hexdigest()[:16]
    return _Rule(cache / f"{name}-{digest}", file, command, texts)


def _keep(parts: Sequence[_Rule], cache: Path, log: Path) -> None:
    """Makes what is not there or not as it was made, as many at a time as compilers run.

    Processes that begin at the same time begin with different parts, so that few wait for another's."""
    first, jobs = os.getpid() % len(parts), _jobs()
    rotated = [*parts[first:], *parts[:first]]
    for start in range(0, len(rotated), jobs):
        some = sorted(rotated[start:start + jobs], key=lambda part: part.folder)
        with ExitStack() as locks:
            for part in some:
                locks.enter_context(kept.locked(cache / "locks" / part.folder.name))
            missing = [part for part in some if not ((seen := _seen(part)) and _CHECKED.get(part.folder) == seen
                                                     or kept.stamped(part.folder))]
            for part in missing:
                shutil.rmtree(part.folder, ignore_errors=True)
                part.folder.mkdir(parents=True)
                for text_file, text in part.texts:
                    (part.folder / text_file).write_text(text, "utf-8")
            if missing:
                _make(missing, log)
            for part in missing:
                kept.stamp(part.folder, [part.file], {})
            _CHECKED.update({part.folder: _seen(part) for part in some})


def _seen(part: _Rule) -> tuple[int, ...]:
    """By what a file that was looked into is known to be the same; nothing where there is none."""
    try:
        state = (part.folder / part.file).stat()
    except OSError:
        return ()
    return state.st_ino, state.st_size, state.st_mtime_ns
