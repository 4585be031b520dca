/* indexer_keys.cu - windows of tokens become keys. With K_SOURCE all, tokens lie in a cache and
 * those count that a list names; with mean and gated they are those that waited and the new ones.
 * Gated, an element is the sum of one half of the tokens of the window before and the other half of
 * its own, each weighted by its gate; where these have no sum, it is 0.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/row_lanes.h"

#include "kernel/attention/indexer.h"

#define X_all   0
#define X_mean  1
#define X_gated 2
enum { SOURCE = K_JOIN(X_, K_SOURCE), HALVES = SOURCE == X_gated ? 2 : 1 };

typedef struct x_window {
    int64_t entry, number, first; /* the first token of it, of all of the entry */
    int64_t fresh;                /* where new tokens of the entry begin */
    k_windows windows;
} x_window;

/* Window `row`; an entry of -1 for none. */
K_FN x_window x_window_of(const mp_indexer_keys_args *args, int64_t row) {
    const k_indexer *at = &args->at;
    x_window w;
    w.entry = row / args->windows_most;
    w.number = row % args->windows_most;
    w.windows = x_windows_of(at, w.entry);
    w.fresh = k_tokens_of(at->starts, w.entry, at->rows, at->tokens).first;
    w.first = w.windows.before + w.number * at->ratio;
    int64_t made = w.windows.made;
    if (SOURCE == X_all && at->shown) {
        made = at->shown[w.entry * at->total + at->total - 1] / at->ratio;
    }
    w.entry = w.number < made ? w.entry : -1;
    return w;
}

/* The row of token `v` of an entry, or of its gate. */
K_FN const T *x_row(const mp_indexer_keys_args *args, const x_window *w, int64_t v, int gate) {
    const int64_t width = (int64_t)HALVES * args->size;
    if (SOURCE == X_all) {
        const int64_t token = args->listed ? args->listed[w->entry * args->at.total + v] : v;
        return (const T *)args->fresh + (w->entry * args->kept_rows + token) * width;
    }
    if (v < w->windows.waiting) {
        const T *kept = (const T *)(gate ? args->kept_gate : args->kept);
        return kept + (w->entry * args->kept_rows + v) * width;
    }
    const T *fresh = (const T *)(gate ? args->gate : args->fresh);
    return fresh + (w->fresh + v - w->windows.waiting) * (gate ? width : args->pitch);
}

K_FN float x_mean(const mp_indexer_keys_args *args, const x_window *w, int32_t i) {
    float sum = 0;
    for (int64_t s = 0; s < args->at.ratio; s++) {
        sum += T_load(x_row(args, w, w->first + s, 0)[i]);
    }
    return sum / (float)args->at.ratio;
}

/* The gate of token `s` of both windows. */
K_FN float x_gate(const mp_indexer_keys_args *args, const x_window *w, int64_t s, int32_t i) {
    const int64_t ratio = args->at.ratio;
    const int64_t column = s < ratio ? i : (int64_t)args->size + i;
    const float bias =
        T_load(((const T *)args->bias)[s % ratio * HALVES * (int64_t)args->size + column]);
    return T_load(x_row(args, w, w->first - ratio + s, 1)[column]) + bias;
}

K_FN float x_gated(const mp_indexer_keys_args *args, const x_window *w, int32_t i) {
    const int64_t ratio = args->at.ratio, begin = w->first >= ratio ? 0 : ratio;
    float top = -K_INF, total = 0, sum = 0;
    for (int64_t s = begin; s < 2 * ratio; s++) {
        const float gate = x_gate(args, w, s, i);
        top = gate > top ? gate : top;
    }
    for (int64_t s = begin; s < 2 * ratio; s++) {
        const float weight = expf(x_gate(args, w, s, i) - top);
        const int64_t column = s < ratio ? i : (int64_t)args->size + i;
        total += weight;
        sum += weight * T_load(x_row(args, w, w->first - ratio + s, 0)[column]);
    }
    return total > 0 && total < K_INF ? sum / total : 0;
}

/* Where the first token of a window is among all of its entry. */
K_FN int64_t x_begin(const mp_indexer_keys_args *args, const x_window *w) {
    if (SOURCE == X_all) {
        return args->listed ? args->listed[w->entry * args->at.total + w->first] : w->first;
    }
    return (w->windows.keys + w->number) * args->at.ratio;
}

K_FN void x_keep(const mp_indexer_keys_args *args, const x_window *w, int32_t i, float value) {
    const int64_t row = w->entry * args->capacity + w->windows.keys + w->number;
#if K_JOIN(X_, K_SOURCE) == X_all
    ((float *)args->out)[row * args->size + i] = value;
#else
    ((T *)args->out)[row * args->size + i] = T_store(value);
    const int64_t last = w->first + args->at.ratio - 1 - w->windows.waiting;
    if (args->update && last >= 0 && last < w->windows.captured) {
        ((T *)args->update)[(w->entry * args->updates + last) * args->size + i] = T_store(value);
    }
#endif
}

K_BLOCK_KERNEL(mp_indexer_keys_args, args) {
    K_SHARED(float, shared);
    const k_round t = k_rounds(K_INDEXER_WIDTH);
    const int64_t rows = args.at.batch * args.windows_most;
    K_ROUND_LOOP(first, t, rows) {
        x_window w;
        w.entry = -1;
        if (first + t.group < rows) {
            w = x_window_of(&args, first + t.group);
        }
        const int32_t size = w.entry >= 0 ? args.size : 0;
        float *x = shared + t.group * args.size;
        for (int32_t i = (int32_t)t.lane; i < size; i += (int32_t)t.width) {
            x[i] = SOURCE == X_gated ? x_gated(&args, &w, i) : x_mean(&args, &w, i);
        }
        x_norm(x, (const T *)args.weight, size, args.epsilon, t);
        __syncthreads();
        const int64_t position = size > 0 ? x_begin(&args, &w) : 0;
        for (int32_t i = (int32_t)t.lane; i < size; i += (int32_t)t.width) {
            x_keep(&args, &w, i, x_turned(&args.turn, x, size, w.entry, position, i));
        }
        __syncthreads();
    }
}
