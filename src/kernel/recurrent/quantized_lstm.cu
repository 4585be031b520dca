/* quantized_lstm.cu - the steps of an LSTM whose recurrent weights have 8 bits, all in one launch
 * with a block for each direction: at every step the state of all entries is quantised by its own
 * range, then a few lanes share a unit and read its rows of the four gates as bytes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/lanes_sum.h"
#include "kernel/recurrent/quantized_lstm.h"
#include "kernel/recurrent/recurrent.h"

enum { ROWS = K_RECURRENT_ROWS, GATES = K_RECURRENT_GATES, WORDS = 4 };

typedef struct lstm_block {
    int64_t direction;
    float *h, *c;
    uint8_t *bytes;
} lstm_block;

/* Sums of a unit's gates for a few entries. */
typedef struct lstm_sums {
    int32_t products[GATES][ROWS], weights[GATES], bytes[ROWS];
} lstm_sums;

K_LANES_SUM(lstm_meet, int32_t)

/* The state's range, then its bytes. */
K_FN q_parameter lstm_quantize(const mp_quantized_lstm_args *args, const lstm_block *b) {
    const int64_t hidden = args->cell.hidden, count = args->cell.batch * hidden;
    float least = 0, most = 0;
    K_BLOCK_LOOP(i, count) {
        least = b->h[i] < least ? b->h[i] : least;
        most = b->h[i] > most ? b->h[i] : most;
    }
    least = k_block_min_f32(least);
    most = k_block_max_f32(most);
    const q_parameter p = q_parameter_of(least, most);
    K_BLOCK_LOOP(i, count) {
        b->bytes[i / hidden * args->pitch + i % hidden] = q_byte(b->h[i], p);
    }
    return p;
}

K_FN void lstm_products(const mp_quantized_lstm_args *args, const lstm_block *b, int64_t unit,
                        int64_t entry, int32_t rows, int32_t lane, int32_t lanes, lstm_sums *sum) {
    const int64_t hidden = args->cell.hidden;
    const uint8_t *r =
        (const uint8_t *)args->r.weight + (b->direction * GATES * hidden + unit) * hidden;
    for (int64_t k = (int64_t)lane * WORDS * 4; k < hidden; k += (int64_t)lanes * WORDS * 4) {
        uint32_t bytes[ROWS][WORDS];
        K_UNROLL for (int32_t row = 0; row < ROWS; row++) {
            K_UNROLL for (int32_t n = 0; n < WORDS; n++) {
                bytes[row][n] = 0;
                if (row < rows) { /* the pitch is a multiple of 16 and ends in zeros */
                    bytes[row][n] =
                        *(const uint32_t *)(const void *)(b->bytes + (entry + row) * args->pitch +
                                                          k + n * 4);
                    sum->bytes[row] = q_sum_unsigned(bytes[row][n], sum->bytes[row]);
                }
            }
        }
        K_UNROLL for (int32_t g = 0; g < GATES; g++) {
            K_UNROLL for (int32_t n = 0; n < WORDS; n++) {
                const uint32_t w =
                    q_weights(&args->r, r + g * hidden * hidden, k + n * 4, args->wide);
                sum->weights[g] = q_sum_signed(w, sum->weights[g]);
                K_UNROLL for (int32_t row = 0; row < ROWS; row++) {
                    sum->products[g][row] = q_products(bytes[row][n], w, sum->products[g][row]);
                }
            }
        }
    }
    K_UNROLL for (int32_t row = 0; row < ROWS; row++) {
        sum->bytes[row] = lstm_meet(sum->bytes[row], lanes);
    }
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        sum->weights[g] = lstm_meet(sum->weights[g], lanes);
        K_UNROLL for (int32_t row = 0; row < ROWS; row++) {
            sum->products[g][row] = lstm_meet(sum->products[g][row], lanes);
        }
    }
}

/* One unit of one entry. Nobody else reads its h now: products are made of the bytes. */
K_FN void lstm_unit(const mp_quantized_lstm_args *args, const lstm_block *b, const c_unit *at,
                    q_parameter p, const lstm_sums *sum, int32_t row) {
    const k_cell *cell = &args->cell;
    const int64_t place = at->entry * cell->hidden + at->unit;
    if (!at->ended) {
        TA gates[GATES];
        K_UNROLL for (int32_t g = 0; g < GATES; g++) {
            gates[g] = c_projected(cell, at, g) + c_bias(cell, at, 0, g) + c_bias(cell, at, 1, g) +
                       q_value(&args->r, at->direction, g * cell->hidden + at->unit, p,
                               sum->products[g][row], sum->bytes[row], sum->weights[g]);
        }
        TA c = b->c[place];
        b->h[place] = c_lstm(cell, at, gates, &c);
        b->c[place] = c;
    }
    c_write_y(cell, at, b->h[place]);
}

K_FN void lstm_step(const mp_quantized_lstm_args *args, const lstm_block *b, int64_t step,
                    q_parameter p) {
    const k_cell *cell = &args->cell;
    const int32_t lanes = K_HOST ? 1 : args->lanes;
    const int32_t lane = (int32_t)threadIdx.x % lanes, group = (int32_t)threadIdx.x / lanes;
    const int32_t groups = (int32_t)blockDim.x / lanes;
    for (int64_t entry = 0; entry < cell->batch; entry += ROWS) {
        const int32_t rows = (int32_t)(cell->batch - entry < ROWS ? cell->batch - entry : ROWS);
        for (int64_t base = 0; base < cell->hidden; base += groups) {
            const int32_t idle = base + group >= cell->hidden;
            const int64_t unit = idle ? cell->hidden - 1 : base + group;
            lstm_sums sum = {{{0}}, {0}, {0}};
            lstm_products(args, b, unit, entry, rows, lane, lanes, &sum);
            K_UNROLL for (int32_t row = 0; row < ROWS; row++) {
                if (row < rows && row % lanes == lane && !idle) {
                    const c_unit at = c_place(cell, b->direction, entry + row, unit, step);
                    lstm_unit(args, b, &at, p, &sum, row);
                }
            }
        }
    }
}

K_FN void lstm_begin(const mp_quantized_lstm_args *args, const lstm_block *b) {
    const k_cell *cell = &args->cell;
    K_BLOCK_LOOP(i, cell->batch * cell->hidden) {
        const int64_t entry = i / cell->hidden, unit = i % cell->hidden;
        b->h[i] = c_first(cell, cell->h_first, b->direction, entry, unit);
        b->c[i] = c_first(cell, cell->c_first, b->direction, entry, unit);
    }
    K_BLOCK_LOOP(i, cell->batch * args->pitch) {
        b->bytes[i] = 0;
    }
}

K_FN void lstm_end(const mp_quantized_lstm_args *args, const lstm_block *b) {
    const k_cell *cell = &args->cell;
    K_BLOCK_LOOP(i, cell->batch * cell->hidden) {
        const c_unit at = c_place(cell, b->direction, i / cell->hidden, i % cell->hidden, 0);
        c_write_states(cell, &at, b->h[i], b->c[i]);
    }
}

K_BLOCK_KERNEL_UP_TO(K_RECURRENT_LANES, mp_quantized_lstm_args, args) {
    K_SHARED(uint8_t, shared);
    const k_cell *cell = &args.cell;
    for (int64_t d = blockIdx.x; d < cell->directions; d += gridDim.x) {
        lstm_block b;
        b.direction = d;
        b.h = (float *)args.h + d * cell->batch * cell->hidden;
        b.c = (float *)args.c + d * cell->batch * cell->hidden;
        b.bytes = args.bytes == 0 ? shared : (uint8_t *)args.bytes + d * cell->batch * args.pitch;
        lstm_begin(&args, &b);
        __syncthreads();
        for (int64_t step = 0; step < cell->steps; step++) {
            const q_parameter p = lstm_quantize(&args, &b);
            __syncthreads();
            lstm_step(&args, &b, step, p);
            __syncthreads();
        }
        lstm_end(&args, &b);
        __syncthreads();
    }
}
