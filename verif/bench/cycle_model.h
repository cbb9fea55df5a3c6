// What the libraries of parts of the cycle model share: see verif.bench.cycle_model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

// A part by itself; shows: what its registers show in the present cycle, one after the other.
struct Part {
    virtual ~Part() = default;
    virtual void shows(int64_t* shown) const = 0;
};

inline void give(int64_t* shown, std::initializer_list<int64_t> values) { std::copy(values.begin(), values.end(), shown); }

extern "C" {
void part_delete(Part* part) { delete part; }
void part_shows(const Part* part, int64_t* shown) { part->shows(shown); }
}
