"""Block memory in the place of a card's DRAM: two AXI4 ports for a core, one port of words for a host."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import memory
from amaranth.lib.wiring import In

from hw.axi.bus import AXI4, INCR, AXI4Lite, check_beat_bytes
from hw.board.link import ADDRESS_BITS
from hw.place import Part

OKAY, SLVERR, DECERR = 0, 2, 3
WORD_BYTES = 4


class BoardMemory(Part):
    """Answers a core's two masters and a host out of one block memory that begins at address 0.

    Parameters  beat_bytes: of the core's ports; size_bytes: of the memory, a power of two
    Members     m00_axi, m01_axi  In(AXI4)
                host              In(AXI4-Lite)  words
    Timing      one beat read and one beat written per cycle, the host's words before the ports', the ports in turn; a
                port reads a beat every 2 cycles at most and writes one per cycle. 2 cycles from a taken read address to
                its beat
    Handshake   one burst a port and direction at a time, its address is taken when the one before it is answered.
                arready, awready, rvalid and bvalid come from registers; wready depends on wvalid, as AXI4 allows.
                A burst may begin inside a beat
    Faults      beats behind the end read 0 with DECERR, and written change nothing; a write's response is the worst of
                its beats. A burst that is not INCR or not of full beats is answered SLVERR and changes nothing.
                wlast is not looked at: awlen says how many beats there are
    Reset       the ports forget their bursts; the contents stay
    Raises      ValueError: beat_bytes that no port has; a size that is no power of two of at least two beats
    Golden      an array of bytes          Tests  verif/board/test_memory.py
    """

    def __init__(self, *, beat_bytes: int, size_bytes: int):
        check_beat_bytes(beat_bytes)
        if type(size_bytes) is not int or size_bytes & (size_bytes - 1) or not 2 * beat_bytes <= size_bytes <= 1 << 28:
            raise ValueError(f"size_bytes must be a power of two from {2 * beat_bytes} to {1 << 28}, "
                             f"not {size_bytes!r}")
        self.beat_bytes, self.size_bytes = beat_bytes, size_bytes
        super().__init__({
            "m00_axi": In(AXI4(8 * beat_bytes)), "m01_axi": In(AXI4(8 * beat_bytes)),
            "host": In(AXI4Lite(ADDRESS_BITS)),
        })

    @property
    def beat_log2(self) -> int:
        return (self.beat_bytes - 1).bit_length()

    @property
    def index_bits(self) -> int:
        """Bits of a beat's number."""
        return (self.size_bytes // self.beat_bytes - 1).bit_length()

    def elaborate(self, platform):
        m = Module()
        m.submodules.store = store = memory.Memory(
            shape=8 * self.beat_bytes, depth=1 << self.index_bits, init=[], attrs={"ram_style": "block"})
        read, write = store.read_port(), store.write_port(granularity=8)
        ports = {"m00": self.m00_axi, "m01": self.m01_axi}
        host_reads = self._host_read(m, read)
        readers = [self._reader(m, name, bus, read) for name, bus in ports.items()]
        self._share(m, "read", host_reads, readers)
        host_writes = self._host_write(m, write)
        writers = [self._writer(m, name, bus, write) for name, bus in ports.items()]
        self._share(m, "write", host_writes, writers)
        return m

    def _share(self, m: Module, name: str, host: Signal, sides: list) -> None:
        """Who has the memory in this cycle: the host first, then the ports in turn. A side is (want, grant, use)."""
        last = Signal(name=f"{name}_last")
        (want0, grant0, use0), (want1, grant1, use1) = sides
        m.d.comb += grant0.eq(want0 & ~host & (~want1 | last))
        m.d.comb += grant1.eq(want1 & ~host & ~grant0)
        with m.If(grant0 | grant1):
            m.d.sync += last.eq(grant1)
        for grant, use in ((grant0, use0), (grant1, use1)):
            with m.If(grant):
                use()

    # -- The host's words.

    def _outside(self, address) -> Signal:
        return address[self.beat_log2 + self.index_bits:].any()

    def _host_read(self, m: Module, read) -> Signal:
        bus, coming, lane = self.host, Signal(name="host_coming"), Signal(max(1, self.beat_log2 - 2), name="host_lane")
        want, outside = Signal(name="host_read"), Signal(name="host_read_outside")
        m.d.comb += want.eq(bus.arvalid & ~coming & ~bus.rvalid)
        m.d.comb += bus.arready.eq(want)
        m.d.sync += coming.eq(want)
        with m.If(want):
            m.d.comb += read.en.eq(1)
            m.d.comb += read.addr.eq(bus.araddr[self.beat_log2:])
            m.d.sync += lane.eq(bus.araddr[2:self.beat_log2])
            m.d.sync += outside.eq(self._outside(bus.araddr))
        with m.If(coming):
            m.d.sync += bus.rvalid.eq(1)
            m.d.sync += bus.rresp.eq(Mux(outside, DECERR, OKAY))
            m.d.sync += bus.rdata.eq(Mux(outside, 0, read.data.word_select(lane, 32)))
        with m.Elif(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        return want

    def _host_write(self, m: Module, write) -> Signal:
        bus, want = self.host, Signal(name="host_write")
        outside = self._outside(bus.awaddr)
        m.d.comb += want.eq(bus.awvalid & bus.wvalid & ~bus.bvalid)
        m.d.comb += bus.awready.eq(want)
        m.d.comb += bus.wready.eq(want)
        with m.If(want):
            lanes = self.beat_bytes // WORD_BYTES
            m.d.comb += write.addr.eq(bus.awaddr[self.beat_log2:])
            m.d.comb += write.data.eq(Cat(*[bus.wdata] * lanes))
            for lane in range(lanes):
                chosen = bus.awaddr[2:self.beat_log2] == lane if lanes > 1 else Const(1)
                m.d.comb += write.en[WORD_BYTES * lane:WORD_BYTES * (lane + 1)].eq(
                    Mux(chosen & ~outside, bus.wstrb, 0))
            m.d.sync += bus.bvalid.eq(1)
            m.d.sync += bus.bresp.eq(Mux(outside, DECERR, OKAY))
        with m.Elif(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        return want

    # -- The core's bursts.

    def _burst(self, m: Module, name: str, valid, ready, address, length, size, burst):
        """A burst that is taken when `ready`: its next beat, how many follow that, and whether it is a sound one."""
        at = Signal(64 - self.beat_log2, name=f"{name}_at", reset_less=True)
        left = Signal(8, name=f"{name}_left", reset_less=True)
        sound = Signal(name=f"{name}_sound", reset_less=True)
        active = Signal(name=f"{name}_active")
        with m.If(valid & ready):
            m.d.sync += [
                active.eq(1),
                at.eq(address[self.beat_log2:]),
                left.eq(length),
                sound.eq((burst == INCR) & (size == self.beat_log2)),
            ]
        response = Mux(~sound, SLVERR, Mux(at[self.index_bits:].any(), DECERR, OKAY))

        def step() -> None:
            m.d.sync += at.eq(at + 1)
            m.d.sync += left.eq(left - 1)
            with m.If(left == 0):
                m.d.sync += active.eq(0)

        return active, at, left, response, step

    def _reader(self, m: Module, name: str, bus, read):
        want, grant = Signal(name=f"{name}_read"), Signal(name=f"{name}_read_granted")
        active, at, left, response, step = self._burst(
            m, f"{name}_read", bus.arvalid, bus.arready, bus.araddr, bus.arlen, bus.arsize, bus.arburst)
        coming, last = Signal(name=f"{name}_coming"), Signal(name=f"{name}_last")
        answer = Signal(2, name=f"{name}_resp")
        # The next burst may be taken while the last beat of the one before waits.
        taken_id = Signal.like(bus.arid, name=f"{name}_id", reset_less=True)
        m.d.comb += bus.arready.eq(~active)
        m.d.comb += want.eq(active & ~coming & (~bus.rvalid | bus.rready))
        m.d.sync += coming.eq(grant)
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += taken_id.eq(bus.arid)
        with m.If(coming):
            m.d.sync += [
                bus.rvalid.eq(1),
                bus.rdata.eq(Mux(answer != OKAY, 0, read.data)),
                bus.rresp.eq(answer),
                bus.rlast.eq(last),
                bus.rid.eq(taken_id),
            ]
        with m.Elif(bus.rready):
            m.d.sync += bus.rvalid.eq(0)

        def use() -> None:
            m.d.comb += read.en.eq(1)
            m.d.comb += read.addr.eq(at)
            m.d.sync += last.eq(left == 0)
            m.d.sync += answer.eq(response)
            step()

        return want, grant, use

    def _writer(self, m: Module, name: str, bus, write):
        want, grant = Signal(name=f"{name}_write"), Signal(name=f"{name}_write_granted")
        active, at, left, response, step = self._burst(
            m, f"{name}_write", bus.awvalid, bus.awready, bus.awaddr, bus.awlen, bus.awsize, bus.awburst)
        m.d.comb += bus.awready.eq(~active & ~bus.bvalid)
        m.d.comb += want.eq(active & bus.wvalid)
        m.d.comb += bus.wready.eq(grant)
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += bus.bid.eq(bus.awid)
            m.d.sync += bus.bresp.eq(OKAY)
        with m.If(bus.bready):
            m.d.sync += bus.bvalid.eq(0)

        def use() -> None:
            m.d.comb += write.addr.eq(at)
            m.d.comb += write.data.eq(bus.wdata)
            m.d.comb += write.en.eq(Mux(response == OKAY, bus.wstrb, 0))
            with m.If(bus.bresp == OKAY):
                m.d.sync += bus.bresp.eq(response)
            with m.If(left == 0):
                m.d.sync += bus.bvalid.eq(1)
            step()

        return want, grant, use
