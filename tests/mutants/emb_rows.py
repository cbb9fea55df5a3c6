"""Of the EMB core's rows: which goes when, how stored ones are decoded, which part of a stored beat is shown when."""

from tests.mutants.mutant import Mutant, Unit

DECODER = Unit("hw/emb/row_decoder.py", ("verif/emb/test_row_decoder.py",), (
    Mutant("a bias that is far off is a place too near", "FAR = 34 ", "FAR = 33 "),
    Mutant("a place too few below the scale's last", "FRACTION = 3 ", "FRACTION = 2 "),
    Mutant("what leaves the bias by 16s is forgotten", "moved[0] | below | lost", "moved[0] | below"),
    Mutant("what leaves the bias by less is forgotten", "moved[0] | below | lost", "moved[0] | lost"),
    Mutant("a bias that is not finite counts", "scale.wild | bias.wild", "scale.wild"),
    Mutant("a scale that is not finite counts", "scale.wild | bias.wild", "bias.wild"),
    Mutant("scale and bias are taken while nothing comes", "self.i_valid & self.i.begins", "self.i.begins"),
    Mutant("scale and bias of the first row stay", "m.d.sync += ends.eq(beat[:64])", "m.d.sync += ends.eq(ends)"),
    Mutant("a code of 0 is nothing by itself", "empty.eq(~self.half & ~self.code[:8].any())", "empty.eq(0)"),
    Mutant("a binary16's subnormal is half as large", "+ (none & ~brain)", ""),
    Mutant("a binary16's subnormal has a leading one", "Cat(code[:10], ~none)", "Cat(code[:10], 1)"),
    Mutant("NaN for infinity", "everything & (some | ~code[15])", "everything"),
    Mutant("-0 is +0", "none & ~some & code[15])", "0 & none & some)"),
    Mutant("a subnormal scale counts", "fields.mant.eq(Mux(some, Cat(word[:23], 1), 0))",
           "fields.mant.eq(Cat(word[:23], some))"),
    Mutant("a negative scale is positive", "Mux(scale.sign, -scale.mant, scale.mant)", "scale.mant"),
    Mutant("a negative bias is positive by itself", "Mux(sign, -plain, plain)", "plain"),
    Mutant("the odd parts of a beat come first", "slot[0], bytes_[4 * words:], bytes_[:4 * words]",
           "slot[0], bytes_[:4 * words], bytes_[4 * words:]"),
    Mutant("what is still to be decoded comes, too", "self.o_valid.eq(coming[-1] | (self.i_valid & is_plain))",
           "self.o_valid.eq(coming[-1] | self.i_valid)"),
))

FETCH = Unit("hw/emb/rows.py", ("verif/emb/test_rows.py",), (
    Mutant("FP32 overtakes what is decoded", "may=~plain | (left == 0)", "may=1"),
    Mutant("FP32 comes a cycle too early", "m.d.sync += left.eq(self.decoder_latency)",
           "m.d.sync += left.eq(self.decoder_latency - 1)"),
    Mutant("values begin where scale and bias lie", "first_slot.eq(form.header)", "first_slot.eq(0)"),
    Mutant("half precision has room for scale and bias", "first_slot.eq(form.header)", "first_slot.eq(2)"),
    Mutant("a stored beat counts for every part of it", "leaves.eq((go & full) | served)", "leaves.eq(go)"),
    Mutant("a row's last stored beat stays", "leaves.eq((go & full) | served)", "leaves.eq(go & full)"),
    Mutant("every part is the row's first", "begins=~begun", "begins=1"),
    Mutant("a row goes on from the stored beat before", "row.position.eq(row.position + 1)",
           "row.position.eq(row.position)"),
    Mutant("a row goes on while its stored beat has more", "with m.Elif(parts.leaves):", "with m.Elif(go):"),
    Mutant("a bank's queue is written over", "waiting[-1] | self._requests.full", "waiting[-1]"),
    Mutant("a row to copy is looked for in the window", "~i.ring & ~i.copy", "~i.ring"),
    Mutant("idle in the cycle that a row is taken in", "(waiting == 0) & ~take", "waiting == 0"),
    Mutant("a reset leaves a copied row's beat", "copied = Signal()", "copied = Signal(reset_less=True)"),
))

LANDING = Unit("hw/emb/landing.py", ("verif/emb/test_landing.py",), (
    Mutant("a copy given back as another goes is lost", "taken[name] != self.copy_written",
           "taken[name] | self.copy_written"),
    Mutant("room lacks for no row", "self.i_dram.valid & ~dram_can", "~dram_can"),
    Mutant("room lacks for a row that has not landed", "landed & ~ssd.copy & ~ssd_room",
           "ssd_held & ~ssd.copy & ~ssd_room"),
    Mutant("room lacks for a copy that has not landed", "landed & ssd.copy & ~ssd_room",
           "ssd_held & ssd.copy & ~ssd_room"),
    Mutant("what has landed is waited for as the ring is filled over it", "~ssd_taken & ~landed & ~there",
           "~ssd_taken & ~there"),
))

REQUESTS = Unit("hw/emb/row_requests.py", ("verif/emb/test_row_requests.py",), (
    Mutant("all beats of a row land in one place", "place_.eq(place_ + 1)", "place_.eq(place_)"),
    Mutant("a row lands a beat too early", "place_.eq(entry.position)", "place_.eq(entry.position - 1)"),
    Mutant("a row has a beat less", "left.eq(entry.beats)", "left.eq(Mux(entry.beats == 0, 0, entry.beats - 1))"),
    Mutant("the next row lands though nothing has come", "loads.eq(~valid | (self.beat & final))",
           "loads.eq(~valid | final)"),
    Mutant("of a row that waits the bank is forgotten", "bank.eq(entry.bank)", "bank.eq(bank)"),
))
