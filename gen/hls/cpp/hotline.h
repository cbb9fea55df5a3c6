// Hotline's access logger with a lookup engine: samples in, samples with the numbers of their hot rows out.
//
// A lookup engine adds its table's first row to an index, the randomizer makes bank, set and identifier of the sum, the
// bank says whether it holds the row and learns from the access. A sample with a cold index is cold.
//
// Timing  an index per initiation interval, the time that a bank takes to read, change and write a set, 3 or 4 cycles
//         at 250 MHz: nothing says that the next access is to another set. The RTL forwards what is on its way and has
//         a port per bank, so it looks up as many indices per cycle as there are banks; this loop looks up one.
// Source  Hotline 6.2, 6.3. Golden: golden.hotline.logger, golden.hotline.bank, golden.hotline.randomizer,
//         golden.hotline.lookup
#pragma once

#include "randomizer.h"
#include "types.h"

namespace hotrail {

const int ID_BITS = HOTLINE_ID_BITS, WAYS = HOTLINE_WAYS, STALE = HOTLINE_STALE;
const int DOMAIN_BITS = HOTLINE_BANK_BITS + HOTLINE_SET_BITS + ID_BITS;
const Word RRPV = 1u << ID_BITS, VALID = 1u << (ID_BITS + 2), HOT = 0x80000000, NO_INDEX = 0xFFFFFFFF;

// -- The randomizer: a Feistel network over the place, keyed by the identifier.

inline uint64_t ones(int bits) { return (uint64_t(1) << bits) - 1; }

inline uint64_t rotated(uint64_t half, int by, int width) {
    by %= width;
    return (half >> by | half << (width - by)) & ones(width);
}

inline uint64_t mixed(uint64_t half, uint64_t key, int round, int width, int other) {
    const int *by = RANDOMIZER_ROTATES[round % 3];
    uint64_t out = (rotated(half, by[0], width) & rotated(half, by[1], width)) ^ rotated(half, by[2], width);
    out |= (out & 1) << width;
    return (out ^ rotated(key, RANDOMIZER_KEYS[round], ID_BITS) ^ RANDOMIZER_CONSTANTS[round] >> (64 - other))
        & ones(other);
}

inline uint64_t permute(uint64_t row) {
    const int PLACE_BITS = DOMAIN_BITS - ID_BITS, LOW = PLACE_BITS / 2, HIGH = PLACE_BITS - LOW;
    uint64_t low = row & ones(LOW), high = row >> LOW & ones(HIGH);
    const uint64_t key = row >> PLACE_BITS;
    for (int round = 0; round < RANDOMIZER_ROUNDS; round++) {
        if (round % 2 == 0) low ^= mixed(high, key, round, HIGH, LOW);
        else high ^= mixed(low, key, round, LOW, HIGH);
    }
    return key << PLACE_BITS | high << LOW | low;
}

// -- A bank: sets of four ways, {valid, rrpv, identifier} each.

struct Logger {
    Word way[HOTLINE_BANKS][HOTLINE_SETS][WAYS];
    Word count[HOTLINE_BANKS];
};

struct Answer {
    bool hit;
    Word number;            // bank lowest, then set, then way
};

// The way that holds the identifier, -1 for none; the set's entries and the bank's count change where it learns.
inline int access(Word way[WAYS], Word &count, Word id, bool learn) {
#pragma HLS inline
    const bool steady = HOTLINE_POLICY == POLICY_STEADY;
    const Word fresh = steady ? STALE : STALE - 1;
    int found = -1, empty = -1;
    Word most = 0;
    for (int w = WAYS - 1; w >= 0; w--) {
        if (!(way[w] & VALID)) empty = w;
        else if ((way[w] & (RRPV - 1)) == id) found = w;
        most = larger(most, way[w] / RRPV & STALE);
    }
    if (!learn) return found;
    if (found >= 0) {
        // An image that was loaded may hold a row twice.
        for (int w = 0; w < WAYS; w++) {
            if ((way[w] & VALID) && (way[w] & (RRPV - 1)) == id && (way[w] / RRPV & STALE))
                way[w] = steady ? way[w] - RRPV : way[w] & ~(STALE * RRPV);
        }
        return found;
    }
    if (empty >= 0) {
        way[empty] = id | fresh * RRPV | VALID;
        return found;
    }
    if (HOTLINE_POLICY != POLICY_SRRIP && !(steady && most == STALE)) {
        count++;
        if (!(count >> HOTLINE_INSERT_LOG2)) return found;
        count = 0;
    }
    const Word older = STALE - most;
    const bool ages = steady && older;
    int victim = -1;
    for (int w = WAYS - 1; w >= 0; w--) {
        way[w] += (ages ? 1 : older) * RRPV;
        if ((way[w] & STALE * RRPV) == STALE * RRPV) victim = w;
    }
    if (!ages) way[victim & (WAYS - 1)] = id | fresh * RRPV | VALID;
    return found;
}

inline Answer log_access(Logger &logger, uint64_t row, bool learn) {
#pragma HLS inline
    const uint64_t word = permute(row);
    const Word bank = word & (HOTLINE_BANKS - 1), set = word >> HOTLINE_BANK_BITS & (HOTLINE_SETS - 1);
    const int found = access(logger.way[bank][set], logger.count[bank],
                             Word(word >> (HOTLINE_BANK_BITS + HOTLINE_SET_BITS)), learn);
    return {found >= 0, bank | set << HOTLINE_BANK_BITS
                            | Word(found < 0 ? 0 : found) << (HOTLINE_BANK_BITS + HOTLINE_SET_BITS)};
}

// -- The lookup engine.

struct AddressRegister {    // of a position of a sample
    uint64_t first;         // number of the table's row 0 among the rows of all tables
    uint32_t rows;          // 0: never written
    bool pinned;            // all rows of the table are hot
};

struct LookupJob {
    uint32_t samples;
    int sample_words, indices;
    bool learn;
};

struct LookupFault {
    bool any;
    uint32_t sample, position, value;
};

// Samples of sample_words words each: `indices` of them index words, the others are carried along. cold: one a sample.
inline LookupFault lookup_unit(hls::stream<Word> &i, hls::stream<Word> &o, hls::stream<bool> &cold, Logger &logger,
                               const AddressRegister registers[HOTLINE_POSITIONS], const LookupJob &job) {
#pragma HLS array_partition variable=logger.way complete dim=3
    LookupFault fault = {false, 0, 0, 0};
SAMPLES:
    for (uint32_t sample = 0; sample < job.samples && !fault.any; sample++) {
#pragma HLS loop_tripcount min=1 max=65536
        bool any_cold = false;
    INDICES:
        for (int position = 0; position < job.sample_words; position++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
            Word word = i.read();
            if (position < job.indices && word != NO_INDEX && !fault.any) {
                const AddressRegister at = registers[position & (HOTLINE_POSITIONS - 1)];
                if (!(at.pinned && at.rows) && word >= at.rows) {
                    fault = {true, sample, uint32_t(position), word};
                } else if (!at.pinned) {
                    const Answer answer = log_access(logger, (at.first + word) & ones(DOMAIN_BITS), job.learn);
                    if (answer.hit) word = HOT | answer.number;
                    else any_cold = true;
                }
            }
            o.write(word);
        }
        cold.write(any_cold);
    }
    return fault;
}

}  // namespace hotrail
