/* stream_gate.cu - how well a key and a query agree, both brought to root mean square 1, says how
 * much of a value passes; and that value brought to root mean square 1 too. A second pass finds its
 * row in cache.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/row_lanes.h"
#include "kernel/rows/gate_args.h"

typedef struct sg_sums {
    K_SUM key, query, both, value;
} sg_sums;

/* Packs are of the key's row; the other rows may lie otherwise. */
K_FN int sg_how(const T *row, int32_t shift) {
    return k_row_shift(row) == shift ? K_INSIDE : K_SINGLE;
}

K_FN sg_sums sg_sum(const mp_stream_gate_args *args, int64_t row, int64_t columns, k_round t) {
    const int64_t at = row * args->columns, scale_at = row % args->streams * args->columns;
    const T *x[5] = {(const T *)args->key + at, (const T *)args->query + at,
                     (const T *)args->key_scale + scale_at, (const T *)args->query_scale + scale_at,
                     (const T *)args->value + row / args->streams * args->columns};
    const int32_t shift = k_row_shift(x[0]);
    const int64_t end = columns > 0 ? columns + shift : 0;
    sg_sums sum = {0, 0, 0, 0};
    for (int64_t from = 0; from < end; from += (int64_t)t.width * K_KEEP) {
        const k_span s = k_span_at(shift, columns, from, t.lane, t.width);
        K_SPAN_LOOP(k, &s) {
            k_pack pack[5];
            K_UNROLL
            for (int n = 0; n < 5; n++) {
                pack[n] = k_span_pack(&s, x[n] + s.at, k, sg_how(x[n], shift), T_store(0));
            }
            for (int i = 0; i < K_PACK; i++) {
                const K_SUM key = (K_SUM)T_load(pack[0].at[i]);
                const K_SUM query = (K_SUM)T_load(pack[1].at[i]);
                const K_SUM value = (K_SUM)T_load(pack[4].at[i]);
                sum.key += key * key;
                sum.query += query * query;
                sum.both +=
                    key * (K_SUM)T_load(pack[2].at[i]) * query * (K_SUM)T_load(pack[3].at[i]);
                sum.value += value * value;
            }
        }
    }
    sum.key = k_group_sum(sum.key, t.width);
    sum.query = k_group_sum(sum.query, t.width);
    sum.both = k_group_sum(sum.both, t.width);
    sum.value = args->normed ? k_group_sum(sum.value, t.width) : 0;
    return sum;
}

K_FN float sg_gate(const mp_stream_gate_args *args, const sg_sums *sum) {
    const double columns = (double)args->columns, epsilon = (double)args->epsilon;
    const double key = sqrt((double)sum->key / columns + epsilon);
    const double query = sqrt((double)sum->query / columns + epsilon);
    const float dot = (float)((double)sum->both / (key * query * sqrt(columns)));
    const float size = dot < 0 ? -dot : dot, sign = dot > 0 ? 1.0f : dot < 0 ? -1.0f : dot;
    return 1.0f / (1.0f + expf(-sign * sqrtf(size < 1e-6f ? 1e-6f : size)));
}

K_FN void sg_store(const mp_stream_gate_args *args, int64_t row, int64_t columns, float gate,
                   float inverse, k_round t) {
    const T *value = (const T *)args->value + row / args->streams * args->columns;
    const T *scale = (const T *)args->normed_scale + row % args->streams * args->columns;
    T *out = (T *)args->out + row * args->columns;
    T *normed = (T *)args->normed + row * args->columns;
    const int32_t shift = k_row_shift(value);
    const int64_t end = columns > 0 ? columns + shift : 0;
    for (int64_t from = 0; from < end; from += (int64_t)t.width * K_KEEP) {
        const k_span s = k_span_at(shift, columns, from, t.lane, t.width);
        K_SPAN_LOOP(k, &s) {
            const k_pack pack = k_span_pack(&s, value + s.at, k, K_INSIDE, T_store(0));
            k_pack made;
            for (int i = 0; i < K_PACK; i++) {
                made.at[i] = T_store(T_load(pack.at[i]) * gate);
            }
            k_span_put(&s, out + s.at, k, sg_how(out, shift), made);
            if (args->normed) {
                const k_pack by =
                    k_span_pack(&s, scale + s.at, k, sg_how(scale, shift), T_store(0));
                for (int i = 0; i < K_PACK; i++) {
                    made.at[i] = T_store(T_load(pack.at[i]) * gate * inverse * T_load(by.at[i]));
                }
                k_span_put(&s, normed + s.at, k, sg_how(normed, shift), made);
            }
        }
    }
}

K_BLOCK_KERNEL(mp_stream_gate_args, args) {
    const k_round t = k_rounds(args.width);
    K_ROUND_LOOP(first, t, args.rows) {
        const int64_t row = first + t.group;
        const int64_t columns = row < args.rows ? args.columns : 0;
        const sg_sums sum = sg_sum(&args, row < args.rows ? row : 0, columns, t);
        const float gate = sg_gate(&args, &sum);
        const double mean = (double)sum.value * (double)gate * (double)gate / (double)args.columns;
        sg_store(&args, row, columns, gate, (float)(1.0 / sqrt(mean + (double)args.epsilon)), t);
    }
}
