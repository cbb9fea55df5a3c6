"""What `hotrail size` prints, and its page: whether cards pay off, cards for a load, latency over load."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fpga.api.comparison import Compared
from fpga.api.verdict import Choice, Decision, part
from gen.planner.arrivals import latency
from gen.planner.plan import duration, many, rate, time_unit
from gen.planner.sizing import Copy
from hotrail.report.page import Axis, Bars, Lines, Page, Series, Table, Text
from hotrail.terminal import console, print_table

HEAD = ("cards per copy", "copies", "cards", "batch takes", "lone sample", "samples per second, offline", "within p99",
        "load", "p50", "p95", "p99", "average batch")
CHOICE_HEAD = ("devices", "number", "spread", "in use", "W", "USD", "limit", "growth until more")
COMPARED_HEAD = ("machine", "rows per second", "samples per second", "bound by", "W", "samples per joule", "USD")
COMPARED_TITLE = "Lookups of this model on one of each, by published figures"
#: Shares of the largest load at which the latency is drawn.
LOADS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98)
#: Of the load asked for, at which money is drawn.
TIMES = np.geomspace(0.1, 10, 61).tolist()


@dataclass(frozen=True, eq=False)
class Sized:
    """copies: by the cards of a group. core_s: of one core for a sample; core_by: how its lookups are known. decision:
    cards beside cores and GPUs. notes: what the plans assume. compared: one machine of each
    kind by published figures, hbm: what they say of a card with HBM."""

    copies: tuple[Copy, ...]
    qps: float
    p99_s: float
    core_s: float
    core_by: str
    decision: Decision
    notes: tuple[str, ...]
    compared: tuple[Compared, ...] = ()
    hbm: str = ""

    @property
    def best(self) -> Copy | None:
        """The fewest cards; None where no group is within p99_s at any load."""
        return min((each for each in self.copies if each.number), key=lambda each: each.cards, default=None)


def show(sized: Sized) -> None:
    shown = console(150)
    for note in sized.notes:
        shown.print(f"assumed    {note}", soft_wrap=True)
    print_table(shown, HEAD, _rows(sized), left=1,
                title=f"{sized.qps:,.10g} samples per second, 99 % within {duration(sized.p99_s)}")
    shown.print()
    print_table(shown, CHOICE_HEAD, _choices(sized), left=1, title=_choices_title(sized))
    if sized.compared:
        shown.print()
        print_table(shown, COMPARED_HEAD, compared_rows(sized.compared), left=1, title=COMPARED_TITLE)


def sentences(sized: Sized) -> Iterator[tuple[str, str]]:
    """(of what, a sentence): what a core bears, what is missing, and the verdict last."""
    if sized.best is None:
        least = min(float(each.stages.seconds(1).sum()) for each in sized.copies)
        yield "cards", f"none: a lone sample takes {duration(least)} at least, the limit is {duration(sized.p99_s)}"
    yield ("one core", f"{rate(1 / sized.core_s)} samples per second, lookups by {sized.core_by}" if sized.core_s else
           "nothing to do")
    if sized.hbm:
        yield "HBM", sized.hbm
    yield "verdict", sized.decision.sentence


def choices(sized: Sized) -> list[dict[str, Any]]:
    """Each kind of devices with plain numbers; None where no number of them is enough."""
    decision = sized.decision
    rows = []
    for each in decision.choices:
        enough = each.enough
        numbers, growth = (each.numbers(sized.qps), each.growth(sized.qps)) if enough else (None, None)
        rows.append({"devices": each.name, "number": numbers and numbers[1], "number_least": numbers and numbers[0],
                      "number_most": numbers and numbers[2], "need": each.need(sized.qps) if enough else None,
                      "watts": each.power(sized.qps) if enough else None,
                      "usd": each.money(sized.qps, decision.prices) if enough else None, "limit": each.limit,
                      "growth": growth})
    return rows


def write(sized: Sized, folder: Path) -> Path:
    """Writes the page into `folder`; returns its path."""
    best, decision = sized.best, sized.decision
    page = Page("hotrail size", f"{sized.copies[0].plan.model.name} at {sized.qps:,.10g} samples per second",
                lead=f"Verdict: {decision.sentence}.",
                facts=[("cards", f"{best.cards:,}" if best else "none will do"),
                       ("99 % within", duration(sized.p99_s)),
                       ("p99 there", duration(best.found.p99) if best and best.found else "-"),
                       ("samples per second of a core", rate(1 / sized.core_s) if sized.core_s else "-")])
    page.add("Verdict", *(Text(f"{what[0].upper()}{what[1:]}: {said}.") for what, said in sentences(sized)
                          if what != "verdict"), *_compared(sized), _growing(sized),
             Table(_choices_title(sized), CHOICE_HEAD, _choices(sized), note=(
                 "Devices alone, no hosts. Cores are bought one by one, as their server does other work too. Cores and "
                 "GPUs are the least that the rows' bytes, their bandwidth and the cores' rate allow; the latency is "
                 "held against the limit for cards alone. By the spread: if this plan is off as far as others were, "
                 f"whose time was {decision.spread[0]:g} to {decision.spread[1]:g} of that of twins.")),
             Table("Prices", ("price",), [(each,) for each in decision.prices.sources]))
    if sized.compared:
        page.add("One of each", Table(COMPARED_TITLE, COMPARED_HEAD, compared_rows(sized.compared), note=(
            "Rows at random from memory, no cache; results of a card go over its link. Networks, the host's work and "
            "latency are not counted.")), *_offers(sized.compared),
            Table("Where they are from", ("machine", "source"), [(each.name, each.source) for each in sized.compared]))
    page.add("Cards", Text("Samples arrive at random (Poisson). Whenever the first stage is free it takes those that "
                           "wait, at most a batch; batches follow each other through link, memories and networks by "
                           "the plan's seconds."), Table("Groups of cards", HEAD, _rows(sized)), _curve(sized))
    page.add("Stages", *(Table(f"A batch on {many(len(each.plan.cards), 'card')}", ("stage", "fixed", "full batch"), [
        (name, duration(fixed), duration(whole)) for name, fixed, whole in zip(
            each.stages.names, each.stages.seconds(0), each.stages.seconds(each.stages.batch), strict=True)])
        for each in sized.copies))
    if sized.notes:
        page.add("Assumed", *(Text(f"{note}.") for note in sized.notes))
    return page.write(folder)


def compared_rows(compared: Sequence[Compared]) -> list[list[str]]:
    """COMPARED_HEAD's columns; samples per joule at the most power, dollars over the years."""
    return [[each.name, rate(each.rows_s), rate(each.samples_s), each.limit, _range(*each.watts), rate(each.samples_j),
             "-" if each.usd is None else f"{each.usd:,.0f}"] for each in compared]


def _offers(compared: Sequence[Compared]) -> Iterator[Bars]:
    for title, axis, of in (("Rows", Axis("rows per second", "rows/s", log=True), lambda each: each.rows_s),
                            ("Samples", Axis("samples per second", "samples/s", log=True), lambda each: each.samples_s),
                            ("Samples per joule", Axis("samples per joule", "samples/J", log=True),
                             lambda each: each.samples_j)):
        yield Bars(title, "One of each, by published figures.", axis, Axis(""),
                   [Series(title, [(each.name, of(each)) for each in compared], "one")],
                   labels=[each.name for each in compared], across=True)


def _rows(sized: Sized) -> list[list[str]]:
    rows = []
    for each in sized.copies:
        stages, seen = each.stages, each.found
        full = stages.seconds(stages.batch)
        row = [str(len(each.plan.cards)), f"{each.number:,}" if each.number else "-",
               f"{each.cards:,}" if each.number else "-", duration(float(full.max())),
               duration(float(stages.seconds(1).sum())), rate(stages.most), rate(each.rate)]
        row += ["-"] * 5 if seen is None else [
            f"{sized.qps / each.number / stages.most:.0%}", duration(seen.p50), duration(seen.p95), duration(seen.p99),
            f"{seen.batch:,.1f}"]
        rows.append(row)
    return rows


def _choices_title(sized: Sized) -> str:
    return f"Cards, cores and GPUs over {sized.decision.prices.years:g} years"


def _choices(sized: Sized) -> list[list[str]]:
    return [_choice(each, sized) if each.enough else [each.name, *["-"] * (len(CHOICE_HEAD) - 3), each.limit, "-"]
            for each in sized.decision.choices]


def _choice(each: Choice, sized: Sized) -> list[str]:
    least, number, most = each.numbers(sized.qps)
    money = each.money(sized.qps, sized.decision.prices)
    low, planned, high = each.growth(sized.qps)
    growth = "any" if np.isinf(planned) else f"to {rate(planned)} times"
    if low != high:
        growth += f" ({rate(low)} to {rate(high)})"
    return [each.name, f"{number:,}", _range(least, most), part(each.need(sized.qps)),
            _range(*each.power(sized.qps)), "-" if money is None else _range(*money), each.limit, growth]


def _range(least: float, most: float) -> str:
    low, high = (f"{float(f'{each:.3g}'):,.6g}" for each in (least, most))
    return low if low == high else f"{low} to {high}"


def _compared(sized: Sized) -> list[Bars]:
    """Number, watts and money side by side."""
    decision = sized.decision
    enough = [each for each in decision.choices if each.enough]
    rows = []
    for title, about, axis, of in (
            ("Number", "Devices that the load takes", Axis("devices", "devices", least=0),
             lambda each: each.numbers(sized.qps)[::2]),
            ("Power", "Of these devices: cards idle and at the slot's limit", Axis("W", "W", least=0),
             lambda each: each.power(sized.qps)),
            ("Money", f"Price and energy over {decision.prices.years:g} years", Axis("USD", "USD", least=0),
             lambda each: each.money(sized.qps, decision.prices))):
        pairs = {each.name: pair for each in enough if (pair := of(each)) is not None}
        if pairs:
            rows.append(Bars(title, f"{about}, the least and the most by the spread of plans over twins.", axis,
                              Axis(""), [Series("least", [(name, low) for name, (low, _) in pairs.items()], "one"),
                                         Series("most", [(name, high) for name, (_, high) in pairs.items()], "two")],
                              labels=list(pairs), across=True))
    return rows


def _growing(sized: Sized) -> Lines:
    """Money over the load: every step is one more device."""
    decision, colours = sized.decision, ("three", "four", "five")
    series = []
    for each, colour in zip(decision.choices, colours, strict=True):
        if not each.enough or each.usd is None:
            continue
        ends = np.array([each.money(times * sized.qps, decision.prices) for times in TIMES])
        for end, money in zip(("least", "most"), ends.T.tolist()):
            name = each.name if each.spread == (1.0, 1.0) else f"{each.name}: {end}"
            if end == "least" or each.spread != (1.0, 1.0):
                series.append(Series(name, [(times * sized.qps, usd) for times, usd in zip(TIMES, money)], colour,
                                     "line" if end == "least" else "dashed"))
    return Lines("Money as the load grows", f"Price and energy over {decision.prices.years:g} years of the devices "
                 "that a load takes; every step is one more.", Axis("samples per second", "samples/s", log=True),
                 Axis("USD", "USD", log=True), series, wide=True)


def _curve(sized: Sized) -> Lines:
    unit, scale = time_unit(sized.p99_s)
    series = []
    for each in sized.copies:
        loads = [share * each.stages.most for share in LOADS]
        series.append(Series(many(len(each.plan.cards), "card"), [
            (load, latency(each.stages, load).p99 * scale) for load in loads]))
    limit = [min(LOADS) * min(each.stages.most for each in sized.copies),
             max(each.stages.most for each in sized.copies)]
    series.append(Series("limit", [(load, sized.p99_s * scale) for load in np.array(limit).tolist()], "ink", "dashed"))
    return Lines("Latency over load", "The 99th percentile of one group of cards at its load.",
                 Axis("samples per second of a group", "samples/s", log=True), Axis(f"p99, {unit}", unit, log=True),
                 series, wide=True)
