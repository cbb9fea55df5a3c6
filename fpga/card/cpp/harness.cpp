// The simulated card: a Verilated core, its memory, its host, behind a C interface.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "link.h"
#include "model.h"
#include "names.h"
#include "port.h"
#include "ssd.h"
#include "store.h"

struct Card {
    std::unique_ptr<Model> model;
    std::unique_ptr<Store> store, host;
    Memory memory;
    Bridge bridge;
    Link link;
    Ssd ssd;
    Binding pins;
    std::vector<Port> ports;
    std::vector<Port*> near, far;   // of them those at the card's memory, and at the host's
    // Where lines of reads or of writes wait for the controller.
    struct Source {
        int port;
        LineQueue* reads;
        WriteQueue* writes;
    };
    std::vector<Source> sources;
    Named options;
    int64_t base = 0, size = 0, ideal = 0, control_gap = 4, seed = 1;
    int64_t host_base = 0, host_size = 0, host_ports = 0;   // ports: a bit for each that is linked to the host's memory
    uint64_t started = 0, counted_from = 0;
    size_t turn = 0, first = 0;
    int64_t burst_of[2] = {-1, -1};  // the source whose burst of reads, of writes has entered the controller in part
    bool held_b = false, held_r = false;
    uint32_t old_r = 0;
    uint8_t old_b = 0;

    Card() {
        options = {{"base", &base}, {"size", &size}, {"ideal", &ideal}, {"latency", &memory.latency},
                   {"front", &memory.front}, {"back", &memory.back}, {"bursts", &memory.bursts},
                   {"control_gap", &control_gap}, {"seed", &seed}};
        for (const auto& [name, value] : named(memory.ddr.t)) options["ddr." + name] = value;
        for (const auto& [name, value] : named(ssd.t)) options["ssd." + name] = value;
        options["link.begin"] = &link.t.begin;
        options["link.end"] = &link.t.end;
        options["link.page"] = &link.in.page;
        for (const auto& [name, value] : Named{
                 {"base", &host_base}, {"size", &host_size}, {"ports", &host_ports}, {"latency", &bridge.latency},
                 {"reads", &bridge.reads}, {"writes", &bridge.writes}, {"payload", &bridge.payload},
                 {"request", &bridge.request}, {"header", &bridge.header}, {"completions", &bridge.completions},
                 {"credits", &bridge.credits}})
            options["host." + name] = value;
    }

    bool start() {
        memory.ideal = ideal;
        store = std::make_unique<Store>(base, size);
        if (!store->sound()) return false;
        if (host_ports) {
            host = std::make_unique<Store>(host_base, host_size);
            if (!host->sound()) return false;
        }
        memory.store = store.get();
        bridge.attach(host.get(), &link.in, &link.out);
        memory.ddr.reset();
        link.out.page = link.in.page;
        link.attach(&memory);
        ssd.attach(&memory, &link.in);
        model = make_model(int(seed), pins);
        ports.resize(pins.masters.size());
        for (size_t i = 0; i < ports.size(); i++) {
            const bool is_far = host_ports >> i & 1;
            ports[i].attach(&memory, int(i), pins.masters[i], pins.beats[i], is_far ? &bridge : nullptr);
            (is_far ? far : near).push_back(&ports[i]);
        }
        for (size_t i = 0; i < ports.size(); i++)
            sources.insert(sources.end(), {{int(i), &ports[i].lines, nullptr}, {int(i), nullptr, &ports[i].writes}});
        sources.insert(sources.end(), {{HOST, nullptr, &ssd.to_write}, {HOST, nullptr, &link.to_write},
                                       {HOST, &link.lines, nullptr}});
        reset(4);
        return true;
    }

    // The reset of a core's ports begins at a register: they are quiet from its second cycle on, and not before.
    static constexpr uint64_t RESET_CYCLES = 2;

    void reset(uint64_t cycles) {
        *pins.rst = 1;
        quiet();
        for (uint64_t i = 0; i < std::max(cycles, RESET_CYCLES); i++) {
            for (Port& p : ports) p.reset();
            clock();
        }
        *pins.rst = 0;
        memory.ddr.clear_requests();
        burst_of[0] = burst_of[1] = -1;
        for (Port& p : ports) p.reset();
        ssd.stop_run();
        ssd.to_write.clear();
        link.reset();
        bridge.reset();
    }
    void quiet() {
        ControlPins& c = pins.control;
        if (pins.has_control) *c.awvalid = *c.wvalid = *c.bready = *c.arvalid = *c.rready = 0;
        held_b = held_r = false;
    }

    void clock() {
        *pins.clk = 0;
        model->eval();
        *pins.clk = 1;
        model->eval();
        memory.cycle++;
    }

    // One cycle: pins settle, everybody sees what moves at the edge, the edge, then new inputs.
    void step() {
        *pins.clk = 0;
        model->eval();
        for (Port& p : ports) p.sample();
        if (pins.has_control) watch();
        *pins.clk = 1;
        model->eval();
        rest();
        drive();
    }

    // A cycle of everything but the core.
    void rest() {
        memory.cycle++;
        ssd.tick();
        link.tick();
        if (memory.ideal) {
            ssd.to_write.clear();
            link.to_write.clear();
        } else
            serve();
    }

    // Of the bursts that may still begin, those get theirs first who ask, in turn.
    void drive() {
        const int64_t most = memory.ideal ? INT64_MAX : memory.bursts;
        first = first + 1 < ports.size() ? first + 1 : 0;
        drive(near, most - memory.reading, most - memory.writing);
        if (!far.empty()) drive(far, bridge.reads - bridge.reading, bridge.writes - bridge.writing);
    }
    void drive(const std::vector<Port*>& of, int64_t reads, int64_t writes) {
        const size_t count = of.size();
        if (same_for_all(reads, count) && same_for_all(writes, count)) {
            for (Port* p : of) p->drive(reads, writes);
            return;
        }
        for (bool asks : {true, false})
            for (size_t k = 0, i = first % count; k < count; k++, i = i + 1 < count ? i + 1 : 0)
                if (of[i]->asks() == asks) of[i]->drive(reads, writes);
    }
    // Whether so many bursts are enough for all ports, or for none, so that nobody has to be first.
    static bool same_for_all(int64_t bursts, size_t ports) { return bursts <= 0 || bursts >= int64_t(ports); }

    // Lines enter the controller: the ports' reads and writes, the drive and the host take turns.
    void serve() {
        uint32_t due = 0;       // bits of the sources that have a line for the controller
        for (size_t k = 0; k < sources.size(); k++) due |= uint32_t(waits(k)) << k;
        for (int left = memory.ddr.lines_a_cycle(); left && due && send(due); left--) {
        }
        memory.ddr.advance(
            memory.cycle,
            [this](int port, uint64_t id, int64_t clock) {
                LineQueue& lines = port == HOST ? link.lines : ports[port].lines;
                if (id < lines.head || id >= lines.tail) return;
                Line& l = lines.at(id);
                if (port != HOST) memory.sample(l, port, ports[size_t(port)].data_of(id));
                l.done = true;
                l.ready = memory.ddr.cycle_of(clock) + uint64_t(memory.back);
            },
            [](int, uint64_t) {});
    }
    bool waits(size_t source) const {
        const Source& s = sources[source];
        return s.reads ? s.reads->due <= memory.cycle : !s.writes->empty();
    }
    // The next line of the source whose turn it is, of those that are due; whether there is one.
    bool send(uint32_t& due) {
        for (uint32_t bits : {due & ~0u << turn, due & ~(~0u << turn)})
            for (; bits; bits &= bits - 1) {
                const size_t k = size_t(__builtin_ctz(bits));
                const bool write = sources[k].writes != nullptr;
                if (!memory.ddr.room(write) || !enters(k, write)) continue;
                if (write)
                    send_write(k, *sources[k].writes);
                else
                    send_read(k, *sources[k].reads);
                due = (due & ~(1u << k)) | uint32_t(waits(k)) << k;
                turn = k + 1 == sources.size() ? 0 : k + 1;
                return true;
            }
        return false;
    }
    // Whether the controller, if it has room, takes a line of a source: no other's burst is in it in part. AXI4 has no
    // interleaved writes: data that never come hold back all other writers, in the crossbar too, until a reset.
    bool enters(size_t source, bool write) const {
        const int64_t of = burst_of[write];
        return of < 0 || of == int64_t(source) || !memory.ddr.keeps_bursts();
    }
    void send_write(size_t source, WriteQueue& q) {
        const WriteLine line = q.pop();
        q.accepted++;
        burst_of[1] = line.last ? -1 : int64_t(source);
        memory.ddr.put((line.address - base) / LINE % (uint64_t(size) / LINE), sources[source].port, 0, true, line.last,
                       line.partial);
    }
    void send_read(size_t source, LineQueue& q) {
        Line& l = q.at(q.sent);
        const int port = sources[source].port;
        burst_of[0] = l.last ? -1 : int64_t(source);
        if (store->exists(l.address, l.count)) {
            memory.ddr.put((l.address - base) / LINE, port, q.sent, false, l.last, false);
        } else {        // nothing answers there: the interconnect does
            memory.sample(l, port, q.data(q.sent));
            l.done = true;
            l.ready = memory.cycle + uint64_t(memory.back);
        }
        q.send();
    }

    // The memory that an address lies in.
    Store& at(uint64_t address) { return host && host->exists(address, 1) ? *host : *store; }

    void watch() {
        ControlPins& c = pins.control;
        if (!(held_b || held_r || *c.bvalid || *c.rvalid)) return;
        if (held_b && (!*c.bvalid || *c.bresp != old_b)) memory.broken.add(CONTROL, CONTROL_PORT, 0, memory.cycle);
        if (held_r && (!*c.rvalid || *c.rdata != old_r)) memory.broken.add(CONTROL, CONTROL_PORT, 0, memory.cycle);
        held_b = *c.bvalid && !*c.bready;
        held_r = *c.rvalid && !*c.rready;
        old_b = *c.bresp;
        old_r = *c.rdata;
    }

    // A register write as an AXI4-Lite master makes it; 0 when it was answered OKAY.
    int control_write(uint32_t address, uint32_t value) {
        ControlPins& c = pins.control;
        *c.awaddr = uint16_t(address);
        *c.wdata = value;
        *c.wstrb = 15;
        *c.awvalid = *c.wvalid = 1;
        *c.bready = 0;
        bool a = false, w = false;
        for (int i = 0; i < 10000; i++) {
            *pins.clk = 0;
            model->eval();
            bool taken_a = *c.awvalid && *c.awready, taken_w = *c.wvalid && *c.wready;
            bool answered = a && w && *c.bvalid && *c.bready;
            uint8_t response = *c.bresp;
            step();
            if (taken_a) a = true, *c.awvalid = 0;
            if (taken_w) w = true, *c.wvalid = 0;
            if (a && w) *c.bready = 1;
            if (answered) {
                *c.bready = 0;
                gap();
                return response;
            }
        }
        quiet();
        return -1;
    }
    int control_read(uint32_t address, uint32_t* value) {
        ControlPins& c = pins.control;
        *c.araddr = uint16_t(address);
        *c.arvalid = 1;
        *c.rready = 0;
        for (int i = 0; i < 10000; i++) {
            *pins.clk = 0;
            model->eval();
            bool taken = *c.arvalid && *c.arready, answered = *c.rvalid && *c.rready;
            uint32_t data = *c.rdata;
            uint8_t response = *c.rresp;
            step();
            if (taken) *c.arvalid = 0, *c.rready = 1;
            if (answered) {
                *c.rready = 0;
                gap();
                *value = data;
                return response;
            }
        }
        quiet();
        return -1;
    }
    // Registers of a core that nobody has used yet, read without time passing: afterwards it is as after its reset.
    bool peek(const uint32_t* offsets, uint64_t count, uint32_t* values) {
        ControlPins& c = pins.control;
        const uint64_t now = memory.cycle;
        uint64_t got = 0;
        *c.rready = 1;
        for (uint64_t left = 1000; got < count && left; left--) {
            *c.araddr = uint16_t(offsets[got]);
            *c.arvalid = 1;
            *pins.clk = 0;
            model->eval();
            const bool taken = *c.arready;
            clock();
            if (!taken) continue;
            *c.arvalid = 0;
            for (; left; left--) {
                *pins.clk = 0;
                model->eval();
                const bool answered = *c.rvalid;
                if (answered) values[got++] = *c.rdata;
                clock();
                if (answered) break;
            }
        }
        reset(4);
        memory.cycle = now;
        return got == count;
    }
    // A host's accesses to registers are never back to back.
    void gap() {
        for (int64_t i = 0; i < control_gap; i++) step();
    }
};

extern "C" {
#define API __attribute__((visibility("default")))

API void* card_new() { return new Card; }
API void card_delete(void* h) { delete static_cast<Card*>(h); }
API int card_option(void* h, const char* name, int64_t value) {
    Card& c = *static_cast<Card*>(h);
    auto it = c.options.find(name);
    if (it == c.options.end()) return -1;
    *it->second = value;
    return 0;
}
API void card_map(void* h, int kind, int from, int width, int to) {
    static_cast<Card*>(h)->memory.ddr.dram.map.push_back({kind, from, width, to});
}
API int card_start(void* h) { return static_cast<Card*>(h)->start() ? 0 : -1; }
API void card_reset(void* h, uint64_t cycles) { static_cast<Card*>(h)->reset(cycles); }

API void card_add(void* h, uint64_t begin, uint64_t end) { static_cast<Card*>(h)->at(begin).add(begin, end); }
API int card_remove(void* h, uint64_t begin) { return static_cast<Card*>(h)->at(begin).remove(begin) ? 0 : -1; }
API void card_write(void* h, uint64_t address, const void* data, uint64_t count) {
    static_cast<Card*>(h)->at(address).write(address, data, count);
}
API void card_fill(void* h, uint64_t address, int value, uint64_t count) {
    Store& s = static_cast<Card*>(h)->at(address);
    memset(s.at(address), value, count);
    s.mark(address, count, true);
}
API void card_read(void* h, uint64_t address, void* data, uint64_t count) {
    memcpy(data, static_cast<Card*>(h)->at(address).at(address), count);
}

API uint64_t card_send(void* h, uint64_t address, const void* data, uint64_t count) {
    return static_cast<Card*>(h)->link.send(address, static_cast<const uint8_t*>(data), count);
}
API uint64_t card_fetch(void* h, uint64_t address, uint64_t count) {
    return static_cast<Card*>(h)->link.fetch(address, count);
}
// Time passes until transfer `id` has arrived (see Link::arrived), at most so many cycles; whether it has. A core that is at work
// goes on; one that is not stands still.
API int card_settle(void* h, uint64_t id, uint64_t cycles, int working) {
    Card& c = *static_cast<Card*>(h);
    for (; !c.link.arrived(id); cycles--) {
        if (!cycles) return 0;
        if (working && !(c.pins.interrupt && *c.pins.interrupt)) {
            c.step();
            continue;
        }
        c.rest();
        c.started += working != 0;
    }
    return 1;
}
API void card_passed(void* h, uint64_t in, uint64_t out) {
    Card& c = *static_cast<Card*>(h);
    c.link.in.count(in);
    c.link.out.count(out);
}
API int card_take(void* h, uint64_t id, void* data) { return static_cast<Card*>(h)->link.take(id, data) ? 0 : -1; }

API int card_control_write(void* h, uint32_t address, uint32_t value) {
    return static_cast<Card*>(h)->control_write(address, value);
}
API int card_control_read(void* h, uint32_t address, uint32_t* value) {
    return static_cast<Card*>(h)->control_read(address, value);
}
API int card_peek(void* h, const uint32_t* offsets, uint64_t count, uint32_t* values) {
    return static_cast<Card*>(h)->peek(offsets, count, values) ? 0 : -1;
}
API void card_begin(void* h) {
    Card& c = *static_cast<Card*>(h);
    c.started = c.memory.cycle;
    c.model->begin();
    c.ssd.start();
}
// Steps until the interrupt is up or `cycles` have passed; returns the cycles made, with bit 63 for the interrupt.
API uint64_t card_steps(void* h, uint64_t cycles) {
    Card& c = *static_cast<Card*>(h);
    for (uint64_t i = 0; i < cycles; i++) {
        if (c.pins.interrupt && *c.pins.interrupt) return i | 1ull << 63;
        c.step();
    }
    return cycles | (c.pins.interrupt && *c.pins.interrupt ? 1ull << 63 : 0);
}
API int card_has_interrupt(void* h) { return static_cast<Card*>(h)->pins.interrupt != nullptr; }
API uint64_t card_cycle(void* h) { return static_cast<Card*>(h)->memory.cycle; }
API uint64_t card_since_begin(void* h) {
    Card& c = *static_cast<Card*>(h);
    return c.memory.cycle - c.started;
}
API uint64_t card_under_way(void* h, int port) { return static_cast<Card*>(h)->ports[port].under_way(); }

API void card_clear(void* h) {
    Card& c = *static_cast<Card*>(h);
    c.memory.broken.clear();
    c.memory.ddr.dram.counters = DdrCounters();
    for (Port& p : c.ports) p.counters = PortCounters();
    c.link.in.clear();
    c.link.out.clear();
    c.ssd.pages = c.ssd.moved = c.ssd.credit_waits = 0;
    c.counted_from = c.memory.cycle;
}
// cycles, violations, seven of the memory, three of the drive, four of the link, then six of every port.
API void card_counters(void* h, uint64_t* out) {
    Card& c = *static_cast<Card*>(h);
    *out++ = c.memory.cycle - c.counted_from;
    *out++ = c.memory.broken.total;
    const DdrCounters& d = c.memory.ddr.dram.counters;
    for (uint64_t v : {d.hits, d.misses, d.conflicts, d.activates, d.refreshes, d.reads, d.writes}) *out++ = v;
    for (uint64_t v : {c.ssd.pages, c.ssd.moved, c.ssd.credit_waits}) *out++ = v;
    for (uint64_t v : {c.link.in.bytes, c.link.in.busy, c.link.out.bytes, c.link.out.busy}) *out++ = v;
    for (const Port& p : c.ports) {
        const PortCounters& n = p.counters;
        for (uint64_t v : {n.bursts_read, n.beats_read, n.read_waits, n.bursts_written, n.beats_written, n.most}) *out++ = v;
    }
}
API void card_check_guards(void* h) {
    Card& c = *static_cast<Card*>(h);
    for (Store* s : {c.store.get(), c.host.get()})
        if (s) s->check_guards([&](uint64_t address) { c.memory.broken.add(GUARD, HOST, address, c.memory.cycle); });
}
API int card_violation(void* h, int rule, int port, uint64_t* out) {
    const Violation& v = static_cast<Card*>(h)->memory.broken.of[rule][port];
    out[0] = v.count, out[1] = v.address, out[2] = v.cycle;
    return v.count != 0;
}

API void card_no_faults(void* h) {
    Card& c = *static_cast<Card*>(h);
    c.memory.errors.clear();
    for (Port& p : c.ports) {
        p.read_beats = p.write_beats = 0;
        p.silent_reads = p.silent_writes = -1;
        for (Stall& s : p.stall) s = Stall();
        p.stalls = false;
    }
    c.ssd.lost.clear();
    c.ssd.dies_after = -1;
    c.ssd.ahead = 0;
    c.ssd.ahead_after = 0;
}
API void card_stall(void* h, int channel, uint32_t share, uint32_t longest, uint64_t seed) {
    Card& c = *static_cast<Card*>(h);
    for (size_t i = 0; i < c.ports.size(); i++) {
        Stall& s = c.ports[i].stall[channel];
        s.share = share;
        c.ports[i].stalls |= share != 0;
        s.longest = longest;
        s.random.seed(seed * 1024 + i * 8 + channel + 1);
        for (int k = 0; k < 8; k++) s.random.next();
    }
}
API void card_error(void* h, int port, int write, int response, int64_t beat, uint64_t first, uint64_t end) {
    static_cast<Card*>(h)->memory.errors.push_back({port, write != 0, uint8_t(response), beat, first, end});
}
API void card_silence(void* h, int port, int write, int64_t beat) {
    Port& p = static_cast<Card*>(h)->ports[port];
    (write ? p.silent_writes : p.silent_reads) = beat;
}
API void card_ssd_faults(void* h, const uint64_t* lost, uint64_t count, int64_t dies_after, uint32_t ahead,
                         int64_t ahead_after) {
    Ssd& s = static_cast<Card*>(h)->ssd;
    for (uint64_t i = 0; i < count; i++) {
        if (s.lost.size() <= lost[i]) s.lost.resize(lost[i] + 1);
        s.lost[lost[i]] = 1;
    }
    s.dies_after = dies_after;
    s.ahead = ahead;
    s.ahead_after = ahead_after;
}
API void card_stream(void* h, const void* data, uint64_t bytes, uint64_t page, const uint64_t* transfers, uint64_t count,
                     uint64_t ring, uint64_t ring_bytes, uint64_t progress, uint64_t doorbell, uint64_t beat) {
    static_cast<Card*>(h)->ssd.stream(static_cast<const uint8_t*>(data), bytes, page, transfers, count, ring, ring_bytes,
                                      progress, doorbell, beat);
}
}
