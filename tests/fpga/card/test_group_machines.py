"""AMD's controller against its published rules, read off the commands that it gives: PG150, PG353.

Mutants of the policy keep every rule of the standard; these rules find them.
"""

import shutil
import subprocess
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from fpga.card import memory
from fpga.card.memory import rows
from tests.fpga.card.test_card_ddr import MACHINES, broken

pytestmark = pytest.mark.turns(12, of="memories")

CLOCKS = 4      # of the memory in one of the controller
REAL = MACHINES


def places(device, lines):
    """(group, bank over all groups, row) of each line of 64 bytes."""
    value = {kind: np.zeros(len(lines), np.int64) for kind in range(4)}
    for kind, low, width, at in device.fields():
        value[kind] |= (lines >> low & (1 << width) - 1) << at
    return np.stack([value[2], value[2] * device.dram.banks + value[1], value[0]], axis=1)


def unpublished(commands, device, lines):
    """Every published rule that commands for reads of `lines`, in this order, break."""
    found = set()
    order = commands[np.argsort(commands["clock"], kind="stable")]
    refreshes = order["clock"][order["kind"] == ord("F")]
    for kind in "ARP":
        clocks = order["clock"][order["kind"] == ord(kind)]
        if kind == "P":     # those of a refresh go together
            clocks = clocks[~np.isin(clocks, refreshes - device.dram.clocks("trp"))]
        if len(set((clocks // CLOCKS).tolist())) != len(clocks):
            found.add(f"two of {kind} in a controller clock")
    banks = device.dram.banks
    machine_of = lambda group, bank: (group, bank % banks % 2)
    waiting = {}
    for group, bank, row in places(device, lines).tolist():
        waiting.setdefault(machine_of(group, bank), []).append((bank, row))
    served, opened = dict.fromkeys(waiting, 0), {}
    for command in order:
        kind, bank, row = chr(command["kind"]), int(command["bank"]), int(command["row"])
        machine = machine_of(int(command["group"]), bank)
        if kind == "F":
            opened = {}
        elif kind == "P":
            opened.pop(bank, None)
        elif kind == "R":
            if waiting[machine][served[machine]] != (bank, row):
                found.add("column commands of a machine out of order")
            served[machine] += 1
        else:
            left = islice(waiting[machine], served[machine], None)
            if next(line for line in left if opened.get(line[0]) != line[1]) != (bank, row):
                found.add("a page opened for a line that is not a machine's first without")
            opened[bank] = row
    if any(served[machine] != len(lines) for machine, lines in waiting.items()):
        found.add("a line that is never read")
    return found


def reads(device, row_bytes, count=1200, seed=3, **options):
    draw = np.random.default_rng(seed)
    at = draw.integers(0, device.memory.bytes // row_bytes, count) * row_bytes
    at[::3] = at[0] + draw.integers(0, 64, at[::3].size) * row_bytes
    done = rows(device, at, row_bytes, trace=True, **options)
    return done, (at[:, None] // 64 + np.arange(row_bytes // 64)).ravel()


@pytest.mark.parametrize("depth", [4, 8, 16])
@pytest.mark.parametrize("row_bytes", [64, 256, 2048])
@pytest.mark.parametrize("map_", MACHINES.controller.maps)
def test_the_published_rules(map_, row_bytes, depth):
    device = MACHINES.replace("controller", map=map_).replace("group_machines", depth=depth)
    done, lines = reads(device, row_bytes, bursts=64)
    assert unpublished(done.commands, device, lines) == set()


# Each: a text of group_machines.h, what a mutant has in its place, and the rule that finds it. Two activations, or two
# column commands, in a controller clock no policy can give: tRRD_S and tCCD_S keep them apart.
MUTANTS = [
    ("if (const uint32_t bits = due(close_at, clock)) {", "while (const uint32_t bits = due(close_at, clock)) {",
     "two of P in a controller clock"),
    ("            if (!machines[i].open++) front(d, i);\n",
     "            Ring<DdrRequest>& lines = machines[i].lines;\n            const uint32_t open = machines[i].open++;\n"
     "            if (open) std::swap(lines[open], lines[open - 1]);\n            front(d, i);\n",
     "column commands of a machine out of order"),
    ("            DdrRequest& r = machines[i].lines[machines[i].open];\n            activate_at[i]",
     "            Machine& m = machines[i];\n"
     "            size_t next = m.open + 1 < m.lines.size() && m.lines[m.open + 1].bank != m.lines[m.open].bank\n"
     "                          && d.bank[m.lines[m.open + 1].bank].row < 0;\n"
     "            DdrRequest& r = m.lines[m.open + next];\n            activate_at[i]",
     "a page opened for a line that is not a machine's first without"),
    ("bank % banks % halves) % MACHINES;", "bank % banks / halves % halves) % MACHINES;",
     "column commands of a machine out of order"),
]


@pytest.mark.parametrize("before, after, rule", MUTANTS)
def test_a_mutant_of_the_policy_is_found(before, after, rule, tmp_path, monkeypatch):
    for source in filter(Path.is_file, memory.SOURCES.glob("*")):
        shutil.copy(source, tmp_path)
    path = tmp_path / "group_machines.h"
    text = path.read_text("utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), "utf-8")
    library = tmp_path / "direct.so"
    subprocess.run(["g++", "-std=c++17", "-O1", "-shared", "-fPIC", tmp_path / "direct.cpp", "-o", library], check=True)
    monkeypatch.setattr(memory, "library", lambda: library)
    done, lines = reads(REAL, 256, bursts=64)
    assert broken(done.commands, REAL) == []        # a mutant breaks no rule of the standard
    found = unpublished(done.commands, REAL, lines)
    assert rule in found


def test_latencies():
    """A page that is open, closed, or open with another row: 5 controller clocks more each, and the fixed delays."""
    device = REAL.replace(kernel_mhz=300).replace("dram", trefi=type(REAL.dram.trefi)(1e9, 0))
    row = 8 * 8192
    taken = lambda *at: rows(device, np.array(at), 64, bursts=1).cycles
    closed, hit, miss = taken(0), taken(0, 512) - taken(0), taken(0, row) - taken(0)
    fixed = (device.port.front_cycles + device.port.back_cycles + device.controller.front_clocks
             + device.controller.back_clocks)
    assert (closed - hit, miss - closed) == (5, 5)
    assert hit == fixed + (device.dram.cl + device.dram.burst_clocks + 3) // 4 + 1


def test_order_holds_lines_back():
    """A line whose machine is full holds back all behind it, and what is read leaves in order."""
    calm = REAL.replace("dram", trefi=type(REAL.dram.trefi)(1e9, 0))
    n, row = 400, 8 * 8192
    one = np.arange(n) * row                                # a new row of one bank each time
    cost = rows(calm, one, 64).cycles / n
    assert cost == pytest.approx(60 * calm.kernel_mhz / calm.dram.mhz, rel=0.02)       # tRC, in whole controller clocks
    # Lines for other machines between them come no faster, though nothing of theirs has to wait.
    mixed = np.stack([one, one + 64, one + 128, one + 192], axis=1).ravel()
    assert rows(calm, mixed, 64, bursts=64).cycles == pytest.approx(n * cost, rel=0.03)


def test_depth_and_bursts_under_way():
    """More lines in a machine and more bursts under way are never slower; one burst at a time waits for each."""
    draw = np.random.default_rng(5).integers(0, REAL.memory.bytes // 256, 3000) * 256
    rate = lambda depth, bursts: rows(REAL.replace("controller", map="row_bank_column").replace(
        "group_machines", depth=depth), draw, 256, bursts=bursts).rows_per_s
    assert rate(4, 64) < rate(8, 64) < rate(16, 64)
    assert rate(8, 1) < rate(8, 4) < rate(8, 16) <= rate(8, 64) * 1.001


def test_each_kind_goes_on_for_a_while_and_writes_in_part_cost_a_read():
    n = 3000
    at = np.random.default_rng(6).integers(0, REAL.memory.bytes // 64, n) * 64
    kinds = np.arange(n) % 2
    whole, partial = rows(REAL, at, 64, writes=kinds), rows(REAL, at, 64, writes=2 * kinds)
    assert (whole.counters["reads"], whole.counters["writes"]) == (n // 2, n // 2)
    assert (partial.counters["reads"], partial.counters["writes"]) == (n, n // 2)
    assert partial.cycles > 1.2 * whole.cycles
    # Four lines of the other kind wait until so many have gone before them.
    def first(few, lines):
        kinds = np.full(n, few == "R")
        kinds[100:104] = few == "W"
        done = rows(REAL.replace("group_machines", turn_lines=lines), at, 64, writes=kinds, bursts=512, trace=True)
        found = [kind for kind in done.commands["kind"] if kind in b"RW"]
        return found.index(ord(few))

    for few in "RW":
        assert first(few, 1) < first(few, 150) < first(few, 256) < 300


@pytest.mark.parametrize("limit", [32, 256])
def test_a_burst_of_writes_stays_together(limit):
    """Reads wait while a burst of writes enters, whatever its length, and writes that wait behind it go with it."""
    n, lines = 400, 32
    at = np.random.default_rng(7).integers(0, REAL.memory.bytes // 2048, n) * 2048
    kinds = np.zeros(n, np.int64)
    kinds[100] = kinds[200:203] = 1
    done = rows(REAL.replace("group_machines", turn_lines=limit), at, 2048, writes=kinds, trace=True)
    columns = [chr(kind) for kind in done.commands["kind"] if chr(kind) in "RW"]
    written = np.flatnonzero(np.array(columns) == "W")
    assert len(written) == 4 * lines
    # Between the writes of a burst are reads that had entered the machines before them, no others.
    held = REAL.group_machines.depth * 4
    for first in range(0, len(written), lines):
        burst = written[first:first + lines]
        assert burst[-1] - burst[0] + 1 - lines <= held
    turns = int((np.diff(written) > held).sum()) + 1
    assert turns == (2 if limit == 256 else 4)
