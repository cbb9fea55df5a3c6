"""What is placed on an ECP5 computes what the Verilog does: the mapped cells in simulation, bit for bit.

The mapping merges registers, takes no care of names and puts delay lines in memories, which is more than the other
flows dare to.
"""

import json
from pathlib import Path

import numpy as np
import pyosys
import pytest

from fpga.synth import ecp5
from fpga.synth.delay_lines import PREFIX, stored
from gen.base.tools import yosys
from verif.emb.test_pooling import Words, judge, schedule
from verif.fp.vectors import DotLane, Runner

pytestmark = pytest.mark.regress
CELLS = Path(pyosys.__file__).parent / "share/lattice"


def bits(name, width):
    return "{" + ", ".join(f"{name}{k}" for k in reversed(range(width))) + "}"


def multiplier():
    """Yosys' declaration with what the mapping uses of it: the product, of no sign and without its registers."""
    text = (CELLS / "cells_bb_ecp5.v").read_text("utf-8")
    text = text[text.index("module MULT18X18D("):]
    text = text[:text.index("endmodule")]
    unused = " && ".join(f'REG_{part}_CLK == "NONE"' for part in ("INPUTA", "INPUTB", "PIPELINE", "OUTPUT"))
    return (f"{text}  assign {bits('P', 36)} = ({unused} && !SIGNEDA && !SIGNEDB)\n"
            f"    ? {bits('A', 18)} * {bits('B', 18)} : 36'h555555555;\nendmodule\n")


def netlist(folder):
    """A translation of Verilog to cells of the ECP5, with Yosys' models of them."""
    def translate(texts):
        for name, text in texts.items():
            (folder / name).write_text(text, "utf-8")
        yosys([*(f"read_verilog {name}" for name in texts), *ecp5.mapping("vectors")], cwd=folder)
        mapped = json.loads((folder / "mapped.json").read_text("utf-8"))
        mapped["modules"]["vectors"]["cells"] = stored(mapped["modules"]["vectors"])
        (folder / "stored.json").write_text(json.dumps(mapped), "utf-8")
        yosys(["read_json stored.json", "write_verilog -noattr netlist.v"], cwd=folder)
        written = (folder / "netlist.v").read_text("utf-8")
        assert all(kind in written for kind in ("TRELLIS_FF", "LUT4", "CCU2C", "MULT18X18D"))
        models = {path.name: path.read_text("utf-8") for path in CELLS.glob("*.v*") if path.name in (
            "cells_sim_ecp5.v", "common_sim.vh", "ccu2c_sim.vh", "cells_ff.vh", "cells_io.vh")}
        return {"netlist.v": written, "multiplier.v": multiplier(), **models}
    return translate


@pytest.mark.parametrize("name, width, subs, terms_log2", [("dot1", 1, 1, 6), ("dot2x2", 2, 2, 4)])
def test_a_fused_dot(tmp_path, name, width, subs, terms_log2):
    """Sums of many sizes, of numbers whose products cancel and of those that are none, in cells and in Verilog."""
    shape = dict(width=width, subs=subs, terms_log2=terms_log2)
    random = np.random.default_rng(1)
    count, words = 20_000, 2 * width * subs
    records = np.zeros((count, 1 + words), np.uint32)
    records[:, 0] = (random.random(count) < .3) | random.integers(0, subs, count) << 1
    records[0, 0] |= 1
    near = random.integers(120 << 23, 135 << 23, (count, words)) | random.integers(0, 2, (count, words)) << 31
    any_ = random.integers(0, 1 << 32, (count, words))
    special = random.choice([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 1, 0x7F7FFFFF], (count, words))
    which = random.random((count, words))
    records[:, 1:] = np.where(which < .9, near, np.where(which < .97, any_, special))
    want = Runner(DotLane(**shape), name)(records)
    got = Runner(DotLane(**shape), f"{name}_ecp5", netlist(tmp_path))(records)
    assert len(np.unique(want)) > 10_000
    assert (PREFIX in (tmp_path / "netlist.v").read_text("utf-8")) == (width > 1), "the long delay lines"
    np.testing.assert_array_equal(got, want)


def test_a_pooling_unit(tmp_path):
    """Running sums in LUT memory, against the golden model."""
    shape = dict(words=1, contexts_log2=4, tag_bits=2)
    run = Runner(Words(**shape), "pooling_ecp5", netlist(tmp_path))
    records, *expected = schedule(np.random.default_rng(2), 2_000, 16, 1)
    judge(run(records), *expected)
