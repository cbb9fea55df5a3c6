// The MLP core's sequencer as its cycle model has it, for the bench of the unit: see verif.mlp.cycles.
#include <deque>

#include "../../fpga/card/cpp/twin/mlp_array.h"

using namespace twin;

namespace {
struct SequencerOf {
    MlpSequencer sequencer;
    std::deque<MlpJob> jobs;        // that have been taken; they stay where they are
};
}  // namespace

extern "C" {
void* sequencer_new(const MlpShape* shape) { return new SequencerOf{MlpSequencer(*shape), {}}; }
void sequencer_delete(void* h) { delete static_cast<SequencerOf*>(h); }
// Whether an instruction is taken, nothing is under way, a slot goes, it is its tile's last, a tile's results are given
// room, an instruction's last slot goes; the stall; `source` of the instruction under way, which is of no use to a layer,
// -1: there was none.
void sequencer_shows(void* h, int64_t* shown) {
    const MlpSequencer& s = static_cast<SequencerOf*>(h)->sequencer;
    const int64_t values[] = {s.ready(), s.idle(), s.slot, s.ends, s.reserve, s.done, s.stall,
                              s.slot_of ? s.slot_of->source : -1};
    for (int64_t value : values) *shown++ = value;
}
// job: the instruction that is taken, null: none is.
void sequencer_step(void* h, const MlpJob* job, int64_t rows, int64_t weights, int32_t written, int32_t room) {
    SequencerOf& of = *static_cast<SequencerOf*>(h);
    if (job) of.jobs.push_back(*job);
    of.sequencer.step(job ? &of.jobs.back() : nullptr, {rows, weights, 0}, written, room);
}
}
