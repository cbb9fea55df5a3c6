// Memory ports: AXI4 slaves in front of an ideal memory, the model of the card's DRAM or the host's memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "bridge.h"
#include "ddr.h"
#include "model.h"
#include "ring.h"
#include "store.h"

// Reproducible anywhere: no generator of the standard library is the same in all of them.
struct Random {
    uint64_t state = 1;
    void seed(uint64_t value) { state = value * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull; }
    uint32_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return uint32_t(state * 0x2545F4914F6CDD1Dull >> 32);
    }
};

// Holds a channel back in runs of cycles, for a share of the time given in 65536ths.
struct Stall {
    uint32_t share = 0, longest = 1, left = 0;
    bool held = false;
    Random random;
    bool now() {  // called once in every cycle
        if (!share) return false;
        if (!left) {
            held = (random.next() & 0xFFFF) < share;
            left = 1 + random.next() % longest;
        }
        left--;
        return held;
    }
};

constexpr uint8_t OKAY = 0, SLVERR = 2, DECERR = 3;
constexpr int LINE = 64;

struct ErrorRule {
    int port;
    bool write;
    uint8_t response;
    int64_t beat;  // this one only, or -1 for a range of addresses
    uint64_t first, end;
};

// What is read in one burst of the memory, or in a part of one.
struct Line {
    uint64_t address, ready = 0;
    uint16_t count;  // bytes
    bool done = false, last = false;
    uint8_t response = OKAY;
};

// A port's reads in the order of their addresses' arrival, whatever order the memory serves them in.
struct LineQueue {
    static constexpr uint64_t SIZE = 1024;
    std::vector<Line> lines = std::vector<Line>(SIZE);
    std::vector<uint8_t> bytes = std::vector<uint8_t>(SIZE * LINE);  // LINE of each
    uint64_t head = 0, sent = 0, tail = 0;
    uint64_t due = UINT64_MAX;      // from when the next line may be sent to the controller; none waits: never
    uint64_t limit = SIZE;

    Line& at(uint64_t id) { return lines[id % SIZE]; }
    uint8_t* data(uint64_t id) { return &bytes[id % SIZE * LINE]; }
    bool room() const { return tail - head < limit; }
    bool empty() const { return head == tail; }
    void push(uint64_t address, int count, bool last, uint64_t ready) {
        Line& l = at(tail++);
        l.address = address;
        l.count = uint16_t(count);
        l.last = last;
        l.ready = ready;
        l.done = false;
        l.response = OKAY;
        if (sent + 1 == tail) due = ready;
    }
    void send() { due = ++sent == tail ? UINT64_MAX : at(sent).ready; }
    void reset() { head = sent = tail = 0, due = UINT64_MAX; }
};

struct Burst {
    uint64_t address, since;
    uint32_t beats;
    bool begins = true;     // nothing of it has been asked for
};

// A line to be written; partial: in some of its bytes only, which costs a read of it under ECC.
struct WriteLine {
    uint64_t address;
    bool partial, last;  // last: of its burst
};

// Lines on their way to the controller; accepted: that it has taken.
struct WriteQueue : Ring<WriteLine> {
    uint64_t accepted = 0;
};

struct PortCounters {
    uint64_t bursts_read = 0, beats_read = 0, read_waits = 0, bursts_written = 0, beats_written = 0, most = 0;
};

struct Memory {
    Store* store = nullptr;
    Violations broken;
    bool ideal = false;
    int64_t latency = 100;          // of the ideal memory, address to first beat
    int64_t front = 20, back = 20;  // cycles between a port and the controller, one way
    int64_t bursts = 256;           // that all ports together have under way at most, each way
    int64_t reading = 0, writing = 0;  // bursts under way over all ports
    uint64_t ring_base = 0;         // the ring that the host fills: which of its 4 KB hold nothing
    std::vector<uint8_t> empty;
    std::vector<ErrorRule> errors;
    Ddr ddr;
    uint64_t cycle = 0;

    // What the memory holds at this moment goes to `data`, if anybody looks at it; and what ECC says of it.
    void sample(Line& l, int port, uint8_t* data) { sample(l, port, data, *store); }
    void sample(Line& l, int port, uint8_t* data, Store& of) {
        l.response = OKAY;
        if (!of.exists(l.address, l.count)) {
            broken.add(READ_OUTSIDE, port, l.address, cycle);
            if (data) memset(data, 0, LINE);
            l.response = DECERR;
            return;
        }
        if (!of.inside(l.address, l.count)) broken.add(READ_OUTSIDE, port, l.address, cycle);
        if (data) memcpy(data, of.at(l.address), l.count);
        if (!of.known(l.address, l.count)) {
            broken.add(NEVER_WRITTEN, port, l.address, cycle);
            l.response = SLVERR;
        }
        if (!empty.empty() && l.address >= ring_base) {
            uint64_t page = (l.address - ring_base) / Store::PAGE;
            if (page < empty.size() && empty[page]) broken.add(RING_RACE, port, l.address, cycle);
        }
    }
    uint8_t injected(int port, bool write, uint64_t beat, uint64_t address) const {
        for (const ErrorRule& e : errors)
            if (e.port == port && e.write == write &&
                (e.beat >= 0 ? beat == uint64_t(e.beat) : address >= e.first && address < e.end))
                return e.response;
        return OKAY;
    }
};

class Port {
  public:
    PortCounters counters;
    Stall stall[5];  // aw, w, b, ar, r
    bool stalls = false;  // any of them ever does
    LineQueue lines;
    WriteQueue writes;
    uint64_t pushed = 0;  // to it
    uint64_t read_beats = 0, write_beats = 0;  // since faults were set
    int64_t silent_reads = -1, silent_writes = -1;  // the beat from which nothing is answered, -1: all is

    // host: the bridge to the host's memory where the port is linked to that, else null.
    void attach(Memory* memory, int number, const Pins& pins, int beat, Bridge* host) {
        m = memory;
        bridge = host;
        store = host ? host->store : memory->store;
        reading = host ? &host->reading : &memory->reading;
        writing = host ? &host->writing : &memory->writing;
        me = number;
        p = pins;
        bytes = beat;
        size_code = __builtin_ctz(beat);
        full = beat == 64 ? ~0ull : (1ull << beat) - 1;
        reset();
    }
    void reset() {
        lines.reset();
        writes.clear();
        reads.clear();
        bursts.clear();
        responses.clear();
        answered = 0;
        pushed = writes.accepted = 0;
        offset = 0;
        taken = 0;
        *reading -= int64_t(outstanding);
        *writing -= int64_t(bursts_under_way);
        outstanding = bursts_under_way = 0;
        line_bytes = 0;
        burst_response = OKAY;
        b_free = r_free = true;
        held_ar = held_aw = held_w = false;
        *p.awready = *p.wready = *p.bvalid = *p.arready = *p.rvalid = 0;
        *p.bid = *p.bresp = *p.rid = *p.rresp = *p.rlast = 0;
        if (p.rdata) memset(p.rdata, 0, bytes);
    }

    // Before the edge: what moves in it, and whether the master keeps the rules.
    void sample() {
        if ((*p.arvalid || held_ar) &&
            address(held_ar, old_ar, *p.arvalid, *p.arready, *p.araddr, *p.arlen, *p.arsize, *p.arburst, *p.arid)) {
            reads.push({*p.araddr, m->cycle, uint32_t(*p.arlen) + 1});
            counters.bursts_read++;
            outstanding++;
            ++*reading;
            if (outstanding > counters.most) counters.most = outstanding;
        }
        if ((*p.awvalid || held_aw) &&
            address(held_aw, old_aw, *p.awvalid, *p.awready, *p.awaddr, *p.awlen, *p.awsize, *p.awburst, *p.awid)) {
            bursts.push({*p.awaddr, m->cycle, uint32_t(*p.awlen) + 1});
            counters.bursts_written++;
            bursts_under_way++;
            ++*writing;
        }
        if (*p.wvalid || held_w) data();
        b_free = !*p.bvalid || *p.bready;
        r_free = !*p.rvalid || *p.rready;
        if (*p.rvalid)
            counters.beats_read += *p.rready;
        else if (outstanding)
            counters.read_waits++;
    }

    // After the edge: pins for the next one. reads_left, writes_left: bursts that may begin on any port; what this one may
    // begin is taken off.
    void drive(int64_t& reads_left, int64_t& writes_left) {
        expand();
        bool hold[5] = {};
        if (stalls)
            for (int k = 0; k < 5; k++) hold[k] = stall[k].now();
        if (r_free) next_read(hold[4]);
        if (b_free) next_response(hold[2]);
        const bool arready = !hold[3] && reads_left > 0, awready = !hold[0] && writes_left > 0;
        reads_left -= arready;
        writes_left -= awready;
        *p.wready = !hold[1] && !bursts.empty() && writes.size() < 64;
        *p.arready = arready;
        *p.awready = awready;
    }
    uint64_t under_way() const { return outstanding + bursts_under_way; }
    bool asks() const { return *p.arvalid || *p.awvalid; }
    // Where the data of a line that is read go; null where nobody looks at them.
    uint8_t* data_of(uint64_t id) { return p.rdata ? lines.data(id) : nullptr; }

  private:
    struct Held {
        uint64_t address;
        uint32_t rest;
    };
    struct Response {
        uint64_t line, ready;
        uint8_t response;
    };
    Memory* m = nullptr;
    Bridge* bridge = nullptr;
    Store* store = nullptr;
    int64_t *reading = nullptr, *writing = nullptr;  // bursts under way over all ports of the same memory
    Pins p{};
    int me = 0, bytes = 64, size_code = 6;
    uint64_t full = ~0ull;
    Ring<Burst> reads, bursts;  // read addresses not yet cut into lines; writes whose data are awaited
    Ring<Response> responses;
    uint32_t answered = 0;  // of them that the controller has taken, so that they have their time
    uint64_t outstanding = 0, bursts_under_way = 0;  // reads, writes
    int line_bytes = 0;  // of the line being written that have come with all their strobes
    int offset = 0;      // bytes of the head line that were handed out
    uint32_t taken = 0;  // beats of the first write burst that have come
    uint8_t burst_response = OKAY;
    bool b_free = true, r_free = true;  // what was on offer moved in the last edge
    bool held_ar = false, held_aw = false, held_w = false, old_last = false;
    Held old_ar{}, old_aw{};
    uint8_t old_data[64];
    uint64_t old_strobe = 0;

    // Whether lines wait for the controller of the card's memory.
    bool queues() const { return !bridge && !m->ideal; }
    void broken(Rule rule, uint64_t address) { m->broken.add(rule, me, address, m->cycle); }

    bool address(bool& held, Held& old, bool valid, bool ready, uint64_t at, uint8_t len, uint8_t size,
                 uint8_t burst, uint8_t id) {
        uint32_t rest = uint32_t(len) | size << 8 | burst << 16 | uint32_t(id) << 24;
        if (held) {
            if (!valid)
                broken(VALID_FELL, old.address);
            else if (at != old.address || rest != old.rest)
                broken(PAYLOAD_CHANGED, old.address);
        }
        held = valid && !ready;
        old = {at, rest};
        if (!valid || !ready) return false;
        uint64_t count = (uint64_t(len) + 1) * bytes;
        if (count > Store::PAGE) broken(LONG_BURST, at);
        if (at / Store::PAGE != (at + count - 1) / Store::PAGE) broken(CROSSES_4K, at);
        if (burst != 1) broken(BURST_TYPE, at);
        if (size != size_code) broken(BURST_SIZE, at);
        if (at % bytes) broken(UNALIGNED, at);
        return true;
    }

    void data() {
        bool valid = *p.wvalid, last = *p.wlast;
        uint64_t strobe = 0;
        memcpy(&strobe, p.wstrb, (bytes + 7) / 8);
        if (held_w) {
            if (!valid)
                broken(VALID_FELL, bursts.empty() ? 0 : bursts.front().address);
            else if (last != old_last || strobe != old_strobe || memcmp(old_data, p.wdata, bytes))
                broken(PAYLOAD_CHANGED, bursts.empty() ? 0 : bursts.front().address);
        }
        held_w = valid && !*p.wready;
        if (held_w) {
            memcpy(old_data, p.wdata, bytes);
            old_last = last;
            old_strobe = strobe;
        }
        if (!valid || !*p.wready) return;
        Burst& b = bursts.front();
        uint64_t at = (b.address + uint64_t(taken) * bytes) / bytes * bytes;
        counters.beats_written++;
        uint8_t response = m->injected(me, true, write_beats++, at);
        if (strobe != full) broken(STROBE, at);
        if (!store->exists(at, bytes)) {
            broken(WRITE_OUTSIDE, at);
            response = DECERR;
        } else {
            if (!store->inside(at, bytes)) broken(WRITE_OUTSIDE, at);
            if (response == OKAY) write(at, strobe);
        }
        if (response > burst_response) burst_response = response;
        if (strobe == full) line_bytes += bytes;
        taken++;
        bool end = taken == b.beats;
        if (last != end) broken(WLAST, at);
        if (queues() && (end || (at + bytes) % LINE == 0)) {
            writes.push({at / LINE * LINE, line_bytes < LINE, end});
            pushed++;
            line_bytes = 0;
        }
        if (!end) return;
        const uint64_t ready = bridge ? bridge->write(m->cycle, b.address, uint64_t(taken) * bytes)
                               : m->ideal ? m->cycle + uint64_t(m->latency) : UINT64_MAX;
        responses.push({pushed, ready, burst_response});
        burst_response = OKAY;
        taken = 0;
        bursts.pop();
    }

    void write(uint64_t at, uint64_t strobe) {
        if (strobe == full) {
            store->write(at, p.wdata, bytes);
            return;
        }
        // ECC covers 8 bytes: to write some of them the controller reads the others.
        for (int word = 0; word < bytes; word += 8) {
            int count = bytes < 8 ? bytes : 8;
            uint64_t mask = strobe >> word & ((1ull << count) - 1);
            if (!mask) continue;
            if (mask != (1ull << count) - 1 && !store->known(at + word, count)) broken(NEVER_WRITTEN, at + word);
            for (int i = 0; i < count; i++)
                if (mask >> i & 1) *store->at(at + word + i) = static_cast<uint8_t*>(p.wdata)[word + i];
            store->mark(at + word, count, true);
        }
    }

    // Cuts read bursts into lines, one burst a cycle at most.
    void expand() {
        if (reads.empty()) return;
        Burst& b = reads.front();
        uint64_t ready = b.since + (m->ideal ? uint64_t(m->latency) : uint64_t(m->front));
        while (b.beats && lines.room()) {
            uint64_t at = b.address / bytes * bytes;
            uint64_t room = LINE - at % LINE;
            uint64_t count = uint64_t(b.beats) * bytes < room ? uint64_t(b.beats) * bytes : room;
            if (bridge) ready = bridge->read(m->cycle, at, uint64_t(b.beats) * bytes, b.begins);
            b.begins = false;
            b.beats -= uint32_t(count / bytes);
            b.address = at + count;
            lines.push(at, int(count), !b.beats, ready);
            if (!queues()) {
                Line& l = lines.at(lines.tail - 1);
                m->sample(l, me, data_of(lines.tail - 1), *store);
                l.done = true;
                lines.send();
            }
        }
        if (!b.beats) reads.pop();
    }

    void next_read(bool hold) {
        *p.rvalid = 0;
        if (lines.empty()) return;
        Line& l = lines.at(lines.head);
        if (!l.done || l.ready > m->cycle || hold) return;
        if (silent_reads >= 0 && read_beats >= uint64_t(silent_reads)) return;
        uint64_t at = l.address + offset;
        uint8_t response = m->injected(me, false, read_beats++, at);
        if (response == OKAY) response = l.response;
        if (p.rdata) memcpy(p.rdata, lines.data(lines.head) + offset, bytes);
        offset += bytes;
        bool end = offset == l.count;
        *p.rlast = end && l.last;
        *p.rresp = response;
        *p.rvalid = 1;
        if (!end) return;
        offset = 0;
        if (l.last) {
            outstanding--;
            --*reading;
        }
        lines.head++;
    }

    void next_response(bool hold) {
        *p.bvalid = 0;
        if (responses.empty()) return;
        if (silent_writes >= 0 && write_beats > uint64_t(silent_writes)) return;
        // A burst is answered some time after the controller has taken its last line.
        while (answered < responses.size() && writes.accepted >= responses[answered].line) {
            Response& r = responses[answered++];
            if (r.ready == UINT64_MAX) r.ready = m->cycle + uint64_t(m->back);
        }
        Response& r = responses.front();
        if (!answered || r.ready > m->cycle || hold) return;
        *p.bvalid = 1;
        *p.bresp = r.response;
        responses.pop();
        answered--;
        bursts_under_way--;
        --*writing;
    }
};
