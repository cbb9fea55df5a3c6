// What is around the parts of every core's twin, from start to the result block: hw.kernel.shell on the ports' pins. What
// is computed lies in the card's memory before a run begins; see fpga.card.twin.
#pragma once

#include "../harness.cpp"

#include "layouts.h"
#include "shell.h"

namespace twin {

// A core of COUNTS counters that are found out here, whose write port has WRITERS clients, the last one the status.
template <int WRITERS, int COUNTS>
class Core : public Model {
  public:
    Core(const Frame& frame, Binding& pins)
        : bytes(uint32_t(4 * frame.words)), block(std::min(4096 / bytes, 256u)), m00(bytes), m01(bytes, false), frame(frame),
          control(bus, uint32_t(frame.status)), run(uint32_t(frame.period)),
          reporter(uint32_t(frame.words), uint32_t(frame.period)) {
        pins.masters = {m00.bound(), m01.bound()};
        pins.beats = {int(bytes), int(bytes)};
        pins.control = bus.bound();
        pins.has_control = true;
        pins.clk = &clk, pins.rst = &rst, pins.interrupt = &bus.interrupt;
    }
    void attach(Store* memory) {
        store = memory;
        ports();
    }
    // Of the next run: where the result block goes, its totals, and the places of those that are found out here.
    void prepare(uint64_t block_at, const uint64_t* values, const int64_t* places) {
        result = block_at;
        totals.assign(values, values + frame.period);
        std::copy(places, places + COUNTS, place);
    }
    void eval() override {
        const bool edge = clk && !before;
        before = clk;
        if (!edge) return;
        if (rst)
            reset();
        else
            tick();
    }

  protected:
    const uint32_t bytes, block;
    PortPins m00, m01;
    Store* store = nullptr;
    std::unique_ptr<WritePort<WRITERS>> writes;
    uint64_t count[COUNTS] = {};

    // The read ports, made anew.
    virtual void read_ports() = 0;
    virtual void drain() = 0;
    virtual bool reads_idle() const = 0;
    virtual std::array<uint32_t, WRITERS> depths(uint32_t status) const = 0;
    // A run begins; a cycle of its parts, `starts` in the first; whether they are through; it has ended.
    virtual void begin() = 0;
    virtual void work(bool starts) = 0;
    virtual bool over() const = 0;
    virtual void end() {}

    uint64_t beat(uint64_t address) const { return address / bytes; }
    // The reporter at the write port: its request is taken, its beat is offered and which, its write is done.
    struct Status {
        bool taken, offered, done;
        Beat word;
    };
    // Adds what the reporter asks for and offers to that of the other clients.
    Status status(const Request** asked, bool* offered) {
        constexpr int last = WRITERS - 1;
        told = reporter.request;
        asked[last] = reporter.wants ? &told : nullptr;
        offered[last] = reporter.push && writes->room(last);
        return {asked[last] && writes->ready(last), offered[last], writes->done[last], reporter.beat};
    }
    // The reporter's edge. tell: there is progress to tell in the next cycle.
    void report(const Status& now, const uint32_t* progress, bool tell) {
        if (tells || reporter.busy())
            reporter.step(tells, false, progress, 0, beat(result + uint64_t(4 * frame.progress)), 0, totals, now.taken,
                      now.offered, now.done);
        tells = tell;
    }

  private:
    const Frame frame;
    Request told{};                     // of the reporter, at the write port
    ControlBus bus;
    ControlSlave control;
    RunControl run;
    Reporter reporter;
    std::vector<uint64_t> totals;
    int64_t place[COUNTS] = {};
    uint64_t result = 0, since_reset = 0;
    uint8_t clk = 0, rst = 0, before = 0;
    bool tells = false, quiet = false;

    void ports() {
        const uint32_t beats = uint32_t((16 + 2 * frame.period + frame.words - 1) / frame.words);
        read_ports();
        writes = std::make_unique<WritePort<WRITERS>>(m00, *store, bytes, block, uint32_t(frame.writes_in_flight),
                                                      depths(1u << (32 - __builtin_clz(beats - 1))));
        for (PortPins* p : {&m00, &m01}) p->arvalid = p->awvalid = p->wvalid = 0;
    }
    void reset() {
        control.reset();
        run = RunControl(uint32_t(frame.period));
        reporter = Reporter(uint32_t(frame.words), uint32_t(frame.period));
        since_reset = 0;
        if (store) ports();
    }
    void tick() {
        const RunControl::State state = run.state;
        const bool telling = reporter.busy() || tells, finishes = run.reports(), starts = control.start;
        const bool idle = store && reads_idle() && writes->idle();
        bool ends = false, reported = false;
        if (state == RunControl::START) {
            std::fill(count, count + COUNTS, 0);
            tells = false;
            begin();
        }
        if (run.running()) {
            ends = over();
            count[0]++;
            work(state == RunControl::START);
        } else if (state != RunControl::IDLE) {
            if (state == RunControl::CLEAN) ports();
            if (state == RunControl::STOP) drain();
            reported = rest(finishes);
        }
        control.step(reported, run.status());
        run.step(starts, ends, telling, quiet, reported);
        quiet = idle;
        since_reset++;
    }
    // A cycle in which only the report goes on; whether the block is written.
    bool rest(bool finishes) {
        writes->decide();
        const Request* asked[WRITERS] = {};
        bool offered[WRITERS] = {};
        const Status now = status(asked, offered);
        const bool reported = reporter.finished(now.done);
        if (finishes) {
            end();
            for (int k = 0; k < COUNTS; k++) totals[size_t(place[k])] = count[k];
        }
        // Totals come by one a cycle, three cycles behind the round's turn.
        const uint32_t number = uint32_t((since_reset - 2) % uint64_t(frame.period)), none[2] = {};
        reporter.step(false, finishes, none, beat(result), 0, number, totals, now.taken, now.offered, now.done);
        writes->step(asked, offered, now.word);
        return reported;
    }
};

}  // namespace twin

extern "C" {
API void* twin_memory(void* h, uint64_t address) { return static_cast<Card*>(h)->store->at(address); }
}
