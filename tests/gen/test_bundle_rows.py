"""Rows and tensor-train cores in narrow formats, from parameters to a bundle's images; what is refused."""

import numpy as np
import pytest

from gen.bundle import write
from gen.data.remap import DRAM, SSD
from gen.model.row_formats import fused_bytes, quantise, store, values
from gen.model.weights import FileWeights
from golden.tt.block16 import rounded_cores
from tests.support import bundles as make


@pytest.fixture(scope="module")
def profile():
    return make.profile(make.log())


def held(bundle, card, name):
    """Row of the table -> words as they lie on the card, of DRAM and SSD."""
    images = bundle.images(card)
    placed = images.placed[name]
    width = placed.row_beats * images.words
    rows = placed.read(images.rows, np.arange(placed.own_rows))
    found = {}
    for row, word in enumerate(bundle.words(name).tolist()):
        at = word & (1 << 30) - 1
        if word >> 30 == DRAM:
            found[row] = rows[at]
        elif word >> 30 == SSD:
            page = images.pages[placed.first_page + at // placed.page_rows]
            found[row] = page[at % placed.page_rows * width:][:width]
    return found


@pytest.mark.parametrize("form", ["float16", "bfloat16", "int8", "int4"])
def test_rows_in_a_narrow_format(profile, tmp_path, form):
    """Are quantised from float32 parameters, or taken as FBGEMM has quantised them: the same images. Manifest and plan
    have the format."""
    given = make.arrays()
    np.savez(tmp_path / "w.npz", **given)
    plan = make.narrow({"user/id": form, "genre": form})
    one = write(tmp_path / "one", plan, profile, FileWeights(tmp_path / "w.npz"))
    assert {name: told["row_format"] for name, told in one.tables.items()} == {
        "user/id": form, "genre": form, "town": "float32"}
    for card, name, lies in ((0, "user/id", form), (1, "genre", form), (0, "town", "float32")):
        dense, found = given[f"table_{name}"].astype(np.float32), held(one, card, name)
        assert len(found) == len(dense) - make.SPLIT[name][1]
        for row, words in found.items():
            assert np.array_equal(words[None], store(dense[row][None], lies, 4))
    if form not in ("int8", "int4"):
        return
    fused = {name: quantise(given[name].astype(np.float32), form) for name in ("table_user/id", "table_genre")}
    np.savez(tmp_path / "q.npz", **given | fused)
    weights = FileWeights(tmp_path / "q.npz")
    other = write(tmp_path / "other", one.plan, profile, weights)
    for card in (0, 1):
        assert np.array_equal(one.images(card).rows, other.images(card).rows)
        assert np.array_equal(one.images(card).pages, other.images(card).pages)
    rows = weights.rows(one.plan.model.tables["genre"], np.array([3, 1]))
    assert np.array_equal(rows, values(fused["table_genre"][[3, 1]], form))


def test_rows_that_are_refused(profile, tmp_path):
    given = make.arrays()
    for form, spoil, told in (
        ("float16", lambda rows: np.where(np.arange(43)[:, None] == 7, 7e4, rows),
         "card 1: table genre, row 7: its value 70000.0 is past the largest float16"),
        ("int8", lambda rows: np.zeros((43, fused_bytes("int8", 16) - 1), np.uint8),
         r"w.npz: table_genre is uint8 and row_format = 'int8', so it must be FBGEMM's rows of shape \(43, 24\), "
         r"not \(43, 23\)"),
        ("int4", lambda rows: np.full((43, 12), 255, np.uint8),
         "card 1: table genre, row .*: its scale, a float16, is nan"),
    ):
        np.savez(tmp_path / "w.npz", **given | {"table_genre": spoil(given["table_genre"])})
        with pytest.raises(ValueError, match=f"^{told}$"):
            write(tmp_path / "b", make.narrow({"genre": form}), profile, FileWeights(tmp_path / "w.npz"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.npz"], "nothing is half written"


def test_tensor_train_cores_in_half_the_bits(profile, tmp_path):
    """Are rounded once: the bundle's files, the errors that it tells and the card's images are of the same cores."""
    np.savez(tmp_path / "w.npz", **make.arrays())
    plans = {form: make.narrow({"user/id": form}, "tt_format", preset="smartssd") for form in ("float32", "block16")}
    plain, half = (write(tmp_path / form, plan, profile, FileWeights(tmp_path / "w.npz"))
                   for form, plan in plans.items())
    assert {name: told["tt_format"] for name, told in half.tables.items()} == {
        "user/id": "block16", "genre": "float32", "town": "float32"}
    wanted = rounded_cores(plain.cores("user/id"))
    images = half.images(0)
    for core, held, loaded in zip(wanted, half.cores("user/id"), images.cores[0], strict=True):
        assert np.array_equal(core, held) and np.array_equal(core, loaded)
    assert any((core != held).any() for core, held in zip(plain.cores("user/id"), wanted, strict=True))
    errors = [bundle.tables["user/id"]["error"] for bundle in (plain, half)]
    assert errors[0] != errors[1] and abs(errors[0] - errors[1]) < 1e-3
    loads = [bundle.array("card0/load.npy") for bundle in (plain, half)]
    assert loads[0].shape <= loads[1].shape and (loads[1][0] >> 22 & 1).any() and not (loads[0][0] >> 22 & 1).any()


def test_tensor_train_cores_that_are_refused(profile, tmp_path):
    np.savez(tmp_path / "w.npz", **make.arrays())
    with pytest.raises(ValueError) as caught:
        write(tmp_path / "b", make.narrow({"user/id": "block16"}, "tt_format"), profile,
              FileWeights(tmp_path / "w.npz"))
    assert str(caught.value) == ("card 0: table user/id: cores of block16 need a TT unit with grouped = true, whose "
                                 "operands share exponents")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.npz"], "nothing is half written"
