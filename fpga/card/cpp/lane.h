// One direction of the link.
#pragma once

#include <algorithm>
#include <cstdint>

// Who has something to move takes it for up to CHUNK bytes; host and drive take turns. Packets of a bridge go between:
// a chunk under way takes that much longer.
struct Lane {
    static constexpr uint64_t CHUNK = 4096;
    static constexpr uint64_t FINE = 4096;  // parts of a cycle in which packets are timed
    int64_t page = 384;  // cycles for 4096 bytes
    uint64_t free = 0, bytes = 0, busy = 0;
    bool host_waits = false, drive_was_last = false;

    bool is_free(uint64_t now) const { return now >= free; }
    void take(uint64_t now, uint64_t size) { free = now + count(size); }
    // Returns the cycles that so many bytes take.
    uint64_t count(uint64_t size) {
        uint64_t span = (uint64_t(page) * size + 4095) / 4096;
        busy += span;
        bytes += size;
        return span;
    }
    // Of so many bytes, in parts of a cycle.
    uint64_t span(uint64_t size) const { return uint64_t(page) * size * FINE / 4096; }
    // A packet with so many bytes of data, behind those before it and not before `from`: when it has passed. Times but
    // `now` are in parts of a cycle.
    uint64_t pass(uint64_t now, uint64_t from, uint64_t size, uint64_t takes) {
        passed = std::max(passed, from) + takes;
        part += takes;
        if (free > now) free += part / FINE;
        busy += part / FINE;
        part %= FINE;
        bytes += size;
        return passed;
    }
    void reset(uint64_t now) {
        free = now;
        passed = part = 0;
        host_waits = false;
    }
    void clear() { bytes = busy = 0; }

  private:
    uint64_t passed = 0, part = 0;
};
