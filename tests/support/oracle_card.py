"""A card whose core is an oracle: what stands above a card is tested without a simulator."""

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from fpga.card import Buffer, Card, CardError
from hw.isa import Kernel


class OracleCard(Card):
    """Buffers in host memory; `run` carries the program out at once. `spoil`, if set, changes the program.

    kernel: of the core; core: its oracle, with `words` of a beat.
    """

    clock_mhz = 250.0
    cycles_per_s = 0.0
    kernel: Kernel

    def __init__(self, core):
        self.core = core
        self.beat_bytes = {"m00_axi": 4 * core.words, "m01_axi": 4 * core.words}
        self.memory: dict[int, tuple[Buffer, np.ndarray]] = {}
        self.next = 0x40_0000_1000
        self.spoil = None
        self.runs = 0
        self.closed = False

    @abstractmethod
    def carry_out(self, program, arena, arguments):
        """The oracle's result. arena: name of a buffer with a size among the arguments -> its words."""

    def allocate(self, bytes, name, fill=None, p2p=False):
        assert bytes % (4 * self.core.words) == 0, "buffers are whole beats"
        assert name not in [buffer.name for buffer, _ in self.memory.values()]
        buffer = Buffer(name, self.next, bytes)
        self.memory[buffer.address] = (buffer, np.full(bytes, 0xA5 if fill is None else fill, np.uint8))
        self.next += -(-bytes // 4096) * 4096 + 8192
        return buffer

    def free(self, buffer):
        del self.memory[buffer.address]

    def write(self, buffer, data, offset=0):
        raw = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
        if offset + len(raw) > buffer.bytes:
            raise CardError("does not fit")
        self.memory[buffer.address][1][offset:offset + len(raw)] = raw

    def read(self, buffer, dtype=np.uint8, count=None, offset=0):
        return self.memory[buffer.address][1][offset:].view(dtype)[:count].copy()

    def run(self, arguments: Mapping):
        self._work(arguments)

    def _work(self, arguments):
        assert set(arguments) == {argument.name for argument in self.kernel.arguments}
        words = {name: self.memory[value.address][1].view(np.uint32) for name, value in arguments.items()
                 if isinstance(value, Buffer)}
        arena = {name: words[name][:arguments[f"{name}_beats"] * self.core.words] for name in words
                 if f"{name}_beats" in arguments}
        program = words["program"][:arguments["program_count"] * self.kernel.words].copy()
        if self.spoil:
            self.spoil(program.reshape(-1, self.kernel.words))
        done = self.carry_out(program, arena, arguments)
        block = words["result"]
        assert not block[self.kernel.final_words:].any(), "progress and doorbell are cleared before a run"
        for value in self.kernel.result:
            if value.kind == "status" and hasattr(done, value.name):
                block[value.word] = getattr(done, value.name)
        for name, value in done.counters.items():
            block[self.kernel.value(name).word] = value & 0xFFFFFFFF
            block[self.kernel.value(name).word + 1] = value >> 32
        self.runs += 1

    def wait(self, timeout_cycles=0, timeout_s=None):
        return 0

    def buffers(self):
        return tuple(buffer for buffer, _ in self.memory.values())

    def reset(self, cycles=4):
        pass

    clear = abort = reset

    def close(self):
        self.closed = True

    def _unused(self, *_, **__):
        raise AssertionError("the call is not expected to need this of a card")

    step = set_faults = counters = violations = stream = _unused
