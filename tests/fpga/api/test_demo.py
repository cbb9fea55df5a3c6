"""The demo on a small log with the twin in the RTL's place: what it finds, tells and draws."""

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fpga.api import demo as flow
from fpga.api.verifying import Verified, rates
from gen.planner.plan import rate
from hotrail.report import demo as report

ROOT = Path(__file__).parents[3]
# Of 8 KB of rows: 2 KB in DRAM, beside two batches.
CARD = 'about = "small"\nlike = "smartssd"\n[memory]\nsource = "none"\nring_bytes = 0x8000\nrows_bytes = 0x9800\n'
SMALL = {"dim": 16, "rank": 2, "batch": 128}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder, drawn = tmp_path_factory.mktemp("demo"), random.Random(3)
    (folder / "card.toml").write_text(CARD, "utf-8")
    (folder / "log.csv").write_text("user_id,item_id,rating,tags\n" + "".join(
        f"{user},{min(int(drawn.paretovariate(0.7)), 90)},{(user % 5 + drawn.random()) // 1},{drawn.randrange(5)}\n"
        for user in (drawn.randrange(60) for _ in range(3000))), "utf-8")
    return folder


def options(place, **changes):
    return flow.Options([str(place / "log.csv")], **({"device": str(place / "card.toml")} | SMALL | changes))


@pytest.fixture(scope="module")
def small(place):
    said = []
    return flow.run(options(place), place, rtl="twin", say=said.append), said


@pytest.mark.turns(1, of="flows")
def test_three_memories_beside_two_and_one(small, place):
    found, _ = small
    one, two, limited, three = found.placements
    assert [each.plan.levels for each in found.placements] == [1, 2, 3, 3] and found.passed
    assert one.shares.tolist() == [0, 0, 1] and two.shares[1] == 0 < two.shares[0]
    assert 0 < limited.shares[1] < 0.2 < three.shares[1] and three.shares[2] < two.shares[2]
    assert one.rate < two.rate < three.rate and one.batch_s == 128 / one.rate
    assert sorted(path.name for path in place.iterdir()) == ["card.toml", "log.csv"]
    assert found.held == 300 == one.whole.samples and one.slice.samples == 256


@pytest.mark.turns(1, of="flows")
def test_the_rate_is_the_measured_one_beside_the_planned(small):
    found, _ = small
    whole = found.placements[-1].whole
    assert whole.rate == 300 * whole.clock_mhz * 1e6 / max(whole.busy.values())
    assert whole.planned_rate == 300 * whole.clock_mhz * 1e6 / max(whole.expected.values()) != whole.rate
    assert rates(whole) == (f"{rate(whole.rate)} samples/s measured, one batch at a time; {rate(whole.planned_rate)} "
                            f"planned, {whole.planned_rate / whole.rate:.2f} times as many")
    assert rates(Verified(found.device)) == ""


def test_the_cards_vectors_give_the_hosts_accuracy(small):
    found, _ = small
    for each in found.placements:
        assert each.auc == pytest.approx(each.curve[-1], abs=1e-3) and each.auc > 0.7
    one, two, *others = found.placements
    assert one.auc == two.auc == found.baseline and not one.errors
    assert all(set(each.errors) <= set(found.rows) and min(each.errors.values()) > 0 for each in others)


def test_it_tells_each_step(small):
    found, said = small
    assert "tables user_id of 60 rows" in said[0] and "300 samples held out" in said[0]
    assert sum(line.startswith("training") for line in said) == 2 * flow.EPOCHS
    for each in found.placements:
        assert any(line.startswith(f"twin       {each.name}:") and f"AUC {each.auc:.4f}" in line for line in said)
        assert any(line.startswith(f"RTL        {each.name}: 2 batches") and "every bit and cycle the twin's" in line
                   for line in said)


def test_report_says_all_of_it(small, tmp_path, capsys):
    found, _ = small
    text = report.write(found, tmp_path).read_text("utf-8")
    report.show(found)
    shown = capsys.readouterr().out
    for each in found.placements:
        assert each.name in text and f"{each.auc:.4f}" in text and rate(each.rate) in text
        assert rate(each.rate) in shown
    assert "MovieLens" not in text and f"Another split of {found.source} moves the differences" in text
    assert f"{found.placements[-1].errors['user_id']:.2f}" in text and "every bit and every cycle" in text


@pytest.mark.turns(1, of="flows")
def test_a_difference_is_told(place, monkeypatch):
    """A word of the first placement that is not the twin's, a cycle of the second."""
    again, looked_up = [], flow._looked_up

    def wrong(bundle, log, samples, card):
        done, vectors = looked_up(bundle, log, samples, "twin")
        if card != "twin":
            again.append(card)
            vectors[1, 1].view("u4")[3] ^= len(again) == 1
            done.each[0] = {0: done.each[0][0] + (len(again) == 2)}
        return done, vectors

    monkeypatch.setattr(flow, "_looked_up", wrong)
    said = []
    done = flow.run(options(place), place, rtl="other", say=said.append)
    assert [each.equal for each in done.placements] == [False, False, True, True] and not done.passed
    assert ["DIFFERENT from the twin" in line for line in said[-4:]] == [True, True, False, False]
    assert "DIFFERENT" in report.page(done).html()


@pytest.mark.turns(1, of="flows")
def test_without_the_rtl(place, monkeypatch, tmp_path):
    """No simulator is built; a difference from the oracle is still one."""
    monkeypatch.setattr(flow, "_Simulator", None)
    said = []
    done = flow.run(options(place), place, rtl=None, say=said.append)
    assert done.passed and not done.in_rtl and not any("RTL" in line or "simulator" in line for line in said)
    assert "The RTL did not run." in report.page(done).html()
    first = replace(done.placements[0], whole=replace(done.placements[0].whole, different="a bit"))
    wrong = replace(done, placements=[first, *done.placements[1:]])
    assert not wrong.passed and "DIFFERENT from the oracle" in report.page(wrong).html()


@pytest.mark.parametrize(("changes", "message"), [
    ({"label": "nope"}, "has no column 'nope'"),
    ({"dim": 0}, "dim must be at least 1, not 0"),
    ({"rank": -1}, "rank must be at least 1, not -1"),
    ({"samples": 3}, "those held out need labels 0 and 1 both"),
    ({"tables": ["film"]}, "has no field 'film'"),
    ({"batch": 100_000}, "DRAM"),
])
def test_wrong(place, changes, message):
    with pytest.raises(ValueError) as caught:
        flow.run(options(place, **changes), place, rtl="twin", say=lambda line: None)
    assert message in str(caught.value)


@pytest.mark.filterwarnings("error")
def test_training_that_diverges(place, tmp_path):
    rows = np.random.default_rng(2).integers(0, 9, (2, 600))
    np.savez(tmp_path / "log.npz", idx_a=rows[0], idx_b=rows[1], label=rows[0] % 2, dense=1e9 * (1.0 + rows.T))
    with pytest.raises(ValueError, match="log.npz: the training diverges; dense features should be of size 1"):
        flow.run(replace(options(place), logs=[tmp_path / "log.npz"]), tmp_path, rtl="twin", say=lambda line: None)


@pytest.mark.regress
@pytest.mark.parametrize(("preset", "pages"), [
    ("tiny", ("README.md", "docs/demo.md")), ("smartssd", ("docs/demo.md",))])
def test_pages_show_what_is_measured(preset, pages, tmp_path):
    """Samples per second as they are printed; AUCs hang on the order in which a machine's library adds."""
    try:
        found = flow.run(flow.Options(preset=preset), tmp_path, rtl="twin", say=print)
    except ValueError as error:
        pytest.skip(str(error))
    for page in pages:
        text = (ROOT / page).read_text("utf-8")
        for each in found.placements:
            shown = re.search(rf"{re.escape(each.name)} .* {re.escape(rate(each.rate))} [ |]*(0\.\d+) ", text)
            assert shown and float(shown[1]) == pytest.approx(each.auc, abs=5e-3), (page, each.name)
    for each in found.placements:
        assert each.planned_s == pytest.approx(each.batch_s, rel=0.25), each.name
