// The EMB core's twin: how long everything takes, clock by clock, in the place of a Verilated model.
#include "core.h"
#include "doorbell.h"
#include "emb_post_pool.h"

namespace {
using namespace twin;

// The clock of golden.tt.unit, by golden.tt.clock: what the unit reports of the next cycle, after its inputs of
// this one, and after how many cycles it goes on by itself.
struct TensorTrains {
    int64_t (*clock)(void* sizes, void* unit, void* lanes, void* entries, void* lookups, void* vectors,
                     const int64_t* counts, int64_t cycle, int64_t lookup, int64_t goes);
    void *sizes, *unit, *lanes, *entries, *lookups, *vectors;
    const int64_t* counts;
    const int64_t* totals;      // computed, reused, slots
};

constexpr int64_t ROOM = 1, OFFERED = 2, FLAGS = 2;     // see golden.tt.clock
// All that a flush resets.
struct Parts {
    Front front;
    Copies copies;
    Arbiter arbiter;
    RowFetch<> fetch;
    PostPool post;
    Fifo<uint8_t> partials[2];
    SkidBuffer<Request> requests, copy_requests;
    SkidBuffer<bool> vectors;
    Doorbell doorbell;
    uint64_t pool = 0, decoder = 0;     // two bits a cycle: whose vector's beat is in the pooling unit, in the decoder
    int64_t tt_cycle = 0, tt_says = 0, tt_wake = 0;
    bool begun = false;                 // the first look has said where the ring begins
    bool quiet = false, calm = false;   // nothing moved in the front; nor will anything before something comes to it

    Parts(const Sizes& s, const std::vector<Job>& jobs, uint32_t ring)
        : front(jobs, uint32_t(s.frame.words), uint32_t(s.dram_queue), uint32_t(s.ssd_queue), uint32_t(s.tt_queue),
                uint32_t(s.bag_queue), uint32_t(s.load_wait), ring != 0),
          arbiter(uint32_t(s.row_beats_max), uint32_t(s.partial_beats), uint32_t(s.output_beats), ring),
          fetch(uint32_t(s.window_beats), uint32_t(s.window_sets), uint32_t(s.row_beats_max), uint32_t(s.delivery_rows),
                uint32_t(s.stripe_beats), uint32_t(s.banks)),
          post(uint32_t(s.output_beats), uint32_t(s.write_block_beats), uint32_t(s.pool_latency)),
          partials{Fifo<uint8_t>(uint32_t(s.partial_beats)), Fifo<uint8_t>(uint32_t(s.partial_beats))} {}
};

class EmbCore : public Core<3, COUNTS> {
  public:
    EmbCore(const Sizes& sizes, Binding& pins) : Core(sizes.frame, pins), s(sizes) {}
    void prepare(const Run& next, const Job* list, const uint64_t* totals, const int64_t* places,
                 const TensorTrains* units) {
        Core::prepare(next.result, totals, places);
        at = next;
        jobs.assign(list, list + next.jobs);
        tts.assign(units, units + next.units);
    }

  protected:
    void read_ports() override {
        const uint32_t input = uint32_t(s.input_beats);
        rows = std::make_unique<Reader>(m01, bytes, block, uint32_t(s.rows_in_flight));
        reads = std::make_unique<Reads>(m00, *store, bytes, block, uint32_t(s.frame.reads_in_flight),
                                        std::array<uint32_t, 5>{uint32_t(s.program_beats), input, input, input, 1});
    }
    std::array<uint32_t, 3> depths(uint32_t status) const override {
        return {uint32_t(s.output_beats), uint32_t(s.output_beats), status};
    }
    void drain() override {
        rows->drain();
        reads->drain();
    }
    bool reads_idle() const override { return rows->idle() && reads->idle(); }
    void begin() override {
        parts = std::make_unique<Parts>(s, jobs, uint32_t(at.ring_beats));
        unit_at = 0;
        begin_unit();
    }
    bool over() const override { return parts->front.program.done; }
    void end() override { end_unit(); }

  private:
    static constexpr int BELL = 4;
    using Reads = ReadPort<5, BELL>;
    const Sizes s;
    std::unique_ptr<Reader> rows;
    std::unique_ptr<Reads> reads;
    std::unique_ptr<Parts> parts;
    std::vector<Job> jobs;
    std::vector<TensorTrains> tts;      // up to each LOAD, and behind the last
    TensorTrains tt{};
    Run at{};
    size_t unit_at = 0;

    // The TT unit, as the next stretch of the program without a LOAD finds it.
    void begin_unit() {
        tt = tts[unit_at];
        parts->tt_cycle = 0;
        parts->tt_says = tt.clock ? ROOM : 0;
        parts->tt_wake = tt.clock ? 0 : INT64_MAX;
    }
    void end_unit() {
        for (int k = 0; tt.clock && k < 3; k++) count[TT_COMPUTED + k] += uint64_t(tt.totals[k]);
    }

    void work(bool starts) override {
        Parts& p = *parts;
        RowFetch<>& fetch = p.fetch;
        PostPool& post = p.post;
        // What stands at the write port's clients, and what is taken of it.
        writes->decide();
        Request output = p.requests.o, copy = p.copy_requests.o;
        output.at += beat(at.outputs);
        const Request* asked[3] = {p.requests.has ? &output : nullptr, p.copy_requests.has ? &copy : nullptr};
        const bool copies = fetch.out && fetch.row.copy;
        bool offered[3] = {post.data() && writes->room(0), copies && writes->room(1)};
        const bool output_taken = asked[0] && writes->ready(0), copy_taken = asked[1] && writes->ready(1);
        const bool written = writes->done[0];
        const Status told = status(asked, offered);
        const bool row_done = p.copies.written(writes->done[1]);
        const bool bags_done = post.instruction_done;

        // Rows on their way.
        const bool ready = fetch.ready, row_taken = p.arbiter.has && ready, port_ready = rows->ready();
        const Fetched row = p.arbiter.o;
        const bool requested = fetch.requests.has && port_ready;
        Request request = fetch.requests.o;
        request.at += beat(fetch.requests.ring ? at.ring : at.rows);
        const bool arrived = rows->o;
        p.arbiter.decide(p.front.tiers.dram, ready);
        const uint32_t pooled = p.pool & 3;
        const bool leaves = fetch.out && !copies && fetch.row.last, plain = fetch.row.form == FLOAT32;
        const uint64_t tag = leaves ? 1 + fetch.row.ring : 0, decoded = p.decoder & 3;
        p.decoder = p.decoder >> 2 | (plain ? 0 : tag) << 2 * (RowFetch<>::DECODER - 1);
        p.pool = p.pool >> 2 | (plain && tag ? tag : decoded) << 2 * (s.pool_latency - 1);

        // The edge.
        const Fifo<uint8_t>& lookups = p.front.tiers.lookups;
        const bool lookup = lookups.has, lookup_taken = lookup && p.tt_says & ROOM, vector = p.tt_says & OFFERED;
        const bool asks = post.requests.has;
        const Request joined = post.requests.o;
        const PostPool::Taken used = post.step(p.front.tiers.steps, p.vectors.has, p.partials[0].has, p.partials[1].has,
                                               asks && !p.requests.held, written);
        p.requests.step(asks, joined, output_taken);
        const bool vector_room = !p.vectors.held;
        p.vectors.step(vector, true, used.tt);
        if (p.tt_cycle >= p.tt_wake || lookup_taken || (vector && vector_room)) {
            p.tt_says = tt.clock(tt.sizes, tt.unit, tt.lanes, tt.entries, tt.lookups, tt.vectors, tt.counts, p.tt_cycle,
                                 lookup, vector_room);
            p.tt_wake = p.tt_cycle + (p.tt_says >> FLAGS);
        }
        p.tt_cycle++;
        if (p.front.program.flush_tt) {
            end_unit();
            unit_at++;
            begin_unit();
        }
        p.partials[0].step(pooled == 1, true, used.dram);
        p.partials[1].step(pooled == 2, true, used.ssd);
        const bool dram_taken = p.arbiter.dram_taken, ssd_taken = p.arbiter.ssd_taken;
        const bool waiting = p.arbiter.waiting;
        p.arbiter.step(p.front.tiers.dram, p.front.tiers.ssd, p.doorbell.value % POSITIONS, used.dram, used.ssd, row_done);
        fetch.step(row_taken, row, arrived, requested, p.front.program.flush_window);
        rows->step(requested, request);
        count[BEATS_FETCHED] += arrived;
        count[COALESCED_ROWS] = fetch.found_rows;

        // Where rows are copied to.
        const Fifo<Row>& fills = p.front.tiers.fills;
        const bool copy_free = !p.copy_requests.held, copy_asks = p.copies.has;
        const Request copy_request = p.copies.o;
        const bool fill_taken = p.copies.takes(fills.has, fills.o, copy_free);
        p.copies.step(fills.has, fills.o, copy_free, beat(at.rows), uint32_t(s.stripe_beats));
        p.copy_requests.step(copy_asks, copy_request, copy_taken);

        front(p, starts, bags_done, row_done, waiting,
              {dram_taken, ssd_taken, lookup_taken, used.steps, fill_taken});
        const uint32_t progress[2] = {uint32_t(p.front.program.released), p.front.program.finished};
        report(told, progress, p.front.program.finish);
        writes->step(asked, offered, told.word);
    }
    // The edge of the read port and of the front.
    void front(Parts& p, bool starts, bool bags_done, bool row_done, bool waiting, const Front::Dealt& dealt) {
        const bool comes = starts || bags_done || row_done || m00.rvalid || p.doorbell.asks || dealt.any();
        stalls(p);
        if (p.calm && !comes) {
            p.doorbell.step(at.ring_beats != 0, waiting, false, false, 0);
            return;
        }
        Request asked[4];
        const Request bell{beat(at.result + uint64_t(4 * (p.begun ? s.doorbell : s.frame.progress))), 1, 0};
        const Request* requests[5] = {};
        for (int k = 0; k < 4; k++)
            if (p.front.requests(k).has) requests[k] = &(asked[k] = p.front.requests(k).o);
        requests[BELL] = p.doorbell.asks ? &bell : nullptr;
        const int accepted = reads->accepting();
        const uint32_t* data[4];
        for (int k = 0; k < 4; k++) data[k] = reads->queue[size_t(k)].has ? reads->queue[size_t(k)].o : nullptr;
        const bool answered = reads->bell;
        const uint32_t value = reads->bell_value;

        bool taken[5] = {false, false, false, false, answered};
        const uint32_t requested = accepted >= 0 && accepted < BELL ? 1u << accepted : 0;
        const bool moved = p.front.step(starts, beat(at.program), beat(at.inputs), requested, data, taken, bags_done,
                                        row_done, dealt);
        reads->step(requests, taken);
        p.doorbell.step(at.ring_beats != 0, waiting, accepted == BELL, answered, value);
        if (p.doorbell.polled && !p.begun) {
            p.begun = true;
            p.front.program.ring_begins(value % POSITIONS);
        }
        // What a part shows at the end of a cycle moves others in the next one.
        const bool quiet = !comes && !moved && p.front.still() && reads->still();
        p.calm = quiet && p.quiet;
        p.quiet = quiet;
    }
    void stalls(const Parts& p) {
        count[STALL_DRAM] += !p.front.tiers.dram.room;
        count[STALL_TT] += !p.front.tiers.lookups.room;
        count[STALL_SSD] += !p.front.tiers.ssd.room || !p.front.tiers.fills.room;
        count[STALL_WRITE] += !p.front.tiers.steps.room;
        count[STALL_FEEDER] += p.front.feeder.stalls;
    }
};

thread_local Sizes next_core;       // of the card that is made next
}  // namespace

std::unique_ptr<Model> make_model(int, Binding& pins) { return std::make_unique<EmbCore>(next_core, pins); }

extern "C" {
API void twin_sizes(const Sizes* sizes) { next_core = *sizes; }
API void twin_attach(void* h) {
    Card& c = *static_cast<Card*>(h);
    static_cast<EmbCore&>(*c.model).attach(c.store.get());
}
API void twin_run(void* h, const Run* run, const Job* jobs, const uint64_t* totals, const int64_t* places,
                  const TensorTrains* units) {
    static_cast<EmbCore&>(*static_cast<Card*>(h)->model).prepare(*run, jobs, totals, places, units);
}
}
