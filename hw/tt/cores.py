"""On-chip memory for core slices: two ports a bank, every codeword protected."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, memory
from amaranth.lib.wiring import In, Out

from hw.place import Part, place
from hw.secded import DATA_BITS, WORD_BITS, Decoder

__all__ = ["Bank"]


class Bank(Part):
    """A memory of 64-bit words, each with its eight check bits, read by every lane through a port of its own.

    data[l] = memory[address[l]], corrected.      Source: UltraScale URAM288: 4,096 x 72, two ports

    Parameters  depth: words; ports: 1 or 2; style: "ultra" or "block"
    Members     address          In  one a port
                write, codeword  In  writes at port 0's address, whose read of that cycle is void
                data             Out  64 bits a port
                corrected, uncorrectable  Out  a bit a port
    Timing      latency 4 cycles from address to data (array, output register, decoder); one read a port and
                cycle
    Handshake   none
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
        super().__init__({
            "address": In(data.ArrayLayout((depth - 1).bit_length(), ports)),
            "write": In(1),
            "codeword": In(WORD_BITS),
            "data": Out(data.ArrayLayout(DATA_BITS, ports)),
            "corrected": Out(ports),
            "uncorrectable": Out(ports),
        })

    def elaborate(self, platform):
        m = Module()
        store = memory.Memory(shape=WORD_BITS, depth=self.depth, init=[], attrs={"ram_style": self.style})
        m.submodules.store = store
        write = store.write_port()
        m.d.comb += write.addr.eq(self.address[0])
        m.d.comb += write.data.eq(self.codeword)
        m.d.comb += write.en.eq(self.write)
        corrected, uncorrectable = [], []
        for port in range(self.ports):
            read = store.read_port()
            m.d.comb += read.addr.eq(self.address[port])
            if port == 0:
                # One physical port: it reads or writes.
                m.d.comb += read.en.eq(~self.write)
            held = Signal(WORD_BITS, name=f"held_{port}", reset_less=True)
            decoder = Decoder()
            place(m, platform, f"decoder_{port}", decoder)
            m.d.sync += held.eq(read.data)
            m.d.comb += decoder.codeword.eq(held)
            m.d.comb += self.data[port].eq(decoder.data)
            corrected.append(decoder.corrected)
            uncorrectable.append(decoder.uncorrectable)
        m.d.comb += self.corrected.eq(Cat(corrected))
        m.d.comb += self.uncorrectable.eq(Cat(uncorrectable))
        return m
