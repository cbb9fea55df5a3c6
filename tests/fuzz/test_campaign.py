"""No malformed file ends in a traceback, a crash, a gigabyte or five seconds; and the driver finds what does."""

import mmap
import signal

import pytest

from tests.fuzz import campaign as driver
from tests.fuzz.campaign import Format, Trial, campaign
from verif.bench.runner import seeds


def _fine(tally, count):
    assert not tally.findings, "\n".join(map(str, tally.findings))
    assert tally.inputs == count
    # Not all are refused, and not all are read: the inputs reach behind the first check.
    assert all(tally.refused.values()) and sum(tally.read.values()) > 0


def test_malformed_files():
    _fine(campaign(250), 250)


@pytest.mark.regress
def test_many_malformed_files():
    """More of them by `make fuzz`. Of logs a share of each outcome."""
    count = 20_000
    tally = campaign(count, seed=seeds()[0], processes=2)
    _fine(tally, count)
    share = count // len(tally.read)
    for name in tally.read:
        if name.startswith("log-"):
            assert tally.read[name] > share // 50 and tally.refused[name] > share // 10, name


# ---- the driver itself ----


def _made(action):
    def make(random, folder):
        number = random.randrange(10)
        (folder / "mine").write_bytes(random.randbytes(9))

        def read():
            if number == 3:
                action(folder)
            if number % 2:
                raise ValueError("mine: line 1: odd")

        return Trial("mine", read)

    return Format("made", make)


def _hang(folder):
    while True:
        pass


def _crash(folder):
    (folder / "cut").write_bytes(bytes(4096))
    with (folder / "cut").open("r+b") as file:
        shared = mmap.mmap(file.fileno(), 0)
        file.truncate(0)
        print(shared[0])


def _fail(folder):
    raise KeyError("x")


def _vague(folder):
    raise ValueError("something is wrong")


def _large(folder):
    bytearray(2 << 30)


ACTIONS = {"KeyError: 'x'": _fail, "refused by no line that names mine": _vague, "MemoryError": _large,
           f"ended with {signal.SIGBUS.name}": _crash, "more than 0.3 s": _hang}


@pytest.mark.turns(2)
@pytest.mark.parametrize("what", ACTIONS)
def test_the_driver_names_the_input(what, monkeypatch, tmp_path):
    """The child finds the format in a module of its own."""
    (tmp_path / "odd_formats.py").write_text(f"from tests.fuzz.test_campaign import _made, ACTIONS\n"
                                             f"FORMATS = (_made(ACTIONS[{what!r}]),)\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("HOTRAIL_FUZZ", "odd_formats")
    monkeypatch.setattr(driver, "SECONDS", 0.3)
    tally = campaign(40)
    assert tally.inputs == 40 and tally.refused["made"] and tally.read["made"]
    found = [finding.number for finding in tally.findings]
    assert found == sorted({number for number in range(40) if driver.Random(f"made:0:{number}").randrange(10) == 3})
    assert all(what in finding.what and "--format made --seed 0 --number" in str(finding) for finding in tally.findings)
