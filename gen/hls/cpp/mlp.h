// The MLP systolic array: y = activation(x w + addend), tile after tile.
//
// Output-stationary: cell (r, c) keeps the sum of row r and column c; operands of rows enter on the left, those of
// columns at the top, a cycle later for every cell that they pass, and move on by one cell a cycle. A dot product is
// rounded once, its sum with the addend once more.
//
// Timing  a tile of `steps` beats takes steps + ROWS + COLUMNS - 2 iterations and ROWS for its results. The initiation
//         interval is 1 where a compare, a shift and an adder, the loop of a sum, fit a cycle, and 2 to 4 at 250 MHz.
//         The RTL's array takes a beat per cycle and has no gap between tiles.
// Source  SCRec Fig. 7b. Golden: golden.systolic.array.tiles, golden.fp.fp32.add, maximum, sigmoid
#pragma once

#include "groups.h"
#include "sigmoid.h"

namespace hotrail {

const int ROWS = MLP_ROWS, COLUMNS = 2 * MLP_ROWS, TERMS = MLP_WIDTH;

// A cell's operand of a beat: TERMS numbers, which share an exponent where the kind is grouped.
typedef OperandOf<MLP_GROUPED, TERMS>::type CellOperand;

struct RowsBeat {
    Word word[ROWS][TERMS];
};

struct ColumnsBeat {
    Word word[COLUMNS][TERMS];
};

struct ResultRow {
    Word word[COLUMNS];
};

struct MlpTile {
    int steps, activation;
    bool adds, stop;
    ResultRow addend;
};

inline CellOperand cell_operand(const Word word[TERMS]) { return operand_of<CellOperand>(word, false); }

inline CellOperand no_operand() {
    const Word zero[TERMS] = {0};
    return cell_operand(zero);
}

// 1 / (1 + e^-x): e^-|x| = 2^-(n + f), 2^-f by 512 parabolas, then one division.
inline Word sigmoid(Word word) {
    const Number number = unpack(word);
    if (number.nan) return NAN_WORD;
    const int right = 133 - int(number.exponent);
    const uint64_t mantissa = right >= 64 ? 0 : uint64_t(number.mantissa);
    // |x| log2(e), four bits of the mantissa after the other.
    uint64_t product = 0;
    for (int place = 0; place < 24; place += 4) {
        product = (product + (mantissa >> place & 15) * SIGMOID_LOG2_E) >> 4;
    }
    const int64_t shifted = int64_t((product >> 3) >> (right < 0 ? 0 : right > 63 ? 63 : right));
    const int64_t n = right < 0 ? 255 : shifted >> SIGMOID_FRACTION_BITS;
    const int within = SIGMOID_FRACTION_BITS - SIGMOID_STRETCH_LOG2;
    const int stretch = int(shifted >> within) & ((1 << SIGMOID_STRETCH_LOG2) - 1);
    const int64_t step = (shifted & ((1 << within) - 1)) - (1 << (within - 1));
    const int64_t tangent = SIGMOID_SLOPE[stretch]
        - ((SIGMOID_BEND[stretch] * step) >> (SIGMOID_FRACTION_BITS + SIGMOID_BEND_BITS - SIGMOID_SLOPE_BITS));
    const int64_t power = SIGMOID_BASE[stretch]
        - ((tangent * step) >> (SIGMOID_FRACTION_BITS + SIGMOID_SLOPE_BITS - SIGMOID_POWER_BITS));
    const int64_t one = int64_t(1) << SIGMOID_POWER_BITS, divisor = one + (power >> reach(int(n)));
    const int64_t quotient = smaller(((number.sign ? power : one) << 26) / divisor, (int64_t(1) << 26) - 1);
    const int upper = int(quotient >> 25), places = 1 + upper;
    const int64_t found = ((125 - (number.sign ? n : 0) + upper) * (int64_t(1) << 23))
        + ((quotient >> places) & 0x7FFFFF) + ((quotient >> (places - 1)) & 1);
    return found < (int64_t(1) << 23) ? 0 : Word(found);
}

inline Word activated(Word word, int activation) {
    return activation == ACTIVATION_RELU ? maximum(word, 0) : activation == ACTIVATION_SIGMOID ? sigmoid(word) : word;
}

// One tile: `steps` beats of rows and columns in, ROWS rows of results out.
inline void systolic_tile(hls::stream<RowsBeat> &x, hls::stream<ColumnsBeat> &y, hls::stream<ResultRow> &o,
                          const MlpTile &tile) {
    Sum sum[ROWS][COLUMNS];
    CellOperand x_reg[ROWS][COLUMNS], y_reg[ROWS][COLUMNS];     // what each cell took, for its neighbour
    CellOperand x_skew[ROWS][ROWS], y_skew[COLUMNS][COLUMNS];   // row r waits r cycles, column c waits c
#pragma HLS array_partition variable=sum complete dim=0
#pragma HLS aggregate variable=x_reg
#pragma HLS aggregate variable=y_reg
#pragma HLS aggregate variable=x_skew
#pragma HLS aggregate variable=y_skew
#pragma HLS array_partition variable=x_reg complete dim=0
#pragma HLS array_partition variable=y_reg complete dim=0
#pragma HLS array_partition variable=x_skew complete dim=0
#pragma HLS array_partition variable=y_skew complete dim=0
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) {
#pragma HLS unroll
            sum[r][c] = empty_sum();
            x_reg[r][c] = y_reg[r][c] = no_operand();
            if (c < ROWS) x_skew[r][c] = no_operand();
        }
    }
    for (int c = 0; c < COLUMNS; c++)
        for (int k = 0; k < COLUMNS; k++) y_skew[c][k] = no_operand();
BEATS:
    for (int t = 0; t < tile.steps + ROWS + COLUMNS - 2; t++) {
#pragma HLS pipeline II=1
#pragma HLS loop_tripcount min=1 max=4096
        RowsBeat rows;
        ColumnsBeat columns;
        const bool enters = t < tile.steps;
        if (enters) {
            rows = x.read();
            columns = y.read();
        }
        for (int r = 0; r < ROWS; r++) {
            for (int k = r; k > 0; k--) x_skew[r][k] = x_skew[r][k - 1];
            x_skew[r][0] = enters ? cell_operand(rows.word[r]) : no_operand();
        }
        for (int c = 0; c < COLUMNS; c++) {
            for (int k = c; k > 0; k--) y_skew[c][k] = y_skew[c][k - 1];
            y_skew[c][0] = enters ? cell_operand(columns.word[c]) : no_operand();
        }
        // From the last cell back, so that each takes what its neighbour had a cycle ago.
        for (int r = ROWS - 1; r >= 0; r--) {
            for (int c = COLUMNS - 1; c >= 0; c--) {
                x_reg[r][c] = c == 0 ? x_skew[r][r] : x_reg[r][c - 1];
                y_reg[r][c] = r == 0 ? y_skew[c][c] : y_reg[r - 1][c];
                accumulate(sum[r][c], x_reg[r][c], y_reg[r][c]);
            }
        }
    }
RESULTS:
    for (int r = 0; r < ROWS; r++) {
#pragma HLS pipeline II=1
        ResultRow row;
        for (int c = 0; c < COLUMNS; c++) {
            const Word dot = round_sum(sum[r][c], MLP_GROUPED ? UNIT_GROUPED : UNIT_SINGLE);
            row.word[c] = activated(tile.adds ? add(dot, tile.addend.word[c]) : dot, tile.activation);
        }
        o.write(row);
    }
}

// Tiles until one says stop.
inline void mlp_unit(hls::stream<MlpTile> &tiles, hls::stream<RowsBeat> &x, hls::stream<ColumnsBeat> &y,
                     hls::stream<ResultRow> &o) {
TILES:
    for (MlpTile tile = tiles.read(); !tile.stop; tile = tiles.read()) {
#pragma HLS loop_tripcount min=1 max=4096
        systolic_tile(x, y, o, tile);
    }
}

}  // namespace hotrail
