"""Every mutation of the tables in this folder is found by its unit's benches, without their long sweeps.

`make regress` tries thirty in turn, HOTRAIL_TURNS=all every one.
"""

import pytest

from tests.mutants.argued import ARGUED, argument
from tests.mutants.axi import BURST, BUS, READ, READS, WRITE
from tests.mutants.emb_rows import DECODER, FETCH, LANDING, REQUESTS
from tests.mutants.emb_writes import JOINER, POST_POOL
from tests.mutants.hotline_scheduler import QUEUE, RELEASE, SCHEDULER, SPLITTER
from tests.mutants.kernel_report import REPORTER
from tests.mutants.mlp_sequencer import SEQUENCER
from tests.mutants.mutant import ROOT, Copy
from tests.mutants.operators import changes
from tests.mutants.stream import FIFO, ROUND_ROBIN
from tests.mutants.tt_index import INDEX
from tests.mutants.tt_reuse import MARKS, REUSE

UNITS = (BURST, BUS, READ, READS, WRITE, FIFO, ROUND_ROBIN, SCHEDULER, SPLITTER, RELEASE, QUEUE, SEQUENCER, INDEX,
         REUSE, MARKS, JOINER, POST_POOL, DECODER, FETCH, LANDING, REQUESTS, REPORTER)
BENCHES = sorted({unit.benches for unit in UNITS})


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return Copy(tmp_path_factory.mktemp("mutants"))


@pytest.mark.parametrize("unit", (*UNITS, *ARGUED), ids=lambda unit: unit.file)
def test_mutants_change_one_place(unit):
    """The tables follow the units: a text that is gone is a mutant to write anew."""
    text = (ROOT / unit.file).read_text("utf-8")
    lost = [mutant.why for mutant in unit.mutants if text.count(mutant.old) != 1 or mutant.old == mutant.new]
    assert not lost, f"{unit.file}: `old` does not occur once: {'; '.join(lost)}"
    changes = [(mutant.old, mutant.new) for mutant in unit.mutants]
    assert len(set(changes)) == len(changes) and all((ROOT / bench).exists() for bench in unit.benches)


def test_arguments_are_of_drawn_mutants():
    for unit in ARGUED:
        found = [argument(change) for change in changes(unit.file)]
        assert [found.count(mutant.why) for mutant in unit.mutants] == [1] * len(unit.mutants)


@pytest.mark.regress(1)
@pytest.mark.parametrize("benches", BENCHES, ids="+".join)
def test_the_sound_copy_passes(copy, benches):
    code, output = copy.run(benches)
    assert code == 0, output


@pytest.mark.regress(30)
@pytest.mark.parametrize("unit, mutant", [(unit, mutant) for unit in UNITS for mutant in unit.mutants],
                         ids=lambda item: getattr(item, "why", None) or item.file)
def test_mutant_is_found(copy, unit, mutant):
    found, output = copy.found(unit, mutant)
    assert found, f"{unit.file}: {mutant.why}: {' '.join(unit.benches)} does not find it\n{output[-3000:]}"
