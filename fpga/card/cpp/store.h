// The card's memory as bytes: what was written, what belongs to a buffer, what guards it.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

enum Rule {
    VALID_FELL,
    PAYLOAD_CHANGED,
    CROSSES_4K,
    BURST_TYPE,
    BURST_SIZE,
    UNALIGNED,
    LONG_BURST,
    WLAST,
    STROBE,
    READ_OUTSIDE,
    WRITE_OUTSIDE,
    NEVER_WRITTEN,
    RING_RACE,
    GUARD,
    CONTROL,
    RULES
};

// Numbers of ports as violations name them: masters from 0, then these two.
constexpr int HOST = 62, CONTROL_PORT = 63, PORTS = 64;

struct Violation {
    uint64_t count = 0, address = 0, cycle = 0;
};

// First occurrence and number of every broken rule.
struct Violations {
    Violation of[RULES][PORTS];
    uint64_t total = 0;

    void add(Rule rule, int port, uint64_t address, uint64_t cycle) {
        Violation& v = of[rule][port];
        if (!v.count++) v.address = address, v.cycle = cycle;
        total++;
    }
    void clear() { *this = Violations(); }
};

struct Range {
    uint64_t begin, end;
};

// Backed by untouched pages of the operating system, so a 4 GB card costs what is used of it.
struct Store {
    static constexpr uint64_t PAGE = 4096;
    uint64_t base, size;
    uint8_t* bytes;
    uint64_t* written;  // a bit for every 8 bytes, the word that carries an ECC code of its own
    std::vector<Range> ranges;
    size_t last = 0;

    Store(uint64_t base, uint64_t size) : base(base), size(size) {
        bytes = static_cast<uint8_t*>(map(size));
        written = static_cast<uint64_t*>(map(size / 64));
    }
    ~Store() {
        if (bytes) munmap(bytes, size);
        if (written) munmap(written, size / 64);
    }
    Store(const Store&) = delete;
    bool sound() const { return bytes && written; }

    bool exists(uint64_t address, uint64_t count) const {
        return address >= base && address - base <= size && size - (address - base) >= count;
    }
    // Inside one buffer; the buffer of the last hit is tried first.
    bool inside(uint64_t address, uint64_t count) {
        if (last < ranges.size() && address >= ranges[last].begin && address + count <= ranges[last].end) return true;
        auto it = std::upper_bound(ranges.begin(), ranges.end(), address,
                                   [](uint64_t a, const Range& r) { return a < r.begin; });
        if (it == ranges.begin()) return false;
        --it;
        if (address + count > it->end) return false;
        last = it - ranges.begin();
        return true;
    }
    bool known(uint64_t address, uint64_t count) const {
        const uint64_t end = ((address - base + count - 1) >> 3) + 1;
        for (uint64_t w = (address - base) >> 3; w < end; w = (w | 63) + 1) {
            const uint64_t span = std::min(end, (w | 63) + 1) - w;
            if (~(written[w >> 6] >> (w & 63)) & (~0ull >> (64 - span))) return false;
        }
        return true;
    }
    void mark(uint64_t address, uint64_t count, bool value) {
        if (!count) return;
        uint64_t w = (address - base) >> 3, end = ((address - base + count - 1) >> 3) + 1;
        while (w < end) {
            if (!(w & 63) && end - w >= 64) {
                written[w >> 6] = value ? ~0ull : 0;
                w += 64;
                continue;
            }
            uint64_t bit = 1ull << (w & 63);
            written[w >> 6] = value ? written[w >> 6] | bit : written[w >> 6] & ~bit;
            w++;
        }
    }
    uint8_t* at(uint64_t address) { return bytes + (address - base); }
    void write(uint64_t address, const void* data, uint64_t count) {
        memcpy(at(address), data, count);
        mark(address, count, true);
    }
    uint32_t word(uint64_t address) {
        uint32_t value;
        memcpy(&value, at(address), 4);
        return value;
    }

    // A buffer comes with a page of guard bytes on both sides, and with what is left of its last page.
    void add(uint64_t begin, uint64_t end) {
        Range range{begin, end};
        ranges.insert(std::upper_bound(ranges.begin(), ranges.end(), range,
                                       [](const Range& a, const Range& b) { return a.begin < b.begin; }),
                      range);
        last = 0;
        forget(begin - PAGE, guard_end(end) - (begin - PAGE));
        for (uint64_t a = begin - PAGE; a < begin; a++) *at(a) = guard(a);
        for (uint64_t a = end; a < guard_end(end); a++) *at(a) = guard(a);
    }
    bool remove(uint64_t begin) {
        for (size_t i = 0; i < ranges.size(); i++)
            if (ranges[i].begin == begin) {
                forget(begin - PAGE, guard_end(ranges[i].end) - (begin - PAGE));
                ranges.erase(ranges.begin() + i);
                last = 0;
                return true;
            }
        return false;
    }
    // Every changed guard byte's address goes to `bad`, the first of a buffer only.
    template <class Bad>
    void check_guards(Bad bad) {
        for (const Range& r : ranges) {
            for (uint64_t a = r.begin - PAGE; a < r.begin; a++)
                if (*at(a) != guard(a)) {
                    bad(a);
                    break;
                }
            for (uint64_t a = r.end; a < guard_end(r.end); a++)
                if (*at(a) != guard(a)) {
                    bad(a);
                    break;
                }
        }
    }

  private:
    static uint64_t guard_end(uint64_t end) { return (end + PAGE - 1) / PAGE * PAGE + PAGE; }
    static uint8_t guard(uint64_t address) { return 0xA5 ^ (address * 0x9E3779B97F4A7C15ull >> 56); }
    static void* map(uint64_t count) {
        void* p = mmap(nullptr, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        return p == MAP_FAILED ? nullptr : p;
    }
    void forget(uint64_t begin, uint64_t count) {
        mark(begin, count, false);
        madvise(at(begin), count, MADV_DONTNEED);  // whole pages, which then read as zero
    }
};
