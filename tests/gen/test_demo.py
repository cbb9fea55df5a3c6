"""The demo on a small log, with the golden models in the RTL's place: what it finds, tells and draws."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gen import demo
from gen.rtl.config import load
from golden.tt import cycles, plan, pooled
from golden.tt.rows import shape_of
from hotrail.report import demo as report
from tests.support import log_files

CONFIG = load("smartssd").cores["tt"]
SMALL = {"columns": 16, "rank": 2}


def a_log(folder: Path, items: int = 20, even: bool = False) -> Path:
    rng = np.random.default_rng(8)
    lines = ["user_id:token\titem_id:token\trating:float"]
    for _ in range(900):
        user, item = rng.integers(30), rng.integers(items) if even else min(rng.zipf(1.5), items)
        lines.append(f"{user}\t{item}\t{1 + (user * item) % 5}")
    path = folder / "small.inter"
    path.write_text("\n".join(lines))
    return path


def golden(tables, table_ids, indices, offsets):
    """What the unit does, by the models; it was idle for seven cycles."""
    cores = tables[table_ids[0]]
    timing = cycles([plan(*shape_of(cores))], np.zeros(indices.size, int), indices, offsets=offsets, **CONFIG.timing)
    return SimpleNamespace(vectors=pooled(cores, indices, offsets, grouped=CONFIG.grouped),
                           counters={"computed": timing.computed},
                           taken_at=timing.taken_at + 7, last_at=timing.last_at + 7,
                           build_seconds=1.0, run_seconds=2.0)


def run(folder, simulate=golden, **changes):
    said: list[str] = []
    options = demo.Options(**(SMALL | {"logs": [a_log(folder)], "lookups": 50} | changes))
    return demo.run(options, simulate, config=CONFIG, say=said.append), said


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return *run(folder, lookups=300), folder


def test_finds_what_the_log_holds(small):
    found, _, _ = small
    assert (found.users, found.items, found.ratings) == (30, 20, 900)
    assert found.row_modes == (3, 3, 3) and found.column_modes == (2, 2, 4)
    assert found.passed and [run.lookups for run in found.runs] == [300, 300, 300]
    assert found.serial_cycles_a_row > 1 / found.runs[0].rows_per_cycle
    assert found.popularity.sum() == 900 and (np.diff(found.popularity) <= 0).all()


def test_tells_the_error_of_every_decomposition(small):
    found, said, _ = small
    decomposed = [fit for fit in found.fits if fit.name.startswith("decomposed")]
    assert len(decomposed) >= 2
    for fit in decomposed:
        assert 0 < fit.error <= 1
        assert any(f"relative error {fit.error:.3f}" in line and f"{fit.rmse:.4f}" in line for line in said)


def test_figures_of_a_run(small):
    found = replace(small[0].runs[0], arrivals=10 + 16 * np.arange(38), offsets=np.append(np.arange(0, 300, 8), 300))
    assert found.rows_per_cycle == 292 / 592 and found.port == 1 / 16
    found = replace(small[0].runs[0], arrivals=10 + 2 * np.arange(300), offsets=np.arange(301))
    assert found.rows_per_cycle == found.port == 0.5
    assert found.macs_a_row == 2 * 2 * 2 * 2 + 16 * 2
    assert found.utilisation == pytest.approx(0.5 * 48 / 512)
    assert found.microseconds == pytest.approx((10 + 2 * 299) / 250)


def test_sorting_saves_first_products(tmp_path):
    (tmp_path / "many").mkdir()
    found, _ = run(tmp_path, logs=[a_log(tmp_path / "many", items=700, even=True)], lookups=900)
    _, in_order, ordered = found.runs
    modes = found.row_modes
    assert ordered.first_products <= 2 * modes[0] * modes[1]    # a key at most once a lane
    assert ordered.first_products < 0.75 * in_order.first_products


def test_a_single_wrong_bit_is_told(tmp_path):
    def wrong(*asked):
        done = golden(*asked)
        done.vectors.view(np.uint32)[5, 3] ^= 1
        return done
    found, said = run(tmp_path, wrong)
    assert not found.passed and [run.differing for run in found.runs] == [1, 1, 1]
    assert "1 VECTORS DIFFER, every cycle as modelled" in said[-1]
    assert "DIFFERS from" in report.page(found).html()


def test_a_cycle_off_the_model_is_told(tmp_path):
    def late(*asked):
        done = golden(*asked)
        done.last_at[5] += 1
        return done
    found, said = run(tmp_path, late)
    assert not found.passed and found.runs[0].differing == 0
    assert "every bit equal, 1 CYCLES ARE NOT THE MODEL'S" in said[-1]


def test_zeros_of_different_sign_differ():
    cores = [np.zeros((1, 3, 2, 2), np.float32), np.ones((2, 3, 2, 2), np.float32),
             np.ones((2, 3, 4, 1), np.float32)]
    indices, offsets = np.arange(9), np.array([0, 4, 9])
    done = golden([cores], np.zeros(9, int), indices, offsets)
    assert demo._compare("zeros", cores, indices, offsets, done, CONFIG).differing == 0
    done.vectors = -done.vectors
    assert demo._compare("zeros", cores, indices, offsets, done, CONFIG).differing == 2


def test_report_says_all_of_it(small):
    found, _, folder = small
    text = report.write(found, folder / "out").read_text()
    assert "Rows delivered, cycle by cycle" in text
    for each in found.runs:
        assert each.name in text and f"{each.cycles:,}" in text
    for fit in found.fits:
        assert fit.name in text and f"{fit.rmse:.4f}" in text


@pytest.mark.parametrize("name", [name for name in log_files.NAMES if name != "a.pt"])
def test_every_format_is_opened(tmp_path, name):
    fields = {"train.txt": ("C01", "C02"), "train.csv": ("site_id", "C14")}.get(
        name.removesuffix(".gz").removesuffix(".zst"), ("user_id", "item_id"))
    options = demo.Options([log_files.written(tmp_path, name)], None, *fields,
                           "click" if "site_id" in fields else "label", columns=16, rank=2)
    _, trace, cores = demo.opened(options)
    items, rows = np.unique(log_files.ITEM, return_inverse=True)
    assert np.array_equal(trace.table(fields[1]), rows) and np.array_equal(trace.ids[fields[1]], items)
    assert tuple(trace.indices) == fields and np.prod([core.shape[1] for core in cores]) >= len(items)


def test_items_are_called_as_in_the_log(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("user_id,item_id,rating\n1,B000,5\n2,A99,3\n1,A99,4\n")
    log, trace, _ = demo.opened(demo.Options([path], columns=16, rank=2))
    assert demo._names(log, trace, demo.Options([path]), trace.table("item_id")) == ["B000", "A99", "A99"]
    assert trace.values["rating"].tolist() == [5, 3, 4]


@pytest.mark.parametrize(("changes", "message"), [
    ({"value": "stars"}, "has no value 'stars' to learn from; it has rating"),
    ({"lookups": 1}, "lookups is 1; it must be 2 or more"),
    ({"item": "film"}, "has no field 'film'; it has user_id, item_id, rating"),
    ({"rank": 40}, "rank 1 is 40; with row_modes"),
])
def test_wrong(tmp_path, changes, message):
    with pytest.raises(ValueError) as caught:
        run(tmp_path, **changes)
    assert message in str(caught.value)
