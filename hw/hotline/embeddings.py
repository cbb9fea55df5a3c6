"""The embedding buffer: cold rows on their way to the GPU, updated before they go back."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.axi.bus import read_layout
from hw.hotline.config import ROW_BEATS_LOG2_MAX, HotlineConfig
from hw.place import Part
from hw.stream.fifo import Fifo

CLIENTS = 2             # that read rows: the dispatcher (or the bags' reader), the updater
SLOTS = 16              # that a client may ask for ahead
HALVES = 2              # of the memory: a beat's is its place's lowest bit
ARRAY_BEATS = 32768     # of a half need an output register: eight UltraRAMs one above the other


def updated_layout(config: HotlineConfig) -> data.StructLayout:
    """A beat of a row that takes the place of the one before."""
    return data.StructLayout({"slot": config.slot_bits, "beat": ROW_BEATS_LOG2_MAX,
                              "words": data.ArrayLayout(32, config.words)})


class EmbeddingBuffer(Part):
    """Holds rows in slots: they land from memory, are read by two clients and written over beat by beat.

    memory[slot * row_beats + beat], row_beats = 1 << row_beats_log2                Source: Hotline thesis, fig. 6.1

    Parameters  config: HotlineConfig
    Members     row_beats_log2  In  0 to 6
                i_landing       In(stream)  the slots of the rows that will land, in order
                i_data          In(stream)  their beats
                landed          Out  a pulse for each row
                i_read[k]       In(stream)  slots
                o_read[k]       Out(stream)  their rows, beat by beat
                i_write         In(stream)  {slot, beat, words}
                error           Out
                idle            Out  nothing is inside but rows
    Shapes      a slot is row_beats beats; slots are below embedding_beats >> row_beats_log2
    Timing      a beat per cycle lands and one is written, a beat per cycle comes out for each client; those of the same
                half, both at even or both at odd places, go one after the other: what is written before what lands, the
                first client before the second.
                `latency` cycles from i_read to the first beat. A row is read as it is after the writes of the cycles
                before its slot was taken, and `landed` comes with such a cycle; `idle` is a cycle late
    Handshake   i_write is always taken, and i_data waits for one into the same half. Valids of outputs and
                i_landing.ready, i_read.ready come from registers; i_data.ready follows i_write
    Faults      a beat with an error is not taken, `error` stays and nothing lands any more until a reset
    Reset       drops what is on its way; rows stay in the memory
    Golden      golden.hotline.embeddings.EmbeddingBuffer          Tests  verif/hotline/test_embeddings.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        beat = stream.Signature(32 * config.words)
        super().__init__({
            "row_beats_log2": In(range(ROW_BEATS_LOG2_MAX + 1)),
            "i_landing": In(stream.Signature(config.slot_bits)),
            "i_data": In(stream.Signature(read_layout(config.beat_bytes))),
            "landed": Out(1),
            "i_read": In(stream.Signature(config.slot_bits)).array(CLIENTS),
            "o_read": Out(beat).array(CLIENTS),
            "i_write": In(stream.Signature(updated_layout(config), always_ready=True)),
            "error": Out(1),
            "idle": Out(1),
        })

    @property
    def registers(self) -> int:
        """Output registers behind the array."""
        return max(1, self.config.embedding_beats // HALVES // ARRAY_BEATS)

    @property
    def latency(self) -> int:
        """Cycles from a slot to its row's first beat: the queues' two each, base, address, array and its registers."""
        return 2 + 1 + 1 + 1 + self.registers + 2

    def elaborate(self, platform):
        m = Module()
        config = self.config
        bits = (config.embedding_beats - 1).bit_length()
        arrays = [memory.Memory(shape=32 * config.words, depth=config.embedding_beats // HALVES, init=[],
                                attrs={"ram_style": "ultra"}) for _ in range(HALVES)]
        m.submodules += arrays

        # Registers of their own for what many bits depend on.
        scale = Signal.like(self.row_beats_log2, reset_less=True)
        last_beat = Signal(ROW_BEATS_LOG2_MAX, reset_less=True)     # of a row
        m.d.sync += scale.eq(self.row_beats_log2)
        m.d.sync += last_beat.eq(
            Array([(1 << k) - 1 for k in range(ROW_BEATS_LOG2_MAX + 1)] + [0])[self.row_beats_log2])

        whole = Signal(init=1, reset_less=True)     # a row is one beat
        m.d.sync += whole.eq(self.row_beats_log2 == 0)

        def half_of(slot, beat):
            return Mux(whole, slot[0], beat[0])

        def base(slot):
            """The slot's first beat."""
            return Array([Cat(Const(0, k), slot)[:bits] for k in range(ROW_BEATS_LOG2_MAX + 1)] + [slot])[scale]

        # -- In: rows that land, and beats that were updated, which go before them into the same half.
        m.submodules.landing = landing = Fifo(config.slot_bits, depth=config.row_read_beats)
        wiring.connect(m, wiring.flipped(self.i_landing), landing.i)
        failed = Signal()
        take = Signal()
        ends = Signal()
        beat = Signal(ROW_BEATS_LOG2_MAX)
        update = self.i_write.payload
        slot = landing.o.payload
        meets = Signal()
        m.d.comb += [
            meets.eq(self.i_write.valid & (half_of(update.slot, update.beat) == half_of(slot, beat))),
            self.i_data.ready.eq(landing.o.valid & ~meets & ~failed & ~self.i_data.payload.error),
            take.eq(self.i_data.valid & self.i_data.ready),
            ends.eq(beat == last_beat),
            landing.o.ready.eq(take & ends),
            self.error.eq(failed),
        ]
        with m.If(take):
            m.d.sync += beat.eq(Mux(ends, 0, beat + 1))
        with m.If(self.i_data.valid & self.i_data.payload.error):
            m.d.sync += failed.eq(1)
        m.d.sync += self.landed.eq(take & ends)
        writes = Signal(HALVES)
        for half, array in enumerate(arrays):
            updates = Signal(name=f"updates_{half}")
            into = Signal(bits, name=f"into_{half}", reset_less=True)
            words = Signal(32 * config.words, name=f"words_{half}", reset_less=True)
            m.d.comb += updates.eq(self.i_write.valid & (half_of(update.slot, update.beat) == half))
            m.d.sync += writes[half].eq(updates | (take & (half_of(slot, beat) == half)))
            m.d.sync += into.eq(base(Mux(updates, update.slot, slot)) | Mux(updates, update.beat, beat))
            m.d.sync += words.eq(Mux(updates, update.words.as_value(), self.i_data.payload.data))
            write = array.write_port()
            m.d.comb += write.en.eq(writes[half])
            m.d.comb += write.addr.eq(into[1:])
            m.d.comb += write.data.eq(words)

        # -- Out: each client's row under way, beats in turns as there is room for them.
        delay = 2 + self.registers      # cycles from a turn to the beat at the client's queue
        depth = 16 if delay + 3 < 16 else 32
        wants = []
        turns = Signal(CLIENTS)
        addresses = []
        queues = []
        for k in range(CLIENTS):
            m.submodules[f"slots_{k}"] = slots = Fifo(config.slot_bits, depth=SLOTS)
            m.submodules[f"beats_{k}"] = queue = Fifo(32 * config.words, depth=depth)
            wiring.connect(m, wiring.flipped(self.i_read[k]), slots.i)
            wiring.connect(m, queue.o, wiring.flipped(self.o_read[k]))
            held, final, want = (Signal(name=f"{name}_{k}") for name in ("held", "final", "want"))
            start = Signal(bits, name=f"start_{k}", reset_less=True)
            at = Signal(ROW_BEATS_LOG2_MAX, name=f"at_{k}")
            room = Signal(range(depth + 1), name=f"room_{k}", init=depth)
            leaves = Signal(name=f"leaves_{k}")
            m.d.comb += [
                want.eq(held & (room != 0)),
                final.eq(turns[k] & (at == last_beat)),
                slots.o.ready.eq(~held | final),
                leaves.eq(queue.o.valid & queue.o.ready),
            ]
            m.d.sync += room.eq(room + leaves - turns[k])
            with m.If(slots.o.ready):
                m.d.sync += held.eq(slots.o.valid)
                m.d.sync += start.eq(base(slots.o.payload))
            with m.If(turns[k]):
                m.d.sync += at.eq(Mux(final, 0, at + 1))
            wants.append(want)
            addresses.append(start | at)
            queues.append((queue, slots, held, room))
        same = addresses[0][0] == addresses[1][0]
        m.d.comb += turns.eq(Cat(wants[0], wants[1] & ~(same & wants[0])))
        lines = []
        for half, array in enumerate(arrays):
            read = array.read_port()
            address = Signal(bits - 1, name=f"address_{half}", reset_less=True)
            m.d.sync += address.eq(Mux(turns[1] & (addresses[1][0] == half), addresses[1], addresses[0])[1:])
            m.d.comb += read.addr.eq(address)
            word = read.data
            for k in range(self.registers):
                register = Signal(32 * config.words, name=f"array_{half}_{k}", reset_less=True)
                m.d.sync += register.eq(word)
                word = register
            lines.append(word)
        for k, (queue, *_) in enumerate(queues):
            arriving, halves = Signal(delay, name=f"arriving_{k}"), Signal(delay, name=f"half_{k}", reset_less=True)
            m.d.sync += arriving.eq(Cat(turns[k], arriving[:-1]))
            m.d.sync += halves.eq(Cat(addresses[k][0], halves[:-1]))
            m.d.comb += queue.i.valid.eq(arriving[-1])
            m.d.comb += queue.i.payload.eq(Mux(halves[-1], lines[1], lines[0]))
        m.d.sync += self.idle.eq(~(
            Cat(slots.held | held | (room != depth) for _, slots, held, room in queues).any()
            | landing.held | writes.any() | self.i_write.valid))
        return m
