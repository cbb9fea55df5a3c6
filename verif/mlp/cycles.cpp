// Parts of the MLP core's cycle model, each by itself, for the benches of the units that they are held to: see
// verif.mlp.cycles. *_shows tells what the registers show in the present cycle, *_step is the clock edge that ends it. The
// number of an instruction is in the place of `out`, which decides nothing here.
#include <deque>

#include "../../fpga/card/cpp/twin/mlp_writer.h"
#include "../bench/cycle_model.h"

using namespace twin;

namespace {
using Jobs = std::deque<MlpJob>;        // that have been taken; they stay where they are

struct ProgramOf {
    std::vector<MlpJob> jobs;
    MlpProgram program;

    ProgramOf(const MlpShape& shape, const MlpJob* list, uint64_t count) : jobs(list, list + count), program(jobs, shape) {}
};

template <class Loader>
struct LoaderOf {
    Loader loader;
    Jobs jobs;
};
using RowsOf = LoaderOf<RowLoader>;
using ParametersOf = LoaderOf<ParameterLoader>;

struct SequencerOf {
    MlpSequencer sequencer;
    Jobs jobs;
};

struct ResultsOf {
    MlpResults results;
    Jobs jobs;
};

// A tile, its fields as MlpTile has them.
struct TileGiven {
    int64_t live, writes, target, triangle, group, block;
};

struct WriterOf {
    MlpWriter writer;
    MlpResults results;
    Jobs jobs;
};

// A row of results, the tile's fields as MlpTile has them.
struct RowGiven {
    int64_t last, half, fills, sigmoid, address, stride, count, wait, each, words;
};

const MlpJob* keep(Jobs& jobs, const MlpJob* job) {
    if (!job) return nullptr;
    jobs.push_back(*job);
    return &jobs.back();
}
int64_t number(const MlpJob* job) { return job ? job->out : -1; }
int64_t place(const Fifo<const MlpJob*>& queue, const std::vector<MlpJob>& jobs) {
    return queue.has ? queue.o - jobs.data() : -1;
}
}  // namespace

extern "C" {
// A request (there, beat, beats), done, error, instructions handed on, a beat would be taken; which instruction stands at
// each queue, -1 for none; which is refused as it overlaps.
void* program_new(const MlpShape* shape, const MlpJob* jobs, uint64_t count) { return new ProgramOf(*shape, jobs, count); }
void program_delete(void* h) { delete static_cast<ProgramOf*>(h); }
void program_shows(void* h, int64_t* shown) {
    const ProgramOf& of = *static_cast<ProgramOf*>(h);
    const MlpProgram& p = of.program;
    const Request& r = p.requests.o;
    give(shown, {p.requests.has, int64_t(r.at), r.beats, p.done, p.error, int64_t(p.number), p.takes(true),
                 place(p.queues[0], of.jobs), place(p.queues[1], of.jobs), place(p.queues[2], of.jobs), p.late});
}
void program_start(void* h, uint64_t at, uint64_t count) { static_cast<ProgramOf*>(h)->program.start(at, count); }
// taken: a bit a queue.
void program_step(void* h, int32_t data, int32_t request_taken, int32_t taken, int32_t bad, int32_t refusal) {
    const bool queues[] = {(taken & 1) != 0, (taken & 2) != 0, (taken & 4) != 0};
    static_cast<ProgramOf*>(h)->program.step(data, request_taken, queues, bad, MlpProgram::Refusal(refusal));
}

// A request, done, error, idle, ready, the instruction under way; a load stands there, a beat would be taken.
void* rows_new(uint64_t base) { return new RowsOf{RowLoader(base), {}}; }
void rows_delete(void* h) { delete static_cast<RowsOf*>(h); }
void rows_shows(void* h, int64_t* shown) {
    const RowLoader& l = static_cast<RowsOf*>(h)->loader;
    const Request& r = l.requests.o;
    give(shown, {l.requests.has, int64_t(r.at), r.beats, l.done, l.error, l.idle(), l.ready(), number(l.under_way()),
                 l.load(), l.takes(true)});
}
// Whether a load entered.
int32_t rows_step(void* h, const MlpJob* job, int32_t data, int32_t bad, int32_t request_taken, int32_t load_taken,
                  int64_t weights, int64_t layers) {
    RowsOf& of = *static_cast<RowsOf*>(h);
    const bool accepts = of.loader.ready();
    const MlpJob* kept = keep(of.jobs, accepts ? job : nullptr);
    return of.loader.step(kept, data, request_taken, load_taken, {0, weights, layers}, bad);
}

// A request, done, error, idle, ready, the instruction under way; a line of weights leaves, one of addends stands there and
// which of its beat, a beat would be taken without and with room.
void* parameters_new(const MlpShape* shape, uint64_t base) { return new ParametersOf{ParameterLoader(base, *shape), {}}; }
void parameters_delete(void* h) { delete static_cast<ParametersOf*>(h); }
void parameters_shows(void* h, int64_t* shown) {
    const ParameterLoader& l = static_cast<ParametersOf*>(h)->loader;
    const Request& r = l.requests.o;
    give(shown, {l.requests.has, int64_t(r.at), r.beats, l.done, l.error, l.idle(), l.ready(), number(l.under_way()),
                 l.line(), l.addends(), l.part(), l.takes(true, false), l.takes(true, true)});
}
void parameters_step(void* h, const MlpJob* job, int32_t data, int32_t bad, int32_t request_taken, int32_t room,
                     int64_t rows, int64_t layers) {
    ParametersOf& of = *static_cast<ParametersOf*>(h);
    const bool accepts = of.loader.ready();
    of.loader.step(keep(of.jobs, accepts ? job : nullptr), data, request_taken, room, {rows, 0, layers}, bad);
}

// Whether an instruction is taken, nothing is under way, a slot goes, it is its tile's last, a tile's results are given
// room, an instruction's last slot goes; the stall; the instruction under way, -1: there was none.
void* sequencer_new(const MlpShape* shape) { return new SequencerOf{MlpSequencer(*shape), {}}; }
void sequencer_delete(void* h) { delete static_cast<SequencerOf*>(h); }
void sequencer_shows(void* h, int64_t* shown) {
    const MlpSequencer& s = static_cast<SequencerOf*>(h)->sequencer;
    give(shown, {s.ready(), s.idle(), s.slot, s.ends, s.reserve, s.done, s.stall, number(s.slot_of)});
}
// job: the instruction that is taken, null: none is.
void sequencer_step(void* h, const MlpJob* job, int64_t rows, int64_t weights, int64_t layers, int32_t written,
                    int32_t room) {
    SequencerOf& of = *static_cast<SequencerOf*>(h);
    of.sequencer.step(keep(of.jobs, job), {rows, weights, layers}, written, room);
}

// Writes to the rows' memory, of partials, a row to memory, the last of its tile; a tile is written.
void* results_new(const MlpShape* shape, int64_t latency) { return new ResultsOf{MlpResults(*shape, latency), {}}; }
void results_delete(void* h) { delete static_cast<ResultsOf*>(h); }
void results_shows(void* h, int64_t* shown) {
    const MlpResults& r = static_cast<ResultsOf*>(h)->results;
    give(shown, {r.on_chip, r.partial, r.row, r.row && r.last, r.written});
}
// tile: null: none comes.
void results_step(void* h, const TileGiven* given) {
    ResultsOf& of = *static_cast<ResultsOf*>(h);
    MlpTile tile{};
    if (given) {
        MlpJob job{};
        job.target = given->target;
        tile.job = keep(of.jobs, &job);
        tile.live = given->live, tile.writes = given->writes, tile.triangle = given->triangle;
        tile.group = given->group, tile.block = given->block;
    }
    of.results.step(given ? &tile : nullptr);
}

// A request, a beat stands there, there is room for a tile, nothing is inside.
void* writer_new(const MlpShape* shape, int64_t staged_tiles, int64_t output_beats) {
    return new WriterOf{MlpWriter(*shape, uint32_t(staged_tiles), uint32_t(output_beats)), MlpResults(*shape, 0), {}};
}
void writer_delete(void* h) { delete static_cast<WriterOf*>(h); }
void writer_shows(void* h, int64_t* shown) {
    const MlpWriter& w = static_cast<WriterOf*>(h)->writer;
    const Request& r = w.requests.o;
    give(shown, {w.requests.has, int64_t(r.at), r.beats, w.data, w.room, w.idle});
}
void writer_step(void* h, const RowGiven* row, int32_t reserve, int32_t request_taken, int32_t data_taken) {
    WriterOf& of = *static_cast<WriterOf*>(h);
    of.results.row = row;
    if (row) {
        MlpJob job{};
        job.activation = row->sigmoid ? ACTIVATION_SIGMOID : ACTIVATION_NONE;
        job.out_stride = row->stride;
        MlpTile& tile = of.results.tile = MlpTile{};
        tile.job = keep(of.jobs, &job);
        tile.address = row->address, tile.count = row->count, tile.wait = row->wait;
        tile.each = row->each, tile.words = row->words, tile.half = row->half, tile.fills = row->fills;
        of.results.last = row->last;
    }
    of.writer.step(of.results, reserve, request_taken, data_taken);
}

// Whether a word is taken, one stands there, anything is inside.
void* sigmoid_new() { return new MlpSigmoid; }
void sigmoid_delete(void* h) { delete static_cast<MlpSigmoid*>(h); }
void sigmoid_shows(void* h, int64_t* shown) {
    const MlpSigmoid& s = *static_cast<MlpSigmoid*>(h);
    give(shown, {s.ready(), s.has, s.busy});
}
void sigmoid_step(void* h, int32_t comes, int32_t taken) { static_cast<MlpSigmoid*>(h)->step(comes, false, taken); }
}
