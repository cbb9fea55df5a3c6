"""What `make test` leaves to `make regress`, and that to campaigns: of a matrix all but some, and in turn."""

from types import SimpleNamespace

import pytest

import conftest


class Item(SimpleNamespace):
    __hash__ = object.__hash__

    def get_closest_marker(self, name):
        given = {"of": self.group} if self.group else {}
        args = (self.count,) if self.count else ()
        return SimpleNamespace(args=args, kwargs=given) if name == self.marker else None


@pytest.mark.parametrize("marker", ["turns", "regress"])
@pytest.mark.parametrize("group", [None, "searches"])
@pytest.mark.parametrize("count,size", [(1, 1), (1, 5), (3, 10), (4, 24), (7, 7), (9, 4)])
def test_every_parameter_has_its_turn(monkeypatch, count, size, group, marker):
    """So many of each test, or of each group of tests, run, others with another seed, all of them within as many seeds
    as there are; a test without the marker runs whole, and no order of collection matters."""
    name = "test_{}.py::test" if group else "test_a.py::test[{}]"
    tests = [Item(nodeid=name.format(number), count=count, group=group, marker=marker) for number in range(size)]
    others = [Item(nodeid=f"test_a.py::other[{number}]", count=0, group=None, marker=marker) for number in range(3)]
    tried = set()
    for seed in range(1, size + 1):
        monkeypatch.setattr(conftest, "_seed", lambda seed=seed: str(seed))
        rest = conftest._not_their_turn([*tests, *others], marker)
        assert len(tests) - len(rest) == min(count, size) and not rest & set(others)
        assert conftest._not_their_turn([*others, *tests[::-1]], marker) == rest
        tried |= set(tests) - rest
    assert tried == set(tests)
