"""What benches have seen change is merged by bit, up and down, and what none has is named."""

import json

import pytest

from verif.coverage import OFF, constants, in_benches, main, merged, missing, never


def _point(signal, count, page="v_toggle/dut"):
    return f"C '\1f\2dut.v\1t\2toggle\1page\2{page}\1o\2{signal}\1h\2dut' {count}\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "one.dat").write_text("# SystemC::Coverage-3\n" + "".join((
        _point("i__05F__05Fvalid:0->1", 3), _point("i__05F__05Fvalid:1->0", 2), _point("level[0]:0->1", 1),
        _point("level[0]:1->0", 1), _point("level[1]:0->1", 1), _point("level[1]:1->0", 0),
        _point("bus__05F__05Farcache[2]:0->1", 0), _point("bus__05F__05Farcache[2]:1->0", 0),
        _point("__02412:0->1", 0), _point("other:0->1", 0), _point("level[0]:0->1", 9, "v_line/dut"))), "utf-8")
    (tmp_path / "two.dat").write_text(_point("level[2]:0->1", 0) + _point("level[2]:1->0", 0), "utf-8")
    return tmp_path


def test_bits_of_ports_and_counters(folder):
    changes = merged(sorted(folder.glob("*.dat")))
    assert changes["dut", "i__valid", ""] == 2 and changes["dut", "level", "0"] == 1
    assert missing(changes) == ([("dut", "level", "1"), ("dut", "level", "2")], 4)


def test_the_command(folder, capsys):
    main([str(folder)])
    assert capsys.readouterr().out == (
        "| module | bits | changed | share |\n|---|---|---|---|\n| dut | 4 | 2 | 50.0% |\n"
        "| 0 others | 0 | 0 | 100.0% |\n\n"
        "dut: level[1]\ndut: level[2]\n2 runs: 2 of 4 bits of ports and counters change (50.00%)\n")
    with pytest.raises(SystemExit, match="2"):
        main([str(folder / "none")])
    assert "none; HOTRAIL_COVERAGE names the folder" in " ".join(capsys.readouterr().err.split())


PARTS = {"top.v": """module top(input clk, input i, output [2:0] o);
  wire [1:0] \\a.x ;
  part \\a (.clk(clk), .i(i), .o(\\a.x ));
  part b (.clk(clk), .i(1'd0), .o());
  assign o = { 1'd1, \\a.x };
endmodule
""", "part.v": """module part(input clk, input i, output [1:0] o);
  reg held = 1'd0;
  reg same = 1'd0;
  always @(posedge clk) held <= i;
  always @(posedge clk) if (held) same <= same;
  assign o = { same, held };
endmodule
"""}


def test_constants_are_those_of_every_place(tmp_path):
    """What is wired to a constant, and a register that never leaves its first value; not what changes in one place of
    two, or in one model of two."""
    changing, bits = constants(PARTS, "top")
    assert {module for module, _, _ in changing} == {"top", "part"}
    assert bits == [("part", "o", "1"), ("part", "same", ""), ("top", "a.x", "1"), ("top", "o", "1"), ("top", "o", "2")]
    for name, known in (("one", bits), ("two", bits[1:])):
        told = [[*changing, *set(bits).difference(known)], known]
        (tmp_path / f"{name}.constants").write_text(json.dumps(told), "utf-8")
    assert never(tmp_path.glob("*.constants")) == set(bits[1:])
    assert never([tmp_path / "one.constants"]) == set(bits)


def test_queues_with_reserved_places():
    """Of one whose `ready` is read it may be 0 and the level the highest; of another not."""
    queue = """module queue(input clk, input i__valid, output i__ready, output held);
  reg [1:0] level = 2'd0;
  assign i__ready = ~level[1];
  assign held = level != 0;
  always @(posedge clk) level <= level + (i__valid & i__ready);
endmodule
"""
    top = """module top(input clk, input i, output [2:0] o);
  wire \\a.ready ;
  queue a (.clk(clk), .i__valid(i), .i__ready(\\a.ready ), .held(o[0]));
  queue{} b (.clk(clk), .i__valid(i), .i__ready(o[1]), .held(o[2]));
endmodule
"""
    other = {"top.v": top.format("_2"), "queue.v": queue, "queue_2.v": queue.replace("queue", "queue_2")}
    assert constants(other, "top")[1] == [("queue", "i__ready", ""), ("queue", "level", "1"), ("top", "a.ready", "")]
    assert constants({"top.v": top.format(""), "queue.v": queue}, "top")[1] == [("top", "a.ready", "")]


def test_parts_are_looked_at_in_their_own_benches():
    """The top, and placed parts whose docstring, or that of another component of their file, names the bench."""
    modules = {"f2_logic": {"key": ""}, "Interconnect_a": {"key": "Interconnect(a=1)"},
               "PoolingLane": {"key": "PoolingLane()"}, "StandIn": {"key": "StandIn()"}}
    texts = {f"{name}.v": name for name in modules}

    def off(bench):
        return {file for file, text in in_benches(texts, modules, bench).items() if text.startswith(OFF)}

    assert off("verif/f2/test_logic.py") == {"Interconnect_a.v", "PoolingLane.v", "StandIn.v"}
    assert off("verif/f2/test_interconnect.py") == {"PoolingLane.v", "StandIn.v"}
    assert off("verif/emb/test_pooling.py") == {"Interconnect_a.v", "StandIn.v"}
