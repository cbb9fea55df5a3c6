"""The input buffer: samples gather to mini-batches of one class, and wait there until they are dispatched."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.hotline.config import HotlineConfig
from hw.hotline.records import frame_layout, place_layout, sample_layout
from hw.place import Part
from hw.stream.fifo import Fifo

READ_DEPTH = 16     # beats on their way to a client of the read port
HALVES = 2          # of the memory: even beats and odd ones
CLASSES = ("popular", "cold")


def rewrite_layout(config: HotlineConfig) -> data.StructLayout:
    """A beat of the input buffer that is replaced."""
    return data.StructLayout({"place": place_layout(config), "words": data.ArrayLayout(32, config.words)})


def free_layout(config: HotlineConfig) -> data.StructLayout:
    """A frame whose samples have been dispatched."""
    return data.StructLayout({"valid": 1, "frame": config.frame_bits})


class InputBuffer(Part):
    """Fills frames with samples of one class, hands full ones out, and lets two clients read them.

    beat k of a class goes to frame f of the class, beat k % (beats of a mini-batch); popular mini-batches take the
    lowest free frame, others the highest                     Source: Hotline §6.4 (double-ended queue of mini-batches)

    Parameters  config: HotlineConfig
    Members     i                  In(stream sample)  `cold` is the sample's class
                batch              In  samples of a mini-batch, stable while not idle
                flush              In  a level: nothing comes any more but the beat that may wait at i
                flushed            Out  with `flush`: nothing is left in unfinished frames, and all have been taken
                    from o_popular and o_cold
                o_popular, o_cold  Out(stream frame)
                i_read[k]          In(stream place)
                o_read[k]          Out(stream)  the beats of each client in order
                i_write            In(stream)  see `rewrite_layout`
                free               In  a pulse for each frame that was handed out and is not needed any more
                waits              Out  in the cycle before a beat waited for a frame
                idle               Out  all frames are free and nothing is inside
    Shapes      `batch` samples make a frame of batch * beats beats of a sample <= frame_beats beats
    Timing      a beat per cycle in; a new frame every other cycle at most; 3 cycles from a mini-batch's last beat to
                o_popular or o_cold. 5 cycles from i_read to o_read, a beat per cycle for each client; where both
                want an even or both an odd one the first goes before the second. A frame that was freed can be taken 2
                cycles later.
                `idle`, `flushed` and `waits` are a cycle late
    Handshake   i_write is always taken, and keeps i out for that cycle; a read that is taken in a later cycle than a
                write sees it. i.ready depends on i.payload.cold; o_read[k].ready reaches no ready
    Reset       drops all; contents of the memory stay, no frame has them
    Golden      golden.hotline.frames.InputBuffer, to the cycle          Tests  verif/hotline/test_frames.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        frame, place = stream.Signature(frame_layout(config)), stream.Signature(place_layout(config))
        super().__init__({
            "i": In(stream.Signature(sample_layout(config))),
            "batch": In(16),
            "flush": In(1),
            "flushed": Out(1),
            "o_popular": Out(frame),
            "o_cold": Out(frame),
            "i_read": In(place).array(2),
            "o_read": Out(stream.Signature(32 * config.words)).array(2),
            "i_write": In(stream.Signature(rewrite_layout(config))),
            "free": In(free_layout(config)),
            "waits": Out(1),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        place = place_layout(config)
        stores = [memory.Memory(shape=32 * config.words, depth=config.frames * config.frame_beats // HALVES, init=[],
                                attrs={"ram_style": "ultra"}) for _ in range(HALVES)]
        m.submodules += stores
        at, frame, take, unopened, busy = self._place_beat(m)

        # -- One beat a cycle goes in, a rewritten one first.
        writes = Signal()
        target = Signal(place, reset_less=True)
        text = Signal(32 * config.words, reset_less=True)
        m.d.comb += self.i_write.ready.eq(1)
        m.d.comb += self.i.ready.eq(~self.i_write.valid & ~unopened)
        m.d.comb += take.eq(self.i.valid & self.i.ready)
        for half, store in enumerate(stores):
            write = store.write_port()
            m.d.comb += write.en.eq(writes & (target.beat[0] == half))
            m.d.comb += write.addr.eq(Cat(target.beat[1:], target.frame))
            m.d.comb += write.data.eq(text)
        m.d.sync += writes.eq(take | self.i_write.valid)
        with m.If(self.i_write.valid):
            m.d.sync += target.eq(self.i_write.payload.place)
            m.d.sync += text.eq(self.i_write.payload.words)
        with m.Else():
            m.d.sync += target.frame.eq(frame)
            m.d.sync += target.beat.eq(at)
            m.d.sync += text.eq(self.i.payload.words)
        reading = self._reads(m, stores)
        m.d.sync += self.waits.eq(self.i.valid & unopened)
        m.d.sync += self.idle.eq(~(busy | reading | self.i.valid | self.i_write.valid
                                   | self.i_read[0].valid | self.i_read[1].valid))
        return m

    def _place_beat(self, m: Module):
        """Where the beat at `i` goes: its beat and frame; `take`, which the caller drives; whether it has to wait for a
        frame; and whether any frame is in use."""
        config = self.config
        i = self.i.payload
        frames = range(config.frames)
        take = Signal()
        found = Signal()
        lowest, highest = (Signal(config.frames, name=name, reset_less=True) for name in ("lowest", "highest"))
        low, high = (Signal(config.frame_bits, name=name, reset_less=True) for name in ("low", "high"))

        # -- What is filled, a frame of each class.
        opened = Signal(2)
        filled = [Signal(config.frame_bits, name=f"frame_{name}", reset_less=True) for name in CLASSES]
        beats = [Signal(place_layout(config)["beat"].shape, name=f"beat_{name}", reset_less=True) for name in CLASSES]
        left = [Signal(16, name=f"left_{name}", reset_less=True) for name in CLASSES]   # this sample included
        final = [Signal(name=f"final_{name}", reset_less=True) for name in CLASSES]     # it is the last
        part = [Signal(16, name=f"part_{name}", reset_less=True) for name in CLASSES]   # samples that are in
        single = Signal()
        pair = Signal()
        goes_on = Signal()
        ends = Signal()
        closes = Signal()
        opens = Signal()
        frame = Signal(config.frame_bits, name="frame_now")
        at = Signal.like(beats[0], name="beat_now")
        count = Signal(16)
        m.d.comb += [
            goes_on.eq(Mux(i.cold, opened[1], opened[0])),
            opens.eq(take & ~goes_on),
            ends.eq(take & i.last),
            closes.eq(ends & Mux(goes_on, Mux(i.cold, final[1], final[0]), single)),
            frame.eq(Mux(goes_on, Mux(i.cold, filled[1], filled[0]), Mux(i.cold, high, low))),
            at.eq(Mux(goes_on, Mux(i.cold, beats[1], beats[0]), 0)),
            count.eq(Mux(goes_on, Mux(i.cold, left[1], left[0]), self.batch)),
        ]
        m.d.sync += single.eq(self.batch == 1)
        m.d.sync += pair.eq(self.batch == 2)
        handed = Signal(data.StructLayout({"cold": 1, **frame_layout(config).members}), reset_less=True)
        hands = Signal()
        flushing = Signal()
        m.d.sync += [
            flushing.eq(self.flush & ~self.i.valid),
            hands.eq(closes | (flushing & opened.any())),
            handed.cold.eq(Mux(flushing, ~opened[0], i.cold)),
            handed.frame.eq(Mux(flushing, Mux(opened[0], filled[0], filled[1]), frame)),
            handed.samples.eq(Mux(flushing, Mux(opened[0], part[0], part[1]), self.batch)),
        ]
        for k in range(2):
            m.d.sync += part[k].eq(self.batch - left[k])
            with m.If(take & (i.cold == k)):
                m.d.sync += opened[k].eq(~closes)
                m.d.sync += filled[k].eq(frame)
                m.d.sync += beats[k].eq(at + 1)
                with m.If(ends):
                    m.d.sync += left[k].eq(count - 1)
                    m.d.sync += final[k].eq(Mux(goes_on, left[k] == 2, pair))
                with m.Elif(opens):
                    m.d.sync += left[k].eq(self.batch)
                    m.d.sync += final[k].eq(single)
        with m.If(flushing & opened[0]):
            m.d.sync += opened[0].eq(0)
        with m.Elif(flushing):
            m.d.sync += opened[1].eq(0)

        # -- To the dispatcher: never more than there are frames.
        depth = max(2, 1 << (config.frames - 1).bit_length())
        held = []
        for k, out in enumerate((self.o_popular, self.o_cold)):
            queue = Fifo(frame_layout(config), depth=depth)
            m.submodules[CLASSES[k]] = queue
            m.d.comb += [
                queue.i.valid.eq(hands & (handed.cold == k)),
                *(queue.i.payload[name].eq(handed[name]) for name in ("frame", "samples")),
                out.valid.eq(queue.o.valid),
                out.payload.eq(queue.o.payload),
                queue.o.ready.eq(out.ready),
            ]
            held.append(queue.held)
        m.d.sync += self.flushed.eq(flushing & ~(opened.any() | hands | Cat(held).any()))

        # -- Free frames from both ends; the choice is a cycle behind them.
        free = Signal(config.frames, init=(1 << config.frames) - 1)
        lows = [free[k] & ~free[:k].any() for k in frames]
        highs = [free[k] & ~free[k + 1:].any() for k in frames]
        m.d.sync += [
            found.eq(free.any() & ~opens),
            lowest.eq(Cat(lows)),
            highest.eq(Cat(highs)),
            low.eq(_number(lows)),
            high.eq(_number(highs)),
            *(free[k].eq((free[k] & ~(opens & Mux(i.cold, highest[k], lowest[k])))
                         | (self.free.valid & (self.free.frame == k))) for k in frames),
        ]
        return at, frame, take, ~goes_on & ~found, ~free.all()

    def _reads(self, m: Module, stores: list[memory.Memory]):
        """A beat a cycle out of each half of the memory, for a client that has room for it. Whether any is on its
        way."""
        config = self.config
        wanted = Signal(2)
        room = Signal(2)
        granted = Signal(2)
        places = [port.payload for port in self.i_read]
        meets = wanted.all() & (places[0].beat[0] == places[1].beat[0])
        under_way = [Signal(2, name=f"under_way_{stage}") for stage in range(3)]    # address, array, register
        m.d.comb += wanted.eq(Cat(port.valid for port in self.i_read) & room)
        m.d.comb += granted.eq(Cat(wanted[0], wanted[1] & ~meets))
        m.d.sync += under_way[0].eq(granted)
        m.d.sync += under_way[1].eq(under_way[0])
        m.d.sync += under_way[2].eq(under_way[1])
        lines = []
        for half, store in enumerate(stores):
            read = store.read_port(transparent_for=())
            asked = Signal(place_layout(config), name=f"asked_{half}", reset_less=True)
            line = Signal(32 * config.words, name=f"line_{half}", reset_less=True)
            m.d.comb += read.addr.eq(Cat(asked.beat[1:], asked.frame))
            m.d.sync += asked.eq(Mux(granted[0] & (places[0].beat[0] == half), places[0], places[1]))
            m.d.sync += line.eq(read.data)
            lines.append(line)
        some = []
        for k in range(2):
            queue = Fifo(32 * config.words, depth=READ_DEPTH)
            m.submodules[f"client_{k}"] = queue
            level = Signal(range(READ_DEPTH + 1), name=f"level_{k}")
            done = Signal(name=f"done_{k}")
            halves = Signal(3, name=f"half_{k}", reset_less=True)
            m.d.sync += halves.eq(Cat(places[k].beat[0], halves[:-1]))
            port = self.o_read[k]
            m.d.comb += [
                room[k].eq(~level[-1]),
                self.i_read[k].ready.eq(granted[k]),
                done.eq(port.valid & port.ready),
                queue.i.valid.eq(under_way[2][k]),
                queue.i.payload.eq(Mux(halves[-1], lines[1], lines[0])),
            ]
            wiring.connect(m, queue.o, wiring.flipped(port))
            m.d.sync += level.eq(level + granted[k] - done)
            some.append(level != 0)
        return Cat(some).any()


def _number(marks) -> Cat:
    """The number of the bit that is set."""
    count = len(marks)
    bits = max(1, (count - 1).bit_length())
    return Cat(Cat(*(mark for k, mark in enumerate(marks) if k >> bit & 1), Const(0, 1)).any() for bit in range(bits))
