"""One memory for a host and a core's two masters, in a shell that waits 8 us for an answer and no longer."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from hw.axi.bus import AXI4, INCR, block_beats, check_beat_bytes
from hw.place import Part
from hw.stream.fifo import Fifo
from hw.stream.round_robin import round_robin
from hw.stream.skid_buffer import SkidBuffer

ID_BITS = 16            # of the shell's ports and of sh_ddr
SOURCE_BITS = 2
HOST_ID_BITS = ID_BITS - SOURCE_BITS - 1
HOST, M00, M01 = SOURCES = range(3)
DECERR = 3
WRITES = 16             # bursts of a core that the memory has not answered
ORDER = 4               # bursts whose data it has not taken


def _address() -> data.StructLayout:
    return data.StructLayout({"addr": 64, "len": 8, "id": HOST_ID_BITS, "source": SOURCE_BITS, "outside": 1})


class Interconnect(Part):
    """Joins a host's port and a core's two masters on one AXI4 memory.

    The memory's IDs are {outside[15], source[14:13], id[12:0]}, by which answers find their way back in whatever order
    they come. Addresses are cut to `address_bits` and to whole beats; a burst from beyond is `outside`.
    Source: AXI4 (IHI 0022); AWS Shell Interface Specification (F2): PCIS and its time-out

    Parameters  beat_bytes: 4 to 64; address_bits: of the memory; core_beats: of the core's reads in flight, a power of
                two, at least twice its longest burst
    Members     host              In(AXI4, 16 ID bits)  bits 12..0 of an ID come back, the others as 0
                m00_axi, m01_axi  In(AXI4)  masters of hw.axi: rready and bready are high when an answer comes, and a
                    burst's data follow its address with no pause that the core makes
                memory            Out(AXI4, 16 ID bits)  INCR, full width
    Timing      from the host to the memory 2 cycles for an address and 3 for a beat, from a core 1 and 3; back to the
                host 2 cycles, to a core 1. An address, a beat and an answer per cycle in each direction
    Handshake   the host's addresses go first, the two masters' in turn. The memory has at most core_beats of the
                core's reads to answer, and as many of its writes, in at most 16 bursts of each master, so the host
                never waits for more than these. Data never go before their address. All outputs to memory and host
                come from registers
    Faults      a burst outside is answered DECERR; it reads what lies at the address that is left, and writes nothing.
                The memory's own errors reach the one who asked
    Reset       drops everything: only together with the memory
    Raises      ValueError: beat_bytes, address_bits or core_beats out of range
    Golden      an array of bytes          Tests  verif/f2/test_interconnect.py
    """

    def __init__(self, *, beat_bytes: int, address_bits: int, core_beats: int = 256):
        check_beat_bytes(beat_bytes)
        if type(address_bits) is not int or not 13 <= address_bits <= 63:
            raise ValueError(f"address_bits must be 13 to 63, not {address_bits!r}")
        self.burst_beats = block_beats(beat_bytes)      # a core's longest
        least = 2 * self.burst_beats
        if type(core_beats) is not int or core_beats < least or core_beats & (core_beats - 1):
            raise ValueError(f"core_beats must be a power of two of at least {least}, not {core_beats!r}")
        self.beat_bytes, self.address_bits, self.core_beats = beat_bytes, address_bits, core_beats
        port, shell = AXI4(8 * beat_bytes), AXI4(8 * beat_bytes, id_bits=ID_BITS)
        super().__init__({"host": In(shell), "m00_axi": In(port), "m01_axi": In(port), "memory": Out(shell)})

    def elaborate(self, platform):
        m = Module()
        self._read(m)
        self._write(m)
        for prefix in ("ar", "aw"):
            for name in ("lock", "cache", "prot", "qos", "region"):
                m.d.comb += getattr(self.memory, prefix + name).eq(0)
        return m

    def _buffer(self, m: Module, name: str, shape) -> SkidBuffer:
        m.submodules[name] = buffer = SkidBuffer(shape)
        return buffer

    def _arbiter(self, m: Module, prefix: str, room: list) -> tuple[list[Signal], stream.Interface]:
        """An address channel: who is granted, by source, and the stream of addresses that goes to the memory.

        room: whether a source may go, besides the memory's own readiness.
        """
        memory, cores = self.memory, (self.m00_axi, self.m01_axi)
        ahead = self._buffer(m, f"{prefix}_ahead", _address())
        host = self._buffer(m, f"{prefix}_host", _address())
        m.d.comb += [
            host.i.valid.eq(getattr(self.host, f"{prefix}valid")),
            host.i.payload.addr.eq(getattr(self.host, f"{prefix}addr")),
            host.i.payload.len.eq(getattr(self.host, f"{prefix}len")),
            host.i.payload.id.eq(getattr(self.host, f"{prefix}id")),
            host.i.payload.source.eq(HOST),
            getattr(self.host, f"{prefix}ready").eq(host.i.ready),
        ]
        granted = [Signal(name=f"{prefix}_granted_{source}") for source in SOURCES]
        valid = (host.o.valid, *(getattr(core, f"{prefix}valid") for core in cores))
        wants = [valid[source] & room[source] & ahead.i.ready for source in SOURCES]
        last = Signal(len(cores), name=f"{prefix}_last")
        turns = round_robin(wants[M00:], last)
        m.d.comb += granted[HOST].eq(wants[HOST])
        m.d.comb += host.o.ready.eq(granted[HOST])
        for source, core in zip((M00, M01), cores, strict=True):
            m.d.comb += granted[source].eq(turns[source - M00] & ~wants[HOST])
            m.d.comb += getattr(core, f"{prefix}ready").eq(granted[source])
        with m.If(granted[M00] | granted[M01]):
            m.d.sync += last.eq(Cat(granted[M00:]))

        chosen = Signal(_address(), name=f"{prefix}_chosen")
        m.d.comb += ahead.i.valid.eq(Cat(granted).any())
        m.d.comb += ahead.i.payload.eq(chosen)
        with m.If(granted[HOST]):
            m.d.comb += chosen.eq(host.o.payload)
        for source, core in zip((M00, M01), cores, strict=True):
            with m.If(granted[source]):
                m.d.comb += chosen.addr.eq(getattr(core, f"{prefix}addr"))
                m.d.comb += chosen.len.eq(getattr(core, f"{prefix}len"))
                m.d.comb += chosen.source.eq(source)
        m.d.comb += ahead.i.payload.outside.eq(chosen.addr[self.address_bits:].any())

        beat_log2, out = (self.beat_bytes - 1).bit_length(), ahead.o.payload
        m.d.comb += [
            getattr(memory, f"{prefix}valid").eq(ahead.o.valid),
            getattr(memory, f"{prefix}addr").eq(out.addr[beat_log2:self.address_bits] << beat_log2),
            getattr(memory, f"{prefix}len").eq(out.len),
            getattr(memory, f"{prefix}id").eq(Cat(out.id, out.source, out.outside)),
            getattr(memory, f"{prefix}size").eq(beat_log2),
            getattr(memory, f"{prefix}burst").eq(INCR),
            ahead.o.ready.eq(getattr(memory, f"{prefix}ready")),
        ]
        return granted, ahead.i

    def _read(self, m: Module) -> None:
        room = Signal(name="ar_room")
        granted, addresses = self._arbiter(m, "ar", [Const(1), room, room])
        taken = self._answers(m, "r", {"data": 8 * self.beat_bytes, "last": 1})
        self._limit(m, "ar", room, granted, addresses, taken[M00] | taken[M01])

    def _limit(self, m: Module, prefix: str, room: Signal, granted: list[Signal], addresses, answered) -> None:
        """Whether a burst of the core may go: its beats in flight stay below core_beats. answered: beats that leave."""
        beats = Signal(self.core_beats.bit_length(), name=f"{prefix}_beats")
        asks = Signal(name=f"{prefix}_asks")
        more = Signal(range(self.burst_beats), name=f"{prefix}_more")       # beats of the burst, less one
        m.d.comb += room.eq(beats < self.core_beats - self.burst_beats)
        m.d.comb += asks.eq(granted[M00] | granted[M01])
        m.d.comb += more.eq(Mux(asks, addresses.payload.len, 0))
        m.d.sync += beats.eq(beats + more + asks - answered)

    def _write(self, m: Module) -> None:
        m.submodules.order = order = Fifo(data.StructLayout({"source": SOURCE_BITS, "outside": 1}), depth=ORDER)
        room = Signal(name="aw_room")
        sizes = [Fifo(range(self.burst_beats + 1), depth=WRITES) for _ in (M00, M01)]    # beats of unanswered bursts
        m.submodules.sizes_0, m.submodules.sizes_1 = sizes
        granted, addresses = self._arbiter(
            m, "aw", [order.i.ready, *(order.i.ready & room & size.i.ready for size in sizes)])
        taken = self._answers(m, "b", {})
        for source, size in zip((M00, M01), sizes, strict=True):
            m.d.comb += size.i.valid.eq(granted[source])
            m.d.comb += size.i.payload.eq(addresses.payload.len + 1)
            m.d.comb += size.o.ready.eq(taken[source])
        self._limit(m, "aw", room, granted, addresses,
                    Mux(taken[M00], sizes[0].o.payload, Mux(taken[M01], sizes[1].o.payload, 0)))
        m.d.comb += order.i.valid.eq(Cat(granted).any())
        m.d.comb += order.i.payload.source.eq(addresses.payload.source)
        m.d.comb += order.i.payload.outside.eq(addresses.payload.outside)
        beat = data.StructLayout({"data": 8 * self.beat_bytes, "strb": self.beat_bytes, "last": 1})
        ahead = self._buffer(m, "w_ahead", beat)
        for name in ("data", "strb", "last"):
            m.d.comb += getattr(self.memory, f"w{name}").eq(ahead.o.payload[name])
        m.d.comb += self.memory.wvalid.eq(ahead.o.valid)
        m.d.comb += ahead.o.ready.eq(self.memory.wready)
        m.d.comb += order.o.ready.eq(ahead.i.valid & ahead.i.ready & ahead.i.payload.last)
        turn = order.o.payload
        # A core's wready is the begin of long paths in it, so it comes from a register as the host's does.
        for source, side in zip(SOURCES, (self.host, self.m00_axi, self.m01_axi), strict=True):
            buffer = self._buffer(m, f"w_{source}", beat)
            for name in ("data", "strb", "last"):
                m.d.comb += buffer.i.payload[name].eq(getattr(side, f"w{name}"))
            mine = Signal(name=f"w_turn_{source}")
            m.d.comb += [
                buffer.i.valid.eq(side.wvalid),
                side.wready.eq(buffer.i.ready),
                mine.eq(order.o.valid & (turn.source == source)),
                buffer.o.ready.eq(mine & ahead.i.ready),
            ]
            with m.If(mine):
                m.d.comb += [
                    ahead.i.valid.eq(buffer.o.valid),
                    ahead.i.payload.data.eq(buffer.o.payload.data),
                    ahead.i.payload.strb.eq(buffer.o.payload.strb & (~turn.outside).replicate(self.beat_bytes)),
                    ahead.i.payload.last.eq(buffer.o.payload.last),
                ]

    def _answers(self, m: Module, prefix: str, fields: dict[str, int]) -> list[Signal]:
        """A channel of answers, back to who asked; whose is taken in this cycle, by source."""
        layout = data.StructLayout({"id": HOST_ID_BITS, "source": SOURCE_BITS, "outside": 1, "resp": 2, **fields})
        ahead = self._buffer(m, f"{prefix}_ahead", layout)
        host = self._buffer(m, f"{prefix}_host", layout)
        memory, got = self.memory, ahead.o.payload
        m.d.comb += [
            ahead.i.valid.eq(getattr(memory, f"{prefix}valid")),
            getattr(memory, f"{prefix}ready").eq(ahead.i.ready),
            Cat(*(ahead.i.payload[name] for name in ("id", "source", "outside"))).eq(getattr(memory, f"{prefix}id")),
            *(ahead.i.payload[name].eq(getattr(memory, prefix + name)) for name in ("resp", *fields)),
        ]
        response = Signal(2, name=f"{prefix}_response")
        m.d.comb += response.eq(Mux(got.outside, DECERR, got.resp))
        taken = [Signal(name=f"{prefix}_taken_{source}") for source in SOURCES]
        sides = [(host.i.valid, host.i.ready), *((getattr(core, f"{prefix}valid"), getattr(core, f"{prefix}ready"))
                                                 for core in (self.m00_axi, self.m01_axi))]
        for source, (valid, ready) in zip(SOURCES, sides, strict=True):
            m.d.comb += valid.eq(ahead.o.valid & (got.source == source))
            m.d.comb += taken[source].eq(valid & ready)
        m.d.comb += ahead.o.ready.eq(Cat(taken).any())
        m.d.comb += host.i.payload.eq(got)
        m.d.comb += host.i.payload.resp.eq(response)
        for core in (self.m00_axi, self.m01_axi):
            m.d.comb += getattr(core, f"{prefix}resp").eq(response)
            for name in fields:
                m.d.comb += getattr(core, prefix + name).eq(got[name])
        m.d.comb += [
            getattr(self.host, f"{prefix}valid").eq(host.o.valid),
            host.o.ready.eq(getattr(self.host, f"{prefix}ready")),
            *(getattr(self.host, prefix + name).eq(host.o.payload[name]) for name in ("id", "resp", *fields)),
        ]
        return taken
