"""What benches have seen change is merged by bit, up and down, and what none has is named."""

import pytest

from verif.coverage import main, merged, missing


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
