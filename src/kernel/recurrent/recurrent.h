/* recurrent.h - the arithmetic of one unit of LSTM, GRU and RNN, and where its numbers lie. States
 * and sums are of the accumulator's type.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_RECURRENT_H
#define MP_KERNEL_RECURRENT_H

#include "kernel/core/lanes_sum.h"
#include "kernel/recurrent/recurrent_args.h"

/* One unit of one entry at one step. */
typedef struct c_unit {
    int64_t direction, entry, unit;
    int64_t time;  /* in x and y */
    int32_t ended; /* the sequence is shorter: y is 0 and the state stays */
} c_unit;

/* The step'th step of an entry, which a reverse direction takes from its sequence's end. */
K_FN c_unit c_place(const k_cell *cell, int64_t direction, int64_t entry, int64_t unit,
                    int64_t step) {
    c_unit at;
    int64_t length = cell->steps;
    if (cell->lengths != 0) {
        const int64_t given = ((const int32_t *)cell->lengths)[entry];
        length = given < 0 ? 0 : given < length ? given : length;
    }
    at.direction = direction;
    at.entry = entry;
    at.unit = unit;
    at.ended = step >= length;
    at.time = !at.ended && (direction == 1 || cell->reverse) ? length - 1 - step : step;
    return at;
}

K_FN int32_t c_resets_first(const k_cell *cell) {
    return cell->kind == K_CELL_GRU && !cell->linear_before_reset;
}

/* W x of a gate, as it is stored. */
K_FN T c_stored(const k_cell *cell, const c_unit *at, int32_t gate) {
    const int64_t row = at->direction * cell->steps * cell->batch + at->time * cell->x_step +
                        at->entry * cell->x_batch;
    return ((const T *)cell->projected)[(row * cell->kind + gate) * cell->hidden + at->unit];
}

K_FN TA c_projected(const k_cell *cell, const c_unit *at, int32_t gate) {
    return (TA)T_load(c_stored(cell, at, gate));
}

/* The bias of W (0) or of R (1). */
K_FN TA c_bias(const k_cell *cell, const c_unit *at, int32_t which, int32_t gate) {
    if (cell->bias == 0) {
        return 0;
    }
    const int64_t row = (at->direction * 2 + which) * cell->kind + gate;
    return (TA)T_load(((const T *)cell->bias)[row * cell->hidden + at->unit]);
}

K_FN TA c_peephole(const k_cell *cell, const c_unit *at, int32_t which, TA c) {
    if (cell->peephole == 0) {
        return 0;
    }
    return c *
           (TA)T_load(
               ((const T *)cell->peephole)[(at->direction * 3 + which) * cell->hidden + at->unit]);
}

K_FN TA c_first(const k_cell *cell, const void *state, int64_t direction, int64_t entry,
                int64_t unit) {
    return state == 0 ? 0
                      : (TA)T_load(((const T *)state)[direction * cell->s_direction +
                                                      entry * cell->s_batch + unit]);
}

K_FN TA c_sigmoid(TA x) {
    return (TA)1 / ((TA)1 + K_M(exp)(-x));
}

K_FN TA c_function(const k_cell *cell, const c_unit *at, int32_t which, TA x) {
    const k_activation_of *act = &cell->act[at->direction][which];
    const TA alpha = (TA)act->alpha, beta = (TA)act->beta;
    switch (act->kind) {
    case K_ACT_SIGMOID:
        return c_sigmoid(x);
    case K_ACT_TANH:
        return K_M(tanh)(x);
    case K_ACT_RELU:
        return x > 0 ? x : x != x ? x : 0;
    case K_ACT_AFFINE:
        return alpha * x + beta;
    case K_ACT_LEAKY_RELU:
        return x >= 0 ? x : alpha * x;
    case K_ACT_THRESHOLDED_RELU:
        return x > alpha ? x : x != x ? x : 0;
    case K_ACT_SCALED_TANH:
        return alpha * K_M(tanh)(beta * x);
    case K_ACT_HARD_SIGMOID:
        x = alpha * x + beta;
        return x > 1 ? 1 : x < 0 ? 0 : x;
    case K_ACT_ELU:
        return x >= 0 ? x : alpha * (K_M(exp)(x) - (TA)1);
    case K_ACT_SOFTSIGN:
        return x / ((TA)1 + (x < 0 ? -x : x));
    default: /* softplus, of both signs without overflow */
        return (x > 0 ? x : 0) + K_M(log1p)(K_M(exp)(x > 0 ? -x : x));
    }
}

/* Of a gate, whose sum is clipped first. */
K_FN TA c_activate(const k_cell *cell, const c_unit *at, int32_t which, TA x) {
    if (cell->clipped) {
        const TA most = (TA)cell->clip;
        x = x > most ? most : x < -most ? -most : x;
    }
    return c_function(cell, at, which, x);
}

/* The new h from the sums of the four gates; `c` is the cell's state before and after. */
K_FN TA c_lstm(const k_cell *cell, const c_unit *at, const TA *sum, TA *c) {
    const TA before = *c;
    const TA input = c_activate(cell, at, 0, sum[0] + c_peephole(cell, at, 0, before));
    const TA forget = cell->input_forget
                          ? (TA)1 - input
                          : c_activate(cell, at, 0, sum[2] + c_peephole(cell, at, 2, before));
    const TA fresh = c_activate(cell, at, 1, sum[3]);
    *c = forget * before + input * fresh;
    const TA output = c_activate(cell, at, 0, sum[1] + c_peephole(cell, at, 1, *c));
    return output * c_function(cell, at, 2, *c); /* not clipped, as in ONNX Runtime */
}

/* Whether an LSTM has the functions that it has unless told otherwise, and nothing more. */
K_FN int32_t c_is_usual_lstm(const k_cell *cell, int64_t direction) {
    const k_activation_of *act = cell->act[direction];
    return cell->kind == K_CELL_LSTM && !cell->clipped && !cell->input_forget &&
           cell->peephole == 0 && act[0].kind == K_ACT_SIGMOID && act[1].kind == K_ACT_TANH &&
           act[2].kind == K_ACT_TANH;
}

/* c_lstm() of a usual one: without branches, so that its functions go side by side. */
K_FN TA c_lstm_usual(const TA *sum, TA *c) {
    const TA input = c_sigmoid(sum[0]), output = c_sigmoid(sum[1]), forget = c_sigmoid(sum[2]);
    *c = forget * *c + input * K_M(tanh)(sum[3]);
    return output * K_M(tanh)(*c);
}

/* `hidden` is the sum of the hidden gate, what the reset gate does to it included. */
K_FN TA c_gru(const k_cell *cell, const c_unit *at, TA update, TA hidden, TA h) {
    return ((TA)1 - update) * c_activate(cell, at, 1, hidden) + update * h;
}

K_FN void c_write_y(const k_cell *cell, const c_unit *at, TA h) {
    if (cell->y != 0) {
        ((T *)cell->y)[at->time * cell->y_step + at->direction * cell->y_direction +
                       at->entry * cell->y_batch + at->unit] = T_store((TC)(at->ended ? (TA)0 : h));
    }
}

/* The states after the last step; 0 for a sequence of no step, as in ONNX Runtime. */
K_FN void c_write_states(const k_cell *cell, const c_unit *at, TA h, TA c) {
    const int64_t to = at->direction * cell->s_direction + at->entry * cell->s_batch + at->unit;
    if (c_place(cell, at->direction, at->entry, at->unit, 0).ended) {
        h = 0;
        c = 0;
    }
    if (cell->y_h != 0) {
        ((T *)cell->y_h)[to] = T_store((TC)h);
    }
    if (cell->y_c != 0) {
        ((T *)cell->y_c)[to] = T_store((TC)c);
    }
}

/* The sum over neighbouring lanes that share a unit; one lane on the emulated device. */
K_LANES_SUM(c_meet, TA)

#endif
