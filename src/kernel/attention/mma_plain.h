/* mma_plain.h - what attention_mma.cu does, by plain loops.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MMA_PLAIN_H
#define MP_KERNEL_MMA_PLAIN_H

#include "kernel/attention/mma.h"

enum { TOGETHER = 8 /* rows that a lane takes at a time, so that keys are read once for them */ };

typedef struct mma_plain {
    mma_row row;
    mma_line line;
    float query[HEAD], sum[HEAD];
    float top, total;
} mma_plain;

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

K_FN void mma_add(const mp_attention_args *args, const mma_block *at, int64_t key, const float *k,
                  const float *v, mma_plain *x) {
    const k_score_rule *rule = &args->rule;
    float dot = 0;
    K_ONE_COPY for (int32_t d = 0; d < args->head_size; d++) {
        dot += x->query[d] * k[d];
    }
    const float masked = a_masked(rule, x->row.mask_row, key, a_capped(rule, dot));
    const int64_t padding_row = a_padding_row(rule, at->entry, x->line.query);
    const float score = a_padded(rule, padding_row, at->entry, key, masked);
    const float top = score > x->top ? score : x->top;
    const float shrink = x->total == 0 ? 0 : expf(x->top - top), weight = a_weight(score, top);
    K_ONE_COPY for (int32_t d = 0; d < args->v_head_size; d++) {
        x->sum[d] = x->sum[d] * shrink + weight * v[d];
    }
    x->total = x->total * shrink + weight;
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
    float key_row[HEAD], value_row[HEAD];
    (void)shared;
    mma_reach(args, at);
    K_BLOCK_LOOP(i, (at->row_count + TOGETHER - 1) / TOGETHER) {
        const int32_t first = (int32_t)i * TOGETHER, left = at->row_count - first;
        const int32_t count = left < TOGETHER ? left : TOGETHER;
        K_ONE_COPY for (int32_t r = 0; r < count; r++) {
            mma_begin(args, at, first + r, &rows[r]);
        }
        K_ONE_COPY for (int32_t key = at->from; key < at->to; key++) {
            mma_read(k + key * args->k_stride[2], args->head_size, key_row);
            mma_read(v + key * args->v_stride[2], args->v_head_size, value_row);
            K_ONE_COPY for (int32_t r = 0; r < count; r++) {
                if (key >= rows[r].row.from && key < rows[r].row.to) {
                    mma_add(args, at, key, key_row, value_row, &rows[r]);
                }
            }
        }
        K_ONE_COPY for (int32_t r = 0; r < count; r++) {
            mma_end(args, at, &rows[r]);
        }
    }
}

#endif
