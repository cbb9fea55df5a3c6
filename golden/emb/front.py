"""The cycles of the EMB core's front: program, regions, feeder and tiers, stepped clock by clock.

Only what takes time is here: programs of BAGS without faults; what is dealt out is golden.emb.tokens' to say, and is
said here in the same records.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from golden.axi.requester import Requester
from golden.emb.tokens import MAX, MEAN, ONE, Lookup, Row, Step, stored, stripes
from golden.stream.fifo import Fifo
from hw.isa import EMB

__all__ = ["Arguments", "Front"]

BAGS_AHEAD = 16         # lengths that are read before their bags begin
IN_FLIGHT, JOBS = 64, 16
SLACK = 14              # room that a queue keeps for what is already on its way
PROGRAM, LENGTHS, INDICES, WEIGHTS = range(4)
TOKEN_STAGES = 6        # from an index taken to its token
POSITION_BITS = 30


class Arguments(NamedTuple):
    """Where the program and the inputs lie, in beats from address 0, and the program's instructions."""

    program: int
    program_count: int
    inputs: int


class _Token(NamedTuple):
    device: int         # 0 card memory, 1 TT, 2 SSD, 3 an empty bag
    offset: int
    piece: int
    factor: int
    last: bool
    final: bool
    out: int
    item: Mapping[str, int]
    number: int


class _Program:
    """One instruction at a time, while those before are carried out."""

    def __init__(self, words: int):
        self.words = words
        self.beats = max(1, 16 // words)
        self.state = "IDLE"
        self.requests = Requester()
        self.region: tuple[int, int, int] | None = None
        self.left = self.number = self.wait = self.bits = 0
        self.got: list[int] = []
        self.item: dict[str, int] = {}
        self.checks: Iterator[tuple[int, tuple[int, int, int] | None]] = iter(())
        self.ask: tuple[int, int, int] | None = None
        self.jobs, self.releases = Fifo(JOBS, headroom=2), Fifo(IN_FLIGHT, headroom=3)
        self.finished = 0
        self.done = False

    @property
    def job(self) -> tuple[int, dict[str, int]] | None:
        """What is offered to the feeder."""
        return self.jobs.o

    def takes(self, data) -> bool:
        return self.state == "NEXT" and self.left != 0 and data is not None

    def step(self, start: bool, arguments: Arguments, data, request_taken: bool, entered: bool, job_taken: bool,
             bags_done: bool) -> None:
        self.requests.step(taken=request_taken, start=start)
        if start:
            self.requests.begin(arguments.program, arguments.program_count * self.beats)
        issue = self.state == "SEND" and self.releases.room and self.jobs.room
        quiet = not self.releases.held
        busy = self.region is not None      # in this cycle
        self.jobs.step((self.number, self.item) if issue else None, job_taken)
        self.releases.step(True if issue else None, bags_done)
        self.finished = 0 if start else self.finished + bags_done
        if entered:
            self.region = None

        state = self.state
        if state == "IDLE" and start:
            self.left, self.number, self.got, self.done = arguments.program_count, 0, [], False
            self.state = "NEXT"
        elif state == "NEXT":
            if not self.left:
                self.state = "DRAIN"
            elif data is not None:
                self.got += list(data)
                if len(self.got) == 16:
                    self.item, self.got, self.wait = vars(EMB.decode(self.got)), [], 4
                    self.checks = self._sums()
                    self.state = "ALLOWED"
        elif state == "ALLOWED":
            self.wait -= 1
            if not self.wait:
                self.state = "SUM"
        elif state == "SUM":
            found = next(self.checks, None)
            if found is None:
                self.state = "SEND"
            else:
                self.bits, self.ask = found
                self.state = "ADD"
        elif state == "ADD":
            if self.bits:
                self.bits -= 1
            else:
                self.state = "COMPARE"
        elif state == "COMPARE":
            if not busy:
                if self.ask:
                    self.region = self.ask
                self.state = "SUM"
        elif state == "SEND" and issue:
            self.state = "STEP"
        elif state == "STEP":
            self.left, self.number = self.left - 1, self.number + 1
            self.state = "NEXT"
        elif state == "DRAIN" and quiet:
            self.done, self.state = True, "IDLE"

    def _sums(self) -> Iterator[tuple[int, tuple[int, int, int] | None]]:
        """(bits of the multiplier, region that may then be read) of each check."""
        item = self.item

        def region(client: int, at: int, count: int):
            return 1, (client, at, at - (-count // self.words))

        yield 1, None                                   # ring
        yield region(LENGTHS, item["lengths"], item["count"])
        yield region(INDICES, item["indices"], item["indices_count"])
        if item["weighted"]:
            yield region(WEIGHTS, item["weights"], item["indices_count"])
        yield stored(item).bit_length(), None           # rows
        yield 1, None                                   # a vector, and then all of them
        yield (item["count"] - 1).bit_length(), None


@dataclass
class _Bag:
    length: int
    first: bool
    last: bool
    job: tuple[int, dict[str, int]]
    number: int = 0             # in its instruction
    left: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.length


class _Feeder:
    """Lengths ahead into a queue of bags; an index of the bag that is under way a cycle."""

    def __init__(self, words: int, stripe_beats: int):
        self.words, self.stripe_beats = words, stripe_beats
        self.job: tuple[int, dict[str, int]] | None = None
        self.lengths_left = self.lengths_read = 0
        self.waits = False
        self.started: deque[bool] = deque([False] * 6, 6)
        self.room = BAGS_AHEAD
        self.reading: deque[_Bag | None] = deque([None] * 3, 3)
        self.waiting: deque[_Bag] = deque()
        self.bag: _Bag | None = None
        self.places = [0] * 4
        self.tokens: deque[tuple[_Token, ...]] = deque([()] * TOKEN_STAGES, TOKEN_STAGES)   # two of a pair

    @property
    def job_ready(self) -> bool:
        return not self.lengths_left and not self.waits and not any(self.started)

    def step(self, job, is_open: bool, data) -> list[bool]:
        """Which of the clients' beats are taken. `job`: the one on offer."""
        taken = [False] * 4
        accept = job is not None and self.job_ready

        # A length.
        read = None
        if self.lengths_left and self.room and data[LENGTHS] is not None:
            assert self.job is not None
            last = self.lengths_left == 1
            length = data[LENGTHS][self.places[LENGTHS]]
            read = _Bag(length, self.lengths_read == 0, last, self.job, self.lengths_read)
            taken[LENGTHS] = self._words(LENGTHS, 1, last)
            self.lengths_left -= 1
            self.lengths_read += 1
            self.room -= 1

        # An index, or an empty bag.
        bag, ends = self.bag, False
        token: tuple[_Token, ...] = ()
        if bag is not None and is_open:
            number, item = bag.job
            some = bag.length > 0
            if not some:
                token = self._token(bag, 3, 0, 0),
                if bag.last:
                    for client in (INDICES, WEIGHTS):
                        taken[client] = self.places[client] != 0
                        self.places[client] = 0
            elif data[INDICES] is not None and (data[WEIGHTS] is not None or not item["weighted"]):
                at = self.places[INDICES]
                places = range(at, at + 2) if self._pair(bag, data[INDICES]) else range(at, at + 1)
                bag.left -= len(places) - 1
                token = tuple(self._token(
                    bag, data[INDICES][k] >> POSITION_BITS, data[INDICES][k] % (1 << POSITION_BITS),
                    data[WEIGHTS][k] if item["weighted"] else ONE) for k in places)
                closes = bag.last and bag.left == 1
                taken[INDICES] = self._words(INDICES, len(places), closes)
                if item["weighted"]:
                    taken[WEIGHTS] = self._words(WEIGHTS, len(places), closes)
            if token:
                bag.left -= 1
                ends = bag.left <= 0
        start = False
        if self.waiting and (bag is None or ends):
            self.bag = self.waiting.popleft()
            self.room += 1
            start = self.bag.first
        elif ends:
            self.bag = None
        come = self.reading.pop()
        if come is not None:
            self.waiting.append(come)
        self.reading.appendleft(read)
        self.tokens.appendleft(token)

        self.started.appendleft(start)
        if accept:
            self.job = job
            self.lengths_left, self.lengths_read, self.waits = job[1]["count"], 0, True
        elif start:
            self.waits = False
        return taken

    def _pair(self, bag: _Bag, beat: Sequence[int]) -> bool:
        """Whether the next index and the one behind it are a pair: in two words of their own, one of a tensor train."""
        at = self.places[INDICES]
        return bag.left > 1 and at % 2 == 0 and (beat[at] >> POSITION_BITS == 1) != (
            beat[at + 1] >> POSITION_BITS == 1)

    def _words(self, client: int, count: int, last: bool) -> bool:
        """Words are taken: whether their beat goes with them."""
        gone = last or self.places[client] == self.words - count
        self.places[client] = 0 if gone else self.places[client] + count
        return gone

    def _token(self, bag: _Bag, device: int, row: int, weight: int) -> _Token:
        number, item = bag.job
        ends = bag.left <= 1
        offset, piece = row, stored(item)
        if device == 0:
            offset = item["dram_base"] + stripes(item, self.stripe_beats).pieces(row)[0]
            piece = item["piece_beats"] or piece
        factor = bag.length if item["mode"] == MEAN else weight
        return _Token(device, offset, piece - 1, factor, ends, ends and bag.last,
                      item["out"] + bag.number * item["out_stride"], item, number)


class _Tiers:
    """Rows held back until it is known whether they are their bag's last."""

    def __init__(self, queues: Mapping[str, int]):
        self.queues = {name: Fifo(queues[name], headroom=SLACK) for name in ("dram", "ssd", "tt", "steps")}
        self.open = False
        self.held: dict[int, tuple[_Token, bool]] = {}      # device -> row, first of the bag
        self.in_chunk = 0                                   # rows of the chunk that the held one ends
        self.ended: _Token | None = None
        self.bag: _Token | None = None
        self.first = True

    def step(self, tokens: tuple[_Token, ...], taken: Mapping[str, bool]) -> None:
        ended = self.ended
        bag, pushes = self.bag, dict.fromkeys(self.queues)
        new = {token.device for token in tokens}
        had_tt = self.held.get(1)
        for device, name in ((0, "dram"), (2, "ssd")):
            if device in self.held and (ended or device in new):
                row, first = self.held[device]
                weight = row.factor if row.item["weighted"] else ONE
                pushes[name] = Row(
                    row.offset, stored(row.item) - 1, row.piece, row.item["row_beats"] - 1, row.item["row_format"],
                    int(first), int(ended is not None), weight, int(row.item["mode"] == MAX), 0)
        chunk_ends = False
        if had_tt and (ended or 1 in new):
            row, _ = had_tt
            chunk_ends = bool(ended) or self.in_chunk == row.item["chunk_rows"]
            pushes["tt"] = Lookup(row.item["tt_table"], row.offset, int(self.in_chunk == 1), int(chunk_ends))
        if ended or chunk_ends:
            assert bag is not None
            item = bag.item
            factor = had_tt[0].factor if had_tt else bag.factor
            pushes["steps"] = Step(
                int(had_tt is not None), int(bool(ended) and 0 in self.held), int(bool(ended) and 2 in self.held),
                int(self.first), int(bool(ended)), item["mode"], item["weighted"], item["format"],
                factor, item["row_beats"] - 1, bag.out, int(bool(ended) and bag.final), bag.number)
            self.first = bool(ended)
        if ended:
            self.held = {}
        for token in tokens:
            if token.device == 1:
                goes_on = 1 in self.held and self.in_chunk != token.item["chunk_rows"]
                self.in_chunk = self.in_chunk + 1 if goes_on else 1
            if token.device < 3:
                self.held[token.device] = token, token.device not in self.held
            bag = token
        self.ended = bag if tokens and bag is not None and bag.last else None
        self.bag = bag
        is_open = all(queue.room for queue in self.queues.values())
        for name, queue in self.queues.items():
            queue.step(pushes[name], taken[name])
        self.open = is_open


class Front:
    """hw.emb.front.Front, clock by clock from the first cycle after its reset.

    requests, dram, ssd, lookups, steps, finished, done: what its registered outputs show in the present cycle, None
    where valid is low; a request is (address in beats, beats), in the order program, lengths, indices, weights.

    Parameters  words: of a beat; stripe_beats: of the core; queues: depths, by dram, ssd, tt, steps
    """

    def __init__(self, arguments: Arguments, *, words: int, stripe_beats: int, queues: Mapping[str, int]):
        self.arguments = arguments
        self._regions = {client: Requester() for client in (LENGTHS, INDICES, WEIGHTS)}
        self._program = _Program(words)
        self._feeder = _Feeder(words, stripe_beats)
        self._tiers = _Tiers(queues)

    @property
    def requests(self) -> list[tuple[int, int] | None]:
        return [requester.o for requester in (self._program.requests, *self._regions.values())]

    @property
    def dram(self) -> Row | None:
        return self._tiers.queues["dram"].o

    @property
    def ssd(self) -> Row | None:
        return self._tiers.queues["ssd"].o

    @property
    def lookups(self) -> Lookup | None:
        return self._tiers.queues["tt"].o

    @property
    def steps(self) -> Step | None:
        return self._tiers.queues["steps"].o

    @property
    def finished(self) -> int:
        return self._program.finished

    @property
    def done(self) -> bool:
        return self._program.done

    def step(self, *, start: bool = False, data: Sequence[Sequence[int] | None] = (None,) * 4,
             requests_taken: Sequence[bool] = (False,) * 4, dram_taken: bool = False, ssd_taken: bool = False,
             lookups_taken: bool = False, steps_taken: bool = False, bags_done: bool = False) -> list[bool]:
        """One clock edge. data: the beats that stand at the four clients; returns which of them were taken."""
        regions, program, feeder = self._regions, self._program, self._feeder
        entry = program.region if program.region and not regions[program.region[0]].asking else None
        program_taken = program.takes(data[PROGRAM])
        job_taken = program.job is not None and feeder.job_ready
        offered, token, is_open = program.job, feeder.tokens[-1], self._tiers.open
        taken = feeder.step(offered, is_open, data)
        taken[PROGRAM] = program_taken
        program.step(start, self.arguments, data[PROGRAM] if program_taken else None,
                     requests_taken[PROGRAM], entry is not None, job_taken, bags_done)
        for client, region in regions.items():
            mine = entry is not None and entry[0] == client
            region.step(taken=requests_taken[client], start=mine)
            if mine and entry is not None:
                region.begin(self.arguments.inputs + entry[1], entry[2] - entry[1])
        self._tiers.step(token, {"dram": dram_taken, "ssd": ssd_taken, "tt": lookups_taken, "steps": steps_taken})
        return taken
