"""What the tests of card.xrt on a library that plays XRT share."""

import pytest

from tests.support.xrt_double import Machine


@pytest.fixture(autouse=True)
def no_emulation(monkeypatch):
    monkeypatch.delenv("XCL_EMULATION_MODE", raising=False)


@pytest.fixture
def machine(tmp_path):
    return lambda *numbers, **options: Machine(tmp_path, *numbers, **options)
