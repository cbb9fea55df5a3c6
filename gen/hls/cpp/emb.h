// The EMB kernel: carries out programs of LOAD, BAGS and FILL, as hw/isa describes them and golden.emb.core does.
//
// A BAGS instruction is a dataflow region: `issue` reads lengths, indices and weights, checks them, sends each row
// to its tier; `fetch_rows` and `tt_unit` bring values; the pooling unit adds up; `store_vectors` writes. A program
// that is not allowed ends the run with the RTL's code; nothing outside of the buffers is read or written.
//
// Timing  the slowest process of the region decides: an index per cycle; a row's stored beats, then its beats of values;
//         a slot of the TT unit per cycle, see there and in pooling.h. Instructions do not overlap.
#ifndef HOTRAIL_EMB_KERNEL_H
#define HOTRAIL_EMB_KERNEL_H

#include "hotrail_emb.h"
#include "instruction.h"
#include "pooling.h"
#include "tt.h"

#if defined(HOTRAIL_CSIM)
extern "C" void hotrail_host_step();        // the host's part between two polls: the testbench brings pages
#define HOTRAIL_HOST_STEP() hotrail_host_step()
#else
#define HOTRAIL_HOST_STEP()
#endif

namespace hotrail {

const uint32_t POSITION_MASK = (1u << 30) - 1;      // of an index word, and of ring positions
const int DEVICE_SHIFT = 30;
enum Arena { IN_INPUTS, IN_OUTPUTS, IN_ROWS, IN_RING };     // detail of BOUNDS

struct Fault {
    uint32_t code, bag, index, detail;
};

inline Fault fault_of(uint32_t code, uint32_t detail, uint32_t bag = 0, uint32_t index = 0) {
    const Fault fault = {code, bag, index, detail};
    return fault;
}

inline Fault no_fault() { return fault_of(HOTRAIL_EMB_CODE_OK, 0); }

// Beats of the kernel's buffers, and what the ring's doorbell said last.
struct Buffers {
    uint32_t inputs_beats, outputs_beats, rows_beats, ring_beats, timeout;
};

struct Ring {
    uint32_t released, filled;
};

// A word of the result block, by its byte offset.
inline Word result_word(const volatile Beat *result, int offset) {
    return result[offset / 4 / WORDS].word[offset / 4 % WORDS];
}

// Word `number` of a region of the inputs from beat `first` on; the beat that was read last is kept.
struct Held {
    uint32_t number;
    bool any;
    Beat beat;
};

inline Word word_at(const Beat *inputs, uint32_t first, uint32_t number, Held &held) {
#pragma HLS inline
    const uint32_t beat = number / WORDS;
    if (!held.any || beat != held.number) held.beat = inputs[first + beat];
    held.number = beat;
    held.any = true;
    return held.beat.word[number % WORDS];
}

inline Held none_held() {
    Held held;
    held.number = 0;
    held.any = false;
    held.beat = zero_beat();
    return held;
}

inline bool inside(uint32_t beats, uint64_t first, uint64_t count) { return first + count <= beats; }
inline uint64_t beats_of(uint64_t words) { return (words + WORDS - 1) / WORDS; }

// -- The ring of rows from the SSD.

inline bool in_ring(const Instruction &item, const Buffers &buffers, uint32_t position, int beats) {
    if (buffers.ring_beats == 0 || position > POSITION_MASK) return false;
    return uint64_t((position - item.ring_first) & POSITION_MASK) + beats <= item.ring_count
        && uint64_t(position & (buffers.ring_beats - 1)) + beats <= buffers.ring_beats;
}

// Waits until the row has landed; golden.emb.core's TIMEOUT where it never does.
inline Fault wait_for_row(const volatile Beat *result, const Buffers &buffers, Ring &ring, uint32_t position,
                          int beats) {
    const uint32_t end = position + beats;
WAIT:
    for (uint32_t left = buffers.timeout;; left--) {
#pragma HLS loop_tripcount min=0 max=100000
        if (((ring.filled - end) & POSITION_MASK) < buffers.ring_beats) return no_fault();
        if (left == 0) return fault_of(HOTRAIL_EMB_CODE_TIMEOUT, position);
        HOTRAIL_HOST_STEP();
        ring.filled = result_word(result, HOTRAIL_EMB_RESULT_FILLED) & POSITION_MASK;
        const uint32_t ahead = (ring.filled - ring.released) & POSITION_MASK;
        if (ahead <= POSITION_MASK / 2 && ahead > buffers.ring_beats)
            return fault_of(HOTRAIL_EMB_CODE_RING_OVERFLOW, ring.filled);
    }
}

// -- What an instruction may ask for, before anything is done.

struct Tables {             // of the TT unit, as programs have to keep to them
    bool loaded[TT_TABLES];
};

inline Stripes stripes_of(const Instruction &item) {
    const Stripes stripes = {stored_beats(item.row_beats, item.row_format), int(item.piece_beats)};
    return stripes;
}

inline bool tt_is_loaded(const Tables &tables, uint32_t table) {
    return table < TT_TABLES && tables.loaded[table & (TT_TABLES - 1)];
}

inline bool allowed(const Instruction &item, const Buffers &buffers, const TTMemory &memory, const Tables &tables) {
    if (!item.in_range || item.reserved) return false;
    if (item.opcode == HOTRAIL_EMB_LOAD) return true;
    if (item.ring_count && (buffers.ring_beats & (buffers.ring_beats - 1))) return false;
    if (!stripes_of(item).whole()) return false;
    if (item.opcode == HOTRAIL_EMB_FILL) return true;
    const bool maximum_of = item.mode == HOTRAIL_EMB_MODE_MAX;
    if (item.weighted && item.mode != HOTRAIL_EMB_MODE_SUM) return false;
    if ((item.weighted || maximum_of) && item.chunk_rows != 1) return false;
    if (item.tt_rows > 1u << TT_INDEX_BITS) return false;
    if (item.tt_rows == 0 || !tt_is_loaded(tables, item.tt_table)) return true;
    const Descriptor &d = memory.table[item.tt_table & (TT_TABLES - 1)];
    return item.row_beats == d.last_beats + 1 && item.chunk_rows <= d.last_chunk + 1;
}

inline Fault check_bounds(const Instruction &item, const Buffers &buffers) {
    if (item.ring_count > buffers.ring_beats) return fault_of(HOTRAIL_EMB_CODE_BOUNDS, IN_RING);
    const bool fill = item.opcode == HOTRAIL_EMB_FILL;
    const uint64_t indices = beats_of(fill ? 2 * uint64_t(item.count) : item.indices_count);
    bool inputs = inside(buffers.inputs_beats, item.indices, indices);
    if (!fill) {
        inputs = inputs && inside(buffers.inputs_beats, item.lengths, beats_of(item.count));
        inputs = inputs && (!item.weighted || inside(buffers.inputs_beats, item.weights, indices));
    }
    if (!inputs) return fault_of(HOTRAIL_EMB_CODE_BOUNDS, IN_INPUTS);
    if (!inside(buffers.rows_beats, item.dram_base, stripes_of(item).beats(item.dram_rows)))
        return fault_of(HOTRAIL_EMB_CODE_BOUNDS, IN_ROWS);
    const uint64_t outputs = uint64_t(item.count - 1) * item.out_stride + vector_beats(item.row_beats, item.format);
    if (!fill && !inside(buffers.outputs_beats, item.out, outputs))
        return fault_of(HOTRAIL_EMB_CODE_BOUNDS, IN_OUTPUTS);
    return no_fault();
}

// -- BAGS, process by process.

struct Fetch {
    bool ring, stop;
    uint32_t row;           // of the table, or a ring position
};

struct Counts {             // of one instruction
    uint32_t dram, tt, ssd;
};

// Reads and checks all lengths, indices and weights; one index a cycle. Ends every stream with its last token, also
// where something is not allowed.
inline void issue(const Beat *inputs, const volatile Beat *result, const Instruction &item, const Buffers &buffers,
                  bool loaded, uint32_t tt_rows, Ring &ring, hls::stream<Fetch> &rows, hls::stream<Lookup> &lookups,
                  hls::stream<PoolToken> &tokens, Fault &fault, Counts &counts) {
    Held lengths = none_held(), indices = none_held(), weights = none_held();
    const int beats = stored_beats(item.row_beats, item.row_format);
    uint32_t start = 0;
    fault = no_fault();
    Counts found = {0, 0, 0};
BAGS:
    for (uint32_t bag = 0; bag < item.count && !fault.code; bag++) {
#pragma HLS loop_tripcount min=1 max=4096
        const uint32_t length = word_at(inputs, item.lengths, bag, lengths);
        const uint64_t end = uint64_t(start) + length;
        if (end > item.indices_count || length > HOTRAIL_LONGEST_BAG
            || (bag == item.count - 1 && end != item.indices_count)) {
            fault = fault_of(HOTRAIL_EMB_CODE_LENGTHS, length, bag, start);
            break;
        }
        const Word mean = item.mode == HOTRAIL_EMB_MODE_MEAN && length ? reciprocal(length) : ONE_WORD;
        uint32_t in_chunk = 0;
        Lookup lookup = {0, false, false};
    INDICES:
        for (uint32_t number = start; number < end; number++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=65536
            const Word word = word_at(inputs, item.indices, number, indices);
            const uint32_t device = word >> DEVICE_SHIFT, row = word & POSITION_MASK;
            const Word weight = item.weighted ? word_at(inputs, item.weights, number, weights) : ONE_WORD;
            PoolToken token = {DRAM_ROW, weight, mean};
            Fetch row_fetch = {false, false, row};
            if (device == HOTRAIL_EMB_DEVICE_DRAM && row < item.dram_rows) {
                rows.write(row_fetch);
                tokens.write(token);
                found.dram++;
            } else if (device == HOTRAIL_EMB_DEVICE_SSD && in_ring(item, buffers, row, beats)) {
                fault = wait_for_row(result, buffers, ring, row, beats);
                if (fault.code) break;
                row_fetch.ring = true;
                rows.write(row_fetch);
                token.what = SSD_ROW;
                tokens.write(token);
                found.ssd++;
            } else if (device == HOTRAIL_EMB_DEVICE_TT && row < tt_rows && loaded) {
                // A row waits until it is known whether its chunk goes on.
                if (in_chunk) lookups.write(lookup);
                lookup.index = row;
                lookup.ends = ++in_chunk == item.chunk_rows;
                if (lookup.ends) {
                    token.what = TT_VECTOR;
                    token.factor = item.weighted ? weight : mean;
                    lookups.write(lookup);
                    tokens.write(token);
                    in_chunk = 0;
                }
                found.tt++;
            } else if (device == HOTRAIL_EMB_DEVICE_TT && row < tt_rows) {
                fault = fault_of(HOTRAIL_EMB_CODE_TT_TABLE, item.tt_table, bag, number);
                break;
            } else {
                const bool no_device = device > HOTRAIL_EMB_DEVICE_SSD;
                fault = fault_of(no_device ? HOTRAIL_EMB_CODE_INDEX_DEVICE : HOTRAIL_EMB_CODE_INDEX_RANGE, word, bag,
                                 number);
                break;
            }
        }
        if (fault.code) break;
        if (in_chunk) {
            lookup.ends = true;
            lookups.write(lookup);
            const PoolToken token = {TT_VECTOR, ONE_WORD, mean};
            tokens.write(token);
        }
        const PoolToken done = {BAG_END, ONE_WORD, mean};
        tokens.write(done);
        start = uint32_t(end);
    }
    const Fetch no_row = {false, true, 0};
    const Lookup no_lookup = {0, false, true};
    const PoolToken all = {ALL_DONE, 0, 0};
    rows.write(no_row);
    lookups.write(no_lookup);
    tokens.write(all);
    counts = found;
}

// Brings rows of card memory and of the ring; one stored beat a cycle, then one beat of values a cycle.
inline void fetch_rows(const Beat *rows, const Beat *ring, const Instruction &item, uint32_t ring_beats,
                       hls::stream<Fetch> &wanted, hls::stream<Beat> &values) {
    Beat stored[EMB_ROW_BEATS_MAX];
    const Stripes stripes = stripes_of(item);
ROWS:
    for (Fetch fetch = wanted.read(); !fetch.stop; fetch = wanted.read()) {
#pragma HLS loop_tripcount min=1 max=65536
    READ:
        for (int j = 0; j < stripes.row_beats; j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
            stored[j] = fetch.ring ? ring[(fetch.row & (ring_beats - 1)) + j]
                                   : rows[item.dram_base + stripes.place(fetch.row, j)];
        }
    DECODE:
        for (int j = 0; j < int(item.row_beats); j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
            values.write(decode_beat(stored, j, item.row_format));
        }
    }
}

// Writes vectors as they come, a beat a cycle.
inline void store_vectors(Beat *outputs, const Instruction &item, hls::stream<Beat> &vectors,
                          hls::stream<bool> &follows) {
    const int beats = vector_beats(item.row_beats, item.format);
    uint64_t to = item.out;
STORE:
    while (follows.read()) {
#pragma HLS loop_tripcount min=1 max=4096
        for (int j = 0; j < beats; j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
            outputs[to + j] = vectors.read();
        }
        to += item.out_stride;
    }
}

struct BagsJob {            // what all processes of a BAGS instruction know
    Instruction item;
    PoolJob pool;
    bool loaded;
    uint32_t tt_rows;
};

inline void bags_region(const Beat *inputs, Beat *outputs, const Beat *rows, const Beat *ring_memory,
                        const volatile Beat *result, const BagsJob &job, const Buffers &buffers, TTMemory &memory,
                        Ring &ring, Fault &fault, Counts &counts) {
#pragma HLS dataflow
    hls::stream<Fetch> wanted("wanted");
#pragma HLS stream variable=wanted depth=512
    hls::stream<Lookup> lookups("lookups");
#pragma HLS stream variable=lookups depth=512
    hls::stream<PoolToken> tokens("tokens");
#pragma HLS stream variable=tokens depth=1024
    hls::stream<Beat> values("values");
#pragma HLS stream variable=values depth=1024
    hls::stream<Beat> tt_vectors("tt_vectors");
#pragma HLS stream variable=tt_vectors depth=1024
    hls::stream<Beat> vectors("vectors");
#pragma HLS stream variable=vectors depth=512
    hls::stream<bool> follows("follows");
#pragma HLS stream variable=follows depth=512
    issue(inputs, result, job.item, buffers, job.loaded, job.tt_rows, ring, wanted, lookups, tokens, fault, counts);
    fetch_rows(rows, ring_memory, job.item, buffers.ring_beats, wanted, values);
    tt_unit(lookups, tt_vectors, memory, job.item.tt_table, job.item.row_beats);
    vector_pooling_unit(tokens, values, tt_vectors, vectors, follows, job.pool);
    store_vectors(outputs, job.item, vectors, follows);
}

inline Fault bags(const Beat *inputs, Beat *outputs, const Beat *rows, const Beat *ring_memory,
                  const volatile Beat *result, const Instruction &item, const Buffers &buffers, TTMemory &memory,
                  const Tables &tables, Ring &ring, Counts &counts) {
    BagsJob job;
    job.item = item;
    job.pool.maximum = item.mode == HOTRAIL_EMB_MODE_MAX;
    job.pool.row_beats = item.row_beats;
    job.pool.format = item.format;
    job.loaded = tt_is_loaded(tables, item.tt_table);
    const uint32_t known = memory.table[item.tt_table & (TT_TABLES - 1)].split_rows;
    job.tt_rows = job.loaded ? smaller(item.tt_rows, known) : item.tt_rows;
    Fault fault;
    bags_region(inputs, outputs, rows, ring_memory, result, job, buffers, memory, ring, fault, counts);
    return fault;
}

// -- LOAD and FILL.

inline Fault load(const Beat *inputs, const Instruction &item, const Buffers &buffers, TTMemory &memory,
                  Tables &tables) {
    const uint32_t HEADERS = 16, BLOCKS = HEADERS / WORDS, GROUP_BEATS = BLOCKS + HEADERS;
    const uint32_t depth[3] = {TT_X_LINES, TT_Y_LINES, TT_TABLES};
    if (!inside(buffers.inputs_beats, item.indices, item.count + (uint64_t(item.count) + 15) / HEADERS * BLOCKS))
        return fault_of(HOTRAIL_EMB_CODE_BOUNDS, IN_INPUTS);
LOAD:
    for (uint32_t at = 0; at < item.count; at++) {
#pragma HLS loop_tripcount min=1 max=65536
        const uint32_t group = item.indices + at / HEADERS * GROUP_BEATS, k = at % HEADERS;
        const Word header = inputs[group + k / WORDS].word[k % WORDS];
        const int target = header >> 16 & 3;
        const bool block = header >> 22 & 1, table = target == 2;
        if (header >> 23 || target > 2 || (block && (!TT_GROUPED || table)) || (TT_BLOCK16_ONLY && !block && !table)
            || (header & 0xFFFF) >= depth[table ? 2 : target & 1] << block) {
            for (int number = 0; number < TT_TABLES; number++) tables.loaded[number] = false;
            return fault_of(HOTRAIL_EMB_CODE_BAD_INSTRUCTION, header, 0, at);
        }
        tt_load(memory, header, inputs[group + BLOCKS + k]);
        if (table && (header >> 18 & 3) == 3) tables.loaded[header & (TT_TABLES - 1)] = true;
    }
    return no_fault();
}

inline Fault fill(const Beat *inputs, Beat *rows, const Beat *ring_memory, const volatile Beat *result,
                  const Instruction &item, const Buffers &buffers, Ring &ring) {
    Held pairs = none_held();
    const Stripes stripes = stripes_of(item);
FILL:
    for (uint32_t at = 0; at < item.count; at++) {
#pragma HLS loop_tripcount min=1 max=4096
        const uint32_t position = word_at(inputs, item.indices, 2 * at, pairs);
        const uint32_t row = word_at(inputs, item.indices, 2 * at + 1, pairs);
        if (!in_ring(item, buffers, position, stripes.row_beats))
            return fault_of(HOTRAIL_EMB_CODE_INDEX_RANGE, position, at, 2 * at);
        if (row >= item.dram_rows) return fault_of(HOTRAIL_EMB_CODE_INDEX_RANGE, row, at, 2 * at + 1);
        const Fault fault = wait_for_row(result, buffers, ring, position, stripes.row_beats);
        if (fault.code) return fault;
    COPY:
        for (int j = 0; j < stripes.row_beats; j++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=64
            rows[item.dram_base + stripes.place(row, j)] = ring_memory[(position & (buffers.ring_beats - 1)) + j];
        }
    }
    return no_fault();
}

// -- A run.

struct Result {
    Word word[HOTRAIL_RESULT_WORDS];
};

inline void put(Result &block, int offset, uint64_t value, bool wide) {
    block.word[offset / 4] = Word(value);
    if (wide) block.word[offset / 4 + 1] = Word(value >> 32);
}

inline void count(Result &block, int offset, uint64_t more) {
    const int at = offset / 4;
    put(block, offset, (block.word[at] | uint64_t(block.word[at + 1]) << 32) + more, true);
}

inline void count_bags(Result &block, const Instruction &item, const Counts &counts) {
    const uint64_t stored = uint64_t(stored_beats(item.row_beats, item.row_format)) * WORDS * 4;
    count(block, HOTRAIL_EMB_RESULT_BAGS, item.count);
    count(block, HOTRAIL_EMB_RESULT_INDICES, item.indices_count);
    count(block, HOTRAIL_EMB_RESULT_DRAM_ROWS, counts.dram);
    count(block, HOTRAIL_EMB_RESULT_DRAM_BYTES, counts.dram * stored);
    count(block, HOTRAIL_EMB_RESULT_TT_ROWS, counts.tt);
    count(block, HOTRAIL_EMB_RESULT_TT_BYTES, counts.tt * uint64_t(item.row_beats) * WORDS * 4);
    count(block, HOTRAIL_EMB_RESULT_SSD_ROWS, counts.ssd);
    count(block, HOTRAIL_EMB_RESULT_SSD_BYTES, counts.ssd * stored);
}

inline void count_fill(Result &block, const Instruction &item) {
    count(block, HOTRAIL_EMB_RESULT_CACHE_FILLS, item.count);
    count(block, HOTRAIL_EMB_RESULT_SSD_ROWS, item.count);
    count(block, HOTRAIL_EMB_RESULT_SSD_BYTES,
          item.count * uint64_t(stored_beats(item.row_beats, item.row_format)) * WORDS * 4);
}

// Writes words of the block from a beat on.
inline void write_result(Beat *result, const Result &block, int first, int words) {
WRITE_RESULT:
    for (int beat = first / WORDS; beat < ceil_div(first + words, WORDS); beat++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=48
        Beat out;
        for (int w = 0; w < WORDS; w++) out.word[w] = block.word[beat * WORDS + w];
        result[beat] = out;
    }
}

// All that a run does. memory, tables: what stays in the kernel from run to run.
inline void emb_run(const Beat *program, uint32_t program_count, const Beat *inputs, Beat *outputs, Beat *rows,
                    const Beat *ring_memory, Beat *result, const Buffers &buffers, TTMemory &memory, Tables &tables) {
    Result block;
    for (int w = 0; w < HOTRAIL_RESULT_WORDS; w++) block.word[w] = 0;
    Ring ring = {result_word(result, HOTRAIL_EMB_RESULT_RELEASED) & POSITION_MASK,
                 result_word(result, HOTRAIL_EMB_RESULT_FILLED) & POSITION_MASK};
    put(block, HOTRAIL_EMB_RESULT_RELEASED, ring.released, false);
PROGRAM:
    for (uint32_t number = 0; number < program_count; number++) {
#pragma HLS loop_tripcount min=1 max=1024
        Word word[HOTRAIL_EMB_INSTRUCTION_WORDS];
        for (int w = 0; w < HOTRAIL_EMB_INSTRUCTION_WORDS; w++) {
            const uint64_t at = uint64_t(number) * HOTRAIL_EMB_INSTRUCTION_WORDS + w;
            word[w] = program[at / WORDS].word[at % WORDS];
        }
        const Instruction item = decode_instruction(word);
        Fault fault = no_fault();
        Counts counts = {0, 0, 0};
        if (!allowed(item, buffers, memory, tables)) fault = fault_of(HOTRAIL_EMB_CODE_BAD_INSTRUCTION, word[0]);
        else if (item.opcode == HOTRAIL_EMB_LOAD) fault = load(inputs, item, buffers, memory, tables);
        else fault = check_bounds(item, buffers);
        if (!fault.code && item.opcode == HOTRAIL_EMB_BAGS) {
            fault = bags(inputs, outputs, rows, ring_memory, result, item, buffers, memory, tables, ring, counts);
            if (!fault.code) count_bags(block, item, counts);
        } else if (!fault.code && item.opcode == HOTRAIL_EMB_FILL) {
            fault = fill(inputs, rows, ring_memory, result, item, buffers, ring);
            if (!fault.code) count_fill(block, item);
        }
        if (fault.code) {
            put(block, HOTRAIL_EMB_RESULT_CODE, fault.code, false);
            put(block, HOTRAIL_EMB_RESULT_INSTRUCTION, number, false);
            put(block, HOTRAIL_EMB_RESULT_BAG, fault.bag, false);
            put(block, HOTRAIL_EMB_RESULT_INDEX, fault.index, false);
            put(block, HOTRAIL_EMB_RESULT_DETAIL, fault.detail, false);
            put(block, HOTRAIL_EMB_RESULT_STATE, HOTRAIL_EMB_STATE_RUNNING, false);
            break;
        }
        count(block, HOTRAIL_EMB_RESULT_INSTRUCTIONS, 1);
        // A position before what was released releases nothing.
        if (((item.release - ring.released) & POSITION_MASK) <= POSITION_MASK / 2) ring.released = item.release;
        put(block, HOTRAIL_EMB_RESULT_RELEASED, ring.released, false);
        put(block, HOTRAIL_EMB_RESULT_INSTRUCTIONS_DONE, number + 1, false);
        write_result(result, block, HOTRAIL_EMB_RESULT_RELEASED / 4, WORDS);
    }
    write_result(result, block, 0, HOTRAIL_FINAL_WORDS);
}

}  // namespace hotrail

#endif
