// What the libraries of parts of the cycle model share: see verif.bench.cycle_model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

// What a part shows, one after the other.
inline void give(int64_t* shown, std::initializer_list<int64_t> values) { std::copy(values.begin(), values.end(), shown); }
