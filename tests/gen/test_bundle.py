"""gen.bundle: what is in it against the plan, the profile and the parameters; what is refused."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gen.bundle
from gen.base.members import Folder, Writer
from gen.base.sealed import seal
from gen.bundle import Bundle, write
from gen.compress.post_hoc import tt_rows
from gen.data.excerpt import Excerpt
from gen.data.remap import DRAM, SSD, TT
from gen.model.device import Device
from gen.model.weights import FileWeights, SeededWeights
from gen.planner.plan import Plan
from golden import tt
from tests.support import bundles as make


@pytest.fixture(scope="module")
def log():
    return make.log()


@pytest.fixture(scope="module")
def profile(log):
    return make.profile(log)


@pytest.fixture(scope="module")
def bundle(profile, tmp_path_factory):
    said = []
    made = write(tmp_path_factory.mktemp("bundle") / "small", make.plan(), profile, SeededWeights(3), say=said.append)
    (line,) = said
    told = made.tables["user/id"]
    assert line == ("table user/id: decomposed tensor train of 60 rows: relative error "
                    f"{told['error']:.3f}, by accesses {told['weighted_error']:.3f}")
    return made


def by_hand(name, profile, own=None):
    """id -> row, rows by expected heat and heat, with dictionaries. own: the vocabulary, if it is not the profile's."""
    spec, table = make.model().tables[name], profile.tables[name]
    keys, counts = table.ids.tolist(), table.counts.tolist()
    ids = keys if own is None else own
    row = {"index": lambda key: key, "modulo": lambda key: key % spec.rows,
           "vocabulary": lambda key: ids.index(key) if key in ids else spec.rows - 1}[spec.ids]
    heat = [0] * spec.rows
    for key, count in zip(keys, counts):
        heat[row(key)] += count
    expected = list(heat)
    if spec.ids == "vocabulary":        # ids without a row read the last: as many as are in the log once
        share = counts.count(1) / (sum(counts) + 1)
        expected = [(1 - share) * each for each in heat]
        expected[-1] += share * sum(counts)
    return row, sorted(range(spec.rows), key=lambda k: -expected[k]), heat


@pytest.mark.parametrize("name", list(make.SPLIT))
def test_hot_rows_lie_where_the_plan_says(bundle, profile, name):
    row, order, _ = by_hand(name, profile)
    dram, train, ssd = make.SPLIT[name]
    wanted = [None] * len(order)
    for at, k in enumerate(order):
        wanted[k] = (DRAM << 30 | at if at < dram else TT << 30 | at - dram if at < dram + train
                     else SSD << 30 | at - dram - train)
    assert bundle.words(name).tolist() == wanted
    ids = [*profile.tables[name].ids.tolist()[:40], 3, 5]
    assert bundle.remap(name)(np.array(ids, np.uint64)).tolist() == [wanted[row(key)] for key in ids]


def test_images_hold_the_rows(bundle, profile):
    weights = SeededWeights(3)
    for card, names in ((0, ("user/id", "town")), (1, ("genre",))):
        images = bundle.images(card)
        assert tuple(images.placed) == names
        assert np.array_equal(bundle.array(f"card{card}/load.npy"), images.load)
        for name in names:
            spec, placed = bundle.plan.model.tables[name], images.placed[name]
            _, order, _ = by_hand(name, profile)
            dense = weights.rows(spec, np.array(order))
            width = placed.row_beats * images.words
            held = placed.read(images.rows, np.arange(placed.own_rows))
            assert np.array_equal(held[:, :spec.dim].view(np.float32), dense[:placed.own_rows])
            for rank in range(len(placed.table.ssd)):
                page = images.pages[placed.first_page + rank // placed.page_rows]
                words = page[rank % placed.page_rows * width:][:spec.dim]
                assert np.array_equal(words.view(np.float32), dense[len(order) - len(placed.table.ssd) + rank])


def test_the_error_that_is_told_is_that_of_the_train(bundle, profile):
    spec = bundle.plan.model.tables["user/id"]
    _, order, heat = by_hand("user/id", profile)
    warm = order[20:80]
    dense = SeededWeights(3).rows(spec, np.array(warm)).astype(np.float64)
    cores = [bundle.array(f"tables/0.core{k}.npy") for k in (1, 2, 3)]
    made = tt.dense(cores)[:60]
    np.testing.assert_allclose(tt_rows(cores, np.arange(60)), made, rtol=1e-12, atol=1e-15)
    told, counts = bundle.tables["user/id"], np.array(heat)[warm]
    np.testing.assert_allclose(told["error"], np.linalg.norm(dense - made) / np.linalg.norm(dense), rtol=1e-9)
    np.testing.assert_allclose(told["weighted_error"], np.sqrt(
        ((dense - made) ** 2).sum(1) @ counts / ((dense**2).sum(1) @ counts)), rtol=1e-9)


def test_the_network_is_the_same(bundle):
    for (name, one), (other_name, other) in zip(bundle.network().layers(), make.MODEL.network(3).layers(), strict=True):
        assert name == other_name and one.activation == other.activation
        assert np.array_equal(one.weights, other.weights) and np.array_equal(one.bias, other.bias)


def test_the_same_plan_gives_the_same_bytes(bundle, profile, tmp_path):
    again = write(tmp_path / "again", make.plan(), profile, SeededWeights(3))
    assert (again.folder / "manifest.json").read_bytes() == (bundle.folder / "manifest.json").read_bytes()
    assert again.plan.data() == Plan.load(bundle.folder).data() == make.plan().data()


def test_warm_rows_by_communities(log, profile, bundle, tmp_path):
    """Where that saves first products on samples held out; a profile without samples has none to learn from."""
    said = []
    same = write(tmp_path / "same", make.plan(), profile, SeededWeights(3), order="community", say=said.append)
    assert "keeps no samples in their order" in said[0]
    assert np.array_equal(same.words("user/id"), bundle.words("user/id"))
    table, plan = profile.tables["user/id"], make.plan(split={**make.SPLIT, "user/id": (0, 112, 188)})
    plan = replace(plan, tables={**plan.tables, "user/id": replace(plan.tables["user/id"], row_modes=(7, 8, 2))})
    # Ids in pairs that are far apart by frequency, one pair for a while.
    pair = np.repeat(np.random.default_rng(1).integers(0, 56, 300), 40)
    places = np.argsort(-table.counts, kind="stable")[pair + 56 * (np.arange(len(pair)) % 2)]
    kept = replace(profile, tables={**profile.tables, "user/id": replace(
        table, excerpt=Excerpt(np.array([len(places)]), None, places))})
    bundle = write(tmp_path / "a", plan, kept, SeededWeights(3))
    made = write(tmp_path / "b", plan, kept, SeededWeights(3), order="community", say=said.append)
    held, by_community, by_frequency = (int(word.replace(",", "")) for word in re.findall(r"[\d,]*\d", said[-2])[:3])
    assert "tensor train's rows by community" in said[-2]
    assert held < len(pair) // 2 + 100 and by_community < by_frequency
    words, others = made.words("user/id"), bundle.words("user/id")
    warm_rows = words >> 30 == TT
    assert np.array_equal(words[~warm_rows], others[~warm_rows]) and not np.array_equal(words, others)
    assert sorted(words[warm_rows]) == sorted(others[warm_rows])
    cold = make.plan(split={name: (0, 0, sum(split)) for name, split in make.SPLIT.items()})
    write(tmp_path / "d", cold, profile, SeededWeights(3), order="community", say=said.append)
    assert "note: no rows are decomposed into a tensor train here, so --order community changes nothing" in said
    with pytest.raises(ValueError, match="order is 'heat'; it must be frequency or community"):
        write(tmp_path / "c", make.plan(), profile, SeededWeights(3), order="heat")


def test_seeded_rows_are_the_same_whichever_are_asked_for():
    spec = make.model().tables["user/id"]
    weights = SeededWeights(7)
    all_rows = weights.rows(spec, np.arange(300))
    some = np.array([299, 0, 17])
    assert np.array_equal(weights.rows(spec, some), all_rows[some])
    assert abs(all_rows).max() <= 300**-0.5 and abs(all_rows.mean()) < 0.002
    np.testing.assert_allclose(all_rows.std(), 300**-0.5 / 3**0.5, rtol=0.02)
    assert not np.array_equal(SeededWeights(8).rows(spec, some), all_rows[some])
    assert len(np.unique(all_rows)) > 0.99 * all_rows.size


def test_parameters_of_a_file_with_a_trained_train(profile, tmp_path):
    given = make.arrays(trained=True)
    _, order, _ = by_hand("user/id", profile)
    place = np.full(300, -1)
    place[order[20:80]] = np.random.default_rng(1).permutation(64)[:60]
    np.savez(tmp_path / "w.npz", **given, **{"tt_row_user/id": place})
    made = write(tmp_path / "b", make.plan(), profile, FileWeights(tmp_path / "w.npz"))
    assert made.weights["file"] == "w.npz" and made.tables["user/id"]["form"] == "trained"
    words = made.words("user/id")
    assert all(words[k] == 1 << 30 | place[k] for k in order[20:80])
    cores = [made.array(f"tables/0.core{k}.npy") for k in (1, 2, 3)]
    assert all(np.array_equal(core, given[f"core{k}_user/id"].astype(np.float32)) for k, core in enumerate(cores, 1))
    dense = given["table_user/id"][order[20:80]].astype(np.float32).astype(np.float64)
    wanted = np.linalg.norm(dense - tt.dense(cores)[place[order[20:80]]]) / np.linalg.norm(dense)
    np.testing.assert_allclose(made.tables["user/id"]["error"], wanted, rtol=1e-9)
    assert not made.notes
    del given["core3_user/id"]
    given |= {f"core{k}_user/id": np.ones(shape) for k, shape in enumerate(((1, 8, 4, 3), (3, 8, 4, 1)), 1)}
    np.savez(tmp_path / "other.npz", **given)
    said = []
    made = write(tmp_path / "other", make.plan(), profile, FileWeights(tmp_path / "other.npz"), say=said.append)
    (note,) = made.notes
    assert said[-1] == f"note: {note}" and note == (
        "table user/id: its trained tensor train has row modes (8, 8), column modes (4, 4) and ranks (3,); the plan's "
        "seconds and bytes are those of (4, 4, 4), (2, 2, 4) and (4, 4)")
    np.savez(tmp_path / "w.npz", **given, **{"tt_row_user/id": np.full(300, -1)})
    with pytest.raises(ValueError, match=rf"^table user/id: the plan puts row {order[20]} on the tensor train, "):
        write(tmp_path / "c", make.plan(), profile, FileWeights(tmp_path / "w.npz"))
    assert not (tmp_path / "c").exists()


def looked_up(bundle, name, card, ids):
    """The words that a card has for ids: by its images."""
    images, found = bundle.images(card), []
    placed = images.placed[name]
    width = placed.row_beats * images.words
    rows = placed.read(images.rows, np.arange(placed.own_rows))
    for word in bundle.remap(name)(np.array(ids, np.uint64)).tolist():
        at = word & (1 << 30) - 1
        page = images.pages[placed.first_page + at // placed.page_rows] if word >> 30 == SSD else None
        found.append(rows[at] if page is None else page[at % placed.page_rows * width:][:width])
    return np.array(found)[:, :make.DIM].view(np.float32)


def test_an_id_has_its_own_words_whatever_the_profile_has_counted(profile, tmp_path):
    """Trained on one day's ids, planned on another's."""
    today = profile.tables["user/id"].ids.tolist()
    trained = sorted({*today[::2], *(key + 1 for key in today[1::3]), 0, 2**64 - 5})
    assert len(trained) < 300 and trained[:2] != today[:2]
    given, said = make.arrays(), []
    split = {**make.SPLIT, "user/id": (80, 0, 220)}
    np.savez(tmp_path / "own.npz", **given, **{"ids_user/id": np.array(trained, np.uint64)})
    made = write(tmp_path / "own", make.plan(split=split), profile, FileWeights(tmp_path / "own.npz"), say=said.append)
    assert made.vocabulary("user/id").tolist() == trained and not said
    words = given["table_user/id"].astype(np.float32)
    asked = [*trained, *today, 17]
    wanted = [words[trained.index(key) if key in trained else 299] for key in asked]
    assert np.array_equal(looked_up(made, "user/id", 0, asked), wanted)
    row, order, heat = by_hand("user/id", profile, trained)
    assert heat[299] == max(heat) and (made.words("user/id")[order] >> 30).tolist() == [DRAM] * 80 + [SSD] * 220
    np.savez(tmp_path / "none.npz", **given)
    made = write(tmp_path / "none", make.plan(split=split), profile, FileWeights(tmp_path / "none.npz"),
                 say=said.append)
    assert made.vocabulary("user/id").tolist() == today
    assert said == ["note: none.npz has no ids_user/id: row k is taken for the k-th id that the profile has counted"]
    assert np.array_equal(looked_up(made, "user/id", 0, today), words[:len(today)])


def test_a_sample_of_the_ids_is_said(profile, tmp_path):
    said = []
    few = type(profile)("a log", 3, profile.tables, 0.05)
    write(tmp_path / "b", make.plan(split={**make.SPLIT, "user/id": (80, 0, 220)}), few, SeededWeights(),
          say=said.append)
    assert said == ["note: the profile has counted 0.05 of the log's samples; ids that are in none of these share the "
                    "last row of user/id"]


@pytest.mark.parametrize("first, second, told", [
    (0, 0, r"rows {} and {} are both row 0 of the tensor train; each must have its own"),
    (63, 64, r"row {1} is row 64 of the tensor train; its cores have 64 rows"),
    (1 << 30, 1, r"row {} is row 1073741824 of the tensor train; its cores have 64 rows"),
    (3, (1 << 32) + 3, r"row {1} is row 4294967299 of the tensor train; its cores have 64 rows"),
])
def test_rows_of_a_trained_train_that_are_refused(profile, tmp_path, first, second, told):
    _, order, _ = by_hand("user/id", profile)
    place = np.full(300, -1)
    place[order[20:80]] = np.arange(2, 62)
    place[order[22]], place[order[71]] = first, second
    place[order[80]] = first        # no warm row of the plan: not looked at
    np.savez(tmp_path / "w.npz", **make.arrays(trained=True), **{"tt_row_user/id": place})
    with pytest.raises(ValueError, match="^table user/id: tt_row_user/id says that "
                       + told.format(order[22], order[71]) + "$"):
        write(tmp_path / "b", make.plan(), profile, FileWeights(tmp_path / "w.npz"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.npz"]


@pytest.mark.parametrize("name, value, told", [
    ("table_genre", None, "w.npz has no array table_genre; it has bottom1_bias.*; docs/bundle.md#parameters says"),
    ("table_genre", np.zeros((43, 8)), r"w.npz: table_genre must be numbers of shape \(43, 16\), not float64 of shape"),
    ("table_genre", np.full((43, 16), np.inf), r"w.npz: table_genre must be finite float32 numbers; at \(0, 0\) st"),
    ("table_genre", np.full((43, 16), "a"), "w.npz: table_genre must be numbers of shape"),
    ("table_genre", np.full((43, 16), None, object), "w.npz: table_genre holds Python objects"),
    ("tt_row_user/id", np.zeros(3), "w.npz: tt_row_user/id must be 300 whole numbers, not float64 of shape"),
    ("ids_user/id", np.arange(301), "w.npz: ids_user/id must be 1 to 300 whole numbers, .* not int64 of shape .301,"),
    ("ids_user/id", np.zeros(3), "w.npz: ids_user/id must be 1 to 300 whole numbers, .* not float64 of shape .3,"),
    ("ids_user/id", np.array([3, 7, 7]), "w.npz: ids_user/id must be ascending ids .* at 2 stands 7$"),
    ("ids_user/id", np.array([-1, 7]), "w.npz: ids_user/id must be ascending ids .* at 1 stands 7$"),
    ("core1_user/id", np.zeros((1, 2, 2)), "^table user/id: core 1 has 3 axes, a core has 4"),
    ("core1_user/id", np.zeros((1, 4, 2, 3)), "core 2 begins with rank 4, core 1 ends with rank 3"),
    ("top1_weights", np.zeros((3, 3)), r"w.npz: top1_weights must be numbers of shape \(22, 8\), not float64 of sha"),
])
def test_parameters_that_are_refused(profile, tmp_path, name, value, told):
    given = {key: array for key, array in {**make.arrays(trained=True), name: value}.items() if array is not None}
    np.savez(tmp_path / "w.npz", **given)
    with pytest.raises(ValueError, match=told):
        write(tmp_path / "b", make.plan(), profile, FileWeights(tmp_path / "w.npz"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.npz"], "nothing is half written"


def test_files_that_are_no_parameters(tmp_path):
    (tmp_path / "w.npz").write_bytes(b"nothing")
    np.save(tmp_path / "w.npy", np.zeros(3))
    np.savez(tmp_path / "names.npz", ab=np.zeros(3))
    damaged = bytearray((tmp_path / "names.npz").read_bytes().replace(b"ab.npy", b"\xa7b.npy"))
    damaged[damaged.index(b"PK\1\2") + 9] = 8      # the names are UTF-8, says the directory
    (tmp_path / "names.npz").write_bytes(damaged)
    for name in ("w.npz", "w.npy", "names.npz"):
        with pytest.raises(ValueError, match=f"{name} is no npz file"):
            FileWeights(tmp_path / name)
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        FileWeights(tmp_path / "none.npz")


@pytest.mark.parametrize("split, changes, told", [
    ({"user/id": (20, 60, 219)}, {}, "table user/id: the plan places 299 rows, the model has 300"),
    ({"user/id": (20, 65, 215)}, {}, r"row_modes \(4, 4, 4\) multiply to 64, fewer than the table's 65 rows"),
    ({}, {"page_bytes": 100}, "card 0: page_bytes must be a multiple of the beat's 16 bytes, not 100"),
    ({}, {"ring_bytes": 1 << 32}, "card 0: its rows take 1,280 bytes of DRAM and the ring 4,294,967,296; smar"),
    ({}, {"preset": "screc"}, r"preset screc.toml describes no (emb|mlp) core, which the plan needs"),
    ({}, {"preset": "none"}, "there is no preset 'none'; there are ecp5"),
])
def test_plans_that_are_refused(profile, tmp_path, split, changes, told):
    with pytest.raises(ValueError, match=told):
        write(tmp_path / "b", make.plan(split={**make.SPLIT, **split}, **changes), profile, SeededWeights())
    assert not list(tmp_path.iterdir())


def test_presets_and_devices_of_ones_own_go_with_it(profile, tmp_path):
    for source, name in (("rtl/presets/tiny", "my tiny (1).toml"), ("model/devices/smartssd", "mine.toml")):
        shutil.copy(Path(gen.bundle.__file__).parent / f"{source}.toml", tmp_path / name)
    plan = make.plan(device=str(tmp_path / "mine.toml"))
    made = write(tmp_path / "b", plan, profile, SeededWeights(), preset=tmp_path / "my tiny (1).toml")
    for name in ("mine.toml", "my tiny (1).toml"):
        (tmp_path / name).unlink()
    assert made.preset.name == "my_tiny__1_.toml" and made.device == str(tmp_path / "b" / "device.toml")
    assert made.images(0).words == 4 and Device.load(made.device).kernel_mhz == 250


def test_a_drive_that_is_too_small(profile, tmp_path):
    """220 rows of 64 bytes and 57 of them: 4 pages of 64 rows, and one."""
    text = (Path(gen.bundle.__file__).parent / "model/devices/smartssd.toml").read_text("utf-8")
    line = re.findall(r"(?m)^bytes = .*$", text[text.index("[ssd]"):])[0]
    head, tail = text.split("[ssd]")
    for size in (5 * 4096, 5 * 4096 - 1):
        (tmp_path / "mine.toml").write_text(f"{head}[ssd]{tail.replace(line, f'bytes = {size}', 1)}", "utf-8")
        plan = make.plan(device=str(tmp_path / "mine.toml"))
        if size == 5 * 4096:
            assert write(tmp_path / "b", plan, profile, SeededWeights()).images(0).pages.nbytes == size
        else:
            with pytest.raises(ValueError, match="card 0: its rows take 20,480 bytes of the SSD in .*; .* has 20,479$"):
                write(tmp_path / "c", plan, profile, SeededWeights())


def test_a_profile_without_a_table(profile, tmp_path):
    less = type(profile)("b log", 1, {name: profile.tables[name] for name in ("user/id", "genre")})
    with pytest.raises(ValueError, match="the profile of b log has no table 'town', which the plan has"):
        write(tmp_path / "b", make.plan(), less, SeededWeights())


def test_a_bundle_is_replaced_and_nothing_else_is(profile, tmp_path):
    first = write(tmp_path / "b", make.plan(), profile, SeededWeights(1))
    second = write(tmp_path / "b", make.plan(), profile, SeededWeights(2))
    assert first.weights["seed"] == 1 and Bundle(tmp_path / "b").weights == {"seed": 2} == second.weights
    with pytest.raises(ValueError):     # what is there stays when the new one is refused
        write(tmp_path / "b", make.plan(split={**make.SPLIT, "town": (0, 0, 5)}), profile, SeededWeights(3))
    assert Bundle(tmp_path / "b").weights == {"seed": 2}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("a", "utf-8")
    (tmp_path / "file").write_text("a", "utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text('{"kind": "web app"}', "utf-8")
    for name in ("mine", "file", "other"):
        with pytest.raises(ValueError, match=f"{name} holds something else than a bundle; name a folder that "):
            write(tmp_path / name, make.plan(), profile, SeededWeights())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "file", "mine", "other"]


def test_a_flipped_byte_of_any_member_is_refused(bundle, tmp_path):
    copy = shutil.copytree(bundle.folder, tmp_path / "copy")
    random = np.random.default_rng(0)
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        data = path.read_bytes()
        for at in {0, len(data) - 1, *random.integers(0, len(data), 3).tolist()}:
            wrong = bytearray(data)
            wrong[at] ^= 1 << int(random.integers(8))
            path.write_bytes(wrong)
            with pytest.raises(ValueError, match=rf"{path.name} is (damaged|no bundle)"):
                Bundle(copy)
        for wrong in (data[:-1], data + b"\0"):
            path.write_bytes(wrong)
            with pytest.raises(ValueError, match=rf"{path.name} is (damaged|no bundle)"):
                Bundle(copy)
        path.unlink()
        with pytest.raises(ValueError, match=rf"lacks its member .*{path.name}|it has no {path.name}"):
            Bundle(copy)
        path.write_bytes(data)
    Bundle(copy)


def test_other_versions_and_manifests_that_lie(bundle, tmp_path):
    copy = shutil.copytree(bundle.folder, tmp_path / "copy")
    manifest = copy / "manifest.json"
    manifest.write_bytes(seal("bundle", 2, bundle.content))
    with pytest.raises(ValueError, match="is a bundle of version 2; this hotrail reads version 1"):
        Bundle(copy)
    for key in ("preset", "weights", "tables", "members"):
        manifest.write_bytes(seal("bundle", 1, {name: each for name, each in bundle.content.items() if name != key}))
        with pytest.raises(ValueError, match=rf"^{manifest} is no bundle as .* them: it lacks '{key}'$"):
            Bundle(copy)
    for weights, told in ((5, "weights = 5"), (["seed"], r"weights = \['seed'\]"),
                          ({"seed": "0"}, "weights: seed = '0'"), ({}, "it lacks 'file'"),
                          ({"file": "x.npz"}, "it lacks 'sha256'"), ({"file": 7, "sha256": ""}, "weights: file = 7")):
        manifest.write_bytes(seal("bundle", 1, {**bundle.content, "weights": weights}))
        with pytest.raises(ValueError, match=rf"^{manifest} is no bundle as .* them: {told}$"):
            Bundle(copy)
    for key, value, told in (("preset", "a\nb", r"has no member 'a\\nb'"),
                             ("tables", {"a\nb": {}}, r"it has the tables \['a\\nb'\], its plan .*"),
                             ("tables", {**bundle.tables, "genre": {**bundle.tables["genre"], "row_format": "int8"}},
                              "the rows of table 'genre' are 'int8', its plan's 'float32'")):
        manifest.write_bytes(seal("bundle", 1, {**bundle.content, key: value}))
        with pytest.raises(ValueError, match=rf"^{manifest} is no bundle as .* them: .*{told}$"):
            Bundle(copy)
    for name in ("../../outside.npy", "/etc/passwd", "card0/../x.npy", "tables/x.pkl"):
        manifest.write_bytes(seal("bundle", 1, {**bundle.content, "members": {name: {"sha256": ""}}}))
        with pytest.raises(ValueError, match="names a member .*, which no bundle has"):
            Bundle(copy)
    # An array of objects is never loaded, even if its digest is right.
    np.save(copy / "tables/0.words.npy", np.array([os.system], object), allow_pickle=True)
    content = json.loads(json.dumps(bundle.content))
    import hashlib
    digest = hashlib.sha256((copy / "tables/0.words.npy").read_bytes()).hexdigest()
    content["members"]["tables/0.words.npy"]["sha256"] = digest
    manifest.write_bytes(seal("bundle", 1, content))
    with pytest.raises(ValueError, match="0.words.npy holds Python objects"):
        Bundle(copy)
    np.save(copy / "tables/0.words.npy", np.zeros(5, np.uint32))
    digest = hashlib.sha256((copy / "tables/0.words.npy").read_bytes()).hexdigest()
    content["members"]["tables/0.words.npy"]["sha256"] = digest
    manifest.write_bytes(seal("bundle", 1, content))
    with pytest.raises(ValueError, match="0.words.npy is not the array that the manifest describes"):
        Bundle(copy)


def test_an_error_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), Writer(tmp_path / "x", "thing", 1) as writer:
        writer.room("a.npy", (3, 4))[:] = 1
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with Writer(tmp_path / "x", "thing", 1) as writer:
        writer.room("a.npy", (3, 4))[:] = 7
        writer.array("b.npy", np.zeros((0, 3), np.float32))
        writer.finish({"about": "it"})
    found = Folder(tmp_path / "x", "thing", 1)
    assert (found.array("a.npy") == 7).all() and found.array("b.npy").shape == (0, 3)
    with pytest.raises(ValueError, match="has no member 'c.npy'"):
        found.array("c.npy")
    with pytest.raises(ValueError):
        found.array("a.npy")[0] = 1     # to be read only
