"""The plan as a file: whole, the same when it is read, refused when a byte of it is another."""

import json
from dataclasses import replace

import pytest

from gen.base.sealed import seal, unseal
from gen.model.network import Model
from gen.model.recommender import Recommender, TableSpec
from gen.planner.plan import VERSION, Held, Plan, PlanCard, PlanTable, Tier, rate


def a_plan(network=True):
    model = Recommender("m", "two tables", {"C1": TableSpec("C1", 100, 8, "modulo", "mean", 0.9),
                                            "a/b": TableSpec("a/b", 7, 8)},
                        Model("n", "", (3, 8), "concat", 2, 8, (4, 1), "relu", "sigmoid") if network else None, 64)
    tables = {"C1": PlanTable("C1", (0,), Tier(10, 640, 30.5, 1e-6), Tier(20, 256, 20.0, 2e-6),
                              Tier(70, 4480, 13.5, 3e-6), (2, 5, 2), (2, 2, 2), (4, 4)),
              "a/b": PlanTable("a/b", (0, 1), Tier(7, 448, 64.0, 1e-6), Tier(), Tier(), spare=2, unseen=6.4,
                               by="samples")}
    cards = (PlanCard(0, "emb", Tier(10, 640, 30.5, 1e-6), Tier(20, 256, 20.0, 2e-6), Tier(70, 4480, 13.5, 3e-6),
                      binds="ssd", full=("tt",)), PlanCard(1, "emb", Tier(7, 448, 64.0, 1e-6)),
             PlanCard(2, "mlp", bottom_s=1e-6, top_s=5e-6, binds="top"))
    return Plan(model, "smartssd", "tiny", 4096, 1 << 20, {"dram": 1 << 30, "tt": 1e4, "ssd": 1 << 40}, tables, cards,
                1e-6, 5e-6, 8e-6, 7.9e-6, 3, {3: (8e-6, 7.9e-6), 1: (9e-5, 9e-5)}, {"one card more": (6e-6, 6e-6)},
                ("said so",), "a log", "ab" * 32,
                Held(9, 7e-6, 0.25, {"": (0.5, 0.25, 0.25), "C1": (1.0, 0.0, 0.0), "a/b": (0.0, 0.5, 0.5)}))


@pytest.mark.parametrize("network", [True, False])
def test_a_plan_is_read_as_it_was_written(tmp_path, network):
    plan = a_plan(network)
    path = plan.save(tmp_path / "new" / "folder")
    for where in (path, path.parent):
        found = Plan.load(where)
        for name in Plan.__dataclass_fields__:
            assert getattr(found, name) == getattr(plan, name), name
    assert found.gap == pytest.approx(8 / 7.9 - 1) and found.samples_per_s == pytest.approx(64 / 8e-6)
    assert [path.name for path in path.parent.iterdir()] == ["plan.json"]
    assert path.read_bytes() == replace(found).save(tmp_path / "again").read_bytes()


def test_no_byte_may_change(tmp_path):
    path = a_plan().save(tmp_path)
    whole = path.read_bytes()
    for at in range(0, len(whole), 53):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:])
        with pytest.raises(ValueError, match=f"^{path} is "):
            Plan.load(path)
    path.write_bytes(whole[:-40])
    with pytest.raises(ValueError, match="is no plan of hotrail, or damaged$"):
        Plan.load(path)


def test_a_sealed_file_without_a_key_or_with_another_value(tmp_path):
    path = a_plan().save(tmp_path)
    content = unseal("plan", VERSION, path.read_bytes(), "")
    for key in ("model", "device", "tables", "cards", "seconds", "bound", "ablation", "what_if", "assumed"):
        path.write_bytes(seal("plan", VERSION, {name: each for name, each in content.items() if name != key}))
        with pytest.raises(ValueError, match=rf"^{path} is no plan as this hotrail writes them: .*'{key}'$"):
            Plan.load(tmp_path)
    for changed in ({"model": 3}, {"tables": {"one": {}}}, {"cards": [{"kind": "emb"}]}, {"what": "else"},
                    {"model": {**content["model"], "tables": {"one": {"name": "one"}}}}):
        path.write_bytes(seal("plan", VERSION, {**content, **changed}))
        with pytest.raises(ValueError, match=rf"^{path} is no plan as this hotrail writes them: [^\n]+$"):
            Plan.load(path)


@pytest.mark.parametrize("cards, by", [([], "whole"), ([0, 0], "samples"), ([0, 1], "whole"), ([0, 2], "samples"),
                                       ([0, 7], "samples"), ([0, 1], "days")])
def test_cards_on_which_no_table_lies(tmp_path, cards, by):
    """None, one twice, several without a word of what is split, one of the MLP, one that is not there."""
    path = a_plan().save(tmp_path)
    content = unseal("plan", VERSION, path.read_bytes(), "")
    content["tables"]["a/b"] |= {"cards": cards, "by": by}
    path.write_bytes(seal("plan", VERSION, content))
    with pytest.raises(ValueError) as error:
        Plan.load(path)
    assert str(error.value) == (f"{path} is no plan as this hotrail writes them: table 'a/b' lies on the cards {cards} "
                                f"by {by!r}")


@pytest.mark.parametrize("name, sentence", [
    ("a/b", None), ("C1", "table 'C1' of 8 columns of float32 and 20 TT rows lies on 2 cards by columns"),
    ("odd", "table 'a/b' of 7 columns of float32 and 0 TT rows lies on 2 cards by columns"),
    ("int8", "table 'a/b' of 8 columns of int8 and 0 TT rows lies on 2 cards by columns")])
def test_slices_that_there_are_not(tmp_path, name, sentence):
    path = a_plan(network=False).save(tmp_path)
    content = unseal("plan", VERSION, path.read_bytes(), "")
    if name == "odd":
        content["model"]["tables"]["a/b"]["dim"] = 7
    if name == "int8":
        content["model"]["tables"]["a/b"]["row_format"] = "int8"
    content["tables"]["C1" if name == "C1" else "a/b"] |= {"cards": [0, 1], "by": "columns"}
    path.write_bytes(seal("plan", VERSION, content))
    if sentence is None:
        assert Plan.load(path).tables[name].columns(8, 1) == slice(4, 8)
        return
    with pytest.raises(ValueError) as error:
        Plan.load(path)
    assert str(error.value) == f"{path} is no plan as this hotrail writes them: {sentence}"


def test_other_versions_and_files(tmp_path):
    path = a_plan().save(tmp_path)
    content = json.loads(path.read_bytes())
    path.write_text(json.dumps({**content, "version": 99}), "utf-8")
    with pytest.raises(ValueError, match=f"version 99; this hotrail reads version {VERSION}$"):
        Plan.load(path)
    with pytest.raises(ValueError, match="nowhere cannot be read: No such file or directory$"):
        Plan.load(tmp_path / "nowhere")


def test_a_plan_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    path = a_plan().save(tmp_path)
    before = path.read_bytes()
    with pytest.raises(ValueError):
        replace(a_plan(), seconds=float("nan")).save(tmp_path)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(ValueError, match="plan.json cannot be written: full"):
        replace(a_plan(), seconds=1.0).save(tmp_path)
    assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == ["plan.json"]


def test_rows_and_shares_of_a_plan():
    plan = a_plan()
    assert plan.tables["C1"].ends == (10, 30, 30) and plan.tables["a/b"].ends == (5, 5, 7)
    assert plan.from_ssd == pytest.approx(13.5 / 128) and plan.unseen == pytest.approx(6.4 / 128)
    assert plan.approximated == pytest.approx(20 / 128)
    assert plan.tables["C1"].place == "0" and plan.tables["a/b"].place == "0, 1, by samples"
    assert replace(plan.tables["a/b"], cards=(2, 3, 4)).place == "2 - 4, by samples"
    assert plan.tables["a/b"].on_card("dram") == Tier(7, 224, 32.0, 5e-7)
    assert plan.tables["C1"].on_card("ssd") == plan.tables["C1"].ssd


@pytest.mark.parametrize(("per_second", "said"), [
    (0, "0"), (0.5, "0.500"), (12.345, "12.3"), (99.96, "100"), (1012, "1,010"), (117_336, "117,000"),
    (999_499, "999,000"), (999_500, "1.00 M"), (1_446_654, "1.45 M"), (78_079_525, "78.1 M"), (2.5e12, "2,500 G")])
def test_a_rate_has_three_digits(per_second, said):
    assert rate(per_second) == said


def test_an_emb_card_takes_as_long_as_its_slowest_memory():
    assert a_plan().cards[0].seconds == 3e-6 and a_plan().cards[2].seconds == 1e-6
