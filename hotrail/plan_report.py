"""What `hotrail plan` prints, and its page with one picture."""

import html
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # draws to files on machines without a screen
import matplotlib.pyplot as plt
import numpy as np
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from gen.data.profile import Profile
from gen.planner.plan import LEVELS, MEMORIES, NAMES, Held, Plan, PlanCard, PlanTable, duration
from hotrail.report import COOL, GREEN, SOFT, WARM, inline, page, row, styled
from hotrail.terminal import console, print_table

__all__ = ["progress", "show", "write"]

LINK = {"in": "link to the card", "out": "link to the host"}
PARTS = {**NAMES, **LINK, "bottom": "bottom network", "top": "top network", "": "nothing"}     # that a card waits for
COLOURS = {"dram": WARM, "tt": GREEN, "ssd": COOL, "in": "#8a6fb3", "out": "#c2a5dd", "bottom": SOFT,
           "top": "#b0b7bf"}
SHOWN = 12          # tables on the terminal
CURVES = 6          # in the picture
CARD_HEAD = ("card", "core", "tables", *(f"{NAMES[name]}: {what}" for name in MEMORIES for what in ("bytes", "time")),
             *LINK.values(), "waits for", "full")
HELD_HEAD = ("", *(f"{NAMES[name]}: {what}" for name in MEMORIES for what in ("planned", "served")))
TABLE_HEAD = ("table", "cards", "rows per batch", *(f"{NAMES[name]}: {what}" for name in MEMORIES
                                                for what in ("rows", "accesses")), "TT shape")


@contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """A bar of the bytes that are read; nothing where there is no terminal."""
    shown = console(stderr=True)
    with Progress(TextColumn("log"), BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=shown,
                  transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task("log", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show(plan: Plan) -> None:
    """The plan on the terminal."""
    shown = console(170)
    for note in plan.assumed:
        shown.print(f"assumed    {note}")
    shown.print(f"plan       {_sentence(plan)}")
    held = [(_held_title(plan.held), HELD_HEAD, _held(plan, plan.held)[:SHOWN + 1])] if plan.held else []
    for title, head, rows in (
            ("Cards", CARD_HEAD, [_card(plan, card) for card in plan.cards]),
            (f"Tables, those with the most rows per batch ({min(SHOWN, len(plan.tables))} of {len(plan.tables)})",
             TABLE_HEAD, [_table(table) for table in _busiest(plan)[:SHOWN]]),
            *held,
            ("What it would be otherwise", ("", "batch", "gap", "against this plan"), _otherwise(plan))):
        print_table(shown, head, rows, title=title)


def write(plan: Plan, profile: Profile, folder: Path) -> Path:
    """Writes plan.png and index.html into `folder`; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "plan.png"
    draw(plan, profile, picture)
    path = folder / "index.html"
    path.write_text(render(plan, picture.read_bytes()), encoding="utf-8")
    return path


def draw(plan: Plan, profile: Profile, path: Path) -> None:
    """Four panels: time and accesses by card and memory, cuts in the busiest tables, fewer memories and more cards."""
    with styled():
        figure, axes = plt.subplots(2, 2, figsize=(12.5, 8.4), layout="constrained")
        _draw_time(axes[0, 0], plan)
        _draw_accesses(axes[0, 1], plan)
        _draw_cuts(axes[1, 0], plan, profile)
        _draw_otherwise(axes[1, 1], plan)
        figure.savefig(path, dpi=130, metadata={"Software": None})
        plt.close(figure)


def _draw_time(axis, plan: Plan) -> None:
    places, height = np.arange(len(plan.cards)), 0.16
    for at, name in enumerate((*MEMORIES, *LINK)):
        values = [1e3 * (getattr(card, name).seconds if name in MEMORIES else getattr(card, f"{name}_s"))
                  for card in plan.cards]
        axis.bar(places + (at - 2) * height, values, height, color=COLOURS[name], label=PARTS[name])
    for name in ("bottom", "top"):
        values = [1e3 * getattr(card, f"{name}_s") for card in plan.cards]
        if any(values):
            axis.bar(places, values, 2 * height, color=COLOURS[name], label=PARTS[name],
                     bottom=[1e3 * card.bottom_s for card in plan.cards] if name == "top" else None)
    axis.set_xticks(places, [f"{card.number}\n{card.kind}" for card in plan.cards])
    axis.set(title="Time of a batch on each card", xlabel="card", ylabel="ms")
    axis.legend(frameon=False, fontsize=8)


def _draw_accesses(axis, plan: Plan) -> None:
    emb = [card for card in plan.cards if card.kind == "emb"]
    whole = max(sum(getattr(card, name).accesses for card in emb for name in MEMORIES), 1e-9)
    under = np.zeros(len(emb))
    for name in MEMORIES:
        share = np.array([100 * getattr(card, name).accesses / whole for card in emb])
        axis.bar(np.arange(len(emb)), share, bottom=under, color=COLOURS[name], label=NAMES[name])
        under += share
    axis.set_xticks(np.arange(len(emb)), [str(card.number) for card in emb])
    axis.set(title="Where the rows come from", xlabel="EMB card", ylabel="per cent of all accesses")
    axis.set_ylim(0, 1.25 * max(float(under.max(initial=0)), 1e-9))
    axis.legend(frameon=False, fontsize=8, ncols=len(MEMORIES), loc="upper left")


def _draw_cuts(axis, plan: Plan, profile: Profile) -> None:
    for table in _busiest(plan)[:CURVES]:
        heat = profile.tables[table.name].heat
        if not heat.total:
            continue
        ranks = np.unique(np.geomspace(1, max(heat.touched, 2), 200).astype(np.int64))
        line, = axis.plot(ranks, 100 * heat.cdf(ranks), lw=1.2, label=table.name)
        for marker, rank in (("o", table.dram.rows), ("s", table.dram.rows + table.tt.rows)):
            if rank:
                axis.plot([rank], [100 * heat.cdf(rank)], marker, color=line.get_color(), ms=5)
    axis.set(xscale="log", title="The busiest tables: o ends DRAM, [] TT",
             xlabel="rows, most accessed first", ylabel="per cent of the accesses")
    axis.legend(frameon=False, fontsize=7, loc="lower right")


def _draw_otherwise(axis, plan: Plan) -> None:
    # What a megabyte brings is too little to be seen.
    shown = [("this plan", plan.seconds, GREEN)]
    shown += [(LEVELS[levels], seconds, COOL) for levels, (seconds, _) in sorted(plan.ablation.items(), reverse=True)
              if levels != plan.levels]
    shown += [(what, seconds, SOFT) for what, (seconds, _) in plan.what_if.items() if "MB more" not in what]
    places = np.arange(len(shown))[::-1]
    axis.barh(places, [1e3 * seconds for _, seconds, _ in shown], color=[colour for *_, colour in shown], height=0.6)
    for place, (_, seconds, _) in zip(places, shown):
        axis.annotate(duration(seconds), (1e3 * seconds, place), xytext=(4, 0), textcoords="offset points", va="center")
    axis.set_yticks(places, [name.replace(", ", ",\n") for name, *_ in shown], fontsize=8)
    axis.set_xlim(0, 1.2e3 * max(seconds for _, seconds, _ in shown))
    axis.set(title="A batch with fewer memories, or otherwise", xlabel="ms")


def render(plan: Plan, picture: bytes) -> str:
    """The page as text; `picture` is a PNG that is put inside."""
    def table(head, rows) -> str:
        return ("<table>" + row(map(html.escape, head), "th") + "\n"
                + "\n".join(row(map(html.escape, cells)) for cells in rows) + "</table>")

    notes = "".join(f"<p>Assumed: {html.escape(note)}.</p>\n" for note in plan.assumed)
    held = "" if plan.held is None else (f"<h2>The end of the log</h2>\n<p>{html.escape(_held_title(plan.held))}</p>\n"
                                         f"{table(HELD_HEAD, _held(plan, plan.held))}\n")
    return page("hotrail plan", f"""<h1>{html.escape(plan.model.name)} on {len(plan.cards)} cards</h1>
<p>{html.escape(plan.source)}. {html.escape(_sentence(plan))}</p>
{notes}{inline(picture, "time and accesses of each card, cuts of the busiest tables, fewer memories")}
<h2>Cards</h2>
{table(CARD_HEAD, [_card(plan, card) for card in plan.cards])}
{held}<h2>What it would be otherwise</h2>
{table(("", "batch", "gap", "against this plan"), _otherwise(plan))}
<h2>Tables</h2>
{table(TABLE_HEAD, [_table(each) for each in _busiest(plan)])}
""", "table { font-size: .85rem }\n")


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
            f"per batch of {plan.batch:,}, {plan.samples_per_s:,.0f} samples/s; lower bound {duration(plan.bound)}, "
            f"optimality gap {plan.gap:.2%}. A batch waits for {waits}. {plan.approximated:.0%} of all accesses read "
            f"approximated rows. Expected of the next log: {plan.unseen:.1%} of the accesses to rows that this one "
            f"does not have, {plan.from_ssd:.1%} to the SSD.")


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
    whole = sum(getattr(table, name).accesses for name in MEMORIES)
    cells = [table.name, table.place, f"{whole:,.0f}"]
    for name in MEMORIES:
        tier = getattr(table, name)
        cells += [f"{tier.rows:,}", f"{tier.accesses / whole if whole else 0:.1%}"]
    shape = f"{' x '.join(map(str, table.row_modes))}, rank {max(table.ranks)}" if table.ranks else ""
    return [*cells, shape]


def _held_title(held: Held) -> str:
    return (f"The last {held.samples:,} samples, held back and served by this plan: {duration(held.seconds)} per "
            f"batch; {held.unseen:.1%} of the accesses to rows that the log before does not have")


def _held(plan: Plan, held: Held) -> list[list[str]]:
    """Shares of accesses, of all and of each table, the busiest first."""
    def cells(what: str, planned: list[float], name: str) -> list[str]:
        whole = max(sum(planned), 1e-300)
        pairs = zip(planned, held.shares[name], strict=True)
        return [what, *(f"{share:.1%}" for reckoned, real in pairs for share in (reckoned / whole, real))]

    sums = [sum(getattr(table, memory).accesses for table in plan.tables.values()) for memory in MEMORIES]
    return [cells("all", sums, "")] + [
        cells(table.name, [getattr(table, memory).accesses for memory in MEMORIES], table.name)
        for table in _busiest(plan)]


def _otherwise(plan: Plan) -> list[list[str]]:
    rows = [(f"{len(plan.cards)} cards, {LEVELS[levels]}", found)
            for levels, found in sorted(plan.ablation.items(), reverse=True)]
    rows += plan.what_if.items()
    return [[what, duration(seconds), f"{seconds / bound - 1:.2%}" if bound else "-",
             f"{duration(abs(seconds - plan.seconds))} {'less' if seconds < plan.seconds else 'more'}"
             if seconds != plan.seconds else ""] for what, (seconds, bound) in rows]


def _bytes(count: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:,.3g} {unit}"
    return f"{count:,.0f} B"
