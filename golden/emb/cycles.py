"""The EMB core on ideal memories, cycle by cycle: how long a program takes, equal to the hardware's counter.

Each part shows in its attributes what its registers show in the present cycle; `step` is the clock edge that ends
it. Only what decides the time is there: no words, no faults.
"""

from collections import deque
from typing import Any, NamedTuple

from golden.axi.ports import Memory, Reader, ReadPort, Reporter, WritePort
from golden.emb import packer, row_decoder
from golden.emb.row_requests import Fetched
from golden.emb.rows import RowFetch
from golden.emb.write_joiner import Joined, Vector, WriteJoiner
from golden.stream.fifo import Fifo
from golden.stream.skid_buffer import SkidBuffer
from hw.isa.emb import FORMAT, MODE, ROW_FORMAT

__all__ = ["Arbiter", "PostPool", "Sizes", "cycles"]

POSITIONS = 1 << 30
POLL = 64           # cycles between two looks at the doorbell while a row is waited for
GLANCE = 4096       # and while none is
KNOWN = 64          # means of fewer indices have their factor at once


class Arbiter:
    """golden.emb.rows.arbitrate, a cycle at a time."""

    def __init__(self, *, row_beats_max: int, partial_beats: int, copy_beats: int, ring_beats: int):
        self.longest, self.ring = row_beats_max, ring_beats
        self.free = {"dram": partial_beats, "ssd": partial_beats, "copy": copy_beats}
        self.room = dict.fromkeys(self.free, False)     # what was known of it a cycle ago
        self.o: Any = None
        self.row: Any = None                            # of the SSD
        self.landed = self.ssd_turn = self.waiting = False
        self.copied = 0
        self._now: tuple[bool, bool, bool] = (False, False, False)

    def decide(self, dram: Any, ready: bool) -> tuple[bool, bool]:
        """Whether the row of card memory is taken, and the SSD's may come."""
        move = ready or self.o is None
        dram_can = dram is not None and (not dram.last or self.room["dram"])
        ssd_can = self.landed
        if self.landed and (self.row.copy or self.row.last):
            ssd_can = self.room["copy" if self.row.copy else "ssd"]
        ssd_goes = move and ssd_can and (self.ssd_turn or not dram_can)
        dram_goes = move and dram_can and not ssd_goes
        self._now = move, dram_goes, ssd_goes
        return dram_goes, self.row is None or ssd_goes

    def step(self, dram: Any, ssd: Any, *, filled: int, dram_returned: bool, ssd_returned: bool,
             copy_written: bool) -> None:
        """dram, ssd: rows that stand at the inputs; after `decide`."""
        move, dram_goes, ssd_goes = self._now
        there = self.row is not None and (filled - self.row.offset - self.row.beats - 1) % POSITIONS < self.ring
        stays = self.row is not None and not ssd_goes
        self.waiting = stays and not self.landed and not there
        self.landed = stays and there
        self.room = {name: free >= 2 * self.longest for name, free in self.free.items()}
        self.free["dram"] += dram_returned - (dram.vector + 1 if dram_goes and dram.last else 0)
        self.free["ssd"] += ssd_returned
        self.free["copy"] += self.copied * copy_written
        if ssd_goes:
            if self.row.copy:
                self.copied = self.row.beats + 1
                self.free["copy"] -= self.copied
            elif self.row.last:
                self.free["ssd"] -= self.row.vector + 1
        if move:
            self.o = None
            if ssd_goes:
                row = self.row
                self.o = Fetched(row.offset % self.ring, row.beats, row.beats, row.last, row.copy, True, row.vector,
                                 row.row_format)
                self.ssd_turn = False
            elif dram_goes:
                self.o = Fetched(dram.offset, dram.beats, dram.piece, dram.last, 0, False, dram.vector, dram.row_format)
                self.ssd_turn = True
        if self.row is None or ssd_goes:
            self.row = ssd


class PostPool:
    """Puts a bag's vectors together: a beat a cycle, as far as there is room for what comes out."""

    def __init__(self, *, output_beats: int, write_block_beats: int, pool_latency: int):
        self.following: Any = None
        self.current: Any = None                        # the step under way
        self.sources: list[str] = []                    # vectors it still takes, the one under way first
        self.beat = 0
        self.may = False
        self.credits, self.back = output_beats, 0
        self.joiner = WriteJoiner(block_beats=write_block_beats)
        self.requests, self.under_way = Fifo(output_beats), Fifo(output_beats)
        self.pool: deque[bool] = deque([False] * pool_latency)
        self.packer: deque[bool] = deque([False] * (pool_latency + packer.LATENCY))    # half precision
        self.leaving = 0                                # cycles before FP32 may follow half precision
        self.divided = 0                                # the cycle in which the factor is there; 0: not asked for
        self.cycle = 0
        self.done, self.instruction_done = 0, False

    @property
    def data(self) -> bool:
        """A beat of a result stands at the write port."""
        return self.pool[0] or self.packer[0]

    @property
    def request(self) -> Any:
        return self.requests.o

    def step(self, *, steps: Any, tt: Any, dram: Any, ssd: Any, request_taken: bool, written: bool) -> dict[str, bool]:
        """steps, tt, dram, ssd: what stands at the inputs. Which of them are taken."""
        now, source = self.current, self.sources[0] if self.sources else ""
        there = {"tt": tt is not None, "dram": dram is not None, "ssd": ssd is not None, "": True}[source]
        fire = now is not None and self.may and there
        final = fire and self.beat == now.beats
        ends = final and len(self.sources) <= 1
        half = now is not None and now.format != FORMAT.FLOAT32
        used = fire and bool(now.end) and len(self.sources) <= 1 and (not half or final or self.beat % 2 == 1)
        bag_ends = bool(ends and now.end)
        taken = {name: fire and source == name for name in ("tt", "dram", "ssd")}
        free = ends or now is None

        ahead, start = self.following, False
        ready = ahead is not None
        if ahead is not None and ahead.mode == MODE.MEAN and ahead.factor >= KNOWN:
            start = not self.divided
            ready = bool(self.divided) and self.cycle >= self.divided
        ready = ready and not (ahead.format == FORMAT.FLOAT32 and (half or self.leaving > 0))
        self.leaving = packer.LATENCY - 1 if half else max(self.leaving - 1, 0)
        move = ready and free
        taken["steps"] = (ahead is None or move) and steps is not None

        self.may = self.credits > 1 or (self.credits == 1 and not used)
        self.credits += self.back - used
        oldest = self.under_way.o if written else Joined(0, 0, 0, False)
        self.back, self.done, self.instruction_done = oldest.beats, oldest.bags, oldest.last
        joined = self.joiner.o
        self.requests.step(joined and (joined.out, joined.beats), request_taken)
        self.under_way.step(joined, written)
        self.joiner.step(Vector(now.out, packer.beats(now.beats + 1, now.format), bool(now.last)) if bag_ends else None)
        for line, mine in ((self.pool, used and not half), (self.packer, used and half)):
            line.popleft()
            line.append(mine)
        if fire:
            self.beat = 0 if final else self.beat + 1
            if final and self.sources:
                self.sources.pop(0)
        if start:
            self.divided = self.cycle + 28 + 16 - (ahead.factor.bit_length() - 1)
        if free:
            self.current = ahead if ready else None
            self.sources = [name for name in ("tt", "dram", "ssd") if getattr(ahead, name)] if ready else []
        if ahead is None or move:
            self.following = steps
            if steps is not None and steps.first:
                self.divided = 0
        self.cycle += 1
        return taken


class _Doorbell:
    """Looks how far the ring has been filled: now and then, and often while a row is waited for."""

    def __init__(self, filled: int, ring: bool):
        self.value, self.filled, self.ring = filled, 0, ring
        self.request = self.asked = False
        self.pause = 0

    def step(self, waiting: bool, request_taken: bool, answered: bool) -> None:
        if self.asked:
            self.request = self.request and not request_taken
            if answered:
                self.asked, self.filled, self.pause = False, self.value, GLANCE - 1
        elif self.pause and not (waiting and self.pause < GLANCE - POLL):
            self.pause -= 1
        elif self.ring:
            self.asked = self.request = True


class Sizes(NamedTuple):
    """What of a core's configuration the time depends on; names as in its preset."""

    words: int
    row_beats_max: int
    window_beats: int
    window_sets: int
    delivery_rows: int
    stripe_beats: int
    banks: int
    rows_in_flight: int
    reads_in_flight: int
    writes_in_flight: int
    partial_beats: int
    input_beats: int
    program_beats: int
    output_beats: int
    write_block_beats: int                              # see hw.emb.config
    counters: int                                       # in the result block, with those that fill it up
    pool_latency: int = 14


def cycles(front: Any, sizes: Sizes, *, inputs: Any, rows: int, ring: int, outputs: int, result: int,
           ring_beats: int = 0, filled: int = 0, tt: Any = None, latency: int = 100,
           most: int = 200_000) -> dict[str, int]:
    """How long a program of BAGS without faults takes, and what it fetches.

    front: golden.emb.front.Front with its arguments set; inputs: gives the words of a beat of the inputs' memory;
    rows, ring, outputs, result: addresses of the arenas, in beats; filled: what the doorbell says from the start on;
    tt: golden.tt.cycles.Steps of all the program's lookups; latency: of the memories
    """
    block = min(4096 // (4 * sizes.words), 256)
    beats = -(-(16 + 2 * sizes.counters) // sizes.words)
    clients = (sizes.program_beats, *[sizes.input_beats] * 3)
    reads = ReadPort(Memory(inputs, latency), block=block, outstanding=sizes.reads_in_flight, clients=(*clients, 1))
    writes = WritePort(Memory(inputs, latency), block=block, outstanding=sizes.writes_in_flight,
                       clients=(sizes.output_beats, sizes.output_beats, 1 << (beats - 1).bit_length()))
    port = Reader(Memory(lambda _: True, latency), block=block, outstanding=sizes.rows_in_flight)
    fetch = RowFetch(window_beats=sizes.window_beats, sets=sizes.window_sets, row_beats_max=sizes.row_beats_max,
                     delivery_rows=sizes.delivery_rows, stripe_beats=sizes.stripe_beats, banks=sizes.banks)
    arbiter = Arbiter(row_beats_max=sizes.row_beats_max, partial_beats=sizes.partial_beats,
                      copy_beats=sizes.output_beats, ring_beats=ring_beats)
    pool: deque[Any] = deque([None] * sizes.pool_latency)
    decoder: deque[Any] = deque([None] * row_decoder.LATENCY)
    partials = {name: Fifo(sizes.partial_beats) for name in ("dram", "ssd")}
    finish = PostPool(output_beats=sizes.output_beats, write_block_beats=sizes.write_block_beats,
                      pool_latency=sizes.pool_latency)
    reporter, doorbell = Reporter(), _Doorbell(filled, ring_beats != 0)
    vectors, asks = SkidBuffer(), SkidBuffer()
    told = settling = False

    for cycle in range(most):
        # What stands at the write port's clients, and what is taken of it.
        asked = [None if asks.o is None else (outputs + asks.o[0], asks.o[1]), None,
                 (result + 192 // sizes.words, 1) if reporter.request else None]
        offered = [finish.data, False, reporter.data]
        granted, room = writes.ready, writes.room
        taken = [offer and free for offer, free in zip(offered, room)]
        written, bags_done = writes.done, finish.instruction_done
        # Of the read port.
        requests = [*front.requests, (result, 1) if doorbell.request else None]
        accepted = [reads.accepting == k for k in range(len(requests))]
        data = reads.o
        # Rows on their way.
        ready = fetch.ready
        row = arbiter.o if ready else None
        request = fetch.request if port.ready else None
        arrived, fetched = port.o is not None, None
        if request is not None:
            fetched = (ring if request[2] else rows) + request[0], request[1]
        dram, ssd = front.dram, front.ssd
        dram_taken, ssd_taken = arbiter.decide(dram, ready)
        pooled, decoded = pool.popleft(), decoder.popleft()
        plain = fetch.out is not None and fetch.out[0].row_format == ROW_FORMAT.FLOAT32
        decoder.append(None if plain else fetch.out)
        leaves = fetch.out if plain else decoded
        pool.append(leaves[0].ring if leaves is not None and leaves[0].last else None)

        ends = settling and not (reporter.tell or reporter.writing or told)
        settling = front.done and cycle > 0
        # The edge.
        lookup, vector = front.lookups, None if tt is None else tt.offered
        lookup_taken = lookup is not None and tt.room
        asking = finish.request
        used = finish.step(steps=front.steps, tt=vectors.o, dram=partials["dram"].o, ssd=partials["ssd"].o,
                           request_taken=asking is not None and asks.held is None, written=written[0])
        asks.step(asking, asked[0] is not None and granted[0])
        room_for_vector = vectors.held is None
        vectors.step(vector or None, used["tt"])
        if tt is not None:
            tt.step(lookup is not None, room_for_vector)
        for number, (name, queue) in enumerate(partials.items()):
            queue.step(True if pooled == number else None, used[name])
        arbiter.step(dram, ssd, filled=doorbell.filled, dram_returned=used["dram"], ssd_returned=used["ssd"],
                     copy_written=written[1])
        fetch.step(row, arrived, request is not None)
        port.step(fetched)
        consumed = front.step(
            start=cycle == 0, data=data[:4], requests_taken=accepted[:4], dram_taken=dram_taken,
            ssd_taken=ssd_taken, lookups_taken=lookup_taken, steps_taken=used["steps"], bags_done=bags_done)
        reads.step(requests, [*(beat is not None and use for beat, use in zip(data, consumed)), data[4] is not None])
        doorbell.step(arbiter.waiting, accepted[4], data[4] is not None)
        reporter.step(told, request_taken=asked[2] is not None and granted[2], data_taken=taken[2], written=written[2])
        writes.step(asked, taken)
        told = bags_done
        if ends:
            return {"cycles": cycle + 1, "beats_fetched": port.memory.read_beats, "coalesced_rows": fetch.found_rows}
    raise RuntimeError(f"the program has not ended after {most} cycles")
