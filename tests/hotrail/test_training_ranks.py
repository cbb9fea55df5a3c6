"""Processes that train together against one whose gradients are summed in the order of ranks, bit for bit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from hotrail.training import RankedEmbeddingBag  # noqa: E402

ROOT = Path(__file__).parents[2]

TRAINING = """
import json, os, sys
from pathlib import Path
import numpy as np
sys.path.insert(0, sys.argv[1])
place, rank, ranks, rule, how = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:]
from bench.train_ranks import trained

def before(step):
    if how == "killed" and rank and step == 12:
        os.kill(os.getpid(), 9)

random = np.random.default_rng(2 if how == "another log" and rank else 1)
samples = 300 if how == "a shorter log" and rank else 476
lengths = random.integers(0, 6, samples)
items = np.minimum(random.zipf(1.3, lengths.sum()), 600) - 1
try:
    print(json.dumps(trained(place, rank, ranks, items, np.concatenate([[0], lengths.cumsum()]), 600, cache_rows=60,
                             rule=rule, size=25, learn=200, before=before)), flush=True)
except (RuntimeError, ValueError) as error:
    print(error, flush=True)
    os._exit(1)
"""


def ended(place, ranks, rule="sgd", how="well"):
    """(exit code, what it printed) of each rank."""
    processes = [subprocess.Popen([sys.executable, "-c", TRAINING, str(ROOT), str(place), str(rank), str(ranks), rule,
                                   how], stdout=subprocess.PIPE, text=True) for rank in range(ranks)]
    said = [process.communicate(timeout=300)[0] for process in processes]
    return [(process.returncode, out) for process, out in zip(processes, said, strict=True)]


@pytest.mark.parametrize("ranks, rule", [(2, "rowwise_adagrad"), pytest.param(2, "sgd", marks=pytest.mark.regress),
                                         pytest.param(4, "rowwise_adagrad", marks=pytest.mark.regress)])
def test_equals_one_process(tmp_path, ranks, rule):
    for code, out in ended(tmp_path, ranks, rule):
        assert code == 0, out
        found = json.loads(out)
        assert found["different"] == found["popular_exchanged"] == 0 < found["other_exchanged"]
        assert min(found["popular"], found["other"], found["popular_reduced"]) > 3
        assert found["popular"] + found["other"] == 20


@pytest.mark.regress
@pytest.mark.parametrize("how, sentence", [
    ("killed", "a rank of the group is gone or does not answer; the table is as before this step"),
    ("another log", "rank 1 trains another mini-batch than rank 0 (number 0, here 0): all ranks must read"),
    ("a shorter log", "rank 1 trains another mini-batch than rank 0")])
def test_ranks_that_do_not_agree(tmp_path, how, sentence):
    code, out = ended(tmp_path, 2, how=how)[0]
    assert code == 1 and sentence in out, out


def test_a_lookup_without_a_backward():
    """It takes no step, and the next lookup goes on once its result is gone."""
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    try:
        bag = RankedEmbeddingBag(8, 4, cache_rows=2, rate=1.0)
        before, items = bag.table().clone(), torch.tensor([[1, 5]])
        seen = bag(items)
        with pytest.raises(ValueError, match=r"backward comes first, or its result goes \(torch.no_grad"):
            bag(items)
        assert torch.equal(seen, before[[1, 5]].sum(0, keepdim=True))
        del seen
        bag(items).sum().backward()
        with torch.no_grad():
            bag(items)
        bag(items).sum().backward()
        assert torch.equal(bag.table()[[1, 5]], before[[1, 5]] - 1.0 - 1.0)
    finally:
        torch.distributed.destroy_process_group()
