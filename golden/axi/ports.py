"""The ports of a core, cycle by cycle: queues, read and write engines, an ideal memory behind them.

Every part shows in its attributes what its registers show in the present cycle; `step` is the clock edge that ends
it. Data are whatever the memory holds; addresses and lengths are in beats. No faults.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from golden.stream.fifo import Fifo

__all__ = ["Memory", "ReadPort", "Reader", "Reporter", "WritePort"]


class Memory:
    """Takes every address at once and answers in order, a beat a cycle.

    latency: cycles from the address to the first beat, and from the last written beat to its response. `beat` is
    the beat that stands on the bus in this cycle, `answer` whether a response does; who reads takes it."""

    def __init__(self, load: Callable[[int], Any], latency: int):
        self.load, self.latency = load, latency
        self.reads: deque[tuple[int, int]] = deque()    # the cycle in which a beat can come, and its address
        self.writes: deque[int] = deque()
        self.cycle = 0
        self.beat: Any = None
        self.answer = False
        self.read_beats = self.written_beats = 0

    def step(self, address: tuple[int, int] | None = None, written: tuple[int, bool] | None = None) -> None:
        """address: (beat, beats) of a read; written: beats since, and whether it is a burst's last."""
        if address is not None:
            self.reads.extend((self.cycle + self.latency, address[0] + at) for at in range(address[1]))
        if written is not None:
            self.written_beats += 1
            if written[1]:
                self.writes.append(self.cycle + self.latency)
        self.cycle += 1
        self.beat, self.answer = None, False
        if self.reads and self.reads[0][0] <= self.cycle:
            self.beat = self.load(self.reads.popleft()[1])
            self.read_beats += 1
        if self.writes and self.writes[0] <= self.cycle:
            self.writes.popleft()
            self.answer = True


class _Splitter:
    """Requests into bursts that stay inside blocks of `block` beats; addresses behind two registers."""

    def __init__(self, block: int):
        self.block = block
        self.request: Any = None                        # (address, beats, tag)
        self.burst: list[Any] | None = None             # [address, beats left, tag]
        self.o: Any = None                              # (address, beats)
        self.spare: Any = None

    @property
    def held(self) -> bool:
        return self.request is not None or self.burst is not None or self.o is not None

    def offer(self, room: bool) -> tuple[int, bool, Any] | None:
        """(beats, final, tag) of the burst that is handed out in this cycle."""
        if self.burst is None or not room or self.spare is not None:
            return None
        address, left, tag = self.burst
        beats = min(left, self.block - address % self.block)
        return beats, beats == left, tag

    def ready(self, go: Any) -> bool:
        return self.request is None or self._load(go)

    def _load(self, go: Any) -> bool:
        return self.burst is None or (go is not None and go[1])

    def step(self, go: Any, request: Any, taken: bool) -> None:
        """go: what `offer` gave; request: taken in this cycle; taken: the address is."""
        out = None
        if go is not None and self.burst is not None:
            out = self.burst[0], go[0]
        if self.o is None or taken:
            if self.spare is not None:
                self.o, self.spare = self.spare, None
            else:
                self.o = out
        elif out is not None:
            self.spare = out
        ready = self.ready(go)
        if self._load(go):
            self.burst = None if self.request is None else list(self.request)
        elif go is not None and self.burst is not None:
            self.burst = [self.burst[0] + go[0], self.burst[1] - go[0], self.burst[2]]
        if ready:
            self.request = request


class Reader:
    """The row port's engine on its memory."""

    def __init__(self, memory: Memory, *, block: int, outstanding: int):
        self.memory = memory
        self.splitter = _Splitter(block)
        self.bursts = Fifo(outstanding)
        self.o: Any = None
        self._at = 0

    def _go(self) -> Any:
        return self.splitter.offer(self.bursts.ready)

    @property
    def ready(self) -> bool:
        return self.splitter.ready(self._go())

    def step(self, request: tuple[int, int] | None) -> None:
        """request: (address, beats) taken in this cycle; o is always taken."""
        go, beat = self._go(), self.memory.beat
        ends = beat is not None and self._at + 1 == self.bursts.o[0]
        if beat is not None:
            self._at = 0 if ends else self._at + 1
        address = self.splitter.o
        self.bursts.step(go, ends)
        self.splitter.step(go, None if request is None else (*request, None), address is not None)
        self.memory.step(address)
        self.o = beat


class ReadPort:
    """Several clients' requests over one read engine, a burst in four cycles."""

    def __init__(self, memory: Memory, *, block: int, clients: tuple[int, ...], outstanding: int):
        self.memory = memory
        self.block, self.depths = block, clients
        self.largest = [min(block, max(1, depth // 4)) for depth in clients]
        self.bursts = Fifo(outstanding)
        self.queues = [Fifo(depth) for depth in clients]
        self.free = list(clients)
        count = len(clients)
        self.rest: list[Any] = [None] * count           # (address, beats) of a request that has begun
        self.asking = [False] * count
        self.state, self.turn, self.last = "PICK", -1, -1
        self.now: Any = None
        self.cut: Any = (0, True, 0)                    # beats, final, client
        self.fresh = False
        self.address: Any = None
        self.arrived: Any = None                        # (client, beat)
        self._at = 0

    @property
    def o(self) -> list[Any]:
        return [queue.o for queue in self.queues]

    @property
    def accepting(self) -> int:
        """The client whose request is taken in this cycle, or -1."""
        return self.turn if self.state == "LOAD" and self.fresh else -1

    def step(self, requests: list[Any], taken: list[bool]) -> None:
        """requests: (address, beats) that stand at the clients; taken: the clients' beats that are."""
        count = len(self.depths)
        issue = self.state == "ISSUE" and self.address is None and self.bursts.ready
        active = [rest is not None for rest in self.rest]
        left = list(active)
        if issue:
            left[self.turn] = not self.cut[1]
        # Beats on their way to the clients' queues.
        beat = self.memory.beat
        ends = beat is not None and self._at + 1 == self.bursts.o[0]
        arrived = None
        if beat is not None:
            arrived = self.bursts.o[1], beat
            self._at = 0 if ends else self._at + 1
        for k, queue in enumerate(self.queues):
            queue.step(self.arrived[1] if self.arrived is not None and self.arrived[0] == k else None, taken[k])
        self.arrived = arrived

        asking = []
        for k, largest in enumerate(self.largest):
            bits = (largest).bit_length() - 1
            room, ample = self.free[k] >> bits != 0, self.free[k] >> bits + 1 != 0
            mine = issue and self.turn == k
            asking.append((left[k] or requests[k] is not None) and ((room and not mine) or ample))
        granted = -1
        for step in range(count):
            k = (self.last + 1 + step) % count
            if self.asking[k]:
                granted = k
                break
        address, push = self.address, None
        if address is not None:
            self.address = None
        if issue:
            self.address = self.now[0], self.cut[0]
            push = self.cut[0], self.turn
            self.free[self.turn] -= self.cut[0]
            beats = self.now[1] - self.cut[0]
            self.rest[self.turn] = (self.now[0] + self.cut[0], beats) if beats else None
        for k in range(count):
            self.free[k] += taken[k]
        self.bursts.step(push, ends)
        self.memory.step(address)

        if self.state == "PICK":
            if granted >= 0:
                self.turn, self.fresh, self.state = granted, not active[granted], "LOAD"
        elif self.state == "LOAD":
            self.now = requests[self.turn] if self.fresh else self.rest[self.turn]
            self.last, self.state = self.turn, "CUT"
        elif self.state == "CUT":
            at, beats = self.now
            most = self.largest[self.turn]
            some = min(beats, most - at % most)
            self.cut, self.state = (some, some == beats, self.turn), "ISSUE"
        elif issue:
            self.state = "PICK"
        self.asking = asking


class WritePort:
    """Several clients' requests and data over one write engine."""

    def __init__(self, memory: Memory, *, block: int, clients: tuple[int, ...], outstanding: int):
        self.memory = memory
        self.splitter = _Splitter(block)
        self.sending, self.waiting = Fifo(outstanding), Fifo(outstanding)
        self.queues = [Fifo(depth) for depth in clients]
        count = len(clients)
        self.requests: list[Any] = [None] * count
        self.spare = [0] * count
        self.complete = [False] * count
        self.last = -1
        self.owed = 0
        self.seen = False
        self.w: Any = None                              # whether the beat on the bus is its burst's last
        self._at = 0
        self.done = [False] * count

    def _now(self) -> tuple[Any, int, bool]:
        """The burst that is handed out, who would be granted, and whether it is."""
        go = self.splitter.offer(self.sending.ready and self.waiting.ready)
        count = len(self.queues)
        for step in range(count):
            k = (self.last + 1 + step) % count
            if self.complete[k]:
                return go, k, self.splitter.ready(go)
        return go, -1, False

    @property
    def ready(self) -> list[bool]:
        """Whose request is taken."""
        _, k, grant = self._now()
        return [request is None or (grant and k == at) for at, request in enumerate(self.requests)]

    @property
    def room(self) -> list[bool]:
        """Whose data is."""
        return [queue.ready for queue in self.queues]

    def step(self, requests: list[Any], data: list[bool]) -> None:
        """requests: (address, beats) that stand at the clients; data: beats that are taken."""
        go, granted, grant = self._now()
        ready = self.ready
        address = self.splitter.o
        shown = address is not None and not self.seen
        # Data goes out behind its address.
        burst = self.sending.o
        there = burst is not None and self.queues[burst[1]].o is not None and self.owed != 0
        ends = there and self._at + 1 == burst[0]
        written = None if self.w is None else (1, self.w)
        answered = self.memory.answer
        final = answered and self.waiting.o[0]
        self.done = [bool(final) and self.waiting.o[1] == k for k in range(len(self.queues))]
        self.w = ends if there else None
        if there:
            self._at = 0 if ends else self._at + 1
        self.owed += shown - ends
        for k, queue in enumerate(self.queues):
            queue.step(True if data[k] else None, there and burst[1] == k)
        self.sending.step(None if go is None else (go[0], go[2]), ends)
        self.waiting.step(None if go is None else (go[1], go[2]), answered)
        self.splitter.step(go, (*self.requests[granted], granted) if grant else None, address is not None)
        self.memory.step(None, written)
        for k, request in enumerate(requests):
            load = request is not None and ready[k]
            mine = grant and granted == k
            self.spare[k] += data[k] - (request[1] if load else 0)
            self.complete[k] = (load or (self.requests[k] is not None and not mine)) and self.spare[k] >= 0
            if ready[k]:
                self.requests[k] = request
        if grant:
            self.last = granted


class Reporter:
    """Tells progress, a beat at a time; the block at the end is behind what is counted."""

    def __init__(self) -> None:
        self.tell = False                               # there is something to tell
        self.request = self.data = self.writing = False

    def step(self, tell: bool, *, request_taken: bool, data_taken: bool, written: bool) -> None:
        begins = self.tell and not self.writing
        self.tell = tell if begins else self.tell or tell
        self.data = begins or (self.data and not data_taken)
        self.request = begins or (self.request and not request_taken)
        self.writing = begins or (self.writing and not written)
