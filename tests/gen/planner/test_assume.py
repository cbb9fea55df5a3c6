"""Model files that are written from a log: read back, they are the model that a plan without one assumes."""

from dataclasses import replace

import numpy as np
import pytest

from gen.data.logs import of_arrays
from gen.data.profiling import profile
from gen.model.recommender import Recommender
from gen.planner.assume import model_of, text_of

NAMES = ("C03", "user/id", 'a "b"', "ü\x7f\n\\", "", "a.b", "#")


def written(found, dim, batch, folder):
    made, notes = model_of(found, dim, batch)
    path = folder / "m.toml"
    path.write_text(text_of(made, found, notes), encoding="utf-8")
    return made, notes, path


@pytest.mark.parametrize("sampled", [1.0, 0.4])
def test_what_is_read_is_what_a_plan_assumes(tmp_path, sampled):
    random = np.random.default_rng(3)
    ids = {name: random.zipf(1.3, 500) % 90 * (10**9 if at % 2 else 1) for at, name in enumerate(NAMES)}
    found = replace(profile(of_arrays(ids, source="a log\nof two lines")), sampled=sampled)
    made, notes, path = written(found, 24, 77, tmp_path)
    read = Recommender.load(path)
    assert dict(read.tables) == dict(made.tables) and list(read.tables) == list(NAMES)
    assert (read.batch, read.network) == (77, None) and {spec.dim for spec in read.tables.values()} == {24}
    assert {spec.ids for spec in read.tables.values()} == ({"index", "vocabulary"} if sampled == 1 else {"vocabulary"})
    text = path.read_text("utf-8")
    assert text.count("\n# Assumed: ") == len(notes) and f"# Assumed: {notes[0]}." in text
    assert text.startswith("# Of a log of two lines: 500 samples were counted.\n")


def test_what_the_log_has_is_beside_it(known, tmp_path):
    _, _, path = written(known, 64, 2048, tmp_path)
    lines = path.read_text("utf-8").splitlines()
    one, bags = (next(line for line in lines if line.startswith(f"[tables.{name}]")) for name in ("one", "bags"))
    assert one.endswith(f"# {known.tables['one'].heat.touched} rows accessed, 1 indices per sample (1 at most)")
    assert bags.endswith(f", {known.tables['bags'].pooling:.3g} indices per sample (8 at most)")
    assert sum(line.endswith("# assumed") for line in lines) == 3


def test_rows_that_no_card_takes_are_refused(known):
    with pytest.raises(ValueError, match="^dim = 65537: must be a whole number of 1 to 65536$"):
        model_of(known, 65537, 64)
