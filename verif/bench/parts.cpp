// The parts that all twins are made of, each by itself, for the benches of the units that they are held to: see
// verif.bench.parts.
#include "../../fpga/card/cpp/twin/parts.h"
#include "cycle_model.h"

namespace {
struct RequesterOf : Part, twin::Requester {
    void shows(int64_t* shown) const override { give(shown, {has, int64_t(o.at), o.beats, asking}); }
};

struct SkidBufferOf : Part, twin::SkidBuffer<int64_t> {
    void shows(int64_t* shown) const override { give(shown, {has, o, !held}); }
};
}  // namespace

extern "C" {
Part* requester_new() { return new RequesterOf; }
// run: place, beats, how many more at which distance; null: none begins.
void requester_step(RequesterOf* part, const uint64_t* run, int32_t taken, int32_t hold) {
    part->step(taken, run || hold);
    if (run) part->begin(run[0], run[1], run[2], run[3]);
}

Part* skid_buffer_new() { return new SkidBufferOf; }
void skid_buffer_step(SkidBufferOf* part, int32_t offered, int64_t item, int32_t taken) { part->step(offered, item, taken); }
}
