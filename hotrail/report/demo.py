"""What `hotrail demo` prints, and its page: what each memory of a card is worth to a model that was trained."""

from pathlib import Path

from fpga.api.demo import Demo, Placement
from gen.data.logs.movielens import NAME
from gen.planner.plan import MEMORIES, NAMES, duration, rate, time_unit
from hotrail.report.page import Axis, Bars, Lines, Page, Series, Table, Text
from hotrail.report.plan import PARTS
from hotrail.terminal import console, print_table

HEAD = ("memories", "per batch", "samples per second", "AUC", "against FP32 rows", *(
    f"lookups: {NAMES[name]}" for name in MEMORIES), "planned per batch", "waits for, planned")
RTL_HEAD = ("memories", "batches", "pooled vectors", "cycles", "as the twin", "as the oracle")
ERROR_HEAD = ("memories", "table", "TT rows", "their values", "values of the cores", "error before their training")


def show(demo: Demo) -> None:
    """The comparison on the terminal."""
    shown = console(130)
    print_table(shown, HEAD, _rows(demo))
    for sentence in _sentences(demo):
        shown.print(sentence)


def write(demo: Demo, folder: Path) -> Path:
    """Writes the page into `folder`; returns its path."""
    return page(demo).write(folder)


def page(demo: Demo) -> Page:
    first, last = demo.placements[0], demo.placements[-1]
    made = Page("hotrail demo", "A trained model on one, two and three memories",
                lead=f"{demo.source}: a DLRM trained on {demo.learned:,} samples, {demo.held:,} held out. Tables: "
                     f"{', '.join(f'{name}, {rows:,} rows' for name, rows in demo.rows.items())}. Card "
                     f"{demo.device.name}: {demo.device.about}",
                facts=[(f"samples per second, {first.name}", rate(first.rate)),
                       (last.name, rate(last.rate)), ("AUC of FP32 rows", f"{demo.baseline:.4f}"),
                       (f"AUC, {last.name}", f"{last.auc:.4f}")])
    made.add("Accuracy beside speed", _tradeoff(demo), _speed(demo),
             Table("Memories of the card", HEAD, _rows(demo), key="memories", note=(
                 "Measured on the twin of the card with the held-out samples, one batch at a time. AUC: of the vectors "
                 "that the card gave; the networks are the host's. Planned: the same by hotrail plan's costs. "
                 + _other_splits(demo))),
             *map(Text, _sentences(demo)))
    made.add("What binds", _loads(demo))
    made.add("Bit for bit", *_compared(demo))
    made.add("Training", _curves(demo), Table("Rows as tensor trains", ERROR_HEAD, _errors(demo), left=2, note=(
        "Rows are dense for half of the epochs. Then TT rows are decomposed, those that resemble each other side by "
        "side, and their cores are trained with the rest. The error is that of the decomposition, relative.")))
    return made


def _other_splits(demo: Demo) -> str:
    return (f"How far another split of {NAME} moves the differences is in docs/demo.md." if demo.source == NAME else
            f"Another split of {demo.source} moves the differences; how far was not measured.")


def _rows(demo: Demo) -> list[list[str]]:
    return [[each.name, duration(each.batch_s), rate(each.rate), f"{each.auc:.4f}",
             f"{each.auc - demo.baseline:+.4f}", *(f"{share:.0%}" for share in each.shares),
             duration(each.planned_s), PARTS[each.plan.cards[0].binds]] for each in demo.placements]


def _sentences(demo: Demo) -> list[str]:
    """What each memory brings, beside one memory and beside two."""
    one, two, *_ = demo.placements
    found = []
    for each in demo.placements[1:]:
        times = [f"{each.rate / other.rate:.2f} times as fast as {other.name}" for other in (one, two)
                 if other is not each]
        in_tt = f"; {each.shares[1]:.0%} read TT rows, AUC {each.auc - demo.baseline:+.4f}" if each.errors else ""
        found.append(f"{each.name}: {', '.join(times)}. {each.shares[2]:.0%} of the lookups read the SSD{in_tt}.")
    return found


def _tradeoff(demo: Demo) -> Lines:
    most = 1.05 * max(each.rate for each in demo.placements)
    return Lines("Accuracy beside speed", "AUC on the held-out samples over samples per second; further right is "
                 "faster, further up more accurate.",
                 Axis("samples per second", "samples/s", least=0, most=most), Axis("AUC"),
                 [Series("FP32 rows on the host", [(0, demo.baseline), (most, demo.baseline)], "ink", "dashed"),
                  *(Series(each.name, [(each.rate, each.auc)], form="dots") for each in demo.placements)], wide=True)


def _speed(demo: Demo) -> Bars:
    return Bars("Samples per second", "Of the card, one batch at a time.", Axis("samples per second", "samples/s"),
                Axis("memories"), [Series("samples per second", [(each.name, each.rate) for each in demo.placements])],
                key="memories", labels=[each.name for each in demo.placements], across=True)


def _loads(demo: Demo) -> Bars:
    cards = {each.name: each.plan.cards[0] for each in demo.placements}
    parts = {name: [getattr(card, name).seconds for card in cards.values()] for name in MEMORIES}
    unit, scale = time_unit(demo.placements[-1].plan.seconds)
    parts |= {"in": [card.in_s for card in cards.values()], "out": [card.out_s for card in cards.values()]}
    return Bars("What each part takes for a batch", "By the plan. Memories and both directions of the link work at the "
                "same time, so the longest bar of a group binds.", Axis(unit, unit), Axis("memories"),
                [Series(PARTS[part], [(name, scale * each) for name, each in zip(cards, seconds)], part)
                 for part, seconds in parts.items()], key="memories", labels=list(cards), across=True, wide=True)


def _compared(demo: Demo) -> list[Text | Table]:
    """With the oracle, and in the RTL where it ran."""
    if not demo.in_rtl:
        return [Text("The pooled vectors of the twin: " + (
            "every bit the oracle's. The RTL did not run." if demo.passed else "DIFFERENT from the oracle's."),
            demo.passed)]
    return [Text("The first batches on the Verilated core: " + (
        "every bit and every cycle as on the twin." if demo.passed else "DIFFERENT."), demo.passed),
        Table("Batches in the RTL", RTL_HEAD, [_slice(each) for each in demo.placements], key="memories")]


def _slice(each: Placement) -> list[str]:
    done = each.slice
    assert done is not None
    return [each.name, f"{done.batches}", f"{done.vectors:,}", f"{sum(done.cycles.values()):,}",
            "every bit, every cycle" if each.equal else "DIFFERENT", done.different or "every bit"]


def _curves(demo: Demo) -> Lines:
    # Placements without TT rows share one model.
    curves = {tuple(each.curve): each.name if each.errors else "FP32 rows" for each in demo.placements}
    return Lines("Training", "AUC on the held-out samples after each epoch.", Axis("epoch"), Axis("AUC"),
                 [Series(name, list(enumerate(curve, 1))) for curve, name in curves.items()])


def _errors(demo: Demo) -> list[list[str]]:
    found = []
    for each in demo.placements:
        for name, error in each.errors.items():
            table, dim = each.plan.tables[name], each.plan.model.tables[name].dim
            ranks = (1, *table.ranks, 1)
            cores = sum(ranks[k] * i * j * ranks[k + 1] for k, (i, j) in enumerate(
                zip(table.row_modes, table.column_modes)))
            found.append([each.name, name, f"{table.tt_rows:,}", f"{table.tt_rows * dim:,}", f"{cores:,}",
                          f"{error:.2f}"])
    return found
