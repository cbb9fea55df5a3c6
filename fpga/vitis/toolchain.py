"""With AMD Vitis on PATH: from a package to the .xo and on to the .xclbin, in <core>-xo/, <core>-hw/ or <core>-hw_emu/
beside the package, each with all that it was made of.

Vivado and v++ are run as their guides say; no machine here has them, so the tests run the same commands with programs
that stand in for them. Whether AMD's own accept the package is not verified.
Source: UG1393 2022.1 and 2022.2 (v++ options, --package, emconfigutil), AMD's Vitis_Accel_Examples (every target is
linked, then packaged), UG894 (batch mode)
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fpga.vitis.check import MANIFEST, check
from fpga.vitis.flow import LINK, Package, Say, held, whole
from fpga.vitis.memory import MEMORY, PARAMETER
from fpga.vitis.scripts import SCRIPT, SOURCES
from fpga.vitis.xo import entries
from gen.base.tools import build_folder
from gen.model.platform import find as find_platform

# What each target takes. "xo" is linked for neither card nor simulation.
PROGRAMS = {"xo": ("vivado",), "hw": ("vivado", "v++"), "hw_emu": ("vivado", "v++", "emconfigutil")}
TARGETS = ("hw", "hw_emu")
# Where a target's folder has its copy of the package.
_PACKAGE = "kernel"
_VERSION_OPTION = {"vivado": "-version", "v++": "--version"}
_VERSION = re.compile(r"\bv(20\d\d\.\d)")
# Lines of the tools' output that are shown while they run: stages, and what went wrong.
_PROGRESS = re.compile(r"Run vpl: Step|Run run_link: Step|^hotrail: |^ERROR|CRITICAL WARNING")
_DEFAULT_REPOSITORY = "/opt/xilinx/platforms"


class VitisError(RuntimeError):
    """A tool failed, or made something else than it was asked for."""


class VitisMissing(VitisError):
    """Something that has to be installed; the message is what, and where the package lies."""


@dataclass(frozen=True)
class Tools:
    """What a target takes. `missing`: a sentence for all that is not there."""

    target: str
    programs: Mapping[str, Path]
    platform: Path | None
    missing: tuple[str, ...]


def find(target: str, platform: str = "") -> Tools:
    """What there is for a target: "xo", "hw" for the card, "hw_emu" for simulation on the host. platform: as
    gen.model.platform.find takes it, default: the standard shell of the SmartSSD

    Raises ValueError: the target, or the platform; ConfigError: a board's file"""
    board, shell = find_platform(platform)
    if target not in PROGRAMS:
        raise ValueError(f"target must be {', '.join(PROGRAMS)}, not {target!r}")
    tools = {name: shutil.which(name) for name in PROGRAMS[target]}
    programs = {name: Path(path) for name, path in tools.items() if path}
    if not board.vitis:
        raise ValueError(f"platform {board.name} ({board.about}): Vitis does not link for it")
    missing = [*_absent([name for name in tools if name not in programs], board.vitis),
               *_wrong_versions(programs, board.vitis)]
    xpfm = None
    if target in TARGETS:
        try:
            xpfm = _find_platform(platform if platform.endswith(".xpfm") else shell.platform)
        except VitisMissing as error:
            missing.append(str(error))
    return Tools(target, programs, xpfm, tuple(missing))


def _absent(names: list[str], versions: tuple[str, ...]) -> Iterator[str]:
    first, last = versions
    if names:
        yield (f"{' and '.join(names)} {'are' if names[1:] else 'is'} not on PATH: AMD Vitis {first} to {last} is "
               "needed, with its settings64.sh sourced")


def _wrong_versions(programs: Mapping[str, Path], versions: tuple[str, ...]) -> Iterator[str]:
    first, last = versions
    for name, option in _VERSION_OPTION.items():
        if name not in programs:
            continue
        answer = subprocess.run([programs[name], option], capture_output=True, text=True)
        known = _VERSION.search(answer.stdout + answer.stderr)
        if answer.returncode or not known:
            yield f"{programs[name]} {option} tells no version; AMD Vitis {first} to {last} is needed"
        elif not first <= known[1] <= last:
            yield f"{programs[name]} is version {known[1]}; the platform is known to Vitis {first} to {last}"


def _find_platform(platform: str) -> Path:
    """The .xpfm of a platform, by its path, or by its name in the folders of PLATFORM_REPO_PATHS, in those of the Vitis
    installation and in /opt/xilinx/platforms.

    Raises VitisMissing: it is nowhere"""
    if platform.endswith(".xpfm"):
        if Path(platform).is_file():
            return Path(platform).resolve()
        raise VitisMissing(f"there is no platform file {platform}")
    folders = [Path(text) for text in os.environ.get("PLATFORM_REPO_PATHS", "").split(os.pathsep) if text]
    if root := os.environ.get("XILINX_VITIS"):
        folders += [Path(root) / "platforms", Path(root) / "base_platforms"]
    folders.append(Path(_DEFAULT_REPOSITORY))
    for folder in folders:
        for path in (folder / f"{platform}.xpfm", folder / platform / f"{platform}.xpfm"):
            if path.is_file():
                return path.resolve()
    raise VitisMissing(f"the platform {platform} is in none of {', '.join(map(str, folders))}; install it or name its "
                       "folder in PLATFORM_REPO_PATHS")


def build(made: Package, tools: Tools, *, say: Say = print) -> Path:
    """The whole way from a package to an .xo, or to an .xclbin that is linked from one. The target's folder
    gets a copy of the package: other targets can be made meanwhile, and its package.json says what was made. What was
    there before is kept until all went well; a run that failed is kept in <folder>-new, with its logs, until the next.

    Raises VitisMissing, VitisError; Busy: another process makes it"""
    if tools.missing:
        raise VitisMissing(f"{'; '.join(tools.missing)}; the complete package lies in {made.folder}")
    meant = json.loads(made.manifest)["platform"]
    if tools.platform and tools.platform.stem != meant:
        raise VitisError(f"{made.folder} is for the platform {meant}, not for {tools.platform}")
    name = made.kernel.name
    final = f"{name}.xo" if tools.target == "xo" else f"{name}.xclbin"
    package = made.folder.resolve()     # the tools work in folders of their own
    place = package.with_name(f"{package.name}-{tools.target}")
    with whole(place, keeps=True) as folder:
        _copy(made, folder / _PACKAGE)
        _xo(made, tools, folder, say)
        if tools.target != "xo":
            _link(made, tools, folder, final, say)
    return place / final


def image(preset: str, core: str, target: str = "hw") -> Path:
    """Where `build` leaves the .xclbin of a target for the standard shell, unless the package lies elsewhere."""
    return build_folder() / preset / "vitis" / f"{core}-{target}" / f"hotrail_{core}.xclbin"


def _copy(made: Package, folder: Path) -> None:
    with held(made.folder):
        shutil.copytree(made.folder, folder)
    if (folder / MANIFEST).read_text("utf-8") != made.manifest:
        raise VitisError(f"{made.folder} was made anew by another process meanwhile: begin again")
    if faults := check(folder):
        raise VitisError(f"{made.folder} is not the package that was written: {'; '.join(faults)}")


def _xo(made: Package, tools: Tools, folder: Path, say: Say) -> None:
    """Packages the kernel with Vivado; the Verilog inside must be the package's."""
    name = f"{made.kernel.name}.xo"
    _run("xo", [str(tools.programs["vivado"]), "-mode", "batch", "-notrace", "-log", "vivado.log", "-journal",
                "vivado.jou", "-source", str(folder / _PACKAGE / SCRIPT)], folder, name, say)
    _compare(folder / name, {file: (folder / _PACKAGE / SOURCES / file).read_bytes() for file in made.kernel.files})


def _link(made: Package, tools: Tools, folder: Path, final: str, say: Say) -> None:
    """Links and packages the .xclbin, for simulation with emconfig.json beside it."""
    platform, linked = ["--platform", str(tools.platform)], f"{made.kernel.name}.link.xclbin"
    common = ["-t", tools.target, *platform, "--temp_dir", "_x", "--log_dir", "logs", "--report_dir", "reports"]
    vpp = str(tools.programs["v++"])
    script = folder / _PACKAGE / MEMORY
    # hw_emu has another block design, with models of the memory.
    hooks = ["--advanced.param", f"{PARAMETER}={script}"] if script.exists() and tools.target == "hw" else []
    _run("link", [vpp, "-l", *common, *hooks, "--config", str(folder / _PACKAGE / LINK), "--kernel_frequency",
                  str(made.clock_mhz), "-o", linked, f"{made.kernel.name}.xo"], folder, linked, say)
    _run("package", [vpp, "-p", *common, "--package.out_dir", "package", "-o", final, linked], folder, final, say)
    if tools.target == "hw_emu":
        _run("emconfig", [str(tools.programs["emconfigutil"]), *platform, "--nd", "1", "--od", "."], folder,
             "emconfig.json", say)


def _compare(path: Path, ours: Mapping[str, bytes]) -> None:
    """The Verilog in an .xo must be the package's: Vivado leaves out what it could not read."""
    try:
        inside = {name.rsplit("/", 1)[-1]: data for name, data in entries(path.read_bytes()).items()
                  if f"/{SOURCES}/" in f"/{name}" and name.endswith(".v")}
    except ValueError as error:
        raise VitisError(f"{path}: {error}") from None
    if dropped := sorted(set(ours) - set(inside)):
        raise VitisError(f"{path} lacks {', '.join(dropped)}: Vivado could not read it, see {path.parent}/logs/xo.log")
    if added := sorted(set(inside) - set(ours)):
        raise VitisError(f"{path} holds {', '.join(added)}, which the package does not have")
    if changed := sorted(name for name in ours if ours[name] != inside[name]):
        raise VitisError(f"{path}: {', '.join(changed)} is not the package's")


def _run(step: str, command: list[str], folder: Path, made: str, say: Say) -> None:
    """Runs one tool in a folder with its output in logs/<step>.log; the file `made` must be there afterwards."""
    log = folder / "logs" / f"{step}.log"
    log.parent.mkdir(exist_ok=True)
    began = time.monotonic()
    say(f"{step}: {Path(command[0]).name} begins, log in {log}")
    with log.open("w") as out, subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                                stdin=subprocess.DEVNULL, text=True, errors="replace") as run:
        out.write(" ".join(command) + "\n")
        assert run.stdout is not None
        for line in run.stdout:
            out.write(line)
            out.flush()
            if _PROGRESS.search(line):
                say(f"{step}: {line.rstrip()}")
    if run.returncode or not (folder / made).exists():
        end = "\n".join(f"  {line}" for line in log.read_text("utf-8", errors="replace").splitlines()[-20:])
        why = f"ended with code {run.returncode}" if run.returncode else f"made no {made}"
        raise VitisError(f"{step}: {Path(command[0]).name} {why}; the end of {log}:\n{end}")
    seconds = int(time.monotonic() - began)
    say(f"{step}: {made} after {seconds // 60}:{seconds % 60:02d} min")
