/* reduce_block.cu - each output by the lanes of a block, or of a part of one where little goes into
 * it. Of few outputs, pieces of what goes into each are reduced first and then merged: always the
 * same pieces in the same order. SPDX-License-Identifier: Apache-2.0 */
#include "kernel/reduce.h"

#if R_OP == R_logsumexp
K_FN T r_log_sum_exp(const mp_reduce_args *args, const T *x, int64_t end, k_turn t) {
    K_SUM largest = -(K_SUM)K_INF;
    for (int64_t i = t.lane; i < end; i += t.width) {
        const K_SUM value = r_load(x[r_dropped(args, i)]);
        largest = value > largest || value != value ? value : largest;
    }
    largest = k_group_max(largest, t.width);
    const K_SUM base = largest - largest == 0 ? largest : 0; /* not inf, not NaN */
    K_SUM sum = 0;
    for (int64_t i = t.lane; i < end; i += t.width) {
        sum += (K_SUM)exp((double)(r_load(x[r_dropped(args, i)]) - base));
    }
    sum = k_group_sum(sum, t.width);
    return T_store((TC)(log((double)sum) + (double)base));
}
#endif

/* The elements [start, end) that are neighbours, by 16 bytes; both are multiples of K_PACK. */
K_FN K_SUM r_packs(const T *x, int64_t start, int64_t end, k_turn t) {
    const k_pack *packs = (const k_pack *)x;
    K_SUM sum[K_PACK];
    K_UNROLL
    for (int k = 0; k < K_PACK; k++) {
        sum[k] = r_identity();
    }
    for (int64_t i = start / K_PACK + t.lane; i < end / K_PACK; i += t.width) {
        const k_pack pack = packs[i];
        K_UNROLL
        for (int k = 0; k < K_PACK; k++) {
            sum[k] = r_add(sum[k], r_load(pack.at[k]));
        }
    }
    K_UNROLL
    for (int k = 1; k < K_PACK; k++) {
        sum[0] = r_merge(sum[0], sum[k]);
    }
    return sum[0];
}

K_FN K_SUM r_span(const mp_reduce_args *args, const T *x, int64_t start, int64_t end, k_turn t) {
    if (args->packed) {
        return r_packs(x, start, end, t);
    }
    K_SUM sum = r_identity();
    for (int64_t i = start + t.lane; i < end; i += t.width) {
        sum = r_add(sum, r_load(x[r_dropped(args, i)]));
    }
    return sum;
}

/* What this group's lanes make of part `part`; nothing where there is no such part. */
K_FN K_SUM r_part(const mp_reduce_args *args, int64_t part, int64_t parts, k_turn t) {
    K_SUM sum = r_identity();
    if (part >= parts) {
        return sum;
    }
    if (args->stage == K_REDUCE_MERGE) {
        const K_SUM *partial = (const K_SUM *)args->partial + part * args->pieces;
        for (int64_t i = t.lane; i < args->pieces; i += t.width) {
            sum = r_merge(sum, partial[i]);
        }
        return sum;
    }
    int64_t output = part, start = 0, end = args->reduced;
    if (args->stage == K_REDUCE_PIECES) {
        output = part / args->pieces;
        start = (part - output * args->pieces) * args->piece;
        end = start + args->piece < end ? start + args->piece : end;
    }
    return r_span(args, (const T *)args->x + r_kept(args, output), start, end, t);
}

K_BLOCK_KERNEL(mp_reduce_args, args) {
    const k_turn t = k_turns(args.width > 0 ? args.width : (int32_t)blockDim.x);
    const int pieces = args.stage == K_REDUCE_PIECES;
    const int64_t parts = pieces ? args.outputs * args.pieces : args.outputs;
    for (int64_t first = t.first; first < parts; first += t.step) {
        const int64_t part = first + t.group;
#if R_OP == R_logsumexp
        const int64_t at = part < parts ? r_kept(&args, part) : 0;
        const int64_t end = part < parts ? args.reduced : 0;
        const T result = r_log_sum_exp(&args, (const T *)args.x + at, end, t);
        if (part < parts && t.lane == 0) {
            ((T *)args.out)[part] = result;
        }
#else
        const K_SUM sum = r_group(r_part(&args, part, parts, t), t.width);
        if (part < parts && t.lane == 0 && pieces) {
            ((K_SUM *)args.partial)[part] = sum;
        } else if (part < parts && t.lane == 0) {
            ((T *)args.out)[part] = r_store(sum, args.reduced);
        }
#endif
    }
}
