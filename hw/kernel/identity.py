"""Which core this is, in which version and configuration: what the registers of every core's identity hold."""

import hashlib
from importlib.metadata import version

from hw.config import Config
from hw.isa import Kernel
from hw.isa.kernel import IDENTITY

DIGEST_BYTES = 8


def identity(kernel: Kernel, config: Config) -> tuple[tuple[str, int], ...]:
    """The registers' names and values, as they follow one another. Equal configurations have equal digests, whatever
    their presets are called; the digest is the begin of the SHA-256 of Config.key()."""
    digest = int.from_bytes(hashlib.sha256(config.key().encode()).digest()[:DIGEST_BYTES], "little")
    major, minor, patch = (int(number) for number in version("hotrail").split(".")[:3])
    values = kernel.number, major << 16 | minor << 8 | patch, digest & (1 << 32) - 1, digest >> 32
    return tuple(zip(IDENTITY, values, strict=True))
