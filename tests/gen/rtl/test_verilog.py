"""The Verilog generator: sharing, determinism, metadata, names."""

import contextlib
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth import Module, Signal, signed
from amaranth.lib import data, enum, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from gen.rtl import verilog
from gen.rtl.verilog import NAME_LIMIT, NO_INLINE, convert, describe, emit, module_name
from hw.place import place
from hw.stream.skid_buffer import SkidBuffer

ROOT = Path(__file__).parents[3]
SHAPE = data.StructLayout({"tag": 3, "words": data.ArrayLayout(signed(5), 2)})


class Chain(wiring.Component):
    """Skid buffers in a row, the last with another shape when `odd`."""

    def __init__(self, length, odd=False):
        self.length, self.odd = length, odd
        super().__init__({"i": In(stream.Signature(SHAPE)), "o": Out(stream.Signature(SHAPE))})

    def elaborate(self, platform):
        m = Module()
        last = self.i
        for n in range(self.length):
            wide = self.odd and n == self.length - 1
            part = SkidBuffer(SHAPE.size + 1 if wide else SHAPE)
            place(m, platform, f"part{n}", part)
            m.d.comb += [part.i.valid.eq(last.valid), last.ready.eq(part.i.ready)]
            if wide:
                m.d.comb += part.i.payload.eq(last.payload.as_value())
            else:
                m.d.comb += part.i.payload.eq(last.payload)
            last = part.o
        m.d.comb += [self.o.valid.eq(last.valid), last.ready.eq(self.o.ready)]
        payload = last.payload if self.odd else last.payload.as_value()
        m.d.comb += self.o.payload.as_value().eq(payload)
        return m


def test_equal_parts_are_one_module():
    texts, metadata = convert(Chain(5, odd=True), "chain")
    parts = [name for name in texts if name.startswith("SkidBuffer")]
    assert len(texts) == 3 and len(parts) == 2
    uses = metadata["modules"]["chain"]["instances"]
    assert sorted(uses.values()) == [1, 4]
    for part in parts:
        assert texts[part].count(NO_INLINE) == 1
    assert NO_INLINE not in texts["chain.v"]


class Resettable(wiring.Component):
    """A skid buffer that a port empties."""

    def __init__(self):
        super().__init__({"i": In(stream.Signature(4)), "o": Out(stream.Signature(4)), "drop": In(1)})

    def elaborate(self, platform):
        m = Module()
        part = SkidBuffer(4)
        place(m, platform, "part", part, reset=self.drop)
        wiring.connect(m, wiring.flipped(self.i), part.i)
        wiring.connect(m, part.o, wiring.flipped(self.o))
        return m


def test_a_parent_can_reset_a_placed_part():
    """With the generator as without it, the part's contents go and come again."""
    text = convert(Resettable(), "resettable")[0]["resettable.v"]
    assert re.search(r"assign \S+ += (rst \| drop|drop \| rst);", text), text
    dut = Resettable()

    async def bench(ctx):
        ctx.set(dut.i.payload, 9)
        ctx.set(dut.i.valid, 1)
        await ctx.tick()
        assert ctx.get(dut.o.valid) == 1
        ctx.set(dut.i.valid, 0)
        ctx.set(dut.drop, 1)
        await ctx.tick()
        assert ctx.get(dut.o.valid) == 0

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_without_the_generator_place_is_a_submodule():
    """Amaranth's own simulator and converter know no platform: the part is an ordinary submodule there."""
    from amaranth.sim import Simulator

    chain = Chain(2)
    sim = Simulator(chain)
    sim.add_clock(1e-6)
    seen = []

    async def bench(ctx):
        ctx.set(chain.o.ready, 1)
        ctx.set(chain.i.payload.tag, 5)
        ctx.set(chain.i.valid, 1)
        await ctx.tick()
        ctx.set(chain.i.valid, 0)
        for _ in range(4):
            seen.append((ctx.get(chain.o.valid), ctx.get(chain.o.payload.tag)))
            await ctx.tick()

    sim.add_testbench(bench)
    sim.run()
    assert (1, 5) in seen and [v for v, _ in seen].count(1) == 1


def test_same_bytes_in_another_process(tmp_path):
    program = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(Path(__file__).parent)!r}]\n"
        "from test_verilog import Chain\nfrom gen.rtl.verilog import emit\n"
        "emit(Chain(3, odd=True), 'chain', sys.argv[1])"
    )
    digests = []
    for seed, folder in (("1", tmp_path / "a"), ("2", tmp_path / "elsewhere" / "b")):
        subprocess.run([sys.executable, "-c", program, str(folder)], check=True, cwd=tmp_path,
                       env={"PYTHONHASHSEED": seed, "PATH": ""})
        content = {p.name: p.read_text("utf-8") for p in sorted(folder.iterdir())}
        digests.append(hashlib.sha256(repr(content).encode()).hexdigest())
        for name, text in content.items():
            assert str(tmp_path) not in text and str(ROOT) not in text, f"{name} holds a path of this machine"
    emit(Chain(1), "first", tmp_path / "c")        # something else before, in the same process
    emit(Chain(3, odd=True), "chain", tmp_path / "d")
    content = {p.name: p.read_text("utf-8") for p in sorted((tmp_path / "d").iterdir())}
    digests.append(hashlib.sha256(repr(content).encode()).hexdigest())
    assert len(set(digests)) == 1


def test_metadata(tmp_path):
    built = emit(Chain(1), "chain", tmp_path)
    assert json.loads((tmp_path / "chain.json").read_text("utf-8")) == built.metadata
    assert list(built.metadata["ports"]) == [
        "i__payload", "i__valid", "i__ready", "o__payload", "o__valid", "o__ready"]
    assert [(s["name"], s["direction"]) for s in built.metadata["streams"]] == [("i", "in"), ("o", "out")]
    assert built.metadata["streams"][0]["payload"] == describe(SHAPE)
    assert all(file.exists() for file in built.files)


def test_nothing_stale_is_left(tmp_path):
    emit(Chain(2, odd=True), "chain", tmp_path)
    (tmp_path / "mine.v").write_text("// not ours", "utf-8")
    built = emit(Chain(2), "chain", tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {f.name for f in built.files} | {"chain.json", "mine.v"}


def test_describe():
    class Mode(enum.Enum, shape=2):
        OFF = 0
        ON = 2

    assert describe(SHAPE) == {"width": 13, "fields": [
        {"name": "tag", "offset": 0, "width": 3, "signed": False},
        {"name": "words", "offset": 3, "width": 10, "length": 2, "element": {"width": 5, "signed": True}}]}
    assert describe(Mode) == {"width": 2, "signed": False, "names": {"OFF": 0, "ON": 2}}


def test_module_names():
    assert module_name("FusedDot(width=4, subs=4)") == "FusedDot_width4_subs4"
    long = [module_name("Unit(" + "x" * 100 + f",n={n})") for n in range(2)]
    assert len(set(long)) == 2 and all(len(name) <= NAME_LIMIT for name in long)


class Loose(wiring.Component):
    """Its key leaves its width out, which is a mistake."""

    def __init__(self, width, key="Loose()"):
        self._key = key
        super().__init__({"a": In(width), "b": Out(width)})

    def key(self):
        return self._key

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.b.eq(self.a)
        return m


class Two(wiring.Component):
    def __init__(self, first, second):
        self.parts = first, second
        super().__init__({"o": Out(1)})

    def elaborate(self, platform):
        m = Module()
        for n, part in enumerate(self.parts):
            place(m, platform, f"part{n}", part)
        m.d.comb += self.o.eq(self.parts[0].b[0] ^ self.parts[1].b[0])
        return m


def test_contradicting_parts_wrong():
    with pytest.raises(ValueError) as error:
        convert(Two(Loose(3), Loose(4)), "two")
    assert str(error.value) == (
        "two parts with the key Loose() have different ports; its key() leaves out a parameter")
    with pytest.raises(ValueError) as error:
        convert(Two(Loose(3, "A(1)"), Loose(3, "A[1]")), "two")
    assert str(error.value) == "two different parts would share the module name A_1: A(1) and A[1]"
    with pytest.raises(ValueError, match="the top module may not have the name of one of its parts: A_1"):
        convert(Two(Loose(3, "A(1)"), Loose(3, "A(1)")), "A_1")


def test_no_key_wrong():
    class Bare(wiring.Component):
        o: Out(1)

        def elaborate(self, platform):
            return Module()

    with pytest.raises(TypeError) as error:
        place(Module(), None, "bare", Bare())
    assert str(error.value) == (
        "place() needs a component with a method key() that names its class and parameters; Bare has none")


def test_name_wrong(tmp_path):
    with pytest.raises(ValueError) as error:
        emit(Chain(1), "not a name", tmp_path)
    assert str(error.value) == (
        "name must be a Verilog identifier (letters, digits, underscores), not 'not a name'")


def test_reset_reaches_placed_parts():
    """A part's registers are cleared by the parent's reset: `rst` is connected, not left open."""
    texts, _ = convert(Chain(2), "chain")
    assert texts["chain.v"].count(".rst(rst)") == 2 and texts["chain.v"].count(".clk(clk)") == 2


def test_aliases_do_not_reach_the_verilog():
    class Alias(wiring.Component):
        i: In(SHAPE)
        o: Out(5)

        def elaborate(self, platform):
            m = Module()
            unused, used = Signal(SHAPE, name="unused"), Signal(5, name="used")
            m.d.comb += [unused.eq(self.i), used.eq(self.i.words[1])]
            m.d.sync += self.o.eq(used + 1)
            return m

    plain, _ = convert(Alias(), "alias")
    named, _ = convert(Alias(), "alias", names=True)
    assert "unused" not in plain["alias.v"] and "unused.tag" in named["alias.v"]


class Table(wiring.Component):
    """A memory, large or with contents."""

    def __init__(self, depth, contents=()):
        self.depth, self.contents = depth, contents
        super().__init__({"address": In(range(depth)), "word": In(512), "write": In(1), "o": Out(512)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = memory.Memory(shape=512, depth=self.depth, init=self.contents)
        write, read = table.write_port(), table.read_port()
        m.d.comb += [write.addr.eq(self.address), write.data.eq(self.word), write.en.eq(self.write),
                     read.addr.eq(self.address), self.o.eq(read.data)]
        return m


@pytest.mark.turns(1, of="syntheses")
def test_zero_contents_cost_nothing(monkeypatch):
    """They are left out as ever, whatever the memory's size; others stay, word by word."""
    short, _ = convert(Table(64), "table")
    with monkeypatch.context() as patch:
        patch.setattr(verilog, "_short_zero_contents", contextlib.nullcontext)
        assert convert(Table(64), "table")[0] == short
    # Bit by bit this would be half an hour.
    large, _ = convert(Table(1 << 20), "table")
    assert len(large["table.v"]) < 2 * len(short["table.v"])
    kept, _ = convert(Table(4, [0, 0x1234567, 0, 0]), "table")
    assert "1234567" in kept["table.v"] and len(kept["table.v"]) > len(short["table.v"])
