"""What concerns all tests: the seed of what they draw, and that the long sweeps run only when asked for."""

import gc
import os
import signal

import pytest


def _seed():
    """The first of verif.bench.runner.seeds, without its imports."""
    return os.environ.get("HOTRAIL_SEED") or os.environ.get("HOTRAIL_FIRST_SEED") or "1"


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"drawn from seed {_seed()}; again with HOTRAIL_SEED={_seed()}")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Hypothesis draws by the same seed, and judges no times: the machine may be busy. SIGINT is heard, also where a
    shell that works in the background has it ignored: tests of interrupts would wait for it for ever."""
    from hypothesis import settings

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    settings.register_profile("hotrail", deadline=None)
    settings.load_profile("hotrail")
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = _seed()


def pytest_collection_modifyitems(config, items):
    if os.environ.get("HOTRAIL_REGRESS"):
        return
    long = [item for item in items if item.get_closest_marker("regress")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("regress")]


def pytest_collection_finish():
    """What has been imported stays: no look for garbage goes through it again."""
    gc.freeze()


@pytest.fixture(scope="session")
def data_folder():
    """The folder with the larger logs (HOTRAIL_DATA); a test that needs it is skipped without."""
    from pathlib import Path

    folder = os.environ.get("HOTRAIL_DATA")
    if not folder:
        pytest.skip("HOTRAIL_DATA is not set: it names the folder with the larger logs")
    return Path(folder)


@pytest.fixture(scope="session")
def real_log(data_folder):
    """Reads one of the larger logs as arrays; a test whose log is not there is skipped."""
    from gen.data.logs import Trace, open_log

    def read(name):
        path = data_folder / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"needs {path.name} in the folder that HOTRAIL_DATA names")
        return Trace.of(open_log(path))

    return read
