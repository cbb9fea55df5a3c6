"""Logs as pieces: arrays, numbers of samples, problems."""

import pickle

import numpy as np
import pytest

from gen.data.logs import PIECE, Problems, of_arrays


def gathered(log, samples):
    """(numbers, ids by table, lengths of bags by table) of all samples."""
    numbers, ids, bags = [], {name: [] for name in log.tables}, {name: [] for name in log.tables}
    for chunk in log.chunks(samples):
        assert 0 < chunk.samples <= samples
        numbers += range(chunk.first, chunk.first + chunk.samples)
        for name, array in chunk.ids.items():
            assert array.dtype == np.uint64
            ids[name] += array.tolist()
            if name in chunk.offsets:
                assert chunk.offsets[name][0] == 0 and chunk.offsets[name][-1] == len(array)
                bags[name] += np.diff(chunk.offsets[name]).tolist()
    return numbers, ids, bags


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("samples", [1, 3, 100])
def test_arrays(parts, samples):
    random = np.random.default_rng(parts)
    lengths = random.integers(0, 4, 11)
    user, tag = random.integers(0, 99, 11), random.integers(0, 9, lengths.sum())
    log = of_arrays({"user": user, "tag": tag}, {"tag": np.append(0, np.cumsum(lengths))},
                    {"label": np.arange(11)}, parts=parts)
    numbers, ids, bags = gathered(log, samples)
    assert ids == {"user": user.tolist(), "tag": tag.tolist()} and bags["tag"] == lengths.tolist()
    assert np.concatenate([chunk.values["label"] for chunk in log.chunks(samples)]).tolist() == list(range(11))
    cuts = [11 * part // parts for part in range(parts + 1)]
    assert numbers == [part * PIECE + n for part, (a, b) in enumerate(zip(cuts, cuts[1:])) for n in range(b - a)]
    # Parts have the same samples under the same numbers, wherever they are read.
    alone = [gathered(part, samples)[0] for part in pickle.loads(pickle.dumps(log.parts()))]
    assert sum(alone, []) == numbers and len(alone) == parts


def test_part_of_a_chunk():
    log = of_arrays({"a": np.arange(5), "b": np.arange(10, 17)}, {"b": [0, 2, 2, 3, 7, 7]}, {"label": np.arange(5) / 2})
    part = next(log.chunks()).part(1, 4)
    assert (part.first, part.samples) == (1, 3)
    assert {name: ids.tolist() for name, ids in part.ids.items()} == {"a": [1, 2, 3], "b": [12, 13, 14, 15, 16]}
    assert part.edges("a").tolist() == [0, 1, 2, 3] and part.edges("b").tolist() == [0, 0, 1, 5]
    assert list(part.offsets) == ["b"] and part.values["label"].tolist() == [0.5, 1, 1.5]


def test_progress_ends_with_all():
    seen = []
    log = of_arrays({"a": np.arange(100)}, parts=3)
    log.progress = lambda done, total: seen.append((done, total))
    assert sum(chunk.samples for chunk in log.chunks(10)) == 100
    assert seen == sorted(seen) and seen[-1] == (log.bytes, log.bytes)


def test_problems_add_up():
    one, two = Problems(), Problems()
    one.add("a", "x:1"), two.add("a", "x:9", 3), two.add("b", "x:7")
    assert Problems.of([one, two]) == Problems({"a": 4, "b": 1}, {"a": "x:1", "b": "x:7"})
    assert Problems.of([one, two]).lines() == ["4 x a; first x:1", "1 x b; first x:7"]


@pytest.mark.parametrize(("arrays", "message"), [
    (({},), "arrays has no tables"),
    (({"a": [0.5]},), "arrays: a is float64 of shape (1,); it must be whole numbers in one dimension"),
    (({"a": [1]}, {"b": [0, 1]}), "arrays: offsets of 'b', which is no table; there are a"),
    (({"a": [1, 2]}, {"a": [0, 2, 1]}), "arrays: the offsets of a must rise from 0 to 2, its ids"),
    (({"a": [1, 2], "b": [1]},), "arrays: b has 1 samples, a has 2"),
    (({"a": [1, 2]}, None, {"label": [1.0]}), "arrays: label has 1 samples, a has 2"),
])
def test_arrays_wrong(arrays, message):
    with pytest.raises(ValueError) as caught:
        of_arrays(*arrays)
    assert str(caught.value) == message


def test_parts_wrong():
    with pytest.raises(ValueError) as caught:
        of_arrays({"a": [1, 2]}, parts=3)
    assert str(caught.value) == "parts must be from 1 to 2, the samples, not 3"
