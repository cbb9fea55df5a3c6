"""The demo on a small log, with the golden model in the RTL's place: what it finds, tells and draws."""

from pathlib import Path

import numpy as np
import pytest

from gen import demo
from golden.tt.rows import rows
from hotrail import report


def a_log(folder: Path) -> Path:
    rng = np.random.default_rng(8)
    lines = ["user_id:token\titem_id:token\trating:float"]
    for _ in range(900):
        user, item = rng.integers(30), min(rng.zipf(1.5), 20)
        lines.append(f"{user}\t{item}\t{1 + (user * item) % 5}")
    path = folder / "small.inter"
    path.write_text("\n".join(lines))
    return path


def golden(tables, table_ids, indices):
    """Two cycles a row after ten, as a unit would that is bit-exact."""
    vectors = rows(tables[table_ids[0]], indices)
    cycles = 10 + 2 * np.arange(indices.size)
    return demo.Simulation(vectors, cycles, {"first_products": indices.size}, 1.0, 2.0)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    said: list[str] = []
    options = demo.Options(log=a_log(folder), lookups=300, columns=16, rank=2)
    return demo.run(options, golden, cache=folder, say=said.append), said, folder


def test_finds_what_the_log_holds(small):
    found, _, _ = small
    assert (found.users, found.items, found.ratings) == (30, 20, 900)
    assert found.row_modes == (3, 3, 3) and found.column_modes == (2, 2, 4)
    assert found.passed and [run.lookups for run in found.runs] == [300, 300, 300]
    assert found.popularity.sum() == 900 and (np.diff(found.popularity) <= 0).all()


def test_tells_the_error_of_every_decomposition(small):
    found, said, _ = small
    decomposed = [fit for fit in found.fits if fit.name.startswith("decomposed")]
    assert len(decomposed) >= 2
    for fit in decomposed:
        assert 0 < fit.error <= 1
        assert any(f"relative error {fit.error:.3f}" in line and f"{fit.rmse:.4f}" in line for line in said)


def test_figures_of_a_run(small):
    run = small[0].runs[0]
    assert run.rows_per_cycle == 0.5
    assert run.macs_a_row == 2 * 2 * 2 * 2 + 16 * 2
    assert run.utilisation == pytest.approx(0.5 * 48 / 512)
    assert run.microseconds == pytest.approx((10 + 2 * 299) / 300)
    assert run.golden_first_products[0] == 300 > run.golden_first_products[8]


def test_sorting_saves_first_products(small):
    _, in_order, ordered = small[0].runs
    assert ordered.golden_first_products[1] < in_order.golden_first_products[1] / 1.75


def test_a_single_wrong_bit_is_told(tmp_path):
    def wrong(tables, table_ids, indices):
        done = golden(tables, table_ids, indices)
        done.vectors.view(np.uint32)[17, 3] ^= 1
        return done
    said: list[str] = []
    found = demo.run(demo.Options(log=a_log(tmp_path), lookups=50, columns=16, rank=2), wrong, cache=tmp_path,
                     say=said.append)
    assert not found.passed and [run.differing for run in found.runs] == [1, 1, 1]
    assert "1 VECTORS DIFFER" in said[-1]
    assert "DIFFERS from" in report.render(found, b"")


def test_zeros_of_different_sign_differ(tmp_path):
    def negated(tables, table_ids, indices):
        done = golden(tables, table_ids, indices)
        vectors = np.where(done.vectors == 0, -done.vectors, done.vectors)
        return demo.Simulation(vectors, done.cycles, {}, 0, 0)
    options = demo.Options(log=a_log(tmp_path), lookups=50, columns=16, rank=2)
    cores = [np.zeros((1, 3, 2, 2), np.float32), np.ones((2, 3, 2, 2), np.float32),
             np.ones((2, 3, 4, 1), np.float32)]
    indices = np.arange(9)
    run = demo._compare("zeros", cores, indices, negated([cores], np.zeros(9, int), indices), options.macs)
    assert run.differing == 9


def test_report_is_one_file_and_a_picture(small):
    found, _, folder = small
    page = report.write(found, folder / "out")
    text = page.read_text()
    assert (folder / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "data:image/png;base64," in text and "http" not in text
    for run in found.runs:
        assert run.name in text and f"{run.cycles:,}" in text
    for fit in found.fits:
        assert fit.name in text and f"{fit.rmse:.4f}" in text


def test_picture_is_the_same_bytes_again(small):
    found, _, folder = small
    report.draw(found, folder / "a.png")
    report.draw(found, folder / "b.png")
    assert (folder / "a.png").read_bytes() == (folder / "b.png").read_bytes()


@pytest.mark.parametrize(("changes", "message"), [
    ({"value": "stars"}, "has no value 'stars' to learn from; it has rating"),
    ({"lookups": 1}, "lookups is 1; it must be 2 or more"),
    ({"item": "film"}, "has no field 'film'; it has user_id, item_id, rating"),
    ({"rank": 40}, "rank 1 is 40; with row_modes"),
])
def test_wrong(tmp_path, changes, message):
    options = demo.Options(**({"log": a_log(tmp_path), "columns": 16, "lookups": 20} | changes))
    with pytest.raises(ValueError) as caught:
        demo.run(options, golden, cache=tmp_path, say=lambda line: None)
    assert message in str(caught.value)
