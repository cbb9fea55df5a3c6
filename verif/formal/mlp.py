"""Of the MLP core: what the sequencer says of places for results and of what it waits for."""

from gen.rtl import config
from hw.mlp.sequencer import Sequencer
from verif.formal.properties import Properties, past, properties
from verif.formal.prove import Proof


@properties(Sequencer)
def _sequencer(p: Properties, unit: Sequencer) -> None:
    stalls = unit.stall.as_value()
    p.claim("a place is reserved where there is one besides the last that was", ~unit.reserve | (
        past(p, unit.room) & ~past(p, unit.reserve)))
    p.claim("it waits for one thing at a time, and then no slot goes", ((stalls & (stalls - 1)) == 0) & ~(
        stalls.any() & unit.valid))
    p.claim("a tile ends with a slot, an instruction with a tile", (~unit.tile_valid | unit.valid) & (
        ~unit.done | unit.tile_valid))
    p.cover("a place is reserved", unit.reserve)
    p.cover("an instruction ends", unit.done)


PROOFS = (Proof("mlp_sequencer", lambda: Sequencer(config.load("tiny").cores["mlp"])),)
