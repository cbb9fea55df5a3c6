"""A small model with a log, its profile, and a plan made by hand: three tables in three memories on two EMB cards."""

from dataclasses import replace

import numpy as np

import fpga.card.runs
from gen.data.logs import of_arrays
from gen.data.profile import Heat, Profile, TableProfile
from gen.model.network import Model
from gen.model.recommender import Recommender, TableSpec
from gen.planner.plan import Plan, PlanCard, PlanTable, Tier
from gen.rtl.config import load
from golden.emb.core import Emb
from tests.support import emb_card, mlp_card, mlp_sizes

DIM = 16
# Rows of each memory; modes and ranks of the tensor train.
SPLIT = {"user/id": (20, 60, 220), "genre": (43, 0, 0), "town": (0, 0, 57)}
MODEL = Model("small", "", (3, 8, DIM), "dot", 3, DIM, (8, 1), "relu", "sigmoid")


def log(samples=300, seed=5):
    """ids of user/id are hashed, of genre in bags, of town rows."""
    random = np.random.default_rng(seed)
    users = (random.zipf(1.2, samples) % 280).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(1)
    bags = np.concatenate([[0], np.cumsum(random.integers(0, 7, samples))])
    return of_arrays({"user/id": users, "genre": random.integers(0, 1000, bags[-1]),
                      "town": random.integers(0, 57, samples)}, {"genre": bags},
                     {"dense": random.standard_normal((samples, 3)).astype(np.float32)}, source="a log")


def profile(of):
    tables = {}
    (chunk,) = of.chunks(1 << 20)
    for name, ids in chunk.ids.items():
        known, counts = np.unique(ids, return_counts=True)
        tables[name] = TableProfile(name, len(known), chunk.samples, Heat.of(counts), np.array([1]),
                                    np.array([chunk.samples]), known, counts)
    return Profile("a log", chunk.samples, tables)


def model(network=MODEL):
    tables = {"user/id": TableSpec("user/id", 300, DIM, "vocabulary"),
              "genre": TableSpec("genre", 43, DIM, "modulo", "mean"),
              "town": TableSpec("town", 57, DIM, "index", "max")}
    return Recommender("small", "", tables, network, 64)


def plan(network=MODEL, split=None, by=None, **changes):
    """by: of tables that lie on both EMB cards, by what they are split."""
    made = {}
    for card, (name, (dram, train, ssd)) in zip((0, 1, 0), (split or SPLIT).items()):
        shape = ((4, 4, 4), (2, 2, 4), (4, 4)) if train else ((), (), ())
        drive = Tier(ssd, seconds=1.5e-4 if card == 0 else 0)
        made[name] = PlanTable(name, (card,), Tier(dram, seconds=1e-5), Tier(train), drive, *shape)
        if name in (by or {}):
            made[name] = replace(made[name], cards=(0, 1), by=by[name])
    cards = [PlanCard(0, "emb", Tier(seconds=2e-5), Tier(seconds=1e-6), Tier(seconds=4e-4)),
             PlanCard(1, "emb", Tier(seconds=1e-5))]
    if network is not None:
        cards += [PlanCard(k, "mlp", bottom_s=1e-5, top_s=3e-5) for k in (2, 3)]
    options = {"device": "smartssd", "preset": "tiny", "page_bytes": 4096, "ring_bytes": 1 << 16, "capacity": {},
               "bottom_s": 0.0, "top_s": 0.0, "seconds": 1e-3, "bound": 1e-3, **changes}
    return Plan(model(network), tables=made, cards=tuple(cards), **options)


def narrow(forms, key="row_format", **changes):
    """The plan with these tables in other formats, of rows or as `key` says."""
    made = plan(**changes)
    tables = {name: replace(spec, **{key: forms[name]} if name in forms else {})
              for name, spec in made.model.tables.items()}
    return replace(made, model=replace(made.model, tables=tables))


def arrays(seed=0, trained=False):
    """Parameters as an npz file has them."""
    random = np.random.default_rng(seed)
    sizes = MODEL.network()
    found = {f"table_{name}": random.standard_normal((spec.rows, DIM)) for name, spec in model().tables.items()}
    if trained:
        for k, shape in enumerate(((1, 4, 2, 4), (4, 4, 2, 4), (4, 4, 4, 1)), 1):
            found[f"core{k}_user/id"] = random.standard_normal(shape)
    for name, layer in sizes.layers():
        found[f"{name.replace(' ', '')}_weights"] = layer.weights
        found[f"{name.replace(' ', '')}_bias"] = layer.bias
    return found


class Opened:
    """Cards whose cores are oracles, in the order in which they are opened. wrong: the number of the one whose results
    have a flipped bit."""

    def __init__(self, bundle, monkeypatch):
        self.cards, self.wrong, self._left, self._bundle = [], None, list(bundle.emb_cards), bundle
        monkeypatch.setattr(fpga.card.runs, "open_card", lambda kind, *, core, **options: getattr(self, core)())

    def emb(self):
        images = self._bundle.images(self._left.pop(0))
        return self._add(emb_card.OracleCard(Emb.of(images.config, images.cores)))

    def mlp(self):
        return self._add(mlp_card.OracleCard(mlp_sizes.core(load("tiny").cores["mlp"])))

    def _add(self, card):
        if self.wrong == len(self.cards):
            honest = card.read

            def read(buffer, *arguments):
                found = honest(buffer, *arguments)
                if buffer.name == "outputs":
                    found[0] ^= 1
                return found

            card.read = read
        self.cards.append(card)
        return card
