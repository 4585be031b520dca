/* moe_route.cu - the k best experts of each row and their weights: shares of a softmax over all, or
 * by SparseMixer one over those whose scores are near the best of what is left. Of equal scores the
 * first expert's counts; NaN is below all.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/row_lanes.h"
#include "kernel/quantize/moe_args.h"
#include "kernel/rows/sort_args.h"

enum { GROUP = 32 };

typedef struct r_place {
    float score;
    int32_t expert;
} r_place;

K_FN float r_score(const T *scores, int32_t expert) {
    const float score = T_load(scores[expert]);
    return score == score ? score : -K_INF;
}

/* The best one behind `last` in the order of scores. */
K_FN r_place r_next(const k_round *t, const T *scores, int32_t experts, r_place last) {
    r_place best = {-K_INF, 0x7fffffff};
    for (int32_t e = (int32_t)t->lane; e < experts; e += (int32_t)t->width) {
        const float score = r_score(scores, e);
        const int behind = score < last.score || (score == last.score && e > last.expert);
        if (behind && (score > best.score || (score == best.score && e < best.expert))) {
            best.score = score;
            best.expert = e;
        }
    }
    const float top = (float)k_group_max(best.score, t->width);
    const float first = best.score == top ? -(float)best.expert : -K_INF;
    best.score = top;
    best.expert = (int32_t)-k_group_max(first, t->width);
    return best;
}

/* What SparseMixer's shares of the scores behind `before` and from `best` on are parts of. */
K_FN float r_near(const k_round *t, const T *scores, int32_t experts, r_place best,
                  int32_t before) {
    const float share = 0.02f;
    float sum = 0;
    for (int32_t e = (int32_t)t->lane; e < experts; e += (int32_t)t->width) {
        const float score = T_load(scores[e]);
        const float size = fabsf(score) > best.score ? fabsf(score) : best.score;
        if (e != before && !(best.score - score > share * size)) {
            sum += expf(score - best.score);
        }
    }
    return (float)k_group_sum(sum, t->width);
}

K_FN float r_total(const k_round *t, const T *scores, int32_t experts, float top) {
    float sum = 0;
    for (int32_t e = (int32_t)t->lane; e < experts; e += (int32_t)t->width) {
        sum += expf(T_load(scores[e]) - top);
    }
    return (float)k_group_sum(sum, t->width);
}

K_FN void r_normalize(float *weight, int32_t k) {
    float sum = 0;
    for (int32_t j = 0; j < k; j++) {
        sum += weight[j];
    }
    for (int32_t j = 0; j < k && sum > 0; j++) {
        weight[j] /= sum;
    }
}

K_BLOCK_KERNEL(mp_moe_route_args, args) {
    const k_round t = k_rounds(GROUP);
    for (int64_t first = t.first; first < args.rows; first += t.step) {
        const int64_t row = first + t.group < args.rows ? first + t.group : args.rows - 1;
        const int writes = t.lane == 0 && first + t.group < args.rows;
        const T *scores = (const T *)args.scores + row * args.experts;
        const T *mix = args.mix ? (const T *)args.mix + row * args.experts : 0;
        k_pair *pairs = (k_pair *)args.pairs + row * args.k;
        float *weight = (float *)args.weight + row * args.k;
        r_place last = {K_INF, -1};
        float top = 0, total = 1;
        for (int32_t j = 0; j < args.k; j++) {
            const int32_t before = last.expert;
            float share;
            last = r_next(&t, scores, args.experts, last);
            if (args.sparse) {
                share = 1 / r_near(&t, scores, args.experts, last, before);
            } else {
                if (j == 0) {
                    top = last.score;
                    total = r_total(&t, scores, args.experts, top);
                }
                share = expf(last.score - top) / total;
            }
            if (writes) {
                pairs[j].key = (uint64_t)last.expert;
                pairs[j].index = row * args.k + j;
                weight[j] = mix ? T_load(mix[last.expert]) : share;
            }
        }
        if (writes && args.normalize) {
            r_normalize(weight, args.k);
        }
    }
}
