"""Yosys as a program: its failure in a sentence, and nothing of it outside its folder."""

import pytest

from gen.base.tools import yosys


def test_a_failure_is_one_sentence(tmp_path):
    """The first line says why, the end of the log follows."""
    why = "^Yosys failed: ERROR: File `none.v' not found or is a directory\n"
    with pytest.raises(RuntimeError, match=why) as caught:
        yosys(["read_verilog none.v"], cwd=tmp_path)
    assert "Running command `read_verilog none.v'" in str(caught.value)


def test_what_it_writes_on_the_way_lies_in_its_folder(tmp_path, monkeypatch):
    """ABC's files, too: where no other folder can be written, logic is still mapped."""
    (tmp_path / "and.v").write_text("module top(input [3:0] a, output o); assign o = &a; endmodule\n", "utf-8")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    assert "$lut" in yosys(["read_verilog and.v", "techmap", "abc -lut 4", "stat"], cwd=tmp_path)
