// The Hotline core's twin: how long everything takes, clock by clock, in the place of a Verilated model. What
// mini-batches and rows hold is asked for as they are dealt and updated.
#include "core.h"
#include "doorbell.h"
#include "hotline_front.h"

namespace {
using namespace twin;

// Of a core; fpga.card.twin hands them over in this order.
struct Sizes {
    Frame frame;
    HotlineShape shape;
    int64_t program_beats, input_beats, row_read_beats, output_beats, finished;
};

// What happens in a run that changes the card's memory.
enum Event { DEALT_POPULAR, DEALT_GATHERED, UPDATED, SAVED, LATE };

// What a run is given besides the arguments of the control slave; addresses in bytes.
struct Run {
    uint64_t program, inputs, mailbox, gradients, rows, hot, result, timeout, jobs, beats;
};

// Counters that are found out here, in the order of gen.compiler.twin_hotline.TIMED.
enum Count { CYCLES, POPULAR, GATHERED, UPDATES, READ, WRITTEN, HOT_READ, MULTIPLIED, ADDED, SHARED, STALL_LOGGER,
             STALL_FRAMES, STALL_MAILBOX, STALL_GATHER, COUNTS };

enum Reads { PROGRAM, INPUTS, BELL, GRADIENTS, HOT, READS };
enum Writes { MAILBOX, IMAGE, STATUS, WRITES };
enum Reader { DISPATCHER, UPDATER, BAGS };      // of the row table

// All that a flush resets.
struct Parts {
    HotlineProgram program;
    ImageMover mover;
    LookupArray lookup;
    Logger logger;
    Classifier classifier;
    InputBuffer frames;
    Gather gather;
    EmbeddingBuffer embeddings;
    Dispatcher dispatcher;
    Updater updater;
    BagReader bags;
    Doorbell doorbell;
    bool idle = false;
    // Registers between the parts.
    SkidBuffer<bool> answers, data, image, sets, updated, rows, ask_rows, vectors;
    SkidBuffer<SampleBeat> looked_up;
    SkidBuffer<FramePart> popular;
    SkidBuffer<uint32_t> again, beats;
    SkidBuffer<Gathered> gathered;
    SkidBuffer<Place> ask_beats;
    SkidBuffer<Query> queries[RowTable::CLIENTS];
    SkidBuffer<Request> requests, image_requests, row_requests;

    Parts(const Sizes& s, const std::vector<HotlineJob>& jobs, const SampleBeats& known, size_t words)
        : program(jobs, s.shape, s.output_beats), mover(s.shape), lookup(s.shape, known), logger(s.shape, known),
          classifier(known), frames(s.shape), gather(s.shape, known, words),
          embeddings(s.shape, uint32_t(s.row_read_beats)),
          dispatcher(uint32_t(s.output_beats), uint32_t(s.frame.writes_in_flight)),
          bags(s.shape, known, gather.ordinals) {}
};

class HotlineCore : public Core<WRITES, COUNTS> {
  public:
    HotlineCore(const Sizes& sizes, Binding& pins) : Core(sizes.frame, pins, true), s(sizes) {}
    void prepare(const Run& next, const HotlineJob* list, const SampleBeats& beats, const uint64_t* totals,
                 const int64_t* places, void (*happens)(int)) {
        Core::prepare(next.result, totals, places);
        at = next;
        jobs.assign(list, list + next.jobs);
        known = beats;
        event = happens;
    }
    // The hot rows of the pooled mini-batch that was dealt last, as they were read.
    const uint32_t* hot_words() const { return parts->bags.hot_words.data(); }

  protected:
    void read_ports() override {
        const uint32_t rows = uint32_t(s.row_read_beats), bursts = uint32_t(s.frame.reads_in_flight);
        reads = std::make_unique<ReadPort<READS, BELL>>(
            m00, *store, bytes, block, bursts,
            std::array<uint32_t, READS>{uint32_t(s.program_beats), uint32_t(s.input_beats), 1, rows, rows});
        row_reads = std::make_unique<ReadPort<1>>(m01, *store, bytes, block, bursts, std::array<uint32_t, 1>{rows});
        const uint32_t longest = uint32_t(std::max<int64_t>(s.output_beats, 64));
        row_writes = std::make_unique<WritePort<2>>(m01, *store, bytes, block, uint32_t(s.frame.writes_in_flight),
                                                    std::array<uint32_t, 2>{longest, 2});
    }
    std::array<uint32_t, WRITES> depths(uint32_t status) const override {
        return {uint32_t(s.output_beats), uint32_t(s.output_beats), status};
    }
    void drain() override {
        reads->drain();
        row_reads->drain();
    }
    bool reads_idle() const override { return reads->idle() && row_reads->idle() && row_writes->idle(); }
    void begin() override {
        parts = std::make_unique<Parts>(s, jobs, known, size_t(at.beats * uint64_t(s.frame.words)));
    }
    bool over() const override { return parts->program.done; }
    void work(bool starts) override {
        Parts& p = *parts;
        writes->decide();
        row_writes->decide();
        // What stands at the write ports' clients, and what is taken of it.
        const Request mail = p.requests.o, image = p.image_requests.o, row = p.row_requests.o;
        const Request* asked[WRITES] = {p.requests.has ? &mail : nullptr, p.image_requests.has ? &image : nullptr};
        bool offered[WRITES] = {p.data.has && writes->room(MAILBOX), p.mover.beats() && writes->room(IMAGE)};
        const Request* row_asked[2] = {p.row_requests.has ? &row : nullptr, nullptr};
        const bool row_offered[2] = {p.updater.writes_row(p.updated.has) && row_writes->room(0), false};
        Taken t;
        t.mail = asked[MAILBOX] && writes->ready(MAILBOX), t.mail_data = offered[MAILBOX];
        t.image = asked[IMAGE] && writes->ready(IMAGE), t.image_data = offered[IMAGE];
        t.row = row_asked[0] && row_writes->ready(0), t.row_data = row_offered[0];
        t.dealt = writes->done[MAILBOX], t.saved = writes->done[IMAGE], t.row_written = row_writes->done[0];
        const Status told = status(asked, offered);
        // At the read ports' clients.
        t.read = reads->accepting(), t.cold = row_reads->accepting() == 0;
        const Request bell{beat(at.result + uint64_t(4 * s.finished)), 1, 0}, program = p.program.requests.o;
        const Request input = p.program.reader.requests.o, gradients = p.updater.requests.o;
        const uint64_t row_beats = uint64_t(job().row_beats());
        const Request hot{beat(at.hot) + p.bags.hot_request * row_beats, uint32_t(row_beats), 0};
        const Request cold{beat(at.rows) + p.gather.requests.o, uint32_t(row_beats), 0};
        const Request* wanted[READS] = {p.program.requests.has ? &program : nullptr,
                                        p.program.reader.requests.has ? &input : nullptr,
                                        p.doorbell.asks ? &bell : nullptr,
                                        p.updater.requests.has ? &gradients : nullptr,
                                        p.bags.asks_hot ? &hot : nullptr};
        const Request* row_wanted[1] = {p.gather.requests.has ? &cold : nullptr};
        for (int k = 0; k < READS; k++) t.comes[k] = reads->queue[size_t(k)].has;
        t.comes[BELL] = reads->bell, t.word = reads->bell_value;
        t.row_comes = row_reads->queue[0].has;
        const uint32_t progress[2] = {p.dispatcher.dealt, 0};
        const bool gradients_taken = p.updater.takes(t.comes[GRADIENTS], p.updated.has);
        t.row_landed = t.row_comes && p.embeddings.data_ready(p.updater.result());
        const bool beats_taken[READS] = {p.program.takes(t.comes[PROGRAM]),
                                         t.comes[INPUTS] && p.program.reader.ready(p.lookup.ready, !p.image.held),
                                         t.comes[BELL], gradients_taken, p.bags.takes_hot(t.comes[HOT])};
        const bool rows_taken[1] = {t.row_landed};
        if (reads->coming() == HOT) p.bags.arrives(m00.rdata.data());
        // The edge.
        stalls(p);
        look(p, t);
        const bool idle_lookup = p.lookup.idle && !p.logger.busy && p.classifier.idle;
        const bool idle = p.idle, flushed = p.frames.flushed, moved = p.mover.done;
        p.idle = idle_lookup && p.frames.idle && p.gather.idle && p.embeddings.idle && p.dispatcher.idle &&
                 p.updater.idle && !p.bags.busy;
        t.start = p.program.trains, t.flush = p.program.flush;
        samples(p, t);
        deal(p, t);
        front(p, t, starts, moved, idle_lookup, flushed, idle);
        p.doorbell.step(!t.bell_rests, t.bell_waits, t.read == BELL, t.comes[BELL], t.word);
        reads->step(wanted, beats_taken);
        row_reads->step(row_wanted, rows_taken);
        const Beat empty{};
        row_writes->step(row_asked, row_offered, empty);
        report(told, progress, p.dispatcher.tell);
        writes->step(asked, offered, told.word);
        if (p.dispatcher.tell) event(p.dispatcher.told ? DEALT_GATHERED : DEALT_POPULAR);
        if (p.updater.updated) event(UPDATED);
        if (p.program.saves) event(SAVED);
        if (p.dispatcher.late) event(LATE);
    }

  private:
    // What is taken in a cycle, and what stands there of what other parts change before they are asked.
    struct Taken {
        bool mail, mail_data, image, image_data, row, row_data, dealt, saved, row_written, cold, row_comes, row_landed;
        bool comes[READS];
        int read;
        uint32_t word;
        bool start, flush, bell_rests, bell_waits;
        // Between samples and mini-batches.
        bool wanted[2], granted[2], frames_taken[2], beats_taken[2];
        Place places[2];
        FramePart frames[2];
        bool frame_there[2], writes_beat;
        int64_t freed;
        bool read_there[2];
        uint32_t read_beats[2];
    };
    const Sizes s;
    std::unique_ptr<ReadPort<READS, BELL>> reads;
    std::unique_ptr<ReadPort<1>> row_reads;
    std::unique_ptr<WritePort<2>> row_writes;
    std::unique_ptr<Parts> parts;
    std::vector<HotlineJob> jobs;
    SampleBeats known{};
    Run at{};
    void (*event)(int) = nullptr;

    const HotlineJob& job() const {
        static const HotlineJob none{};
        return parts->program.job ? *parts->program.job : none;
    }
    void stalls(const Parts& p) {
        count[POPULAR] += p.dispatcher.tell && !p.dispatcher.told;
        count[GATHERED] += p.dispatcher.tell && p.dispatcher.told;
        count[UPDATES] += p.updater.done;
        count[READ] += p.gather.fresh();
        count[WRITTEN] += p.updater.wrote;
        count[HOT_READ] += p.bags.read_hot;
        count[MULTIPLIED] += p.updater.multiplied || p.bags.multiplied;
        count[ADDED] += p.updater.added || p.bags.added;
        count[SHARED] += p.gather.shared();
        count[STALL_LOGGER] += p.program.reader.has_sample && !p.lookup.ready;
        count[STALL_FRAMES] += p.frames.waiting;
        count[STALL_MAILBOX] += p.dispatcher.stalls;
        count[STALL_GATHER] += p.dispatcher.hungry && !p.gather.idle;
    }
    // What goes between the input buffer and those who deal, as it stands before the edge.
    void look(const Parts& p, Taken& t) {
        t.wanted[0] = p.ask_beats.has, t.wanted[1] = p.gather.asks;
        t.places[0] = p.ask_beats.o, t.places[1] = p.gather.place;
        for (int k = 0; k < 2; k++) {
            t.granted[k] = p.frames.grants(k, t.wanted);
            t.frame_there[k] = p.frames.out[k].has, t.frames[k] = p.frames.out[k].o;
            t.read_there[k] = p.frames.read[k].has, t.read_beats[k] = p.frames.read[k].o;
        }
        t.frames_taken[0] = t.frame_there[0] && !p.popular.held;
        t.frames_taken[1] = t.frame_there[1] && p.gather.rests();
        t.beats_taken[0] = t.read_there[0] && !p.beats.held, t.beats_taken[1] = t.read_there[1] && !p.again.held;
        t.writes_beat = p.gather.whole;
        t.freed = p.dispatcher.frees;
        t.bell_rests = p.dispatcher.idle, t.bell_waits = p.dispatcher.waiting;
    }
    // The edge of all up to the input buffer.
    void samples(Parts& p, const Taken& t) {
        LookupArray& lookup = p.lookup;
        lookup.decide(p.answers.has, !p.looked_up.held);
        const bool answers_taken = lookup.answers_taken(), answers = p.logger.has, out = lookup.has;
        const SampleBeat translated = lookup.o, known_beat = p.looked_up.o;
        const bool comes = p.looked_up.has, classified = comes && p.classifier.ready(), cold = p.classifier.cold();
        const bool offers = p.classifier.has(), enters = offers && p.frames.ready(cold, t.writes_beat);
        const SampleBeat next = p.classifier.o();
        p.frames.step(job().batch, offers, cold, next, t.writes_beat, t.wanted, t.places, t.frames_taken, t.beats_taken,
                      t.freed, t.flush);
        p.classifier.step(comes, known_beat, enters);
        const bool wave_ready = p.logger.room, answers_free = !p.answers.held, lookup_free = !p.looked_up.held;
        // The logger and its images.
        const Wave* wave = lookup.wave();
        const bool image = p.logger.images.has, sends = t.image_data;
        const bool image_taken = image && p.mover.image_ready(sends);
        const bool set = p.sets.has, ask = p.mover.asks(), ask_ready = p.logger.ask_ready(set);
        const bool set_taken = set && p.logger.image_ready(), set_free = !p.sets.held, beat_comes = p.image.has;
        const bool beat_taken = beat_comes && p.mover.beat_ready(set_free), writes_set = p.mover.writes();
        p.logger.step(wave, answers_free, p.program.clear, set, ask, image_taken);
        p.mover.step(beat_comes, set_free, ask_ready, image, sends, p.program.saves, p.program.loads);
        p.sets.step(writes_set, true, set_taken);
        image_free = !p.image.held;
        p.image.step(p.program.reader.has_image, true, beat_taken);
        p.answers.step(answers, true, answers_taken);
        p.looked_up.step(out, translated, classified);
        sample_free = lookup.ready;
        lookup.step(p.program.reader.has_sample, p.program.reader.o, wave_ready, job().opcode == LEARN, lookup_free);
    }
    bool image_free = false, sample_free = false;       // the registers behind the input reader, before the edge

    // The edge of gatherer, dispatcher, updater and the embedding buffer.
    void deal(Parts& p, const Taken& t) {
        Dispatcher& dispatcher = p.dispatcher;
        Updater& updater = p.updater;
        EmbeddingBuffer& embeddings = p.embeddings;
        const HotlineJob& job = this->job();
        const FramePart popular = p.popular.o;
        const Gathered gathered = p.gathered.o, whole = p.gather.o;
        const Update update = dispatcher.update;
        const Queried listed = p.gather.table.queried[UPDATER].o;
        const Query asked[RowTable::CLIENTS] = {p.queries[0].o, p.queries[1].o, p.queries[2].o};
        const int64_t* releases = updater.releases();
        const int64_t slot = releases ? *releases : 0;
        // What goes from part to part.
        BagReader& bags = p.bags;
        const bool busy = bags.busy;        // who pools has the dispatcher's place at both buffers
        const bool slots[2] = {p.gather.table.queried[DISPATCHER].has, p.gather.table.queried[BAGS].has};
        const bool slot_there = slots[busy], pools = dispatcher.pools();
        const Gathered bag = dispatcher.now;
        const bool ask_free = !p.ask_rows.held;
        const bool read_ready[2] = {embeddings.slots[0].ready(), embeddings.slots[1].ready()};
        const bool reads[2] = {p.ask_rows.has && read_ready[0], updater.reads() && read_ready[1]};
        const bool rows_there[2] = {embeddings.read[0].has, embeddings.read[1].has};
        const bool rows_taken[2] = {rows_there[0] && !p.rows.held, rows_there[1] && !p.updated.held};
        const bool lands = p.gather.landing.has && embeddings.landing.ready(), landed = embeddings.landed;
        const bool writes_row = updater.result();
        const Dispatcher::Ports d{p.popular.has ? &popular : nullptr, p.gathered.has ? &gathered : nullptr, t.start,
                                  !busy && dispatcher.reads && !p.ask_beats.held, !busy && p.beats.has,
                                  !p.queries[DISPATCHER].held,
                                  pools ? p.vectors.has : !busy && p.rows.has, !p.requests.held, !p.data.held,
                                  t.dealt, updater.ready(), updater.updated,
                                  bags.ready(), p.doorbell.polled, p.doorbell.value, uint32_t(at.timeout)};
        const bool popular_taken = d.popular && dispatcher.popular_ready(d.gathered, t.start);
        const bool gathered_taken = d.gathered && dispatcher.gathered_ready(t.start);
        dispatcher.decide(d);
        const bool beats_taken = d.beats && dispatcher.beats_taken, row_taken = d.rest && dispatcher.rest_ready;
        const Updater::Ports u{dispatcher.updates ? &update : nullptr, !p.queries[UPDATER].held,
                               p.gather.table.queried[UPDATER].has, listed, t.read == GRADIENTS, t.comes[GRADIENTS],
                               p.updated.has, read_ready[1], p.gather.table.release_ready(), !p.row_requests.held,
                               t.row_data, t.row_written};
        const bool updated_taken = t.row_data || updater.takes(u.gradients, u.rows);
        Gather::Ports g{t.frame_there[1] ? &t.frames[1] : nullptr, t.granted[1], p.again.has, p.again.o, t.cold, lands,
                        landed, !p.gathered.held, updater.done, releases ? &slot : nullptr,
                        {}, {!busy && slots[0] && ask_free, p.gather.table.queried[UPDATER].has,
                             busy && slots[1] && ask_free}};
        const BagReader::Ports b{dispatcher.bags ? &bag : nullptr, busy && !p.ask_beats.held, busy && p.beats.has,
                                 p.beats.o, !p.queries[BAGS].held, t.read == HOT, t.comes[HOT], busy && p.rows.has,
                                 !p.vectors.held};
        const bool vector_there = bags.has, cold_asked = bags.cold.has;
        const Query cold_query{bags.batch(), bags.cold.o};
        const bool beat_asked = busy ? bags.reads() : dispatcher.reads;
        const Place beat_place = busy ? bags.place : dispatcher.place;
        bool query_taken[RowTable::CLIENTS];
        for (int k = 0; k < RowTable::CLIENTS; k++) {
            g.queries[k] = p.queries[k].has ? &asked[k] : nullptr;
            query_taken[k] = g.queries[k] && p.gather.table.query_ready(k);
        }
        const bool again_taken = g.beat_there && p.gather.beat_ready(), gathers = p.gather.has;
        const bool cold_taken = bags.takes_cold(b.cold_comes);
        // The edge.
        p.queries[DISPATCHER].step(dispatcher.queries(), dispatcher.query, query_taken[DISPATCHER]);
        p.queries[UPDATER].step(updater.queries(), updater.query, query_taken[UPDATER]);
        p.queries[BAGS].step(cold_asked, cold_query, query_taken[BAGS]);
        p.ask_beats.step(beat_asked, beat_place, t.granted[0]);
        p.requests.step(dispatcher.requests, dispatcher.request, t.mail);
        p.data.step(dispatcher.data, true, t.mail_data);
        p.row_requests.step(updater.asks, updater.write, t.row);
        dispatcher.step(d, job, beat(at.mailbox), beat(at.gradients));
        bags.step(b, job, jobs);
        updater.step(u, job.row_beats(), beat(at.rows));
        p.gather.job(job.indices, job.sample_beats, job.row_beats());
        p.gather.step(g);
        embeddings.step(job.row_beats(), lands, t.row_comes, writes_row, reads, rows_taken);
        p.popular.step(t.frame_there[0], t.frames[0], popular_taken);
        p.gathered.step(gathers, whole, gathered_taken);
        p.again.step(t.read_there[1], t.read_beats[1], again_taken);
        p.beats.step(t.read_there[0], t.read_beats[0], busy ? p.beats.has : beats_taken);
        p.ask_rows.step(slot_there, true, reads[0]);
        p.rows.step(rows_there[0], true, busy ? cold_taken : row_taken && !pools);
        p.vectors.step(vector_there, true, row_taken && pools);
        p.updated.step(rows_there[1], true, updated_taken);
    }
    // The edge of the program and what it reads and writes.
    void front(Parts& p, const Taken& t, bool starts, bool moved, bool idle_lookup, bool flushed, bool idle) {
        HotlineProgram& program = p.program;
        const bool passed = program.passed(), writer = program.writer.has(), writer_free = !p.image_requests.held;
        const Request image = program.writer.o;
        program.reader.step(t.comes[INPUTS], t.read == INPUTS, sample_free, image_free);
        program.writer.step(writer && writer_free, t.saved);
        p.image_requests.step(writer, image, t.image);
        if (starts)
            program.start(beat(at.program));
        else
            program.step(t.comes[PROGRAM], t.read == PROGRAM, moved, passed, idle_lookup, flushed, idle,
                         beat(at.inputs), beat(at.mailbox));
    }
};

thread_local Sizes next_core;       // of the card that is made next
}  // namespace

std::unique_ptr<Model> make_model(int, Binding& pins) { return std::make_unique<HotlineCore>(next_core, pins); }

extern "C" {
API void twin_sizes(const Sizes* sizes) { next_core = *sizes; }
API void twin_attach(void* h) {
    Card& c = *static_cast<Card*>(h);
    static_cast<HotlineCore&>(*c.model).attach(c.store.get());
}
API const uint32_t* twin_hot(void* h) {
    return static_cast<HotlineCore&>(*static_cast<Card*>(h)->model).hot_words();
}
// event: called with what happens, before the next clock.
API void twin_run(void* h, const Run* run, const HotlineJob* jobs, const SampleBeats* beats, const uint64_t* totals,
                  const int64_t* places, void (*event)(int)) {
    static_cast<HotlineCore&>(*static_cast<Card*>(h)->model).prepare(*run, jobs, *beats, totals, places, event);
}
}
