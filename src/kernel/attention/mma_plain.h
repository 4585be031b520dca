/* mma_plain.h - what attention_mma.cu does, by plain loops.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MMA_PLAIN_H
#define MP_KERNEL_MMA_PLAIN_H

#include "kernel/attention/mma.h"

enum {
    TOGETHER = 16, /* rows that a lane takes at a time, so that keys are read once for them */
    AT_ONCE = HEAD > 128 ? 16 : 32, /* keys side by side: their sums of products are vectors */
};

typedef struct mma_plain {
    mma_row row;
    mma_line line;
    float query[HEAD], sum[HEAD];
    float top, total;
} mma_plain;

typedef struct mma_keys {
    int32_t first, count;
    float key[HEAD][AT_ONCE], value[AT_ONCE][HEAD];
} mma_keys;

K_FN void mma_read(const T *from, int32_t size, float *out) {
    K_ONE_COPY for (int32_t d = 0; d < size; d += A_PIECE) {
        a_load(from, d, size, 1, out + d);
    }
}

K_FN void mma_begin(const mp_attention_args *args, const mma_block *at, int32_t r, mma_plain *x) {
    x->row = mma_row_at(args, at, r);
    x->line = mma_line_at(args, at, r);
    x->top = A_NONE;
    x->total = 0;
    mma_read((const T *)args->q + at->entry * args->q_stride[0] + x->line.head * args->q_stride[1] +
                 x->line.query * args->q_stride[2],
             args->head_size, x->query);
    K_ONE_COPY for (int32_t d = 0; d < args->v_head_size; d++) {
        x->sum[d] = 0;
    }
}

/* Keys from `first` on, and zeros beside them. */
K_FN void mma_take(const mp_attention_args *args, const T *k, const T *v, int32_t first,
                   int32_t left, mma_keys *to) {
    float row[HEAD];
    to->first = first;
    to->count = left < AT_ONCE ? left : AT_ONCE;
    K_ONE_COPY for (int32_t j = 0; j < AT_ONCE; j++) {
        if (j < to->count) {
            mma_read(k + (first + j) * args->k_stride[2], args->head_size, row);
            mma_read(v + (first + j) * args->v_stride[2], args->v_head_size, to->value[j]);
        }
        K_ONE_COPY for (int32_t d = 0; d < args->head_size; d++) {
            to->key[d][j] = j < to->count ? row[d] : 0;
        }
    }
}

K_FN float mma_score(const mp_attention_args *args, const mma_block *at, const mma_plain *x,
                     int64_t key, float dot) {
    const k_score_rule *rule = &args->rule;
    const float masked = a_masked(rule, x->row.mask_row, key, a_capped(rule, dot));
    return a_padded(rule, a_padding_row(rule, at->entry, x->line.query), at->entry, key, masked);
}

K_FN void mma_add(const mp_attention_args *args, const mma_block *at, const mma_keys *keys,
                  mma_plain *x) {
    const int32_t before = x->row.from - keys->first, behind = x->row.to - keys->first;
    const int32_t from = before > 0 ? before : 0, to = behind < keys->count ? behind : keys->count;
    float score[AT_ONCE] = {0};
    float top = x->top, total = 0;
    if (from >= to) {
        return;
    }
    K_ONE_COPY for (int32_t d = 0; d < args->head_size; d++) {
        for (int32_t j = 0; j < AT_ONCE; j++) {
            score[j] += x->query[d] * keys->key[d][j];
        }
    }
    K_ONE_COPY for (int32_t j = from; j < to; j++) {
        score[j] = mma_score(args, at, x, keys->first + j, score[j]);
        top = score[j] > top ? score[j] : top;
    }
    for (int32_t j = 0; j < AT_ONCE; j++) {
        score[j] = a_weight(score[j], top);
    }
    const float shrink = x->total == 0 ? 0 : expf(x->top - top);
    K_ONE_COPY for (int32_t d = 0; d < args->v_head_size; d++) {
        x->sum[d] *= shrink;
    }
    K_ONE_COPY for (int32_t j = from; j < to; j++) {
        total += score[j];
        K_ONE_COPY for (int32_t d = 0; d < args->v_head_size; d++) {
            x->sum[d] += score[j] * keys->value[j][d];
        }
    }
    x->total = x->total * shrink + total;
    x->top = top;
}

K_FN void mma_end(const mp_attention_args *args, const mma_block *at, const mma_plain *x) {
    const float norm = mma_norm(a_sink(&args->rule, x->line.head), x->top, x->total);
    T *to = (T *)args->out + at->entry * args->out_stride[0] + x->line.head * args->out_stride[1] +
            x->line.query * args->out_stride[2];
    K_ONE_COPY for (int32_t d = 0; d < args->v_head_size; d++) {
        to[d] = T_store(x->sum[d] * norm);
    }
}

K_FN void mma_run(const mp_attention_args *args, mma_block *at, T *shared) {
    const T *k =
        (const T *)args->k + at->entry * args->k_stride[0] + at->kv_head * args->k_stride[1];
    const T *v =
        (const T *)args->v + at->entry * args->v_stride[0] + at->kv_head * args->v_stride[1];
    mma_plain rows[TOGETHER];
    mma_keys keys;
    (void)shared;
    mma_reach(args, at);
    K_BLOCK_LOOP(i, (at->row_count + TOGETHER - 1) / TOGETHER) {
        const int32_t first = (int32_t)i * TOGETHER, left = at->row_count - first;
        const int32_t count = left < TOGETHER ? left : TOGETHER;
        K_ONE_COPY for (int32_t r = 0; r < count; r++) {
            mma_begin(args, at, first + r, &rows[r]);
        }
        K_ONE_COPY for (int32_t key = at->from; key < at->to; key += AT_ONCE) {
            mma_take(args, k, v, key, at->to - key, &keys);
            K_ONE_COPY for (int32_t r = 0; r < count; r++) {
                mma_add(args, at, &keys, &rows[r]);
            }
        }
        K_ONE_COPY for (int32_t r = 0; r < count; r++) {
            mma_end(args, at, &rows[r]);
        }
    }
}

#endif
