"""On-chip memory for core slices: two ports a bank, every codeword protected."""

from amaranth.hdl import Array, Cat, Const, Module, Signal, Value
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out

from hw.attributes import UNREAD
from hw.place import Part, place
from hw.secded import DATA_BITS, WORD_BITS, Decoder

PIECE_LOG2 = 12     # of the words of which a block RAM gives nine bits each; a deeper one would lose the ninth


def selected(address: Value, depth: int) -> Value:
    """A bit for each piece of a bank of `depth` words: it has the word at `address`."""
    return Cat(address[PIECE_LOG2:] == number if depth > 1 << PIECE_LOG2 else Const(1, 1)
               for number in range(-(-depth // (1 << PIECE_LOG2))))


class Bank(Part):
    """A memory of 64-bit words, each with its eight check bits, read by every lane through a port of its own.

    data[l] = memory[address[l]], corrected.      Source: UltraScale URAM288: 4,096 x 72, two ports

    Parameters  depth: words; ports: 1 or 2; style: "ultra" or "block"
    Members     address          In  one a port
                write, codeword  In  writes at port 0's address, whose read of that cycle is void; a bit for each piece
                    of memory, of which the one with that address may be set
                data             Out  64 bits a port
                corrected, uncorrectable  Out  a bit a port
    Timing      latency 4 cycles from address to data (array, output register, decoder); one read a port and
                cycle
    Handshake   none
    Memory      in pieces of 4,096 words (`selected`), whose outputs a level of LUTs joins
    Reset       contents stay
    Golden      golden.secded.decode          Tests  verif/tt/test_unit.py, verif/test_secded.py
    """

    latency = 2 + Decoder.latency

    def __init__(self, *, depth: int, ports: int, style: str):
        if style not in ("ultra", "block"):
            raise ValueError(f"style must be 'ultra' or 'block', not {style!r}")
        self.depth = depth
        self.ports = ports
        self.style = style
        self.pieces = -(-depth // (1 << PIECE_LOG2))
        super().__init__({
            "address": In(data.ArrayLayout((depth - 1).bit_length(), ports)),
            "write": In(self.pieces),
            "codeword": In(WORD_BITS),
            "data": Out(data.ArrayLayout(DATA_BITS, ports)),
            "corrected": Out(ports),
            "uncorrectable": Out(ports),
        })

    def elaborate(self, platform):
        m = Module()
        pieces = [self._piece(m, number) for number in range(self.pieces)]
        corrected, uncorrectable = [], []
        for port in range(self.ports):
            found = [self._read(m, store, port) for store in pieces]
            held = Signal(WORD_BITS, name=f"held_{port}", reset_less=True)
            decoder = Decoder()
            place(m, platform, f"decoder_{port}", decoder)
            if len(pieces) == 1:
                m.d.sync += held.eq(found[0])
            else:
                number = Signal(range(len(pieces)), name=f"number_{port}", reset_less=True)
                m.d.sync += number.eq(self.address[port][PIECE_LOG2:])
                m.d.sync += held.eq(Array(found)[number])
            m.d.comb += decoder.codeword.eq(held)
            m.d.comb += self.data[port].eq(decoder.data)
            corrected.append(decoder.corrected)
            uncorrectable.append(decoder.uncorrectable)
        m.d.comb += self.corrected.eq(Cat(corrected))
        m.d.comb += self.uncorrectable.eq(Cat(uncorrectable))
        return m

    def _piece(self, m: Module, number: int) -> memory.Memory:
        """The words from number << PIECE_LOG2 on, as they are written."""
        depth = min(1 << PIECE_LOG2, self.depth - (number << PIECE_LOG2))
        store = memory.Memory(shape=WORD_BITS, depth=depth, init=[], attrs={
            **UNREAD, "ram_style": self.style})
        m.submodules["store" if self.pieces == 1 else f"store_{number}"] = store
        write = store.write_port()
        m.d.comb += write.addr.eq(self.address[0])
        m.d.comb += write.data.eq(self.codeword)
        m.d.comb += write.en.eq(self.write[number])
        return store

    def _read(self, m: Module, store: memory.Memory, port: int) -> Value:
        """What a port reads of a piece."""
        # That of port 0 in the cycle of a write, which is void, would take logic to hold.
        read = store.read_port()
        m.d.comb += read.addr.eq(self.address[port])
        return read.data
