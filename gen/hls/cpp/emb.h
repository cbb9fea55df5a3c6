// The EMB kernel: carries out programs of LOAD, BAGS and FILL, as hw/isa describes them and golden.emb.core does.
//
// A program that is not allowed ends the run with the RTL's code; nothing outside of the buffers is read or written.
// Instructions follow one another without overlap.
#pragma once

#include "emb_bags.h"

namespace hotrail {

// -- LOAD and FILL.

// A load image's signature, one beat further (golden.emb.signature).
inline Word signature_after(Word before, const Beat &beat) {
    Word next = before << 1 ^ (before >> 31 ? EMB_POLYNOMIAL : 0);
    for (int k = 0; k < WORDS; k++) {
#pragma HLS unroll
        const int by = 2 * k % 32;
        next ^= by ? beat.word[k] << by | beat.word[k] >> (32 - by) : beat.word[k];
    }
    return next;
}

inline Fault load(const Beat *inputs, const Instruction &item, const Buffers &buffers, TTMemory &memory,
                  Tables &tables) {
    const uint32_t BLOCKS = LOAD_HEADERS / WORDS, depth[] = {TT_X_LINES, TT_Y_LINES, TT_TABLES};
    const uint64_t groups = (item.count + LOAD_HEADERS - 1ull) / LOAD_HEADERS;
    if (!inside(buffers.inputs_beats, item.indices, item.count + groups * BLOCKS))
        return fault_of(HOTRAIL_EMB_CODE_BOUNDS, IN_INPUTS);
    Word signature = 0;
LOAD:
    for (uint32_t at = 0; at < item.count; at++) {
#pragma HLS loop_tripcount min=1 max=65536
        const uint32_t group = item.indices + at / LOAD_HEADERS * (BLOCKS + LOAD_HEADERS), k = at % LOAD_HEADERS;
        const Word word = inputs[group + k / WORDS].word[k % WORDS];
        const LoadHeader to = load_header(word);
        if (k == 0)
            for (int block = 0; block < int(BLOCKS); block++) signature = signature_after(signature, inputs[group + block]);
        const bool table = to.target == TARGET_TABLE;
        if (to.above || to.target > TARGET_TABLE || (to.block && (!TT_GROUPED || table))
            || (TT_BLOCK16_ONLY && !to.block && !table) || to.address >= depth[to.target] << to.block) {
            for (int number = 0; number < TT_TABLES; number++) tables.loaded[number] = false;
            return fault_of(HOTRAIL_EMB_CODE_BAD_INSTRUCTION, word, 0, at);
        }
        const Beat beat = inputs[group + BLOCKS + k];
        signature = signature_after(signature, beat);
        tt_load(memory, to, beat);
        if (table && to.part == LAST_PART) tables.loaded[to.address & (TT_TABLES - 1)] = true;
    }
    if (signature != item.signature) {
        for (int number = 0; number < TT_TABLES; number++) tables.loaded[number] = false;
        return fault_of(HOTRAIL_EMB_CODE_SIGNATURE, signature);
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
        if (!in_ring(item, buffers, ring.released, position, stripes.row_beats))
            return fault_of(HOTRAIL_EMB_CODE_INDEX_RANGE, position, at, 2 * at);
        if (row >= item.dram_rows || row > POSITION_MASK)
            return fault_of(HOTRAIL_EMB_CODE_INDEX_RANGE, row, at, 2 * at + 1);
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

inline void put(Result &block, int offset, Word value) { block.word[offset / 4] = value; }

inline void count(Result &block, int offset, uint64_t more) {
    const uint64_t sum = (block.word[offset / 4] | uint64_t(block.word[offset / 4 + 1]) << 32) + more;
    put(block, offset, Word(sum));
    put(block, offset + 4, Word(sum >> 32));
}

// Rows of a tier, `bytes` each.
inline void count_rows(Result &block, int rows, int bytes_of, uint64_t number, uint64_t bytes) {
    count(block, rows, number);
    count(block, bytes_of, number * bytes);
}

inline void count_done(Result &block, const Instruction &item, const Counts &counts) {
    const uint64_t beat = WORDS * 4, stored = stored_beats(item.row_beats, item.row_format) * beat;
    const bool fill = item.opcode == HOTRAIL_EMB_FILL;
    count(block, HOTRAIL_EMB_RESULT_INSTRUCTIONS, 1);
    if (item.opcode == HOTRAIL_EMB_LOAD) return;
    count(block, fill ? HOTRAIL_EMB_RESULT_CACHE_FILLS : HOTRAIL_EMB_RESULT_BAGS, item.count);
    count(block, HOTRAIL_EMB_RESULT_INDICES, item.indices_count);
    count_rows(block, HOTRAIL_EMB_RESULT_DRAM_ROWS, HOTRAIL_EMB_RESULT_DRAM_BYTES, counts.dram, stored);
    count_rows(block, HOTRAIL_EMB_RESULT_TT_ROWS, HOTRAIL_EMB_RESULT_TT_BYTES, counts.tt, item.row_beats * beat);
    count_rows(block, HOTRAIL_EMB_RESULT_SSD_ROWS, HOTRAIL_EMB_RESULT_SSD_BYTES, fill ? item.count : counts.ssd, stored);
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
    Result block = {{0}};
    Ring ring = {result_word(result, HOTRAIL_EMB_RESULT_RELEASED) & POSITION_MASK,
                 result_word(result, HOTRAIL_EMB_RESULT_FILLED) & POSITION_MASK};
    put(block, HOTRAIL_EMB_RESULT_RELEASED, ring.released);
PROGRAM:
    for (uint32_t number = 0; number < program_count; number++) {
#pragma HLS loop_tripcount min=1 max=1024
        const int BEATS = HOTRAIL_EMB_INSTRUCTION_WORDS / WORDS;
        Word word[HOTRAIL_EMB_INSTRUCTION_WORDS];
        for (int b = 0; b < BEATS; b++) {
            const Beat beat = program[uint64_t(number) * BEATS + b];
            for (int w = 0; w < WORDS; w++) word[b * WORDS + w] = beat.word[w];
        }
        const Instruction item = decode_instruction(word);
        Fault fault = no_fault();
        Counts counts = {0, 0, 0};
        if (!allowed(item, buffers, memory, tables)) fault = fault_of(HOTRAIL_EMB_CODE_BAD_INSTRUCTION, word[0]);
        else if (item.opcode == HOTRAIL_EMB_LOAD) fault = load(inputs, item, buffers, memory, tables);
        else fault = check_bounds(item, buffers);
        if (!fault.code && item.opcode == HOTRAIL_EMB_BAGS) {
            fault = bags(inputs, outputs, rows, ring_memory, result, item, buffers, memory, tables, ring, counts);
        } else if (!fault.code && item.opcode == HOTRAIL_EMB_FILL) {
            fault = fill(inputs, rows, ring_memory, result, item, buffers, ring);
        }
        if (fault.code) {
            put(block, HOTRAIL_EMB_RESULT_CODE, fault.code);
            put(block, HOTRAIL_EMB_RESULT_INSTRUCTION, number);
            put(block, HOTRAIL_EMB_RESULT_BAG, fault.bag);
            put(block, HOTRAIL_EMB_RESULT_INDEX, fault.index);
            put(block, HOTRAIL_EMB_RESULT_DETAIL, fault.detail);
            put(block, HOTRAIL_EMB_RESULT_STATE, HOTRAIL_EMB_STATE_RUNNING);
            break;
        }
        count_done(block, item, counts);
        // A position before what was released releases nothing.
        if (((item.release - ring.released) & POSITION_MASK) <= POSITION_MASK / 2) ring.released = item.release;
        put(block, HOTRAIL_EMB_RESULT_RELEASED, ring.released);
        put(block, HOTRAIL_EMB_RESULT_INSTRUCTIONS_DONE, number + 1);
        write_result(result, block, HOTRAIL_EMB_RESULT_RELEASED / 4, WORDS);
    }
    write_result(result, block, 0, HOTRAIL_FINAL_WORDS);
}

}  // namespace hotrail
