/* recurrent_steps.cu - steps of LSTM, GRU and RNN with their products. A block keeps the states of
 * a few entries of a direction in shared memory; some lanes share a unit and read its rows of R,
 * all gates in one round; then each of the first few lanes has an entry, so that there is one copy
 * of what follows. One block does all steps in one launch where R is small; for a larger R many
 * blocks share the units and each launch is a step.
 *
 *     h      [2][rows][pitch]   before and after the step
 *     reset  [rows][pitch]      r (.) h, of a GRU that resets first
 *     c      [rows][pitch]      of an LSTM; z of a GRU
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/recurrent/recurrent.h"

enum {
    ROWS = K_RECURRENT_ROWS,
    GATES = K_RECURRENT_GATES,
    PIECE = K_RECURRENT_PIECE(sizeof(T)) /* of R, that a lane has at a time */
};

typedef union steps_pack {
    k_b128 raw[sizeof(T) * PIECE / 16];
    T item[PIECE];
} steps_pack;

typedef struct K_ALIGN(16) steps_piece {
    TA of[PIECE];
} steps_piece;

typedef struct steps_block {
    int64_t direction, entry_first, unit_first, unit_end;
    int32_t rows;
    int32_t pitch;
    TA *h, *h_next, *reset, *c;
} steps_block;

K_FN void steps_weights(const T *row, int64_t k, int64_t size, int32_t wide, TA *out) {
    if (wide) {
        steps_pack pack;
        const k_b128 *from = (const k_b128 *)(const void *)(row + k);
        K_UNROLL for (int32_t i = 0; i < (int32_t)(sizeof(T) * PIECE / 16); i++) {
            pack.raw[i] = from[i];
        }
        K_UNROLL for (int32_t e = 0; e < PIECE; e++) {
            out[e] = (TA)T_load(pack.item[e]);
        }
        return;
    }
    K_UNROLL for (int32_t e = 0; e < PIECE; e++) {
        out[e] = k + e < size ? (TA)T_load(row[k + e]) : 0;
    }
}

/* Adds this lane's share of R v for gates [gate, end) of a unit. Neighbouring lanes read
 * neighbouring pieces. */
K_FN void steps_products(const mp_recurrent_args *args, const steps_block *b, const TA *v,
                         int64_t unit, int32_t gate, int32_t end, int32_t lane, int32_t lanes,
                         TA (*sum)[ROWS]) {
    const int64_t hidden = args->cell.hidden;
    const T *r =
        (const T *)args->recurrence + (b->direction * args->cell.kind * hidden + unit) * hidden;
    for (int64_t k = (int64_t)lane * PIECE; k < hidden; k += (int64_t)lanes * PIECE) {
        K_UNROLL for (int32_t g = 0; g < GATES; g++) {
            if (g >= gate && g < end) {
                TA weight[PIECE];
                steps_weights(r + g * hidden * hidden, k, hidden, args->wide, weight);
                K_UNROLL for (int32_t row = 0; row < ROWS; row++) {
                    if (row < b->rows) {
                        const steps_piece piece =
                            *(const steps_piece *)(const void *)(v + row * b->pitch + k);
                        K_UNROLL for (int32_t e = 0; e < PIECE; e++) {
                            sum[g][row] += weight[e] * piece.of[e];
                        }
                    }
                }
            }
        }
    }
}

/* The sums over the lanes of a unit, of which there are at least ROWS: those of row lane % ROWS
 * come to sum[g][0]. Lanes give each other the rows that they do not go on with. */
#if !K_HOST
K_FN void steps_meet(TA (*sum)[ROWS], int32_t gate, int32_t end, int32_t lane, int32_t lanes) {
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        if (g >= gate && g < end) {
            K_UNROLL for (int32_t half = ROWS / 2; half > 0; half /= 2) {
                const int32_t upper = (lane & half) != 0;
                K_UNROLL for (int32_t i = 0; i < half; i++) {
                    const TA mine = upper ? sum[g][i + half] : sum[g][i];
                    const TA other = upper ? sum[g][i] : sum[g][i + half];
                    sum[g][i] = mine + __shfl_xor_sync(0xffffffffu, other, half);
                }
            }
            for (int32_t half = lanes / 2; half >= ROWS; half /= 2) {
                sum[g][0] += __shfl_xor_sync(0xffffffffu, sum[g][0], half);
            }
        }
    }
}
#endif

/* W x of a row's gates [gate, end), kept as it was loaded until it is needed. */
K_FN void steps_ask(const k_cell *cell, const c_unit *at, int32_t gate, int32_t end, T *x) {
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        if (g >= gate && g < end && !at->ended) {
            x[g] = c_stored(cell, at, g);
        } else if (K_HOST) { /* gcc does not see that it is not read */
            x[g] = T_store(0);
        }
    }
}

/* Adds all that is no product. Of a GRU that resets afterwards, the reset gate scales R h of the
 * hidden gate: what it does not scale is returned. */
K_FN TA steps_add(const k_cell *cell, const c_unit *at, int32_t gate, int32_t end, const T *x,
                  TA *sum) {
    TA apart = 0;
    K_UNROLL for (int32_t g = 0; g < GATES; g++) {
        if (g >= gate && g < end) {
            const TA w = (TA)T_load(x[g]) + c_bias(cell, at, 0, g);
            const int32_t scaled = cell->kind == K_CELL_GRU && cell->linear_before_reset && g == 2;
            sum[g] += c_bias(cell, at, 1, g) + (scaled ? (TA)0 : w);
            apart = scaled ? w : apart;
        }
    }
    return apart;
}

/* From the sums of all gates that are there: the new state, or what a GRU needs for its second
 * round. */
K_FN void steps_end(const mp_recurrent_args *args, const steps_block *b, const c_unit *at,
                    int32_t gate, int32_t end, int32_t row, const T *x, TA *sum) {
    const k_cell *cell = &args->cell;
    const int64_t place = (int64_t)row * b->pitch + at->unit;
    const int32_t is_first = cell->kind == K_CELL_GRU && end == 2; /* of two rounds */
    const TA before = b->h[place];
    TA h = before;
    if (!at->ended) {
        const TA apart = steps_add(cell, at, gate, end, x, sum);
        if (cell->kind == K_CELL_LSTM) {
            TA c = b->c[place];
            h = c_lstm(cell, at, sum, &c);
            b->c[place] = c;
        } else if (gate == 0) {
            c_gates(cell, at, sum);
            h = sum[0];
        }
        if (cell->kind == K_CELL_GRU && !is_first) {
            const TA update = gate == 2 ? b->c[place] : h;
            h = c_gru(cell, at, update, gate == 2 ? sum[2] : apart + sum[1] * sum[2], before);
        }
    }
    if (is_first) {
        b->c[place] = at->ended ? 0 : sum[0];
        b->reset[place] = at->ended ? 0 : before * sum[1];
        return;
    }
    b->h_next[place] = h;
    c_write_y(cell, at, h);
}

/* One round over the block's units. */
K_FN void steps_round(const mp_recurrent_args *args, const steps_block *b, const TA *v,
                      int64_t step, int32_t gate, int32_t end) {
    const k_cell *cell = &args->cell;
    const int32_t lanes = K_HOST ? 1 : args->lanes;
    const int32_t lane = (int32_t)threadIdx.x % lanes, group = (int32_t)threadIdx.x / lanes;
    const int32_t groups = (int32_t)blockDim.x / lanes;
    /* As many rounds for every group, since lanes of several groups meet. */
    for (int64_t base = b->unit_first; base < b->unit_end; base += groups) {
        const int32_t idle = base + group >= b->unit_end;
        const int64_t unit = idle ? b->unit_end - 1 : base + group;
        TA sum[GATES][ROWS] = {{0}};
        T x[GATES];
        c_unit at;
        if (!K_HOST && lane < b->rows) { /* on its way while the products are made */
            at = c_place(cell, b->direction, b->entry_first + lane, unit, step);
            steps_ask(cell, &at, gate, end, x);
        }
        steps_products(args, b, v, unit, gate, end, lane, lanes, sum);
#if K_HOST
        for (int32_t row = 0; row < b->rows && !idle; row++) {
            TA mine[GATES] = {sum[0][row], sum[1][row], sum[2][row], sum[3][row]};
            at = c_place(cell, b->direction, b->entry_first + row, unit, step);
            steps_ask(cell, &at, gate, end, x);
            steps_end(args, b, &at, gate, end, row, x, mine);
        }
#else
        steps_meet(sum, gate, end, lane, lanes);
        if (lane < b->rows && !idle) {
            TA mine[GATES] = {sum[0][0], sum[1][0], sum[2][0], sum[3][0]};
            steps_end(args, b, &at, gate, end, lane, x, mine);
        }
#endif
    }
}

K_FN steps_block steps_place(const mp_recurrent_args *args, int64_t i, TA *shared) {
    const k_cell *cell = &args->cell;
    const int64_t entries = (cell->batch + ROWS - 1) / ROWS;
    const int64_t part = i % args->unit_blocks, rest = i / args->unit_blocks;
    const int64_t each = (cell->hidden + args->unit_blocks - 1) / args->unit_blocks;
    steps_block b;
    b.direction = rest / entries;
    b.entry_first = rest % entries * ROWS;
    b.rows = (int32_t)(cell->batch - b.entry_first < ROWS ? cell->batch - b.entry_first : ROWS);
    b.unit_first = part * each;
    b.unit_end = b.unit_first + each < cell->hidden ? b.unit_first + each : cell->hidden;
    b.pitch = (int32_t)((cell->hidden + PIECE - 1) / PIECE * PIECE);
    const int64_t size = (int64_t)b.pitch * ROWS;
    b.h = shared;
    b.h_next = shared + size;
    b.c = shared + 2 * size;
    b.reset = shared + 3 * size;
    return b;
}

/* States come from the inputs or from the launch before. */
K_FN void steps_load(const mp_recurrent_args *args, const steps_block *b) {
    const k_cell *cell = &args->cell;
    const int32_t resets = c_resets_first(cell);
    K_BLOCK_LOOP(i, (int64_t)b->rows * b->pitch) {
        const int64_t row = i / b->pitch, unit = i % b->pitch, entry = b->entry_first + row;
        const int64_t from = (b->direction * cell->batch + entry) * cell->hidden + unit;
        TA h = 0, c = 0;
        if (unit < cell->hidden) {
            const int32_t first = args->step_first == 0;
            h = first ? c_first(cell, cell->h_first, b->direction, entry, unit)
                      : ((const TA *)args->h_from)[from];
            if (cell->kind == K_CELL_LSTM) {
                c = first ? c_first(cell, cell->c_first, b->direction, entry, unit)
                          : ((const TA *)args->c)[from];
            }
        }
        b->h[i] = h;
        b->h_next[i] = h; /* beyond the last unit both stay 0 */
        b->c[i] = c;
        if (resets) {
            b->reset[i] = 0;
        }
    }
}

K_FN void steps_save(const mp_recurrent_args *args, const steps_block *b) {
    const k_cell *cell = &args->cell;
    const int32_t last = args->step_first + args->step_count == cell->steps;
    const int64_t units = b->unit_end - b->unit_first;
    K_BLOCK_LOOP(i, units > 0 ? b->rows * units : 0) {
        const int64_t row = i / units, unit = b->unit_first + i % units;
        const int64_t place = row * b->pitch + unit, entry = b->entry_first + row;
        if (last) {
            const c_unit at = c_place(cell, b->direction, entry, unit, 0);
            c_write_states(cell, &at, b->h[place], b->c[place]);
            continue;
        }
        const int64_t to = (b->direction * cell->batch + entry) * cell->hidden + unit;
        ((TA *)args->h_to)[to] = b->h[place];
        ((TA *)args->c)[to] = b->c[place];
    }
}

K_BLOCK_KERNEL_UP_TO(K_RECURRENT_LANES, mp_recurrent_args, args) {
    K_SHARED(TA, shared);
    const k_cell *cell = &args.cell;
    const int32_t resets = c_resets_first(cell);
    const int64_t entries = (cell->batch + ROWS - 1) / ROWS;
    for (int64_t i = blockIdx.x; i < cell->directions * entries * args.unit_blocks;
         i += gridDim.x) {
        steps_block b = steps_place(&args, i, shared);
        steps_load(&args, &b);
        __syncthreads();
        for (int64_t n = 0; n < args.step_count; n++) {
            if (resets) {
                steps_round(&args, &b, b.h, args.step_first + n, 0, 2);
                __syncthreads();
                steps_round(&args, &b, b.reset, args.step_first + n, 2, 3);
            } else {
                steps_round(&args, &b, b.h, args.step_first + n, 0, cell->kind);
            }
            __syncthreads();
            TA *before = b.h;
            b.h = b.h_next;
            b.h_next = before;
        }
        steps_save(&args, &b);
        __syncthreads();
    }
}
