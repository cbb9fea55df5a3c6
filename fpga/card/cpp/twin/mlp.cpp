// The MLP core's twin: how long everything takes, clock by clock, in the place of a Verilated model.
#include "core.h"
#include "mlp_writer.h"

namespace {
using namespace twin;

struct Sizes {
    Frame frame;
    MlpShape shape;
    Depths depths;
};

// When an instruction's first and last slot came, in cycles from the run's start, and how many it had.
struct Span {
    int64_t first, last, slots;
};

// All that a flush resets.
struct Parts {
    MlpProgram program;
    RowLoader rows;
    ParameterLoader parameters;
    MlpSequencer sequencer;
    MlpResults results;
    MlpWriter writer;
    Done done;
    uint32_t now = 0, finished = 0;         // instructions, in this cycle and before
    int calm = 0, under_way = 0;            // cycles in which all parts are idle; writes
    bool all_written = false;

    Parts(const Sizes& s, const std::vector<MlpJob>& jobs, uint64_t inputs, uint64_t weights)
        : program(jobs, s.shape), rows(inputs), parameters(weights, s.shape), sequencer(s.shape),
          results(s.shape, s.depths.results), writer(s.shape, uint32_t(s.depths.staged_tiles), uint32_t(s.depths.output_beats)) {}
    bool idle() const {
        return program.done && rows.idle() && parameters.idle() && sequencer.idle() && writer.idle;
    }
};

class MlpCore : public Core<2, COUNTS> {
  public:
    MlpCore(const Sizes& sizes, Binding& pins) : Core(sizes.frame, pins), s(sizes) {}
    void prepare(const Run& next, const MlpJob* list, const uint64_t* totals, const int64_t* places) {
        Core::prepare(next.result, totals, places);
        at = next;
        jobs.assign(list, list + next.jobs);
        spans.assign(jobs.size(), Span{});
    }
    const Span* slots() const { return spans.data(); }

  protected:
    void read_ports() override {
        const uint32_t loads = uint32_t(s.depths.load_beats), bursts = uint32_t(s.frame.reads_in_flight);
        reads = std::make_unique<ReadPort<2>>(m00, *store, bytes, block, bursts,
                                                     std::array<uint32_t, 2>{uint32_t(s.depths.program_beats), loads});
        weights = std::make_unique<ReadPort<1>>(m01, *store, bytes, block, bursts,
                                                       std::array<uint32_t, 1>{loads});
    }
    std::array<uint32_t, 2> depths(uint32_t status) const override { return {uint32_t(s.depths.output_beats), status}; }
    void drain() override {
        reads->drain();
        weights->drain();
    }
    bool reads_idle() const override { return reads->idle() && weights->idle(); }
    void begin() override { parts = std::make_unique<Parts>(s, jobs, beat(at.inputs), beat(at.weights)); }
    bool over() const override { return parts->calm == CALM; }
    void work(bool starts) override {
        Parts& p = *parts;
        // What stands at the ports' clients, and what is taken of it.
        writes->decide();
        Request output = p.writer.requests.o;
        output.at += beat(at.outputs);
        const Request* asked[2] = {p.writer.requests.has ? &output : nullptr};
        bool offered[2] = {p.writer.data && writes->room(0)};
        const bool output_taken = asked[0] && writes->ready(0), output_done = writes->done[0];
        const Status told = status(asked, offered);
        const Request program_request = p.program.requests.o, rows_request = p.rows.requests.o;
        const Request weights_request = p.parameters.requests.o;
        const Request* read[2] = {p.program.requests.has ? &program_request : nullptr,
                                  p.rows.requests.has ? &rows_request : nullptr};
        const Request* read_weights[1] = {p.parameters.requests.has ? &weights_request : nullptr};
        const int accepted = reads->accepting(), weights_accepted = weights->accepting();
        const bool come[2] = {reads->queue[0].has, reads->queue[1].has}, weights_come = weights->queue[0].has;
        // What goes from part to part.
        const auto& queues = p.program.queues;
        const MlpJob* job[MlpProgram::ENGINES];
        for (int k = 0; k < MlpProgram::ENGINES; k++) job[k] = queues[k].has ? queues[k].o : nullptr;
        const bool jobs_taken[] = {job[0] && p.rows.ready(), job[1] && p.parameters.ready(),
                                   job[2] && p.sequencer.ready()};
        const bool load_taken = p.rows.load() && !p.results.on_chip, addends_taken = !p.results.partial;
        const bool taken[2] = {p.program.takes(come[0]), p.rows.takes(come[1])};
        const bool weights_taken[1] = {p.parameters.takes(weights_come, addends_taken)};
        const bool idle = p.idle(), tile_written = p.results.written, layer_written = p.results.final, room = p.writer.room;
        const uint32_t finished = uint32_t(p.rows.done) + p.parameters.done + p.sequencer.done;
        const Done done = p.done;
        if (p.sequencer.slot) {
            Span& span = spans[size_t(p.sequencer.slot_of - jobs.data())];
            span.last = int64_t(count[CYCLES]) - 1;
            if (!span.slots++) span.first = span.last;
        }
        for (int k = STALL_ROWS; k < COUNTS; k++) count[k] += int(p.sequencer.stall) == k;      // as MlpSequencer::Stall

        // The edge.
        p.done.rows += p.rows.done, p.done.weights += p.parameters.done, p.done.layers += layer_written;
        p.calm = idle && p.all_written ? std::min(CALM, p.calm + 1) : 0;
        p.all_written = !p.under_way && !output_taken;
        p.under_way += int(output_taken) - int(output_done);
        p.writer.step(p.results, p.sequencer.reserve, output_taken, offered[0]);
        p.results.step(p.sequencer.ends ? &p.sequencer.tile : nullptr);
        p.sequencer.step(job[2], done, tile_written, room);
        p.rows.step(job[0], come[1], accepted == 1, load_taken, done);
        p.parameters.step(job[1], weights_come, weights_accepted == 0, addends_taken, done);
        if (starts)
            p.program.start(beat(at.program));
        else
            p.program.step(come[0], accepted == 0, jobs_taken);
        reads->step(read, taken);
        weights->step(read_weights, weights_taken);
        const uint32_t progress[2] = {p.finished, 0};
        p.finished += p.now;
        p.now = finished;
        report(told, progress, finished);
        writes->step(asked, offered, told.word);
    }

  private:
    static constexpr int CALM = 4;
    const Sizes s;
    std::unique_ptr<ReadPort<2>> reads;
    std::unique_ptr<ReadPort<1>> weights;
    std::unique_ptr<Parts> parts;
    std::vector<MlpJob> jobs;
    std::vector<Span> spans;        // of the jobs
    Run at{};
};

thread_local Sizes next_core;       // of the card that is made next
}  // namespace

std::unique_ptr<Model> make_model(int, Binding& pins) { return std::make_unique<MlpCore>(next_core, pins); }

extern "C" {
API void twin_sizes(const Sizes* sizes) { next_core = *sizes; }
API void twin_attach(void* h) {
    Card& c = *static_cast<Card*>(h);
    static_cast<MlpCore&>(*c.model).attach(c.store.get());
}
API const Span* twin_spans(void* h) { return static_cast<MlpCore&>(*static_cast<Card*>(h)->model).slots(); }
API void twin_run(void* h, const Run* run, const MlpJob* jobs, const uint64_t* totals, const int64_t* places) {
    static_cast<MlpCore&>(*static_cast<Card*>(h)->model).prepare(*run, jobs, totals, places);
}
}
