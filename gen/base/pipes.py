"""Copies of what can be read once, pipes and the standard input, and their names in what is said of them."""

import atexit
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

#: What the files stand for.
_NAMES: dict[str, str] = {}


def copied(source: Path, name: str, ending: Callable[[Path], str] = lambda copy: "") -> Path:
    """A copy that is there as long as this process. name: of the source, for messages; ending: of the copy's name, by
    what it holds."""
    copy = folder_of_process() / Path(name).name
    with source.open("rb") as given, copy.open("wb") as kept:
        shutil.copyfileobj(given, kept, 1 << 20)
    stands_for(copy, name)
    if (end := ending(copy)) and copy.suffix.lower() != end:
        del _NAMES[str(copy)]
        copy = copy.rename(copy.with_name(copy.name + end))
        stands_for(copy, name)
    return copy


def folder_of_process() -> Path:
    """A folder that is there as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="hotrail-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def stands_for(copy: Path, name: str) -> None:
    """Messages name the source in the place of the copy."""
    _NAMES[str(copy)] = name


def with_names(text: str) -> str:
    """A message that names sources in the place of their copies."""
    for copy, name in _NAMES.items():
        text = text.replace(copy, name)
    return text
