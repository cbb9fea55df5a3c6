"""What concerns all tests: the long sweeps run only when asked for."""

import os

import pytest


def pytest_collection_modifyitems(config, items):
    if os.environ.get("HOTRAIL_REGRESS"):
        return
    long = [item for item in items if item.get_closest_marker("regress")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("regress")]


@pytest.fixture(scope="session")
def data_folder():
    """The folder with the larger logs (HOTRAIL_DATA); a test that needs it is skipped without."""
    from pathlib import Path

    folder = os.environ.get("HOTRAIL_DATA")
    if not folder:
        pytest.skip("HOTRAIL_DATA is not set: it names the folder with the larger logs")
    return Path(folder)
