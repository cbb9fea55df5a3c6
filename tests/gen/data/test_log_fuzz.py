"""Malformed logs of every format: read rightly, or refused by a sentence that names the file."""

import os

import pytest

from gen.data.logs import FORMATS
from tests.fuzz import campaign

NAMES = [f"log-{kind}" for kind in FORMATS]


@pytest.mark.regress
def test_malformed_logs():
    """Besides those of tests.fuzz.test_campaign, which has every reader."""
    count = 200_000
    found = campaign.campaign(count, seed=int(os.environ.get("HOTRAIL_SEED", "1")), names=NAMES,
                              processes=os.cpu_count() or 1)
    assert not found.findings, "\n".join(map(str, found.findings[:5]))
    assert found.inputs == count
    for name in NAMES:
        assert found.read[name] > count // 50 // len(NAMES) and found.refused[name] > count // 10 // len(NAMES), name
