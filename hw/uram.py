"""One UltraRAM of AMD's UltraScale+ with its own error correction, which takes no logic of the fabric."""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Signal
from amaranth.lib import data
from amaranth.lib.wiring import In, Out

from hw.place import Part
from hw.secded import DATA_BITS

LINES = 4096
ADDRESS_BITS = 23       # of the primitive; the upper eleven choose among cascaded memories
CHECK_BITS = 8
CASCADE = {"ADDR": ADDRESS_BITS, "BWE": 9, "DBITERR": 1, "DIN": 72, "DOUT": 72, "EN": 1, "RDACCESS": 1, "RDB_WR": 1,
           "SBITERR": 1}


def read_layout() -> data.StructLayout:
    """A word as it is read, and whether one flipped bit was put right in it or two were found."""
    return data.StructLayout({"data": DATA_BITS, "corrected": 1, "uncorrectable": 1})


class ProtectedUram(Part):
    """4,096 words of 64 bits, each with eight check bits that the memory makes and looks at by itself.

    a = memory[a_address]; b = memory[b_address].      Source: AMD UG573, UG974 (URAM288)

    Members     a_address  In
                a          Out  see `read_layout`
                b_address  In  to read or write
                b          Out  see `read_layout`
                write      In  a write at b_address, whose read of that cycle is void
                word       In
                flips      In(2)  to try out the error correction: a word that is written with one of them set is
                    stored with one bit flipped, with both with two
    Timing      latency 4 cycles from address to data: input register, array, output register, register behind the
                correction; one access a port and cycle. A read by port a in the cycle of a write gets the old word
    Handshake   none: whoever asked for a word qualifies the flags
    Numerics    a double error is handed on as it is read; three flips or more may pass for a single one
    Reset       contents stay, words on their way too. At configuration all words are 0
    Golden      golden.secded.decode          Tests  verif/test_uram.py
    """

    latency = 4

    a_address: In(range(LINES))
    a: Out(read_layout())
    b_address: In(range(LINES))
    b: Out(read_layout())
    write: In(1)
    word: In(DATA_BITS)
    flips: In(2)

    def elaborate(self, platform):
        m = Module()
        pins: dict = {"i_CLK": ClockSignal(), "i_SLEEP": Const(0)}
        none = Const(0, len(self.word))
        for port, address, read, write, word, flips in (
            ("A", self.a_address, self.a, Const(0), none, Const(0, 2)),
            ("B", self.b_address, self.b, self.write, self.word, self.flips),
        ):
            check = Signal(CHECK_BITS, name=f"check_{port}")
            # Of no cascade: low.
            pins |= {f"i_CAS_IN_{name}_{port}": Const(0, bits) for name, bits in CASCADE.items()}
            pins |= {f"p_{name}_{port}": "TRUE" for name in ("EN_ECC_RD", "EN_ECC_WR", "IREG_PRE", "OREG", "OREG_ECC")}
            pins |= {
                f"i_ADDR_{port}": Cat(address, Const(0, ADDRESS_BITS - len(address))),
                f"i_EN_{port}": Const(1), f"i_RDB_WR_{port}": write, f"i_BWE_{port}": Const(~0, 9),
                f"i_DIN_{port}": Cat(word, Const(0, CHECK_BITS)),
                f"i_INJECT_SBITERR_{port}": flips.xor(), f"i_INJECT_DBITERR_{port}": flips.all(),
                f"i_OREG_CE_{port}": Const(1), f"i_OREG_ECC_CE_{port}": Const(1), f"i_RST_{port}": Const(0),
                f"o_DOUT_{port}": Cat(read.data, check),
                f"o_SBITERR_{port}": read.corrected, f"o_DBITERR_{port}": read.uncorrectable,
            }
        m.submodules.uram = Instance("URAM288", **pins)
        return m
