"""The gate: what a report is held against, what it says of a miss, and where its numbers come from."""

from types import SimpleNamespace

import pytest

from bench import gate as figures
from bench.page import with_table
from fpga.synth import map as synth
from fpga.synth.depth import Depth
from fpga.synth.map import Area, Report
from fpga.synth.peers import peers
from fpga.vitis import gate
from gen.model.platform import RESOURCES, Budget, Platform
from tests.support.circuits import TREE
from tests.support.vitis_kernels import prepared

SHELLS = Platform.load().shells
SMALL = Area(lut=1000, ff=2000, dsp=10, bram36=7.5, uram=4)
SHALLOW = Depth(6, 1, ("in Part", "a.Q (FDRE)", "a[0] (FDRE)", "b.D (FDRE)"))


def judge(total=SMALL, worst=SHALLOW, chains=SHALLOW, ports=SHALLOW, clock_mhz=250, instances=1, core="mlp"):
    kernel, _ = prepared(core)
    report = Report(kernel.name, total, {}, worst, chains, ports)
    return gate.judge(kernel, report, clock_mhz=clock_mhz, instances=instances)


def test_a_small_shallow_kernel_passes():
    found = judge()
    assert found.passed and found.misses == found.notes == ()
    told = found.as_dict()
    assert told["used"] == {"lut": 1000, "ff": 2000, "bram36": 7.5, "uram": 4, "dsp": 10}
    assert told["percent"]["standard"] == {"lut": 0.3, "ff": 0.3, "bram36": 1.2, "uram": 3.8, "dsp": 0.7}
    assert (told["levels"], told["levels_allowed"], told["chains_allowed"]) == (6, 6, 1)
    assert told["path"] == ["Part", "a.Q (FDRE)", "b.D (FDRE)"]


@pytest.mark.parametrize("clock_mhz, levels", [(300, 6), (250, 6), (200, 7)])
def test_a_slower_clock_allows_more_levels(clock_mhz, levels):
    assert gate.allowed(6, clock_mhz) == levels and gate.allowed(1, clock_mhz) == 1
    deep = Depth(levels, 1, SHALLOW.path)
    assert judge(worst=deep, ports=deep, clock_mhz=clock_mhz).passed
    found = judge(worst=Depth(levels + 1, 1, SHALLOW.path), clock_mhz=clock_mhz)
    assert found.misses == (f"hotrail_mlp: {levels + 1} LUT levels between registers, 1 more than {clock_mhz} MHz "
                            f"allow ({levels}), from a.Q (FDRE) to b.D (FDRE) in Part",)


def test_each_miss_is_a_sentence():
    chained = Depth(4, 3, ("in Sum", "$auto$ff.cc:1:slice$7.Q (FDRE)", "total[3] (FDRE)", "n (LUT6)", "b.D (FDRE)"))
    found = judge(total=Area(lut=310_001, uram=105, dsp=1338), chains=chained, ports=Depth(2, 2, ("a", "b")))
    assert found.misses == (
        "hotrail_mlp: 310,001 LUT, 1 more than the standard shell's 310,000 (100.0 %)",
        "hotrail_mlp: 105 URAM, 1 more than the standard shell's 104 (101.0 %)",
        "hotrail_mlp: 3 carry chains between registers, 2 more than 250 MHz allow (1), from total[3] (FDRE) to "
        "b.D (FDRE) in Sum",
        "hotrail_mlp: 2 LUT levels and 2 carry chains at its ports, where 250 MHz allow 6 and 1, a to b",
    )
    over = ("LUT: 101.7 %, guideline 70 %, 310,001 of 342,496", "URAM: 100.9 %, guideline 80 %, 105 of 112",
            "DSP: 99.78 %, guideline 80 %, 1,338 of 1,344")
    assert found.notes == tuple(
        f"hotrail_mlp: over AMD's guideline, with the platform's logic: {line} by the core" for line in over)


def test_instances_add_up():
    found = judge(total=Area(lut=160_000, bram36=310.5), instances=2)
    assert found.used["lut"] == 320_000
    assert found.misses == (
        "2 x hotrail_mlp: 320,000 LUT, 10,000 more than the standard shell's 310,000 (103.2 %)",
        "2 x hotrail_mlp: 621 BRAM36, 1 more than the standard shell's 620 (100.2 %)")


def test_notes_of_the_synthesis_are_told():
    kernel, _ = prepared("mlp")
    said = ("Part: mapped in one piece with Other", "Part: 2 latches")
    report = Report(kernel.name, Area(uram=100), {}, SHALLOW, SHALLOW, SHALLOW, notes=said)
    found = gate.judge(kernel, report, clock_mhz=250)
    assert found.passed and found.notes[:2] == said and "URAM: 96.43 %" in found.notes[2]
    assert found.as_dict()["notes"] == list(found.notes)


@pytest.mark.turns(1, of="syntheses")
def test_table_shows_what_is_known():
    head, rows = judge(core="emb").table()
    assert head == ["", "hotrail_emb", "of the standard shell", "of the bare chip", "SCRec's core",
                    "SCRec's 512 processing elements alone"]
    assert {len(row) for row in rows} == {len(head)} and [row[0] for row in rows] == list(RESOURCES.values())
    assert rows[0] == ["LUT", "1,000", "0.3 % of 310,000", "0.2 % of 522,720", "not stated", "209,408"]
    assert rows[4] == ["DSP", "10", "0.7 % of 1,338", "0.5 % of 1,968", "1,734", "1,536"]
    assert judge(core="hotline").table()[0][-1] == "of the bare chip"
    told = judge().as_dict()["percent"]
    assert told["flat"] == SHELLS["flat"].missing and "no published budget" in told["flat"]


@pytest.mark.turns(1, of="syntheses")
def test_table_of_the_page():
    deep = judge(total=Area(lut=310_001, dsp=20), worst=Depth(9, 1, ("a", "b")), core="emb")
    table = figures.rows([("smartssd", deep), ("hotline_fpga", judge(core="hotline"))])
    assert sum("SCRec" in row for row in figures.rows([("smartssd", deep), ("smartssd_half", deep)])) == 2
    assert {row.count("|") for row in table} == {9}
    assert table[2:] == [
        "| `hotrail_emb` of `smartssd`, 250 MHz: **refused** | 310,001 | 0 | 0 | 0 | 20 | 9 of 6 | 1 of 1 |",
        "| of the standard shell | 100.0 % | 0.0 % | 0.0 % | 0.0 % | 1.5 % | | |",
        "| of the bare chip | 59.3 % | 0.0 % | 0.0 % | 0.0 % | 1.0 % | | |",
        "| SCRec's core | not stated | not stated | not stated | 128 | 1,734 | | |",
        "| SCRec's 512 processing elements alone | 209,408 | 407,040 | not stated | not stated | 1,536 | | |",
        "| `hotrail_hotline` of `hotline_fpga`, 250 MHz: passes | 1,000 | 2,000 | 7.5 | 4 | 10 | 6 of 6 | 1 of 1 |",
        "| of the standard shell | 0.3 % | 0.3 % | 1.2 % | 3.8 % | 0.7 % | | |",
        "| of the bare chip | 0.2 % | 0.2 % | 0.8 % | 3.1 % | 0.5 % | | |"]
    page = with_table(figures.PAGE.read_text("utf-8"), "gate", table)
    assert page.count(table[2]) == 1 and with_table(page, "gate", table) == page
    with pytest.raises(LookupError, match="the page has no place for the table 'gate'"):
        with_table("nothing", "gate", table)


def test_one_source_of_budgets():
    standard = SHELLS["standard"]
    assert synth.SHELL is standard.resources
    for budget in SHELLS.values():
        assert budget.source or budget.missing, budget
        assert isinstance(budget, Budget) and (set(budget.resources) == set(RESOURCES) or budget.missing)
    for key, limit in standard.resources.items():
        assert limit < SHELLS["chip"].resources[key]
    assert peers("mlp")["SCRec's 512 processing elements alone"] == {"lut": 215_552, "ff": 417_280, "dsp": 1_536}
    assert peers("hotline") == {}
    # SCRec's cores fit the bare chip and not the shell.
    for core in ("emb", "mlp"):
        theirs = peers(core)["SCRec's core"]
        assert all(number <= SHELLS["chip"].resources[key] for key, number in theirs.items())
        assert any(number > standard.resources[key] for key, number in theirs.items())
    assert Platform.load().clocks_mhz == (250, 300, 200)


def test_measures_with_yosys(tmp_path, monkeypatch):
    """Yosys itself on a circuit of seven LUTs; the cores take minutes."""
    monkeypatch.setattr(gate, "build_folder", lambda: tmp_path)
    report = gate.measure(SimpleNamespace(name="tree"), {"tree.v": TREE})
    assert (report.total.lut, report.total.ff, report.worst.levels) == (7, 37, 2)
    assert (tmp_path / "synth").is_dir()


@pytest.mark.regress
def test_shipping_cores_pass_and_the_page_has_them():
    """Minutes of Yosys; `python -m bench.gate` writes the page's table."""
    table, text = figures.measured(), figures.PAGE.read_text("utf-8")
    assert not [line for line in table if "refused" in line]
    assert with_table(text, "gate", table) == text
