// The parts that all twins are made of, each by itself, for the benches of the units that they are held to: see
// verif.bench.parts.
#include "../../fpga/card/cpp/twin/parts.h"
#include "cycle_model.h"

using namespace twin;

extern "C" {
// A request, its place, its length; not all has been asked for.
void* requester_new() { return new Requester; }
void requester_delete(void* h) { delete static_cast<Requester*>(h); }
void requester_shows(void* h, int64_t* shown) {
    const Requester& r = *static_cast<Requester*>(h);
    give(shown, {r.has, int64_t(r.o.at), r.o.beats, r.asking});
}
// run: place, beats, how many more at which distance; null: none begins.
void requester_step(void* h, const uint64_t* run, int32_t taken, int32_t hold) {
    Requester& r = *static_cast<Requester*>(h);
    r.step(taken, run || hold);
    if (run) r.begin(run[0], run[1], run[2], run[3]);
}

// Whether an item stands there, and which; whether one is taken.
void* skid_buffer_new() { return new SkidBuffer<int64_t>; }
void skid_buffer_delete(void* h) { delete static_cast<SkidBuffer<int64_t>*>(h); }
void skid_buffer_shows(void* h, int64_t* shown) {
    const SkidBuffer<int64_t>& s = *static_cast<SkidBuffer<int64_t>*>(h);
    give(shown, {s.has, s.o, !s.held});
}
void skid_buffer_step(void* h, int32_t offered, int64_t item, int32_t taken) {
    static_cast<SkidBuffer<int64_t>*>(h)->step(offered, item, taken);
}
}
