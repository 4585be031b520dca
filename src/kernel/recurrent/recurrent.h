/* recurrent.h - the arithmetic of one unit of LSTM, GRU and RNN, and where its numbers lie. States
 * and sums are of the accumulator's type.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_RECURRENT_H
#define MP_KERNEL_RECURRENT_H

#include "kernel/core/prelude.h"
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

K_FN TA c_clip(const k_cell *cell, TA x) {
    const TA most = (TA)cell->clip;
    return x > most ? most : x < -most ? -most : x;
}

/* Of a gate, whose sum is clipped first. */
K_FN TA c_activate(const k_cell *cell, const c_unit *at, int32_t which, TA x) {
    return c_function(cell, at, which, cell->clipped ? c_clip(cell, x) : x);
}

/* Whether an LSTM has the functions that it has unless told otherwise, and nothing more. */
K_FN int32_t c_is_usual(const k_cell *cell, const c_unit *at) {
    const k_activation_of *act = cell->act[at->direction];
    return !cell->clipped && !cell->input_forget && cell->peephole == 0 &&
           act[0].kind == K_ACT_SIGMOID && act[1].kind == K_ACT_TANH && act[2].kind == K_ACT_TANH;
}

/* The functions of any LSTM, one after the other by one copy of their text: a kernel that has it
 * five times is bound by fetching it. */
K_FN TA c_lstm_any(const k_cell *cell, const c_unit *at, const TA *sum, TA *c) {
    const TA before = *c;
    TA input = 0, forget = 0, output = 0, made = 0;
    K_ONE_COPY for (int32_t n = 0; n < 5; n++) {
        const int32_t which = n == 2 ? 1 : n == 4 ? 2 : 0;
        if (n == 0) {
            made = sum[0] + c_peephole(cell, at, 0, before);
        } else if (n == 1) {
            made = sum[2] + c_peephole(cell, at, 2, before);
        } else if (n == 2) {
            made = sum[3];
        } else if (n == 3) {
            made = sum[1] + c_peephole(cell, at, 1, *c);
        } else {
            made = *c;
        }
        if (cell->clipped && n < 4) { /* not the state, as in ONNX Runtime */
            made = c_clip(cell, made);
        }
        made = c_function(cell, at, which, made);
        if (n == 0) {
            input = made;
        } else if (n == 1) {
            forget = cell->input_forget ? (TA)1 - input : made;
        } else if (n == 2) {
            *c = forget * before + input * made;
        } else if (n == 3) {
            output = made;
        }
    }
    return output * made;
}

/* The new h from the sums of the four gates; `c` is the cell's state before and after. The usual
 * functions are without branches, so that they go side by side. */
K_FN TA c_lstm(const k_cell *cell, const c_unit *at, const TA *sum, TA *c) {
    if (!c_is_usual(cell, at)) {
        return c_lstm_any(cell, at, sum, c);
    }
    const TA input = c_sigmoid(sum[0]), output = c_sigmoid(sum[1]), forget = c_sigmoid(sum[2]);
    *c = forget * *c + input * K_M(tanh)(sum[3]);
    return output * K_M(tanh)(*c);
}

/* The functions of two gates, in turn: each finds its sum in the same place. */
K_FN void c_gates(const k_cell *cell, const c_unit *at, TA *sum) {
    K_ONE_COPY for (int32_t n = 0; n < 2; n++) {
        const TA made = c_activate(cell, at, 0, sum[0]);
        sum[0] = sum[1];
        sum[1] = made;
    }
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

#endif
