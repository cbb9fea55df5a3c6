"""Faults that every core can meet, on the simulated card: each ends with its cause, and the next run is right.

The preset `tiny`; one model of a core serves the whole file. Every run that ends is checked by the card: rules of the
bus, reads of memory that was never written, guard bytes around each buffer. What one core alone can meet is in
test_card_emb.py, test_card_mlp.py and test_card_hotline_faults.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from fpga.card import Faults
from tests.support import emb_bench, hotline_bench, mlp_bench
from tests.support.emb_bench import QUICK
from tests.support.faulty import CHANNELS, benches_of, count_of
from tests.support.mlp_sizes import NETWORKS

UNIT = ("emb/core", "mlp/core", "hotline/core")

emb_benches = benches_of(emb_bench.Bench, emb_bench.tried, "EMB", "HOTRAIL_FAULTS")
mlp_benches = benches_of(mlp_bench.Bench, mlp_bench.tried, "MLP", "HOTRAIL_MLP_FAULTS")
hotline_benches = hotline_bench.fixtures()[0]


@dataclass(frozen=True)
class Subject:
    """What faults are tried on. run: made on a card with the core; silent: the same for a memory that never answers;
    moments: of aborts and of resets; errors: error responses per channel; progress: beats before the result block whose
    errors come too late to be reported in it; is_place: whether the place that the result block names is right; clock:
    cycles by which equal runs may differ, the time of the host between two looks."""

    core: str
    run: Callable[[Any], Any]
    moments: int
    errors: int
    progress: int
    silent: Callable[[Any], Any] = lambda run: run
    is_place: Callable[[Any, str, str, dict[str, int]], bool] = lambda *_: True
    clock: int = 0


def _mlp_place(run, port, way, block):
    """A read's error is reported with what was read, and with an instruction of that kind; a write's may be that of the
    result block, which then says nothing."""
    if way == "write":
        return True
    item = int(run.words[block["instruction"], 0]) & 0xFF if block["detail"] else None
    return (port, block["detail"], item) in {
        ("m00_axi", 0, None), ("m00_axi", 1, 1), ("m01_axi", 2, 2), ("m01_axi", 2, 3)}


HOTLINE_DETAILS = {("m00_axi", "read"): {0, 1, 2, 3, 5}, ("m01_axi", "read"): {4}, ("m00_axi", "write"): {0, 1},
                   ("m01_axi", "write"): {2}}


def _hotline_place(run, port, way, block):
    """A read's error is reported with what was read, a write's with what was written."""
    return block["detail"] in HOTLINE_DETAILS[port, way]


def _mlp(name):
    return Subject("mlp", lambda bench: bench.network(*NETWORKS[name]), 30, 16, 2, is_place=_mlp_place)


def _hotline(name):
    return Subject("hotline", lambda bench: hotline_bench.RUNS[name], 16, 12, 4,
                   silent=lambda run: run.copy(timeout=6000), is_place=_hotline_place)


SUBJECTS = {"emb": Subject("emb", emb_bench.Bench.with_a_fill, 40, 24, 1, clock=QUICK.cycles(QUICK.host.poll_us)),
            "mlp-dot": _mlp("dot"), "mlp-parts": _mlp("parts"), "hotline-rows": _hotline("rows"),
            "hotline-pooled": _hotline("pooled")}
ONE_EACH = ["emb", "mlp-dot", "hotline-rows"]
#: The channels of all subjects.
CHANNELS_OF = [pytest.param(name, port, way, id=f"{name}-{port}-{way}") for name, subject in SUBJECTS.items()
               for port, way in (hotline_bench.PORTS if subject.core == "hotline" else emb_bench.Bench.ports)]


@pytest.fixture(scope="module")
def standing(request):
    """By the subject's name: its card, the run that faults are tried on, and the cycles of it."""
    made: dict[str, tuple[Any, int]] = {}

    def get(name):
        subject = SUBJECTS[name]
        bench = request.getfixturevalue(f"{subject.core}_benches")(seed=5)
        if name not in made:
            run = subject.run(bench)
            bench.same(run)
            made[name] = run, bench.same(run)
        return bench, *made[name]

    return get


every = partial(pytest.mark.parametrize, "name")


@every(SUBJECTS)
@pytest.mark.testpoint("latency_and_rate_as_documented")
def test_the_same_twice(standing, name):
    """The same run again takes the same cycles, but for the host's clock where there are pages."""
    bench, run, cycles = standing(name)
    assert abs(bench.same(run) - cycles) <= SUBJECTS[name].clock


@pytest.mark.turns(5)
@every(SUBJECTS)
@pytest.mark.parametrize("channel", [*CHANNELS, "all"])
@pytest.mark.parametrize("share", [0.3, 0.8])
@pytest.mark.testpoint("backpressure_both_sides")
def test_stalls(standing, name, channel, share):
    """Random stalls on every channel of both ports."""
    bench, run, _ = standing(name)
    bench.stalls(run, channel, share)


@pytest.mark.turns(2)
@pytest.mark.parametrize(("name", "port", "way"), CHANNELS_OF)
@pytest.mark.testpoint("errors")
def test_error_responses(standing, name, port, way):
    """An error response on any beat of either port ends the run with cause and place."""
    bench, run, _ = standing(name)
    subject, ended = SUBJECTS[name], 0
    for block in bench.error_responses(run, port, way, subject.errors, subject.progress):
        assert not block["code"] or subject.is_place(run, port, way, block), block
        ended += bool(block["code"])
    assert ended


@pytest.mark.turns(1)
@every(SUBJECTS)
@pytest.mark.testpoint("errors")
def test_abort_at_any_cycle(standing, name):
    """An abort at any cycle ends the run with that cause."""
    bench, run, cycles = standing(name)
    bench.aborts(run, cycles, SUBJECTS[name].moments)


@pytest.mark.turns(1)
@every(SUBJECTS)
@pytest.mark.testpoint("errors")
def test_abort_with_stalls(standing, name):
    """Transfers that take long are waited for, and end whole."""
    bench, run, cycles = standing(name)
    for seed in range(count_of(10)):
        bench.card.set_faults(Faults(seed=seed, stalls=dict.fromkeys(CHANNELS, 0.7)))
        bench.abort(run, bench.draw.integers(1, 2 * cycles))


@pytest.mark.turns(1)
@every(SUBJECTS)
@pytest.mark.testpoint("killed_hosts")
def test_a_host_killed_at_any_cycle(standing, name):
    """Its driver resets the core alone: nothing is written from then on, and the next run is right."""
    bench, run, cycles = standing(name)
    bench.kills(run, cycles, 20)


@pytest.mark.turns(1)
@every(SUBJECTS)
@pytest.mark.testpoint("watchdog")
def test_a_memory_that_never_answers(standing, name):
    """The watchdog ends the run with what owed an answer, and runs are right again when it has come."""
    bench, run, _ = standing(name)
    bench.silences(SUBJECTS[name].silent(run))


@pytest.mark.turns(1)
@every(SUBJECTS)
@pytest.mark.testpoint("reset_midstream")
def test_reset_at_any_cycle(standing, name):
    """A reset at any cycle; the next run is right."""
    bench, run, cycles = standing(name)
    bench.resets(run, cycles, SUBJECTS[name].moments)


@pytest.mark.turns(1)
@every(ONE_EACH)
@pytest.mark.testpoint("errors")
def test_faults_with_the_ddr4_memory(request, name):
    """The same kinds of faults with times that vary: a few of each."""
    subject = SUBJECTS[name]
    bench = request.getfixturevalue(f"{subject.core}_benches")("ddr4", seed=5)
    bench.some_of_each(subject.run(bench))


@pytest.mark.turns(1)
@every(ONE_EACH)
def test_a_hang_is_reported(standing, name):
    """The card, not the core: too few cycles are an error of their own."""
    bench, run, _ = standing(name)
    bench.hang(run)
