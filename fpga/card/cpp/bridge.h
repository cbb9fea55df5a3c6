// The host's memory as ports of a core reach it: a bridge in the shell makes packets of the link of their bursts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lane.h"
#include "ring.h"
#include "store.h"

// Bursts come and go in order. A read is cut into requests, and what comes back into packets; a write is sent in packets.
// Requests share a lane with writes, and lanes with the host's DMA.
struct Bridge {
    Store* store = nullptr;
    Lane *in = nullptr, *out = nullptr;
    int64_t latency = 200;          // cycles from a request on the link until its data begin on it
    int64_t reads = 32, writes = 32;    // bursts under way, over all ports
    int64_t payload = 256, request = 512, header = 24;  // bytes: of a packet, asked for by a request, around each
    int64_t completions = 16384;    // bytes that requests under way may bring together
    int64_t credits = 64;           // packets of writes that the host takes before the first has been written
    int64_t reading = 0, writing = 0;   // bursts under way

    void attach(Store* memory, Lane* to_card, Lane* to_host) {
        store = memory;
        in = to_card;
        out = to_host;
    }
    void reset() {
        asked.clear();
        posted.clear();
        bytes = 0;
    }
    // The cycle from which a line at an address is there, asked for now. Lines come in the order of bursts; left: bytes of
    // the burst from this line on; begins: it is the burst's first.
    uint64_t read(uint64_t now, uint64_t address, uint64_t left, bool begins) {
        begins |= address % uint64_t(request) == 0;
        if (begins) {
            const uint64_t size = std::min(left, uint64_t(request) - address % uint64_t(request));
            uint64_t at = now * Lane::FINE;
            for (; !asked.empty() && (asked.front().until <= at || bytes + size > uint64_t(completions)); asked.drop()) {
                at = std::max(at, asked.front().until);
                bytes -= asked.front().bytes;
            }
            bytes += size;
            there = out->pass(now, at, 0, span(0)) + uint64_t(latency) * Lane::FINE;
            rest = size;
        }
        if (begins || address % uint64_t(payload) == 0) {
            const uint64_t size = std::min(rest, uint64_t(payload) - address % uint64_t(payload));
            there = in->pass(now, there, size, span(size));
            rest -= size;
            asked.push({there, size});
        }
        return (there + Lane::FINE - 1) / Lane::FINE;
    }
    // The cycle in which the last packet of a burst, whose last byte has come now, is on its way to the host.
    uint64_t write(uint64_t now, uint64_t address, uint64_t left) {
        uint64_t at = now * Lane::FINE;
        for (uint64_t size; left; left -= size, address += size) {
            size = std::min(left, uint64_t(payload) - address % uint64_t(payload));
            if (posted.size() == uint64_t(credits)) at = std::max(at, posted.pop());
            at = out->pass(now, at, size, span(size));
            posted.push(at + uint64_t(latency) * Lane::FINE);
        }
        return (at + Lane::FINE - 1) / Lane::FINE;
    }

  private:
    struct Asked {
        uint64_t until, bytes;
    };
    Ring<Asked> asked;          // packets that are under way to the card
    Ring<uint64_t> posted;      // when the host gives back the room of the packets that were sent last
    uint64_t bytes = 0, there = 0, rest = 0;

    // Of a packet of so many bytes: the link's rate is that of full ones.
    uint64_t span(uint64_t size) const {
        return in->span(size + uint64_t(header)) * uint64_t(payload) / uint64_t(payload + header);
    }
};
