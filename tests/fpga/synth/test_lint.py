"""The Verilog checks see what they are there for, and waivers neither hide more nor outlive their reason."""

import pytest

from fpga.synth import lint
from gen.rtl.config import Preset, load, names
from gen.rtl.verilog import emit
from hw.stream.skid_buffer import SkidBuffer
from tests.support.command import call

CLEAN = """module unit(clk, a, o);
  input clk;
  input [3:0] a;
  output [3:0] o;
  reg [3:0] o;
  always @(posedge clk) o <= a;
endmodule
"""


def findings(tmp_path, text, accepted=()):
    path = tmp_path / "unit.v"
    path.write_text(text, "utf-8")
    return lint.check([path], "unit", list(accepted))


def test_clean(tmp_path):
    assert findings(tmp_path, CLEAN) == []


@pytest.mark.parametrize(
    "old, new, tool, name",
    [
        ("o <= a;", "o <= a[2:0];", "verilator", "WIDTHEXPAND"),
        ("o <= a;", "o <= missing;", "verilator", "error"),
        ("always @(posedge clk) o <= a;", "always @(posedge clk) o <= a;\n  always @(posedge clk) o <= ~a;",
         "yosys", "error"),
        ("always @(posedge clk) o <= a;", "wire [3:0] n;\n  always @(posedge clk) o <= n;", "yosys", "error"),
        ("always @(posedge clk) o <= a;",
         "always @(posedge clk) o <= a;\n  other part (.clk(clk));", "yosys", "error"),
        ("output [3:0] o;\n  reg [3:0] o;\n  always @(posedge clk) o <= a;",
         "output [3:0] o;\n  wire [3:0] l;\n  assign l = l ^ a;\n  assign o = l;", "verilator", "UNOPTFLAT"),
    ],
)
def test_seen(tmp_path, old, new, tool, name):
    assert old in CLEAN
    found = findings(tmp_path, CLEAN.replace(old, new))
    assert any((f.tool, f.name) == (tool, name) for f in found), found


def test_icarus_is_asked(tmp_path):
    if not lint.tools()["icarus"]:
        pytest.skip("Icarus is not installed")
    found = findings(tmp_path, CLEAN.replace("input clk;", ""))
    assert any(f.tool == "icarus" for f in found), found


def test_waiver_covers_its_own_only(tmp_path):
    text = CLEAN.replace("o <= a;", "o <= a[2:0];").replace("input clk;", "input clk;\n  wire idle;")
    waiver = lint.Waiver("verilator", "WIDTHEXPAND", "expects 4 bits", "for this test")
    found = findings(tmp_path, text, [waiver])
    assert waiver.met == 1
    assert {f.name for f in found if f.tool == "verilator"} == {"UNUSEDSIGNAL"}
    assert all(f.name == "WIDTHEXPAND" or not waiver.covers(f) for f in findings(tmp_path, text))


def test_no_folder_in_findings(tmp_path):
    found = findings(tmp_path, CLEAN.replace("o <= a;", "o <= a[2:0];"))
    assert found and all(str(tmp_path) not in f.text for f in found)


@pytest.mark.parametrize(
    "text, message",
    [
        ('[[waiver]]\ntool = "yosys"\nname = "warning"\nmatch = "x"\n',
         "w.toml: waiver 1: must have exactly match, name, reason, tool, each a text; it has match, name, tool"),
        ('[[waiver]]\ntool = "yosys"\nname = "error"\nmatch = "x"\nreason = "y"\n',
         "w.toml: waiver 1: an error cannot be waived"),
    ],
)
def test_waiver_file_wrong(tmp_path, text, message):
    path = tmp_path / "w.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError) as error:
        lint.waivers(path)
    assert str(error.value) == message


@pytest.mark.regress
def test_presets_are_checked_side_by_side(tmp_path, monkeypatch):
    """In order, waivers counted over all of them; what is not waived is told of the core that has it."""
    monkeypatch.setattr(lint, "build_folder", lambda: tmp_path)
    tiny, accepted = load("tiny").cores, lint.waivers()
    presets = [Preset("one", "", {"tt": tiny["tt"]}), Preset("two", "", {"tt": tiny["tt"]})]
    assert list(lint.of_presets(presets, accepted)) == [("one/tt", []), ("two/tt", [])]
    files = {path.relative_to(tmp_path / "one") for path in (tmp_path / "one").glob("*.v")}
    assert files and files == {path.relative_to(tmp_path / "two") for path in (tmp_path / "two").glob("*.v")}
    met = [waiver.met for waiver in accepted]
    assert sum(met) and not any(count % 2 for count in met)
    (_, found), = lint.of_presets(presets[:1], [])
    assert len(found) == sum(met) // 2


@pytest.mark.regress
def test_all_presets_pass():
    """And each waiver is still needed."""
    done = call("lint")
    assert done.exit_code == 0, done.output


def test_shipped_waivers_suffice_for_a_unit(tmp_path):
    built = emit(SkidBuffer(8), "skid", tmp_path)
    assert lint.check(built.files, "skid") == []


def test_more_of_what_is_waived_is_a_finding():
    """By part; fewer are none."""
    allowed = {"verilator/WIDTHEXPAND": {"Fifo": 3, "Splitter": 1}}
    assert lint.excess({"verilator/WIDTHEXPAND": {"Fifo": 3}}, allowed) == []
    found = lint.excess({"verilator/WIDTHEXPAND": {"Fifo": 4, "Reader": 2}, "yosys/warning": {"Fifo": 1}}, allowed)
    assert [(finding.tool, finding.name, finding.text.split(";")[0]) for finding in found] == [
        ("verilator", "WIDTHEXPAND", "Fifo: 4 are waived, and 3 were looked at"),
        ("verilator", "WIDTHEXPAND", "Reader: 2 are waived, and 0 were looked at"),
        ("yosys", "warning", "Fifo: 1 are waived, and 0 were looked at")]


def test_waivers_are_counted_by_module(tmp_path):
    text = CLEAN.replace("o <= a;", "o <= a[2:0];")
    waiver = lint.Waiver("verilator", "WIDTHEXPAND", "expects 4 bits", "for this test")
    findings(tmp_path, text, [waiver])
    assert waiver.modules == {"unit": 1}


def test_what_is_waived_is_written_down():
    """Of presets that there are, of all their cores, by waivers that there are."""
    kinds = {f"{waiver.tool}/{waiver.name}" for waiver in lint.waivers()}
    found = lint.waived()
    assert "tiny" in found and set(found) <= set(names())
    assert {preset: set(cores) for preset, cores in found.items()} == {name: set(load(name).cores) for name in found}
    for counts in (counts for cores in found.values() for counts in cores.values()):
        assert set(counts) <= kinds and all(count > 0 for parts in counts.values() for count in parts.values())
