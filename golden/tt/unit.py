"""The TT unit cycle by cycle, without its data: lookups in, dealt to the lanes, and the way of the vectors out."""

from numba import njit

from golden.tt.registers import HORIZON
from golden.tt.sequencer import ends_chunk, lane_steps, part

# Without an event for so long nothing will come any more.
STUCK = 100_000


# hw.tt.sums.SumStream
@part
def _sums_steps(sizes, unit, lanes, lookups, vectors, cycle, goes):
    """Returns whether anything moved."""
    this = unit.sums
    free_2 = this.offered == -1 or goes
    step = this.reading >= 0 and (this.given == -1 or free_2)
    last = step and this.beats_left == 1
    if this.offered >= 0 and goes:
        vectors[this.offered].last_at = cycle
        unit.total.finished += 1
        unit.total.idle = 0
    moved = step or (free_2 and (this.given != -1 or this.offered != -1))
    for lane in lanes:
        moved |= lane.soon[cycle % HORIZON].whole > 0
        lane.whole += lane.soon[cycle % HORIZON].whole
        lane.soon[cycle % HORIZON].whole = 0
    next_lane = lanes[vectors[this.order_out].lane]
    starts = this.following and next_lane.whole > 0 and (this.reading < 0 or last)
    # The next vector's lane waits in a register before the queue.
    queued = this.order_in - this.order_out - this.following
    this.room = queued < 4 * sizes.in_flight * sizes.lanes - 4
    follows = (queued > 0 and (not this.following or starts)) or (this.following and not starts)
    moved |= starts or follows != this.following
    this.following = follows
    if free_2:
        this.offered = this.given
        this.given = -1
    if step:
        this.given = this.reading if last else -2
        this.beats_left -= 1
    if last:
        lanes[vectors[this.reading].lane].soon[(cycle + 2) % HORIZON].returned += 1
        this.reading = -1
    if starts:
        next_lane.whole -= 1
        this.reading = this.order_out
        this.beats_left = lookups[vectors[this.reading].begin].plan.beats
        this.order_out += 1
    return moved


# hw.tt.unit.TTUnit: lookups in, dealt to the lanes
@part
def _room(sizes, unit, lanes, lookups):
    this = unit.input
    return (this.next < len(lookups) - sizes.lanes and lanes[this.turn].admission.waiting != sizes.in_flight
            and unit.sums.room)


@part
def _input_steps(sizes, unit, lanes, lookups, vectors, cycle, accept):
    this, number, lane = unit.input, unit.input.next, unit.input.turn
    waiting_0, waiting_1 = lanes[0].admission.waiting, lanes[sizes.lanes - 1].admission.waiting
    if accept:
        admission = lanes[lane].admission
        unit.total.idle = 0
        lookups[number].taken_at = cycle
        lookups[admission.newest].after = number
        admission.newest = number
        admission.waiting += 1
        this.next += 1
        this.pause = lookups[this.next].gap
    if accept and number == lookups[number].begin:
        vectors[unit.sums.order_in].lane = lane
        unit.sums.order_in += 1
    between = ends_chunk(lookups, number) if accept else not this.inside_chunk
    if sizes.lanes == 2 and between:
        if waiting_0 == waiting_1:
            this.turn = 1 - (lane if accept else this.turn_before)
        else:
            this.turn = 1 if waiting_1 < waiting_0 else 0
    if accept:
        this.inside_chunk = not between
        this.turn_before = lane


@part
def _goes_on(total, vectors):
    return total.finished < len(vectors) - 1 and total.idle < STUCK


@njit(cache=True, _nrt=False)
def run(state, ready):
    """Runs through at once; ready: (cycles,) whether the consumer takes a beat, repeated."""
    sizes, unit, lanes, entries, lookups, vectors = state
    unit = unit[0]
    cycle = 0
    while _goes_on(unit.total, vectors):
        unit.total.idle += 1
        accept = _room(sizes, unit, lanes, lookups) and unit.input.pause == 0
        if unit.input.pause > 0:
            unit.input.pause -= 1
        _sums_steps(sizes, unit, lanes, lookups, vectors, cycle, ready[cycle % len(ready)])
        _input_steps(sizes, unit, lanes, lookups, vectors, cycle, accept)
        for number in range(sizes.lanes):
            lane_steps(sizes, lanes[number], entries, number, lookups, unit.total, cycle)
        cycle += 1
