"""Processor seconds of a pytest run, by part and by test, beside a yardstick: a plugin that conftest.py loads.

A test is charged what its process and the programs that it waited for used, from its set-up to its tear-down, fixtures
among it. Seconds of two machines or of a busy one do not compare; their ratio to the yardstick, a test that always does
the same (tests/verif/test_yardstick.py), does. Nothing fails for being slow.
"""

import resource
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gen.base import kept
from gen.base.tools import build_folder

YARDSTICK = "tests/verif/test_yardstick.py::test_yardstick"
LARGEST = 20
_KEY = "processor_s"
_FEW = 50       # tests; a run of fewer writes no table


def used() -> float:
    """Processor seconds of this process and of those that it waited for."""
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in spent)


def part(test: str) -> str:
    """The package that a test belongs to: `verif/emb`, `tests/gen`."""
    folders = test.partition("::")[0].split("/")[:-1]
    return "/".join(folders[:2]) or "."


def table(tests: Mapping[str, float], total: float) -> Iterator[str]:
    """The lines of a Markdown page.

    Parameters  tests: processor seconds by node; total: of the whole run, with what no test is charged for
    """
    yardstick = tests.get(YARDSTICK, 0.0)
    rest = {"imports, collection, workers": total - sum(tests.values())}

    def rows(seconds: Mapping[str, float], count: int | None = None) -> Iterator[str]:
        for name, value in Counter(seconds).most_common(count):
            ratio = f" {value / yardstick:.2f} |" if yardstick else ""
            yield f"| {name} | {value:.1f} | {100 * value / total:.1f} % |{ratio}"

    def head(what: str) -> str:
        columns = [what, "processor seconds", "share", *(["yardsticks"] if yardstick else [])]
        return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"

    ratio = f", {total / yardstick:.0f} yardsticks of {yardstick:.1f} s" if yardstick else ""
    yield f"{len(tests):,} tests: {total:.0f} processor seconds{ratio}"
    yield ""
    yield head("part")
    parts: Counter[str] = Counter()
    for test, value in tests.items():
        parts[part(test)] += value
    yield from rows(parts | rest)
    yield ""
    yield head(f"the {LARGEST} largest tests")
    yield from rows(tests, LARGEST)


_begun = 0.0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    global _begun
    _begun = used()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> None:
    if call.when == "teardown":
        item.user_properties.append((_KEY, used() - _begun))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker's last word to the process that counts."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_KEY] = used()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Sum())


class _Sum:
    """What this process, or its workers, measured."""

    def __init__(self) -> None:
        self.tests: dict[str, float] = {}
        self.workers: list[float] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.tests[report.nodeid] = dict(report.user_properties).get(_KEY, 0.0)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.workers.append(getattr(node, "workeroutput", {}).get(_KEY, 0.0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self.tests) < _FEW:
            return
        own = resource.getrusage(resource.RUSAGE_SELF)      # of its children the workers count themselves
        total = sum(self.workers) + own.ru_utime + own.ru_stime if self.workers else used()
        lines = list(table(self.tests, total))
        path = build_folder() / "test-times.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        kept.replace(path, "\n".join([*lines, ""]).encode())
        terminalreporter.write_line(f"{lines[0]}; {path}")
