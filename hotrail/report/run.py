"""What `hotrail run` prints, and its page: the cards at work, beside the oracle and the plan."""

from collections.abc import Iterator
from pathlib import Path

from fpga.api.verifying import Verified, energy, rates, summary
from gen.bundle import Bundle
from gen.planner.plan import MEMORIES, NAMES, many, rate
from hotrail.report.page import Axis, Bars, Page, Series, Spans, Table, Text
from hotrail.terminal import console, print_table

SHOWN = 16              # batches in the timeline
CARD_HEAD = ("card", "core", "cycles per batch", "link: to the card", "to the host", "the plan's", "measured / planned",
             "in sequence, planned", "samples per second, measured", "planned")
TABLE_HEAD = ("table", "cards", *NAMES.values(), "TT error", "distance of the vectors")


def show(bundle: Bundle, done: Verified) -> None:
    """Cards beside the plan, and tables."""
    shown = console(130)
    print_table(shown, CARD_HEAD, _cards(bundle, done), left=2,
                title=f"{done.samples:,} samples in {_batches(done)}")
    print_table(shown, TABLE_HEAD, _tables(bundle, done))


def write(bundle: Bundle, done: Verified, folder: Path) -> Path:
    """Writes the page into `folder`; returns its path."""
    return page(bundle, done).write(folder)


def page(bundle: Bundle, done: Verified) -> Page:
    made = Page("hotrail run", f"{bundle.plan.model.name} on {many(len(done.cycles), 'simulated card')}",
                lead=f"{done.samples:,} samples in {_batches(done)} at {done.clock_mhz:g} MHz.", facts=[
                    ("samples", f"{done.samples:,}"), ("pooled vectors", f"{done.vectors:,}"),
                    ("samples per second, measured", rate(done.rate) if done.rate else "-"),
                    ("planned", rate(done.planned_rate) if done.planned_rate else "-")])
    made.add("Cards", Text(f"{summary(done)}.", not done.different), _timeline(bundle, done), _beside(done),
             Table("Cards beside the plan", CARD_HEAD, _cards(bundle, done), left=2, key="card"),
             *([Text(f"Rate: {said}.")] if (said := rates(done)) else []),
             *([Text(f"Energy: {said}.")] if (said := energy(done)) else []),
             *(Text(f"Note: {note}") for note in done.notes),
             *(Text(f"Warning: {warning}.", False) for warning in bundle.warnings))
    made.add("Tables", _rows(done), Table("Rows looked up in each memory", TABLE_HEAD, _tables(bundle, done), left=2,
                                          key="table"))
    return made


def _batches(done: Verified) -> str:
    return "1 batch" if done.batches == 1 else f"{done.batches:,} batches"


def _cards(bundle: Bundle, done: Verified) -> list[list[str]]:
    found = []
    for card in bundle.plan.cards:
        if card.number in done.cycles:
            busy, one, steady = (each[card.number] for each in (done.busy, done.expected, done.steady))
            link = done.links[card.number]
            measured = (done.cycles[card.number], link.in_cycles, link.out_cycles)
            found.append([str(card.number), card.kind, *(f"{cycles / done.batches:,.0f}" for cycles in measured),
                          f"{one / done.batches:,.0f}", f"{busy / one:.2f}" if one else "-",
                          f"{steady / done.batches:,.0f}",
                          *(rate(done.samples * done.clock_mhz * 1e6 / cycles) if cycles else "-"
                            for cycles in (done.busy[card.number], steady))])
    return found


def _tables(bundle: Bundle, done: Verified) -> list[list[str]]:
    found = []
    for name, told in bundle.tables.items():
        far = done.distance[name] if done.distance is not None else None
        found.append([name, bundle.plan.tables[name].place, *(f"{int(rows):,}" for rows in done.rows[name]),
                      f"{told['weighted_error']:.3f}" if told["cores"] else "-", "-" if far is None else f"{far:.2g}"])
    return found


def _timeline(bundle: Bundle, done: Verified) -> Spans:
    """Every card goes on as soon as it is free; a network waits for the vectors of its batch."""
    kinds = {card.number: card.kind for card in bundle.plan.cards if card.number in done.cycles}
    free = dict.fromkeys(kinds, 0.0)
    series: tuple[list[tuple[str, tuple[float, float]]], ...] = ([], [])
    for number, busy in enumerate(done.each[:SHOWN]):
        ready = 0.0
        for card in sorted(busy, key=lambda card: kinds[card]):     # emb before mlp
            begin = max(free[card], ready if kinds[card] == "mlp" else 0.0)
            free[card] = begin + busy[card] / done.clock_mhz
            series[number % 2].append((str(card), (begin, free[card])))
            if kinds[card] == "emb":
                ready = max(ready, free[card])
    of = f"the first {SHOWN} of {done.batches:,} batches" if done.batches > SHOWN else _batches(done)
    return Spans("Batches through the cards", f"The cycles measured of each card, {of}: core or link, whichever takes "
                 "longer, put behind each other. A card begins its next batch when it is free, a network when the "
                 "vectors are there.",
                 Axis(f"us at {done.clock_mhz:g} MHz", "us"), Axis("card"),
                 [Series(f"{name} batches", points, colour, alone=True) for name, points, colour in
                  zip(("odd", "even"), series, ("three", "four")) if points],
                 key="card", wide=True, labels=[str(card) for card in kinds])


def _beside(done: Verified) -> Bars:
    def series(name: str, cycles: Iterator[tuple[int, float]], colour: str) -> Series:
        return Series(name, [(str(card), count / done.batches) for card, count in cycles], colour)

    return Bars("Measured and planned", "Cycles of each card per batch: of its core, of each direction of its link, "
                "and as planned.", Axis("card"), Axis("cycles per batch", "cycles", least=0), [
                    series("core", iter(done.cycles.items()), "one"),
                    series("link to the card", ((card, link.in_cycles) for card, link in done.links.items()), "in"),
                    series("link to the host", ((card, link.out_cycles) for card, link in done.links.items()), "out"),
                    series("planned", iter(done.expected.items()), "soft")],
                key="card", labels=[str(card) for card in done.cycles])


def _rows(done: Verified) -> Bars:
    return Bars("Where the rows came from", "Share of each table's lookups that each memory served.", Axis("table"),
                Axis("% of the lookups", "%", least=0, most=100),
                [Series(NAMES[memory], [(name, 100 * float(rows[k]) / max(float(rows.sum()), 1))
                                        for name, rows in done.rows.items()], memory)
                 for k, memory in enumerate(MEMORIES)],
                key="table", labels=list(done.rows), stacked=True)
