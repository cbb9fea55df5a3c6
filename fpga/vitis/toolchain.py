"""With AMD Vitis on PATH: from a package to the .xo and on to the .xclbin.

Vivado and v++ are run as their guides say; no machine here has them, so the tests run the same commands with programs
that stand in for them. Whether AMD's own accept the package is not verified.
Source: UG1393 2022.1 and 2022.2 (v++ options, --package, emconfigutil), AMD's Vitis_Accel_Examples (every target is
linked, then packaged), UG894 (batch mode)
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from fpga.vitis.checks.archive import entries
from fpga.vitis.flow import LINK, Package, whole
from fpga.vitis.scripts import SCRIPT, SOURCES
from fpga.vitis.shells import card
from gen.tools import build_folder

__all__ = ["TARGETS", "VitisError", "VitisMissing", "bitstream", "find_platform", "find_tools", "image", "xo"]

TARGETS = ("hw", "hw_emu")
_VERSION = re.compile(r"\bv(20\d\d\.\d)")
# Lines of the tools' output that are shown while they run: stages, and what went wrong.
_PROGRESS = re.compile(r"Run vpl: Step|Run run_link: Step|^hotrail: |^ERROR|CRITICAL WARNING")
_DEFAULT_REPOSITORY = "/opt/xilinx/platforms"
Say = Callable[[str], None]


class VitisError(RuntimeError):
    """A tool failed, or made something else than it was asked for."""


class VitisMissing(VitisError):
    """Something that has to be installed; the message is what, and where the package lies."""


def find_tools(names: tuple[str, ...]) -> dict[str, Path]:
    """The programs on PATH, every version one that knows the platform.

    Raises VitisMissing: a program is missing or of another version"""
    first, last = card().vitis
    found = {}
    for name in names:
        path = shutil.which(name)
        if path is None:
            raise VitisMissing(f"{name} is not on PATH: AMD Vitis {first} to {last} is needed, with its settings64.sh "
                               "sourced")
        found[name] = Path(path)
    for name in [name for name in names if name in ("vivado", "v++")]:
        option = "-version" if name == "vivado" else "--version"
        told = subprocess.run([found[name], option], capture_output=True, text=True)
        known = _VERSION.search(told.stdout + told.stderr)
        if told.returncode or not known:
            raise VitisMissing(f"{found[name]} {option} tells no version; AMD Vitis {first} to {last} is needed")
        if not first <= known[1] <= last:
            raise VitisMissing(f"{found[name]} is version {known[1]}; the platform is known to Vitis {first} to {last}")
    return found


def find_platform(platform: str) -> Path:
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


def xo(made: Package, *, say: Say = print) -> Path:
    """Packages the kernel with Vivado: <core>-xo/hotrail_<core>.xo beside the package, its Verilog compared with ours.

    Raises VitisMissing, VitisError"""
    tools = _needed(made, ("vivado",))
    made = _absolute(made)
    return _xo(made, tools["vivado"], say)


def bitstream(made: Package, target: str, platform: str, *, say: Say = print) -> Path:
    """The whole way to an .xclbin for the card ("hw") or for simulation on the host ("hw_emu", with emconfig.json
    beside it), in <core>-<target>/ beside the package.

    Raises VitisMissing, VitisError; ValueError: the target"""
    if target not in TARGETS:
        raise ValueError(f"target must be {' or '.join(TARGETS)}, not {target!r}")
    tools = _needed(made, ("vivado", "v++", *(("emconfigutil",) if target == "hw_emu" else ())), platform)
    xpfm = find_platform(platform)
    made = _absolute(made)
    packaged = _xo(made, tools["vivado"], say)
    linked, final = f"{made.kernel.name}.link.xclbin", f"{made.kernel.name}.xclbin"
    common = ["-t", target, "--platform", str(xpfm), "--temp_dir", "_x", "--log_dir", "logs", "--report_dir", "reports"]
    with _beside(made, target) as folder:
        _run("link", [str(tools["v++"]), "-l", *common, "--config", str(made.folder / LINK), "--kernel_frequency",
                      str(made.clock_mhz), "-o", linked, str(packaged)], folder, linked, say)
        _run("package", [str(tools["v++"]), "-p", *common, "--package.out_dir", "package", "-o", final, linked], folder,
             final, say)
        if target == "hw_emu":
            _run("emconfig", [str(tools["emconfigutil"]), "--platform", str(xpfm), "--nd", "1", "--od", "."], folder,
                 "emconfig.json", say)
    return _place(made, target) / final


def image(preset: str, core: str, target: str = "hw") -> Path:
    """Where `bitstream` leaves the .xclbin of a target for the standard shell, unless the package lies elsewhere."""
    return build_folder() / preset / "vitis" / f"{core}-{target}" / f"hotrail_{core}.xclbin"


def _needed(made: Package, names: tuple[str, ...], platform: str = "") -> dict[str, Path]:
    """The tools and the platform, or one sentence that also says where the package lies."""
    try:
        found = find_tools(names)
        if platform:
            find_platform(platform)
        return found
    except VitisMissing as error:
        raise VitisMissing(f"{error}; the complete package lies in {made.folder}") from None


def _absolute(made: Package) -> Package:
    """The tools work in folders of their own."""
    return replace(made, folder=made.folder.resolve())


def _place(made: Package, what: str) -> Path:
    return made.folder.parent / f"{made.folder.name}-{what}"


def _beside(made: Package, what: str) -> AbstractContextManager[Path]:
    """<core>-<what>-new, which becomes <core>-<what> when the block ends well. What was made there before is kept until
    then; a folder whose run failed stays as it is, with its logs, until the next run."""
    return whole(_place(made, what), _place(made, f"{what}-new"))


def _xo(made: Package, vivado: Path, say: Say) -> Path:
    name = f"{made.kernel.name}.xo"
    with _beside(made, "xo") as folder:
        _run("xo", [str(vivado), "-mode", "batch", "-notrace", "-log", "vivado.log", "-journal", "vivado.jou",
                    "-source", str(made.folder / SCRIPT)], folder, name, say)
        _compare(folder / name, made)
    return _place(made, "xo") / name


def _compare(path: Path, made: Package) -> None:
    """The Verilog in an .xo must be the package's: Vivado leaves out what it could not read."""
    try:
        inside = {name.rsplit("/", 1)[-1]: data for name, data in entries(path.read_bytes()).items()
                  if f"/{SOURCES}/" in f"/{name}" and name.endswith(".v")}
    except ValueError as error:
        raise VitisError(f"{path}: {error}") from None
    ours = {name: (made.folder / SOURCES / name).read_bytes() for name in made.kernel.files}
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
        end = "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-20:])
        why = f"ended with code {run.returncode}" if run.returncode else f"made no {made}"
        raise VitisError(f"{step}: {Path(command[0]).name} {why}; the end of {log}:\n{end}")
    seconds = int(time.monotonic() - began)
    say(f"{step}: {made} after {seconds // 60}:{seconds % 60:02d} min")
