// A core's shell: control slave, run control, reports. hw.axi.control, hw.kernel.run, hw.kernel.report.
#pragma once

#include "ports.h"

namespace twin {

struct ControlBus {
    uint8_t awvalid = 0, awready = 1, wvalid = 0, wready = 1, wstrb = 0, bvalid = 0, bready = 0, bresp = 0;
    uint8_t arvalid = 0, arready = 1, rvalid = 0, rready = 0, rresp = 0, interrupt = 0;
    uint16_t awaddr = 0, araddr = 0;
    uint32_t wdata = 0, rdata = 0;

    ControlBus() = default;
    ControlBus(const ControlBus&) = delete;
    ControlPins bound() {
        return {&awvalid, &awready, &wvalid, &wready, &wstrb, &bvalid, &bready, &bresp, &arvalid, &arready, &rvalid,
                &rready, &rresp, &awaddr, &araddr, &wdata, &rdata};
    }
};

// ap_ctrl_hs with its interrupt. The arguments, which the host writes too, come to the twin's core beside it.
class ControlSlave {
  public:
    bool start = false;     // a pulse

    ControlSlave(ControlBus& bus, uint32_t status_at) : p(bus), status_at(status_at) {}
    void reset() {
        calm = false;
        start = wants = running = done = addressed = filled = reading = grouped = false;
        gie = ier = isr = 0;
        p.bvalid = p.rvalid = p.interrupt = 0;
        p.awready = p.wready = p.arready = 1;
    }
    // ends: the run does, in this cycle; status: of the run.
    void step(bool ends, uint32_t status) {
        if (calm && !(ends || p.awvalid || p.wvalid || p.arvalid)) return;
        const bool write = addressed && filled && !p.bvalid, clear = reading && wanted == CTRL;
        const uint32_t word = write ? value : 0;
        if (p.awvalid && p.awready) addressed = true, address = p.awaddr & ~3u;
        if (p.wvalid && p.wready) filled = true, value = p.wdata;
        if (write)
            p.bvalid = 1;
        else if (p.bready)
            p.bvalid = 0;
        start = wants && !running && !ends;
        read(status);
        if (ends)
            running = wants = false;
        else if (wants)
            running = true;
        const uint32_t to = write ? address : NOWHERE;
        if (to == CTRL && word & 1) wants = true;
        done = ends || (done && !clear);
        if (to == GIE) gie = word & 1;
        if (to == IER) ier = word & 3;
        p.interrupt = gie && isr;
        isr = (isr ^ (to == ISR ? word & 3 : 0)) | (ends ? ier : 0);
        if (write) addressed = filled = false;
        p.awready = !addressed;
        p.wready = !filled;
        calm = !(addressed || filled || reading || grouped || p.bvalid || p.rvalid || start) && wants == running &&
               p.interrupt == (gie && isr) && p.arready;
    }

  private:
    static constexpr uint32_t CTRL = 0, GIE = 4, IER = 8, ISR = 12, NOWHERE = ~0u;
    ControlBus& p;
    uint32_t status_at, address = 0, value = 0, wanted = 0, group = 0, gie = 0, ier = 0, isr = 0;
    bool wants = false, running = false, done = false, addressed = false, filled = false, reading = false;
    bool grouped = false;
    bool calm = false;      // nothing changes before the host asks or the run ends

    void read(uint32_t status) {
        if (grouped) {
            p.rdata = group;
            p.rvalid = 1;
        } else if (p.rready) {
            p.rvalid = 0;
        }
        if (reading) {
            const uint32_t idle = !(wants || running), ctrl = uint32_t(wants) | done << 1 | idle << 2 | done << 3;
            group = wanted == CTRL ? ctrl : wanted == GIE ? gie : wanted == IER ? ier : wanted == ISR ? isr
                    : wanted == status_at ? status : 0;
        }
        grouped = reading;
        reading = p.arvalid && p.arready;
        if (reading) wanted = p.araddr & ~3u;
        p.arready = !reading && !grouped && !p.rvalid;
    }
};

// From start to done.
class RunControl {
  public:
    enum State { IDLE, CLEAR, START, RUN, SETTLE, STOP, CLEAN, TOTAL, REPORT };
    State state = IDLE;

    explicit RunControl(uint32_t period) : period(period) {}
    bool running() const { return state == START || state == RUN || state == SETTLE; }
    bool reports() const { return state == TOTAL && !wait; }
    uint32_t status() const {
        return state == IDLE ? 0 : state < SETTLE ? 1 : state < TOTAL ? 2 : 3;
    }
    void step(bool start, bool over, bool telling, bool quiet, bool reported) {
        switch (state) {
        case IDLE:
            wait = 2 * period;
            if (start) state = CLEAR;
            break;
        case CLEAR:
            if (!wait--) state = START;
            break;
        case START:
            state = RUN;
            break;
        case RUN:
            if (over) state = SETTLE;
            break;
        case SETTLE:
            wait = 8;
            if (!telling) state = STOP;
            break;
        case STOP:
            if (wait)
                wait--;
            else if (quiet)
                state = CLEAN;
            break;
        case CLEAN:
            wait = 2 * period;
            state = TOTAL;
            break;
        case TOTAL:
            if (!wait--) state = REPORT;
            break;
        case REPORT:
            if (reported) state = IDLE;
            break;
        }
    }

  private:
    uint32_t period, wait = 0;
};

// Reports progress, a beat at a time, and at the end the block: a header of zeros, as no run ends in an error, and totals.
class Reporter {
  public:
    bool wants = false;             // a request stands there
    bool push = false;              // `beat` does
    Request request{};
    Beat beat{};

    Reporter(uint32_t words, uint32_t period) : words(words), period(period) {}
    bool busy() const { return tell || finish || state != IDLE; }
    bool finished(bool done) const { return state == WAIT_BLOCK && done; }
    // base, told: where the block and the progress lie, in beats; number: of the total that comes by.
    void step(bool tells, bool finishes, const uint32_t* progress, uint64_t base, uint64_t told, uint32_t number,
              const std::vector<uint64_t>& totals, bool request_taken, bool data_taken, bool done) {
        if (push && data_taken) push = false;
        const bool asked = tell;
        tell |= tells;
        switch (state) {
        case IDLE:
            filled = at = 0;
            if (asked) {
                beat = {progress[0], progress[1]};
                request = {told, 1, 0};
                tell = tells;
                push = wants = true;
                state = TELL;
            } else if (finish) {
                state = HEAD;
            }
            break;
        case TELL:
        case REQUEST:
            if (!request_taken) break;
            wants = false;
            state = state == TELL ? WAIT_TELL : WAIT_BLOCK;
            break;
        case WAIT_TELL:
            if (done) state = IDLE;
            break;
        case HEAD:
            take(0);
            if (++at == HEADER_WORDS / 2) state = ALIGN;
            break;
        case ALIGN:
            if (number == period - 1) state = TOTALS;
            break;
        case TOTALS:
            take(number < totals.size() ? totals[number] : 0);
            if (number == period - 1) state = FILL;
            break;
        case FILL:
            if (filled) {
                take(0);
                break;
            }
            wants = true;
            request = {base, (HEADER_WORDS + 2 * period + words - 1) / words, 0};
            state = REQUEST;
            break;
        case WAIT_BLOCK:
            if (!done) break;
            finish = false;
            state = IDLE;
            break;
        }
        finish |= finishes;
    }

  private:
    static constexpr uint32_t HEADER_WORDS = 16;
    enum State { IDLE, TELL, WAIT_TELL, HEAD, ALIGN, TOTALS, FILL, REQUEST, WAIT_BLOCK };
    uint32_t words, period, filled = 0, at = 0;
    State state = IDLE;
    bool tell = false, finish = false;

    void take(uint64_t pair) {
        beat[2 * filled] = uint32_t(pair);
        beat[2 * filled + 1] = uint32_t(pair >> 32);
        filled = filled + 1 == words / 2 ? 0 : filled + 1;
        push |= !filled;
    }
};

}  // namespace twin
