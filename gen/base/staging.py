"""Outputs that are written whole or not at all: beside their place, and put there at the end.

Whatever ends a `with` early, an interrupt too, leaves what was there before and nothing else. What lies beside its
place at a moment is known to `discard`, for a process that has no time to leave its `with`s.
"""

import ctypes
import errno
import json
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Folders with a manifest: the commands that write them, by what the manifest says.
WRITERS = {"bundle": "compile", "delta": "refresh"}
#: What is made of a preset, which may have the name of a command and so the same folder in build.
OF_PRESETS = re.compile(r"hotrail_.+|vitis|hls|f2")
#: What a command may leave that did not end: a log's counts.
BEFORE = ("profile.npz",)
#: The title of a report names its command.
TITLE = re.compile(rb"<title>hotrail ([a-z-]+): ")

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_staged: set[Path] = set()


@contextmanager
def staged(place: str | Path, *, parents: bool = True) -> Iterator[Path]:
    """The path of a file or folder that will be at `place`; nothing is there yet. It has the name of `place`, or
    where that is a link, of what it leads to.

    A folder replaces one that is there, at once; a device or a pipe is written itself, and never replaced. parents:
    folders above that are missing are made.
    """
    given, place = Path(place), Path(os.path.realpath(place))
    if given.exists() and not (given.is_file() or given.is_dir()):
        yield given
        return
    if parents:
        place.parent.mkdir(parents=True, exist_ok=True)
    with _beside(place, place.parent) as folder:
        half = folder / place.name
        yield half
        with _undisturbed():
            if half.is_dir() and place.is_dir():
                _exchange(half, place)
            else:
                os.replace(half, place)


@contextmanager
def together(place: str | Path, command: str = "") -> Iterator[Path]:
    """An empty folder; what is written into it is moved into the folder `place` in the end, over what has its name. It
    lies in `place` where that is there: the folder above may be another disk's, or not for us to write.

    Parameters  command: of hotrail, whose results these are; none: what is there is not looked at
    Raises      NotADirectoryError: `place` is something else; ValueError: it holds what another command wrote, or
                files of a user's, as logs
    """
    check_folder(place, command)
    place = Path(os.path.realpath(place))
    place.parent.mkdir(parents=True, exist_ok=True)
    with _beside(place, place if place.exists() else place.parent) as folder:
        half = folder / place.name
        half.mkdir()
        yield half
        with _undisturbed():
            place.mkdir(exist_ok=True)
            for path in sorted(half.iterdir()):
                if path.is_dir() and (place / path.name).is_dir():
                    _exchange(path, place / path.name)
                else:
                    os.replace(path, place / path.name)


def check_folder(place: str | Path, command: str = "") -> None:
    """Raises as `together` does, for a command that works long before it writes."""
    if Path(place).exists() and not Path(place).is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place))
    if not command or not Path(place).exists():
        return
    if (other := written_by(Path(place))) not in (None, command):
        raise ValueError(f"{place} holds what `hotrail {other}` wrote, which `hotrail {command}` would destroy; --out "
                         "names another folder")
    if other is None and (strange := sorted(path.name for path in Path(place).iterdir()
                                            if path.name[0] != "." and path.name not in BEFORE
                                            and not OF_PRESETS.fullmatch(path.name))):
        raise ValueError(f"{place} holds {strange[0]}, which `hotrail {command}` did not write; --out names another "
                         "folder, or one that does not exist")


def written_by(folder: Path) -> str | None:
    """The command of hotrail whose results a folder holds, by what lies in it; None: none that is known."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        kind = json.loads((folder / "manifest.json").read_bytes()).get("kind")
        if kind in WRITERS:
            return WRITERS[kind]
    if (folder / "plan.json").exists():
        return "plan"
    with suppress(OSError):
        with (folder / "index.html").open("rb") as page:
            title = TITLE.search(page.read(1024))
        return title and title[1].decode()
    return None


def discard() -> None:
    """Removes all that lies beside its place."""
    for folder in tuple(_staged):
        _remove(folder)


@contextmanager
def _beside(place: Path, where: Path) -> Iterator[Path]:
    """A folder in `where`, on the file system of `place`, gone at the end."""
    folder = None
    try:
        with _undisturbed():
            try:
                folder = Path(tempfile.mkdtemp(prefix=f".{place.name[:100]}.", dir=where))
            except OSError as error:    # its name says nothing to a user
                raise type(error)(error.errno, error.strerror, str(place)) from None
            _staged.add(folder)
        yield folder
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:     # of a write to an open file
            error.filename = str(place)
        raise
    finally:
        with _undisturbed():
            if folder is not None:
                _remove(folder)


def _remove(folder: Path) -> None:
    for _ in range(100):        # a thread of ours may still write into it
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
    _staged.discard(folder)


def _exchange(one: Path, other: Path) -> None:
    """Each of two folders gets the other's name, at once where the file system can."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        old = one.with_name(f"{one.name}.old")
        os.replace(other, old)
        os.replace(one, other)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Holds an interrupt back until the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)
