// Parts of the MLP core's cycle model, each by itself, for the benches of the units that they are held to: see
// verif.mlp.cycles. *_step is the clock edge that ends a cycle. The number of an instruction is in the place of `out`,
// which decides nothing here.
#include <deque>

#include "../../fpga/card/cpp/twin/mlp_writer.h"
#include "../bench/cycle_model.h"

using namespace twin;

namespace {
// With the jobs that have been taken; they stay where they are.
struct WithJobs : Part {
    std::deque<MlpJob> jobs;

    const MlpJob* keep(const MlpJob* job) {
        if (!job) return nullptr;
        jobs.push_back(*job);
        return &jobs.back();
    }
};

int64_t number(const MlpJob* job) { return job ? job->out : -1; }

struct ProgramOf : Part {
    std::vector<MlpJob> jobs;
    MlpProgram program;

    ProgramOf(const MlpShape& shape, const MlpJob* list, uint64_t count) : jobs(list, list + count), program(jobs, shape) {}
    int64_t place(int queue) const {
        const auto& of = program.queues[queue];
        return of.has ? of.o - jobs.data() : -1;
    }
    void shows(int64_t* shown) const override {
        const MlpProgram& p = program;
        give(shown, {p.requests.has, int64_t(p.requests.o.at), p.requests.o.beats, p.done, p.error, int64_t(p.number),
                     p.takes(true), place(0), place(1), place(2), p.late});
    }
};

struct RowsOf : WithJobs {
    RowLoader loader;

    explicit RowsOf(uint64_t base) : loader(base) {}
    void shows(int64_t* shown) const override {
        const Request& r = loader.requests.o;
        give(shown, {loader.requests.has, int64_t(r.at), r.beats, loader.done, loader.error, loader.idle(), loader.ready(),
                     number(loader.under_way()), loader.load(), loader.takes(true)});
    }
};

struct ParametersOf : WithJobs {
    ParameterLoader loader;

    ParametersOf(uint64_t base, const MlpShape& shape) : loader(base, shape) {}
    void shows(int64_t* shown) const override {
        const Request& r = loader.requests.o;
        give(shown, {loader.requests.has, int64_t(r.at), r.beats, loader.done, loader.error, loader.idle(), loader.ready(),
                     number(loader.under_way()), loader.line(), loader.addends(), loader.part(), loader.takes(true, false),
                     loader.takes(true, true)});
    }
};

struct SequencerOf : WithJobs {
    MlpSequencer sequencer;

    explicit SequencerOf(const MlpShape& shape) : sequencer(shape) {}
    void shows(int64_t* shown) const override {
        const MlpSequencer& s = sequencer;
        give(shown, {s.ready(), s.idle(), s.slot, s.ends, s.reserve, s.done, s.stall, number(s.slot_of)});
    }
};

struct ResultsOf : WithJobs {
    MlpResults results;

    ResultsOf(const MlpShape& shape, int64_t latency) : results(shape, latency) {}
    void shows(int64_t* shown) const override {
        give(shown, {results.on_chip, results.partial, results.row, results.row && results.last, results.written});
    }
};

struct WriterOf : WithJobs {
    MlpWriter writer;
    MlpResults results;

    WriterOf(const MlpShape& shape, int64_t staged_tiles, int64_t output_beats)
        : writer(shape, uint32_t(staged_tiles), uint32_t(output_beats)), results(shape, 0) {}
    void shows(int64_t* shown) const override {
        const Request& r = writer.requests.o;
        give(shown, {writer.requests.has, int64_t(r.at), r.beats, writer.data, writer.room, writer.idle});
    }
};

struct SigmoidOf : Part, MlpSigmoid {
    void shows(int64_t* shown) const override { give(shown, {ready(), has, busy}); }
};

// A tile, its fields as MlpTile has them.
struct TileGiven {
    int64_t live, writes, target, triangle, group, block;
};

// A row of results, the tile's fields as MlpTile has them.
struct RowGiven {
    int64_t last, half, fills, sigmoid, address, stride, count, wait, each, words;
};
}  // namespace

extern "C" {
Part* program_new(const MlpShape* shape, const MlpJob* jobs, uint64_t count) { return new ProgramOf(*shape, jobs, count); }
void program_start(ProgramOf* of, uint64_t at, uint64_t count) { of->program.start(at, count); }
// taken: a bit a queue.
void program_step(ProgramOf* of, int32_t data, int32_t request_taken, int32_t taken, int32_t bad, int32_t refusal) {
    const bool queues[] = {(taken & 1) != 0, (taken & 2) != 0, (taken & 4) != 0};
    of->program.step(data, request_taken, queues, bad, MlpProgram::Refusal(refusal));
}

Part* rows_new(uint64_t base) { return new RowsOf(base); }
// Whether a load entered.
int32_t rows_step(RowsOf* of, const MlpJob* job, int32_t data, int32_t bad, int32_t request_taken, int32_t load_taken,
                  int64_t weights, int64_t layers) {
    return of->loader.step(of->keep(job), data, request_taken, load_taken, {0, weights, layers}, bad);
}

Part* parameters_new(const MlpShape* shape, uint64_t base) { return new ParametersOf(base, *shape); }
void parameters_step(ParametersOf* of, const MlpJob* job, int32_t data, int32_t bad, int32_t request_taken, int32_t room,
                     int64_t rows, int64_t layers) {
    of->loader.step(of->keep(job), data, request_taken, room, {rows, 0, layers}, bad);
}

Part* sequencer_new(const MlpShape* shape) { return new SequencerOf(*shape); }
// job: the instruction that is taken, null: none is.
void sequencer_step(SequencerOf* of, const MlpJob* job, int64_t rows, int64_t weights, int64_t layers, int32_t written,
                    int32_t room) {
    of->sequencer.step(of->keep(job), {rows, weights, layers}, written, room);
}

Part* results_new(const MlpShape* shape, int64_t latency) { return new ResultsOf(*shape, latency); }
// tile: null: none comes.
void results_step(ResultsOf* of, const TileGiven* given) {
    MlpTile tile{};
    if (given) {
        MlpJob job{};
        job.target = given->target;
        tile.job = of->keep(&job);
        tile.live = given->live, tile.writes = given->writes, tile.triangle = given->triangle;
        tile.group = given->group, tile.block = given->block;
    }
    of->results.step(given ? &tile : nullptr);
}

Part* writer_new(const MlpShape* shape, int64_t staged_tiles, int64_t output_beats) {
    return new WriterOf(*shape, staged_tiles, output_beats);
}
void writer_step(WriterOf* of, const RowGiven* row, int32_t reserve, int32_t request_taken, int32_t data_taken) {
    of->results.row = row;
    if (row) {
        MlpJob job{};
        job.activation = row->sigmoid ? ACTIVATION_SIGMOID : ACTIVATION_NONE;
        job.out_stride = row->stride;
        MlpTile& tile = of->results.tile = MlpTile{};
        tile.job = of->keep(&job);
        tile.address = row->address, tile.count = row->count, tile.wait = row->wait;
        tile.each = row->each, tile.words = row->words, tile.half = row->half, tile.fills = row->fills;
        of->results.last = row->last;
    }
    of->writer.step(of->results, reserve, request_taken, data_taken);
}

Part* sigmoid_new() { return new SigmoidOf; }
void sigmoid_step(SigmoidOf* of, int32_t comes, int32_t taken) { of->step(comes, false, taken); }
}
