"""From a model, a profile and costs to the plan that is handed on, with what explains it.

The paper's program counts a drive's pages by their rate. A batch that needs any also waits for the first one, on every
card that needs any (gen.planner.problem.Idle). So a placement is searched for twice, with the wait and without reads of
the drive, and the faster one counts. Of a batch that reads none the second search has the bound; all others take at
least as long as the first's bound, in which every card waits, and as the drive. What DRAM is left then is filled
(gen.planner.fill). The bound is one of all cuts, between any two rows (gen.planner.rowwise).
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gen.compress import search
from gen.data.joins import name_of
from gen.data.profile import Profile
from gen.model.recommender import RESULTS, ROW_FORMATS, Recommender, TableSpec
from gen.planner.build import Built, build, orders_of
from gen.planner.choices import SSD_S, Choices, cuts, with_levels, within
from gen.planner.costs import Costs
from gen.planner.fill import Part, cold_bytes, dram_seconds, fill, loads_of, parts_of
from gen.planner.join import MOST, Pair, matchings, merged, pairs_of
from gen.planner.join import bound as least_of_pairs
from gen.planner.plan import LEVELS, MEMORIES, NAMES, Plan, PlanCard, PlanTable, Tier, Width, duration, many
from gen.planner.problem import CardChoice, Item, Placement, Problem, Sharding
from gen.planner.rowwise import Rows, bound_of
from gen.planner.solve import Infeasible, NotFound, solve
from gen.planner.widen import widened
from gen.planner.widths import ASSUMED, Errors

HALF = "pooled vectors in half precision"
WHOLE = "every table whole on one card (--table-wise)"
APART = "no tables joined (without --join)"
ALONE = "no access to rows that the log does not have"
FLOATS = "rows and TT cores as float32 (--error-budget 0)"
ANY = "every format, whatever it loses (--error-budget 1)"

LATE = "the search was ended by real time: on another machine, or a busier one, it may end elsewhere"

MEGABYTE = 10**6
PATIENCE = 15.0     # seconds of a search that is worth repeating for each memory
PROOF = 6.0         # seconds of work for the bound of whole tables, a sixth for what only explains a plan
FULL = 0.99         # of a memory
WORTH = 1e-3        # of a batch's time, that joined tables must save
NEAR = 0.1          # of the bound, past which fewer of them are tried

Say = Callable[[str], None]


def make(model: Recommender, profile: Profile, costs: Costs, *, cards: int, rank: int = 4, levels: int = 3,
         hot_share: float | None = None, tt_share: float | None = None, tt_gain: float = 0.1, gap: float = 0.01,
         seconds: float = 60.0, unseen: bool = True, table_wise: bool = False, explain: bool = True,
         errors: Mapping[str, Errors] | None = None, join: bool = False, say: Say | None = None) -> Plan:
    """The plan of `cards` cards.

    rank: of the tensor trains. levels: memories that may be used, 1: the SSD, 2: DRAM too, 3: all. hot_share,
    tt_share, unseen: see gen.planner.build. tt_gain: part of a batch's time that tensor trains must save, else
    the plan is that without any. gap, seconds: where the search for each placement may end. table_wise: every table
    lies whole on one card, as in SCRec's program. explain: fewer memories, more of each memory and each assumption that
    binds are tried, too. errors: of tables with an error budget; those of normal rows where there are none. join: small
    tables may be joined (gen.planner.join), which says what the log must have. say: gets lines of progress.
    Raises      ValueError: what does not fit, in one sentence
    """
    say = say or (lambda _: None)
    if join and table_wise:
        raise ValueError("--join with --table-wise: SCRec's program has no joined tables; leave out one of them")
    products: dict[str, tuple[str, ...]] = {}
    orders = orders_of(model, profile)

    def make_of(model: Recommender, cards: int = cards, unseen: bool = unseen) -> Built:
        shared = costs.shared(cards)
        made = build(model, profile, shared, cards=cards, rank=rank, hot_share=hot_share, tt_share=tt_share,
                     unseen=unseen, table_wise=table_wise, errors=errors, orders=orders)
        return merged(made, model, list(products.values()), shared) if products else made

    built = plain = make_of(model)

    def solved(problem: Problem, what: str, built: Built = built,
               proof: float = PROOF) -> tuple[Placement, tuple[Part, ...]]:
        begin = time.monotonic()
        placed = _solved(replace(problem, idle=costs.idle), gap, seconds, Rows(built.expected, costs),
                         min(proof, seconds / 4))
        found, parts = _filled(problem, placed, built, costs)
        say(f"{what}: {duration(found.seconds)} per batch, optimality gap {found.gap:.2%}, "
            f"found in {time.monotonic() - begin:.1f} s")
        return found, parts

    def tried(problem: Problem, what: str, built: Built) -> tuple[Placement, tuple[Part, ...]] | None:
        """None where there is no placement, which does not end the plan."""
        try:
            return solved(problem, what, built, PROOF / 6)
        except Infeasible as reason:
            say(f"{what}: {reason}")
            return None

    problem = with_levels(built.problem, levels)
    best, parts = solved(problem, f"{many(cards, 'card')}, {LEVELS[levels]}")
    ablation, what_if = {levels: (best.seconds, best.bound)}, {}
    notes = (*built.notes, *(_bounds(problem, best) if levels > 1 else ()))
    if tt_gain and any(part.warm for part in parts):
        without = _without_tt(built.problem, solved, f"{many(cards, 'card')}, {LEVELS[2]}")
        if without:
            ablation[2] = without[1].seconds, without[1].bound
            if best.seconds > (1 - tt_gain) * without[1].seconds:
                notes = (*built.notes, _left_out(best, problem.items, parts, without[1].seconds, tt_gain),
                         *_bounds(without[0], without[1]))
                levels, (problem, best, parts) = 2, without
    if join and levels > 1:
        what_if[APART] = best.seconds, best.bound
        products, built, best, parts, note = _joined(model, profile, built, levels, best, parts, costs, tried)
        problem = with_levels(built.problem, levels)
        ablation, notes = {levels: (best.seconds, best.bound)}, (*notes, note)
    if explain:
        for fewer in range(levels - 1, 0, -1):
            of = built if fewer > 1 else plain
            if fewer not in ablation and (less := tried(with_levels(of.problem, fewer),
                                                        f"{many(cards, 'card')}, {LEVELS[fewer]}", of)):
                ablation[fewer] = less[0].seconds, less[0].bound
        others = {"one card more": make_of(model, cards + 1)}
        if any(spec.results == RESULTS[0] for spec in model.tables.values()):
            others[HALF] = make_of(_halved(model))
        if any(each.unseen for each in built.expected.values()):
            others[ALONE] = make_of(model, unseen=False)
        mores = {what: (with_levels(each.problem, levels), each) for what, each in others.items()}
        if any(len(part.cards) > 1 for part in parts):
            mores[WHOLE] = problem.whole, built
        mores |= _budgets(model, make_of, levels)
        mores |= _looser(problem, built, levels)
        if best.work <= PATIENCE:
            mores |= {f"1 MB more of {NAMES[name]} on every EMB card": (_roomier(problem, name), built)
                      for name in MEMORIES if name != "tt" or levels == 3}
        else:
            notes += (f"what 1 MB more of a memory brings was left out, as this placement took {best.work:.0f} s "
                      "of work to find",)
        for what, (changed, of) in mores.items():
            if found := tried(changed, what, of):
                # Whatever else is found, the plan itself fits there too, but for one with less freedom.
                most = np.inf if what in (WHOLE, FLOATS) else best.seconds
                what_if[what] = min(found[0].seconds, most), min(found[0].bound, most)
    if best.gap > gap and best.seconds < (1 + gap) * best.at_steps:
        notes += ("the lower bound is of cuts between any two rows; of those at the program's steps (hundredths of a "
                  f"table's accesses) none takes less than {duration(best.at_steps)}",)
    if best.late:
        notes += (LATE,)
    emb, parts, ways = widened(problem, best, parts, built.ways, built.errors, built.expected, costs,
                               max(max(card.seconds for card in best.emb), problem.before_s / max(best.mlp_cards, 1)))
    best = replace(best, emb=emb)
    chosen, tables, widths = _tables(model, ways, parts, products, built, costs, rank)
    used = _cards(problem, tables, parts, best)
    return Plan(
        replace(model, tables=chosen), costs.device, costs.preset, costs.page_bytes, costs.ring_bytes,
        {"dram": problem.dram_bytes, "tt": problem.tt_bytes, "ssd": problem.ssd_bytes},
        {table.name: table for table in tables}, used, problem.bottom_s, problem.top_s, best.seconds, best.bound,
        levels, ablation, what_if, (*notes, *_within_budgets(chosen, widths)), profile.source, widths=widths,
        drive_use=built.drive_use)


def _without_tt(problem: Problem, solved: Callable[[Problem, str], tuple[Placement, tuple[Part, ...]]],
                what: str) -> tuple[Problem, Placement, tuple[Part, ...]] | None:
    """The plan on DRAM and SSD, where there is one."""
    plain = with_levels(problem, 2)
    try:
        return plain, *solved(plain, what)
    except Infeasible:
        return None


def _left_out(best: Placement, items: Sequence[Item], parts: Sequence[Part], seconds: float, least: float) -> str:
    """Why there are no tensor trains: the plan with them, and the seconds of that without."""
    warm = sum(len(part.cards) * part.to_tt for part in parts)
    whole = sum(item.lookups for item in items)
    return (f"no TT rows: they would save {1 - best.seconds / seconds:.1%} of a batch's time and approximate "
            f"{warm / whole:.1%} of the accesses; they are used where they save {least:.0%} (--tt-gain)")


def _bounds(problem: Problem, best: Placement) -> tuple[str, ...]:
    """Which of the limits that were set hold tables back."""
    warm, hot = [], []
    for item, choice in zip(problem.items, best.tables, strict=True):
        a, h, at = choice.i_dram, choice.i_hot, cuts(item)
        longer = [*(item.share[at[at > h][:1]] - item.share[a]), *(item.share[h] - item.share[at[at < a][-1:]])]
        if h > a and longer and not within(np.array(longer), item.tt_share).any():
            warm.append(item)
        if item.lookups and item.hot_share < 1 and h == at[-1]:
            hot.append(item)
    return tuple(f"at most {_percent([getattr(item, share) for item in items])} of a table's accesses may {what} "
                 f"({option}), which holds {len(items)} of {len(problem.items)} tables back"
                 for items, share, what, option in ((warm, "tt_share", "read TT rows", "--tt-share"),
                                                    (hot, "hot_share", "leave the SSD", "--hot-share")) if items)


def _budgets(model: Recommender, make_of: Callable[..., Built], levels: int) -> dict[str, tuple[Problem, Built]]:
    """Without what error budgets bring, and without them."""
    if all(spec.error_budget is None for spec in model.tables.values()):
        return {}
    found = {}
    for what, budget in ((FLOATS, 0.0), (ANY, 1.0)):
        tables = {name: spec if spec.error_budget is None else replace(spec, error_budget=budget)
                  for name, spec in model.tables.items()}
        built = make_of(replace(model, tables=tables))
        found[what] = with_levels(built.problem, levels), built
    return found


def _width(spec: TableSpec, by: str, part: Part, costs: Costs, budget: float, known: Errors) -> Width:
    """spec: with the formats that were chosen."""
    item, count = part.item, len(part.cards)
    dim = spec.dim // (count if by == "columns" else 1)
    rows = part.hot + part.spare + part.cold
    errors = {form: error for form, error in known.rows.items() if np.isfinite(error)}
    return Width(budget, errors[spec.row_format], known.cores[spec.tt_format], errors, known.of,
                 count * rows * (costs.row_bytes(dim) - item.row_bytes),
                 count * (part.fetches + part.to_ssd) * (costs.dram_s(dim) - item.dram_s))


def _within_budgets(tables: Mapping[str, TableSpec], widths: Mapping[str, Width]) -> Iterator[str]:
    """What was chosen, and by which errors."""
    if not widths:
        return
    forms = Counter(tables[name].row_format for name in widths)
    low, high = min(each.budget for each in widths.values()), max(each.budget for each in widths.values())
    budget = f"{high:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    yield (f"formats are within an error budget of {budget} (--error-budget): rows of "
           + ", ".join(f"{forms[form]} table{'s' * (forms[form] > 1)} in {form}" for form in ROW_FORMATS if forms[form])
           + f"; {sum(each.bytes for each in widths.values()):,} bytes less than in float32")
    if any(each.of == ASSUMED for each in widths.values()):
        yield (f"errors are those of {ASSUMED} and of cores as docs/numerics.md has them, as no parameters were given "
               "(--weights)")


def _percent(shares: Sequence[float]) -> str:
    low, high = min(shares), max(shares)
    return f"{high:.0%}" if low == high else f"{low:.0%} to {high:.0%}"


def _looser(problem: Problem, built: Built, levels: int) -> dict[str, tuple[Problem, Built]]:
    """Without the limits that were set."""
    found = {}
    if levels > 1 and any(item.hot_share < 1 for item in problem.items):
        found["every row may leave the SSD (--hot-share 1)"] = problem.mapped(
            lambda item: replace(item, hot_share=1.0)), built
    if levels == 3 and any(item.tt_share < 1 and len(item.tt_rows) > 1 for item in problem.items):
        found["every access may read TT rows (--tt-share 1)"] = problem.mapped(
            lambda item: replace(item, tt_share=1.0)), built
    return found


def _halved(model: Recommender) -> Recommender:
    """With vectors that leave in half precision where they leave as float32."""
    return replace(model, tables={name: replace(spec, results=RESULTS[1]) if spec.results == RESULTS[0] else spec
                                  for name, spec in model.tables.items()})


def _roomier(problem: Problem, name: str) -> Problem:
    room = f"{name}_bytes"
    return replace(problem, **{room: getattr(problem, room) + MEGABYTE})


def _joined(model: Recommender, profile: Profile, plain: Built, levels: int, best: Placement, parts: tuple[Part, ...],
            costs: Costs, tried: Callable[[Problem, str, Built], tuple[Placement, tuple[Part, ...]] | None]) \
        -> tuple[dict[str, tuple[str, ...]], Built, Placement, tuple[Part, ...], str]:
    """The products that are worth it by name, the program with them, its placement with the bound of all that joins any
    pairs or none, and what there is to say. best, parts: of no products, which stay where none is worth it."""
    products: dict[str, tuple[str, ...]] = {}
    problem = with_levels(plain.problem, levels)
    pairs, built, apart = pairs_of(model, profile, replace(plain, problem=problem), costs), plain, best
    bound = min(apart.bound, _least_joined(problem, plain, pairs, costs)) if pairs else apart.bound
    for picked in matchings(problem, pairs, len(best.emb)) if pairs else ():
        each = merged(plain, model, [pair.names for pair in picked], costs)
        found = tried(with_levels(each.problem, levels), f"{len(picked)} pairs of tables joined", each)
        if found and found[0].seconds < min((1 - WORTH) * apart.seconds, best.seconds):
            products, built, (best, parts) = {name_of(pair.names): pair.names for pair in picked}, each, found
        if best.seconds <= (1 + NEAR) * bound:
            break
    return (products, built, replace(best, bound=min(bound, best.seconds)), parts,
            _joined_note(pairs, products, model))


def _tables(model: Recommender, ways: Sequence[Sharding], parts: Sequence[Part],
            products: Mapping[str, tuple[str, ...]], built: Built, costs: Costs,
            rank: int) -> tuple[dict[str, TableSpec], list[PlanTable], dict[str, Width]]:
    """The model's tables in the formats that were chosen, where each lies, and what chosen formats bring. ways, parts:
    of each table or product."""
    chosen, tables, widths = dict(model.tables), {}, {}
    for way, part in zip(ways, parts, strict=True):
        names = products.get(part.item.name, (part.item.name,))
        for name in names:
            spec = model.tables[name]
            if len(names) == 1:
                chosen[name] = replace(spec, row_format=way.formats[0], tt_format=way.formats[1], error_budget=None)
            if spec.error_budget is not None:
                widths[name] = _width(chosen[name], way.by, part, costs, spec.error_budget, built.errors[name])
            tables[name] = _table(chosen[name], part, way.by, names, costs, rank, built.expected[name].unseen)
    return chosen, [tables[name] for name in chosen], {name: widths[name] for name in chosen if name in widths}


def _table(spec: TableSpec, part: Part, by: str, names: tuple[str, ...], costs: Costs, rank: int,
           unseen: float) -> PlanTable:
    """What its part means in bytes and seconds, of all its cards. names: the table's, or those of all tables of whose
    product the part is, each of which takes an equal part of it. unseen: share of the accesses."""
    item, count = part.item, len(part.cards)
    shares = 1 if by == "columns" else count    # of the samples, of which the item's lookups are one
    wide = search.width(spec.dim, rank, config=costs.unit)
    shape = search.best(part.warm, wide, rank=rank, config=costs.unit, form=spec.tt_format) if part.warm else None
    charged = float(np.interp(part.warm, item.tt_rows, item.tt_bytes))
    rows = part.hot + part.spare

    def tier(rows: int, bytes: int, accesses: float, seconds: float) -> Tier:
        return Tier(rows, count * bytes, shares * accesses, count * seconds)

    bytes = rows * item.row_bytes + item.bags_bytes
    if len(names) > 1:
        at = names.index(spec.name)
        rows, bytes = spec.rows, bytes * (at + 1) // len(names) - bytes * at // len(names)
    return PlanTable(
        spec.name, part.cards, tier(rows, bytes, part.to_dram, dram_seconds(part, costs) / len(names)),
        tier(part.warm, round(charged), part.to_tt, part.to_tt * item.tt_s) if shape else Tier(),
        tier(part.cold, cold_bytes(part, costs), part.to_ssd, part.drive_s),
        *((shape.modes, shape.columns, shape.ranks) if shape else ((), (), ())), part.spare,
        unseen * shares * item.lookups, by, names if len(names) > 1 else ())


def _joined_note(pairs: Sequence[Pair], products: Mapping[str, Sequence[str]], model: Recommender) -> str:
    """What was joined, and of what."""
    able = len({table for pair in pairs for table in pair.tables})
    found = "; ".join(f"{' with '.join(names)} ({math.prod(model.tables[name].rows for name in names):,} rows)"
                      for names in products.values())
    return (f"joined (--join): {found or 'no tables, as none save time'}; {able} tables, of which each sample has one "
            f"index, have products that save time of DRAM or link, {len(pairs)} in all"
            + (f"; those of the {MOST} smallest tables alone were tried" if able == MOST else "")
            + ("; samples without exactly one index of a joined table will be refused" if products else ""))


def _least_joined(problem: Problem, built: Built, pairs: Sequence[Pair], costs: Costs) -> float:
    """No placement is faster, whichever of the pairs are joined: those that read the drive, and those that do not."""
    lowered = problem.mapped(Rows(built.expected, costs).lowered)
    lowered = replace(lowered, idle=costs.idle)
    reading = max(least_of_pairs(lowered, pairs), least_reading(replace(problem, idle=costs.idle)))
    if not costs.idle.page_s or any(map(must_read, problem.items)):
        return reading
    return min(reading, least_of_pairs(lowered.without_reads, pairs))


def _solved(problem: Problem, gap: float, seconds: float, rows: Rows | None = None, proof: float = 0.0) -> Placement:
    """The better of two searches: where placements may read the drive, and where not. Together `seconds` of work. rows:
    what tables take between the steps, so that the bound is of all cuts; None: it is of those at steps. proof: seconds
    of work for it beside the linear programs."""
    alone = problem.without_reads
    reads = not problem.idle.page_s or any(map(must_read, problem.items))
    best = solve(problem, gap=gap, seconds=seconds if reads or not Choices.of(alone).possible else seconds / 2)
    steps, reading = best.bound, least_reading(problem)
    least = bound_of(problem, rows, best.seconds, proof, seconds, steps) if rows else steps
    if reads:
        return replace(best, bound=min(max(least, reading), best.seconds), at_steps=max(steps, reading))
    # Of all placements that read the drive, and then of those that do not.
    none = none_at_steps = bound_of(alone, rows or Rows({}, None), best.seconds, proof, seconds)
    if none < best.seconds:
        try:
            without = solve(alone, gap=gap, seconds=max(seconds - best.work, 1e-3))
            work, late = best.work + without.work, best.late or without.late
            none_at_steps = max(none, without.bound)
            # Without tensor trains all that is accessed lies in DRAM: there is one cut.
            if not rows or all(len(item.tt_rows) == 1 for item in problem.items):
                none = none_at_steps
            best = replace(min(best, without, key=lambda each: each.seconds), work=work, late=late)
        except NotFound:
            pass
        except Infeasible:
            none_at_steps = np.inf
            if not rows:
                none = np.inf
    return replace(best, bound=min(max(least, reading), none, best.seconds),
                   at_steps=min(max(steps, reading), none_at_steps, best.seconds))


def least_reading(problem: Problem) -> float:
    """No placement with a read of the drive is faster: somebody waits for its first page, and what must be read is
    shared out over the EMB cards at best."""
    reads_s = sum(min(way.count * float(way.item.drive_s[_hottest(way.item)]) for way in problem.ways(j))
                  for j, item in enumerate(problem.items) if must_read(item))
    idle_s = float(problem.idle.seconds[SSD_S])
    if not problem.before_s + problem.after_s:
        return idle_s + reads_s / problem.cards
    return min(max(idle_s + reads_s / emb, problem.before_s / mlp) + problem.after_s / mlp
               for emb, mlp in ((emb, problem.cards - emb) for emb in range(1, problem.cards)))


def _filled(problem: Problem, found: Placement, built: Built, costs: Costs) -> tuple[Placement, tuple[Part, ...]]:
    """With the free DRAM filled, and where each table's rows lie then. Rows behind a tensor train's in DRAM may make it
    faster than the bound, which knows one cut between memories: then that is no bound of it."""
    parts = parts_of(problem, found, fill(problem, found, built.expected), built.expected, costs)
    emb = tuple(loads_of(parts, found.emb, costs))
    seconds = _seconds(problem, emb, found.mlp_cards)
    return replace(found, seconds=seconds, bound=min(found.bound, seconds), emb=emb), parts


def _seconds(problem: Problem, emb: Sequence[CardChoice], mlp_cards: int) -> float:
    """Of a batch (eq. 34 to 37)."""
    mlp = max(mlp_cards, 1)
    return max(max(card.seconds for card in emb), problem.before_s / mlp) + problem.after_s / mlp


def must_read(item: Item) -> bool:
    """Whether a batch needs the drive however the table is split."""
    return item.lookups > 0 and bool(item.reads[_hottest(item)] > 0)


def _hottest(item: Item) -> int:
    """The last step at which the table may be cut."""
    return int(cuts(item)[-1])


def _cards(problem: Problem, tables: Sequence[PlanTable], parts: Sequence[Part],
           best: Placement) -> tuple[PlanCard, ...]:
    """EMB cards with the sums of their tables, then MLP cards."""
    found = []
    room = {"dram": problem.dram_bytes, "tt": problem.tt_bytes, "ssd": problem.ssd_bytes}
    for number, emb in enumerate(best.emb):
        mine = [table for table in tables if number in table.cards]
        tiers = {name: replace(Tier.sum([table.on_card(name) for table in mine]), seconds=seconds)
                 for name, seconds in zip(MEMORIES, (emb.dram_s, emb.tt_s, emb.ssd_s), strict=True)}
        spare = sum(part.spare * part.item.row_bytes for part in parts if number in part.cards)
        # Of a tensor train's share of the unit the scarcest of its memories counts.
        filled = {"dram": emb.dram_bytes - spare, "tt": emb.tt_bytes, "ssd": emb.ssd_bytes}
        seconds = {name: tiers[name].seconds for name in MEMORIES} | {"in": emb.in_s, "out": emb.out_s}
        slowest = max(seconds, key=lambda name: seconds[name])
        if emb.out_s >= FULL * seconds[slowest]:
            slowest = "out"     # whatever the split; what else takes as long was given the time
        found.append(PlanCard(number, "emb", tiers["dram"], tiers["tt"], tiers["ssd"], emb.in_s, emb.out_s,
                              binds=slowest if seconds[slowest] else "",
                              full=tuple(name for name in MEMORIES if filled[name] >= FULL * room[name])))
    for number in range(len(best.emb), len(best.emb) + best.mlp_cards):
        top, bottom, inward, outward = (value / best.mlp_cards for value in (
            problem.top_s, problem.bottom_s, problem.features_s, problem.predictions_s))
        seconds = {"top": top, "bottom": bottom, "in": inward, "out": outward}
        found.append(PlanCard(number, "mlp", in_s=inward, out_s=outward, bottom_s=bottom, top_s=top,
                              binds=max(seconds, key=lambda name: seconds[name])))
    return tuple(found)
