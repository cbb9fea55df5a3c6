"""Row number to the addresses of its core slices, one per cycle, for mode sizes of any value."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from hw.attributes import KEEP
from hw.place import Part, place
from hw.tt.descriptor import descriptor_parts


def lookup_layout(config: Any) -> data.StructLayout:
    """What the unit is asked: a row of a table, and whether a chunk begins, ends with it."""
    chunk = {"begin": 1, "end": 1} if config.chunk_log2 else {}
    return data.StructLayout({"table": (config.tables - 1).bit_length(), "index": config.index_bits, **chunk})


def slices_layout(config: Any) -> data.StructLayout:
    """A lookup as the lanes take it: where its slices begin, and what identifies its first product."""
    return data.StructLayout({
        "table": (config.tables - 1).bit_length(),
        "first_index": config.mode_bits,
        "second_index": config.mode_bits,
        "first": config.x_bits,
        "middle": config.x_bits,
        "last": config.x_bits,
        "second": config.y_bits,
        "outside": 1,
        **({"end": 1} if config.chunk_log2 else {}),
    })


class Divider(Part):
    """Divides by any number: quotient and remainder by non-restoring subtraction, a bit a stage.

    dividend = quotient * (less_one + 1) + remainder.      Source: radix-2 non-restoring division

    Parameters  bits: width of the dividend; divisor_bits: width of less_one
    Members     dividend  In
                less_one  In  the divisor less one
                quotient, remainder  Out
    Timing      latency `bits` cycles, one division per cycle; a carry chain and one LUT level a stage, and as much from
                the last register to the remainder
    Handshake   none: a pipeline that never stops
    Reset       keeps nothing but what is under way, which a reset does not touch
    Golden      Python's divmod          Tests  verif/tt/test_index.py
    """

    def __init__(self, *, bits: int, divisor_bits: int):
        if divisor_bits > bits:
            raise ValueError(f"divisor_bits must be at most bits = {bits}, not {divisor_bits}")
        self.bits = bits
        self.divisor_bits = divisor_bits
        super().__init__({
            "dividend": In(bits),
            "less_one": In(divisor_bits),
            "quotient": Out(bits),
            "remainder": Out(divisor_bits),
        })

    @property
    def latency(self) -> int:
        return self.bits

    def elaborate(self, platform):
        m = Module()
        # The dividend leaves its register at the top as the signs, which the quotient is the complement of, enter at
        # the bottom. The rest is from minus the divisor on to the divisor less one: where it is negative, the divisor
        # is added in the next place instead of being subtracted.
        work, rest, less_one = self.dividend, Const(0, self.divisor_bits + 1), self.less_one
        for bit in range(self.bits):
            next_work = Signal(self.bits - 1, name=f"work_{bit}", reset_less=True)
            next_rest = Signal(self.divisor_bits + 1, name=f"rest_{bit}", reset_less=True)
            next_less = Signal(self.divisor_bits, name=f"less_{bit}", reset_less=True)
            m.d.sync += next_rest.eq(_step(Cat(work[-1], rest), less_one, rest[-1]))
            m.d.sync += next_work.eq(work[:-1])
            m.d.sync += next_less.eq(less_one)
            work, rest, less_one = Cat(next_rest[-1], next_work), next_rest, next_less
        m.d.comb += self.quotient.eq(~work)
        m.d.comb += self.remainder.eq(Mux(rest[-1], _step(rest, less_one, Const(1, 1)), rest))
        return m


def _step(rest, less_one, adds):
    """`rest` and a divisor more or less in one carry chain: less_one + 1, or ~less_one, which is -less_one - 1."""
    change = Cat(less_one, Const(0, 1)) ^ (~adds).replicate(len(less_one) + 1)
    return (Cat(Const(1, 1), rest[:len(change)]) + Cat(adds, change))[1:len(change) + 1]


def _delay(m: Module, name: str, value, cycles: int):
    """`value` as it was `cycles` ago."""
    for at in range(cycles):
        held = Signal(value.shape(), name=f"{name}_{at}", reset_less=True)
        m.d.sync += held.eq(value)
        value = held
    return value


class IndexSplitter(wiring.Component):
    """Splits row numbers into mode indices and turns these into slice addresses.

    i = ((i_1 I_2 + i_2) I_3 + i_3) ..; address_k = base_k + i_k stride_k.      Source: SCRec §III.E, eq. 38

    Parameters  config: TTConfig, or the Splitting of hw.tt.serial_config
    Members     i_valid, i  In  a lookup
                o_valid, o  Out  its slices
                write, part, table, words  In  loads part 0 (sizes) or 1 (bases, strides) of a table's descriptor
    Timing      latency 3 * index_bits + 5 cycles, one lookup per cycle
    Handshake   none: whoever feeds it keeps account of what is under way
    Numerics    a row number past the table is marked `outside` and split as row 0
    Reset       clears what is under way; descriptors stay
    Golden      golden.tt.rows.split          Tests  verif/tt/test_index.py
    """

    def __init__(self, config: Any):
        self.config = config
        split, where, *_ = descriptor_parts(config)
        super().__init__({
            "i_valid": In(1),
            "i": In(lookup_layout(config)),
            "o_valid": Out(1),
            "o": Out(slices_layout(config)),
            "write": In(1),
            "part": In(2),
            "table": In((config.tables - 1).bit_length()),
            "words": In(max(split.size, where.size)),
        })

    @property
    def latency(self) -> int:
        return 3 * self.config.index_bits + 5

    def elaborate(self, platform):
        m = Module()
        config = self.config
        bits, mode_bits = config.index_bits, config.mode_bits
        split, where, *_ = descriptor_parts(config)

        ports = []
        for number, layout in enumerate((split, where)):
            store = memory.Memory(shape=layout.size, depth=config.tables, init=[])
            m.submodules[f"part_{number}"] = store
            write, read = store.write_port(), store.read_port(domain="comb")
            m.d.comb += write.addr.eq(self.table)
            m.d.comb += write.data.eq(self.words)
            m.d.comb += write.en.eq(self.write & (self.part == number))
            ports.append(read)

        # Sizes, then the range check.
        sizes = Signal(split, reset_less=True)
        asked = Signal(lookup_layout(config), reset_less=True)
        m.d.comb += ports[0].addr.eq(self.i.table)
        m.d.sync += sizes.eq(ports[0].data)
        m.d.sync += asked.eq(self.i)

        inside = Signal()
        index = Signal(bits, reset_less=True)
        outside = Signal(reset_less=True)
        less_one = [Signal(mode_bits, name=f"{name}_less_one", reset_less=True)
                    for name in ("last", "middle", "second")]
        table = Signal(len(self.table), reset_less=True)
        m.d.comb += inside.eq(asked.index < sizes.rows)
        m.d.sync += [
            index.eq(Mux(inside, asked.index, 0)),
            outside.eq(~inside),
            Cat(less_one).eq(Cat(sizes.last, sizes.middle, sizes.second)),
            table.eq(asked.table),
        ]

        # Three divisions one after the other; the last quotient is i_1.
        dividend, indices = index, []
        for at, name in enumerate(("last", "middle", "second")):
            divider = Divider(bits=bits, divisor_bits=mode_bits)
            place(m, platform, f"divide_{name}", divider)
            m.d.comb += divider.dividend.eq(dividend)
            m.d.comb += divider.less_one.eq(_delay(m, f"size_{name}", less_one[at], at * bits))
            dividend = divider.quotient
            indices.append(_delay(m, f"index_{name}", divider.remainder, (2 - at) * bits))
        indices.append(dividend[:mode_bits])
        early = _delay(m, "flags", Cat(outside, table), 3 * bits - 1)
        flags = _delay(m, "flags_late", early, 1)

        # Bases and strides, behind two registers, which a block memory has; products, sums.
        fetched, bases = (Signal(where, name=name, reset_less=True) for name in ("fetched", "bases"))
        # `keep`: no part of a shift register, whose output comes late for a product.
        held = [Signal(mode_bits, name=f"held_{k}", reset_less=True, attrs=KEEP) for k in range(4)]
        m.d.comb += ports[1].addr.eq(early[1:])
        m.d.sync += fetched.eq(ports[1].data)
        m.d.sync += bases.eq(fetched)
        m.d.sync += [to.eq(value) for to, value in zip(held, indices, strict=True)]

        sliced = Signal(slices_layout(config), reset_less=True)
        for name, value in zip(("last", "middle", "second", "first"), held, strict=True):
            width = len(bases[name])
            offset = Signal(width, name=f"{name}_offset", reset_less=True)
            base = Signal(width, name=f"{name}_base", reset_less=True)
            m.d.sync += offset.eq(value * bases[f"{name}_stride"])
            m.d.sync += base.eq(bases[name])
            m.d.sync += sliced[name].eq(base + offset)
        late = _delay(m, "late", flags, 2)
        m.d.sync += [
            sliced.first_index.eq(_delay(m, "late_first", held[3], 1)),
            sliced.second_index.eq(_delay(m, "late_second", held[2], 1)),
            sliced.outside.eq(late[0]),
            sliced.table.eq(late[1:]),
        ]
        if config.chunk_log2:
            m.d.sync += sliced.end.eq(_delay(m, "end", self.i.end, self.latency - 1))

        valid = Signal(self.latency)
        m.d.sync += valid.eq(Cat(self.i_valid, valid[:-1]))
        m.d.comb += self.o.eq(sliced)
        m.d.comb += self.o_valid.eq(valid[-1])
        return m
