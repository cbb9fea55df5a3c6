"""Power of Hotline's memories: CACTI's table is read, and accesses times energies are added to leakage."""

import os
import re

import pytest

from bench import papers_power
from bench.framework import LeftOut
from fpga.synth.power import Power

TABLE = ("Tech node (nm), Random cycle time (ns), Dynamic read energy (nJ), Dynamic write energy (nJ), "
         "Standby leakage per bank(mW), Area (mm2), \n45, {cycle}, 0.5, 2, {leakage}, {area}, \n")
FAKE = """#!/bin/sh
case "$(cat "$2")" in
  *'cell type - "lp-dram"'*hp*) echo '{edram}' > "$2.out" ;;
  *lstp*) echo '{slow}' > "$2.out" ;;
  *) echo '{sram}' > "$2.out" ;;
esac
"""


def test_what_cacti_found_of_a_bank_is_that_of_all_banks():
    found = papers_power.organisation(TABLE.format(cycle=2.5, leakage=100, area=0.25), 64)
    assert found == papers_power.Organisation(2.5, 0.5e-9, 2e-9, pytest.approx(6.4), 16.0)
    # 10^8 reads of 0.5 nJ and 10^7 writes of 2 nJ per second.
    assert found.watts(1e8, 1e7) == pytest.approx(6.4 + 0.05 + 0.02)


def test_accesses_of_a_sample():
    run = papers_power.Counted(26, 1.5, 0.5, 1e6, 3)
    assert run.accesses() == {"logger": (26, 0), "inputs": (4.5, 4.5), "embeddings": (4.5, 3)}


@pytest.fixture
def cacti(tmp_path, monkeypatch):
    """One that knows eDRAM, slow SRAM and fast SRAM by its options."""
    (tmp_path / "cache.cfg").write_text("-size (bytes) 1\n")
    tool = tmp_path / "cacti"
    tool.write_text(FAKE.format(edram=TABLE.format(cycle=2, leakage=1000, area=10),
                                slow=TABLE.format(cycle=3, leakage=1, area=0.1),
                                sram=TABLE.format(cycle=1, leakage=50, area=0.5)))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


def test_the_least_area_is_of_all_and_power_of_those_that_are_fast_enough(cacti, monkeypatch):
    monkeypatch.setattr(papers_power, "counted", lambda: papers_power.Counted(26, 2, 0.5, 1e6, 4))
    rows = {row.id.removeprefix("papers.hotline.power."): row.value for row in papers_power.memories()}
    # The smallest logger is the slow one, which no power is of; 50 mW of 64 banks.
    assert rows["area.logger"] == 6.4 and rows["rtl.logger.least"] == rows["rtl.logger.most"] == 3.21
    assert (rows["area.inputs"], rows["area"]) == (0.1, 6.6)
    # 6 reads and 6 writes of a sample: 15 nJ. 10^6 of them per second.
    assert rows["rtl.inputs.most"] == pytest.approx(1.015, abs=0.006)
    assert rows["thesis.inputs.most"] == pytest.approx(1 + 15e-9 * papers_power.THESIS_RATE, abs=0.006)
    assert rows["rtl.most"] == pytest.approx(sum(rows[f"rtl.{part}.most"] for part in papers_power.MEMORIES), abs=0.02)


def test_every_kind_and_objective_is_asked_for(cacti, tmp_path):
    (tmp_path / "cacti").write_text('#!/bin/sh\ncat "$2" >> asked\necho "' + TABLE.format(
        cycle=1, leakage=1, area=1) + '" > "$2.out"\n')
    found = papers_power.organisations(tmp_path / "cacti", papers_power.MEMORIES["inputs"])
    asked = (tmp_path / "asked").read_text()
    assert len(found) == len(papers_power.KINDS) * len(papers_power.OBJECTIVES) == asked.count("-size (bytes) 10485760")
    assert asked.count('Data array cell type - "lp-dram"') == len(found) and asked.count("bus width 512") == len(found)
    assert len(set(re.findall(r"cycle time, area\) (0:\S+)", asked))) == len(papers_power.OBJECTIVES)


def test_without_cacti_the_bench_is_left_out(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LeftOut, match="needs cacti"):
        next(papers_power.memories())


def test_power_of_logic_at_both_rates(monkeypatch):
    """1 to 2 nJ of the clock per cycle, as much of nets at work, 0.1 W of leakage."""
    monkeypatch.setattr(papers_power, "needed", lambda file: file)
    monkeypatch.setattr(papers_power, "worked", lambda liberty: (
        Power((1e-9, 2e-9), (0.75e-9, 1.25e-9), (0.25e-9, 0.75e-9), 0.1, 1000, 0.05),
        papers_power.Counted(26, 2, 0.5, 250 / papers_power.MHZ * 2 * papers_power.THESIS_RATE, 3)))
    rows = {row.id.removeprefix("papers.hotline.logic."): row.value for row in papers_power.logic()}
    assert (rows["changes"], rows["clock.most"], rows["counted.least"], rows["others.least"]) == (5, 2, 0.75, 0.25)
    assert (rows["rtl.least"], rows["rtl.most"]) == (0.8, 1.5)
    # The thesis' rate is half of the RTL's here.
    device = papers_power.Device.load(papers_power.DEVICE).kernel_mhz
    busy = 0.5 * device / 250
    assert rows["thesis.least"] == pytest.approx(0.45 + 0.35 * busy, abs=0.001)
