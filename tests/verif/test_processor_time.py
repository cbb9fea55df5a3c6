"""The table of where a run's processor time went."""

from tests.support.processor_time import LARGEST, YARDSTICK, part, table, used


def test_shares_and_yardsticks():
    """Parts and tests from the largest on; what no test is charged for stands among the parts."""
    tests = {YARDSTICK: 5.0, "verif/emb/test_rows.py::test_rows[1]": 20.0, "tests/test_ties.py::test_ties": 5.0}
    head, *rows = table(tests, 40.0)
    assert head == "3 tests: 40 processor seconds, 8 yardsticks of 5.0 s"
    found = [row.split(" | ") for row in rows if row.startswith("| ") and "processor" not in row]
    assert found[0] == ["| verif/emb", "20.0", "50.0 %", "4.00 |"]
    assert ["| imports, collection, workers", "10.0", "25.0 %", "2.00 |"] in found
    assert found[-3][0] == "| verif/emb/test_rows.py::test_rows[1]" and len(found) == 4 + len(tests)


def test_without_the_yardstick_there_is_no_ratio():
    many = {f"tests/gen/test_{number}.py::test": 1.0 for number in range(2 * LARGEST)}
    lines = list(table(many, 50.0))
    assert lines[0] == f"{len(many)} tests: 50 processor seconds" and not any("yardstick" in line for line in lines)
    assert sum("::" in line for line in lines) == LARGEST


def test_parts_are_packages():
    assert [part(name) for name in ("verif/emb/test_a.py::b", "tests/fpga/card/test_a.py::b[c/d]", "tests/test_a.py::b",
                                    "test_a.py::b")] == ["verif/emb", "tests/fpga", "tests", "."]


def test_processor_time_passes_with_work():
    begin = used()
    while used() - begin < 0.02:
        pass
