// Descriptors and cores of any bits, as a LOAD may bring them: what the unit says of them is not defined, where it
// reads and writes is, under sanitizers. Loops are kept short. The argument: a seed.
#include <cstdio>
#include <cstdlib>

#include "tt.h"

using namespace hotrail;

int main(int, char **arguments) {
    static TTMemory tt_memory;
    uint32_t seed = std::atoi(arguments[1]);
    const int TIMES = 200;
    auto draw = [&seed]() { return (seed = seed * 1664525u + 1013904223u) >> 8; };
    auto drawn_beat = [&draw]() {
        Beat beat;
        for (Word &word : beat.word) word = draw() ^ draw() << 16;
        return beat;
    };
    for (int time = 0; time < TIMES; time++) {
        const Word table = draw() % TT_TABLES;
        for (Word part = 0; part < 4; part++) tt_load(tt_memory, {table, TARGET_TABLE, part, 0, 0, 0}, drawn_beat());
        for (int k = 0; k < 8; k++) {
            const Word y = draw() & 1, block = TT_GROUPED && (draw() & 1);
            const Word line = draw() % ((y ? TT_Y_LINES : TT_X_LINES) << block) & 0xFFFF;
            tt_load(tt_memory, {line, y ? TARGET_Y : TARGET_X, draw() & 3, 0, block, 0}, drawn_beat());
        }
        Descriptor &d = tt_memory.table[table];
        for (uint32_t *count : {&d.products_first_tiles, &d.products_middle_tiles, &d.last_tiles}) *count &= 7;
        for (uint32_t *count : {&d.products_first_lines, &d.products_middle_lines, &d.last_lines}) *count &= 3;
        hls::stream<Lookup> lookups;
        hls::stream<Beat> o;
        const int rows = 1 + draw() % 8, beats = 1 + draw() % EMB_ROW_BEATS_MAX;
        for (int k = 0; k <= rows; k++) lookups.write({Word(draw() ^ draw() << 16), k == rows - 1, k == rows});
        tt_unit(lookups, o, tt_memory, {int(table), beats});
        if (int(o.size()) != beats) return 1;
    }
    std::printf("hostile: %d cases\n", TIMES);
    return 0;
}
