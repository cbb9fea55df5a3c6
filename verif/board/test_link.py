"""The serial link of a board: real bits on the line, frames of every kind, sound and broken."""

import binascii
from itertools import pairwise

import cocotb
import pytest
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge, Timer

from gen.rtl import frames
from gen.rtl.frames import Refused, sealed
from hw.board.link import Link, Status
from hw.board.registers import BOARD_BASE, CONTROL_BASE, IDENTITY, REGISTERS
from hw.board.top import LAMPS, Board, BoardConfig
from hw.board.uart import Receiver, Transmitter
from verif.bench import report, reset, rng, seed, start
from verif.bench.runner import seeds, simulate
from verif.board.bench import PERIOD_NS, SerialHost

DIVISOR, MEMORY_BYTES = 5, 1024
GAP_CYCLES = 60 * DIVISOR       # six bytes
CONFIG = BoardConfig(divisor=DIVISOR, gap_cycles=GAP_CYCLES, memory_bytes=MEMORY_BYTES, lamp_log2=6)
WORDS = MEMORY_BYTES // 4


async def _begin(dut, **options):
    start(dut)
    dut.rx.value, dut.button.value = 1, 0
    await reset(dut, 4)
    await ClockCycles(dut.clk, 40)
    return SerialHost(dut, DIVISOR, **options)


async def _refused(host, content, status, **options):
    """Sends what is no frame; the board must say why, after the line was silent, and take the next frame."""
    await host.send(content, **options)
    reply = await host.answer(limit_bits=200)
    with pytest.raises(Refused) as told:
        frames.opened(reply)
    assert told.value.status is status, f"{content.hex()}: {told.value}"
    assert not host.received


@cocotb.test()
@pytest.mark.testpoint("registers")
async def smoke(dut):
    """A word is written and read; the board says what it is. The bytes are those of the page, one by one."""
    host = await _begin(dut)
    await host.send(b"W\x04\x00\x00\x00\x01\x00\x78\x56\x34\x12" + binascii.crc_hqx(
        b"W\x04\x00\x00\x00\x01\x00\x78\x56\x34\x12", 0xFFFF).to_bytes(2, "big"))
    assert await host.reply(3) == b"\x00" + binascii.crc_hqx(b"\x00", 0xFFFF).to_bytes(2, "big")
    asked = b"R\x04\x00\x00\x00\x01\x00"
    await host.send(asked + binascii.crc_hqx(asked, 0xFFFF).to_bytes(2, "big"))
    answer = b"\x00\x78\x56\x34\x12"
    assert await host.reply(7) == answer + binascii.crc_hqx(answer, 0xFFFF).to_bytes(2, "big")
    assert await host.read(BOARD_BASE, 3) == [IDENTITY, MEMORY_BYTES, 0]
    assert IDENTITY.to_bytes(4, "little") == b"HOTR"


@cocotb.test()
async def random_match_golden(dut):
    """Runs of 1 to 256 words anywhere in the memory, against an array."""
    host = await _begin(dut)
    draw = rng("runs")
    memory = [draw.getrandbits(32) for _ in range(WORDS)]
    await host.write(0, memory)
    for _ in range(12):
        first = draw.randrange(WORDS)
        count = min(draw.choice((1, 2, 3, draw.randint(1, 40))), WORDS - first)
        if draw.random() < 0.5:
            memory[first:first + count] = words = [draw.getrandbits(32) for _ in range(count)]
            await host.write(4 * first, words)
        else:
            assert await host.read(4 * first, count) == memory[first:first + count]
    assert await host.read(0, WORDS) == memory


@cocotb.test()
async def backpressure_both_sides(dut):
    """Hosts with bits 3 % longer and shorter, pauses between bytes up to the gap that ends a frame."""
    draw = rng("pauses")
    for skew in (-0.03, 0.03, 0.0):
        host = await _begin(dut, skew=skew, pauses=draw)
        words = [draw.getrandbits(32) for _ in range(24)]
        await host.write(64, words)
        assert await host.read(64, 24) == words
        host.stop()
    host = await _begin(dut)
    frame = frames.write_request(8, [7, 8])
    for byte in frame:      # each just before the gap since the one before it is over
        await host.send(bytes([byte]))
        await Timer((GAP_CYCLES - 14 * DIVISOR) * PERIOD_NS, "ns")
    assert frames.opened(await host.answer()) == ()
    assert await host.read(8, 2) == [7, 8]


@cocotb.test()
@pytest.mark.testpoint("latency_and_rate_as_documented", unit="board/top")
async def latency_and_rate_as_documented(dut):
    """Bytes of a reply follow each other without a gap but where a word ends; the whole frame takes its bits' time and
    no more than the bus's cycles besides."""
    host = await _begin(dut)
    words = list(range(32))
    await host.write(0, words)
    edge = RisingEdge(dut.clk)
    cycles = 0

    async def count():
        nonlocal cycles
        while True:
            await edge
            cycles += 1

    counting = cocotb.start_soon(count())
    request = frames.read_request(0, 32)
    await host.send(request)
    sent = cycles
    reply = await host.answer(32)
    assert frames.opened(reply) == tuple(words)
    counting.cancel()
    line = 10 * DIVISOR * len(reply)
    # 32 words of at most 6 cycles on the bus, a cycle at each word's end, the end of the last bits.
    assert line <= cycles - sent + DIVISOR <= line + 6 * 32 + 34 + 4 * DIVISOR, f"{cycles - sent} cycles for {line}"
    report(reply_cycles=cycles - sent)


@cocotb.test()
@pytest.mark.testpoint("reset_midstream", unit="board/top")
async def reset_midstream(dut):
    """The button at 25 moments of a frame, of its reply and of a word on the bus, and behind a byte that came too
    early: the next frame is as after power-up."""
    host = await _begin(dut)
    draw = rng("when")
    words = [draw.getrandbits(32) for _ in range(8)]
    await host.write(0, words)
    early = frames.read_request(0, 8) + b"R"
    moments = [(request, draw.randrange(1, 10 * DIVISOR * (len(request) + 36))) for request in draw.choices(
        (frames.read_request(0, 8), frames.write_request(0, words), b"R\0", b"x" * 9), k=25)]
    for request, moment in [*moments, (early, 10 * DIVISOR * (len(early) + 2))]:
        sending = cocotb.start_soon(host.send(request))
        await ClockCycles(dut.clk, moment)
        sending.cancel()
        host.stop()
        dut.rx.value = 1
        dut.button.value = 1
        await ClockCycles(dut.clk, draw.randint(6, 9))
        assert dut.tx.value == 1
        dut.button.value = 0
        await ClockCycles(dut.clk, 24)
        host = SerialHost(dut, DIVISOR)
        assert await host.read(0, 8) == words
    await ClockCycles(dut.clk, 2 * GAP_CYCLES)
    assert not host.received, "a byte before the reset is forgotten"


@cocotb.test()
@pytest.mark.testpoint("corner_values", unit="board/top")
async def corner_values(dut):
    """The longest frame, the first and last word, all ones and zeros, every byte value."""
    host = await _begin(dut)
    memory = [0, 0xFFFFFFFF] + [int.from_bytes(bytes((4 * k + b) % 256 for b in range(4)), "little")
                                for k in range(WORDS - 3)] + [0x80000001]
    assert len(memory) == frames.WORDS_MAX == WORDS, "the longest frame"
    await host.write(0, memory)
    assert await host.read(0, WORDS) == memory
    assert await host.read(MEMORY_BYTES - 4, 1) == memory[-1:]


@cocotb.test()
@pytest.mark.testpoint("out_of_range")
@pytest.mark.testpoint("corner_values", unit="board/top")
async def out_of_range(dut):
    """Behind the memory, where a core would be, unknown registers, runs over the end: BUS; what is inside is done."""
    host = await _begin(dut)
    for address in (MEMORY_BYTES, 0x7FFFFFFC, CONTROL_BASE, CONTROL_BASE + 0x1000, BOARD_BASE + 0xC, 0xFFFFFFFC):
        await _refused(host, frames.read_request(address, 1), Status.BUS)
        await _refused(host, frames.write_request(address, [1]), Status.BUS)
    await host.write(0, [5])
    await _refused(host, frames.write_request(MEMORY_BYTES - 4, [3, 4]), Status.BUS)
    assert await host.read(MEMORY_BYTES - 4, 1) == [3]
    assert await host.read(0, 1) == [5], "addresses do not wrap around"
    await _refused(host, frames.read_request(MEMORY_BYTES - 4, 2), Status.BUS)


@cocotb.test()
@pytest.mark.testpoint("malformed_frames")
async def malformed_frames(dut):
    """Unknown commands, wrong counts, odd addresses, turned bits, every length that is too short, missing stop bits, a
    break: the status that names it, nothing carried out, the next frame taken."""
    host = await _begin(dut)
    draw = rng("flips")
    await host.write(0, [11, 12])
    await _refused(host, sealed(b"X" + bytes(6)), Status.COMMAND)
    await _refused(host, sealed(b"R\0\0\0\0\0\0"), Status.COUNT)
    await _refused(host, frames.read_request(0, 257), Status.COUNT)
    await _refused(host, sealed(b"W\0\0\0\0\x01\x01" + bytes(300)), Status.COUNT)
    for address in (1, 2, 3):
        await _refused(host, frames.write_request(address, [99]), Status.ADDRESS)
    for _ in range(12):     # a bit of the frame is turned round
        frame = bytearray(frames.write_request(0, [0xDEAD, 0xBEEF]))
        bit = draw.choice([draw.randrange(8, 40), draw.randrange(56, 8 * len(frame))])
        frame[bit // 8] ^= 1 << bit % 8
        await _refused(host, bytes(frame), Status.CHECK)
    frame = frames.write_request(0, [0xDEAD, 0xBEEF])
    for length in range(1, len(frame)):
        await _refused(host, frame[:length], Status.TIMEOUT)
    for length in (1, 5, 9, len(frame)):    # a stop bit is missing
        await _refused(host, frame[:length], Status.LINE, stop_bit=0)
    dut.rx.value = 0        # a break
    await host.wait(30)
    await _refused(host, b"", Status.LINE)
    assert await host.read(0, 2) == [11, 12]


@cocotb.test()
@pytest.mark.testpoint("impatient_host")
async def impatient_host(dut):
    """A frame or a single byte that is sent before the reply is over is refused behind it, nothing of it is done, and
    the next frame is taken."""
    host = await _begin(dut)
    await host.write(0, [1, 2, 3])
    await host.send(frames.read_request(0, 3) + frames.write_request(0, [9]))
    assert frames.opened(await host.answer(3)) == (1, 2, 3)
    await _refused(host, b"", Status.LINE)
    assert await host.read(0, 3) == [1, 2, 3]
    for bits in range(1, 76, 4):    # a byte at any time of the reply, its last byte included
        await host.send(frames.read_request(0, 1))
        await host.wait(bits)
        await host.send(b"R")
        assert frames.opened(await host.answer(1)) == (1,)
        reply = await host.answer(limit_bits=200)
        with pytest.raises(Refused) as told:
            frames.opened(reply)
        assert told.value.status in (Status.LINE, Status.TIMEOUT), told.value     # before and after the reply's end
    assert await host.read(0, 3) == [1, 2, 3]


@cocotb.test()
@pytest.mark.testpoint("glitches")
async def glitches(dut):
    """Starts shorter than half a bit, a line that is low for long: no byte, or none that is taken for sound. A frame
    that begins as soon as such a start is over is taken."""
    host = await _begin(dut)
    for cycles in range(DIVISOR // 2, 2 * DIVISOR):
        await FallingEdge(dut.clk)
        dut.rx.value = 0
        await Timer(PERIOD_NS, "ns")
        dut.rx.value = 1
        await Timer(cycles * PERIOD_NS, "ns")
        assert await host.read(BOARD_BASE, 1) == [IDENTITY], f"{cycles} cycles behind a glitch"
    for _ in range(5):
        dut.rx.value = 0
        await Timer(PERIOD_NS, "ns")
        dut.rx.value = 1
        await host.wait(12)
    assert await host.read(BOARD_BASE, 1) == [IDENTITY]
    assert not host.received


@cocotb.test()
@pytest.mark.testpoint("registers")
async def lamps_and_reset_register(dut):
    """One lamp blinks, the others show frames, refusals and resets; the register resets where bit 0 is written, for its
    cycles, and reads 0 after them. A reset of the board puts the lamps out."""
    host = await _begin(dut)

    async def lit(cycles=2 << CONFIG.lamp_log2):
        shown = 0
        for _ in range(cycles):
            await RisingEdge(dut.clk)
            shown |= int(dut.lamps.value)
        return {name for k, name in enumerate(LAMPS) if shown >> k & 1}

    seen = []
    for _ in range(3 << CONFIG.lamp_log2):
        await RisingEdge(dut.clk)
        seen.append(int(dut.lamps.value) >> LAMPS.index("alive") & 1)
    turns = [at for at in range(1, len(seen)) if seen[at] != seen[at - 1]]
    assert {b - a for a, b in pairwise(turns)} == {1 << CONFIG.lamp_log2 - 1}, turns

    await host.write(0, [42])
    for word, lamps in ((0xFFFF_FFFE, {"alive"}), (1, {"alive", "held"})):
        await lit()
        watching = cocotb.start_soon(lit(1200))
        await host.write(BOARD_BASE + REGISTERS["reset"], [word])
        assert await watching - {"frame"} == lamps, f"{word:#x}"
        assert await host.read(BOARD_BASE + REGISTERS["reset"], 1) == [0]
    assert await host.read(0, 1) == [42], "the contents stay"
    await _refused(host, frames.read_request(2, 1), Status.ADDRESS)
    assert await lit() >= {"alive", "refused"}
    host.stop()
    await reset(dut)
    assert "refused" not in await lit()


@pytest.mark.turns(1, of="beside the product")
@pytest.mark.parametrize("number", seeds())
def test_link(number):
    simulate(Board(None, CONFIG), "verif.board.test_link", name="board_link", tests=11, seed=number)


def test_illegal_config_wrong():
    """Divisors and gaps that cannot be are refused with a sentence."""
    for divisor in (3, 0, 1 << 16, 4.5):
        with pytest.raises(ValueError, match="divisor must be from 4 to 65535 cycles a bit, not"):
            Receiver(divisor=divisor)
        with pytest.raises(ValueError, match="divisor must be from 4 to 65535 cycles a bit, not"):
            Transmitter(divisor=divisor)
    with pytest.raises(ValueError, match="gap_cycles must be at least 1, not 0"):
        Link(gap_cycles=0)


@pytest.mark.testpoint("check")
def test_the_crc_is_the_one_that_the_page_names():
    """The check bytes are those of two other libraries' CRC: Python's binascii and Amaranth's catalogue."""
    from amaranth.lib.crc import catalog

    content = bytes(seed(f"{k}") & 0xFF for k in range(64))
    assert catalog.CRC16_IBM_3740(data_width=8).compute(content) == binascii.crc_hqx(content, 0xFFFF)
    assert binascii.crc_hqx(sealed(content), 0xFFFF) == 0
