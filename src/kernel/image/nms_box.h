/* nms_box.h - boxes that overlap, and the order in which the best of them come.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_NMS_BOX_H
#define MP_KERNEL_NMS_BOX_H

#include "kernel/core/block.h"
#include "kernel/image/window_args.h"

typedef struct box {
    float low[2], high[2];
} box;

K_FN box box_of(const mp_nms_args *args, const float *at) {
    box out;
    for (int d = 0; d < 2; d++) {
        if (args->centred) {
            out.low[d] = at[d] - at[d + 2] / 2;
            out.high[d] = at[d] + at[d + 2] / 2;
        } else { /* two corners, in either order */
            out.low[d] = at[d] < at[d + 2] ? at[d] : at[d + 2];
            out.high[d] = at[d] < at[d + 2] ? at[d + 2] : at[d];
        }
    }
    return out;
}

K_FN float area(box b) {
    return (b.high[0] - b.low[0]) * (b.high[1] - b.low[1]);
}

K_FN int overlaps(box a, box b, float limit) {
    box both;
    for (int d = 0; d < 2; d++) {
        both.low[d] = a.low[d] > b.low[d] ? a.low[d] : b.low[d];
        both.high[d] = a.high[d] < b.high[d] ? a.high[d] : b.high[d];
        if (both.high[d] <= both.low[d]) {
            return 0;
        }
    }
    const float shared = area(both), first = area(a), second = area(b);
    return shared > 0 && first > 0 && second > 0 && shared / (first + second - shared) > limit;
}

/* Larger for a larger score, then for a smaller index; never negative. */
K_FN int64_t rank_of(float score, int64_t index) {
    const uint32_t bits = k_bits_of_float(score == 0 ? 0.0f : score); /* -0 is 0 */
    const uint32_t order = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (int64_t)((uint64_t)order << 31 | (uint64_t)(0x7fffffff - index));
}

K_FN int64_t index_of(int64_t rank) {
    return 0x7fffffff - (rank & 0x7fffffff);
}

/* The same of a box that may not be selected at all: negative. */
K_FN int64_t rank_where_fit(const mp_nms_args *args, const float *scores, int64_t i) {
    const float score = scores[i];
    const int fits = args->has_threshold ? score > args->threshold : score == score;
    return fits ? rank_of(score, i) : -1 - i;
}

#endif
