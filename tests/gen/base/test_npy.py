"""Arrays out of npz files: what cannot be read is refused with one sentence that names file and array."""

import zipfile

import pytest

from gen.base.npy import member


@pytest.mark.parametrize(("name", "shown"), [
    ("ids_C1.npy", "ids_C1"), ("a\nb.npy", r"'a\\nb'"), ("\x1b[2J", r"'\\x1b\[2J'"),
])
def test_names_are_shown_on_one_line(tmp_path, name, shown):
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, b"no array")
    with (zipfile.ZipFile(path) as archive,
          pytest.raises(ValueError, match=rf"^{path}: {shown} is no array: it begins with b'no array'$")):
        member(archive, name, 100)
