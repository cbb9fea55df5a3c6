"""Every unit has its seven testpoints or says why not; the site's page lists the tests of each."""

import pytest

from verif import testpoints
from verif.testpoints import collect, faults, main, page


@pytest.fixture(scope="module")
def units():
    return collect()


def test_every_unit_has_its_testpoints(units):
    assert len(units) > 50
    assert faults(units) == []


def test_every_testpoint_is_of_a_tier_or_waived(units):
    """And the page names every test of every unit."""
    rows = [row.split(" | ") for row in page(units).splitlines() if row.startswith("| ")][1:]
    assert len(rows) == sum(len(unit.points) for unit in units.values())
    for unit, point, tier, tests in rows:
        assert tier in ("test", "regress") or (tier == "" and tests.startswith("waived: ")), (unit, point)
    named = {test.file + "::" + test.name for unit in units.values() for tests in unit.tests.values() for test in tests}
    assert all(any(f"`{name}`" in tests for *_, tests in rows) for name in named)


BENCH = '''
import cocotb
import pytest
{stated}

@cocotb.test()
async def smoke(dut):
    """One beat."""

{seven}
{more}
'''
SEVEN = "\n".join(f'def test_{name}():\n    """Tried."""\n' for name in (
    "random_match_golden", "latency_and_rate_as_documented", "reset_midstream", "corner_values",
    "illegal_config_wrong"))
WAIVED = 'WAIVED = {"backpressure_both_sides": "There is no handshake on either side."}'


@pytest.fixture
def made(tmp_path):
    """What is collected from a project of one unit, hw/tt/index.py, with this bench."""
    def collected(more="", stated=WAIVED, seven=SEVEN, file="verif/tt/test_index.py"):
        for name, text in (("hw/tt/index.py", ""), (file, BENCH.format(more=more, stated=stated, seven=seven))):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, "utf-8")
        return collect(tmp_path)

    return collected


def test_a_unit_from_its_path_and_names(made):
    units = made()
    assert list(units) == ["tt/index"] and faults(units) == []
    smoke, = units["tt/index"].tests["smoke"]
    assert (smoke.file, smoke.name, smoke.about) == ("verif/tt/test_index.py", "smoke", "One beat.")


def test_markers_add_testpoints_and_units(made):
    units = made('@pytest.mark.testpoint("errors", "smoke", unit=("tt/index", "tt/index: wide"))\n'
                 'def test_more():\n    """More."""')
    assert [test.name for test in units["tt/index"].tests["smoke"]] == ["smoke", "test_more"]
    assert list(units["tt/index: wide"].tests) == ["errors", "smoke"]
    assert faults(units)[0] == "tt/index: wide: no test of random_match_golden, and no reason in WAIVED"


def test_the_target_that_runs_it_first(made):
    """A bench whose every start is a long sweep is of `make regress`, and so are its cocotb tests."""
    long = "\n".join(f"@pytest.mark.regress\n{line}" if line.startswith("def") else line for line in SEVEN.split("\n"))
    for seven, wanted in ((SEVEN, "test"), (long, "regress")):
        rows = page(made(seven=seven)).splitlines()
        assert {row.split(" | ")[2] for row in rows if "::" in row} == {wanted}


@pytest.mark.parametrize("change,sentence", [
    ({"stated": ""}, "tt/index: no test of backpressure_both_sides, and no reason in WAIVED"),
    ({"stated": WAIVED.replace("backpressure_both_sides", "smoke")},
     "tt/index: smoke is waived, but is none of the seven or has a test"),
    ({"stated": WAIVED.replace("There is no handshake on either side.", "Later.")},
     "tt/index: the reason why backpressure_both_sides is waived must be a sentence, not 'Later.'"),
    ({"more": '@pytest.mark.testpoint("errors")\ndef test_silent():\n    pass'},
     "verif/tt/test_index.py::test_silent: a testpoint's test needs a sentence as docstring"),
])
def test_what_is_missing(made, change, sentence):
    assert sentence in faults(made(**change))


@pytest.mark.parametrize("change,sentence", [
    ({"more": '@pytest.mark.testpoint("errors")\ndef helper():\n    pass'},
     "helper: a testpoint marks what is no test"),
    ({"more": '@pytest.mark.testpoint("errors")\n@cocotb.test()\nasync def errors(dut):\n    pass'},
     "errors: the marker belongs below cocotb's decorators, which would lose the test"),
    ({"more": '@pytest.mark.testpoint()\ndef test_none():\n    pass'},
     "test_none: a testpoint needs a name, and a unit"),
    ({"more": '@pytest.mark.testpoint(NAME)\ndef test_name():\n    pass'}, "test_name: NAME must be a literal"),
    ({"more": '@pytest.mark.testpoint("errors", units="a")\ndef test_it():\n    pass'}, "a testpoint has no units"),
    ({"stated": 'UNIT = "tt/nothing"'}, "there is no hw/tt/nothing.py, which a test names as its unit"),
    ({"file": "verif/tt/test_other.py"}, "verif/tt/test_other.py: there is no hw/tt/other.py; state UNIT"),
])
def test_what_cannot_be(made, change, sentence):
    with pytest.raises(ValueError) as caught:
        made(**change)
    assert sentence in str(caught.value)


def test_the_command(units, monkeypatch, capsys):
    monkeypatch.setattr(testpoints, "collect", lambda: units)
    main(["stream/fifo"])
    assert "\n  smoke\n    verif/stream/test_fifo.py::smoke: " in capsys.readouterr().out
    for arguments, code, said in ((["--help"], 0, "usage:"), (["--all"], 2, "unrecognized"), (["no"], 2, "units are")):
        with pytest.raises(SystemExit, match=str(code)):
            main(arguments)
        assert said in " ".join("".join(capsys.readouterr()).split())
