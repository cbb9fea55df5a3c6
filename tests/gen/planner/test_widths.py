"""Formats within an error budget: what is measured, what is chosen, and that no other choice within it is faster."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from gen.data.logs import of_arrays
from gen.data.profiling import profile
from gen.model.network import Model
from gen.model.recommender import ROW_FORMATS, Recommender, TableSpec
from gen.model.row_formats import quantise, rounded, values
from gen.model.scores import auc, log_loss
from gen.model.weights import FileWeights
from gen.planner import widths
from gen.planner.choices import loads
from gen.planner.fill import parts_of
from gen.planner.plan import Plan
from gen.planner.planning import ANY, FLOATS, make
from gen.planner.problem import Item, Placement, Problem, Sharding, TableChoice
from gen.planner.widen import widened
from gen.planner.widths import ASSUMED, BLOCK16, Errors, accuracy, allowed, assumed, head, measured
from tests.support.planner_problems import BATCH, COSTS

#: A row of three lines takes longer than one of four, which lies in pieces, as on the SmartSSD.
UNEVEN = replace(COSTS, row_s={1: 24e-9, 2: 27e-9, 3: 60e-9, 4: 43e-9, 8: 72e-9})
DIM = 128


def lossless(name):
    return Errors(dict.fromkeys(ROW_FORMATS, 0.0), {"float32": 0.0, "block16": 0.0}, name)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A log with labels, its profile, and the parameters of a model of it, whose last table has a large value."""
    random = np.random.default_rng(8)
    offsets = np.concatenate([[0], np.cumsum(random.integers(0, 6, 900))])
    ids = {"one": random.integers(0, 300, 900), "bags": random.integers(0, 200, int(offsets[-1])),
           "high": random.integers(0, 20, 900)}
    values_of = {"label": random.integers(0, 2, 900), "dense": random.standard_normal((900, 3))}
    log = of_arrays(ids, {"bags": offsets}, values_of)
    network = Model("n", "", (3, 8), "dot", 3, 8, (5, 1), "relu", "none")
    model = Recommender("m", "", {
        "one": TableSpec("one", 300, 8, error_budget=0.01), "bags": TableSpec("bags", 200, 8, mode="mean",
                                                                              error_budget=1e-3),
        "high": TableSpec("high", 25, 8, error_budget=0.5)}, network, BATCH)
    arrays = {f"table_{name}": random.standard_normal((spec.rows, 8)).astype(np.float32)
              for name, spec in model.tables.items()}
    arrays["table_high"][24, 3] = 1e6
    for name, layer in network.network(seed=1).layers():
        key = name.replace(" ", "")
        arrays |= {f"{key}_weights": layer.weights, f"{key}_bias": layer.bias}
    path = tmp_path_factory.mktemp("widths") / "w.npz"
    np.savez(path, **arrays)
    return log, profile(log), model, FileWeights(path), arrays


def test_normal_rows_lose_what_numerics_says():
    errors = assumed(TableSpec("t", 9, 64))
    assert errors.of == ASSUMED and errors.cores == {"float32": 0.0, "block16": BLOCK16}
    assert errors.rows == pytest.approx(
        {"float32": 0, "float16": 2.07e-4, "bfloat16": 1.66e-3, "int8": 5.27e-3, "int4": 8.95e-2}, rel=0.02)
    assert np.isinf(assumed(TableSpec("t", 9, 7)).rows["int4"])


def test_formats_that_a_budget_allows():
    """The narrowest first; bfloat16 takes what float16 takes and loses more. Cores in block16 need a unit for them;
    one that takes no others has no tensor train within a smaller budget."""
    spec = TableSpec("t", 9, DIM)
    found = allowed(replace(spec, error_budget=0.01), assumed(spec), UNEVEN)
    assert found == tuple(replace(spec, row_format=row, tt_format=core)
                          for row, core in product(("int8", "float16", "float32"), ("float32", "block16")))
    short = TableSpec("t", 9, 8)
    plain = allowed(replace(short, error_budget=1e-3), assumed(short), replace(UNEVEN, preset="tiny"))
    assert plain == (replace(short, row_format="float16"), short)
    assert allowed(spec, assumed(spec), UNEVEN) == (spec,)
    half = replace(UNEVEN, preset="smartssd_half")
    for budget, core in ((0.01, "block16"), (1e-6, "float32")):
        assert {each.tt_format for each in allowed(replace(spec, error_budget=budget), assumed(spec), half)} == {core}


def test_the_head_of_a_log_is_no_longer_than_needed(given, monkeypatch):
    monkeypatch.setattr(widths, "SAMPLES", 700)
    found = head(given[0])
    assert len(found) > 1 and sum(chunk.samples for chunk in found) == 700


def test_ids_are_of_the_parameters_vocabulary(given, tmp_path):
    """Those that it lacks read the last row."""
    log, known, model, _, arrays = given
    np.savez(tmp_path / "w.npz", **arrays, ids_one=np.arange(0, 600, 2))
    spec = replace(model.tables["one"], ids="vocabulary")
    found = measured(replace(model, tables={"one": spec}), FileWeights(tmp_path / "w.npz"), known, head(log))
    ids = next(log.chunks()).ids["one"].astype(int)
    rows = arrays["table_one"][np.where(ids % 2, 299, ids // 2)]
    error = ((rounded(rows, "int4") - rows.astype(float)) ** 2).sum() / (rows.astype(float) ** 2).sum()
    assert found["one"].rows["int4"] == pytest.approx(error**0.5, rel=1e-6)


def test_errors_are_those_of_pooled_vectors(given):
    """By hand: of single rows, of means of bags by way of FBGEMM's rows, and of rows where there is no log."""
    log, known, model, weights, arrays = given
    found = measured(model, weights, known, head(log))
    chunk = next(log.chunks())
    rows = arrays["table_bags"]
    far = size = 0.0
    for start, stop in zip(chunk.offsets["bags"], chunk.offsets["bags"][1:]):
        if stop > start:
            at = chunk.ids["bags"][start:stop].astype(int)
            far += ((values(quantise(rows[at], "int8"), "int8").mean(0) - rows[at].mean(0)) ** 2).sum()
            size += (rows[at].mean(0) ** 2).sum()
    assert found["bags"].rows["int8"] == pytest.approx((far / size) ** 0.5, rel=1e-4)
    one = arrays["table_one"][chunk.ids["one"].astype(int)]
    for form in ROW_FORMATS:
        error = ((rounded(one, form) - one.astype(float)) ** 2).sum() / (one.astype(float) ** 2).sum()
        assert found["one"].rows[form] == pytest.approx(error**0.5, rel=1e-6)
    assert {each.of for each in found.values()} == {"pooled vectors of the log"}
    alone = measured(model, weights, known)["one"]
    table = arrays["table_one"]
    far = ((rounded(table, "int4") - table.astype(float)) ** 2).sum() / (table.astype(float) ** 2).sum()
    assert alone.of == "rows" and alone.rows["int4"] == pytest.approx(far**0.5, rel=1e-6)


def test_a_log_that_looks_up_nothing_says_nothing(given, tmp_path):
    """A table whose bags are empty, or of rows of zeros, is measured by its rows."""
    log, known, model, weights, arrays = given
    chunk = next(log.chunks())
    wanted = measured(model, weights, known)["bags"]
    empty = replace(chunk, ids=chunk.ids | {"bags": chunk.ids["bags"][:0]},
                    offsets={"bags": np.zeros_like(chunk.offsets["bags"])})
    assert measured(model, weights, known, [empty])["bags"] == wanted and wanted.rows["int4"] > 0.01
    arrays = arrays | {"table_bags": np.where(np.arange(200)[:, None] < 100, np.float32(0), arrays["table_bags"])}
    np.savez(tmp_path / "w.npz", **arrays)
    zeros = replace(chunk, ids=chunk.ids | {"bags": chunk.ids["bags"] % 100})
    found = measured(model, FileWeights(tmp_path / "w.npz"), known, [zeros])
    assert found["bags"].of == "rows" and found["bags"].rows["int4"] > 0.01
    assert found["one"].of == "pooled vectors of the log"


def test_a_row_that_a_format_cannot_hold_rules_it_out(given):
    """Though no sample of the log looks it up."""
    log, known, model, weights, _ = given
    found = measured(model, weights, known, head(log))["high"].rows
    assert np.isinf(found["float16"]) and np.isinf(found["int4"])
    assert max(found["float32"], found["bfloat16"], found["int8"]) < 0.02


def test_a_range_past_float32_rules_out_scales(given, tmp_path):
    _, known, model, _, arrays = given
    table = arrays["table_high"].copy()
    table[3, :2] = 3e38, -3e38
    np.savez(tmp_path / "w.npz", **arrays | {"table_high": table})
    found = measured(model, FileWeights(tmp_path / "w.npz"), known)["high"].rows
    assert np.isinf(found["int8"]) and found["bfloat16"] < 0.02


def test_trained_cores(given, tmp_path):
    """Their own error; one that block16 does not hold is infinite."""
    _, known, model, _, arrays = given
    random = np.random.default_rng(3)
    cores = [random.standard_normal(shape).astype(np.float32) for shape in ((1, 7, 2, 4), (4, 7, 2, 4), (4, 7, 2, 1))]
    spec = replace(model, tables={"one": model.tables["one"]})
    for peak, most in ((1.0, 1e-3), (np.finfo(np.float32).max, np.inf)):
        cores[0][0, 0, 0, 0] = peak
        np.savez(tmp_path / "w.npz", **arrays, **{f"core{k}_one": core for k, core in enumerate(cores, 1)})
        error = measured(spec, FileWeights(tmp_path / "w.npz"), known)["one"].cores["block16"]
        assert 1e-5 < error <= most and np.isinf(error) == np.isinf(most)


def tables(random, count):
    known = profile(of_arrays({f"t{j}": random.zipf(1.3, 3000) % (300 + 200 * j) for j in range(count)}))
    return known, Recommender.of("m", {f"t{j}": 1000 for j in range(count)}, DIM, batch=BATCH)


@pytest.mark.turns(1, of="searches")
@pytest.mark.parametrize("seed, cards, dram", [(1, 1, 1 << 30), (2, 2, 1 << 30), (3, 1, 900_000), (4, 2, 400_000)])
def test_no_choice_of_formats_is_faster(seed, cards, dram):
    """Of all that the budgets allow: each is planned by itself. Narrow rows may be slower ones."""
    known, model = tables(np.random.default_rng(seed), 2)
    costs = replace(UNEVEN, dram_bytes=dram, link_s=0.0)
    errors = {name: lossless(name) for name in model.tables}
    options = {"cards": cards, "levels": 2, "table_wise": True, "explain": False, "gap": 1e-4, "seconds": 0.2}
    free = replace(model, tables={name: replace(spec, error_budget=0.0) for name, spec in model.tables.items()})
    plan = make(free, known, costs, errors=errors, **options)
    best = min(make(replace(model, tables={name: replace(spec, row_format=form) for (name, spec), form in
                                           zip(model.tables.items(), forms)}), known, costs, **options).seconds
               for forms in product(("float16", "int8", "int4"), repeat=2))
    assert plan.bound <= best * (1 + 1e-9) and plan.seconds <= best * (1 + 2e-4)


def test_rows_of_three_lines_or_of_four():
    """Where DRAM holds all, four lines are faster; where it does not, three fit."""
    known, model = tables(np.random.default_rng(5), 1)
    spec = replace(model.tables["t0"], error_budget=0.01)
    chosen = [make(replace(model, tables={"t0": spec}), known, replace(UNEVEN, dram_bytes=dram, link_s=0.0), cards=1,
                   levels=2, explain=False).model.tables["t0"].row_format for dram in (1 << 30, 300_000)]
    assert chosen == ["float16", "int8"]


@pytest.mark.turns(1)
@pytest.mark.parametrize("budget, form", [(0.0, "float32"), (1e-3, "float16"), (0.5, "int4")])
def test_what_is_chosen_and_what_it_brings(budget, form):
    """The plan has formats in the place of budgets; its what-if says what they cost and save."""
    known, model = tables(np.random.default_rng(6), 2)
    model = replace(model, tables={name: replace(spec, error_budget=budget) for name, spec in model.tables.items()})
    costs = replace(UNEVEN, link_s=0.0, dram_bytes=600_000)
    plan = make(model, known, costs, cards=1, levels=2, seconds=0.2)
    assert {spec.row_format for spec in plan.model.tables.values()} == {form}
    assert {spec.error_budget for spec in plan.model.tables.values()} == {None}
    assert all(each.errors[form] == each.row_error <= budget == each.budget for each in plan.widths.values())
    rows = 1000 * (costs.row_bytes(DIM) - costs.row_bytes(DIM, form))
    assert [each.bytes for each in plan.widths.values()] == [rows, rows]
    assert plan.what_if[FLOATS][0] >= plan.seconds >= plan.what_if[ANY][0]
    assert (plan.what_if[FLOATS][0] > 1.05 * plan.seconds) == bool(budget)
    assert any(f"rows of 2 tables in {form};" in note for note in plan.assumed)
    assert any("(--weights)" in note for note in plan.assumed)


def test_no_accuracy_is_lost_for_nothing(tmp_path):
    """Where the link binds, rows stay as they are; the plan that is read again says so, too."""
    known, model = tables(np.random.default_rng(6), 2)
    model = replace(model, tables={name: replace(spec, error_budget=0.5) for name, spec in model.tables.items()})
    plan = make(model, known, replace(UNEVEN, link_s=1e-7), cards=1, levels=2, explain=False)
    assert {spec.row_format for spec in plan.model.tables.values()} == {"float32"}
    assert plan.cards[0].binds == "out" and {each.row_error for each in plan.widths.values()} == {0.0}
    plan.save(tmp_path)
    assert Plan.load(tmp_path).widths == plan.widths


def widened_on_one_card(ways, choice, *, waits=0.0, **bytes):
    """(parts, the card, the ways) of tables that all lie so in their first way, with bytes for no more. waits: for the
    drive."""
    given = {"dram_bytes": 0, "tt_bytes": 0, "ssd_bytes": 0} | bytes
    problem = Problem(tuple(each[0].item for each in ways), 1, **given, shardings=tuple(each[1:] for each in ways),
                      formats=tuple(each[0].formats for each in ways))
    card, = loads(problem, [choice] * len(ways), 1)
    found = Placement(card.seconds, card.seconds, (choice,) * len(ways), (card,), 0)
    names = [item.name for item in problem.items]
    expected = {name: SimpleNamespace(heat=None) for name in names}
    parts = parts_of(problem, found, [0] * len(ways), expected, COSTS)
    errors = {name: Errors({"float32": 0.0, "int8": 0.1 * (k + 1)}, {"float32": 0.0, "block16": 1e-4}, "rows")
              for k, name in enumerate(names)}
    (emb,), parts, chosen = widened(problem, found, parts, ways, errors, expected, COSTS, card.seconds + waits)
    return parts, emb, chosen


@pytest.mark.parametrize("more, chosen", [(0, ["int8"] * 2), (48, ["int8", "float32"]), (96, ["float32"] * 2)])
def test_what_loses_most_gets_the_room_that_there_is(more, chosen):
    """Each of two tables of ten rows; of both the card holds what is left to a wider one."""
    rows, none = np.array([0, 10]), (np.zeros(1, np.int64), np.zeros(1))
    ways = [tuple(Sharding("whole", 1, Item(name, rows, 10, size, 10.0, 1e-9, 0.0, 0.0, *none), (form, "float32"))
                  for size, form in ((16, "int8"), (64, "float32"))) for name in "ab"]
    _, emb, found = widened_on_one_card(ways, TableChoice((0,), 1, 1), dram_bytes=320 + 10 * more)
    assert [way.formats[0] for way in found] == chosen
    assert emb.dram_bytes == sum(10 * way.item.row_bytes for way in found) <= 320 + 10 * more


@pytest.mark.parametrize("pages, chosen", [(10, "float32"), (11, "int8")])
def test_the_drive_has_no_time_for_wider_rows(pages, chosen):
    """The wait for the first page is not free for reads."""
    rows, none = np.array([0, 10]), (np.zeros(1, np.int64), np.zeros(1))
    ways = tuple(Sharding("whole", 1, Item("t", rows, 10, 16, 10.0, 1e-9, 0.0, 1e-6, *none,
                                           ssd_reads=np.array([reads, 0.0]), ssd_bytes=np.array([4096, 0])),
                          (form, "float32")) for reads, form in ((10.0, "int8"), (float(pages), "float32")))
    _, emb, (way,) = widened_on_one_card([ways], TableChoice((0,), 0, 0), ssd_bytes=1 << 20, waits=COSTS.drive_s)
    assert way.formats[0] == chosen and emb.ssd_s == pytest.approx(COSTS.drive_s + 1e-5)


@pytest.mark.parametrize("most, chosen", [(100, "float32"), (99, "block16")])
def test_cores_stay_narrow_where_wider_ones_do_not_fit(most, chosen):
    """Knots end with the rows that fit: what lies behind them is not what the last one takes."""
    rows = np.array([0, 100])
    items = [Item("t", rows, 100, 64, 10.0, 1e-9, 1e-9, 1e-6, np.array([0, end]), np.array([0.0, 60.0]))
             for end in (100, most)]
    forms = ("float32", "block16"), ("float32", "float32")
    ways = tuple(Sharding("whole", 1, item, form) for item, form in zip(items, forms))
    parts, emb, (way,) = widened_on_one_card([ways], TableChoice((0,), 0, 1), tt_bytes=60)
    assert parts[0].warm == 100 and emb.tt_bytes <= 60
    assert way.formats == ("float32", chosen)


def test_rows_that_are_quantised_already_lose_nothing(given, tmp_path):
    log, known, model, _, arrays = given
    np.savez(tmp_path / "w.npz", **arrays | {"table_one": quantise(arrays["table_one"], "int4")})
    model = replace(model, tables=model.tables | {"one": TableSpec("one", 300, 8, row_format="int4")})
    found = accuracy(model, FileWeights(tmp_path / "w.npz"), known, head(log))
    assert found.narrow_log_loss == found.log_loss and found.tables == {}


def test_predictions_of_the_network(given):
    """Log loss and AUC by hand, of all formats together and of each table's alone; none without labels."""
    log, known, model, weights, arrays = given
    forms = {"one": "int4", "bags": "float32", "high": "bfloat16"}
    model = replace(model, tables={name: replace(spec, error_budget=None, row_format=forms[name])
                                   for name, spec in model.tables.items()})
    found = accuracy(model, weights, known, head(log))
    chunk = next(log.chunks())
    network = weights.network(model.network)

    def predicted(narrow):
        vectors = np.zeros((900, 3, 8))
        for k, name in enumerate(model.tables):
            rows = arrays[f"table_{name}"]
            rows = rounded(rows, forms[name]) if name in narrow else rows
            for m, (start, stop) in enumerate(zip(chunk.edges(name), chunk.edges(name)[1:])):
                if stop > start:
                    vectors[m, k] = rows[chunk.ids[name][start:stop].astype(int)].astype(float).mean(0)
        return 1 / (1 + np.exp(-network(chunk.values["dense"].astype(np.float32), vectors.astype(np.float32))[:, 0]))

    label = chunk.values["label"]
    losses = {names: log_loss(predicted(names), label) for names in ((), ("one",), ("high",), tuple(forms))}
    assert found.samples == 900
    assert [found.log_loss, found.narrow_log_loss] == pytest.approx([losses[()], losses[tuple(forms)]], rel=1e-9)
    assert [found.auc, found.narrow_auc] == pytest.approx([auc(predicted(each), label) for each in ((), forms)])
    assert found.tables == pytest.approx({name: losses[name,] - losses[()] for name in ("one", "high")}, abs=1e-12)
    assert abs(found.tables["one"]) > 1e-4
    last = accuracy(replace(model, network=replace(model.network, last="sigmoid")), weights, known, head(log))
    assert last.log_loss == pytest.approx(found.log_loss, abs=1e-3), "a sigmoid that the network has itself"
    assert accuracy(replace(model, network=Model("n", "", (3, 1), "none", 0, 0, (), "relu", "sigmoid")), weights, known,
                    head(log)) is None
    bare = tuple(replace(each, values={"dense": each.values["dense"]}) for each in head(log))
    assert accuracy(model, weights, known, bare) is None
    assert accuracy(replace(model, network=None), weights, known, head(log)) is None
