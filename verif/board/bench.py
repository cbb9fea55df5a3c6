"""The host's end of a board's serial line: bytes at any speed, frames, and words of the board's bus."""

from collections.abc import Sequence
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, Timer

from gen.rtl import frames

PERIOD_NS = 10


class SerialHost:
    """Sends and receives frames over `rx` and `tx` of a board.

    divisor: cycles of a bit. skew: by how much of a bit the host's own bits are longer than the board's. pauses: a
    random generator that stretches stop bits, if given.

    >>> host = SerialHost(dut, 8); await host.write(0, [1, 2]); await host.read(0, 2)          # doctest: +SKIP
    """

    def __init__(self, dut: Any, divisor: int, *, skew: float = 0.0, pauses: Any = None):
        self.dut, self.bit_ns = dut, divisor * PERIOD_NS
        self.sent_bit_ns = self.bit_ns * (1 + skew)
        self.pauses = pauses
        self.received = bytearray()
        dut.rx.value = 1
        self._task = cocotb.start_soon(self._receive())

    def stop(self) -> None:
        self._task.cancel()

    async def wait(self, bits: float) -> None:
        """Lets so many bits' time pass."""
        await Timer(round(bits * self.sent_bit_ns, 3), "ns", round_mode="round")

    async def send(self, content: bytes, *, stop_bit: int = 1) -> None:
        """Puts bytes on the line; a `stop_bit` of 0 breaks the last one."""
        rx = self.dut.rx
        for number, byte in enumerate(content):
            stop = stop_bit if number == len(content) - 1 else 1
            bits = [0, *(byte >> k & 1 for k in range(8)), stop]
            at = 0
            while at < len(bits):
                length = next((k for k in range(at, len(bits)) if bits[k] != bits[at]), len(bits)) - at
                rx.value = bits[at]
                at += length
                await self.wait(length)
            if self.pauses is not None and self.pauses.random() < 0.2:
                rx.value = 1
                await self.wait(self.pauses.random() * 12)
        rx.value = 1

    async def _receive(self) -> None:
        tx = self.dut.tx
        while True:
            if tx.value == 1:
                await FallingEdge(tx)
            await Timer(self.bit_ns // 2, "ns")
            assert tx.value == 0, "the board's start bit is shorter than half a bit"
            byte = 0
            for k in range(8):
                await Timer(self.bit_ns, "ns")
                byte |= int(tx.value) << k
            await Timer(self.bit_ns, "ns")
            assert tx.value == 1, "the board's stop bit is missing"
            self.received.append(byte)

    async def reply(self, count: int, *, limit_bits: float = 4000) -> bytes:
        """So many bytes, or those that came before nothing did for `limit_bits`."""
        waited = 0.0
        before = len(self.received)
        while len(self.received) < count and waited < limit_bits:
            await self.wait(2)
            waited = 0.0 if len(self.received) != before else waited + 2
            before = len(self.received)
        got = bytes(self.received[:count])
        del self.received[:count]
        return got

    async def exchange(self, request: bytes, count: int = 0, **options: Any) -> tuple[int, ...]:
        """Sends a frame; the words of its reply. Raises Refused."""
        await self.send(request)
        return frames.opened(await self.answer(count, **options))

    async def answer(self, count: int = 0, **options: Any) -> bytes:
        """A reply, which is short when it refuses."""
        first = await self.reply(1, **options)
        rest = frames.reply_bytes(count if first == b"\0" else 0) - 1
        return first + await self.reply(rest, **options)

    async def write(self, address: int, words: Sequence[int]) -> None:
        for at in range(0, len(words), frames.WORDS_MAX):
            part = words[at:at + frames.WORDS_MAX]
            assert await self.exchange(frames.write_request(address + 4 * at, part)) == ()

    async def read(self, address: int, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            part = min(frames.WORDS_MAX, count - len(found))
            found += await self.exchange(frames.read_request(address + 4 * len(found), part), part)
        return found

    # -- As the drivers of a card speak.

    async def write_bytes(self, address: int, content: bytes) -> None:
        """Bytes at a word's address; the last word is filled up with zeros."""
        content += bytes(-len(content) % 4)
        await self.write(address, memoryview(content).cast("I").tolist())

    async def read_bytes(self, address: int, size: int) -> bytes:
        words = await self.read(address, -(-size // 4))
        return b"".join(word.to_bytes(4, "little") for word in words)[:size]
