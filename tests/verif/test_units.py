"""Every component of hw has an oracle and a bench that exist; the site's page lists them."""

import pytest

from tests.mutants.evidence import evidence
from verif.units import Evidence, Unit, collect, faults, page


@pytest.fixture(scope="module")
def units():
    return collect()


def test_every_component_has_an_oracle_and_a_bench(units):
    assert len(units) > 90
    assert faults(units) == []


def test_the_page_has_a_row_for_each(units):
    rows = page(units, {}).splitlines()
    for unit in units:
        assert sum(row.startswith(f"| `{unit.file}` {unit.name} | ") for row in rows) == 1
    text = page([Unit("hw/a.py", "A", "golden.a.b", "verif/test_a.py"), Unit("hw/b.py", "Part", "", "")],
                {"hw/a.py": Evidence("7, 6 in `make test`", "3, 20 drawn from", "4")})
    assert text.endswith("| `hw/a.py` A | `golden.a.b` | `verif/test_a.py` | 7, 6 in `make test` | "
                         "3, 20 drawn from | 4 |\n"
                         "| `hw/b.py` Part | part of another component of its file |  |  |  |  |\n")


@pytest.mark.regress
def test_the_page_knows_what_a_unit_is_tried_by():
    known = evidence()
    assert known["hw/axi/control.py"].claims != "0" and known["hw/axi/burst.py"].mutants.startswith("25, ")
    assert known["hw/stream/fifo.py"].testpoints.startswith("7")


def test_what_is_missing_is_named():
    wrong = [Unit("hw/a.py", "A", "golden.secded.decode", "verif/test_secded.py"),
             Unit("hw/a.py", "Part", "", ""),
             Unit("hw/b.py", "B", "golden.secded.nothing", "verif/nothing.py, test_here.py"),
             Unit("hw/c.py", "C", "", ""),
             Unit("hw/d.py", "D", "", "verif/test_secded.py")]
    assert faults(wrong) == [
        "hw/b.py, B: there is no golden.secded.nothing",
        "hw/b.py, B: there is no verif/nothing.py",
        "hw/b.py, B: there is no verif/test_here.py",
        "hw/c.py, C: no component of this file names a bench",
        "hw/d.py, D: the docstring names benches but no oracle"]
