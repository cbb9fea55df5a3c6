"""From a trained model's tables and a log to a bundle that runs, on cards whose cores are the oracle."""

import numpy as np
import pytest

import hotrail
from fpga.api.serving import Cards, serve
from gen.data.logs import of_arrays
from tests.support.oracle_cards import opened_by

SAMPLES, DIM = 200, 8
RANDOM = np.random.default_rng(6)
USER, ITEM = (RANDOM.standard_normal((rows, DIM)).astype(np.float32) for rows in (40, 30))
SEEN = np.concatenate([[0], np.cumsum(RANDOM.integers(0, 4, SAMPLES))])
COLUMNS = {"user": RANDOM.zipf(1.4, SAMPLES) % 40, "item": RANDOM.integers(0, 30, SAMPLES),
           "seen": RANDOM.zipf(1.4, SEEN[-1]) % 30}
LAYOUT = {"preset": "tiny", "cards": 2, "batch": 64}


def log():
    return of_arrays(COLUMNS, {"seen": SEEN})


def served(bundle):
    """Pooled vectors of all samples, by feature."""
    with Cards(bundle) as cards:
        parts = [batch.done.vectors for batch in serve(cards, log(), SAMPLES)]
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def pooled(rows, edges):
    return np.array([rows[start:stop].sum(axis=0) for start, stop in zip(edges, edges[1:])])


def test_a_table_that_two_columns_share(tmp_path, monkeypatch):
    opened_by(monkeypatch)
    bundle = hotrail.bundle({"user.weight": USER, "item.weight": ITEM}, log(), out=tmp_path / "bundle",
                            tables={"user": "user", "items": "item"}, columns={"items": ("item", "seen")}, **LAYOUT)
    found = served(bundle)
    assert list(found) == ["user", "item", "seen"]
    assert np.array_equal(found["user"], USER[COLUMNS["user"]])
    assert np.array_equal(found["item"], ITEM[COLUMNS["item"]])
    np.testing.assert_allclose(found["seen"], pooled(ITEM[COLUMNS["seen"]], SEEN), rtol=1e-5, atol=1e-5)
    checked = hotrail.verify(bundle, log(), SAMPLES)
    assert checked.different == "" and checked.vectors == 3 * SAMPLES
    assert checked.rows["items"].sum() == SAMPLES + SEEN[-1]


def test_ids_as_the_model_was_trained_with_them(tmp_path, monkeypatch):
    """A vocabulary without some of the log's ids, and a hash."""
    opened_by(monkeypatch)
    known = RANDOM.permutation(40)[:25]
    bundle = hotrail.bundle({"user.weight": USER, "item.weight": ITEM}, log(), out=tmp_path / "bundle",
                            tables={"user": "user", "item": "item"}, unknown={"user": 33},
                            ids={"user": {int(each): row for row, each in enumerate(known)},
                                 "item": lambda ids: ids * np.uint64(7) % np.uint64(30)}, **LAYOUT)
    row_of = np.full(40, 33)
    row_of[known] = np.arange(25)
    found = served(bundle)
    assert np.array_equal(found["user"], USER[row_of[COLUMNS["user"]]])
    assert np.array_equal(found["item"], ITEM[COLUMNS["item"] * 7 % 30])
    checked = hotrail.verify(bundle, log(), SAMPLES)
    assert checked.unseen["user"] == np.count_nonzero(~np.isin(COLUMNS["user"], known))


def test_a_csv_and_a_file(tmp_path, monkeypatch):
    """As the first page has it; the columns need no names of their own."""
    opened_by(monkeypatch)
    lines = [f"{user},{item},1" for user, item in zip(COLUMNS["user"], COLUMNS["item"])]
    (tmp_path / "clicks.csv").write_text("\n".join(["user,item,label", *lines]) + "\n", "utf-8")
    np.savez(tmp_path / "m.npz", table_user=USER, table_item=ITEM)
    told = []
    bundle = hotrail.bundle(tmp_path / "m.npz", tmp_path / "clicks.csv", out=tmp_path / "bundle", say=told.append,
                            row_format="float16", **LAYOUT)
    checked = hotrail.verify(bundle, tmp_path / "clicks.csv", 64)
    assert checked.different == "" and checked.vectors == 128 and told[0].startswith("profile    ")
    assert bundle.weights["model"] == "m.npz" and bundle.parameters() == (None, "")
    with pytest.raises(ValueError, match="was made of the tables of m.npz, not of an npz file of parameters"):
        bundle.parameters(tmp_path / "m.npz")


def test_formats_within_an_error_budget(tmp_path, monkeypatch):
    """Of the user table a value is past binary16; quantised rows stay so. Bundle and cards carry the choice out."""
    opened_by(monkeypatch)
    few, each = 100, 24                             # so many rows of four beats in float32 that DRAM is what takes time
    wide = {"user.weight": RANDOM.standard_normal((2000, 64)).astype(np.float32),
            "item.weight": RANDOM.standard_normal((3000, 64)).astype(np.float32)}
    wide["user.weight"][7, 2] = 1e5
    seen = of_arrays({"user": RANDOM.permutation(2000)[:few], "item": RANDOM.integers(0, 3000, few),
                      "seen": RANDOM.integers(0, 3000, few * each)}, {"seen": np.arange(0, few * each + 1, each)})
    bundle = hotrail.bundle(wide, seen, out=tmp_path / "bundle", tables={"user": "user", "item": "item"},
                            columns={"item": ("item", "seen")}, results="float16", error_budget=1e-3, cards=1, batch=64)
    forms = {name: spec.row_format for name, spec in bundle.plan.model.tables.items()}
    assert forms["user"] != "float16" and forms["item"] == "float16"
    assert all(0 <= each.row_error <= 1e-3 and each.of == "pooled vectors of the log"
               for each in bundle.plan.widths.values())
    checked = hotrail.verify(bundle, seen, few)
    assert checked.different == "" and {name: each["row_format"] for name, each in bundle.tables.items()} == forms


@pytest.mark.parametrize("options, sentence", [
    ({"error_budget": 0.1, "row_format": "int8"},
     "table user: error_budget = 0.1 lets the planner choose row_format; leave out row_format = 'int8'"),
    ({"columns": {"users": "user"}}, "there is no table 'users'; there are user"),
    ({"columns": {"user": "person"}}, "table user: arrays has no column 'person'; it has user, item, seen: "
                                      "columns={'user': COLUMN} names the table's own"),
    ({"cards": "2"}, "cards is '2'; it must be a whole number of 1 or more"),
    ({"tables": ["user"]}, "tables must say by name where each lies, as {'user': 'user_embedding'}, not ['user']"),
    ({"ids": {"item": "modulo"}}, "there is no table 'item'; there are user"),
    ({"ids": "hash"}, "table user: ids = 'hash': must be one of index, modulo, vocabulary"),
    ({"row_format": "int3"}, "table user: row_format = 'int3': must be one of float32, float16, bfloat16, int8, int4"),
    ({"mode": "first"}, "table user: mode = 'first': must be one of sum, mean, max"),
])
def test_mistakes_are_a_sentence(tmp_path, options, sentence):
    with pytest.raises(ValueError) as error:
        hotrail.bundle({"user.weight": USER}, log(), out=tmp_path / "bundle",
                       **{"tables": {"user": "user"}, **LAYOUT, **options})
    assert str(error.value) == sentence and not (tmp_path / "bundle").exists()
    with pytest.raises(TypeError, match="there is no option 'rank'; there are results, row_format, tt_format, error"):
        hotrail.bundle({"user.weight": USER}, log(), tables={"user": "user"}, rank=4)


def test_ids_past_the_rows(tmp_path):
    with pytest.raises(ValueError, match="table user: the id 20 .* past the table's 20 rows; ids that are no rows"):
        hotrail.bundle({"user.weight": USER[:20]}, log(), tables={"user": "user"}, out=tmp_path / "bundle", **LAYOUT)
