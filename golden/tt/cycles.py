"""The cycle in which the TT unit takes every lookup and delivers every vector, equal to the RTL's.

The model steps through the unit's registers cycle by cycle, without its data: queues, first products that are
remembered, the three loop machines with their arbitration, the way through the grid and the output's credit.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit

from golden.tt.layout import Layout, plan
from golden.tt.load import keep_masks

# Decision of a slot to the beat's entry in the output queue, the grid's latency aside; see hw.tt.unit.
_TO_QUEUE = 10
_HORIZON = 4096
# What the steps and who drives them say to one another, by number.
_ROOM, _OFFERED, _LOOKUP, _GOES, _PORT = 0, 1, 2, 3, 4
# Rows that wait for the first machine, with pooling.
_SERVED = 8


@dataclass(frozen=True)
class Timing:
    """Cycles from the first lookup's acceptance on, and what the unit's counters say at the end.

    taken_at, last_at: (N,) int64, the cycle a lookup is accepted and that of its vector's last beat; with pooling
    last_at is (M,), a cycle a chunk.
    """

    taken_at: np.ndarray
    last_at: np.ndarray
    computed: int
    reused: int
    slots: int


def grid_latency(grid_log2: int) -> int:
    """Cycles from a tile's last operands to its results: a fused dot product of n terms in n sub-dots."""
    return 14 + 2 * grid_log2


def cycles(layouts, tables, indices, *, lanes: int, index_bits: int, t_lines: int, t_middle_lines: int,
           reuse_entries: int, in_flight: int, output_beats: int, latency: int | None = None,
           gaps=None, ready=None, offsets=None, vectors: int | None = None) -> Timing:
    """Timing of lookups `indices` of `tables` (numbers into `layouts`), in order.

    lanes .. output_beats: as in a preset. gaps: (N,) cycles for which the source pauses before it offers a lookup,
    once the one before is taken (default 0). ready: (lanes, cycles) whether the consumer takes a beat,
    repeated (default: always).
    latency: the grid's, default `grid_latency`.
    offsets: (M + 1,) where the chunks of a unit with pooling begin and end, of up to 8 rows each; vectors: how many
    sums a lane of that unit holds (in place of output_beats); ready is (1, cycles) then.
    """
    pooled = offsets is not None
    if pooled and vectors is None:
        raise ValueError("with offsets the number of vectors that a lane holds must be given")
    shape, tables, keys, offsets, chunk = _arrays(layouts, tables, indices, offsets)
    count = len(tables)
    if latency is None:
        latency = grid_latency(layouts[0].grid_log2) if len(layouts) else 0
    gaps = np.zeros(count, np.int64) if gaps is None else np.asarray(gaps, dtype=np.int64)
    ready = np.ones((1 if pooled else lanes, 1), np.bool_) if ready is None else np.asarray(ready, dtype=np.bool_)
    taken, last, totals = _run(shape, tables, keys, lanes, 3 * index_bits + 5, latency, t_lines, t_middle_lines,
                               reuse_entries, in_flight, vectors if pooled else output_beats, gaps, ready, pooled,
                               offsets, chunk, 1 << (layouts[0].grid_log2 if len(layouts) else 1))
    return Timing(taken, last, *(int(total) for total in totals))


# Columns of a table's numbers.
(_FIRST_TILES, _FIRST_BEATS, _MIDDLE_TILES, _MIDDLE_BEATS, _LAST_TILES, _LAST_BEATS, _TURNED, _BEATS,
 _LAST_LINES) = range(9)


class Steps:
    """The unit with pooling, a cycle at a time: `room` for a lookup, `offered` (0 nothing, 1 a beat, 2 the last of a
    vector) in the present cycle; `step` ends it. All lookups are known beforehand; arguments as those of `cycles`."""

    def __init__(self, layouts, tables, indices, offsets, *, lanes: int, index_bits: int, t_lines: int,
                 t_middle_lines: int, reuse_entries: int, in_flight: int, vectors: int):
        shape, tables, keys, offsets, chunk = _arrays(layouts, tables, indices, offsets)
        self._port = np.zeros(_PORT, np.int64)
        self._steps = _machine(
            shape, tables, keys, lanes, 3 * index_bits + 5, grid_latency(layouts[0].grid_log2), t_lines,
            t_middle_lines, reuse_entries, in_flight, vectors, np.zeros(len(tables), np.int64),
            np.ones((1, 1), np.bool_), True, offsets, chunk, 1 << layouts[0].grid_log2, self._port,
            np.full(len(tables), -1, np.int64), np.full(len(offsets) - 1, -1, np.int64), np.zeros(3, np.int64))
        next(self._steps)

    @property
    def room(self) -> bool:
        return bool(self._port[_ROOM])

    @property
    def offered(self) -> int:
        return int(self._port[_OFFERED])

    def step(self, lookup: bool, goes: bool) -> None:
        """lookup: there is one; goes: a beat would be taken."""
        self._port[_LOOKUP], self._port[_GOES] = lookup, goes
        if next(self._steps, None) is None:
            self._port[:] = 0


def _arrays(layouts, tables, indices, offsets):
    """(shape, tables, keys, offsets, chunk) as the steps take them."""
    tables = np.asarray(tables, dtype=np.int64)
    indices = np.asarray(indices, dtype=np.int64)
    count = len(tables)
    shape = np.array([_numbers(layout) for layout in layouts], dtype=np.int64)
    keys = np.zeros(count, dtype=np.int64)
    for number, layout in enumerate(layouts):
        mine = tables == number
        inside = np.where((indices[mine] >= 0) & (indices[mine] < layout.rows), indices[mine], 0)
        tail = int(np.prod(layout.modes[2:])) if len(layout.modes) > 2 else 1
        keys[mine] = (inside // tail) * len(layouts) + number
    if offsets is None:
        return shape, tables, keys, np.arange(count + 1), np.arange(count)
    for number, layout in enumerate(layouts):
        shape[number, _BEATS] = -(-layout.dim // (1 << 2 * layout.grid_log2))
    offsets = np.asarray(offsets, dtype=np.int64)
    return shape, tables, keys, offsets, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _numbers(layout: Layout):
    first, middle, last = layout.first, layout.middle, layout.last
    return (first.tiles if first else 0, first.beats if first else 0,
            middle.tiles if middle else 0, middle.beats if middle else 0,
            last.tiles, last.beats, layout.turned, len(keep_masks(layout)), last.lines)


@njit(cache=True)
def _machine(shape, tables, keys, lanes, split_latency, grid, t_lines, ring_lines, entries, in_flight, output_beats,
             gaps, ready, pooled, offsets, chunk, side, port, taken, last_at, totals):
    """Steps through the cycles; a generator that fills the last three arguments.

    With len(port) == 0 it runs through at once, by gaps and ready. Else it yields the number of each cycle, when
    `port` says whether a lookup can be taken (_ROOM) and, with pooling, what is offered (_OFFERED: 0 nothing, 1 a
    beat, 2 a last one), and goes on with port[_LOOKUP], whether there is a lookup, and port[_GOES], whether a beat is
    taken. (What is alive at a yield is stored and loaded there: it costs ten times as much as the cycle itself.)
    """
    count = len(tables)
    results = len(offsets) - 1
    computed, reused, slots = 0, 0, 0
    # Slot that ends a product to first slot that reads it; the stages between take three of these cycles.
    delay = grid + 5 - 3

    waiting = np.zeros(lanes, np.int64)
    turn, next_in, pause = 0, 0, 0
    steps, offers = len(port) > 0, True
    dealt = np.full((lanes, count + 1), -1, np.int64)   # a lane's lookups, how many they are and which leaves next
    dealt_count, fetch_at = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    fetched = np.full(lanes, -1, np.int64)
    asking = np.full(lanes, -1, np.int64)
    pending = np.full(lanes, -1, np.int64)
    pending_skips = np.zeros(lanes, np.bool_)
    served = np.zeros((lanes, _SERVED), np.int64)       # with pooling: between asking and pending
    served_skips = np.zeros((lanes, _SERVED), np.bool_)
    served_level = np.zeros(lanes, np.int64)
    entry_key = np.full((lanes, entries), -1, np.int64)
    entry_valid = np.zeros((lanes, entries), np.bool_)
    entry_users = np.zeros((lanes, entries), np.int64)
    entry_size = np.zeros((lanes, entries), np.int64)
    head, tail, held = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    free_lines = np.full(lanes, t_lines, np.int64)
    oldest, findable, findable_lines = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    entry_of = np.zeros(count, np.int64)
    matched = np.full(lanes, -1, np.int64)          # the entry that the asking lookup equals
    leaving = np.full(lanes, -1, np.int64)
    stuck, tail_idle = np.zeros(lanes, np.bool_), np.zeros(lanes, np.bool_)
    wish, aged = np.zeros(lanes, np.bool_), np.zeros(lanes, np.bool_)
    dropped, old = np.zeros(lanes, np.bool_), np.zeros(lanes, np.bool_)
    taken_before = np.zeros(lanes, np.int64)
    freed = np.zeros(lanes, np.int64)
    has_credit, has_room = np.ones(lanes, np.bool_), np.zeros(lanes, np.bool_)
    ring_room = np.zeros(lanes, np.bool_)
    # Loop machines: lookup, tiles left, beats a tile, beats left of the tile; -1 is idle.
    job = np.full((lanes, 3), -1, np.int64)
    tiles = np.zeros((lanes, 3), np.int64)
    beats = np.zeros((lanes, 3), np.int64)
    left = np.zeros((lanes, 3), np.int64)
    skips = np.zeros((lanes, 3), np.bool_)
    ripe = np.zeros((lanes, 2), np.int64)
    ripening = np.zeros((lanes, 2, _HORIZON), np.int64)
    begun = np.zeros((lanes, 2), np.int64)
    done_order = np.zeros((lanes, 2), np.int64)     # next lookup to be taken from either queue
    waits = np.full((lanes, 2), -1, np.int64)       # registers before the middle and the last machine
    middle_until = np.full(lanes, -1, np.int64)
    ring_free = np.full(lanes, ring_lines, np.int64)
    inside = np.zeros(lanes, np.bool_)
    owner = np.zeros(lanes, np.int64)
    credits = np.full(lanes, output_beats, np.int64)
    returning = np.zeros((lanes, _HORIZON), np.int64)
    pair_ends = np.zeros(lanes, np.bool_)
    # Beats on their way to and in the output queue: lookup if it is the last beat, else -2; -1 for none.
    pushing = np.full((lanes, _HORIZON), -1, np.int64)
    queue = np.full((lanes, output_beats + 2), -1, np.int64)
    queue_head, level = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    shown = np.full(lanes, -1, np.int64)            # the beat on o
    number = np.zeros(lanes, np.int64)
    second = np.zeros(lanes, np.bool_)
    # With pooling: chunks (by their first lookup) before the last machine, tiles that keep their distance,
    crowded, gathered = np.zeros(lanes, np.bool_), np.full(lanes, -1, np.int64)
    rows, rest = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    # whole vectors of a lane, the order of the lanes, and the vector that is read: its chunk, its beats,
    whole = np.zeros((lanes, _HORIZON), np.int64)
    level_of, lane_of = np.zeros(lanes, np.int64), np.zeros(results + 1, np.int64)
    order_in, order_out, order_room, following, reading, beats_left = 0, 0, True, 0, -1, 0
    # the beat that the memories give and the one that is shown: the chunk if it is its last, else -2; -1 for none.
    given, offered = -1, -1
    inside_chunk, turn_before = False, 1

    finished, cycle, idle = 0, 0, 0
    while finished < results and idle < 100000:
        now = cycle % _HORIZON
        idle += 1
        # Input.
        accept = -1
        if next_in < count and waiting[turn] != in_flight and (not pooled or order_room):
            accept = next_in
        offers = pause == 0
        if pause > 0:
            pause -= 1
        if steps:
            port[_ROOM] = accept >= 0
            port[_OFFERED] = 0 if offered == -1 else 1 if offered < 0 else 2
            yield cycle
            offers = port[_LOOKUP] != 0
        if not offers:
            accept = -1
        waiting_0, waiting_1 = waiting[0], waiting[lanes - 1]
        if pooled:
            goes = port[_GOES] != 0 if steps else ready[0, cycle % ready.shape[1]]
            free_2 = offered == -1 or goes
            step = reading >= 0 and (given == -1 or free_2)
            last_step = step and beats_left == 1
            if offered >= 0 and goes:
                last_at[offered] = cycle
                finished += 1
                idle = 0
            for lane in range(lanes):
                level_of[lane] += whole[lane, now]
                whole[lane, now] = 0
            starts = following and level_of[lane_of[order_out]] > 0 and (reading < 0 or last_step)
            # The next vector's lane waits in a register before the queue.
            queued = order_in - order_out - following
            refills = queued > 0 and (not following or starts)
            order_room_next = queued < 4 * in_flight * lanes - 4
            following = 1 if refills or (following and not starts) else 0
            # The edge.
            if last_step:
                returning[lane_of[reading], (cycle + 2) % _HORIZON] += 1
            if free_2:
                offered, given = given, -1
            if step:
                given = reading if last_step else -2
                beats_left -= 1
                if last_step:
                    reading = -1
            if starts:
                level_of[lane_of[order_out]] -= 1
                reading = order_out
                beats_left = shape[tables[offsets[reading]], _BEATS]
                order_out += 1
        for lane in range(lanes):
            # Output: what the consumer sees this cycle.
            goes = not steps and ready[0 if pooled else lane, cycle % ready.shape[1]]
            leaves = shown[lane] != -1 and goes
            fetches = level[lane] > 0 and (shown[lane] == -1 or goes)
            if leaves and shown[lane] >= 0:
                last_at[shown[lane]] = cycle
                finished += 1
                idle = 0

            ripe[lane, 0] += ripening[lane, 0, now]
            ripe[lane, 1] += ripening[lane, 1, now]
            ripening[lane, 0, now] = 0
            ripening[lane, 1, now] = 0
            credits[lane] += returning[lane, now]
            returning[lane, now] = 0

            # Grant.
            current = job[lane, 2]
            turned = current >= 0 and shape[tables[current], _TURNED] == 1
            if pooled:
                lines = shape[tables[current], _LAST_LINES] if current >= 0 else 0
                long = rows[lane] >= side or lines >= side or (rows[lane] > 1 and lines > 1)
                wants_last = current >= 0 and (rest[lane] == 0 or long)
            else:
                wants_last = current >= 0 and has_credit[lane] and not (pair_ends[lane] and not turned)
            choice = -1
            if inside[lane]:
                choice = owner[lane]
            elif job[lane, 0] >= 0 and not skips[lane, 0]:
                choice = 0
            elif job[lane, 1] >= 0 and not skips[lane, 1]:
                choice = 1
            elif wants_last:
                choice = 2
            done = np.zeros(3, np.bool_)
            tile_ends = False
            if choice >= 0:
                slots += 1
                tile_ends = left[lane, choice] == 1
                done[choice] = tile_ends and tiles[lane, choice] == 1
            first_done = job[lane, 0] >= 0 and (skips[lane, 0] or done[0])
            middle_done = job[lane, 1] >= 0 and ((skips[lane, 1] and cycle > middle_until[lane]) or done[1])
            last_done = done[2]

            one_row = waits[lane, 1]
            ends_chunk = pooled and one_row >= 0 and one_row == offsets[chunk[one_row] + 1] - 1
            moves = pooled and one_row >= 0 and not (ends_chunk and gathered[lane] >= 0)
            if pooled:
                begin_last = gathered[lane] >= 0 and has_credit[lane] and (current < 0 or last_done)
                take_last = ripe[lane, 1] > 0 and (one_row < 0 or moves)
            else:
                begin_last = one_row >= 0 and (current < 0 or last_done)
                take_last = ripe[lane, 1] > 0 and one_row < 0
            waiting_one = waits[lane, 0]
            need = shape[tables[waiting_one], _MIDDLE_TILES] if waiting_one >= 0 else 0
            begin_middle = (waiting_one >= 0 and job[lane, 1] < 0
                            and begun[lane, 1] != in_flight
                            and (need == 0 or (freed[lane] == 0 and ring_room[lane])))
            take_middle = ripe[lane, 0] > 0 and waiting_one < 0

            # The reuse table.
            one = asking[lane]
            found, room, present = matched[lane], False, False
            if one >= 0:
                present = shape[tables[one], _FIRST_TILES] > 0
                room = has_room[lane]
            begin_first = pending[lane] >= 0 and (job[lane, 0] < 0 or first_done)
            first_free = served_level[lane] < _SERVED if pooled else pending[lane] < 0
            to_pending = served_level[lane] > 0 and (pending[lane] < 0 or begin_first)
            serve = (one >= 0 and first_free and begun[lane, 0] != in_flight
                     and (not present or found >= 0 or room))
            take = serve and present
            make = take and found < 0
            ages = wish[lane] and not aged[lane] and not take
            drop = tail_idle[lane] and old[lane] and not dropped[lane] and not make
            ask = fetched[lane] >= 0 and one < 0 and not crowded[lane]
            waits_first = dealt[lane, fetch_at[lane]]
            fetch = (waits_first >= 0 and taken[waits_first] + split_latency < cycle and fetched[lane] < 0)
            # Registers that say a cycle later what is true now.
            wish[lane] = (findable[lane] > entries // 2 or findable_lines[lane] > t_lines // 2
                          or (stuck[lane] and findable[lane] > 0))
            crowded[lane] = pooled and findable_lines[lane] > t_lines // 2
            aged[lane] = ages
            stuck[lane] = one >= 0 and present and found < 0 and not room
            tail_idle[lane] = entry_users[lane, tail[lane]] == 0 and tail[lane] != found
            old[lane] = held[lane] != findable[lane]
            dropped[lane] = drop
            waits_next = dealt[lane, done_order[lane, 0]] if take_middle else waiting_one
            ring_room[lane] = waits_next >= 0 and ring_free[lane] >= shape[tables[waits_next], _MIDDLE_TILES]
            has_credit[lane] = credits[lane] > (0 if pooled else 1)
            asks_next = fetched[lane] if ask else one
            has_room[lane] = asks_next >= 0 and held[lane] < entries and (
                free_lines[lane] >= shape[tables[asks_next], _FIRST_TILES])
            if leaving[lane] >= 0:
                entry_users[lane, leaving[lane]] -= 1
                leaving[lane] = -1
            ring_free[lane] += freed[lane]
            freed[lane] = 0
            waiting[lane] -= taken_before[lane]
            taken_before[lane] = 0

            # -- The edge. Output first.
            if fetches:
                shown[lane] = queue[lane, queue_head[lane]]
                queue_head[lane] = (queue_head[lane] + 1) % (output_beats + 2)
                level[lane] -= 1
            elif leaves:
                shown[lane] = -1
            if leaves:
                returning[lane, (cycle + 2) % _HORIZON] += 1
            if pushing[lane, now] != -1:
                queue[lane, (queue_head[lane] + level[lane]) % (output_beats + 2)] = pushing[lane, now]
                level[lane] += 1
                pushing[lane, now] = -1

            # Machines.
            if choice >= 0:
                if not inside[lane] and choice == 2 and not pooled:
                    credits[lane] -= 1
                inside[lane] = not tile_ends
                owner[lane] = choice
                if choice == 2 and pooled:
                    if tiles[lane, 2] == 1 and left[lane, 2] <= rows[lane]:
                        # The last slot that reads this row's lines.
                        one_row_done = current + rows[lane] - left[lane, 2]
                        freed[lane] = shape[tables[current], _MIDDLE_TILES]
                        if shape[tables[current], _FIRST_TILES] > 0:
                            leaving[lane] = entry_of[one_row_done]
                    if last_done:
                        whole[lane, (cycle + grid + 7 + side + 3) % _HORIZON] += 1
                elif choice == 2 and tile_ends:
                    arrives = cycle + _TO_QUEUE + grid
                    vector_beats = shape[tables[current], _BEATS]
                    emitted = 1
                    if turned:
                        emitted = 2 if second[lane] else 0
                        second[lane] = not second[lane]
                    for extra in range(emitted):
                        number[lane] += 1
                        if number[lane] > vector_beats:
                            returning[lane, (arrives + extra + 1) % _HORIZON] += 1
                        else:
                            pushing[lane, (arrives + extra) % _HORIZON] = (
                                current if number[lane] == vector_beats else -2)
                if tile_ends:
                    tiles[lane, choice] -= 1
                    left[lane, choice] = beats[lane, choice]
                else:
                    left[lane, choice] -= 1
            pair_ends[lane] = last_done and turned
            if choice == 2 and tile_ends:
                rest[lane] = side - 1
            elif rest[lane] > 0:
                rest[lane] -= 1

            if last_done:
                if not pooled:
                    freed[lane] = shape[tables[current], _MIDDLE_TILES]
                    if shape[tables[current], _FIRST_TILES] > 0:
                        leaving[lane] = entry_of[current]
                job[lane, 2] = -1
                number[lane] = 0
            if begin_last:
                begins = gathered[lane] if pooled else one_row
                _begin(job, tiles, beats, left, skips, lane, 2, begins, shape[tables[begins]])
                if pooled:
                    rows[lane] = offsets[chunk[begins] + 1] - begins
                    beats[lane, 2] *= rows[lane]
                    left[lane, 2] = beats[lane, 2]
                    gathered[lane] = -1
                    credits[lane] -= 1
                else:
                    waits[lane, 1] = -1
            if moves:
                if ends_chunk:
                    gathered[lane] = offsets[chunk[one_row]]
                waits[lane, 1] = -1
            if take_last:
                waits[lane, 1] = dealt[lane, done_order[lane, 1]]
                done_order[lane, 1] += 1
                ripe[lane, 1] -= 1
                begun[lane, 1] -= 1
            if middle_done:
                if skips[lane, 1]:
                    ripening[lane, 1, (cycle + 1) % _HORIZON] += 1
                else:
                    ripening[lane, 1, (cycle + delay + 1) % _HORIZON] += 1
                    middle_until[lane] = cycle + delay
                job[lane, 1] = -1
            if begin_middle:
                _begin(job, tiles, beats, left, skips, lane, 1, waiting_one, shape[tables[waiting_one]])
                ring_free[lane] -= need
                begun[lane, 1] += 1
                waits[lane, 0] = -1
            if take_middle:
                waits[lane, 0] = dealt[lane, done_order[lane, 0]]
                done_order[lane, 0] += 1
                ripe[lane, 0] -= 1
                begun[lane, 0] -= 1
            if first_done:
                ripening[lane, 0, (cycle + delay + 1) % _HORIZON] += 1
                job[lane, 0] = -1
            if begin_first:
                one_first = pending[lane]
                _begin(job, tiles, beats, left, skips, lane, 0, one_first, shape[tables[one_first]])
                skips[lane, 0] = pending_skips[lane]
                pending[lane] = -1
            if to_pending:
                pending[lane] = served[lane, 0]
                pending_skips[lane] = served_skips[lane, 0]
                served_level[lane] -= 1
                for at in range(served_level[lane]):
                    served[lane, at] = served[lane, at + 1]
                    served_skips[lane, at] = served_skips[lane, at + 1]
            valid_before = entry_valid[lane].copy()
            if ages:
                at = oldest[lane]
                entry_valid[lane, at] = False
                findable[lane] -= 1
                findable_lines[lane] -= entry_size[lane, at]
                oldest[lane] = (at + 1) % entries
            if serve:
                serve_skips = not present or found >= 0
                if pooled:
                    served[lane, served_level[lane]] = one
                    served_skips[lane, served_level[lane]] = serve_skips
                    served_level[lane] += 1
                else:
                    pending[lane] = one
                    pending_skips[lane] = serve_skips
                begun[lane, 0] += 1
                if present:
                    if found >= 0:
                        reused += 1
                        entry_of[one] = found
                    else:
                        computed += 1
                        at = head[lane]
                        entry_key[lane, at] = keys[one]
                        entry_valid[lane, at] = True
                        entry_size[lane, at] = shape[tables[one], _FIRST_TILES]
                        free_lines[lane] -= entry_size[lane, at]
                        head[lane] = (at + 1) % entries
                        held[lane] += 1
                        findable[lane] += 1
                        findable_lines[lane] += entry_size[lane, at]
                        entry_of[one] = at
                    entry_users[lane, entry_of[one]] += 1
                asking[lane] = -1
                matched[lane] = -1
            if drop:
                at = tail[lane]
                free_lines[lane] += entry_size[lane, at]
                tail[lane] = (at + 1) % entries
                held[lane] -= 1
            if ask:
                asking[lane] = fetched[lane]
                fetched[lane] = -1
                for entry in range(entries):
                    if valid_before[entry] and entry_key[lane, entry] == keys[asking[lane]]:
                        matched[lane] = entry
            if fetch:
                fetched[lane] = waits_first
                fetch_at[lane] += 1
                taken_before[lane] = 1
        if accept >= 0:
            taken[accept] = cycle
            waiting[turn] += 1
            dealt[turn, dealt_count[turn]] = accept
            dealt_count[turn] += 1
            if not pooled:
                turn = (turn + 1) % lanes
            next_in += 1
            idle = 0
            if next_in < count:
                pause = gaps[next_in]
        if pooled:
            order_room = order_room_next
            if accept >= 0 and accept == offsets[chunk[accept]]:
                lane_of[order_in] = turn
                order_in += 1
            ends_now = accept >= 0 and accept == offsets[chunk[accept] + 1] - 1
            dealt_now = turn
            if lanes == 2 and (ends_now if accept >= 0 else not inside_chunk):
                if waiting_0 == waiting_1:
                    turn = 1 - (turn if accept >= 0 else turn_before)
                else:
                    turn = 1 if waiting_1 < waiting_0 else 0
            if accept >= 0:
                inside_chunk, turn_before = not ends_now, dealt_now
        cycle += 1
    totals[:] = computed, reused, slots


@njit(cache=True)
def _run(shape, tables, keys, lanes, split_latency, grid, t_lines, ring_lines, entries, in_flight, output_beats,
         gaps, ready, pooled, offsets, chunk, side):
    taken, last_at = np.full(len(tables), -1, np.int64), np.full(len(offsets) - 1, -1, np.int64)
    totals = np.zeros(3, np.int64)
    for _ in _machine(shape, tables, keys, lanes, split_latency, grid, t_lines, ring_lines, entries, in_flight,
                      output_beats, gaps, ready, pooled, offsets, chunk, side, np.zeros(0, np.int64), taken, last_at,
                      totals):
        pass
    return taken, last_at, totals


@njit(cache=True)
def _begin(job, tiles, beats, left, skips, lane, machine, lookup, numbers):
    job[lane, machine] = lookup
    tiles[lane, machine] = numbers[2 * machine]
    beats[lane, machine] = numbers[2 * machine + 1]
    left[lane, machine] = beats[lane, machine]
    skips[lane, machine] = tiles[lane, machine] == 0


def cycles_per_row(columns, rank: int, *, lanes: int = 2, grid_log2: int = 2) -> float:
    """Cycles a row in steady state, no first product reused, for column modes J and equal ranks.

    Never below 1, the rate at which the unit takes lookups.
    Raises ValueError for modes that the unit cannot order.
    """
    ranks = (1, *[rank] * (len(columns) - 1), 1)
    return max(1.0, plan((1,) * len(columns), columns, ranks, grid_log2=grid_log2).slots / lanes)
