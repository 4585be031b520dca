/* direct_mask.h - what masks and padding add to scores, for attention_direct.cu and
 * attention_group.cu: to those of a key for all rows of a block, found once, or for each row; and
 * how scores are kept below a cap before.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_DIRECT_MASK_H
#define MP_KERNEL_DIRECT_MASK_H

#include "kernel/attention/direct.h"
#include "kernel/attention/mma_mask.h"
#include "kernel/core/late.h"

typedef struct K_ALIGN(8) direct_pair {
    float x[2];
} direct_pair;

/* Bytes of an element of a mask. */
K_FN int32_t direct_mask_width(int32_t kind) {
    return kind == K_MASK_BOOL ? 1 : kind == K_MASK_F32 ? 4 : kind == K_MASK_F64 ? 8 : 2;
}

/* A part of what is added to keys, another one for each lane; NULL where nothing is. */
K_FN const void *direct_ahead(const mp_attention_args *args, const mma_block *at) {
    enum { SECTOR = 32 /* bytes that are loaded at once */ };
    const k_score_rule *rule = &args->rule;
    const int32_t masks = rule->mask_kind != K_MASK_NONE && !args->row_masks;
    const char *from = (const char *)rule->padding;
    int64_t row = a_padding_row(rule, at->entry, 0), keys = rule->keys;
    int32_t width = rule->padding_kind == K_PADDING_FLAGS   ? 4
                    : rule->padding_kind == K_PADDING_MARKS ? 1
                                                            : 0; /* one place has all */
    if (masks) {
        from = (const char *)rule->mask;
        row = a_mask_row(rule, at->entry, at->kv_head * rule->group, 0);
        keys = rule->mask_stride[3] == 1 ? mma_mask_last(rule) + 1 : 1;
        width = direct_mask_width(rule->mask_kind);
    }
    const int64_t place = (int64_t)threadIdx.x * SECTOR;
    from += row * width + (place < keys * width ? place : 0);
    return args->added_keys > 0 && keys > 0 ? from : 0;
}

/* What a warp does before it asks for keys: it finds the places of its `count` rows, `first` and so
 * on of the block, which all warps may read then, and waits for the kernel before. Gives the line
 * of the lane's row. */
K_FN mma_line direct_begin(const mp_attention_args *args, mma_block *at, int32_t first,
                           int32_t count, direct_row *rows) {
    const int32_t lane = (int32_t)threadIdx.x % LANES;
    const mma_line line = mma_line_at(args, at, first + lane % count);
    if (lane < count) {
        direct_find(args, at, &line, rows + lane);
    }
    const void *const ahead = K_MASKED ? direct_ahead(args, at) : 0;
    const int32_t tells = args->rule.lengths != 0; /* which keys there are */
    if (!tells) {
        mma_reach(args, at);
    }
    __syncthreads();
    k_wait();
    if (tells) {
        mma_reach(args, at);
    }
    if (ahead != 0) {
        k_bring_near(ahead);
    }
    return line;
}

/* Kinds of masks and padding, as they are asked for one after the other: the table of a switch
 * would have to come from memory, with nothing else to do meanwhile. */
typedef struct direct_kinds {
    int32_t own, boolean, masks; /* own: of T */
    int32_t flags, padding;
} direct_kinds;

#define DIRECT_MASK_f32  K_MASK_F32
#define DIRECT_MASK_f16  K_MASK_F16
#define DIRECT_MASK_bf16 K_MASK_BF16
#define DIRECT_MASK      K_JOIN(DIRECT_MASK_, K_T0)

K_FN direct_kinds direct_kinds_of(const mp_attention_args *args) {
    const k_score_rule *rule = &args->rule;
    const int32_t kind = args->row_masks ? K_MASK_NONE : rule->mask_kind;
    direct_kinds kinds = {kind == DIRECT_MASK, kind == K_MASK_BOOL, kind != K_MASK_NONE,
                          rule->padding_kind == K_PADDING_FLAGS,
                          rule->padding_kind != K_PADDING_NONE};
    K_HOLD(kinds.own);
    K_HOLD(kinds.boolean);
    K_HOLD(kinds.masks);
    K_HOLD(kinds.flags);
    K_HOLD(kinds.padding);
    return kinds;
}

/* What is added to the scores of all rows, from the block's first key on. */
K_FN void direct_add_up(const mp_attention_args *args, const mma_block *at, float *added) {
    const k_score_rule *rule = &args->rule;
    const direct_kinds is = direct_kinds_of(args);
    const int64_t padding_row = a_padding_row(rule, at->entry, 0);
    const int64_t mask_row = a_mask_row(rule, at->entry, at->kv_head * rule->group, 0);
    K_ONE_COPY for (int32_t i = (int32_t)threadIdx.x; i < args->added_keys;
                    i += (int32_t)blockDim.x) {
        const int32_t key = at->from + i;
        float sum = 0;
        if (key < at->to) {
            sum = is.own       ? a_masked_as(DIRECT_MASK, rule, mask_row, key, sum)
                  : is.boolean ? a_masked_as(K_MASK_BOOL, rule, mask_row, key, sum)
                  : is.masks   ? a_masked(rule, mask_row, key, sum)
                               : sum;
            sum = is.flags ? a_padded_as(K_PADDING_FLAGS, rule, padding_row, at->entry, key, sum)
                  : is.padding ? a_padded(rule, padding_row, at->entry, key, sum)
                               : sum;
        }
        added[i] = sum;
    }
}

/* Products become scores that are no larger than `cap`: cap tanh(x) for x = scale score / cap,
 * where tanh(x) = 1 - 2 / (1 + e^(2 x)), which is off by some 2^-22 and not more. */
K_FN void direct_cap(float cap, float scale, float (*score)[4]) {
    const float power = scale / cap * 2.88539008f;
    K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            score[n][e] = cap - 2 * cap * k_inverse(1 + k_exp2(score[n][e] * power));
        }
    }
}

/* Products become scores: `added` has what the lane's first key gets. A score that bool leaves out
 * is left out whatever it was. */
K_FN void direct_masks(const mp_attention_args *args, float scale,
                       const uint32_t (*mask)[MASK_WORDS], const float *added, float (*score)[4]) {
    const k_score_rule *rule = &args->rule;
    if (rule->softcap > 0) {
        direct_cap((float)rule->softcap, scale, score);
        scale = 1;
    }
    if (args->row_masks) {
        mma_masks(rule->mask_kind, scale, mask, score);
        scale = 1;
    }
    if (args->added_keys == 0) {
        return;
    }
    K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
        const direct_pair more = *(const direct_pair *)(const void *)(added + n * SIDE);
        K_UNROLL for (int32_t e = 0; e < 4; e++) {
            score[n][e] = fmaf(score[n][e], scale, more.x[e % 2]);
        }
    }
    if (rule->mask_kind == K_MASK_BOOL) {
        K_UNROLL for (int32_t n = 0; n < KEY_SIDES; n++) {
            const direct_pair more = *(const direct_pair *)(const void *)(added + n * SIDE);
            K_UNROLL for (int32_t e = 0; e < 4; e++) {
                score[n][e] = more.x[e % 2] == A_NONE ? A_NONE : score[n][e];
            }
        }
    }
}

#endif
