// What the twin's parts are made of: queues, the buffer of two registers, the splitter of bursts, the requester.
//
// A part shows in its members what its registers show in the present cycle; `step` is the clock edge that ends it. The
// parts are those of hw.stream, hw.axi, hw.emb and hw.mlp, which tell what each does; addresses are in beats.
#pragma once

#include <cstdint>
#include <vector>

#include "../ring.h"

namespace twin {

// hw.stream.fifo.Fifo; has: `o` stands at the output.
template <class T>
class Fifo {
  public:
    T o{};
    bool has = false, room = true;

    explicit Fifo(uint32_t depth, uint32_t headroom = 0) : inside(depth), depth(depth), most(depth - headroom) {}
    bool ready() const { return inside.size() < depth; }
    bool held() const { return has || !inside.empty(); }
    bool still() const { return calm; }     // nothing changes before something comes or goes
    void step(bool push, const T& item, bool taken) {
        if (calm && !push && !taken) return;
        room = inside.size() <= most;
        if (!has || taken) {
            has = !inside.empty();
            if (has) o = inside.pop();
        }
        if (push) inside.push(item);
        calm = (has || inside.empty()) && room == (inside.size() <= most);
    }

  private:
    Ring<T> inside;
    uint32_t depth, most;
    bool calm = true;
};

// hw.stream.skid_buffer.SkidBuffer
template <class T>
class SkidBuffer {
  public:
    T o{};
    bool has = false, held = false;

    void step(bool offered, const T& item, bool taken) {
        if (!has || taken) {
            has = held || offered;
            if (held)
                o = spare, held = false;
            else if (offered)
                o = item;
        } else if (offered && !held) {
            held = true, spare = item;
        }
    }

  private:
    T spare{};
};

struct Request {
    uint64_t at;
    uint32_t beats;
    int tag;
};

// What is handed out of a request in a cycle.
struct Go {
    bool there = false, final = false;
    Request burst{};
};

// hw.axi.burst.Splitter: requests into bursts inside blocks; addresses behind two registers.
class Splitter {
  public:
    Request o{};
    bool has = false;       // an address stands on the bus

    explicit Splitter(uint32_t block) : block(block) {}
    bool held() const { return asked || begun || has; }
    Go offer(bool room) const {
        Go go;
        if (!begun || !room || kept) return go;
        uint32_t inside = block - uint32_t(left.at % block);
        go.there = true;
        go.final = left.beats <= inside;
        go.burst = {left.at, go.final ? left.beats : inside, left.tag};
        return go;
    }
    bool ready(const Go& go) const { return !asked || loads(go); }
    void drop() { asked = begun = false; }
    void step(const Go& go, bool comes, const Request& item, bool taken) {
        if (!has || taken) {
            has = kept || go.there;
            if (kept)
                o = spare, kept = false;
            else if (go.there)
                o = go.burst;
        } else if (go.there) {
            kept = true, spare = go.burst;
        }
        bool free = ready(go);
        if (loads(go)) {
            begun = asked;
            left = request;
        } else if (go.there) {
            left.at += go.burst.beats;
            left.beats -= go.burst.beats;
        }
        if (free) {
            asked = comes;
            request = item;
        }
    }

  private:
    bool loads(const Go& go) const { return !begun || (go.there && go.final); }
    uint32_t block;
    Request request{}, left{}, spare{};
    bool asked = false, begun = false, kept = false;
};

// hw.axi.requester.request_beats
class Requester {
  public:
    Request o{};
    bool has = false, asking = false;

    bool still() const { return has || !asking; }       // nothing changes before its request is taken
    void step(bool taken, bool start) {
        if (taken) has = false;
        if (start || !asking || has) return;
        bool whole = span >= MOST;
        has = span != 0;
        o = {at, uint32_t(whole ? MOST : span), 0};
        asking = whole || left;
        if (whole)
            at += MOST, span -= MOST;
        else
            at += stride, left--;
    }
    // A run of beats, and as many more, each `distance` behind the one before.
    void begin(uint64_t first, uint64_t beats, uint64_t more = 0, uint64_t distance = 0) {
        at = first, span = beats, left = more, stride = distance;
        asking = true;
    }

  private:
    static constexpr uint64_t MOST = 1 << 15;
    uint64_t at = 0, span = 0, left = 0, stride = 0;
};

}  // namespace twin
