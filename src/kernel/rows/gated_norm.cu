/* gated_norm.cu - each row over its root mean square, times a scale and what a gate lets through.
 * The second pass over a row finds it in cache.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/any_float.h"
#include "kernel/core/row_lanes.h"
#include "kernel/rows/gate_args.h"

K_FN float gn_gate(int32_t kind, float x) {
    const float share = 1.0f / (1.0f + expf(-x));
    return kind == K_GATE_SILU ? x * share : share;
}

K_FN K_SUM gn_squares(const T *x, int64_t columns, k_round t) {
    const int32_t shift = k_row_shift(x);
    const int64_t end = columns > 0 ? columns + shift : 0;
    K_SUM sum = 0;
    for (int64_t from = 0; from < end; from += (int64_t)t.width * K_KEEP) {
        const k_span s = k_span_at(shift, columns, from, t.lane, t.width);
        K_SPAN_LOOP(k, &s) {
            const k_pack pack = k_span_pack(&s, x + s.at, k, K_INSIDE, T_store(0));
            for (int i = 0; i < K_PACK; i++) {
                const K_SUM value = (K_SUM)T_load(pack.at[i]);
                sum += value * value;
            }
        }
    }
    return k_group_sum(sum, t.width);
}

K_FN void gn_store(const mp_gated_norm_args *args, int64_t row, int64_t columns, float inverse,
                   k_round t) {
    const T *x = (const T *)args->x + row * args->columns;
    const T *gate = (const T *)args->gate + row * args->columns;
    T *out = (T *)args->out + row * args->columns;
    const int64_t scale_row = row % args->scales * args->columns;
    const int32_t shift = k_row_shift(x);
    const int how_gate = k_row_shift(gate) == shift ? K_INSIDE : K_SINGLE;
    const int how_out = k_row_shift(out) == shift ? K_INSIDE : K_SINGLE;
    const int64_t end = columns > 0 ? columns + shift : 0;
    for (int64_t from = 0; from < end; from += (int64_t)t.width * K_KEEP) {
        const k_span s = k_span_at(shift, columns, from, t.lane, t.width);
        K_SPAN_LOOP(k, &s) {
            k_pack pack = k_span_pack(&s, x + s.at, k, K_INSIDE, T_store(0)), by = pack;
            if (args->kind != K_GATE_NONE) {
                by = k_span_pack(&s, gate + s.at, k, how_gate, T_store(0));
            }
            const int32_t e = k * s.step;
            for (int i = 0; i < K_PACK; i++) {
                float value = T_load(pack.at[i]) * inverse;
                if (args->scale && k_in_row(&s, e + i)) {
                    value *= k_any_float(args->scale, scale_row + s.at + e + i, args->scale_type);
                }
                if (args->kind != K_GATE_NONE) {
                    value *= gn_gate(args->kind, T_load(by.at[i]));
                }
                pack.at[i] = T_store(value);
            }
            k_span_put(&s, out + s.at, k, how_out, pack);
        }
    }
}

K_BLOCK_KERNEL(mp_gated_norm_args, args) {
    const k_round t = k_rounds(args.width);
    K_ROUND_LOOP(first, t, args.rows) {
        const int64_t row = first + t.group;
        const int64_t columns = row < args.rows ? args.columns : 0;
        const T *x = (const T *)args.x + row * args.columns;
        const K_SUM mean = gn_squares(x, columns, t) / (K_SUM)args.columns;
        gn_store(&args, row, columns, (float)(1.0 / sqrt((double)mean + (double)args.epsilon)), t);
    }
}
