"""The frames that a host and the serial link of a board exchange, as bytes. The protocol: hw.board.link."""

import struct
from binascii import crc_hqx
from collections.abc import Sequence

from hw.board.link import READ, WORDS_MAX, WRITE, Status

__all__ = ["WORDS_MAX", "Refused", "opened", "read_request", "reply_bytes", "sealed", "write_request"]


class Refused(ValueError):
    """A reply that is not what was asked for: `status` says why, None where the reply itself is broken."""

    def __init__(self, sentence: str, status: Status | None):
        super().__init__(sentence)
        self.status = status


def sealed(content: bytes) -> bytes:
    """Bytes with their check behind them.

    >>> sealed(b"123456789").hex()[-4:]
    '29b1'
    """
    return content + crc_hqx(content, 0xFFFF).to_bytes(2, "big")


def read_request(address: int, count: int) -> bytes:
    """Asks for `count` words from `address` on."""
    return sealed(struct.pack("<BIH", READ, address, count))


def write_request(address: int, words: Sequence[int]) -> bytes:
    """Puts words at `address` and behind it."""
    return sealed(struct.pack(f"<BIH{len(words)}I", WRITE, address, len(words), *words))


def reply_bytes(count: int) -> int:
    """Length of a reply that brings `count` words; of a write's, and of a refusal, that of 0 words."""
    return 1 + 4 * count + 2


def opened(reply: bytes) -> tuple[int, ...]:
    """The words that a reply brings.

    Raises      Refused: the link refused the frame, or the reply is shorter than it has to be or damaged
    """
    if len(reply) < reply_bytes(0) or crc_hqx(reply, 0xFFFF):
        raise Refused(f"a reply of {len(reply)} bytes whose check does not fit", None)
    status, body = Status(reply[0]), reply[1:-2]
    if status is not Status.OK:
        raise Refused(f"the board refused the frame: {status.name}", status)
    return struct.unpack(f"<{len(body) // 4}I", body)
