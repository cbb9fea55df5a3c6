"""Tries every mutation and tells by which check it was found: the tables of docs/vitis-checks.md.

    python -m tests.mutations.survey [--all]        writes the tables; --all: those of blind changes too, ten minutes
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from unittest import mock

from fpga.synth.depth import Depth
from fpga.synth.map import Area, Report
from fpga.vitis import flow
from fpga.vitis.check import Finding, findings
from tests.mutations import folder, fuzz, headers, metadata, scripts, verilog
from tests.mutations.changes import Mutation
from tests.support.vitis_kernels import prepared

PAGE = Path(__file__).parents[2] / "docs" / "vitis-checks.md"
MUTATIONS: tuple[Mutation, ...] = (
    *verilog.VERILOG, *metadata.KERNEL_XML, *metadata.COMPONENT_XML, *scripts.TCL, *scripts.LINK_CFG,
    *headers.C_HEADER, *headers.PYTHON_HEADER, *headers.REFERENCE, *headers.HOST_FILE, *folder.PACKAGE_JSON,
    *folder.XO_FILE, *folder.FOLDER)
# Blind changes are tried one in so many by the tests, all of them by this program.
STEPS = {"kernel.xml": 8, "component.xml": 180, "package.tcl": 40, "link.cfg": 1, "hotrail_emb.h": 60,
         "hotrail_emb.py": 8, "emb.md": 8, "host.cpp": 8, "package.json": 4, "xgui": 1, "control slave": 80}
ALL = {"control slave": 4}      # one in so many even then: a second each


def package(core: str, out: Path) -> Path:
    """A sound package of the tiny preset's core, as `hotrail package` writes it; the gate's figures are made up."""
    depth, ports = Depth(6, 1, ("in Part", "a.Q (FDRE)", "b.D (FDRE)")), Depth(4, 1, ("a", "b.D (FDRE)"))
    report = Report(f"hotrail_{core}", Area(lut=1000, ff=2000, dsp=10, bram36=7.5, uram=80), {}, depth, depth, ports)
    with (mock.patch.object(flow, "prepare", lambda preset, core: prepared(core)),
          mock.patch.object(flow.gates, "measure", lambda kernel, texts, say: report)):
        return flow.package("tiny", core, experimental_xo=True, out=out).folder


def attempt(mutation: Mutation, sound: Path, work: Path) -> list[Finding]:
    """What the checker says of a copy of `sound` with the mutation."""
    place = work / "package"
    shutil.copytree(sound, place)
    try:
        mutation.apply(place)
        return findings(place)
    finally:
        shutil.rmtree(place)


def blamed(mutation: Mutation, found: Iterable[Finding]) -> list[Finding]:
    """Those findings that name the file at fault."""
    return [finding for finding in found if any(fnmatch(finding.file, one) for one in mutation.file.split("|"))]


def file_of(mutation: Mutation) -> str:
    """The file at fault, as the table names it."""
    return " or ".join(f"`{one}`" for one in mutation.file.split("|"))


def rows(outcomes: Sequence[tuple[Mutation, list[Finding]]], sentences: bool) -> list[str]:
    """The table of mutations, with or without a sentence each."""
    head = "| mutation | file | found by |" + (" sentence |" if sentences else "")
    out = [head, "| --- " * (head.count("|") - 1) + "|"]
    for mutation, found in outcomes:
        by = ", ".join(dict.fromkeys(finding.by for finding in blamed(mutation, found))) or "**not found**"
        row = f"| {mutation.name} | {file_of(mutation)} | {by} |"
        if sentences:
            first = (blamed(mutation, found) or [Finding("", "")])[0].text
            row += f" {first.replace('|', chr(92) + '|')} |"
        out.append(row)
    return out


def between(text: str, name: str, new: Iterable[str]) -> str:
    """The page with what stands between the marks of `name` replaced."""
    begin, end = f"<!-- {name} begin -->\n", f"<!-- {name} end -->"
    body = "\n".join(new) + "\n"
    out, count = re.subn(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: begin + body + end, text, flags=re.S)
    if count != 1:
        raise LookupError(f"{PAGE.name} has no place for {name}")
    return out


def blind(sound: Path) -> list[str]:
    """The table of blind changes, all of them."""
    out = ["| file | changes | not found | what these are |", "| --- | --- | --- | --- |"]
    every = unfound = 0
    for name in STEPS:
        tried, left = fuzz.unseen(sound, name, ALL.get(name, 1))
        strange = [where for where in left if not re.match(fuzz.HARMLESS[name][0], where)]
        print(f"{name}: {tried} changes, {len(left)} not found, {fuzz.cpu():.0f} s", *strange, sep="\n    ", flush=True)
        out.append(f"| {name} | {tried:,} | {len(left)} | {fuzz.HARMLESS[name][1] if left else '-'} |")
        every, unfound = every + tried, unfound + len(left)
    return [*out, f"| all | {every:,} | {unfound} | |"]


def main() -> None:
    with tempfile.TemporaryDirectory() as work:
        sound = package("emb", Path(work))
        text = PAGE.read_text()
        outcomes = [(mutation, attempt(mutation, sound, Path(work))) for mutation in MUTATIONS]
        text = between(text, "mutations", rows(outcomes, sentences=False))
        if "--all" in sys.argv:
            text = between(text, "blind changes", blind(sound))
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
