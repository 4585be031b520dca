/* delta.h - linear attention: which columns of a state are whose, and its gates.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_DELTA_H
#define MP_KERNEL_DELTA_H

#include "kernel/core/lanes_sum.h"
#include "kernel/core/packed_batch.h"
#include "kernel/recurrent/delta_args.h"

K_LANES_SUM(d_meet, float)

typedef struct d_place {
    int64_t entry, head, key_head; /* of the state, and of its key */
    int64_t first, count;          /* tokens */
    int64_t captured;              /* of them, that `update` gets */
    int64_t column;                /* the block's first one */
    int32_t columns;               /* of the block */
    int32_t lane, width, at;       /* within a column, and which one */
} d_place;

K_FN int64_t d_blocks(const mp_delta_args *args, int32_t columns) {
    return (args->value + columns - 1) / columns;
}

K_FN d_place d_place_of(const mp_delta_args *args, int64_t unit) {
    d_place p;
    p.width = K_HOST ? 1 : args->width;
    p.columns = (int32_t)blockDim.x / p.width;
    const int64_t blocks = d_blocks(args, p.columns), line = unit / blocks;
    p.column = (unit - line * blocks) * p.columns;
    p.entry = line / args->heads;
    p.head = line - p.entry * args->heads;
    p.key_head = p.head / (args->heads / args->k_heads);
    p.lane = (int32_t)threadIdx.x % p.width;
    p.at = (int32_t)threadIdx.x / p.width;
    const k_tokens tokens = k_tokens_of(args->starts, p.entry, args->rows, args->tokens);
    p.first = tokens.first;
    p.count = tokens.count;
    p.captured = 0;
    if (args->update && args->counts) {
        const int64_t most = p.count < args->capacity ? p.count : args->capacity;
        const int64_t asked = args->counts[p.entry];
        p.captured = asked < 0 ? 0 : asked < most ? asked : most;
    }
    return p;
}

K_FN int64_t d_query_head(const mp_delta_args *args, const d_place *p, int32_t g) {
    return args->q_heads >= args->heads ? p->head * args->queries + g
                                        : p->head * args->q_heads / args->heads;
}

K_FN float d_sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

K_FN float d_softplus(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}

K_FN float d_gate(const mp_delta_args *args, const void *gate, int64_t at) {
    return args->gates_wide ? ((const float *)gate)[at] : T_load(((const T *)gate)[at]);
}

/* What the state is multiplied by, and what a change of it is, where the model gives x. */
K_FN float d_decay_by(const mp_delta_args *args, float rate, float bias, float x) {
    if (args->gate_rates) {
        x = -expf(rate) * d_softplus(x + bias);
    }
    return expf(x);
}

K_FN float d_decay(const mp_delta_args *args, const d_place *p, float x) {
    return d_decay_by(args, args->gate_rates ? args->log_rate[p->head] : 0.0f,
                      args->gate_rates ? args->bias[p->head] : 0.0f, x);
}

K_FN float d_beta(const mp_delta_args *args, float x) {
    return args->beta_sigmoids ? d_sigmoid(x) : x;
}

K_FN int64_t d_state_at(const mp_delta_args *args, const d_place *p, int64_t window) {
    const int64_t line = (window * args->batch + p->entry) * args->heads + p->head;
    return line * args->size * args->value + (p->column + p->at) * args->column_step;
}

#endif
