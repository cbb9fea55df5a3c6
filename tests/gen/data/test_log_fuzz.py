"""Malformed logs of every format: read rightly, or refused by a sentence that names the file."""

import os

import pytest

from gen.data.logs import FORMATS
from tests.fuzz import campaign

NAMES = [f"log-{kind}" for kind in FORMATS]


def run(count, seed, processes=1):
    found = campaign.campaign(count, seed=seed, names=NAMES, processes=processes)
    assert not found.findings, "\n".join(map(str, found.findings[:5]))
    assert found.inputs == count
    return found


def test_malformed_logs():
    found = run(40 * len(NAMES), 0)
    for name in NAMES:
        assert found.read[name] > 4 and found.refused[name] > 10, (name, found)


@pytest.mark.regress
def test_many_malformed_logs():
    run(200_000, int(os.environ.get("HOTRAIL_SEED", "1")), os.cpu_count() or 1)
