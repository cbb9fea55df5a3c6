"""A buffer of two registers, cycle by cycle."""

from typing import Any


class SkidBuffer:
    """hw.stream.skid_buffer.SkidBuffer. o: what stands at the output, None for nothing; `step` is the clock edge."""

    def __init__(self) -> None:
        self.o: Any = None
        self.held: Any = None   # what arrived while the output was blocked

    @property
    def ready(self) -> bool:
        return self.held is None

    def step(self, offered: Any, taken: bool) -> bool:
        """Whether what was offered has been taken. taken: `o` leaves."""
        arrives = offered is not None and self.ready
        if self.o is None or taken:
            self.o, self.held = (offered, None) if self.held is None else (self.held, None)
        elif arrives:
            self.held = offered
        return arrives
