"""A table trained through its cache against torch's own EmbeddingBag and optimizer, bit for bit.

Skipped where torch is not installed.
"""

import errno
import gc
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from bench import train_crash as crash  # noqa: E402
from hotrail.training import CachedEmbeddingBag, ahead, load, save  # noqa: E402
from hotrail.training.bag import EPSILON  # noqa: E402

ROOT = Path(__file__).parents[2]
ROWS, DIM, BAGS, POOLING = 800, 16, 20, 5


class Plain:
    """The whole table in torch, and the step of a rule as it is written in the literature."""

    def __init__(self, rule, mode, rate):
        self.bag = torch.nn.EmbeddingBag(ROWS, DIM, mode=mode)
        self.rule, self.state, self.rate = rule, torch.zeros(ROWS), rate
        self.optimizer = torch.optim.SGD(self.bag.parameters(), lr=rate)

    def step(self):
        if self.rule == "rowwise_adagrad":
            with torch.no_grad():
                slope = self.bag.weight.grad
                self.state += (slope * slope).mean(1)
                self.bag.weight.grad = slope / (self.state.sqrt() + EPSILON)[:, None]
        self.optimizer.step()
        self.optimizer.zero_grad()


def batches(count, seed=1):
    random = torch.Generator().manual_seed(seed)
    offsets = torch.arange(0, BAGS * POOLING, POOLING)
    return [((torch.rand(BAGS * POOLING, generator=random) ** 3 * ROWS).long(), offsets,
             torch.randn(BAGS, DIM, generator=random)) for _ in range(count)]


def pair(rule="sgd", mode="sum", cache_rows=120, rate=0.05, **options):
    plain = Plain(rule, mode, rate)
    return plain, CachedEmbeddingBag.of(plain.bag, cache_rows=cache_rows, rate=rate, rule=rule, **options)


def heat():
    return np.arange(ROWS)[::-1].copy()


@pytest.mark.parametrize("rule", ["sgd", "rowwise_adagrad"])
@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("cache_rows", [90, 300, ROWS])
@pytest.mark.parametrize("depth", [None, 0, 8])
def test_equals_torch(rule, mode, cache_rows, depth):
    plain, bag = pair(rule, mode, cache_rows, heat=heat() if cache_rows == 300 else None)
    given = batches(40)
    for indices, offsets, slope in given if depth is None else ahead(given, {bag: lambda one: one[0]}, depth=depth):
        found, wanted = bag(indices, offsets), plain.bag(indices, offsets)
        assert torch.equal(found, wanted)
        (found * slope).sum().backward()
        (wanted * slope).sum().backward()
        plain.step()
    assert torch.equal(bag.table(), plain.bag.weight)
    assert bag.moved == bag.lookups - bag.hits > 0 or cache_rows > 120


def test_weights_of_samples_have_their_gradient():
    plain, bag = pair()
    for indices, offsets, slope in ahead(batches(20), {bag: lambda one: one[0]}, depth=4):
        weights = [torch.rand(len(indices), generator=torch.Generator().manual_seed(3)).requires_grad_() for _ in "ab"]
        (bag(indices, offsets, per_sample_weights=weights[0]) * slope).sum().backward()
        (plain.bag(indices, offsets, per_sample_weights=weights[1]) * slope).sum().backward()
        plain.step()
        assert torch.equal(weights[0].grad, weights[1].grad)
    assert torch.equal(bag.table(), plain.bag.weight)


def test_two_dimensions_no_gradient_and_empty_bags():
    plain, bag = pair()
    indices = torch.randint(0, ROWS, (7, 4))
    assert torch.equal(bag(indices), plain.bag(indices))
    with torch.no_grad():
        assert torch.equal(bag(indices[:3]), plain.bag(indices[:3]))
    offsets = torch.tensor([0, 0, 2, 28])
    assert torch.equal(bag(indices.flatten(), offsets), plain.bag(indices.flatten(), offsets))
    nothing = torch.zeros(0, dtype=torch.long)
    assert torch.equal(bag(nothing, torch.tensor([0, 0])), plain.bag(nothing, torch.tensor([0, 0])))
    assert torch.equal(bag.table(), plain.bag.weight)


def test_two_lookups_before_their_steps():
    """Each takes its step, also of a row that both have looked up."""
    bag = CachedEmbeddingBag(9, 4, cache_rows=6, rate=0.5, std=0.0)
    one = torch.tensor([0])
    (bag(torch.tensor([0, 1]), one).sum() + bag(torch.tensor([1, 2]), one).sum()).backward()
    assert bag.table()[:4, 0].tolist() == [-0.5, -1.0, -0.5, 0.0]


def test_evaluation_keeps_nothing():
    """Results that are still held have no rows."""
    plain, bag = pair(cache_rows=100)
    with torch.no_grad():
        for indices, offsets, _ in batches(60):
            found = bag(indices, offsets)
            assert torch.equal(found, plain.bag(indices, offsets))


def test_odd_offsets():
    plain = Plain("sgd", "sum", 0.05)
    plain.bag.include_last_offset = True
    bag = CachedEmbeddingBag.of(plain.bag, cache_rows=90, rate=0.05)
    for offsets in ([0, 3, 7], [0, 0, 7]):
        for module in (bag, plain.bag):
            module(torch.arange(7), torch.tensor(offsets)).sum().backward()
        plain.step()
        assert torch.equal(bag.table(), plain.bag.weight)
    with pytest.raises(ValueError, match="the last offset is 5, and there are 7 indices"):
        bag(torch.arange(7), torch.tensor([0, 3, 5]))
    assert torch.equal(bag.table(), plain.bag.weight)


def test_a_tensor_that_is_filled_anew():
    _, bag = pair()
    indices = torch.tensor([1, 2])
    bag.announce(indices)
    indices += 1
    with pytest.raises(ValueError, match="not those of the batch that was announced next"):
        bag(indices, torch.tensor([0]))
    assert bag(torch.tensor([1, 2]), torch.tensor([0])).shape == (1, DIM), "it is still the next"


def test_other_types_and_the_end_of_the_process():
    """A module that is converted has the table as it was; a process ends while batches are on their way."""
    _, bag = pair()
    bag.double()
    assert bag(torch.tensor([1]), torch.tensor([0])).dtype == torch.float32
    done = subprocess.run([sys.executable, "-c", ENDING, str(ROOT)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


ENDING = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from hotrail.training import CachedEmbeddingBag, ahead
bag = CachedEmbeddingBag(200_000, 32, cache_rows=50_000, rate=0.1)
given = [torch.randint(0, 200_000, (20_000,)) for _ in range(12)]
for indices in ahead(given, {bag: lambda one: one}):
    bag(indices, torch.tensor([0])).sum().backward()
    break
"""


def test_a_result_that_is_dropped_lets_its_rows_go():
    plain, bag = pair(cache_rows=110)
    for indices, offsets, _ in batches(10):
        bag(indices, offsets)
        gc.collect()
    assert torch.equal(bag.table(), plain.bag.weight)


def test_mistakes_leave_the_table_as_it_was():
    plain, bag = pair(cache_rows=100)
    one, two, three = batches(3)
    with pytest.raises(IndexError, match=f"index {ROWS} is none of the table's {ROWS} rows"):
        bag(torch.tensor([1, ROWS]), torch.tensor([0]))
    with pytest.raises(ValueError, match="looks up 101 different rows, and the cache holds 100: smaller"):
        bag(torch.arange(101), torch.tensor([0]))
    waiting = bag(*one[:2])
    with pytest.raises(ValueError, match="no room beside those whose backward is still to come; the cache holds 100"):
        for other in batches(4, seed=9):
            kept = bag(*other[:2])      # noqa: F841  its graph holds its rows
    bag.announce(two[0])
    with pytest.raises(ValueError, match="not those of the batch that was announced next"):
        bag(*three[:2])
    bag.forget()
    waiting.sum().backward()
    with pytest.raises(RuntimeError, match="second time|second backward"):
        waiting.sum().backward()
    plain.bag(*one[:2]).sum().backward()
    plain.step()
    assert torch.equal(bag.table(), plain.bag.weight)
    with pytest.raises(ValueError, match="mode is 'max'; it must be sum or mean"):
        CachedEmbeddingBag.of(torch.nn.EmbeddingBag(9, 4, mode="max"), cache_rows=3, rate=0.1)
    with pytest.raises(ValueError, match="has max_norm=1.0, which a CachedEmbeddingBag does not do"):
        CachedEmbeddingBag.of(torch.nn.EmbeddingBag(9, 4, max_norm=1.0), cache_rows=3, rate=0.1)
    with pytest.raises(ValueError, match="rule is 'adam'; it must be one of sgd, rowwise_adagrad"):
        CachedEmbeddingBag(9, 4, cache_rows=3, rate=0.1, rule="adam")
    with pytest.raises(ValueError, match="rate is nan; it must be a number from 0 on"):
        CachedEmbeddingBag(9, 4, cache_rows=3, rate=float("nan"))
    with pytest.raises(ValueError, match="depth is -1"):
        next(ahead([one], {bag: lambda each: each[0]}, depth=-1))


def test_a_loop_that_ends_early_announces_nothing_more():
    plain, bag = pair()
    given = batches(20)
    for number, (indices, offsets, slope) in enumerate(ahead(given, {bag: lambda one: one[0]})):
        (bag(indices, offsets) * slope).sum().backward()
        (plain.bag(indices, offsets) * slope).sum().backward()
        plain.step()
        if number == 5:
            break
    assert torch.equal(bag(*given[12][:2]), plain.bag(*given[12][:2]))
    assert torch.equal(bag.table(), plain.bag.weight)


def test_the_same_batches_move_the_same_rows():
    """However fast the caller is: what leaves does not depend on what has ended."""
    counts = []
    for pause in (0.0, 0.002):
        _, bag = pair(cache_rows=130)
        for indices, offsets, _ in ahead(batches(30), {bag: lambda one: one[0]}, depth=3):
            result = bag(indices, offsets).sum()
            time.sleep(pause)
            result.backward()
        counts.append((bag.moved, bag.hits, bag.lookups))
    assert counts[0] == counts[1]


def test_a_table_in_a_file_goes_on(tmp_path):
    options = {"cache_rows": 120, "rate": 0.05, "rule": "rowwise_adagrad"}
    inside = CachedEmbeddingBag(ROWS, DIM, **options)
    given = batches(30)

    def train(bag, part):
        for indices, offsets, slope in ahead(part, {bag: lambda one: one[0]}):
            (bag(indices, offsets) * slope).sum().backward()
        return bag.table()

    train(inside, given)
    train(CachedEmbeddingBag(ROWS, DIM, place=tmp_path / "table", **options), given[:17])
    outside = CachedEmbeddingBag(ROWS, DIM, place=tmp_path / "table", **options)
    assert torch.equal(train(outside, given[17:]), inside.table())
    del outside
    with pytest.raises(ValueError, match="weight.f32 has 51200 bytes; a table of the shape .* has 25600") as refused:
        CachedEmbeddingBag(ROWS // 2, DIM, place=tmp_path / "table", **options)
    # Whoever has the error in hand may take the folder with the right sizes.
    assert refused.tb and torch.equal(CachedEmbeddingBag(ROWS, DIM, place=tmp_path / "table", **options).table(),
                                      inside.table())


def test_state_of_torch_and_ours(tmp_path):
    plain, bag = pair("rowwise_adagrad")
    model = torch.nn.ModuleDict({"item": bag})
    assert list(model.state_dict()) == ["item.weight", "item.state"]
    bag(*batches(1)[0][:2]).sum().backward()
    save(tmp_path / "all.pt", model=model, step=7)
    other = torch.nn.ModuleDict({"item": CachedEmbeddingBag(ROWS, DIM, cache_rows=50, rate=0.1, rule="rowwise_adagrad",
                                                             heat=heat())})
    assert load(tmp_path / "all.pt", model=other) == {"step": 7}
    assert torch.equal(other["item"].table(), bag.table())
    assert torch.equal(other["item"](torch.arange(9), torch.tensor([0])), bag(torch.arange(9), torch.tensor([0])))
    with pytest.raises(RuntimeError, match='Unexpected key.* "state"'):
        pair("sgd")[1].load_state_dict(bag.state_dict())
    with pytest.raises(ValueError, match="has no 'optimizer'; it has model, random, step"):
        load(tmp_path / "all.pt", optimizer=other)
    save(tmp_path / "net.pt", model=other, net=torch.nn.Linear(3, 2))
    before = other["item"].table().clone()
    other["item"](torch.arange(9), torch.tensor([0])).sum().backward()
    changed = other["item"].table().clone()
    assert not torch.equal(before, changed)
    with pytest.raises(ValueError, match=r"net.weight has the shape \(2, 3\) in the checkpoint, and the shape"):
        load(tmp_path / "net.pt", model=other, net=torch.nn.Linear(4, 2))
    assert torch.equal(other["item"].table(), changed)
    torch.save({"model": other.state_dict()}, tmp_path / "torch.pt")
    (tmp_path / "torn.pt").write_bytes((tmp_path / "all.pt").read_bytes()[:-200])
    (tmp_path / "text.pt").write_text("user,item\n", encoding="utf-8")
    for name in ("torch", "torn", "text"):
        with pytest.raises(ValueError, match=f"{name}.pt is not a checkpoint that save"):
            load(tmp_path / f"{name}.pt", model=other)
    for part, sentence in (({"loss": np.float64(1)}, "loss cannot be saved: float64 is NumPy's"),
                           ({"random": 1}, "random cannot be saved: the name")):
        with pytest.raises(ValueError, match=sentence):
            save(tmp_path / "other.pt", **part)
    assert not (tmp_path / "other.pt").exists()


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.regress)])
def test_killed_and_resumed(tmp_path, kills):
    """At any moment, in a save too: the end is the one that was not interrupted, dropout and Adam among it."""
    assert crash.different(tmp_path, kills) == 0


FORKED = """
import os, sys, torch
sys.path.insert(0, sys.argv[1])
from hotrail.training import CachedEmbeddingBag
bag = CachedEmbeddingBag(100, 4, cache_rows=50, rate=0.1, place=sys.argv[2])
child = os.fork()
if not child:
    for call in (lambda: bag(torch.tensor([1]), torch.tensor([0])), bag.table):
        try:
            call()
        except RuntimeError as error:
            print(error, flush=True)
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
bag(torch.tensor([1]), torch.tensor([0])).sum().backward()
print("trains on", flush=True)
import time; time.sleep(60)
"""


def test_a_fork_is_refused_and_a_folder_has_one_bag(tmp_path):
    """Until it is gone, by a kill too."""
    place = tmp_path / "table"
    parent = subprocess.Popen([sys.executable, "-c", FORKED, str(ROOT), str(place)], stdout=subprocess.PIPE, text=True)
    for _ in range(2):
        assert f"belongs to process {parent.pid}, of which this one is a fork" in parent.stdout.readline()
    assert parent.stdout.readline() == "trains on\n"
    options = {"cache_rows": 50, "rate": 0.1, "place": place}
    with pytest.raises(ValueError, match=f"{place} is used by another bag"):
        CachedEmbeddingBag(100, 4, **options)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    bag = CachedEmbeddingBag(100, 4, **options)
    with pytest.raises(ValueError, match=f"{place} is used by another bag"):
        CachedEmbeddingBag(100, 4, **options)
    del bag
    CachedEmbeddingBag(100, 4, **options)


def test_a_full_disk(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(OSError, match=r"weight.f32 needs 1,600 bytes, of which its disk has [\d,]+: No space left"):
        CachedEmbeddingBag(100, 4, cache_rows=50, rate=0.1, place=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]


def test_rows_that_are_kept_stay():
    plain, bag = pair(cache_rows=150)
    kept = torch.arange(700, 740)
    bag.keep(kept)
    for indices, offsets, slope in ahead(batches(20), {bag: lambda one: one[0]}, fetch=3):
        (bag(indices, offsets) * slope).sum().backward()
        (plain.bag(indices, offsets) * slope).sum().backward()
        plain.step()
    moved = bag.moved
    bag(kept, torch.tensor([0]))
    assert moved > 150 and bag.moved == moved and torch.equal(bag.table(), plain.bag.weight)
    with pytest.raises(ValueError, match="151 rows are to be kept, and the cache holds 150"):
        bag.keep(torch.arange(151))
    with pytest.raises(IndexError, match="index 800 is none"):
        bag.keep([800])
    bag.announce(kept)
    with pytest.raises(ValueError, match="1 batches are announced"):
        bag.keep([1])
