"""Beats played into a model and recorded: what comes out, when, and what is refused."""

import struct
import subprocess

import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gen.rtl.play import Phase, build

PAIR = data.StructLayout({"value": 40, "mark": 3})


class Adder(wiring.Component):
    """Adds `more` to values while `enable` is 1; counts what it has taken."""

    i: In(stream.Signature(PAIR))
    o: Out(stream.Signature(PAIR))
    more: In(8)
    enable: In(1)
    taken: Out(16)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.i.ready.eq(self.enable & (self.o.ready | ~self.o.valid))
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [
                self.o.valid.eq(1),
                self.o.payload.value.eq(self.i.payload.value + self.more),
                self.o.payload.mark.eq(self.i.payload.mark),
                self.taken.eq(self.taken + 1),
            ]
        return m


@pytest.fixture(scope="module")
def player():
    return build(Adder(), "play_adder", opt="-O0")


def test_phases_follow_one_another(player):
    """Values held, beats in order, a rest between, every cycle that a port showed."""
    beats = player.packed("i", ({"value": (1 << 40) - 200 + k, "mark": k} for k in range(5)))
    done = player.play([Phase(hold={"more": 7, "enable": 1}, rest=3), Phase({"i": beats[:3]}, rest=2),
                        Phase({"i": beats[3:]}, hold={"more": 9}, until={"o": 5})], samples=["taken"])
    words = done.beats["o"].view("<u8").ravel().tolist()
    assert [player.unpacked("o__payload", word) for word in words] == [
        {"value": ((1 << 40) - 200 + k + (7 if k < 3 else 9)) % (1 << 40), "mark": k} for k in range(5)]
    assert done.taken["i"].tolist() == [4, 5, 6, 9, 10] and done.at["o"].tolist() == [5, 6, 7, 10, 11]
    assert done.samples["taken"].view("<u2").ravel().tolist() == [0, 0, 0, 0, 1, 2, 3, 3, 3, 4, 5]
    assert done.shown == {"taken": 5} and done.ended[:, 0].tolist() == [3, 8, 11]
    assert (np.diff(done.ended[:, 1]) >= 0).all()


def test_beats_as_rows_of_bytes(player):
    beats = np.arange(3, dtype="<u8").view(np.uint8).reshape(3, 8)
    done = player.play([Phase({"i": beats}, hold={"enable": 1, "more": 1}, until={"o": 3})])
    assert done.beats["o"].view("<u8").ravel().tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="a beat of i__payload has 8 bytes, not 4 of uint8"):
        player.play([Phase({"i": beats[:, :4]})])


@pytest.mark.parametrize("put, hold, sentence", [
    ([1 << 43], {}, "i__payload has 43 bits, which do not hold 0x80000000000"),
    ([1, -1], {}, "i__payload has 43 bits, which do not hold -0x1"),
    (np.uint64([[5], [1 << 63]]).view(np.uint8), {}, "i__payload has 43 bits, which do not hold 0x8000000000000000"),
    ([], {"more": 256}, "more has 8 bits, which do not hold 0x100"),
    ([], {"enable": 2}, "enable has 1 bits, which do not hold 0x2"),
])
def test_values_that_a_port_cannot_hold(player, put, hold, sentence):
    with pytest.raises(ValueError) as error:
        player.play([Phase({"i": put}, hold)])
    assert str(error.value) == sentence


@pytest.mark.parametrize("named, sentence", [
    (("nothing", "told"), "nothing: No such file or directory"), (("empty", "told"), "what is asked ends too early"),
    (("asked", "no/told"), "no/told: No such file or directory"),
    (("asked", "/dev/full"), "/dev/full could not be written"),
])
def test_files_that_the_player_cannot_use(player, named, sentence, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "asked").write_bytes(struct.pack("<4Q", 1, 10, 0, 0))     # a seed, cycles, no samples, no phases
    done = subprocess.run([player.binary, *named], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.strip() == sentence


def test_what_does_not_end_is_told(player):
    with pytest.raises(AssertionError, match="play_adder.*: phase 1 has not ended after 50 cycles; 0 beats have come"):
        player.play([Phase(rest=4), Phase({"i": [1]})], cycles=50)
