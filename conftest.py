"""What concerns all tests: the seed of what they draw, and that the long sweeps run only when asked for."""

import contextlib
import gc
import importlib
import os
import random
import signal
from pathlib import Path

import pytest

pytest_plugins = ["tests.support.processor_time"]


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    """Each of several workers imports its share of the tests before all collect all of them. pytest rewrites their
    assertions, which takes four times as long as the rest, and keeps them: the other workers find them. Nothing of it
    is garbage."""
    gc.disable()
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    files = [file for argument in session.config.args for file in sorted(Path(argument).absolute().rglob("test_*.py"))]
    for file in files[int(worker["workerid"].removeprefix("gw"))::worker["workercount"]]:
        # What cannot be imported is said when it is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(session.config.rootpath).with_suffix("").parts))


def pytest_collection_modifyitems(config, items):
    """The tier that is asked for: without HOTRAIL_REGRESS no long sweeps, and in both of a matrix some, in turn by the
    seed."""
    if seed := os.environ.get("HOTRAIL_SHUFFLE"):
        random.Random(seed).shuffle(items)
    regress = os.environ.get("HOTRAIL_REGRESS")
    left_out = set() if regress else {item for item in items if item.get_closest_marker("regress")}
    whole = os.environ.get("HOTRAIL_TURNS") == "all" or os.environ.get("HOTRAIL_SEED") and not regress
    if not whole and not any("[" in argument for argument in config.args):
        left_out |= _not_their_turn([item for item in items if item not in left_out], "regress" if regress else "turns")
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _not_their_turn(items, name):
    """Of each test that is marked with `turns(count)`, the parameters beyond so many, and of all tests marked with
    `turns(count, of=group)` those beyond so many: those that run lie evenly among all, and the first seed says where
    they begin, so that commits try them in turn. name: of the marker, `turns` or `regress`."""
    matrices = {}
    for item in items:
        if (marker := item.get_closest_marker(name)) and marker.args:
            group = marker.kwargs.get("of") or item.nodeid.partition("[")[0]
            matrices.setdefault((group, marker.args[0]), []).append(item)
    rest = set()
    for (_, count), matrix in matrices.items():
        matrix.sort(key=lambda item: item.nodeid)
        begin, size = int(_seed()), len(matrix)
        count = min(count, size)
        chosen = {(begin + k * size // count) % size for k in range(count)}
        rest |= {item for number, item in enumerate(matrix) if number not in chosen}
    return rest


def pytest_collection_finish():
    """What has been imported stays: no look for garbage goes through it again."""
    gc.enable()
    gc.freeze()


@pytest.fixture(scope="session")
def data_folder():
    """The folder with the larger logs (HOTRAIL_DATA); a test that needs it is skipped without."""
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
