// The PCIe link between the card, its host and its drive: two directions, each for itself, and the host's DMA on them.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "lane.h"
#include "port.h"

// The link's packets are bursts in the card: of up to PACKET lines, which end at a multiple of their size.
constexpr uint64_t PACKET = 4;
inline bool ends_packet(uint64_t line) { return (line / LINE + 1) % PACKET == 0; }
// Of `number` lines from `at` on those that are `due`, as far as their packets are whole; `pushed` of them were so before.
inline void arrive(WriteQueue& to, uint64_t at, uint64_t number, uint64_t due, uint64_t& pushed) {
    while (due < number && due > pushed && !ends_packet(at + (due - 1) * LINE)) due--;
    for (; pushed < due; pushed++) {
        uint64_t line = at + pushed * LINE;
        to.push({line, false, pushed + 1 == number || ends_packet(line)});
    }
}

struct LinkTiming {
    // In kernel cycles: from the host's call to the first byte, from the last byte until the host knows.
    int64_t begin = 2100, end = 1800;
};

// Transfers of the host, in order in each direction. Lines to the card go through the memory's controller like the
// drive's; lines to the host are read there ahead of the link.
class Link {
  public:
    LinkTiming t;
    Lane in, out;
    WriteQueue to_write;
    LineQueue lines;                // lines asked for from it

    void attach(Memory* memory) {
        m = memory;
        lines.limit = AHEAD;
    }
    uint64_t send(uint64_t address, const uint8_t* data, uint64_t count) {
        sent.push_back({++last, address, count, m->cycle + uint64_t(t.begin), false, {data, data + count}});
        return last;
    }
    uint64_t fetch(uint64_t address, uint64_t count) {
        fetched.push_back({++last, address, count, m->cycle + uint64_t(t.begin), true, std::vector<uint8_t>(count)});
        return last;
    }
    static constexpr uint64_t EVERY = 0, SENT = ~0ull;
    // Whether a transfer has arrived, or all have, or all to the card.
    bool arrived(uint64_t id) const {
        for (const auto* queue : {&sent, &fetched, &closing})
            for (const Move& move : *queue)
                if (id == EVERY || move.id == id || (id == SENT && !move.fetch)) return false;
        return true;
    }
    // The bytes of a fetch that has arrived; they are forgotten here.
    bool take(uint64_t id, void* data) {
        for (size_t i = 0; i < ended.size(); i++)
            if (ended[i].id == id) {
                memcpy(data, ended[i].bytes.data(), ended[i].bytes.size());
                ended.erase(ended.begin() + long(i));
                return true;
            }
        return false;
    }
    void reset() {
        sent.clear();
        fetched.clear();
        closing.clear();
        ended.clear();
        to_write.clear();
        lines.reset();
        asked = 0;
        in_chunk = out_chunk = pushed = 0;
        in.reset(m->cycle);
        out.reset(m->cycle);
    }

    void tick() {
        while (!closing.empty() && closing.front().since <= m->cycle) {
            if (closing.front().fetch) ended.push_back(std::move(closing.front()));
            closing.pop_front();
        }
        if (!sent.empty()) tick_in();
        if (!fetched.empty()) tick_out();
    }

  private:
    static constexpr uint64_t AHEAD = 2 * Lane::CHUNK / LINE;
    struct Move {
        uint64_t id, address, count, since;
        bool fetch;
        std::vector<uint8_t> bytes;
        uint64_t moved = 0;
    };
    Memory* m = nullptr;
    std::deque<Move> sent, fetched, closing, ended;
    uint64_t last = 0, in_chunk = 0, in_start = 0, in_end = 0, pushed = 0, out_chunk = 0, asked = 0;

    static uint64_t line_of(uint64_t address) { return address / LINE * LINE; }
    // The lines that hold some bytes.
    static uint64_t lines_of(uint64_t address, uint64_t count) {
        return (line_of(address + count + LINE - 1) - line_of(address)) / LINE;
    }
    static uint64_t chunk_of(const Move& move) {
        uint64_t left = move.count - move.moved, room = Lane::CHUNK - (move.address + move.moved) % LINE;
        return left < room ? left : room;
    }
    void close(std::deque<Move>& queue) {
        queue.front().since = m->cycle + uint64_t(t.end);
        auto at = closing.begin();
        while (at != closing.end() && at->since <= queue.front().since) ++at;
        closing.insert(at, std::move(queue.front()));
        queue.pop_front();
    }

    void tick_in() {
        Move& move = sent.front();
        uint64_t now = m->cycle;
        if (!in_chunk) {
            in.host_waits = now >= move.since && to_write.size() < AHEAD;
            if (!in.host_waits || !in.is_free(now)) return;
            in.host_waits = in.drive_was_last = false;
            in_chunk = chunk_of(move);
            in_start = now;
            pushed = 0;
            in.take(now, in_chunk);
            in_end = in.free;
        }
        // Lines reach the memory evenly over the time that the link takes.
        uint64_t at = move.address + move.moved, number = lines_of(at, in_chunk), span = in_end - in_start;
        uint64_t due = now >= in_end ? number : (now - in_start) * number / span;
        arrive(to_write, line_of(at), number, due, pushed);
        if (now < in_end) return;
        m->store->write(at, move.bytes.data() + move.moved, in_chunk);
        move.moved += in_chunk;
        in_chunk = 0;
        if (move.moved == move.count) close(sent);
    }

    void tick_out() {
        Move& move = fetched.front();
        uint64_t now = m->cycle;
        if (out_chunk && out.is_free(now)) {
            move.moved += out_chunk;
            out_chunk = 0;
            if (move.moved == move.count) {
                asked = 0;
                return close(fetched);
            }
        }
        if (now < move.since) return;
        uint64_t number = lines_of(move.address, move.count);
        for (bool end = asked == number || !lines.room(); !end;) {
            uint64_t line = line_of(move.address) + asked++ * LINE;
            end = asked == number || ends_packet(line);
            lines.push(line, LINE, end, now + uint64_t(m->front));
            if (m->ideal) {
                lines.at(lines.tail - 1).done = true;
                lines.at(lines.tail - 1).ready = now + uint64_t(m->latency);
                lines.send();
            }
        }
        if (out_chunk || !out.is_free(now)) return;
        uint64_t chunk = chunk_of(move), at = move.address + move.moved, needed = lines_of(at, chunk);
        if (lines.tail - lines.head < needed) return;
        for (uint64_t i = lines.head; i < lines.head + needed; i++)
            if (!lines.at(i).done || lines.at(i).ready > now) return;
        memcpy(move.bytes.data() + move.moved, m->store->at(at), chunk);
        lines.head += needed;
        out_chunk = chunk;
        out.take(now, chunk);
    }
};
