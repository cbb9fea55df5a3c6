"""What the Verilog's control slave does at every address, found by simulating its gates, held against hw.isa."""

import random
from collections.abc import Iterator, Mapping

from fpga.vitis.checks.expected import Expected
from fpga.vitis.checks.gates import Run, gates
from fpga.vitis.checks.source import Module, read

__all__ = ["control_slave", "registers"]

WORDS = 0x1000 // 4         # of the slave's range: all are tried, each in a run of its own
PATIENCE = 16               # cycles that an access may take
APART = 4                   # cycles from one channel of a write to the other
AFTER = 3                   # cycles after a write's answer in which its pulses come
CTRL, GIER, IER, ISR = 0x00, 0x04, 0x08, 0x0C


def control_slave(texts: Mapping[str, str]) -> tuple[str, Module] | None:
    """File and module of the control slave: it has an AXI4-Lite slave, all arguments as an output, an interrupt, and
    no parts."""
    for name, text in texts.items():
        for module in read(text):
            ways = {port.name: port.direction for port in module.ports}
            wanted = {"arguments": "out", "interrupt": "out", "bus__awaddr": "in"}
            if not module.instances and wanted.items() <= ways.items():
                return name, module
    return None


def registers(texts: Mapping[str, str], expected: Expected) -> Iterator[str]:
    """Where the decoder of the Verilog differs from the register map."""
    found = control_slave(texts)
    if found is None:
        yield f"src/{expected.kernel}.v: no module is a control slave (arguments, interrupt, an AXI4-Lite slave)"
        return
    file, module = found
    try:
        slave = gates(texts[file], module.name)
        yield from (f"{file}: {sentence}" for sentence in _map(slave.run(WORDS), expected))
        yield from (f"{file}: {sentence}" for sentence in _handshake(slave.run(1)))
    except (ValueError, RuntimeError, KeyError) as error:
        yield f"{file}: the control slave cannot be simulated: {str(error).splitlines()[-1]}"


def _map(run: Run, expected: Expected) -> Iterator[str]:
    """Writes and reads each word of the slave in a run of its own."""
    dice = random.Random(1)
    offsets = [4 * word for word in range(WORDS)]
    data = [dice.getrandbits(32) | 1 for _ in offsets]
    data[0] = 0x81                                  # start, once and again
    status = dice.getrandbits(32)
    second, strobe = [dice.getrandbits(32) & ~1 for _ in offsets], [dice.randrange(1, 15) for _ in offsets]
    strobe[GIER // 4] = 0b1110      # the lowest byte is not written
    held: dict[int, tuple[str, int]] = {}           # offset of a word -> argument, its lowest bit in `arguments`
    at = 0
    for argument in expected.arguments:
        for part in range(0, argument.bytes, 4):
            held[argument.offset + part] = (argument.name, at)
            at += 32
    yield from _reset(run)
    run.set("status", status)
    pulses = _write(run, offsets, data, [15] * WORDS)
    whole = run.get("arguments")
    if len(run.gates.ports["arguments"][1]) != at:
        yield f"port arguments has {len(run.gates.ports['arguments'][1])} bits, the arguments have {at}"
    for offset, word, now in zip(offsets, data, whole):
        name, low = held.get(offset, ("", 0))
        want = word << low if name else 0
        if now != want:
            yield (f"a write to {offset:#05x} changes {_bits(now)} of the arguments; " +
                   (f"word {low // 32} of them is {name}'s" if name else "no argument lies there"))
    for name, offset in (("start", CTRL), ("abort", expected.abort)):
        hits = [4 * word for word in range(WORDS) if name in pulses and pulses[name] >> word & 1]
        if hits != [offset]:
            yield f"{name} answers writes to {[hex(hit) for hit in hits]}, not to {offset:#05x} alone"
    for offset, own, others in ((CTRL, 0x81, 0x4), (GIER, 1, 0), (IER, data[2] & 3, 0), (ISR, data[3] & 3, 0)):
        told = _read(run, [offset] * WORDS)
        for word in (word for word in range(WORDS) if told[word] != (own if 4 * word == offset else others)):
            yield f"{offset:#05x} reads {told[word]:#x} after a write to {4 * word:#05x}"
    read_back = _read(run, offsets)
    _write(run, offsets, second, strobe, first="aw")
    again = _read(run, offsets, [offset ^ 0xFFC for offset in offsets])
    for offset, word, next_, enabled, got, later in zip(offsets, data, second, strobe, read_back, again):
        merged = sum((next_ if enabled >> byte & 1 else word) & 0xFF << 8 * byte for byte in range(4))
        low = next_ if enabled & 1 else word
        fixed = {CTRL: (0x81, low & 0x80 | 1), GIER: (word & 1, low & 1), IER: (word & 3, low & 3),
                 ISR: (word & 3, (word ^ next_ if enabled & 1 else word) & 3), expected.status: (status, status)}
        want, then = fixed.get(offset, (word, merged) if offset in held else (0, 0))
        if got != want:
            yield f"a read of {offset:#05x} gives {got:#010x} after {word:#010x} was written, not {want:#010x}"
        elif later != then:
            yield f"a write of {next_:#010x} to {offset:#05x} with strobe {enabled:04b} gives {later:#010x}, " \
                  f"not {then:#010x}"


def _handshake(run: Run) -> Iterator[str]:
    """ap_ctrl_hs from start to the interrupt's end, once."""
    yield from _reset(run)

    def told(what: str, offset: int, want: int) -> Iterator[str]:
        got = _read(run, [offset])[0]
        if got != want:
            yield f"{what}: {offset:#05x} reads {got:#x}, not {want:#x}"

    yield from told("after reset", CTRL, 0x4)
    for offset in (GIER, IER):
        _write(run, [offset], [1], [15], first="w")
    if "start" not in _write(run, [CTRL], [1], [15]):
        yield "ap_start does not start the kernel"
    yield from told("while it runs", CTRL, 0x1)
    run.set("done", 1)
    run.clock()
    run.set("done", 0)
    run.clock()
    if run.get("interrupt") != [1]:
        yield "interrupt stays low at ap_done though it is enabled"
    yield from told("when it is done", CTRL, 0xE)
    yield from told("once ap_done has been read", CTRL, 0x4)
    yield from told("when it is done", ISR, 0x1)
    _write(run, [ISR], [1], [15])
    run.clock()
    yield from told("once it has been toggled", ISR, 0x0)
    if run.get("interrupt") != [0]:
        yield "interrupt stays high though its cause was toggled"


def _reset(run: Run) -> Iterator[str]:
    run.set("rst", 1)
    run.clock()
    run.clock()
    for name in ("arguments", "start", "abort", "interrupt", "bus__bvalid", "bus__rvalid"):
        if any(run.get(name)):
            yield f"{name} is not 0 in reset"
    run.set("rst", 0)


def _write(run: Run, offsets: list[int], data: list[int], strobe: list[int], first: str = "") -> dict[str, int]:
    """Writes a word in every run, `first` "aw" or "w": one channel some cycles before the other. What is not valid is
    noise. Returns the outputs `start` and `abort` that were seen high: the runs, as bits."""
    ports = {"aw": {"bus__awaddr": offsets}, "w": {"bus__wdata": data, "bus__wstrb": strobe}}
    masks = {"bus__awaddr": 0xFFF, "bus__wdata": 0xFFFFFFFF, "bus__wstrb": 0xF}
    waits, answered = {"aw", "w"}, False
    seen: dict[str, int] = {}
    left = PATIENCE
    for cycle in range(2 * PATIENCE):
        offered = {channel for channel in waits if first in ("", channel) or cycle >= APART}
        for channel, values in ports.items():
            run.set(f"bus__{channel}valid", int(channel in offered))
            for name, numbers in values.items():
                run.set(name, numbers if channel in offered else [number ^ masks[name] for number in numbers])
        run.set("bus__bready", int(answered))       # the answer must wait for it
        waits -= {channel for channel in offered if run.all(f"bus__{channel}ready")}
        if run.all("bus__bvalid"):
            if any(run.get("bus__bresp")):
                raise ValueError("a write is answered with an error")
            left, answered = min(left, AFTER), True
        run.clock()
        for name in ("start", "abort"):
            if now := run.high(name):
                seen[name] = seen.get(name, 0) | now
        left -= 1
        if not left:
            break
    if waits or not answered or run.all("bus__bvalid"):
        raise ValueError("a write is not answered once")
    return seen


def _read(run: Run, offsets: list[int], others: list[int] | None = None) -> list[int]:
    """Reads a word in every run. others: what is asked for behind it, from the moment on when the first was taken"""
    asked = [offsets, *([others] if others else [])]
    answers: list[list[int]] = []
    held: list[int] | None = None       # an answer that was seen and not taken yet
    taken = 0
    for _ in range(PATIENCE * len(asked)):
        valid = taken < len(asked)
        run.set("bus__arvalid", int(valid))
        run.set("bus__araddr", asked[taken] if valid else [offset ^ 0xFFF for offset in offsets])
        run.set("bus__rready", int(held is not None))
        taken += valid and run.all("bus__arready")
        now = run.get("bus__rdata") if run.all("bus__rvalid") else None
        if held is not None and now != held:
            raise ValueError("a read's answer does not wait for rready")
        if now is not None and any(run.get("bus__rresp")):
            raise ValueError("a read is answered with an error")
        if held is not None:
            answers.append(held)
            now = None
        held = now
        run.clock()
        if len(answers) == len(asked):
            return answers[0]
    raise ValueError("a read is not answered")


def _bits(value: int) -> str:
    if not value:
        return "nothing"
    words = [word for word in range(value.bit_length() // 32 + 1) if value >> 32 * word & 0xFFFFFFFF]
    return "word " + ", ".join(map(str, words))
