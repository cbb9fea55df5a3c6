"""Deltas of bundles: rows that change places, in every format and split, and folders that are no such delta."""

from dataclasses import replace

import numpy as np
import pytest

from gen.bundle import write
from gen.data.remap import DRAM, SSD
from gen.delta import Delta, apply
from gen.delta import write as change
from gen.model.weights import SeededWeights
from tests.support import bundles as make

#: Rows of user/id, genre and town in DRAM, tensor train and on the SSD.
SPLIT = {"user/id": (20, 60, 220), "genre": (20, 0, 23), "town": (30, 0, 27)}
FORMS = {"user/id": "int8", "genre": "float16", "town": "int4"}


def swapped(bundle, seed=3, tables=tuple(SPLIT), count=9):
    """Words with some rows of DRAM in the places of rows of the SSD, and the other way around."""
    found, g = {}, np.random.default_rng(seed)
    for name in tables:
        words = np.array(bundle.words(name))
        hot, cold = (g.permutation(np.flatnonzero(words >> 30 == place))[:count] for place in (DRAM, SSD))
        words[hot], words[cold] = words[cold], words[hot]
        found[name] = words
    return found


def stored(bundle, card, name):
    """(rows, words) as a table's rows lie in the images, read row by row."""
    images = bundle.images(card)
    placed, found = images.placed[name], {}
    width = placed.row_beats * images.words
    for row, word in enumerate(np.asarray(bundle.words(name)).tolist()):
        place, at = word >> 30, word & (1 << 30) - 1
        if place == DRAM:
            found[row] = placed.read(images.rows, np.array([at]))[0].tolist()
        elif place == SSD:
            page, slot = divmod(at, placed.page_rows)
            found[row] = images.pages[placed.first_page + page, slot * width:(slot + 1) * width].tolist()
    return found


@pytest.mark.parametrize(("by", "forms"), [({}, {}), ({}, FORMS), ({"genre": "samples", "town": "samples"}, FORMS),
                                           ({"genre": "columns", "town": "columns"}, {"genre": "float16"})])
def test_rows_lie_where_the_new_words_say(tmp_path, by, forms):
    plan = make.plan(None, split=SPLIT, by=by)
    tables = {name: replace(spec, row_format=forms.get(name, "float32")) for name, spec in plan.model.tables.items()}
    plan = replace(plan, model=replace(plan.model, tables=tables))
    base = write(tmp_path / "base", plan, make.profile(make.log()), SeededWeights(3))
    words, later = swapped(base), replace(plan, seconds=2e-3)
    delta = change(tmp_path / "delta", base, later, words)
    after = apply(tmp_path / "after", base, delta)
    assert after.plan.data() == later.data() and after.state == delta.state and delta.base == base.state
    for card in base.emb_cards:
        for name in base.images(card).placed:
            assert (after.words(name) == words[name]).all()
            assert stored(after, card, name) == stored(base, card, name)
    size = sum(path.stat().st_size for path in delta.folder.rglob("card*/*.npy"))
    rows = sum(len(delta.change(card).beats) for card in delta.cards)
    assert size < sum((base.folder / name).stat().st_size for name in base.members if "card" in name) and rows
    back = change(tmp_path / "back", after, plan, {name: np.asarray(base.words(name)) for name in words})
    again = apply(tmp_path / "again", after, back)
    for name in base.members:
        assert (again.folder / name).read_bytes() == (base.folder / name).read_bytes(), name


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write(tmp_path_factory.mktemp("bundle") / "base", make.plan(None, split=SPLIT), make.profile(make.log()),
                 SeededWeights(3))


def test_one_table_alone_changes_its_card(base, tmp_path):
    delta = change(tmp_path / "d", base, base.plan, swapped(base, tables=("genre",)))
    assert delta.cards == base.plan.tables["genre"].cards and not len(delta.words(base.tables["town"]["number"])[0])
    nothing = change(tmp_path / "none", base, base.plan, {})
    assert nothing.cards == () and apply(tmp_path / "same", base, nothing).words("town").tolist() == \
        base.words("town").tolist()


def test_same_bytes(base, tmp_path):
    one, two = (change(tmp_path / name, base, base.plan, swapped(base)) for name in "ab")
    assert one.state == two.state


def test_another_bundle_is_refused(base, tmp_path):
    delta = change(tmp_path / "d", base, base.plan, swapped(base))
    after = apply(tmp_path / "after", base, delta)
    with pytest.raises(ValueError, match="d changes another bundle, or another state of it than this one"):
        apply(tmp_path / "twice", after, delta)
    assert not (tmp_path / "twice").exists()


@pytest.mark.parametrize(("name", "array", "says"), [
    ("card0/beats", np.array([3, 3]), "does not ascend"), ("card0/numbers", np.array([-1]), "does not ascend"),
    ("card0/beats", np.zeros((2, 2), np.int64), "of shape"), ("tables/0.rows", np.array([0.5]), "float64")])
def test_arrays_that_do_not_fit(base, tmp_path, name, array, says, monkeypatch):
    import gen.delta as flow
    honest = flow.Writer.array
    values = {"beats": "rows", "numbers": "pages", "rows": "words"}[name.rpartition("/")[2].rpartition(".")[2] or ""]
    other = name[:-len(name.replace(".", "/").rpartition("/")[2])] + values

    def forged(writer, member, content):
        given = array if member == f"{name}.npy" else content[:len(array)] if member == f"{other}.npy" else content
        return honest(writer, member, given)

    monkeypatch.setattr(flow.Writer, "array", forged)
    with pytest.raises(ValueError, match=f"is no delta as this hotrail writes them: .*{says}"):
        change(tmp_path / "d", base, base.plan, swapped(base))


def test_a_changed_byte_is_seen(base, tmp_path):
    delta = change(tmp_path / "d", base, base.plan, swapped(base))
    path = delta.folder / "card0/rows.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(ValueError, match="rows.npy is damaged"):
        Delta(delta.folder)
