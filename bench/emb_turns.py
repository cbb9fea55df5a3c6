"""Tables in different memories of a card: a batch of both beside the slower of them alone, beside one after the other,
and beside what both take of DRAM and of the front, which the order of bags does not change.
"""

from collections.abc import Iterator
from dataclasses import replace

from bench.emb import moved
from bench.framework import Row, at_most, bench, figure
from bench.twin import RING_BYTES, SUITE, Case
from fpga.api.embedding import EmbeddingBags
from gen.compiler.emb import Bags

CASES = {case.name: case for case in (*SUITE, Case("drive", shares=(0, 0, 1), zipf=1.05))}
PAIRS = (("d64", "tt", 8), ("d64.zipf", "tt.zipf", 8), ("d64", "drive", 40))     # lookups of the second to one
LOOKUPS = 12_000        # of the first
MOST = 1.05             # times what both take in any order


def drawn(case: Case, lookups: int, seed: int) -> list[Bags]:
    return [replace(bags, table=case.name) for bags in case.batch(lookups // case.pooling, seed)]


@bench("emb_turns")
def turns() -> Iterator[Row]:
    """Batches of two tables in different memories on the twin: cycles beside what both take of DRAM and front."""
    for first, second, share in PAIRS:
        cases = CASES[first], CASES[second]
        tables = [replace(case.table(), name=case.name) for case in cases]
        counts = (LOOKUPS, LOOKUPS // share) if second == "drive" else (LOOKUPS, LOOKUPS * share)
        batches = [drawn(case, count, 3) for case, count in zip(cases, counts, strict=True)]
        cycles, beats = [], []
        with EmbeddingBags(tables, card="twin", preset=cases[0].preset, ring_bytes=RING_BYTES) as card:
            for batch in (*batches, [*batches[0], *batches[1]]):
                before = moved(card.card)
                card.batch(batch)
                cycles.append(card.last["cycles"])
                beats.append(moved(card.card) - before)
        id, slower = f"emb.turns.{first}.{second}", max(cycles[:2])
        what = (f"{counts[0]:,} lookups of a table as {first}, {counts[1]:,} of one as {second}, {cycles[0]:,} and "
                f"{cycles[1]:,} cycles alone")
        # What the second moves in DRAM takes a cycle of it per beat, and an index a cycle of the front.
        least = max(cycles[0] + beats[2] - beats[0], cycles[1], sum(counts))
        yield at_most(id, f"{what}, {least:,} at least with what the second moves in DRAM: of both over these",
                      round(cycles[2] / least, 3), "times", MOST)
        yield figure(f"{id}.slower", f"{what}: of both over the slower", round(cycles[2] / slower, 3), "times")
        yield figure(f"{id}.sum", f"{what}: one after the other over the slower",
                     round(sum(cycles[:2]) / slower, 3), "times")
