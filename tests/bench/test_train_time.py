"""Published step times: the halves, and that kept constants predict what the page says."""

import numpy as np
import pytest

from bench import train_time

pytestmark = pytest.mark.regress

FIGURES = train_time.published()


def test_every_second_figure_is_fitted():
    assert len({each.id for each in FIGURES}) == len(FIGURES) == 68
    assert sum(each.fitted for each in FIGURES) == 36
    by = {each.id: each.fitted for each in FIGURES}
    for log, first in zip(train_time.LOGS, (True, False, True, False), strict=True):
        for system in ("hybrid", "hotline"):
            found = [by[f"hotline.table76.{log}.{system}.{gpus}"] for gpus in (1, 2, 4)]
            assert found == [first, not first, first]


def test_ten_epochs_of_transfers():
    """45 M samples of 26 tables in batches of 1,024: so many steps of 52 copies and 2 * 26 * 1,024 vectors."""
    c = train_time.kept()
    (each,) = [each for each in FIGURES if each.id == "hotline.table76.kaggle.hybrid.1"]
    step = 52 * c.v100.copy_s + 2 * 26 * 1024 * 64 / c.v100.copy_bytes_s
    assert each.ours(c) == pytest.approx(10 * 45e6 / 1024 * step / 60)


def test_epochs_per_hour_are_steps():
    """Terabyte's 80 M samples by 16 K: 4,883 steps, 139 ms each at 5.3 epochs per hour."""
    c = train_time.kept()
    (each,) = [each for each in FIGURES if each.id == "hotline.fig74.hybrid"]
    of = train_time.hotline_log("terabyte", 4, 16384)
    assert each.ours(c) == pytest.approx(3600 / (80e6 / 16384) / train_time.SYSTEMS["hybrid"](of, c.v100).seconds)
    assert 3600 / (80e6 / 16384) / each.value == pytest.approx(0.139, rel=0.01)


def test_the_kept_constants_predict_the_other_half():
    errors = [abs(each.ours(train_time.kept()) / each.value - 1) for each in FIGURES if not each.fitted]
    assert np.median(errors) <= 0.15 and max(errors) <= 0.35


def test_the_kept_constants_are_fitted():
    found = train_time.rounded(train_time.fit(FIGURES))
    for name, values in found.items():
        for key, value in values.items():
            kept = getattr(getattr(train_time.kept(), name) if name else train_time.kept(), key)
            assert kept == pytest.approx(value, rel=0.05), f"{name} {key}"
