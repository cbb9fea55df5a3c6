"""Tables on terminals of any width."""

import pytest

from hotrail.terminal import console, print_table

HEAD = ("table", "rows", "accesses per batch", "time")
ROWS = [("user_id", "1,883,291,004", "123,456.78", "1.5 ms"),
        ("a name " * 12, "7", "9", "-"), ("[/red]\x1b[2J", "", "1", "2")]


def shown(width, head=HEAD, rows=ROWS, **options):
    printed = console(width=width, color_system=None)
    with printed.capture() as caught:
        print_table(printed, head, rows, **options)
    return [line.rstrip() for line in caught.get().splitlines()]


@pytest.mark.parametrize("width", [28, 40, 60, 80, 120, 200])
def test_cells_stand_whole(width):
    """At every width each number and each word of a head is there, and no line is longer."""
    lines = shown(width, title="Tables")
    assert max(map(len, lines)) <= width and lines[0] == "Tables"
    words = " ".join(lines).split()
    assert {cell for row in ROWS for cell in row[1:] for cell in cell.split()} <= set(words)
    assert {word for name in HEAD for word in name.split()} <= set(words)
    assert not any("…" in line or "\x1b" in line for line in lines)


def test_columns_that_do_not_fit_follow_behind_the_first():
    rows = [("user", "1,883,291,004", "123,456.78", "1.5 ms"), ("item", "7", "9", "-")]
    assert shown(34, rows=rows) == [
        "                        accesses",
        "table           rows   per batch",
        "user   1,883,291,004  123,456.78",
        "item               7           9",
        "table    time",
        "user   1.5 ms",
        "item        -"]
    assert shown(80, rows=rows)[0] == "table           rows  accesses per batch    time"


def test_without_rows_the_head_is_there():
    assert shown(80, rows=[]) == ["table  rows  accesses per batch  time"]
