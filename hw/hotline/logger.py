"""The access logger: which rows are accessed often, in banks that work side by side."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import In, Out

from hw.hotline.bank import LoggerBank, Way
from hw.hotline.config import ID_BITS, WAYS, HotlineConfig
from hw.hotline.randomizer import Randomizer
from hw.hotline.records import access_layout, answer_layout, image_layout
from hw.hotline.scheduler import BankScheduler
from hw.place import Part, place
from hw.stream.fifo import Fifo

IMAGES = 16     # sets that were asked for and not yet taken
GROUP = 8       # bits of which the first one is found in a cycle


def _total(bits: list[Value]) -> Value:
    """How many of them are 1, added pair by pair."""
    while len(bits) > 1:
        bits = [Cat(a + b) for a, b in zip(bits[::2], bits[1::2])] + (bits[-1:] if len(bits) % 2 else [])
    return bits[0]


def _count(m: Module, name: str, bits: list[Value], enable: Value, bits_out: Signal) -> None:
    """Puts the number of ones in `bits` into `bits_out`, 0 without `enable`; two cycles later."""
    parts = []
    for at in range(0, len(bits), 2 * GROUP):
        group = bits[at:at + 2 * GROUP]
        part = Signal(range(len(group) + 1), name=f"{name}_{at}")
        m.d.sync += part.eq(Mux(enable, _total(group), 0))
        parts.append(part)
    m.d.sync += bits_out.eq(_total(parts))


class LaneAnswers(Part):
    """What the banks answered to one lane, wave by wave.

    Parameters  banks, waves
    Members     i           In  of each bank, valid: an answer to this lane comes, of wave `wave`; hit, way
                wave, bank  In  whose answer is asked for
                o           Out  hit and way
    Timing      an answer is there in the next cycle; o follows wave and bank within the cycle
    Reset       nothing is reset: only answers that came are asked for
    Golden      golden.hotline.logger.Logger          Tests  verif/hotline/test_logger.py
    """

    def __init__(self, *, banks: int, waves: int):
        self.banks, self.waves = banks, waves
        answer = data.StructLayout({"valid": 1, "wave": range(waves), "hit": 1, "way": 2})
        super().__init__({
            "i": In(data.ArrayLayout(answer, banks)),
            "wave": In(range(waves)),
            "bank": In(range(banks)),
            "o": Out(data.StructLayout({"hit": 1, "way": 2})),
        })

    def elaborate(self, platform):
        m = Module()
        found = []
        for bank in range(self.banks):
            # A memory a bank: a lane may be answered by several at once, of different waves.
            store = memory.Memory(shape=3, depth=self.waves, init=[], attrs={"ram_style": "distributed"})
            m.submodules[f"bank_{bank}"] = store
            write, read = store.write_port(), store.read_port(domain="comb")
            i = self.i[bank]
            m.d.comb += [
                write.en.eq(i.valid),
                write.addr.eq(i.wave),
                write.data.eq(Cat(i.hit, i.way)),
                read.addr.eq(self.wave),
            ]
            found.append(read.data)
        m.d.comb += self.o.eq(Array(found)[self.bank])
        return m


class Logger(Part):
    """Looks waves of rows up in the log of accesses, and learns from them.

    {bank, set, id} = permutation(row), bank lowest; o.hit = the set of the bank holds the id, in way w;
    o.number = {bank, set, w}                           Source: Hotline §6.2, Fig. 6.3

    Parameters  config: HotlineConfig
    Members     i               In(stream access)  a wave
                o               Out(stream answer)  the answers to each wave
                clear           In  a pulse: forgets all rows
                i_image         In(stream image)  a set to write
                i_ask           In(stream {bank, set})  a set to read
                o_image         Out(stream image)  the sets that were asked for
                busy            Out  a wave, an image's set or a clear is inside
                error           Out  valid, bank: an entry had wrong parity
                hits, accesses  Out  how many lanes were hit and had an access, of a wave that was answered
    Shapes      lanes without an access are never hit
    Timing      a wave each cycle, while the scheduler takes them and fewer than `waves` are inside. A clear takes
                `sets` cycles and 3, a set of an image 1 each. busy, error, hits and accesses come from registers, some
                cycles late
    Handshake   i.ready, o.valid and o.payload come from registers; i_image.ready and i_ask.ready are low while
                waves are inside. i.ready is low from the cycle after `clear` until all sets are cleared; i_ask waits
                for i_image, its ready depends on that one's valid
    Numerics    a bank's accesses take effect in the order of waves, and of lanes in a wave, whatever the timing;
                an answer is of the set before the access. Bit-exact
    Faults      an entry with wrong parity counts as empty, also in an image; error names the lowest bank of the first
                cycle that saw one, and stays until the reset
    Reset       drops all that is inside, also a clear; what the banks hold stays, their counts begin anew
    Golden      golden.hotline.logger.Logger           Tests  verif/hotline/test_logger.py
    """

    def __init__(self, config: HotlineConfig):
        self.config = config
        place_of_set = data.StructLayout({"bank": config.bank_bits, "set": config.set_bits})
        counts = range(config.lanes + 1)
        super().__init__({
            "i": In(stream.Signature(access_layout(config))),
            "o": Out(stream.Signature(answer_layout(config))),
            "clear": In(1),
            "i_image": In(stream.Signature(image_layout(config))),
            "i_ask": In(stream.Signature(place_of_set)),
            "o_image": Out(stream.Signature(image_layout(config))),
            "busy": Out(1),
            "error": Out(data.StructLayout({"valid": 1, "bank": config.bank_bits})),
            "hits": Out(counts),
            "accesses": Out(counts),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        slot_bits = (config.waves - 1).bit_length()

        # -- Waves inside: each has a slot from when it comes until its answers are in the output's registers.
        inside = Signal(range(config.waves + 1))
        after = Signal(range(config.waves + 1))
        empty = Signal(init=1)
        room = Signal(init=1)
        clearing = Signal()
        # the second a cycle later, for o.ready comes late
        leaves = Signal()
        left = Signal()
        m.d.comb += self.i.ready.eq(room)
        m.d.comb += after.eq(inside + (self.i.valid & room) - left)
        m.d.sync += left.eq(leaves)
        m.d.sync += inside.eq(after)
        m.d.sync += empty.eq(after == 0)
        m.d.sync += room.eq((after != config.waves) & ~clearing & ~self.clear)

        scheduler, numbers = self._waves(m, platform, slot_bits)
        ask, write, loading = self._images_in(m, empty, clearing)
        answers = self._banks(m, platform, scheduler, ask, write, slot_bits)
        self._answers(m, platform, scheduler, answers, numbers, slot_bits, leaves, left)
        held = self._images_out(m, ask, answers)
        self._errors(m, answers)
        m.d.sync += self.busy.eq(~empty | clearing | self.clear | self.i.valid | self.i_image.valid | loading | held)
        return m

    def _waves(self, m: Module, platform, slot_bits: int):
        """Numbers of rows through the randomizers into the waves' slots, and from there to the scheduler. Returns it
        and, for the answers, each lane's memory of {valid, bank, set}."""
        config = self.config
        scheduler = BankScheduler(lanes=config.lanes, banks=config.banks, queue=config.queue,
                                  payload=config.set_bits + ID_BITS, tag=slot_bits + 1)
        place(m, platform, "scheduler", scheduler)
        lanes = self.i.payload.lanes
        comes = [self.i.valid & self.i.ready]
        learn = [self.i.payload.learn]
        valids = [Cat(lane.valid for lane in lanes)]
        for n in range(1, Randomizer.LATENCY + 1):
            come = Signal(name=f"come_{n}")
            wave = Signal(config.lanes, name=f"valid_{n}", reset_less=True)
            learns = Signal(name=f"learn_{n}", reset_less=True)
            m.d.sync += come.eq(comes[-1])
            m.d.sync += wave.eq(valids[-1])
            m.d.sync += learns.eq(learn[-1])
            comes.append(come)
            valids.append(wave)
            learn.append(learns)

        # slots: to be filled, to be sent
        tail = Signal(slot_bits)
        turn = Signal(slot_bits)
        waiting = Signal()
        level = Signal(range(config.waves + 1))
        sent = Signal()
        m.d.comb += scheduler.i.valid.eq(waiting)
        m.d.comb += sent.eq(waiting & scheduler.i.ready)
        after = Signal.like(level)
        m.d.comb += after.eq(level + comes[-1] - sent)
        m.d.sync += [
            level.eq(after),
            waiting.eq(after != 0),
            tail.eq(tail + comes[-1]),
            turn.eq(turn + sent),
        ]

        numbers = []
        o = scheduler.i.payload
        learns = memory.Memory(shape=1, depth=config.waves, init=[], attrs={"ram_style": "distributed"})
        m.submodules.learns = learns
        write, read = learns.write_port(), learns.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(comes[-1]),
            write.addr.eq(tail),
            write.data.eq(learn[-1]),
            read.addr.eq(turn),
            o.tag.eq(Cat(turn, read.data)),
        ]
        for k, lane in enumerate(lanes):
            randomizer = Randomizer(config.domain_bits)
            place(m, platform, f"randomizer_{k}", randomizer)
            m.d.comb += randomizer.i.eq(lane.row)
            # Twice what both need: LUT memory has one place to read from.
            for name, bits in (("row", config.domain_bits), ("number", config.bank_bits + config.set_bits)):
                store = memory.Memory(shape=1 + bits, depth=config.waves, init=[], attrs={"ram_style": "distributed"})
                m.submodules[f"{name}_{k}"] = store
                write, read = store.write_port(), store.read_port(domain="comb")
                m.d.comb += write.en.eq(comes[-1])
                m.d.comb += write.addr.eq(tail)
                m.d.comb += write.data.eq(Cat(valids[-1][k], randomizer.o[:bits]))
                if name == "number":
                    numbers.append(read)
                    continue
                at = 1 + config.bank_bits
                m.d.comb += [
                    read.addr.eq(turn),
                    o.lanes[k].valid.eq(read.data[0]),
                    o.lanes[k].bank.eq(read.data[1:at]),
                    o.lanes[k].payload.eq(read.data[at:]),
                ]
        return scheduler, numbers

    def _images_in(self, m: Module, empty: Signal, clearing: Signal):
        """Sets to be read and written: registers that go to all banks. Returns them, and whether a write is there."""
        config = self.config
        ask = Signal(data.StructLayout({"valid": 1, "bank": config.bank_bits, "set": config.set_bits}))
        write = Signal(data.StructLayout({
            "banks": config.banks, "set": config.set_bits, "ways": data.ArrayLayout(Way, WAYS)}))
        asked = Signal(range(IMAGES + 1))
        after = Signal(range(IMAGES + 1))
        credit = Signal(init=1)
        swept = Signal(config.set_bits)
        sweeps = Signal()
        takes = Signal()
        m.d.comb += [
            # A wave that comes in this cycle gets to the banks cycles after what the image wants of them.
            self.i_image.ready.eq(empty & ~clearing),
            takes.eq(self.i_image.valid & self.i_image.ready),
            # Behind a write a bank takes no access for a cycle.
            self.i_ask.ready.eq(empty & ~clearing & credit & ~self.i_image.valid & ~write.banks.any()),
            after.eq(asked + (self.i_ask.valid & self.i_ask.ready) - (self.o_image.valid & self.o_image.ready)),
            sweeps.eq(clearing & empty),
        ]
        image = self.i_image.payload
        m.d.sync += [
            asked.eq(after),
            credit.eq(after != IMAGES),
            ask.valid.eq(self.i_ask.valid & self.i_ask.ready),
            ask.bank.eq(self.i_ask.payload.bank),
            ask.set.eq(self.i_ask.payload.set),
            write.banks.eq(Cat(sweeps | (takes & (image.bank == bank)) for bank in range(config.banks))),
            write.set.eq(Mux(sweeps, swept, image.set)),
            *(write.ways[way].eq(Mux(sweeps, 0, image.ways[way][:Way.as_shape().size])) for way in range(WAYS)),
            swept.eq(Mux(sweeps, swept + 1, 0)),
            clearing.eq(self.clear | (clearing & ~(sweeps & swept.all()))),
        ]
        return ask, write, write.banks.any() | (asked != 0)

    def _banks(self, m: Module, platform, scheduler, ask, write, slot_bits: int) -> list:
        """What each bank answers; its tag is {lane, slot of the wave}."""
        config = self.config
        lane_bits = (config.lanes - 1).bit_length()
        answers = []
        for number in range(config.banks):
            bank = LoggerBank(sets=config.sets, policy=config.policy, insert_log2=config.insert_log2,
                              tag_bits=lane_bits + slot_bits)
            place(m, platform, f"bank_{number}", bank)
            access, asked = scheduler.o[number], ask.valid & (ask.bank == number)
            m.d.comb += [
                bank.i.valid.eq(access.valid | asked),
                # What is asked for stays as it is, whatever the scheduler shows beside.
                bank.i.learn.eq(access.tag[slot_bits] & ~ask.valid),
                bank.i.set.eq(Mux(ask.valid, ask.set, access.payload[:config.set_bits])),
                bank.i.id.eq(access.payload[config.set_bits:]),
                bank.i.tag.eq(Cat(access.lane, access.tag[:slot_bits])),
                bank.i_write.valid.eq(write.banks[number]),
                bank.i_write.set.eq(write.set),
                bank.i_write.ways.eq(write.ways),
            ]
            answers.append(bank.o)
        return answers

    def _answers(self, m: Module, platform, scheduler, banks, numbers, slot_bits: int, leaves: Signal,
                 left: Signal) -> None:
        """Answers into the lanes' memories; the oldest wave's, when all are in, from there to the output."""
        config = self.config
        lane_bits = (config.lanes - 1).bit_length()
        lanes = []
        for k in range(config.lanes):
            lane = LaneAnswers(banks=config.banks, waves=config.waves)
            place(m, platform, f"answers_{k}", lane)
            lanes.append(lane)
            for bank, answer in enumerate(banks):
                m.d.comb += [
                    lane.i[bank].valid.eq(answer.valid & (answer.tag[:lane_bits] == k)),
                    lane.i[bank].wave.eq(answer.tag[lane_bits:]),
                    lane.i[bank].hit.eq(answer.hit),
                    lane.i[bank].way.eq(answer.way),
                ]

        # -- A wave is answered when the scheduler has none of it left and no bank shows an answer to it: banks answer
        # in the order of waves, so one that shows a later wave, or none, is done with it.
        head = Signal(slot_bits)
        due = Signal(range(config.waves + 1))
        released = [scheduler.released]
        for n in range(1, LoggerBank.LATENCY + 1):
            stage = Signal(name=f"released_{n}")
            m.d.sync += stage.eq(released[-1])
            released.append(stage)
        some = Signal()
        there = Signal()
        move = Signal()
        done = Signal()
        at = Signal(slot_bits, reset_less=True)
        m.d.comb += move.eq(~self.o.valid | self.o.ready)
        m.d.comb += done.eq(some & (~there | move)
                            & ~Cat(answer.valid & (answer.tag[lane_bits:] == head) for answer in banks).any())
        m.d.comb += leaves.eq(there & move)
        # Whether a wave is done shows late: it only chooses, and the sums stand beside.
        m.d.sync += some.eq(released[-1] | (due[1:] != 0) | (due[0] & ~done))
        with m.If(released[-1] != done):
            m.d.sync += due.eq(due + Mux(released[-1], 1, -1))
        with m.If(done):
            m.d.sync += head.eq(head + 1)
        with m.If(~there | move):
            m.d.sync += there.eq(done)
            m.d.sync += at.eq(head)

        # -- Its answers.
        valids, hits = [], []
        with m.If(move):
            m.d.sync += self.o.valid.eq(there)
        for k, (lane, read) in enumerate(zip(lanes, numbers, strict=True)):
            valid, number = read.data[0], read.data[1:]
            had, hit = Signal(name=f"had_{k}", reset_less=True), Signal(name=f"hit_{k}", reset_less=True)
            hit_number = Signal(config.hot_bits, name=f"number_{k}", reset_less=True)
            m.d.comb += [
                read.addr.eq(at),
                lane.wave.eq(at),
                lane.bank.eq(number[:config.bank_bits]),
                self.o.payload.lanes[k].hit.eq(hit),
                self.o.payload.lanes[k].number.eq(hit_number),
            ]
            with m.If(move):
                m.d.sync += had.eq(valid)
                m.d.sync += hit.eq(valid & lane.o.hit)
                m.d.sync += hit_number.eq(Cat(number, lane.o.way))
            valids.append(had)
            hits.append(hit)
        _count(m, "accesses", valids, left, self.accesses)
        _count(m, "hits", hits, left, self.hits)

    def _images_out(self, m: Module, ask, banks) -> Value:
        """Sets that were asked for, into a queue. Returns whether something is in it."""
        config = self.config
        queued = data.StructLayout({"bank": config.bank_bits, "set": config.set_bits,
                                    "ways": data.ArrayLayout(Way, WAYS)})
        m.submodules.images = images = Fifo(queued, depth=IMAGES)
        stages = [ask]
        for n in range(LoggerBank.LATENCY + 1):
            stage = Signal(ask.shape(), name=f"asked_{n}")
            m.d.sync += stage.eq(stages[-1])
            stages.append(stage)
        ways = Signal(queued["ways"].shape, reset_less=True)
        m.d.sync += ways.eq(Array([bank.ways.as_value() for bank in banks])[stages[-2].bank])
        out = images.o.payload
        m.d.comb += [
            images.i.valid.eq(stages[-1].valid),
            *(images.i.payload[name].eq(stages[-1][name]) for name in ("bank", "set")),
            images.i.payload.ways.eq(ways),
            self.o_image.valid.eq(images.o.valid),
            images.o.ready.eq(self.o_image.ready),
            *(self.o_image.payload[name].eq(out[name]) for name in ("bank", "set")),
            *(self.o_image.payload.ways[way].eq(out.ways[way].as_value()) for way in range(WAYS)),
        ]
        return images.held

    def _errors(self, m: Module, banks) -> None:
        """The lowest bank of the first cycle in which one saw wrong parity."""
        wrong = Signal(len(banks))
        m.d.sync += wrong.eq(Cat(bank.valid & bank.wrong for bank in banks))
        groups = []
        for at in range(0, len(banks), GROUP):
            bits = wrong[at:at + GROUP]
            some, first = Signal(name=f"wrong_{at}"), Signal(range(len(bits)), name=f"first_{at}", reset_less=True)
            m.d.sync += some.eq(bits.any())
            for k in reversed(range(len(bits))):
                with m.If(bits[k]):
                    m.d.sync += first.eq(k)
            groups.append((some, Cat(first, Const(at // GROUP, len(self.error.bank) - len(first)))))
        with m.If(~self.error.valid):
            m.d.sync += self.error.valid.eq(Cat(some for some, _ in groups).any())
            for some, first in reversed(groups):
                with m.If(some):
                    m.d.sync += self.error.bank.eq(first)
