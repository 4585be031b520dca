/* gate_args.h - arguments of the kernels that weigh rows, streams and branches by gates. Types of
 * gates and scales are ONNX's numbers; `packed` says that rows are whole vectors of
 * kernel/core/vector.h.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_GATE_ARGS_H
#define MP_KERNEL_GATE_ARGS_H

#include "kernel/core/types.h"

enum { K_GATE_NONE, K_GATE_SIGMOID, K_GATE_SILU };

/* Each row over its root mean square, times the scales of row % scales, times what `kind` makes of
 * the gate. */
typedef struct mp_gated_norm_args {
    const void *x, *scale, *gate;
    void *out;
    int64_t rows, columns, scales;
    float epsilon;
    int32_t kind, scale_type, width;
} mp_gated_norm_args;

/* Row r of `key` and `query` gives the gate of row r of out, which is row r / streams of `value`;
 * scales are those of row r % streams. */
typedef struct mp_stream_gate_args {
    const void *key, *query, *value, *key_scale, *query_scale, *normed_scale;
    void *out, *normed;
    int64_t rows, columns, streams;
    float epsilon;
    int32_t width;
} mp_stream_gate_args;

/* out = x + y * gate, a gate for each row. */
typedef struct mp_gated_add_args {
    const void *x, *y, *gate;
    void *out;
    int64_t rows, columns;
    int32_t packed, unused;
} mp_gated_add_args;

typedef struct mp_scaled_silu_args {
    const void *x, *scale; /* a scalar, or NULL: alpha */
    void *out;
    int64_t count;
    float alpha;
    int32_t scale_type, packed, unused;
} mp_scaled_silu_args;

/* Of `streams` rows each, of `columns`:
 * pre:  out[r] = factor * sum over c of x[r, c] * gate[r, c]
 * post: out[r, k] = sum over c of mix[r, c, k] * x[r, c] + gate[r, k] * block[r], where without
 * `mix` x[r, k] takes the sum's place. */
typedef struct mp_stream_mix_args {
    const void *x, *gate, *mix, *block;
    void *out;
    int64_t rows, streams, columns;
    int32_t gate_type, mix_type;
    int32_t wide; /* a gate for each element */
    int32_t post, packed;
    float factor;
} mp_stream_mix_args;

#endif
