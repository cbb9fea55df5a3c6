"""The bench framework: ids are unique, what was measured stays, a miss is a miss."""

import json
import sys
from types import SimpleNamespace

import pytest

from bench import framework
from bench.framework import LeftOut, Row, at_least, at_most, figure

pytestmark = pytest.mark.regress


@pytest.fixture
def benches(monkeypatch):
    known = {}
    monkeypatch.setattr(framework, "_BENCHES", known)
    monkeypatch.setattr(framework, "registered", lambda: list(known.values()))
    return known


def quiet(_):
    pass


def test_rows():
    assert at_least("a", "x", 99.0, "%", 99) == Row("a", "x", 99.0, "%", ">= 99", True)
    assert at_least("a", "x", 98.9, "%", 99).met is False
    assert at_most("a", "x", 281, "LUT", 280) == Row("a", "x", 281, "LUT", "<= 280", False)
    assert figure("a", "x", 1, "s").met is None


def test_runs_and_keeps(benches, tmp_path):
    values = iter([1, 2, 3])

    @framework.bench("one")
    def one():
        """Counts."""
        yield figure("one.count", "count", next(values), "")

    @framework.bench("two")
    def two():
        """Counts as well."""
        yield at_least("two.count", "count", next(values), "", 5)

    path = tmp_path / "bench.json"
    framework.run(path=path, echo=quiet)
    rows = framework.run(["one"], path=path, echo=quiet)
    assert [(row.id, row.value) for row in rows] == [("one.count", 3), ("two.count", 2)]
    assert json.loads(path.read_text("utf-8"))[1] == {
        "id": "two.count", "what": "count", "value": 2, "unit": "", "target": ">= 5", "met": False, "bench": "two",
        **dict(zip(("commit", "date", "processor"), framework.provenance(), strict=True))}


def test_a_row_says_what_measured_it(benches, monkeypatch, tmp_path):
    monkeypatch.setattr(framework, "provenance", lambda: ("c0ffee", "2026-01-02", "P"))

    @framework.bench("one")
    def one():
        """Counts."""
        yield figure("one.count", "count", 1, "")

    (row,) = framework.run(path=tmp_path / "bench.json", echo=quiet)
    assert (row.commit, row.date, row.processor) == ("c0ffee", "2026-01-02", "P")


def test_where_git_is_missing_the_commit_is_unknown(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert framework.provenance()[0] == ""


def test_a_row_that_a_bench_gives_no_more_goes(benches, tmp_path):
    names = iter(["one.a", "one.b"])

    @framework.bench("one")
    def one():
        """Changes its mind."""
        yield figure(next(names), "a", 1, "")

    path = tmp_path / "bench.json"
    framework.run(["one"], path=path, echo=quiet)
    assert [row.id for row in framework.run(["one"], path=path, echo=quiet)] == ["one.b"]


def test_what_is_left_out_says_why_and_keeps_its_rows(benches, tmp_path):
    there = iter([True, False])

    @framework.bench("one")
    def one():
        """Needs something."""
        if not next(there):
            raise LeftOut("needs something that is not there")
        yield figure("one.a", "a", 1, "")

    @framework.bench("two")
    def two():
        """Needs nothing."""
        yield figure("two.a", "a", 2, "")

    path, said = tmp_path / "bench.json", []
    framework.run(["one"], path=path, echo=quiet)
    rows = framework.run(["one", "two"], path=path, echo=said.append)
    assert [row.id for row in rows] == ["one.a", "two.a"]
    assert "one: left out: needs something that is not there" in said


def test_failure_keeps_what_came_before(benches, tmp_path):
    @framework.bench("one")
    def one():
        """Breaks after a row."""
        yield figure("one.a", "a", 1, "")
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        framework.run(path=tmp_path / "bench.json", echo=quiet)
    assert [row["id"] for row in json.loads((tmp_path / "bench.json").read_text("utf-8"))] == ["one.a"]


def test_one_thread_is_for_one_bench(benches, monkeypatch, tmp_path):
    threads = [8]
    torch = SimpleNamespace(get_num_threads=lambda: threads[-1], set_num_threads=threads.append)
    monkeypatch.setitem(sys.modules, "torch", torch)

    @framework.bench("one")
    def one():
        """On one thread, and breaks."""
        framework.one_thread()
        yield figure("one.a", "a", threads[-1], "")
        raise LeftOut("broken")

    @framework.bench("two")
    def two():
        """On all."""
        yield figure("two.a", "a", threads[-1], "")

    rows = framework.run(path=tmp_path / "b.json", echo=quiet)
    assert {row.id: row.value for row in rows} == {"one.a": 1, "two.a": 8}


def test_wrong(benches, tmp_path):
    @framework.bench("one")
    def one():
        """Gives an id twice."""
        yield figure("x", "a", 1, "")
        yield figure("x", "a", 1, "")

    with pytest.raises(ValueError, match="bench one gives a second row x"):
        framework.run(path=tmp_path / "b.json", echo=quiet)
    with pytest.raises(ValueError, match="there is no bench 'nine'; there are one"):
        framework.run(["nine"], path=tmp_path / "b.json", echo=quiet)
    with pytest.raises(ValueError, match="bench mute needs a docstring"):
        framework.bench("mute")(lambda: [])


def test_show(capsys):
    framework.show([figure("a", "plain", 3.14159, "s"), at_least("b", "missed one", 1, "rows", 2)])
    text = capsys.readouterr().out
    assert "3.142" in text and "MISSED" in text and "0 of 1 targets met; missed: b" in text


def test_every_bench_says_what_it_measures():
    """The modules of the package import, and their names are unique."""
    names = [item.name for item in framework.registered()]
    assert len(set(names)) == len(names)
    assert all(item.about for item in framework.registered())


def test_a_bench_without_a_package_that_only_developers_have_is_left_out(benches, tmp_path, monkeypatch):
    """The others are measured; what is missing for another reason is an error."""
    monkeypatch.setitem(sys.modules, "polars", None)

    @framework.bench("a")
    def compared():
        """With another's."""
        import polars  # noqa: F401
        yield figure("x", "a", 1, "")

    @framework.bench("b")
    def alone():
        """Alone."""
        yield figure("y", "b", 2, "")

    said = []
    @framework.bench("d", needs="xls")
    def extra():
        """With an extra."""
        pytest.fail("it is left out before it begins")

    monkeypatch.setattr(framework, "find_spec", lambda name: None)
    rows = framework.run(path=tmp_path / "b.json", echo=said.append)
    assert "d: left out: needs the package xls: pip install 'hotrail[xls]'" in said
    assert [row.id for row in rows] == ["y"]
    assert "a: left out: it needs the package polars, which `make bench` installs with others" in "\n".join(said)

    @framework.bench("c")
    def lost():
        """Of nobody."""
        import nowhere_at_all  # noqa: F401
        yield figure("z", "c", 3, "")

    with pytest.raises(ModuleNotFoundError, match="nowhere_at_all"):
        framework.run(path=tmp_path / "b.json", echo=said.append)
