/* indexer.h - what the kernels that choose keys share: what a token sees, heads that are normalised
 * and turned.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_INDEXER_H
#define MP_KERNEL_INDEXER_H

#include "kernel/attention/indexer_args.h"
#include "kernel/core/packed_batch.h"

/* ---- tokens ---- */

typedef struct x_token {
    int64_t entry; /* -1: it is of none */
    int64_t place, position;
} x_token;

K_FN x_token x_token_of(const k_indexer *at, int64_t token) {
    x_token t = {-1, 0, 0};
    t.entry = k_entry_of(at->starts, at->batch, at->rows, at->tokens, token);
    if (t.entry >= 0) {
        const int64_t past = at->past ? (int64_t)at->past[t.entry] : at->past_rows;
        const k_tokens own = k_tokens_of(at->starts, t.entry, at->rows, at->tokens);
        t.place = (past < 0 ? 0 : past) + token - own.first;
        t.position = at->positions ? at->positions[token] : t.place;
    }
    return t;
}

K_FN k_windows x_windows_of(const k_indexer *at, int64_t entry) {
    return at->windows ? at->windows[entry] : at->same;
}

/* How many tokens and how many keys a token sees. */
typedef struct x_view {
    int64_t entry, shown, keys;
} x_view;

K_FN x_view x_view_of(const k_indexer *at, int64_t token) {
    const x_token t = x_token_of(at, token);
    x_view view = {t.entry, 0, 0};
    if (t.entry < 0) {
        return view;
    }
    const k_windows windows = x_windows_of(at, t.entry);
    if (windows.refused || t.position < 0) {
        return view;
    }
    const int64_t all = (int64_t)windows.keys + windows.made, last = (int64_t)1 << 62;
    const int64_t position = t.position < last ? t.position : last;
    view.shown = at->shown ? at->shown[t.entry * at->total + t.place] : position + 1;
    view.keys = view.shown / at->ratio < all ? view.shown / at->ratio : all;
    return view;
}

/* ---- heads ---- */

#ifdef K_SUM_WORD
/* Those that are in shared memory; each lane has `size` elements from `lane` in steps of `width`
 * and sees no others. */
K_FN void x_norm(float *x, const T *weight, int32_t size, float epsilon, k_round t) {
    K_SUM squares = 0;
    for (int32_t i = (int32_t)t.lane; i < size; i += (int32_t)t.width) {
        squares += (K_SUM)x[i] * (K_SUM)x[i];
    }
    squares = k_group_sum(squares, t.width);
    const double mean = (double)squares / (double)(size > 0 ? size : 1);
    const float inverse = (float)(1.0 / sqrt(mean + (double)epsilon));
    for (int32_t i = (int32_t)t.lane; i < size; i += (int32_t)t.width) {
        x[i] *= inverse * T_load(weight[i]);
    }
}

/* Element `i` of a head in shared memory, turned. */
K_FN float x_turned(const k_turn *turn, const float *x, int32_t size, int64_t entry,
                    int64_t position, int32_t i) {
    const int32_t half = turn->width / 2, at = turn->trailing ? i - size + 2 * turn->width : i;
    if (at < 0 || (!turn->trailing && at >= turn->width)) {
        return x[i];
    }
    const int32_t second = turn->trailing ? at % 2 : at >= half;
    const int32_t step = turn->trailing ? 1 : half;
    const int64_t last = turn->rows - 1, row = position < 0 ? 0 : position;
    const int64_t angle =
        ((turn->each ? entry * turn->rows : 0) + (row < last ? row : last)) * turn->width +
        (turn->trailing ? at / 2 : at);
    const float c = T_load(((const T *)turn->cosine)[angle]);
    const float s = T_load(((const T *)turn->sine)[angle]);
    return second ? x[i] * c + x[i - step] * s : x[i] * c - x[i + step] * s;
}
#endif

#endif
