"""A lane of the TT unit cycle by cycle, without its data: the parts of hw.tt.sequencer.

In every cycle each part decides by what the registers hold (`_.._decides`), then its registers change (`_.._steps`).
"""

from typing import NamedTuple

from numba import njit

from golden.tt.registers import HORIZON, SERVED

FIRST, MIDDLE, LAST = range(3)
# Besides grid and side, from a chunk's last slot to its sum; 10 of them to the operands in the grid.
WHOLE_CYCLES = 13
NEVER = 1 << 60

# A part of the unit. References to arrays are not counted, which would take most of the time: callers hold them.
part = njit(_nrt=False)


class Slot(NamedTuple):
    """Which product has the issue slot, -1 if none; whether that ends its tile, its last one."""

    product: int
    tile_ends: bool
    ends: bool


class Admitted(NamedTuple):
    """What hw.tt.admission decides; make, ages, drop: of the reuse table."""

    serve: bool
    skips: bool
    make: bool
    ages: bool
    drop: bool
    ask: bool
    fetch: bool


class Begun(NamedTuple):
    """What a product decides: its job is done, another begins, the register before the machine is filled, emptied."""

    done: bool
    begin: bool
    take: bool
    moves: bool


# hw.tt.stage.LoopMachine
@part
def _load(machine, lookup, tiles, beats):
    machine.lookup = lookup
    machine.tiles = tiles
    machine.beats = beats
    machine.left = beats
    machine.skips = tiles == 0


@part
def _go(machine):
    if machine.left == 1:
        machine.tiles -= 1
        machine.left = machine.beats
    else:
        machine.left -= 1


# hw.tt.sequencer.Sequencer: who gets the slot
@part
def _arbitrate(sizes, lane, lookups):
    first, middle, last = lane.first.machine, lane.middle.machine, lane.last.machine
    product = -1
    if lane.arbiter.inside:
        product = lane.arbiter.owner
    elif first.lookup >= 0 and not first.skips:
        product = FIRST
    elif middle.lookup >= 0 and not middle.skips:
        product = MIDDLE
    elif last.lookup >= 0 and _last_wants(sizes, lane.last, lookups[last.lookup].plan):
        product = LAST
    if product < 0:
        return Slot(-1, False, False)
    machine = first if product == FIRST else middle if product == MIDDLE else last
    lane.arbiter.inside = machine.left != 1
    lane.arbiter.owner = product
    return Slot(product, machine.left == 1, machine.left == 1 and machine.tiles == 1)


# hw.tt.admission.Admission, hw.tt.reuse.ReuseTable
@part
def _admission_decides(sizes, lane, lookups, cycle):
    this, reuse = lane.admission, lane.reuse
    present = this.asking >= 0 and lookups[this.asking].plan.first_tiles > 0
    hit = this.matched >= 0
    serve = (this.asking >= 0 and lane.first.level < SERVED and lane.middle.queue.begun != sizes.in_flight
             and (not present or hit or reuse.has_room))
    take = serve and present
    make = take and not hit
    comes = lookups[this.left_last].after
    return Admitted(
        serve=serve,
        skips=not present or hit,
        make=make,
        ages=reuse.wish and not reuse.aged and not take,
        drop=reuse.tail_idle and reuse.old and not reuse.dropped and not make,
        ask=this.fetched >= 0 and this.asking < 0 and not this.crowded,
        fetch=comes >= 0 and lookups[comes].taken_at + sizes.split_latency < cycle and this.fetched < 0)


@part
def _admission_steps(sizes, lane, entries, number, lookups, total, now):
    this, reuse = lane.admission, lane.reuse
    _reuse_registers(sizes, lane, entries, number, lookups, now)
    this.waiting -= this.left
    this.left = now.fetch
    if now.ask:
        this.asking = this.fetched
        this.fetched = -1
        for at in range(sizes.entries):
            if entries[number, at].valid and entries[number, at].key == lookups[this.asking].key:
                this.matched = at
    elif now.serve:
        if this.matched >= 0 or now.make:
            lookups[this.asking].entry = this.matched if this.matched >= 0 else reuse.head
            entries[number, lookups[this.asking].entry].users += 1
            total.computed += now.make
            total.reused += not now.make
    _reuse_steps(sizes, lane, entries, number, lookups, now)
    if now.serve:
        this.asking = -1
        this.matched = -1
    if now.fetch:
        this.left_last = lookups[this.left_last].after
        this.fetched = this.left_last


@part
def _reuse_registers(sizes, lane, entries, number, lookups, now):
    """What is said a cycle later of what is true now."""
    this, reuse = lane.admission, lane.reuse
    many_lines = reuse.findable_lines > sizes.t_lines // 2
    present = this.asking >= 0 and lookups[this.asking].plan.first_tiles > 0
    asks = this.fetched if now.ask else this.asking
    reuse.wish = reuse.findable > sizes.findable - 2 or many_lines or (reuse.stuck and reuse.findable > 0)
    this.crowded = many_lines
    reuse.aged = now.ages
    reuse.stuck = present and this.matched < 0 and not reuse.has_room
    # Of what is matched the low bits alone are compared.
    matches = this.matched >= 0 and (reuse.tail - this.matched) % sizes.findable == 0
    reuse.tail_idle = entries[number, reuse.tail].users == 0 and not matches
    reuse.old = reuse.held != reuse.findable
    reuse.dropped = now.drop
    reuse.has_room = (asks >= 0 and reuse.held < sizes.entries
                      and reuse.free_lines >= lookups[asks].plan.first_tiles)
    if reuse.leaving >= 0:
        entries[number, reuse.leaving].users -= 1
        reuse.leaving = -1


@part
def _reuse_steps(sizes, lane, entries, number, lookups, now):
    """An entry grows too old to be found, one is made for the asking lookup, one is freed."""
    reuse = lane.reuse
    if now.ages:
        entry = entries[number, reuse.oldest]
        entry.valid = False
        reuse.findable -= 1
        reuse.findable_lines -= entry.size
        reuse.oldest = (reuse.oldest + 1) % sizes.entries
    if now.make:
        asking, entry = lookups[lane.admission.asking], entries[number, reuse.head]
        entry.key = asking.key
        entry.valid = True
        entry.size = asking.plan.first_tiles
        reuse.free_lines -= entry.size
        reuse.held += 1
        reuse.findable += 1
        reuse.findable_lines += entry.size
        reuse.head = (reuse.head + 1) % sizes.entries
    if now.drop:
        reuse.free_lines += entries[number, reuse.tail].size
        reuse.held -= 1
        reuse.tail = (reuse.tail + 1) % sizes.entries


# hw.tt.products.FirstProduct
@part
def _first_decides(this, slot):
    done = this.machine.lookup >= 0 and (this.machine.skips or (slot.product == FIRST and slot.ends))
    begin = this.pending.lookup >= 0 and (this.machine.lookup < 0 or done)
    return Begun(done=done, begin=begin, take=this.level > 0 and (this.pending.lookup < 0 or begin), moves=False)


@part
def _first_steps(sizes, lane, lookups, cycle, now, slot, comes, skips):
    """comes: the lookup that is served, or -1."""
    this = lane.first
    if slot.product == FIRST:
        _go(this.machine)
    if now.done:
        lane.soon[(cycle + sizes.delay + 1) % HORIZON].middle_ripe += 1
        this.machine.lookup = -1
    if now.begin:
        plan = lookups[this.pending.lookup].plan
        _load(this.machine, this.pending.lookup, plan.first_tiles, plan.first_beats)
        this.machine.skips = this.pending.skips
        this.pending.lookup = -1
    if now.take:
        this.pending.lookup = this.served[0].lookup
        this.pending.skips = this.served[0].skips
        this.level -= 1
        for at in range(this.level):
            this.served[at].lookup = this.served[at + 1].lookup
            this.served[at].skips = this.served[at + 1].skips
    if comes >= 0:
        this.served[this.level].lookup = comes
        this.served[this.level].skips = skips
        this.level += 1


# hw.tt.products.MiddleProduct
@part
def _middle_decides(sizes, lane, lookups, cycle, slot):
    this = lane.middle
    skipped = this.machine.skips and cycle > this.busy_until
    done = this.machine.lookup >= 0 and (skipped or (slot.product == MIDDLE and slot.ends))
    begin = (this.ready >= 0 and this.machine.lookup < 0 and lane.last.queue.begun != sizes.in_flight
             and (lookups[this.ready].plan.middle_tiles == 0 or (this.freed == 0 and this.ring_room)))
    return Begun(done=done, begin=begin, take=this.queue.ripe > 0 and this.ready < 0, moves=False)


@part
def _middle_steps(sizes, lane, lookups, cycle, now, slot, comes):
    """comes: a lookup's first product begins."""
    this = lane.middle
    taken = lookups[this.queue.taken].after if now.take else this.ready
    this.ring_room = taken >= 0 and this.ring_free >= lookups[taken].plan.middle_tiles
    this.ring_free += this.freed
    this.freed = 0
    if slot.product == MIDDLE:
        _go(this.machine)
    if now.done:
        ripens = cycle + 1
        if not this.machine.skips:
            ripens += sizes.delay
            this.busy_until = cycle + sizes.delay
        lane.soon[ripens % HORIZON].last_ripe += 1
        this.machine.lookup = -1
    if now.begin:
        plan = lookups[this.ready].plan
        _load(this.machine, this.ready, plan.middle_tiles, plan.middle_beats)
        this.ring_free -= plan.middle_tiles
        this.ready = -1
    if now.take:
        this.ready = _take(this.queue, lookups)
    this.queue.begun += comes


# hw.tt.products.TokenQueue
@part
def _take(queue, lookups):
    queue.taken = lookups[queue.taken].after
    queue.ripe -= 1
    queue.begun -= 1
    return queue.taken


# hw.tt.last.LastProduct
@part
def _last_wants(sizes, this, plan):
    long = this.rows >= sizes.side or plan.last_lines >= sizes.side or (this.rows > 1 and plan.last_lines > 1)
    return this.rest == 0 or long


@part
def ends_chunk(lookups, lookup):
    return lookup == lookups[lookup].begin + lookups[lookup].rows - 1


@part
def _last_decides(this, lookups, slot):
    done = slot.product == LAST and slot.ends
    moves = this.row >= 0 and not (this.gathered >= 0 and ends_chunk(lookups, this.row))
    begin = this.gathered >= 0 and this.has_credit and (this.machine.lookup < 0 or done)
    return Begun(done=done, begin=begin, take=this.queue.ripe > 0 and (this.row < 0 or moves), moves=moves)


@part
def _last_steps(sizes, lane, lookups, cycle, now, slot, comes):
    """comes: a lookup begins or passes its middle product."""
    this = lane.last
    this.has_credit = this.credits > 0
    if slot.product == LAST:
        _chunk_slot(sizes, lane, lookups, cycle, now.done)
        _go(this.machine)
    if slot.product == LAST and slot.tile_ends:
        this.rest = sizes.side - 1
    elif this.rest > 0:
        this.rest -= 1
    if now.done:
        this.machine.lookup = -1
    if now.begin:
        this.rows = lookups[this.gathered].rows
        plan = lookups[this.gathered].plan
        _load(this.machine, this.gathered, plan.last_tiles, plan.last_beats * this.rows)
        this.credits -= 1
        this.gathered = -1
    if now.moves:
        if ends_chunk(lookups, this.row):
            this.gathered = lookups[this.row].begin
        this.row = -1
    if now.take:
        this.row = _take(this.queue, lookups)
    this.queue.begun += comes


@part
def _release(lane, lookup):
    """The last slot that reads this lookup's lines is decided."""
    lane.middle.freed = lookup.plan.middle_tiles
    if lookup.plan.first_tiles > 0:
        lane.reuse.leaving = lookup.entry


@part
def _chunk_slot(sizes, lane, lookups, cycle, done):
    this = lane.last
    if this.machine.tiles == 1 and this.machine.left <= this.rows:
        _release(lane, lookups[this.machine.lookup + this.rows - this.machine.left])
    if done:
        lane.soon[(cycle + sizes.grid_latency + sizes.side + WHOLE_CYCLES) % HORIZON].whole += 1


def farthest(sizes) -> int:
    """How many cycles after a decision what follows of it may come; HORIZON must be more."""
    return max(sizes.delay + 1, sizes.grid_latency + sizes.side + WHOLE_CYCLES)


# All parts of a lane
@part
def lane_steps(sizes, lane, entries, number, lookups, total, cycle):
    """Returns whether any part decided something, or something arrived."""
    soon = lane.soon[cycle % HORIZON]
    moved = soon.middle_ripe > 0 or soon.last_ripe > 0 or soon.returned > 0 or lane.last.rest > 0
    lane.middle.queue.ripe += soon.middle_ripe
    lane.last.queue.ripe += soon.last_ripe
    lane.last.credits += soon.returned
    soon.middle_ripe = 0
    soon.last_ripe = 0
    soon.returned = 0

    slot = _arbitrate(sizes, lane, lookups)
    first = _first_decides(lane.first, slot)
    middle = _middle_decides(sizes, lane, lookups, cycle, slot)
    last = _last_decides(lane.last, lookups, slot)
    admitted = _admission_decides(sizes, lane, lookups, cycle)
    comes = lane.admission.asking if admitted.serve else -1
    total.slots += slot.product >= 0

    _admission_steps(sizes, lane, entries, number, lookups, total, admitted)
    _first_steps(sizes, lane, lookups, cycle, first, slot, comes, admitted.skips)
    _middle_steps(sizes, lane, lookups, cycle, middle, slot, admitted.serve)
    _last_steps(sizes, lane, lookups, cycle, last, slot, middle.begin)
    return (moved or slot.product >= 0 or first.done or first.begin or first.take or middle.done or middle.begin
            or middle.take or last.done or last.begin or last.take or last.moves or admitted.serve or admitted.ages
            or admitted.drop or admitted.ask or admitted.fetch)


@part
def wakes(sizes, lane, lookups, cycle):
    """The cycle, after this one, in which something arrives at a lane that decides nothing before."""
    wake = NEVER
    comes, middle = lookups[lane.admission.left_last].after, lane.middle
    if comes >= 0 and lane.admission.fetched < 0:
        wake = lookups[comes].taken_at + sizes.split_latency + 1
    if middle.machine.lookup >= 0 and middle.machine.skips:
        wake = min(wake, middle.busy_until + 1)
    for at in range(cycle + 1, min(cycle + HORIZON, wake)):
        soon = lane.soon[at % HORIZON]
        if soon.middle_ripe or soon.last_ripe or soon.returned or soon.whole:
            return at
    return max(wake, cycle + 1)
