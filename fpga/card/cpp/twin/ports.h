// The core's engines on the pins of its ports: hw.axi on a bus that may make them wait.
#pragma once

#include <array>
#include <cstring>

#include "../model.h"
#include "../store.h"
#include "parts.h"

namespace twin {

using Beat = std::array<uint32_t, 16>;

// A port's pins as the harness drives and reads them.
struct PortPins {
    uint8_t awvalid = 0, awready = 0, awid = 0, awlen = 0, awsize = 0, awburst = 1, wvalid = 0, wready = 0, wlast = 0;
    uint8_t bvalid = 0, bready = 1, bid = 0, bresp = 0, arvalid = 0, arready = 0, arid = 0, arlen = 0, arsize = 0;
    uint8_t arburst = 1, rvalid = 0, rready = 1, rid = 0, rresp = 0, rlast = 0;
    uint64_t awaddr = 0, araddr = 0, wstrb = ~0ull;
    alignas(64) Beat wdata{}, rdata{};

    explicit PortPins(uint32_t bytes, bool data = true) : data(data) {
        awsize = arsize = uint8_t(__builtin_ctz(bytes));
    }
    PortPins(const PortPins&) = delete;
    Pins bound() {
        return {&awvalid, &awready, &awid, &awlen, &awsize, &awburst, &wvalid, &wready, &wlast, &bvalid, &bready,
                &bid, &bresp, &arvalid, &arready, &arid, &arlen, &arsize, &arburst, &rvalid, &rready, &rid, &rresp,
                &rlast, &awaddr, &araddr, wdata.data(), &wstrb, data ? rdata.data() : nullptr};
    }

  private:
    bool data;      // whether what is read is looked at
};

// hw.axi.reader.Reader: the row port's. `o`: a beat comes out.
class Reader {
  public:
    bool o = false;

    Reader(PortPins& pins, uint32_t bytes, uint32_t block, uint32_t outstanding)
        : p(pins), bytes(bytes), splitter(block), bursts(outstanding) {}
    bool idle() const { return !splitter.held() && !bursts.held() && !o; }
    // Before the edge: what is handed out; whether a request is taken.
    bool ready() {
        go = splitter.offer(bursts.ready());
        return splitter.ready(go);
    }
    void step(bool comes, const Request& request) {
        bool beat = p.rvalid, ends = beat && at + 1 == bursts.o;
        if (beat) at = ends ? 0 : at + 1;
        bursts.step(go.there, go.burst.beats, ends);
        splitter.step(go, comes, request, p.arvalid && p.arready);
        o = beat;
        p.arvalid = splitter.has;
        p.araddr = splitter.o.at * bytes;
        p.arlen = uint8_t(splitter.o.beats - 1);
    }
    // The edge while the port is stopped.
    void drain() {
        splitter.drop();
        go = Go();
        step(false, {});
        o = false;
    }

  private:
    PortPins& p;
    uint32_t bytes, at = 0;
    Splitter splitter;
    Fifo<uint32_t> bursts;
    Go go;
};

// hw.axi.port.ReadPort. A client's beat is where its words lie; that of the client BELL, if there is one, is its word.
template <int CLIENTS, int BELL = -1>
class ReadPort {
  public:
    std::vector<Fifo<const uint32_t*>> queue;
    bool bell = false;          // the doorbell's beat stands there
    uint32_t bell_value = 0;

    ReadPort(PortPins& pins, Store& store, uint32_t bytes, uint32_t block, uint32_t outstanding,
             const std::array<uint32_t, CLIENTS>& depths)
        : queue(depths.begin(), depths.end()), p(pins), store(store), bytes(bytes), bursts(outstanding) {
        for (int k = 0; k < CLIENTS; k++) {
            free[k] = int(depths[k]);
            largest[k] = depths[k] / 4 ? depths[k] / 4 : 1;
            if (largest[k] > block) largest[k] = block;
            bits[k] = 31 - __builtin_clz(largest[k]);
        }
    }
    bool idle() const { return state == PICK && !active && !p.arvalid && !bursts.held() && arrived < 0; }
    // The client whose beat comes from the bus in this cycle, or -1.
    int coming() const { return p.rvalid ? bursts.o.client : -1; }
    // Nothing changes before a beat comes, or a client asks for more or takes what it has.
    bool still() const { return calm; }
    // The client whose request is taken in this cycle, or -1.
    int accepting() const { return state == LOAD && fresh ? turn : -1; }

    // requests: that stand at the clients, null for none; taken: the clients' beats that are.
    void step(const Request* const* requests, const bool* taken) {
        bool moves = p.rvalid;
        for (int k = 0; k < CLIENTS; k++) moves |= requests[k] || taken[k];
        if (calm && !moves) return;
        const bool issue = state == ISSUE && !p.arvalid && bursts.ready();
        uint32_t left = active;
        if (issue && final) left &= ~(1u << turn);
        if (issue && !final) left |= 1u << turn;
        come(taken, issue);
        uint32_t asks = 0;
        for (int k = 0; k < CLIENTS; k++) {
            if (!(left >> k & 1) && !requests[k]) continue;
            bool room = free[k] >> bits[k], ample = free[k] >> (bits[k] + 1), mine = issue && turn == k;
            if ((room && !mine) || ample) asks |= 1u << k;
        }
        int granted = pick();
        if (p.arvalid && p.arready) p.arvalid = 0;
        if (issue) begin();
        for (int k = 0; k < CLIENTS; k++) free[k] += taken[k];
        if (state == PICK) {
            if (granted >= 0) {
                turn = granted;
                fresh = !(active >> granted & 1);
                state = LOAD;
            }
        } else if (state == LOAD) {
            now = fresh ? *requests[turn] : rest[turn];
            last = turn;
            state = CUT;
        } else if (state == CUT) {
            uint32_t most = largest[turn], room = most - uint32_t(now.at % most);
            cut = now.beats < room ? now.beats : room;
            final = cut == now.beats;
            state = ISSUE;
        } else if (issue) {
            state = PICK;
            active = left;
        }
        asking = asks;
        calm = !moves && rests();
    }
    void drain() {
        const bool none[CLIENTS] = {};
        come(none, false);
        if (p.arvalid && p.arready) p.arvalid = 0;
        state = PICK;
        active = asking = 0;
        bell = calm = false;
    }

  private:
    struct Burst {
        uint64_t at;
        uint32_t beats;
        int client;
    };
    enum State { PICK, LOAD, CUT, ISSUE };
    PortPins& p;
    Store& store;
    uint32_t bytes;
    Fifo<Burst> bursts;
    int free[CLIENTS];
    uint32_t largest[CLIENTS], bits[CLIENTS];
    Request rest[CLIENTS]{}, now{};     // what is left of a request that has begun, by client
    uint32_t active = 0, asking = 0, cut = 0, at = 0;
    State state = PICK;
    int turn = -1, last = -1, arrived = -1;
    const uint32_t* words = nullptr;    // of the beat that has arrived
    uint32_t word = 0;
    bool fresh = false, final = true, calm = false;

    bool rests() const {
        bool moves = state != PICK || asking || p.arvalid || arrived >= 0 || bell || !bursts.still();
        for (const auto& each : queue) moves |= !each.still();
        return !moves;
    }
    int pick() const {
        for (int step = 1; step <= CLIENTS && asking; step++)
            if (asking >> (last + step) % CLIENTS & 1) return (last + step) % CLIENTS;
        return -1;
    }
    void begin() {
        p.arvalid = 1;
        p.araddr = now.at * bytes;
        p.arlen = uint8_t(cut - 1);
        free[turn] -= int(cut);
        rest[turn] = {now.at + cut, now.beats - cut, 0};
    }
    // Beats on their way to the clients' queues.
    void come(const bool* taken, bool issue) {
        for (int k = 0; k < CLIENTS; k++)
            if (k != BELL) queue[size_t(k)].step(arrived == k, words, taken[k]);
        if constexpr (BELL >= 0) {
            bell = arrived == BELL || (bell && !taken[BELL]);
            if (arrived == BELL) bell_value = word;
        }
        arrived = -1;
        bool ends = false;
        if (p.rvalid) {
            arrived = bursts.o.client;
            words = reinterpret_cast<const uint32_t*>(store.at((bursts.o.at + at) * bytes));
            word = p.rdata[0];
            ends = at + 1 == bursts.o.beats;
            at = ends ? 0 : at + 1;
        }
        bursts.step(issue, {now.at, cut, turn}, ends);
    }
};

// hw.axi.writer.WritePort. What it writes of its clients lies in the card's memory already, but for that of the last
// one, the status.
template <int CLIENTS>
class WritePort {
  public:
    static constexpr int STATUS = CLIENTS - 1;
    bool done[CLIENTS] = {};

    WritePort(PortPins& pins, Store& store, uint32_t bytes, uint32_t block, uint32_t outstanding,
              const std::array<uint32_t, CLIENTS>& depths)
        : p(pins), store(store), bytes(bytes), splitter(block), sending(outstanding), waiting(outstanding),
          reports(depths[STATUS]), count(depths.begin(), depths.begin() + STATUS) {}
    bool idle() const {
        bool held = false;
        for (int k = 0; k < CLIENTS; k++) held |= there[k] || done[k];
        return !(held || splitter.held() || sending.held() || waiting.held() || p.wvalid);
    }
    // Before the edge: what is handed out and granted.
    void decide() {
        if (calm) return;
        go = splitter.offer(sending.ready() && waiting.ready());
        granted = -1;
        for (int step = 1; step <= CLIENTS && granted < 0; step++)
            if (complete[(last + step) % CLIENTS]) granted = (last + step) % CLIENTS;
        grant = granted >= 0 && splitter.ready(go);
    }
    bool ready(int k) const { return !there[k] || (grant && granted == k); }
    bool room(int k) const { return k == STATUS ? reports.ready() : count[size_t(k)].ready(); }

    // requests: that stand at the clients, null for none; data: beats that are taken; status: that of the status.
    void step(const Request* const* requests, const bool* data, const Beat& status) {
        const bool answered = p.bvalid;
        bool still = !answered;
        for (int k = 0; k < CLIENTS; k++) still &= !requests[k] && !data[k];
        if (calm && still) return;
        for (int k = 0; k < CLIENTS; k++) done[k] = answered && waiting.o.final && waiting.o.burst.tag == k;
        const bool shown = p.awvalid && !seen, aw = p.awvalid && p.awready;
        seen = p.awvalid && !p.awready;
        const int from = sending.o.tag;
        const bool beat = sending.has && owed && (from == STATUS ? reports.has : count[size_t(from)].has);
        const bool move = beat && (!p.wvalid || p.wready), ends = move && at + 1 == sending.o.beats;
        if (!p.wvalid || p.wready) p.wvalid = beat;
        if (move) {
            p.wlast = ends;
            if (from == STATUS)
                p.wdata = reports.o;
            else
                memcpy(p.wdata.data(), store.at((sending.o.at + at) * bytes), bytes);
            at = ends ? 0 : at + 1;
        }
        owed += int(shown) - int(ends);
        for (int k = 0; k < STATUS; k++) count[size_t(k)].step(data[k], true, move && from == k);
        reports.step(data[STATUS], status, move && from == STATUS);
        sending.step(go.there, go.burst, ends);
        waiting.step(go.there, go, answered);
        splitter.step(go, grant, grant ? request[granted] : Request{}, aw);
        p.awvalid = splitter.has;
        p.awaddr = splitter.o.at * bytes;
        p.awlen = uint8_t(splitter.o.beats - 1);
        for (int k = 0; k < CLIENTS; k++) {
            const bool free = ready(k), load = requests[k] && free, mine = grant && granted == k;
            spare[k] += data[k];
            if (load) spare[k] -= int(requests[k]->beats);
            complete[k] = (load || (there[k] && !mine)) && spare[k] >= 0;
            if (!free) continue;
            there[k] = load;
            if (load) request[k] = {requests[k]->at, requests[k]->beats, k};
        }
        if (grant) last = granted;
        calm = still && idle();
        if (calm) decide_nothing();
    }

  private:
    PortPins& p;
    Store& store;
    uint32_t bytes, at = 0;
    Splitter splitter;
    Fifo<Request> sending;
    Fifo<Go> waiting;
    Fifo<Beat> reports;
    std::vector<Fifo<uint8_t>> count;   // beats whose words lie in the card's memory
    Request request[CLIENTS]{};
    bool there[CLIENTS] = {}, complete[CLIENTS] = {};
    int spare[CLIENTS] = {};
    int last = -1, owed = 0, granted = -1;
    bool seen = false, grant = false;
    bool calm = false;      // nothing changes before a request, a beat or an answer comes
    Go go;

    void decide_nothing() {
        go = Go();
        granted = -1;
        grant = false;
    }
};

}  // namespace twin
