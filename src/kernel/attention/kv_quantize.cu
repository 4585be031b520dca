/* kv_quantize.cu - keys and values between T and the type of a quantised cache, both in one pass.
 * In the cache, rows begin with whole bytes; a scale is that of all elements or of a channel, and a
 * scale of 0 has no values but 0.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"
#include "kernel/quantize/quantize.h"

/* Where a group of elements lies. */
typedef struct v_group {
    int32_t side, first, count; /* of its row */
    int64_t head;
    T *wide;
    uint8_t *narrow; /* the row */
} v_group;

K_FN v_group v_place(const mp_kv_quantize_args *args, int64_t i) {
    const int64_t groups = n_groups(args->size);
    int64_t rest = i / groups;
    v_group at;
    at.first = (int32_t)(i - rest * groups) * K_GROUP;
    at.count = n_group_size(at.first, args->size);
    const int64_t line = rest / args->rows, row = rest - line * args->rows;
    const int64_t pair = line / args->heads;
    at.head = line - pair * args->heads;
    at.side = (int32_t)(pair >= args->batch);
    const int64_t entry = pair - (at.side ? args->batch : 0);
    const int64_t *stride = args->wide_stride[at.side];
    at.wide = (T *)args->wide[at.side] + entry * stride[0] + at.head * stride[1] + row * stride[2] +
              at.first;
    at.narrow = (uint8_t *)args->narrow[at.side] +
                ((entry * args->heads + at.head) * args->narrow_rows + row) * args->narrow_bytes;
    return at;
}

K_FN float v_scale(const mp_kv_quantize_args *args, const v_group *at, int32_t k) {
    const float *scale = (const float *)args->cache.scale[at->side];
    return args->cache.channels[at->side] ? scale[at->head * args->size + at->first + k] : scale[0];
}

K_FN void v_store(const mp_kv_quantize_args *args, const v_group *at, int32_t aligned) {
    uint32_t bits[K_GROUP];
    K_UNROLL for (int32_t k = 0; k < K_GROUP; k++) {
        bits[k] = (uint32_t)args->cache.zero; /* also beyond the last element of a byte */
        if (k < at->count) {
            /* Times the inverse, as ONNX Runtime has it: a tie may be one of these floats alone. */
            const float scale = v_scale(args, at, k);
            const float share = scale == 0 ? 0 : T_load(at->wide[k]) * (1 / scale);
            bits[k] = q_quantize(&args->cache.type, share, 1, args->cache.zero);
        }
    }
    const int32_t count = args->cache.type.width < 8 ? (at->count + 1) / 2 * 2 : at->count;
    n_group_store(at->narrow, args->cache.type.width, at->first, count, aligned, bits);
}

K_FN void v_load(const mp_kv_quantize_args *args, const v_group *at, int32_t aligned) {
    uint32_t bits[K_GROUP];
    n_group_load(at->narrow, args->cache.type.width, at->first, at->count, aligned, bits);
    K_UNROLL for (int32_t k = 0; k < K_GROUP; k++) {
        if (k < at->count) {
            const float value = n_from_bits(&args->cache.type, bits[k]) - (float)args->cache.zero;
            at->wide[k] = T_store(value * v_scale(args, at, k));
        }
    }
}

K_KERNEL(mp_kv_quantize_args, args) {
    K_GRID_LOOP(i, 2 * args.batch * args.heads * args.rows * n_groups(args.size)) {
        const v_group at = v_place(&args, i);
        const int32_t aligned = (uint64_t)at.narrow % 8 == 0;
        if (args.back) {
            v_load(&args, &at, aligned);
        } else {
            v_store(&args, &at, aligned);
        }
    }
}
