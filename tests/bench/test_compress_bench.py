"""bench.compress: bags of chosen samples."""

import numpy as np

from bench.compress import FORMS, Samples


def test_bags_of_some_samples():
    offsets = np.array([0, 2, 2, 5, 6])
    indices = np.array([7, 8, 1, 2, 3, 9])
    samples = Samples((10,), ((indices, offsets),), np.zeros(4, np.float32))
    got, begins = samples.of(0, np.array([2, 1, 3, 0, 2]))
    assert got.tolist() == [1, 2, 3, 9, 7, 8, 1, 2, 3]
    assert begins.tolist() == [0, 3, 3, 4, 6]


def test_shares_of_a_form_are_at_most_all():
    assert all(0 <= form.hot <= form.hot + form.warm <= 1 for form in FORMS.values())
