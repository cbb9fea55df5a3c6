"""What `hotrail plan` prints, and its page."""

import re
from pathlib import Path

import numpy as np

from gen.data.profile import Profile
from gen.model.recommender import ROW_FORMATS
from gen.planner.plan import (
    LEVELS,
    MEMORIES,
    NAMES,
    Held,
    Plan,
    PlanCard,
    PlanTable,
    duration,
    many,
    rate,
    time_unit,
)
from hotrail.report import limits
from hotrail.report.page import Axis, Bars, Lines, Page, Part, Series, Spans, Table
from hotrail.terminal import console, print_table

LINK = {"in": "link to the card", "out": "link to the host"}
NETWORKS = {"bottom": "bottom network", "top": "top network"}
PARTS = {**NAMES, **LINK, **NETWORKS, "": "nothing"}     # that a card waits for
SHOWN = 12          # tables on the terminal
CURVES = 6          # tables in a chart
POINTS = 100        # of each of them
CARD_HEAD = ("card", "core", "tables", *(f"{NAMES[name]}: {what}" for name in MEMORIES for what in ("bytes", "time")),
             *LINK.values(), "waits for", "full")
HELD_HEAD = ("table", *(f"{NAMES[name]}: {what}" for name in MEMORIES for what in ("planned", "served")))
TABLE_HEAD = ("table", "cards", "rows per batch", *(f"{NAMES[name]}: {what}" for name in MEMORIES
                                                for what in ("rows", "accesses")), "TT shape")
FORMAT_HEAD = ("table", "rows in", "their error", "error budget", "TT cores in", "fewer bytes", "less DRAM time",
               "log loss", *(f"error in {form}" for form in ROW_FORMATS[1:]))
REFRESH_HEAD = ("refreshed every", "accesses to the SSD", "batch")
OTHERWISE_HEAD = ("change", "batch", "gap", "against this plan")


def show(plan: Plan) -> None:
    """The plan on the terminal."""
    shown = console(170)
    for note in plan.assumed:
        shown.print(f"assumed    {note}")
    if plan.widths:
        shown.print(f"formats    {_lost(plan)}")
    shown.print(f"plan       {_sentence(plan)}")
    held = [(_held_title(plan.held), HELD_HEAD, _held(plan, plan.held)[:SHOWN + 1])] if plan.held else []
    for title, head, rows in (
            ("Cards", CARD_HEAD, [_card(plan, card) for card in plan.cards]),
            (f"Tables, those with the most rows per batch ({min(SHOWN, len(plan.tables))} of {len(plan.tables)})",
             TABLE_HEAD, [_table(table) for table in _busiest(plan)[:SHOWN]]),
            *([("Formats within error budgets", FORMAT_HEAD, _formats(plan)[:SHOWN])] if plan.widths else []),
            *held,
            *([("Until the next refresh", REFRESH_HEAD, _refreshed(plan))] if plan.horizon else []),
            ("What it would be otherwise", OTHERWISE_HEAD, _otherwise(plan))):
        print_table(shown, head, rows, title=title)


def write(plan: Plan, profile: Profile, folder: Path) -> Path:
    """Writes the page into `folder`; returns its path."""
    return page(plan, profile).write(folder)


def page(plan: Plan, profile: Profile) -> Page:
    page = Page("hotrail plan", f"{plan.model.name} on {many(len(plan.cards), 'card')}",
                lead=f"{plan.source}. {_sentence(plan)}", facts=[
                    ("per batch", duration(plan.seconds)), ("samples per second", rate(plan.samples_per_s)),
                    ("lower bound", duration(plan.bound)), ("optimality gap", f"{plan.gap:.2%}"),
                    ("reads approximated rows", f"{plan.approximated:.1%}"), ("reads the SSD", f"{plan.from_ssd:.1%}")])
    page.add("Cards", _timeline(plan), _accesses(plan), *limits.multipliers(plan),
             Table("Cards", CARD_HEAD, [_card(plan, card) for card in plan.cards], left=2, key="card"))
    page.add("What binds", _alternatives(plan), *limits.roofline(plan),
             Table("What it would be otherwise", OTHERWISE_HEAD, _otherwise(plan), key="change"), *_assumed(plan))
    page.add("Tables", _cuts(plan, profile),
             Table("Tables, the most accessed first", TABLE_HEAD, [_table(each) for each in _busiest(plan)],
                   left=2, key="table"))
    if plan.widths:
        page.add("Formats", Table("Formats within error budgets", FORMAT_HEAD, _formats(plan), left=2,
                                  note=_lost(plan), key="table"))
    if plan.horizon is not None:
        page.add("Until the next refresh", Table(
            "Accesses to the SSD and time of a batch, refreshed every so many samples", REFRESH_HEAD, _refreshed(plan),
            note=f"This plan is made for {plan.horizon.samples:,} samples.", key="refreshed every"))
    if plan.held is not None:
        page.add("The end of the log", Table("Planned and served", HELD_HEAD, _held(plan, plan.held),
                                             note=_held_title(plan.held), key="table"))
    return page


def _timeline(plan: Plan) -> Spans:
    first, (unit, scale) = max(card.seconds for card in plan.cards), time_unit(plan.seconds)
    spans: dict[str, list[tuple[str, tuple[float, float]]]] = {name: [] for name in (*MEMORIES, *LINK, *NETWORKS)}
    for card in plan.cards:
        after = first if card.kind == "mlp" else 0.0
        for name, begin, seconds in (
                *((name, 0.0, getattr(card, name).seconds) for name in MEMORIES), ("in", 0.0, card.in_s),
                ("bottom", 0.0, card.bottom_s), ("top", after, card.top_s), ("out", after, card.out_s)):
            if seconds:
                spans[name].append((str(card.number), (scale * begin, scale * (begin + seconds))))
    return Spans("A batch through memories and cards",
                 "How long each memory, network and direction of the link of each card works for a batch. What begins "
                 "together works at the same time; a top network begins when the last pooled vector is there.",
                 Axis(unit, unit), Axis("card"),
                 [Series(PARTS[name], points, name) for name, points in spans.items() if points],
                 key="card", wide=True, labels=[str(card.number) for card in plan.cards])


def _accesses(plan: Plan) -> Bars:
    emb = [card for card in plan.cards if card.kind == "emb"]
    total = max(sum(getattr(card, name).accesses for card in emb for name in MEMORIES), 1e-9)
    return Bars("Where the rows come from", "Share of all accesses that each memory of each EMB card serves.",
                Axis("EMB card"), Axis("% of all accesses", "%"),
                [Series(NAMES[name], [(str(card.number), 100 * getattr(card, name).accesses / total) for card in emb],
                        name) for name in MEMORIES],
                key="card", labels=[str(card.number) for card in emb], stacked=True)


def _cuts(plan: Plan, profile: Profile) -> Lines:
    lines, ends = [], {"dram": list[tuple[float, float]](), "tt": list[tuple[float, float]]()}
    for table in _busiest(plan)[:CURVES]:
        heat = profile.tables[table.name].heat
        if heat.total:
            ranks = np.unique(np.geomspace(1, max(heat.touched, 2), POINTS).astype(np.int64))
            lines.append(Series(table.name, list(zip(ranks.tolist(), (100 * heat.cdf(ranks)).tolist()))))
            for name, rank in (("dram", table.dram.rows), ("tt", table.dram.rows + table.tt.rows)):
                if getattr(table, name).rows:
                    ends[name].append((rank, float(100 * heat.cdf(np.array([rank]))[0])))
    dots = [Series(f"end of {NAMES[name]}", points, name, "dots") for name, points in ends.items() if points]
    return Lines(f"Where the {len(lines)} busiest tables are cut",
                 "Share of a table's accesses that its most accessed rows take, and the last row in each memory.",
                 Axis("rows, most accessed first", "rows", log=True), Axis("% of the accesses", "%", least=0, most=100),
                 [*lines, *dots], wide=True)


def _alternatives(plan: Plan) -> Bars:
    # What a megabyte brings is too little to be seen.
    seconds_by_change = {what: seconds for what, (seconds, _) in _changes(plan).items() if "MB more" not in what}
    unit, scale = time_unit(plan.seconds)
    return Bars("A batch with fewer memories, or otherwise",
                "Time of a batch on this plan, on fewer memories, and without each assumption that binds.",
                Axis(f"{unit} per batch", unit), Axis(""),
                [Series("a batch", [(what, scale * seconds) for what, seconds in seconds_by_change.items()])],
                key="change", labels=list(seconds_by_change), across=True)


def _assumed(plan: Plan) -> list[Part]:
    """What was assumed or set, and what a batch would take without it, as far as that was tried."""
    tried = {what: seconds for what, (seconds, _) in plan.what_if.items()}
    if 3 in plan.ablation:
        tried["--tt-gain"] = plan.ablation[3][0]
    rows = []
    for note in plan.assumed:
        options = re.findall(r"--[a-z-]+", note)
        prices = [_against(plan, seconds) for what, seconds in tried.items()
                  if any(re.search(rf"{option}\b", what) for option in options)]
        rows.append([note, ", ".join(filter(None, prices)) or "-"])
    return [Table("What was assumed, and its price", ("assumption", "a batch without it"), rows)] if rows else []


def _sentence(plan: Plan) -> str:
    emb, mlp = ([card for card in plan.cards if card.kind == kind] for kind in ("emb", "mlp"))
    kinds = ", ".join(f"{len(cards)} {cards[0].kind.upper()} card{'s' * (len(cards) > 1)}"
                      for cards in (emb, mlp) if cards)
    slowest = max(emb, key=lambda card: card.seconds)
    waits = f"{PARTS[slowest.binds]} of card {slowest.number}"
    if mlp:
        last = mlp[0]
        first = (f"the {waits} ({duration(slowest.seconds)})" if slowest.seconds >= last.seconds else
                 f"the {PARTS['bottom' if last.bottom_s >= last.in_s else 'in']} of card {last.number} "
                 f"({duration(last.seconds)})")
        waits = f"{first}, then the {PARTS['top' if last.top_s >= last.out_s else 'out']} ({duration(last.after_s)})"
    return (f"{kinds} (device {plan.device}, preset {plan.preset}), {LEVELS[plan.levels]}: {duration(plan.seconds)} "
            f"per batch of {plan.batch:,}, {rate(plan.samples_per_s)} samples/s; lower bound of all splits of "
            f"the tables by heat {duration(plan.bound)}, optimality gap {plan.gap:.2%}. A batch waits for {waits}. "
            f"{plan.approximated:.0%} of all accesses read "
            f"approximated rows. Expected of the next log: {plan.unseen:.1%} of the accesses to rows that this one "
            f"does not have, {plan.from_ssd:.1%} to the SSD" + (
                f" ({plan.horizon.low:.1%} to {plan.horizon.high:.1%} over the next {plan.horizon.samples:,} samples)."
                if plan.horizon else "."))


def _busiest(plan: Plan) -> list[PlanTable]:
    return sorted(plan.tables.values(), key=lambda table: -sum(getattr(table, name).accesses for name in MEMORIES))


def _card(plan: Plan, card: PlanCard) -> list[str]:
    if card.kind == "mlp":
        waits = f"bottom {duration(card.bottom_s)}, top {duration(card.top_s)}"
        return [str(card.number), "MLP", *[""] * 7, duration(card.in_s), duration(card.out_s), waits, ""]
    cells = [str(card.number), "EMB", str(sum(card.number in table.cards for table in plan.tables.values()))]
    for name in MEMORIES:
        tier = getattr(card, name)
        cells += [_bytes(tier.bytes), duration(tier.seconds)]
    return [*cells, duration(card.in_s), duration(card.out_s), PARTS[card.binds],
            ", ".join(NAMES[name] for name in card.full)]


def _table(table: PlanTable) -> list[str]:
    total = sum(getattr(table, name).accesses for name in MEMORIES)
    cells = [table.name, table.place, f"{total:,.0f}"]
    for name in MEMORIES:
        tier = getattr(table, name)
        cells += [f"{tier.rows:,}", f"{tier.accesses / total if total else 0:.1%}"]
    shape = f"{' x '.join(map(str, table.row_modes))}, rank {max(table.ranks)}" if table.ranks else ""
    return [*cells, shape]


def _lost(plan: Plan) -> str:
    """What formats within error budgets save, what was measured, and what the network's predictions lose."""
    widths = plan.widths.values()
    saved = f"{_bytes(sum(each.bytes for each in widths))} and {duration(sum(each.seconds for each in widths))}"
    text = (f"those within error budgets save {saved} of DRAM time per batch beside float32; errors are of "
            + ", ".join(sorted({each.of for each in widths})))
    if (accuracy := plan.accuracy) is None:
        return text
    return (f"{text}. {accuracy.samples:,} samples of the log: log loss {accuracy.log_loss:.5f} in float32, "
            f"{accuracy.narrow_log_loss - accuracy.log_loss:+.2g} in these formats; AUC {accuracy.auc:.4f}, "
            f"{accuracy.narrow_auc - accuracy.auc:+.2g}")


def _formats(plan: Plan) -> list[list[str]]:
    """Of tables with an error budget, the busiest first. log loss: by that table's format alone. -: no such rows."""
    alone = plan.accuracy.tables if plan.accuracy else {}
    return [[table.name, spec.row_format, f"{width.row_error:.3%}", f"{width.budget:.3%}",
             spec.tt_format if table.tt.rows else "", _bytes(width.bytes), duration(width.seconds),
             f"{alone[table.name]:+.2g}" if table.name in alone else "",
             *(f"{width.errors[form]:.3%}" if form in width.errors else "-" for form in ROW_FORMATS[1:])]
            for table in _busiest(plan) if (width := plan.widths.get(table.name))
            for spec in [plan.model.tables[table.name]]]


def _refreshed(plan: Plan) -> list[list[str]]:
    return [[f"{each.samples:,} samples", f"{each.ssd_share:.1%}", duration(each.seconds)]
            for each in (plan.horizon.every if plan.horizon else ())]


def _held_title(held: Held) -> str:
    return (f"The last {held.samples:,} samples, held back and served by this plan: {duration(held.seconds)} per "
            f"batch; {held.unseen:.1%} of the accesses to rows that the log before does not have")


def _held(plan: Plan, held: Held) -> list[list[str]]:
    """Shares of accesses, of all and of each table, the busiest first."""
    def cells(what: str, planned: list[float], name: str) -> list[str]:
        total = max(sum(planned), 1e-300)
        pairs = zip(planned, held.shares[name], strict=True)
        return [what, *(f"{share:.1%}" for expected, real in pairs for share in (expected / total, real))]

    sums = [sum(getattr(table, memory).accesses for table in plan.tables.values()) for memory in MEMORIES]
    return [cells("all", sums, "")] + [
        cells(table.name, [getattr(table, memory).accesses for memory in MEMORIES], table.name)
        for table in _busiest(plan)]


def _otherwise(plan: Plan) -> list[list[str]]:
    return [[what, duration(seconds), f"{seconds / bound - 1:.2%}" if bound else "-", _against(plan, seconds)]
            for what, (seconds, bound) in _changes(plan).items()]


def _changes(plan: Plan) -> dict[str, tuple[float, float]]:
    """Seconds and bound of the plan, of plans on fewer memories, and of what else was tried."""
    return {f"{many(len(plan.cards), 'card')}, {LEVELS[levels]}": seconds
            for levels, seconds in sorted(plan.ablation.items(), reverse=True)} | dict(plan.what_if)


def _against(plan: Plan, seconds: float) -> str:
    return "" if seconds == plan.seconds else (
        f"{duration(abs(seconds - plan.seconds))} {'less' if seconds < plan.seconds else 'more'}")


def _bytes(count: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:,.3g} {unit}"
    return f"{count:,.0f} B"
