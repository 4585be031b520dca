/* recurrent_cell.cu - one step of LSTM, GRU or RNN where a matrix product has made h R^T for many
 * entries: one lane a unit.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/recurrent/recurrent.h"

/* Gate `gate` of a product of `gates`. */
K_FN TA cell_product(const mp_recurrent_cell_args *args, const c_unit *at, int32_t gate,
                     int32_t gates) {
    const k_cell *cell = &args->cell;
    const int64_t row = at->direction * cell->batch + at->entry;
    return (TA)T_load(((const T *)args->product)[(row * gates + gate) * cell->hidden + at->unit]);
}

/* What a gate's activation is given. */
K_FN TA cell_sum(const mp_recurrent_cell_args *args, const c_unit *at, int32_t gate,
                 int32_t product, int32_t gates) {
    const k_cell *cell = &args->cell;
    return c_projected(cell, at, gate) + c_bias(cell, at, 0, gate) + c_bias(cell, at, 1, gate) +
           cell_product(args, at, product, gates);
}

K_FN TA cell_new(const mp_recurrent_cell_args *args, const c_unit *at, int64_t i, TA h, TA *c) {
    const k_cell *cell = &args->cell;
    if (cell->kind == K_CELL_LSTM) {
        TA sum[K_RECURRENT_GATES];
        K_UNROLL for (int32_t g = 0; g < K_RECURRENT_GATES; g++) {
            sum[g] = cell_sum(args, at, g, g, K_RECURRENT_GATES);
        }
        return c_lstm(cell, at, sum, c);
    }
    if (cell->kind == K_CELL_RNN) {
        return c_activate(cell, at, 0, cell_sum(args, at, 0, 0, 1));
    }
    if (args->phase == K_PHASE_HIDDEN) {
        return c_gru(cell, at, ((const TA *)args->update)[i], cell_sum(args, at, 2, 0, 1), h);
    }
    const TA update = c_activate(cell, at, 0, cell_sum(args, at, 0, 0, 3));
    const TA reset = c_activate(cell, at, 0, cell_sum(args, at, 1, 1, 3));
    const TA hidden = cell_product(args, at, 2, 3) + c_bias(cell, at, 1, 2);
    return c_gru(cell, at, update,
                 c_projected(cell, at, 2) + c_bias(cell, at, 0, 2) + reset * hidden, h);
}

K_KERNEL(mp_recurrent_cell_args, args) {
    const k_cell *cell = &args.cell;
    T *state = (T *)args.h;
    K_GRID_LOOP(i, cell->directions * cell->batch * cell->hidden) {
        const int64_t line = i / cell->hidden, unit = i - line * cell->hidden;
        const int64_t direction = line / cell->batch, entry = line - direction * cell->batch;
        const c_unit at = c_place(cell, direction, entry, unit, args.step);
        const int32_t has_c = cell->kind == K_CELL_LSTM;
        if (args.phase == K_PHASE_BEGIN) {
            state[i] = T_store((TC)c_first(cell, cell->h_first, direction, entry, unit));
            if (has_c) {
                ((TA *)args.c)[i] = c_first(cell, cell->c_first, direction, entry, unit);
            }
            continue;
        }
        TA h = (TA)T_load(state[i]), c = has_c ? ((const TA *)args.c)[i] : 0;
        if (args.phase == K_PHASE_GATES) {
            const TA reset = at.ended ? 0 : c_activate(cell, &at, 0, cell_sum(&args, &at, 1, 1, 2));
            ((TA *)args.update)[i] =
                at.ended ? 0 : c_activate(cell, &at, 0, cell_sum(&args, &at, 0, 0, 2));
            ((T *)args.reset)[i] = T_store((TC)(h * reset));
            continue;
        }
        if (!at.ended) {
            h = cell_new(&args, &at, i, h, &c);
        }
        state[i] = T_store((TC)h);
        if (has_c) {
            ((TA *)args.c)[i] = c;
        }
        c_write_y(cell, &at, h);
        if (args.step + 1 == cell->steps) {
            c_write_states(cell, &at, h, c);
        }
    }
}
