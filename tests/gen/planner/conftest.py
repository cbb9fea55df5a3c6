"""A log of three tables, its profile and a model of it, for the tests that go from a log to a plan."""

import numpy as np
import pytest

from gen.data.logs import of_arrays
from gen.data.profiling import profile
from gen.model.recommender import Recommender, TableSpec
from tests.support.planner_problems import BATCH, SAMPLES


@pytest.fixture(scope="module")
def log():
    """Ids of three tables: one a sample, bags, and ids far apart."""
    random = np.random.default_rng(5)
    lengths = random.integers(0, 9, SAMPLES)
    return {"one": random.zipf(1.3, SAMPLES) % 900, "bags": random.zipf(1.2, int(lengths.sum())) % 5000,
            "far": (random.zipf(1.5, SAMPLES) % 400) * 10**12}, np.concatenate([[0], np.cumsum(lengths)])


@pytest.fixture(scope="module")
def known(log):
    ids, offsets = log
    return profile(of_arrays(ids, {"bags": offsets}))


@pytest.fixture(scope="module")
def model():
    return Recommender("m", "", {"one": TableSpec("one", 900, 64), "bags": TableSpec("bags", 700, 64, "modulo"),
                                 "far": TableSpec("far", 500, 16, "vocabulary")}, None, BATCH)
