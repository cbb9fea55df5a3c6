"""The memory's model stays with the simulators' recorded clocks and the measured latencies."""

import tomllib

import numpy as np
import pytest

from bench import fidelity

pytestmark = pytest.mark.regress

SUMS = {"random_64": 12061741928, "random_256": 3027034955, "random_1024": 734501213,
        "sequential": 187272564, "third_hot_256": 2990477786}
HBM_SUMS = {"random_64": 11981638733, "random_256": 2983386977, "random_1024": 756459702,
            "sequential": 187272564, "third_hot_256": 2985671716}


@pytest.mark.parametrize("bench, targets", [
    (fidelity.dram, 2), (fidelity.controller, 3), (fidelity.hbm, 4),
    (fidelity.ssd, 1)])
def test_every_target_is_met(bench, targets):
    rows = list(bench())
    assert sum(row.met is not None for row in rows) == targets
    assert [row for row in rows if row.met is False] == []


def test_mqsim_prints_whole_microseconds():
    """What it printed as it comes is what it prints of nanoseconds, cut off."""
    recorded = tomllib.loads(fidelity.RECORDED.read_text("utf-8"))["mqsim"]
    assert {name: ns // 1000 for name, ns in recorded["ns"].items()} == recorded["us"]


def test_streams_are_those_that_were_fed_to_the_simulators():
    """By a sum over addresses: the recorded clocks are of these streams and no others."""
    for name, sums, size, at in ((name, sums, *stream) for sums, memory in ((SUMS, 1 << 32), (HBM_SUMS, 1 << 29))
                                 for name, stream in fidelity.streams(memory).items()):
        assert int((at * (np.arange(len(at)) + 1) % 1_000_003).sum()) == sums[name]
        lines = (at[:, None] // 64 + np.arange(size // 64)).ravel()
        assert len(set(lines.tolist())) == len(lines) == fidelity.LINES, name

