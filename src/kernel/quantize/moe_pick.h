/* moe_pick.h - the best experts of a row by their scores, one after the other, and their shares: of
 * a softmax over all, or by SparseMixer of one over those whose scores are near the best of what is
 * left. Of equal scores the first expert's counts; NaN is below all. All lanes of a group call.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_MOE_PICK_H
#define MP_KERNEL_MOE_PICK_H

#include "kernel/core/row_lanes.h"
#include "kernel/quantize/moe_args.h"

/* Of a row. */
typedef struct e_scores {
    const T *score, *mix; /* mix: NULL, or the weights instead of shares */
    int32_t experts, sparse;
} e_scores;

typedef struct e_place {
    float score;
    int32_t expert;
} e_place;

/* How far it has come: the best one so far, and what shares are of. */
typedef struct e_walk {
    e_place last;
    float top, total;
} e_walk;

K_FN e_scores e_scores_of(const k_moe_scores *from, int64_t row) {
    e_scores of;
    of.score = (const T *)from->scores + row * from->experts;
    of.mix = from->mix ? (const T *)from->mix + row * from->experts : 0;
    of.experts = from->experts;
    of.sparse = from->sparse;
    return of;
}

K_FN e_walk e_begin(void) {
    e_walk walk;
    walk.last.score = K_INF;
    walk.last.expert = -1;
    walk.top = 0;
    walk.total = 1;
    return walk;
}

K_FN float e_score(const T *scores, int32_t expert) {
    const float score = T_load(scores[expert]);
    return score == score ? score : -K_INF;
}

/* The best one behind `last` in the order of scores. */
K_FN e_place e_next(const k_round *t, const e_scores *of, e_place last) {
    e_place best = {-K_INF, 0x7fffffff};
    for (int32_t e = (int32_t)t->lane; e < of->experts; e += (int32_t)t->width) {
        const float score = e_score(of->score, e);
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
K_FN float e_near(const k_round *t, const e_scores *of, e_place best, int32_t before) {
    const float share = 0.02f;
    float sum = 0;
    for (int32_t e = (int32_t)t->lane; e < of->experts; e += (int32_t)t->width) {
        const float score = T_load(of->score[e]);
        const float size = fabsf(score) > best.score ? fabsf(score) : best.score;
        if (e != before && !(best.score - score > share * size)) {
            sum += expf(score - best.score);
        }
    }
    return (float)k_group_sum(sum, t->width);
}

K_FN float e_total(const k_round *t, const e_scores *of, float top) {
    float sum = 0;
    for (int32_t e = (int32_t)t->lane; e < of->experts; e += (int32_t)t->width) {
        sum += expf(T_load(of->score[e]) - top);
    }
    return (float)k_group_sum(sum, t->width);
}

/* Goes to the next one, walk->last, and gives its weight. */
K_FN float e_step(const k_round *t, const e_scores *of, e_walk *walk) {
    const int32_t before = walk->last.expert;
    float share;
    walk->last = e_next(t, of, walk->last);
    if (of->sparse) {
        share = 1 / e_near(t, of, walk->last, before);
    } else {
        if (before < 0) {
            walk->top = walk->last.score;
            walk->total = e_total(t, of, walk->top);
        }
        share = expf(walk->last.score - walk->top) / walk->total;
    }
    return of->mix ? T_load(of->mix[walk->last.expert]) : share;
}

/* So that the weights of a row add up to 1. */
K_FN void e_normalize(float *weight, int32_t k) {
    float sum = 0;
    for (int32_t j = 0; j < k; j++) {
        sum += weight[j];
    }
    for (int32_t j = 0; j < k && sum > 0; j++) {
        weight[j] /= sum;
    }
}

#endif
