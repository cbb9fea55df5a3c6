"""A core's Verilog as it is handed to others: module names that nobody else has, a banner, a file list, a FuseSoC core.

Inside, equal parts of different cores are one module with one name; a design that takes two cores, or has modules of
its own, needs names that do not meet. What is handed out is the same text but for these names and the banner.
"""

import json
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

LICENCE = "Apache-2.0"


def _renamed(name: str, top: str) -> str:
    return name if name == top else f"{top}_{name}"


def delivered(texts: Mapping[str, str], top: str, about: str) -> dict[str, str]:
    """The files of a core by name, `top`_ before every module's and file's name but the top's own.

    Parameters  texts: as gen.rtl.verilog.convert gives them; top: the top module; about: which core, for the banner
    """
    names = "|".join(sorted((re.escape(file.removesuffix(".v")) for file in texts), key=len, reverse=True))
    # At the begin of a module, and where it is used; `\\name.part ` is a module that only `name` uses.
    use = re.compile(rf"(?m)^(module |  )(\\?)({names})(?=[ (.])")
    head = (f"// {about}, by hotrail {version('hotrail')}. Generated: do not edit.\n"
            f"// SPDX-License-Identifier: {LICENCE}\n")
    return {f"{_renamed(file.removesuffix('.v'), top)}.v": head + use.sub(
                lambda found: f"{found[1]}{found[2]}{_renamed(found[3], top)}", text) for file, text in texts.items()}


def described(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a core with the names that `delivered` gives."""
    top = metadata["top"]
    modules = {_renamed(name, top): {**module, "instances": {
        _renamed(part, top): count for part, count in module["instances"].items()}}
        for name, module in metadata["modules"].items()}
    return {**metadata, "modules": modules, "files": [f"{name}.v" for name in sorted(modules)]}


def _leaves_first(metadata: Mapping[str, Any]) -> list[str]:
    """The modules, each behind those that it uses; as `described` names them."""
    modules, order = metadata["modules"], dict[str, None]()

    def visit(name: str) -> None:
        for part in sorted(modules[name]["instances"]):
            if part not in order:
                visit(part)
        order[name] = None

    visit(metadata["top"])
    return list(order)


def filelist(metadata: Mapping[str, Any], about: str) -> str:
    """The files for a tool's option -f (Verilator, Icarus, VCS, Questa, Xcelium), a module behind those that it uses;
    paths from the folder of the list."""
    head = f"// {about}\n// SPDX-License-Identifier: {LICENCE}\n"
    return head + "".join(f"{name}.v\n" for name in _leaves_first(metadata))


def core_file(metadata: Mapping[str, Any], preset: str, about: str) -> str:
    """The FuseSoC core of the same files (CAPI2): targets `default` and `lint`. JSON is YAML."""
    top = metadata["top"]
    release = re.match(r"\d+(\.\d+)*", version("hotrail"))
    assert release is not None
    core = {
        "name": f"hotrail:{_word(preset)}:{top}:{release[0]}",
        "description": about,
        "filesets": {"rtl": {"files": [f"{name}.v" for name in _leaves_first(metadata)], "file_type": "verilogSource"}},
        "targets": {
            "default": {"filesets": ["rtl"], "toplevel": top},
            "lint": {"filesets": ["rtl"], "toplevel": top, "default_tool": "verilator",
                     "tools": {"verilator": {"mode": "lint-only", "verilator_options": ["-Wno-fatal"]}}},
        },
    }
    return f"CAPI=2:\n# SPDX-License-Identifier: {LICENCE}\n{json.dumps(core, indent=1)}\n"


def _word(text: str) -> str:
    """A part of a core's name: letters, digits, dots, dashes and underscores."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text) or "preset"
