/* nbits_rows.cu - few rows times packed weights: bound by the reading of the weights. A group of
 * lanes takes K_NBITS_COLUMNS columns, whose weights lie in a row each, and K_NBITS_ROWS rows at a
 * time; sums are in float.
 *
 * A weight q of b bits becomes the float 1 + q / 2^b by being put into the first places of its
 * mantissa, which costs a shift and no conversion; the sum of x, times 1 + zero / 2^b, is taken off
 * once for each piece. Weights that are codes are looked up.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/row_lanes.h"
#include "kernel/quantize/nbits.h"

enum { PIECE = K_NBITS_PIECE, COLUMNS = K_NBITS_COLUMNS, ROWS = K_NBITS_ROWS, GROUP = 32 };

/* Elements [k, k + PIECE) of `rows` rows of A, as far as there are so many; 0 for what is beyond.
 */
K_FN void load_rows(const mp_nbits_args *args, int64_t row, int rows, int64_t k,
                    float (*x)[PIECE]) {
    const int64_t left = args->w.k - k;
    K_UNROLL for (int r = 0; r < rows; r++) {
        const T *from = (const T *)args->a + (row + r < args->m ? row + r : row) * args->w.k + k;
        w_piece piece;
        if (args->w.aligned) {
            piece = *(const w_piece *)(const void *)from;
        } else {
            K_UNROLL for (int i = 0; i < PIECE; i++) {
                piece.at[i] = from[i < left ? i : 0];
            }
        }
        K_UNROLL for (int i = 0; i < PIECE; i++) {
            x[r][i] = i < left ? T_load(piece.at[i]) : 0;
        }
    }
}

K_FN float one_and(uint64_t packed, int i, int bits) {
    const uint32_t word = (uint32_t)(i * bits < 32 ? packed : packed >> 32);
    const int shift = 23 - bits - i * bits % 32;
    const uint32_t moved = shift >= 0 ? word << (shift & 31) : word >> (-shift & 31);
    return k_float_of_bits(0x3f800000u | (moved & ((1u << bits) - 1) << (23 - bits)));
}

/* This lane's part of the products of `rows` rows with the columns from `column` on. `rows` and
 * `bits` are constants where this is called. */
K_FN void multiply(const mp_nbits_args *args, const k_round *t, int64_t row, int64_t column,
                   int rows, int bits, float (*sum)[ROWS]) {
    const k_nbits *w = &args->w;
    const float *values = (const float *)w->values;
    const float steps = (float)(1 << bits);
    for (int64_t k = (int64_t)t->lane * PIECE; k < w->k; k += (int64_t)t->width * PIECE) {
        uint64_t packed[COLUMNS];
        w_block block[COLUMNS];
        float x[ROWS][PIECE];
        float all[ROWS];
        K_UNROLL for (int c = 0; c < COLUMNS; c++) {
            const int64_t at = column + c < w->n ? column + c : w->n - 1;
            packed[c] = w_packed(w, at, k);
            block[c] = w_common(w, 0, at, w_block_of(w, k));
        }
        load_rows(args, row, rows, k, x);
        K_UNROLL for (int r = 0; r < rows; r++) {
            all[r] = 0;
            K_UNROLL for (int i = 0; i < PIECE; i++) {
                all[r] += x[r][i];
            }
        }
        K_UNROLL for (int c = 0; c < COLUMNS; c++) {
            const float zero = 1.0f + block[c].zero / steps;
            float part[ROWS] = {0};
            K_UNROLL for (int i = 0; i < PIECE; i++) {
                const float weight =
                    CODED ? values[w_bits(packed[c], i, bits)] : one_and(packed[c], i, bits);
                K_UNROLL for (int r = 0; r < rows; r++) {
                    part[r] += x[r][i] * weight;
                }
            }
            K_UNROLL for (int r = 0; r < rows; r++) {
                sum[c][r] += CODED ? part[r] * block[c].scale
                                   : (part[r] - all[r] * zero) * (block[c].scale * steps);
            }
        }
    }
}

K_FN void multiply_rows(const mp_nbits_args *args, const k_round *t, int64_t row, int64_t column,
                        int rows, float (*sum)[ROWS]) {
    switch (args->w.bits) {
    case 2:
        multiply(args, t, row, column, rows, 2, sum);
        break;
    case 4:
        multiply(args, t, row, column, rows, 4, sum);
        break;
    default:
        multiply(args, t, row, column, rows, 8, sum);
        break;
    }
}

K_BLOCK_KERNEL(mp_nbits_args, args) {
    T *out = (T *)args.out;
    const k_round t = k_rounds(GROUP);
    const int64_t pairs = (args.w.n + COLUMNS - 1) / COLUMNS;
    for (int64_t first = t.first; first < pairs; first += t.step) {
        const int64_t column = (first + t.group) * COLUMNS;
        for (int64_t row = 0; row < args.m; row += ROWS) {
            float sum[COLUMNS][ROWS] = {{0}};
            if (column < args.w.n && row + 1 == args.m) {
                multiply_rows(&args, &t, row, column, 1, sum);
            } else if (column < args.w.n) {
                multiply_rows(&args, &t, row, column, ROWS, sum);
            }
            for (int c = 0; c < COLUMNS; c++) {
                for (int r = 0; r < ROWS; r++) {
                    if (row + r >= args.m) { /* the same for all lanes */
                        break;
                    }
                    float total = (float)k_group_sum(sum[c][r], t.width);
                    if (t.lane == 0 && column + c < args.w.n) {
                        total += args.bias != 0 ? T_load(((const T *)args.bias)[column + c]) : 0;
                        out[(row + r) * args.w.n + column + c] = T_store(total);
                    }
                }
            }
        }
    }
}
