"""Every mutation of the tables in this folder is found by its unit's benches, without their long sweeps."""

import ast

import pytest

from tests.mutants.axi import BURST, BUS, READ, READS, WRITE
from tests.mutants.emb_rows import DECODER, FETCH, REQUESTS
from tests.mutants.emb_writes import JOINER, POST_POOL
from tests.mutants.hotline_scheduler import QUEUE, RELEASE, SCHEDULER, SPLITTER
from tests.mutants.mlp_sequencer import SEQUENCER
from tests.mutants.mutant import ROOT, Copy
from tests.mutants.operators import benches, changes, draw, files
from tests.mutants.stream import FIFO, ROUND_ROBIN
from tests.mutants.tt_index import INDEX
from tests.mutants.tt_reuse import MARKS, REUSE

UNITS = (BURST, BUS, READ, READS, WRITE, FIFO, ROUND_ROBIN, SCHEDULER, SPLITTER, RELEASE, QUEUE, SEQUENCER, INDEX,
         REUSE, MARKS, JOINER, POST_POOL, DECODER, FETCH, REQUESTS)
BENCHES = sorted({unit.benches for unit in UNITS})


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return Copy(tmp_path_factory.mktemp("mutants"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.file)
def test_mutants_change_one_place(unit):
    """The tables follow the units: a text that is gone is a mutant to write anew."""
    text = (ROOT / unit.file).read_text("utf-8")
    lost = [mutant.why for mutant in unit.mutants if text.count(mutant.old) != 1 or mutant.old == mutant.new]
    assert not lost, f"{unit.file}: `old` does not occur once: {'; '.join(lost)}"
    changes = [(mutant.old, mutant.new) for mutant in unit.mutants]
    assert len(set(changes)) == len(changes) and all((ROOT / bench).exists() for bench in unit.benches)


def test_mutants_by_operator():
    """Every one is Python again and changes one place; the same seed draws the same; all files have their share."""
    known = files()
    assert len(known) > 90 and set(known) <= benches().keys()
    for file in ("hw/axi/control.py", "hw/kernel/run.py", "hw/stream/fifo.py"):
        text, mutants = (ROOT / file).read_text("utf-8"), changes(file)
        assert len(mutants) > 40
        for mutant in mutants:
            changed = mutant.applied(text)
            ast.parse(changed)
            assert changed != text and text[mutant.begin:mutant.end] == mutant.old
    drawn = draw(known[:10], 25, 3)
    assert drawn == draw(known[:10], 25, 3) != draw(known[:10], 25, 4)
    counts = [sum(mutant.file == file for mutant in drawn) for file in known[:10]]
    assert sum(counts) == 25 and min(counts) >= 2


@pytest.mark.regress
@pytest.mark.parametrize("benches", BENCHES, ids="+".join)
def test_the_sound_copy_passes(copy, benches):
    code, output = copy.run(benches)
    assert code == 0, output


@pytest.mark.regress
@pytest.mark.parametrize("unit, mutant", [(unit, mutant) for unit in UNITS for mutant in unit.mutants],
                         ids=lambda item: getattr(item, "why", None) or item.file)
def test_mutant_is_found(copy, unit, mutant):
    found, output = copy.found(unit, mutant)
    assert found, f"{unit.file}: {mutant.why}: {' '.join(unit.benches)} does not find it\n{output[-3000:]}"
