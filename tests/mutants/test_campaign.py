"""Mutants by operator: they are drawn, woven into the units and tried as documented."""

import ast
from dataclasses import replace

import pytest

from tests.mutants.campaign import Campaign, Tried, sample, share
from tests.mutants.equivalence import compare
from tests.mutants.mutant import ROOT
from tests.mutants.operators import Change, benches, changes, files
from tests.mutants.weave import woven

pytestmark = pytest.mark.regress

FILE = "hw/stream/skid_buffer.py"


def test_mutants_by_operator():
    """Every one is Python again and changes one place, and all have a place beside each other."""
    known = files()
    assert len(known) > 90 and set(known) <= benches().keys()
    for file in ("hw/axi/control.py", "hw/stream/fifo.py"):
        text, mutants = (ROOT / file).read_text("utf-8"), changes(file)
        assert len(mutants) > 40
        for mutant in mutants:
            changed = mutant.applied(text)
            assert changed != text and text[mutant.begin:mutant.end] == mutant.old
        for mutant in mutants[::9]:
            ast.parse(mutant.applied(text))
        whole, lost = woven(text, dict(enumerate(mutants, 1)))
        numbers = {node.value for node in ast.walk(ast.parse(whole))
                   if isinstance(node, ast.Constant) and type(node.value) is int}
        assert not lost and numbers >= set(range(1, len(mutants) + 1))


def test_a_sample_is_in_proportion():
    """Of each file as many as it has of all, and one at least; the same by the same seed."""
    names = files()[:5]
    drawn = sample(names, 40, 3)
    assert drawn == sample(names, 40, 3) != sample(names, 40, 4) and len(set(drawn)) == len(drawn)
    total = sum(len(changes(name)) for name in names)
    for name in names:
        of_file = sum(change.file == name for change in drawn)
        assert of_file >= 1 and abs(of_file - 40 * len(changes(name)) / total) <= 1


def test_the_share_of_those_found():
    """Equivalents and what cannot be built do not count, hangs and what is never elaborated are not found."""
    change = changes(FILE)[0]
    verdicts = ["found"] * 18 + ["survives", "hangs", "invalid", "no register", "survives"]
    tried = [Tried(number, change, verdict) for number, verdict in enumerate(verdicts)]
    got = share(tried, frozenset([22]))
    assert (got.found, got.count, round(got.estimate, 1)) == (18, 20, 90.0)
    assert (round(got.low, 1), round(got.high, 1)) == (69.9, 97.2)      # Wilson, 18 of 20
    assert share([]).count == 0


def test_a_part_that_is_an_equivalent_by_itself(tmp_path):
    """Mutant 1 keeps through a reset what counts only behind a write, 2 what counts at once; both are in a part."""
    (tmp_path / "top").write_text("dut", "utf-8")
    (tmp_path / "dut.v").write_text("""
module \\dut.part (clk, rst, write, mutant, \\o.x );
  input clk;
  input rst;
  input write;
  input [15:0] mutant;
  output [1:0] \\o.x ;
  reg valid = 1'd0;
  reg seen = 1'd0;
  assign \\o.x = { valid & seen, valid };
  always @(posedge clk) begin
    valid <= write;
    if (write) seen <= ~seen | ~valid;
    if (rst) begin
      if (mutant != 16'h0002) valid <= 1'd0;
      if (mutant != 16'h0001) seen <= 1'd0;
    end
  end
endmodule
module dut(clk, rst, write, i, o);
  input clk;
  input rst;
  input write;
  input [15:0] i;
  output [31:0] o;
  wire [15:0] number;
  wire [1:0] x;
  hotrail_mutant mutant_number (.number(number));
  \\dut.part part (.clk(clk), .rst(rst), .write(write), .mutant(number), .\\o.x (x));
  assign o = i * i * x;
endmodule
""", "utf-8")
    assert compare([tmp_path], 1) == "equivalent"
    assert compare([tmp_path], 2).startswith("different at cycle")


def test_a_campaign(tmp_path):
    """All mutants of a small unit: those that are found, those that are equivalents, and one that is never reached; it
    goes on where it was ended."""
    text = (ROOT / FILE).read_text("utf-8")
    campaign = Campaign(tmp_path, [FILE], 1000, 1)
    assert len(campaign.mutants) == len(changes(FILE))
    lines: list[str] = []
    campaign.run(lines.append)
    tried = campaign.tried()
    assert len(tried) == len(campaign.mutants) and len(lines) == 1
    survivors = [one for one in tried if one.verdict != "found"]
    told = {one.number: compare(campaign.models(one.number), one.number) for one in survivors
            if one.verdict == "survives"}
    assert all(word == "equivalent" for word in told.values()), told
    campaign.run(lines.append)
    assert len(lines) == 1
    found = next(one for one in tried if one.verdict == "found")
    assert compare(campaign.models(found.number), found.number).startswith("different at cycle")
    assert isinstance(found.change, Change) and replace(found.change).applied(text) != text
