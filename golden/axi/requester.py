"""Requests for long runs of beats and for rows at a distance, cycle by cycle."""

REQUEST = 1 << 15       # beats of a request at most


class Requester:
    """hw.axi.requester.request_beats. o: the request that stands there, (address, beats) in beats; asking: as there."""

    def __init__(self) -> None:
        self.o: tuple[int, int] | None = None
        self.asking = False
        self._address = self._span = self._left = self._stride = 0

    def begin(self, address: int, span: int, *, less_one: int = 0, stride: int = 0) -> None:
        """The edge of `start`; `step` comes before it."""
        self._address, self._span, self._left, self._stride = address, span, less_one, stride
        self.asking = True

    def step(self, *, taken: bool, start: bool = False, hold: bool = False) -> None:
        """taken: `o` leaves; start: `begin` follows."""
        if taken:
            self.o = None
        if not start and self.asking and self.o is None and not hold:
            whole = self._span >= REQUEST
            self.o = (self._address, min(self._span, REQUEST)) if self._span else None
            self.asking = whole or self._left != 0
            if whole:
                self._address, self._span = self._address + REQUEST, self._span - REQUEST
            else:
                self._address, self._left = self._address + self._stride, self._left - 1
