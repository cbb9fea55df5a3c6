"""Reports as large as they come: a profile and a plan of MELS' 856 tables, drawn in a moment."""

import numpy as np

from gen.data.profile import Heat, Profile, TableProfile
from gen.model.recommender import Recommender, TableSpec
from gen.planner.plan import Plan, PlanCard, PlanTable, Tier

TABLES, CARDS, SAMPLES = 856, 8, 65_536


def profile():
    random = np.random.default_rng(7)
    tables = {}
    for number in range(TABLES):
        counts = random.zipf(1.2 + random.random(), 300).clip(1, 10**6)
        tables[f"t{number:03d}"] = TableProfile(
            f"t{number:03d}", int(random.integers(10**3, 10**8)), SAMPLES, Heat.of(counts), np.array([1]),
            np.array([SAMPLES]))
    return Profile("856 tables", SAMPLES, tables)


def plan(of):
    """Where the tables of a profile lie: a third of the accesses in each memory of one card or another."""
    made = {}
    for number, (name, table) in enumerate(of.tables.items()):
        tiers = [Tier(table.rows // 3, 256 * table.rows // 3, table.heat.total / 3e4, 1e-4) for _ in range(3)]
        made[name] = PlanTable(name, (number % CARDS,), *tiers, (100, 100, 120), (4, 4, 4), (4, 4))
    cards = [PlanCard(card, "emb", *(Tier(10**6, 10**9, 1e6, 1e-2 * (card + k)) for k in (1, 2, 3)), 1e-3, 2e-3,
                      binds="ssd", full=("dram",)) for card in range(CARDS)]
    model = Recommender("mels", "", {name: TableSpec(name, table.rows, 64) for name, table in of.tables.items()})
    return Plan(model, "smartssd", "smartssd", 4096, 1 << 24, {}, made, tuple(cards), 0.0, 0.0, 0.1, 0.099,
                ablation={3: (0.1, 0.099), 2: (0.12, 0.11)}, source=of.source,
                what_if={"every access may read TT rows (--tt-share 1)": (0.08, 0.07)},
                assumed=("at most 10% of a table's accesses may read TT rows (--tt-share), which holds 856 of 856 "
                         "tables back",))
