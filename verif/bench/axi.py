"""An AXI4 slave with latency, stalls and faults and with an eye on every rule of the bus, and a control master.

`AxiMemory` puts a `CardMemory` behind one port of the unit under test, `LiteMaster` is the driver on the other
side of a control slave.
"""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from cocotb.triggers import RisingEdge

from verif.bench import clock_of
from verif.bench.axi_rules import AddressRules, AxiRule, DataRules, pin
from verif.bench.driver import Driver, Steps
from verif.bench.memory import DECERR, OKAY, SLVERR, Buffer, CardMemory
from verif.bench.quick import text
from verif.bench.stream import Pattern

__all__ = ["DECERR", "OKAY", "SLVERR", "AxiMemory", "AxiRule", "Buffer", "CardMemory", "LiteMaster"]


class AxiMemory:
    """One AXI4 port of the unit under test, answered from a `CardMemory`. Channels the unit lacks are left alone.

    latency: cycles from the edge that takes an address to the first beat, and from the last written beat to its
    response. stalls: a pattern each for "ar", "r", "aw", "w", "b": in which cycles the slave goes on. The slave
    answers in order, a beat a cycle.

    >>> port = AxiMemory(dut, "m01_axi", memory, latency=100, stalls={"r": bursty(rng)})      # doctest: +SKIP
    """

    def __init__(self, dut: Any, prefix: str, memory: CardMemory, *, latency: int = 1,
                 stalls: dict[str, Pattern] | None = None, clock: Any = None):
        self.memory = memory
        self.latency = latency
        self.stalls = dict(stalls or {})
        self.prefix = prefix
        self.clock = clock_of(dut) if clock is None else clock
        # What has passed, for a bench to look at.
        self.cycle = 0
        self.reads: list[tuple[int, int]] = []  # (address, beats) of each burst
        self.writes: list[tuple[int, int]] = []
        self.read_beats = 0
        self.written_beats = 0
        self.read_at: list[int] = []  # the edge at which each beat was taken
        self.written_at: list[int] = []
        self.responses = 0
        # Faults by number, counted from 0 as they are served.
        self.fail_read: dict[int, int] = {}  # beat -> response
        self.fail_write: dict[int, int] = {}  # burst -> response
        self.wrong_rlast: set[int] = set()  # beats whose rlast is turned round
        self._drivers: list[Driver] = []
        self._forget()
        if pin(dut, prefix, "arvalid") is not None:
            self._ar = _AddressChannel(dut, prefix, "ar", memory.beat_bytes)
            self._drivers.append(Driver(self._read(dut), self.clock))
        if pin(dut, prefix, "awvalid") is not None:
            self._aw = _AddressChannel(dut, prefix, "aw", memory.beat_bytes)
            self._drivers.append(Driver(self._write(dut), self.clock))

    def _forget(self) -> None:
        self._bursts: deque[list[int]] = deque()  # reads under way: due, address, beats left
        self._addressed: deque[list[int]] = deque()  # writes under way: address, beats left, response
        self._early: deque[int] = deque()  # written beats that came before their address
        self._answers: deque[tuple[int, int]] = deque()  # due, response
        self._offered_r = self._offered_b = False

    @property
    def quiet(self) -> bool:
        """Nothing is under way: every burst has been answered to its end."""
        return not (self._bursts or self._addressed or self._early or self._answers)

    def stop(self) -> None:
        for driver in self._drivers:
            driver.stop()

    def _read(self, dut: Any) -> Steps:
        valid, ready, data, response, last = (
            pin(dut, self.prefix, f"r{name}") for name in ("valid", "ready", "data", "resp", "last"))
        channel, bursts, load = self._ar, self._bursts, self.memory.load
        step = self.memory.beat_bytes
        is_ready = text(ready)
        pattern = self.stalls.get("r")
        valid.value, last.value, response.value, pin(dut, self.prefix, "rid").value = 0, 0, 0, 0
        shown = 0, False  # what response and last show
        accepting = channel.open(self.stalls.get("ar"))
        number = 0
        while True:
            yield
            self.cycle += 1
            taken = channel.take(accepting)
            if taken is not None:
                self.reads.append(taken)
                bursts.append([self.cycle + self.latency, *taken])
            accepting = channel.open(self.stalls.get("ar"))
            if self._offered_r:
                if is_ready() != "1":
                    continue
                self._offered_r = False
                self.read_beats += 1
                self.read_at.append(self.cycle)
                burst = bursts[0]
                burst[1] += step
                burst[2] -= 1
                if not burst[2]:
                    bursts.popleft()
                if not (bursts and bursts[0][0] <= self.cycle + 1 and (pattern is None or next(pattern))):
                    valid.value = 0
                    continue
            elif not (bursts and bursts[0][0] <= self.cycle + 1 and (pattern is None or next(pattern))):
                continue
            else:
                valid.value = 1
            _, address, left = bursts[0]
            content, code = load(address)
            if number in self.fail_read:
                content, code = ~content & (1 << 8 * step) - 1, self.fail_read[number]
            show = code, (left == 1) ^ (number in self.wrong_rlast)
            number += 1
            data.value = content
            if show != shown:
                response.value, last.value = shown = show
            self._offered_r = True

    def _write(self, dut: Any) -> Steps:
        answer, response, answered = (pin(dut, self.prefix, name) for name in ("bvalid", "bresp", "bready"))
        is_answered = text(answered)
        beats = DataRules(dut, self.prefix, self._aw, self.memory.beat_bytes)
        channel, addressed, early, answers = self._aw, self._addressed, self._early, self._answers
        patterns = {name: self.stalls.get(name) for name in ("aw", "w", "b")}
        answer.value, response.value, pin(dut, self.prefix, "bid").value = 0, 0, 0
        number = cycle = 0
        accepting = channel.open(patterns["aw"])
        open_w = True
        beats.ready.value = 1
        own = pin(dut, self.prefix, "arvalid") is None
        while True:
            yield
            cycle += 1
            if own:
                self.cycle = cycle
            taken = channel.take(accepting)
            if taken is not None:
                self.writes.append(taken)
                addressed.append([*taken, OKAY])
            accepting = channel.open(patterns["aw"])

            content = beats.take(open_w)
            if content is not None:
                early.append(content)
                self.written_beats += 1
                self.written_at.append(cycle)
            while early and addressed:
                burst = addressed[0]
                burst[2] = max(burst[2], self.memory.store(burst[0], early.popleft()))
                burst[0] += self.memory.beat_bytes
                burst[1] -= 1
                if not burst[1]:
                    addressed.popleft()
                    answers.append((cycle + self.latency, max(burst[2], self.fail_write.get(number, OKAY))))
                    number += 1
            go = patterns["w"] is None or next(patterns["w"])
            if go != open_w:
                beats.ready.value = open_w = go

            if self._offered_b and is_answered() == "1":
                answers.popleft()
                self.responses += 1
                self._offered_b = False
                answer.value = 0
            if not self._offered_b and answers and answers[0][0] <= cycle + 1 and (
                    patterns["b"] is None or next(patterns["b"])):
                answer.value, response.value = 1, answers[0][1]
                self._offered_b = True


class _AddressChannel(AddressRules):
    """The slave's end of AR or AW: takes addresses and holds the master to the rules."""

    _driven: bool | None = None

    def open(self, pattern: Pattern | None) -> bool:
        """Decides on the coming edge and drives ready."""
        go = pattern is None or bool(next(pattern))
        if go != self._driven:
            self.ready.value = self._driven = go
        return go


class LiteMaster:
    """A driver's accesses to a control slave over AXI4-Lite. `pauses`: cycles between what it does, if given.

    >>> control = LiteMaster(dut, "s_axi_control"); await control.write(0x10, 5)              # doctest: +SKIP
    """

    def __init__(self, dut: Any, prefix: str, *, rng: Any = None):
        self._pin = {name: pin(dut, prefix, name) for name in (
            "awvalid", "awready", "awaddr", "wvalid", "wready", "wdata", "wstrb", "bvalid", "bready", "bresp",
            "arvalid", "arready", "araddr", "rvalid", "rready", "rdata", "rresp")}
        self._edge = RisingEdge(clock_of(dut))
        self._rng = rng
        self.orders: Counter[str] = Counter()   # what a write began with: "aw", "w", "both"
        for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
            self._pin[name].value = 0

    def _hesitates(self) -> bool:
        return self._rng is not None and self._rng.random() < 0.5

    async def write(self, offset: int, value: int, strobe: int = 0xF, *, limit: int = 200) -> int:
        """The response. Address and data go out in any order when there is an rng."""
        pin = self._pin
        to_send = {"aw": {"awaddr": offset}, "w": {"wdata": value, "wstrb": strobe}}
        offered: set[str] = set()
        ready = False
        for _ in range(limit):
            first = len(to_send) == 2 and not offered
            for channel, fields in to_send.items():
                if channel not in offered and not self._hesitates():
                    for name, content in fields.items():
                        pin[name].value = content
                    pin[f"{channel}valid"].value = 1
                    offered.add(channel)
            if first and offered:
                self.orders["both" if len(offered) == 2 else next(iter(offered))] += 1
            if not ready and not self._hesitates():
                pin["bready"].value = ready = True
            await self._edge
            for channel in list(offered):
                if pin[f"{channel}ready"].value == 1:
                    pin[f"{channel}valid"].value = 0
                    offered.discard(channel)
                    del to_send[channel]
            if ready and pin["bvalid"].value == 1:
                assert not to_send, "a response before the write"
                pin["bready"].value = 0
                return int(pin["bresp"].value)
        raise AssertionError(f"the write of {offset:#x} was not answered in {limit} cycles")

    async def read(self, offset: int, *, response: int = OKAY, limit: int = 200) -> int:
        """The value; the response must be the one named."""
        pin = self._pin
        pin["araddr"].value, pin["arvalid"].value = offset, 1
        addressed = ready = False
        for _ in range(limit):
            if not ready and not self._hesitates():
                pin["rready"].value = ready = True
            await self._edge
            if ready and pin["rvalid"].value == 1:
                assert addressed, "an answer before the address was taken"
                pin["rready"].value = 0
                assert pin["rresp"].value == response, f"the read of {offset:#x} was answered {pin['rresp'].value}"
                return int(pin["rdata"].value)
            if not addressed and pin["arready"].value == 1:
                pin["arvalid"].value = 0
                addressed = True
        raise AssertionError(f"the read of {offset:#x} was not answered in {limit} cycles")

    async def load(self, words: Iterable[int], first: int = 0x10) -> None:
        """Writes words one after the other, gaps included, as the driver does before it starts a kernel."""
        for number, word in enumerate(words):
            await self.write(first + 4 * number, word)
