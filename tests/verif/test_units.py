"""Every component of hw has an oracle and a bench that exist, and docs/reference/units.md lists them."""

import pytest

from verif.units import PAGE, Unit, collect, faults, page


@pytest.fixture(scope="module")
def units():
    return collect()


def test_every_component_has_an_oracle_and_a_bench(units):
    assert len(units) > 90
    assert faults(units) == []


def test_the_page_is_up_to_date(units):
    assert PAGE.read_text("utf-8") == page(units), "the page is old: .venv/bin/python -m verif.units"


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
